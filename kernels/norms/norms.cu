// Norms of up to eight buffers of one size and of their sum, which is written where it is wanted. Sums of squares are
// double, in an order that depends on the size alone.

#define THREADS 256
#define PARTS 8

// Block b adds up the elements of chunk b: squares [blocks, n + 1], the last of the sum of the parts in their order.
extern "C" __global__ void norms_squares(const float* p0, const float* p1, const float* p2, const float* p3,
                                         const float* p4, const float* p5, const float* p6, const float* p7,
                                         long long n, long long elements, long long chunk, float* __restrict__ total,
                                         double* __restrict__ squares)
{
    __shared__ double sums[PARTS + 1][THREADS];
    const float* parts[PARTS] = {p0, p1, p2, p3, p4, p5, p6, p7};
    double found[PARTS + 1] = {};
    int t = threadIdx.x, last = (int)n;
    long long first = blockIdx.x * chunk, end = first + chunk < elements ? first + chunk : elements;
    for (long long i = first + t; i < end; i += THREADS) {
        float x[PARTS], sum = 0.0f;
#pragma unroll
        for (int k = 0; k < PARTS; ++k) x[k] = k < n ? parts[k][i] : 0.0f;
#pragma unroll
        for (int k = 0; k < PARTS; ++k) sum += x[k], found[k] += (double)x[k] * x[k];
        found[PARTS] += (double)sum * sum;
        if (total) total[i] = sum;
    }
#pragma unroll
    for (int k = 0; k < PARTS; ++k)
        if (k < n) sums[k][t] = found[k];
    sums[last][t] = found[PARTS];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            for (int k = 0; k <= last; ++k) sums[k][t] += sums[k][t + half];
    }
    __syncthreads();
    if (t <= last) squares[blockIdx.x * (n + 1) + t] = sums[t][0];
}

// Block k: the norm of part k, in out[k] unless the gate is closed.
extern "C" __global__ void norms_finish(const double* __restrict__ squares, long long n, long long blocks,
                                        const float* __restrict__ gate, double* __restrict__ out)
{
    __shared__ double sums[THREADS];
    int t = threadIdx.x;
    double sum = 0.0;
    for (long long b = t; b < blocks; b += THREADS) sum += squares[b * (n + 1) + blockIdx.x];
    sums[t] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0 && *gate > 0.0f) out[blockIdx.x] = sqrt(sums[0]);
}
