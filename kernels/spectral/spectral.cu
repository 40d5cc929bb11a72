// One warm-started power iteration of many matrices, one block a matrix. Table row (address of W [rows, columns], of
// u [rows], rows, columns, first word of v). v = W^T u over its length; sigma = |W v|; u = W v / sigma.

#define LANES 8  // over the rows, in W^T u
#define COLUMNS 128
#define THREADS 1024
#define TABLE 5

__device__ static float length_of(double square, double* room)  // the root of the sum over the block, to all of it
{
    int t = threadIdx.x;
    __syncthreads();
    room[t] = square;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) room[t] += room[t + half];
    }
    __syncthreads();
    return (float)sqrt(room[0]);
}

extern "C" __global__ void spectral_step(const long long* __restrict__ table, float* __restrict__ v_of_all,
                                         float* __restrict__ sigmas)
{
    __shared__ double room[THREADS];
    __shared__ float lanes[LANES][COLUMNS];
    const long long* row = table + TABLE * (long long)blockIdx.x;
    const float* w = (const float*)row[0];
    float* u = (float*)row[1];
    float* v = v_of_all + row[4];
    int rows = (int)row[2], columns = (int)row[3], t = threadIdx.x, lane = t / COLUMNS, place = t % COLUMNS;
    double square = 0.0;
    for (int first = 0; first < columns; first += COLUMNS) {
        int column = first + place;
        float sum = 0.0f;
        if (column < columns)
#pragma unroll 8
            for (int i = lane; i < rows; i += LANES) sum += w[i * columns + column] * u[i];
        lanes[lane][place] = sum;
        for (int half = LANES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) lanes[lane][place] += lanes[lane + half][place];
        }
        if (lane == 0 && column < columns) {
            v[column] = lanes[0][place];
            square += (double)v[column] * v[column];
        }
        __syncthreads();
    }
    float length = fmaxf(length_of(square, room), 1e-30f);
    for (int j = t; j < columns; j += THREADS) v[j] /= length;
    __syncthreads();
    square = 0.0;
    for (int i = t; i < rows; i += THREADS) {  // a thread a row: its words come a line at a time
        float sum = 0.0f;
#pragma unroll 8
        for (int j = 0; j < columns; ++j) sum += w[i * columns + j] * v[j];
        u[i] = sum;
        square += (double)sum * sum;
    }
    float sigma = length_of(square, room);
    for (int i = t; i < rows; i += THREADS) u[i] /= fmaxf(sigma, 1e-30f);
    if (t == 0) sigmas[blockIdx.x] = sigma;
}
