// Gradient of the mean cross entropy over the labels there are: one thread a row and horizon.

#define THREADS 128

// labels [.., horizons], read at anchors; below 0: none. Every block counts those there are, so that none waits.
extern "C" __global__ void frd_gradient(const float* __restrict__ logits, const long long* __restrict__ labels,
                                        const long long* __restrict__ anchors, long long rows, long long horizons,
                                        long long atoms, float* __restrict__ grad)
{
    __shared__ int counts[THREADS];
    int t = threadIdx.x, n = (int)atoms, wide = (int)horizons, items = (int)rows * wide, count = 0;
    int i = blockIdx.x * THREADS + t;
    for (int k = t; k < items; k += THREADS) count += labels[anchors[k / wide] * horizons + k % wide] >= 0;
    counts[t] = count;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) counts[t] += counts[t + half];
    }
    __syncthreads();
    if (i >= items) return;
    long long label = labels[anchors[i / wide] * horizons + i % wide];
    const float* x = logits + (long long)i * n;
    float* out = grad + (long long)i * n;
    float many = (float)(counts[0] > 1 ? counts[0] : 1), top = x[0], total = 0.0f;
    for (int j = 1; j < n; ++j) top = fmaxf(top, x[j]);
    for (int j = 0; j < n; ++j) total += expf(x[j] - top);
    for (int j = 0; j < n; ++j)
        out[j] = label < 0 ? 0.0f : (expf(x[j] - top) / total - (j == label ? 1.0f : 0.0f)) / many;
}
