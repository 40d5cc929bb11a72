// Selective scan with its gates: a = sigmoid(p), s_k = a_k s_{k-1} + (1 - a_k) b_k over [rows, steps, channels]; p and b
// are the last 2 channels columns of `pre` [rows, steps, width] plus `bias`. One thread a (row, channel), neighbours on
// neighbouring channels. Loads do not depend on the recurrence, so those of a few steps are in flight at once.

#define AHEAD 8
#define COLUMNS 32  // channels of a block of the backward
#define LANES 8     // and its rows

extern "C" __global__ void scan_forward(const float* __restrict__ pre, const float* __restrict__ bias, long long rows,
                                        long long steps, long long channels, long long width,
                                        float* __restrict__ decay, float* __restrict__ state)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * channels) return;
    long long row = i / channels, channel = i % channels, first = row * steps * channels + channel;
    int stride = (int)channels, wide = (int)width, n = (int)steps;
    pre += row * steps * width + width - 2 * channels + channel, decay += first, state += first;
    float shift_p = bias[channel], shift_b = bias[channels + channel], s = 0.0f, p[AHEAD], b[AHEAD];
    for (int from = 0; from < n; from += AHEAD) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) p[j] = pre[j * wide], b[j] = pre[j * wide + stride];
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) {
                float a = 1.0f / (1.0f + expf(-(p[j] + shift_p))), drive = (1.0f - a) * (b[j] + shift_b);
                s = from + j > 0 ? fmaf(a, s, drive) : drive;
                decay[j * stride] = a, state[j * stride] = s;
            }
        pre += AHEAD * wide, decay += AHEAD * stride, state += AHEAD * stride;
    }
}

// g_k = ds_k + a_{k+1} g_{k+1} (Gu & Dao 2023), from the last step to the first; db = (1 - a) g, and
// dp = a (1 - a) (s_{k-1} - b_k) g = a (s_{k-1} - s_k) g, so b is not read. Block (x, y): 32 channels of 8 rows; its
// sums of dp and db are row y of parts [blocks, 2 channels].
extern "C" __global__ void scan_backward(const float* __restrict__ decay, const float* __restrict__ state,
                                         const float* __restrict__ ds, long long rows, long long steps,
                                         long long channels, long long width, float* __restrict__ dpre,
                                         float* __restrict__ parts)
{
    __shared__ float sums[2][LANES][COLUMNS];
    int lane = threadIdx.y, column = threadIdx.x, stride = (int)channels, wide = (int)width, n = (int)steps;
    long long channel = (long long)blockIdx.x * COLUMNS + column, row = (long long)blockIdx.y * LANES + lane;
    float sum_p = 0.0f, sum_b = 0.0f;
    if (row < rows && channel < channels) {
        long long end = row * steps + steps - 1, last = end * channels + channel;
        decay += last, state += last, ds += last, dpre += end * width + width - 2 * channels + channel;
        float g = 0.0f, after = 0.0f, a[AHEAD], s[AHEAD + 1], grad[AHEAD];
        for (int from = 0; from < n; from += AHEAD) {
            s[0] = state[0];
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
                if (from + j < n) {
                    a[j] = decay[-j * stride], grad[j] = ds[-j * stride];
                    s[j + 1] = from + j < n - 1 ? state[(-1 - j) * stride] : 0.0f;
                }
#pragma unroll
            for (int j = 0; j < AHEAD; ++j)
                if (from + j < n) {
                    g = from + j > 0 ? fmaf(after, g, grad[j]) : grad[j];
                    float dp = g * a[j] * (s[j + 1] - s[j]), db = g * (1.0f - a[j]);
                    dpre[-j * wide] = dp, dpre[stride - j * wide] = db;
                    sum_p += dp, sum_b += db;
                    after = a[j];
                }
            decay -= AHEAD * stride, state -= AHEAD * stride, ds -= AHEAD * stride, dpre -= AHEAD * wide;
        }
    }
    sums[0][lane][column] = sum_p, sums[1][lane][column] = sum_b;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            for (int q = 0; q < 2; ++q) sums[q][lane][column] += sums[q][lane + half][column];
    }
    if (lane == 0 && channel < channels)
        for (int q = 0; q < 2; ++q) parts[(blockIdx.y * 2 + q) * channels + channel] = sums[q][0][column];
}
