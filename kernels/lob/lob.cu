// Market orders against displayed levels, in integers: ticks int32, lots int32 or int64, sums int64.

#define TILE 1280  // words of a side a block holds; a side has at most as many levels

// A block takes as many accounts as fit the tile, one thread an account: sides come in and fills go out in whole lines,
// and the walk from the touch downwards is in shared memory.
extern "C" __global__ void lob_fill(const long long* __restrict__ side, const long long* __restrict__ lots,
                                    const int* __restrict__ px, const int* __restrict__ avail,
                                    const bool* __restrict__ force, long long absent, long long accounts,
                                    long long levels, long long* __restrict__ filled,
                                    long long* __restrict__ tick_lots, long long* __restrict__ per_level,
                                    long long* __restrict__ levels_consumed, long long* __restrict__ forced_rest)
{
    __shared__ int price[TILE], lot[TILE];  // lot: first what a level holds, then what is taken from it
    int depth = (int)levels, t = threadIdx.x, threads = blockDim.x, fit = TILE / depth < threads ? TILE / depth : threads;
    long long first = (long long)blockIdx.x * fit, account = first + t;
    int here = accounts - first < fit ? (int)(accounts - first) : fit, words = here * depth;
    for (int w = t; w < words; w += threads) {
        price[w] = px[first * levels + w];
        lot[w] = price[w] != absent ? avail[first * levels + w] : 0;
    }
    __syncthreads();
    if (t < here) {
        long long wanted = side[account] != 0 && lots[account] > 0 ? lots[account] : 0, left = wanted, cost = 0;
        int deepest = 0, reached = 0;
        for (int l = 0; l < depth; ++l) {
            int w = t * depth + l, got = lot[w] < left ? lot[w] : (int)left;
            left -= got;
            cost += (long long)got * price[w];
            if (price[w] != absent) deepest = l + 1;
            if (got > 0) reached = l + 1;
            lot[w] = got;
        }
        long long rest = force[account] && deepest > 0 ? left : 0;
        if (rest > 0) cost += rest * price[t * depth + deepest - 1];
        filled[account] = wanted - left + rest;
        tick_lots[account] = cost;
        levels_consumed[account] = rest > 0 ? deepest : reached;
        forced_rest[account] = rest;
    }
    __syncthreads();
    for (int w = t; w < words; w += threads) per_level[first * levels + w] = lot[w];
}

// One thread a (account, level): what the account took at this price and size, whatever its rank was, is gone.
extern "C" __global__ void lob_available(const int* __restrict__ taken_px, const int* __restrict__ taken_lots,
                                         const int* __restrict__ taken_sz, const int* __restrict__ px,
                                         const int* __restrict__ sz, long long accounts, long long levels,
                                         long long remembered, int* __restrict__ avail, int* __restrict__ px_now,
                                         int* __restrict__ lots_now, int* __restrict__ sz_now)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= accounts * levels) return;
    long long first = i / levels * remembered;
    int price = px[i], size = sz[i], taken = 0;
#pragma unroll 5
    for (long long m = first; m < first + remembered; ++m) {
        bool same = taken_px[m] == price & taken_sz[m] == size;
        int there = taken_lots[m];
        if (same) taken += there;
    }
    avail[i] = size - taken;
    px_now[i] = price;
    lots_now[i] = taken;
    sz_now[i] = size;
}

extern "C" __global__ void lob_take(const int* __restrict__ taken_lots, const long long* __restrict__ per_level,
                                    long long words, int* __restrict__ lots_now)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < words) lots_now[i] = taken_lots[i] + (int)per_level[i];
}
