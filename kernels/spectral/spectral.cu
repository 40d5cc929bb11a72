// One warm-started power iteration of many matrices, one block a matrix. Table row (address of W [rows, columns], of
// u [rows], rows, columns, first word of v). v = W^T u over its length; sigma = |W v|; u = W v / sigma.

#define LANES 8     // over the rows of W^T u
#define COLUMNS 128
#define THREADS 1024
#define WARP 32
#define TABLE 5

__device__ static double sum_of_squares(double mine, double* room)  // over the block, to all of it
{
    int t = threadIdx.x;
    __syncthreads();
    room[t] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) room[t] += room[t + half];
    }
    __syncthreads();
    return room[0];
}

extern "C" __global__ void spectral_step(const long long* __restrict__ table, float* __restrict__ v_of_all,
                                         float* __restrict__ sigmas)
{
    __shared__ double room[THREADS];
    __shared__ float sums[WARP][WARP + 1];
    __shared__ float lanes[LANES][COLUMNS];
    const long long* row = table + TABLE * (long long)blockIdx.x;
    const float* w = (const float*)row[0];
    float* u = (float*)row[1];
    int rows = (int)row[2], columns = (int)row[3], t = threadIdx.x;
    float* v = v_of_all + row[4];
    double square = 0.0;
    for (int first = 0; first < columns; first += COLUMNS) {
        int column = first + t % COLUMNS, lane = t / COLUMNS;
        float sum = 0.0f;
        if (column < columns)
#pragma unroll 4
            for (int i = lane; i < rows; i += LANES) sum += w[(long long)i * columns + column] * u[i];
        lanes[lane][t % COLUMNS] = sum;
        for (int half = LANES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) lanes[lane][t % COLUMNS] += lanes[lane + half][t % COLUMNS];
        }
        if (lane == 0 && column < columns) {
            float x = lanes[0][t % COLUMNS];
            v[column] = x;
            square += (double)x * x;
        }
        __syncthreads();
    }
    float length = fmaxf((float)sqrt(sum_of_squares(square, room)), 1e-30f);
    square = 0.0;
    for (int first = 0; first < rows; first += WARP) {
        int i = first + t / WARP, lane = t % WARP;
        float sum = 0.0f;
        if (i < rows)
            for (int j = lane; j < columns; j += WARP) sum += w[(long long)i * columns + j] * (v[j] / length);
        sums[t / WARP][lane] = sum;
        __syncthreads();
        if (t < WARP && first + t < rows) {
            float whole = 0.0f;
            for (int k = 0; k < WARP; ++k) whole += sums[t][k];
            u[first + t] = whole;
            square += (double)whole * whole;
        }
        __syncthreads();
    }
    float sigma = (float)sqrt(sum_of_squares(square, room));
    for (int i = t; i < rows; i += THREADS) u[i] /= fmaxf(sigma, 1e-30f);
    if (t == 0) sigmas[blockIdx.x] = sigma;
}
