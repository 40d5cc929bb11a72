// Selective scan h_k = a_k h_{k-1} + b_k over [rows, steps, channels]: one thread a (row, channel), neighbours on
// neighbouring channels. Every step's loads are independent of the recurrence, so a few are in flight ahead of it.

extern "C" __global__ void scan_forward(const float* __restrict__ a, const float* __restrict__ b, long long rows,
                                        long long steps, long long channels, float* __restrict__ h)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * channels) return;
    long long row = i / channels, at = row * (steps - 1) * channels + i;  // word of (row, step 0, channel)
    float state = b[at];
    h[at] = state;
#pragma unroll 8
    for (long long k = 1; k < steps; ++k) {
        at += channels;
        state = fmaf(a[at], state, b[at]);
        h[at] = state;
    }
}

// g_k = dh_k + a_{k+1} g_{k+1}; db = g, da_k = g_k h_{k-1} (Gu & Dao 2023).
extern "C" __global__ void scan_backward(const float* __restrict__ a, const float* __restrict__ h,
                                         const float* __restrict__ dh, long long rows, long long steps,
                                         long long channels, float* __restrict__ da, float* __restrict__ db)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * channels) return;
    long long row = i / channels, first = row * (steps - 1) * channels + i;
    long long at = first + (steps - 1) * channels;
    float g = dh[at];
#pragma unroll 8
    for (long long k = steps - 1; k > 0; --k) {
        db[at] = g;
        da[at] = g * h[at - channels];
        g = fmaf(a[at], g, dh[at - channels]);
        at -= channels;
    }
    db[first] = g;
    da[first] = 0.0f;
}
