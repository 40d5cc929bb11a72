// Norm and largest element of a - b for pairs of buffers. item row (address of a, of b or 0, elements, pair): a chunk,
// which one block adds up. Sums are double, in an order that depends on the sizes alone.

#define THREADS 256
#define CHUNK_COLUMNS 4

// Lane 0 gets the sum of `squares` and the largest of `tops` over the block.
__device__ static void fold(double* squares, double* tops, double square, double top)
{
    int t = threadIdx.x;
    squares[t] = square, tops[t] = top;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        squares[t] += squares[t + half];
        tops[t] = fmax(tops[t], tops[t + half]);
    }
}

extern "C" __global__ void distances_parts(const long long* __restrict__ items, double* __restrict__ parts)
{
    __shared__ double squares[THREADS], tops[THREADS];
    const long long* item = items + CHUNK_COLUMNS * (long long)blockIdx.x;
    const float* a = (const float*)item[0];
    const float* b = (const float*)item[1];
    double square = 0.0, top = 0.0;
    for (long long i = threadIdx.x; i < item[2]; i += THREADS) {
        double apart = b ? (double)a[i] - (double)b[i] : (double)a[i];
        square += apart * apart;
        top = fmax(top, fabs(apart));
    }
    fold(squares, tops, square, top);
    if (threadIdx.x > 0) return;
    parts[2 * (long long)blockIdx.x] = squares[0];
    parts[2 * (long long)blockIdx.x + 1] = tops[0];
}

// Block p: out row (norm, largest) of pair p, whose chunks are bounds[p] .. bounds[p + 1].
extern "C" __global__ void distances_finish(const double* __restrict__ parts, const long long* __restrict__ bounds,
                                            double* __restrict__ out)
{
    __shared__ double squares[THREADS], tops[THREADS];
    double square = 0.0, top = 0.0;
    for (long long i = bounds[blockIdx.x] + threadIdx.x; i < bounds[blockIdx.x + 1]; i += THREADS) {
        square += parts[2 * i];
        top = fmax(top, parts[2 * i + 1]);
    }
    fold(squares, tops, square, top);
    if (threadIdx.x > 0) return;
    out[2 * blockIdx.x] = sqrt(squares[0]);
    out[2 * blockIdx.x + 1] = tops[0];
}
