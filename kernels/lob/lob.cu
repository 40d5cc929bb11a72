// Market orders against displayed levels, in integers: ticks int32, lots int32 or int64, sums int64.

// One thread a (account, level): it walks from the touch to its level and writes what the order takes there; the
// thread of the deepest level has then seen the whole side and writes the sums.
extern "C" __global__ void lob_fill(const long long* __restrict__ side, const long long* __restrict__ lots,
                                    const int* __restrict__ px, const int* __restrict__ avail,
                                    const bool* __restrict__ force, long long absent, long long accounts,
                                    long long levels, long long* __restrict__ filled,
                                    long long* __restrict__ tick_lots, long long* __restrict__ per_level,
                                    long long* __restrict__ levels_consumed, long long* __restrict__ forced_rest)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= accounts * levels) return;
    long long account = i / levels, first = account * levels, own = i - first;
    long long wanted = side[account] != 0 && lots[account] > 0 ? lots[account] : 0;
    long long above = 0, taken = 0, cost = 0, deepest = 0, deepest_px = 0, reached = 0, got = 0;
    for (long long l = 0; l <= own; ++l) {
        long long price = px[first + l], held = price != absent ? avail[first + l] : 0;
        long long left = wanted > above ? wanted - above : 0;
        got = held < left ? held : left;
        above += held;
        taken += got;
        cost += got * price;
        if (price != absent) deepest = l + 1, deepest_px = price;
        if (got > 0) reached = l + 1;
    }
    per_level[i] = got;
    if (own != levels - 1) return;
    long long rest = force[account] && deepest > 0 ? wanted - taken : 0;
    filled[account] = taken + rest;
    tick_lots[account] = cost + rest * deepest_px;
    levels_consumed[account] = rest > 0 ? deepest : reached;
    forced_rest[account] = rest;
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
    for (long long m = first; m < first + remembered; ++m)
        if (taken_px[m] == price && taken_sz[m] == size) taken += taken_lots[m];
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
