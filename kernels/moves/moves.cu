// Books at the decision, moves of the mid, and the correlation of each newest input with them from running moments.

#define FEATURES 32
#define LANES 16  // of a feature over the accounts, and of an account over the levels
#define THREADS (FEATURES * LANES)
#define GROUP (THREADS / LANES)  // accounts a block of books adds up
#define MOMENTS 5
#define BOOKS 6
typedef long long i64;

struct Tape {
    const int *bid_px, *ask_px, *bid_sz, *ask_sz;
    const i64 *now, *after;
    i64 absent, accounts, levels;
};

struct Move { i64 mid, change; bool two_sided, both; };  // half-ticks

__device__ static Move move_of(const Tape& tape, i64 account)
{
    i64 here = tape.now[account] * tape.levels, there = tape.after[account] * tape.levels;
    int bid = tape.bid_px[here], ask = tape.ask_px[here], bid_then = tape.bid_px[there], ask_then = tape.ask_px[there];
    bool then = bid_then != tape.absent && ask_then != tape.absent;
    Move m = {0, 0, bid != tape.absent && ask != tape.absent, false};
    m.both = m.two_sided && then;
    if (m.two_sided) m.mid = (i64)bid + ask;
    if (m.both) m.change = (i64)bid_then + ask_then - m.mid;
    return m;
}

// One block: whether there are moments yet is asked of all of them before any is written. Thread (t, lane) adds
// accounts lane, lane + LANES, ... of feature t; lanes are added pairwise.
__device__ static void correlate(const Tape& tape, const float* x, i64 steps, i64 features, double rate,
                                 double* moments, double* correlation)
{
    __shared__ double sums[MOMENTS + 1][LANES][FEATURES];  // the last: accounts that saw a move
    int t = threadIdx.x % FEATURES, lane = threadIdx.x / FEATURES, started = 0;
    for (i64 i = threadIdx.x; i < features * MOMENTS; i += THREADS) started |= moments[i] != 0;
    started = __syncthreads_or(started);
    for (i64 f = t; f - t < features; f += FEATURES) {
        double own[MOMENTS + 1] = {};
        if (f < features)
#pragma unroll 4
            for (i64 b = lane; b < tape.accounts; b += LANES) {
                Move m = move_of(tape, b);
                double y = (double)m.change, v = x[((b + 1) * steps - 1) * features + f];
                if (!m.both || tape.after[b] <= tape.now[b]) continue;
                own[0] += v, own[1] += y, own[2] += v * v, own[3] += y * y, own[4] += v * y, own[5] += 1;
            }
        for (int k = 0; k <= MOMENTS; ++k) sums[k][lane][t] = own[k];
        for (int half = LANES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half)
                for (int k = 0; k <= MOMENTS; ++k) sums[k][lane][t] += sums[k][lane + half][t];
        }
        if (lane == 0 && f < features) {
            double m[MOMENTS], seen = sums[MOMENTS][0][t];
            for (int k = 0; k < MOMENTS; ++k) {
                double kept = moments[f * MOMENTS + k], mean = sums[k][0][t] / (seen > 0 ? seen : 1);
                m[k] = seen == 0 ? kept : started ? kept + rate * (mean - kept) : mean;
                moments[f * MOMENTS + k] = m[k];
            }
            double of_x = m[2] - m[0] * m[0], of_y = m[3] - m[1] * m[1];
            double variance = (of_x < 0 ? 0 : of_x) * (of_y < 0 ? 0 : of_y);
            double r = (m[4] - m[0] * m[1]) / sqrt(variance > 1e-24 ? variance : 1e-24);
            correlation[f] = variance <= 1e-24 ? 0 : r > 1 ? 1 : r < -1 ? -1 : r;
        }
        __syncthreads();
    }
}

// GROUP accounts, LANES threads each: is the book that of the row before, and where is the mid and where does it go.
__device__ static void books(const Tape& tape, i64 group, i64* out)
{
    __shared__ bool differs[GROUP][LANES];
    __shared__ i64 found[BOOKS][GROUP];
    int lane = threadIdx.x % LANES, mine = threadIdx.x / LANES;
    i64 account = group * GROUP + mine;
    bool other = false;
    if (account < tape.accounts) {
        i64 row = tape.now[account], here = row * tape.levels, before = (row > 0 ? row - 1 : 0) * tape.levels;
        for (i64 l = lane; l < tape.levels; l += LANES)
            other |= tape.bid_px[here + l] != tape.bid_px[before + l] | tape.ask_px[here + l] != tape.ask_px[before + l]
                   | tape.bid_sz[here + l] != tape.bid_sz[before + l]
                   | tape.ask_sz[here + l] != tape.ask_sz[before + l];
    }
    differs[mine][lane] = other;
    __syncthreads();
    if (lane == 0) {
        Move m = account < tape.accounts ? move_of(tape, account) : Move{};
        bool same = account < tape.accounts;
        for (int l = 0; l < LANES; ++l) same = same && !differs[mine][l];
        found[0][mine] = same, found[1][mine] = m.mid, found[2][mine] = m.two_sided;
        found[3][mine] = m.change < 0 ? -m.change : m.change, found[4][mine] = m.change * m.change;
        found[5][mine] = m.both;
    }
    __syncthreads();
    if (threadIdx.x >= BOOKS) return;
    i64 sum = 0;
    for (int a = 0; a < GROUP; ++a) sum += found[threadIdx.x][a];
    out[group * BOOKS + threadIdx.x] = sum;
}

// Block 0 correlates; each other adds up the books of a group of accounts.
extern "C" __global__ void moves_measure(const float* __restrict__ x, const int* __restrict__ bid_px,
                                         const int* __restrict__ ask_px, const int* __restrict__ bid_sz,
                                         const int* __restrict__ ask_sz, const long long* __restrict__ now,
                                         const long long* __restrict__ after, const double* __restrict__ rate,
                                         long long absent, long long accounts, long long steps, long long features,
                                         long long levels, double* moments, double* __restrict__ correlation,
                                         long long* __restrict__ found)
{
    Tape tape = {bid_px, ask_px, bid_sz, ask_sz, now, after, absent, accounts, levels};
    if (blockIdx.x == 0) correlate(tape, x, steps, features, *rate, moments, correlation);
    else books(tape, (i64)blockIdx.x - 1, found);
}
