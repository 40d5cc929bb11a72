// Norms of up to eight buffers of one size and of their sum, which is written where it is wanted. Sums of squares are
// double, in an order that depends on the size alone.

#define THREADS 256
#define PARTS 8

__device__ static void add_up(double* sums)  // lane 0 gets the sum over the block, pairwise
{
    int t = threadIdx.x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    __syncthreads();
}

// Block b adds up the elements of chunk b: squares [blocks, n + 1], the last of the sum of the parts in their order.
extern "C" __global__ void norms_squares(const float* p0, const float* p1, const float* p2, const float* p3,
                                         const float* p4, const float* p5, const float* p6, const float* p7,
                                         long long n, long long elements, long long chunk, float* __restrict__ total,
                                         double* __restrict__ squares)
{
    __shared__ double sums[THREADS];
    const float* parts[PARTS] = {p0, p1, p2, p3, p4, p5, p6, p7};
    double found[PARTS + 1] = {};
    long long first = blockIdx.x * chunk, end = first + chunk < elements ? first + chunk : elements;
    for (long long i = first + threadIdx.x; i < end; i += THREADS) {
        float sum = 0.0f;
        for (int k = 0; k < PARTS; ++k) {
            if (k >= n) break;
            float x = parts[k][i];
            sum += x;
            found[k] += (double)x * x;
        }
        found[PARTS] += (double)sum * sum;
        if (total) total[i] = sum;
    }
    for (int k = 0; k <= n; ++k) {
        sums[threadIdx.x] = k < n ? found[k] : found[PARTS];
        add_up(sums);
        if (threadIdx.x == 0) squares[blockIdx.x * (n + 1) + k] = sums[0];
        __syncthreads();
    }
}

// Block k: the norm of part k, in out[k] unless the gate is closed.
extern "C" __global__ void norms_finish(const double* __restrict__ squares, long long n, long long blocks,
                                        const float* __restrict__ gate, double* __restrict__ out)
{
    __shared__ double sums[THREADS];
    double sum = 0.0;
    for (long long b = threadIdx.x; b < blocks; b += THREADS) sum += squares[b * (n + 1) + blockIdx.x];
    sums[threadIdx.x] = sum;
    add_up(sums);
    if (threadIdx.x == 0 && *gate > 0.0f) out[blockIdx.x] = sqrt(sums[0]);
}
