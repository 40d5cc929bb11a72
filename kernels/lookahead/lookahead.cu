// Running moments of each newest input and the next move of the mid, and their correlation. One block: whether there
// are moments yet is asked of all of them before any is written.

#define FEATURES 32
#define LANES 16
#define THREADS (FEATURES * LANES)
#define MOMENTS 5
typedef long long i64;

// Thread (f, lane) adds accounts lane, lane + LANES, ... of feature f; lanes are added pairwise.
extern "C" __global__ void lookahead_correlate(const float* __restrict__ x, const int* __restrict__ bid_px,
                                               const int* __restrict__ ask_px, const long long* __restrict__ now,
                                               const long long* __restrict__ after, const double* __restrict__ rate,
                                               long long absent, long long accounts, long long steps,
                                               long long features, long long levels, double* moments,
                                               double* __restrict__ correlation)
{
    __shared__ double sums[MOMENTS + 1][LANES][FEATURES];  // the last row: accounts that saw a move
    int t = threadIdx.x, lane = threadIdx.y, started = 0;
    for (i64 i = lane * FEATURES + t; i < features * MOMENTS; i += THREADS) started |= moments[i] != 0;
    started = __syncthreads_or(started);
    for (i64 first = 0; first < features; first += FEATURES) {
        i64 f = first + t;
        double own[MOMENTS + 1] = {};
        if (f < features)
#pragma unroll 4
            for (i64 b = lane; b < accounts; b += LANES) {
                i64 here = now[b], there = after[b];
                int bid = bid_px[here * levels], ask = ask_px[here * levels];
                int bid_then = bid_px[there * levels], ask_then = ask_px[there * levels];
                bool both = bid != absent && ask != absent && bid_then != absent && ask_then != absent;
                if (!both || there <= here) continue;
                double y = (double)((i64)bid_then + ask_then - bid - ask), v = x[((b + 1) * steps - 1) * features + f];
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
                m[k] = seen == 0 ? kept : started ? kept + *rate * (mean - kept) : mean;
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
