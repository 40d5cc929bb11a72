// Gradient of the mean cross entropy over the labels there are: one thread a row and horizon.

#define THREADS 128

// labels [.., horizons], read at anchors; below 0: none. Every block counts those there are, so that none waits.
extern "C" __global__ void frd_gradient(const float* __restrict__ logits, const long long* __restrict__ labels,
                                        const long long* __restrict__ anchors, long long rows, long long horizons,
                                        long long atoms, float* __restrict__ grad)
{
    __shared__ int counts[THREADS];
    int t = threadIdx.x, count = 0;
    long long items = rows * horizons, i = (long long)blockIdx.x * THREADS + t;
    for (long long k = t; k < items; k += THREADS)
        count += labels[anchors[k / horizons] * horizons + k % horizons] >= 0;
    counts[t] = count;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) counts[t] += counts[t + half];
    }
    __syncthreads();
    if (i >= items) return;
    long long label = labels[anchors[i / horizons] * horizons + i % horizons];
    const float* x = logits + i * atoms;
    float many = (float)(counts[0] > 1 ? counts[0] : 1), top = x[0], total = 0.0f;
    for (long long j = 1; j < atoms; ++j) top = fmaxf(top, x[j]);
    for (long long j = 0; j < atoms; ++j) total += expf(x[j] - top);
    for (long long j = 0; j < atoms; ++j)
        grad[i * atoms + j] = label < 0 ? 0.0f : (expf(x[j] - top) / total - (j == label ? 1.0f : 0.0f)) / many;
}
