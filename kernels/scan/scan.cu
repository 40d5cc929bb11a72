// Selective scan h_k = a_k h_{k-1} + b_k over [rows, steps, channels]: one thread a (row, channel), neighbours on
// neighbouring channels. Loads do not depend on the recurrence, so those of a few steps are in flight at once.

#define AHEAD 8

extern "C" __global__ void scan_forward(const float* __restrict__ a, const float* __restrict__ b, long long rows,
                                        long long steps, long long channels, float* __restrict__ h)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * channels) return;
    long long first = i / channels * (steps - 1) * channels + i;  // word of (row, step 0, channel)
    a += first, b += first, h += first;
    int stride = (int)channels, n = (int)steps;
    float state = 0.0f, decay[AHEAD], input[AHEAD];
    for (int from = 0; from < n; from += AHEAD) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) decay[j] = a[j * stride], input[j] = b[j * stride];
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) {
                state = from + j > 0 ? fmaf(decay[j], state, input[j]) : input[j];
                h[j * stride] = state;
            }
        a += AHEAD * stride, b += AHEAD * stride, h += AHEAD * stride;
    }
}

// g_k = dh_k + a_{k+1} g_{k+1}; db = g, da_k = g_k h_{k-1} (Gu & Dao 2023), from the last step to the first.
extern "C" __global__ void scan_backward(const float* __restrict__ a, const float* __restrict__ h,
                                         const float* __restrict__ dh, long long rows, long long steps,
                                         long long channels, float* __restrict__ da, float* __restrict__ db)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * channels) return;
    long long last = i / channels * (steps - 1) * channels + i + (steps - 1) * channels;
    a += last, h += last, dh += last, da += last, db += last;
    int stride = (int)channels, n = (int)steps;
    float g = 0.0f, decay[AHEAD], before[AHEAD], grad[AHEAD];
    for (int from = 0; from < n; from += AHEAD) {
#pragma unroll
        for (int j = 0; j < AHEAD; ++j) {
            if (from + j < n) grad[j] = dh[-j * stride];
            if (from + j < n && from + j > 0) decay[j] = a[(1 - j) * stride];
            if (from + j < n - 1) before[j] = h[(-1 - j) * stride];
        }
#pragma unroll
        for (int j = 0; j < AHEAD; ++j)
            if (from + j < n) {
                g = from + j > 0 ? fmaf(decay[j], g, grad[j]) : grad[j];
                db[-j * stride] = g;
                da[-j * stride] = from + j < n - 1 ? g * before[j] : 0.0f;
            }
        a -= AHEAD * stride, h -= AHEAD * stride, dh -= AHEAD * stride, da -= AHEAD * stride, db -= AHEAD * stride;
    }
}
