// Selective scan with its gates: a = sigmoid(p), s_k = a_k s_{k-1} + (1 - a_k) b_k, y = w s over [rows, steps, channels];
// p and b lie side by side in `pre` [rows, steps, 2 channels]. One thread a (row, channel), neighbours on neighbouring
// channels. Loads do not depend on the recurrence, so those of a few steps are in flight at once.

#define AHEAD 8
#define COLUMNS 32  // channels of a block of the backward
#define LANES 8     // and its rows

extern "C" __global__ void scan_forward(const float* __restrict__ pre, const float* __restrict__ w, long long rows,
                                        long long steps, long long channels, float* __restrict__ decay,
                                        float* __restrict__ state, float* __restrict__ y)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * channels) return;
    long long row = i / channels, channel = i % channels, first = row * steps * channels + channel;
    int stride = (int)channels, n = (int)steps;
    pre += row * steps * 2 * channels + channel, decay += first, state += first, y += first;
    float out = w[channel], s = 0.0f, p[AHEAD], b[AHEAD];
    for (int from = 0; from < n; from += AHEAD) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) p[j] = pre[2 * j * stride], b[j] = pre[(2 * j + 1) * stride];
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) {
                float a = 1.0f / (1.0f + expf(-p[j])), drive = (1.0f - a) * b[j];
                s = from + j > 0 ? fmaf(a, s, drive) : drive;
                decay[j * stride] = a, state[j * stride] = s, y[j * stride] = s * out;
            }
        pre += 2 * AHEAD * stride, decay += AHEAD * stride, state += AHEAD * stride, y += AHEAD * stride;
    }
}

// g_k = w dy_k + a_{k+1} g_{k+1} (Gu & Dao 2023), from the last step to the first; db = (1 - a) g, and
// dp = a (1 - a) (s_{k-1} - b_k) g = a (s_{k-1} - s_k) g, so b is not read. Block (x, y): 32 channels of 8 rows; its
// sums of dp, db and s dy are row y of parts [blocks, 3 channels].
extern "C" __global__ void scan_backward(const float* __restrict__ decay, const float* __restrict__ state,
                                         const float* __restrict__ w, const float* __restrict__ dy, long long rows,
                                         long long steps, long long channels, float* __restrict__ dpre,
                                         float* __restrict__ parts)
{
    __shared__ float sums[3][LANES][COLUMNS];
    int lane = threadIdx.y, column = threadIdx.x, stride = (int)channels, n = (int)steps;
    long long channel = (long long)blockIdx.x * COLUMNS + column, row = (long long)blockIdx.y * LANES + lane;
    float sum_p = 0.0f, sum_b = 0.0f, sum_w = 0.0f;
    if (row < rows && channel < channels) {
        long long last = (row * steps + steps - 1) * channels + channel;
        decay += last, state += last, dy += last, dpre += 2 * (last - channel) + channel;
        float out = w[channel], g = 0.0f, after = 0.0f, a[AHEAD], s[AHEAD + 1], grad[AHEAD];
        for (int from = 0; from < n; from += AHEAD) {
            s[0] = state[0];
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
                if (from + j < n) {
                    a[j] = decay[-j * stride], grad[j] = dy[-j * stride];
                    s[j + 1] = from + j < n - 1 ? state[(-1 - j) * stride] : 0.0f;
                }
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
                if (from + j < n) {
                    float direct = out * grad[j];
                    g = from + j > 0 ? fmaf(after, g, direct) : direct;
                    float dp = g * a[j] * (s[j + 1] - s[j]), db = g * (1.0f - a[j]);
                    dpre[-2 * j * stride] = dp, dpre[(1 - 2 * j) * stride] = db;
                    sum_p += dp, sum_b += db, sum_w += grad[j] * s[j];
                    after = a[j];
                }
            decay -= AHEAD * stride, state -= AHEAD * stride, dy -= AHEAD * stride, dpre -= 2 * AHEAD * stride;
        }
    }
    sums[0][lane][column] = sum_p, sums[1][lane][column] = sum_b, sums[2][lane][column] = sum_w;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            for (int q = 0; q < 3; ++q) sums[q][lane][column] += sums[q][lane + half][column];
    }
    if (lane == 0 && channel < channels)
        for (int q = 0; q < 3; ++q) parts[(blockIdx.y * 3 + q) * channels + channel] = sums[q][0][column];
}
