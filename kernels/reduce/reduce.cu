// Sum of [rows, columns] over the rows in an order that depends on the number of rows alone.

#define COLUMNS 32
#define LANES 8

// Block (x, y): 32 columns, the rows of part y; lane l adds rows l, l + 8, ... and the lanes are added pairwise.
extern "C" __global__ void reduce_parts(const float* __restrict__ x, long long rows, long long columns,
                                        long long part_rows, float* __restrict__ parts)
{
    __shared__ float sums[LANES][COLUMNS];
    int lane = threadIdx.y;
    long long column = (long long)blockIdx.x * COLUMNS + threadIdx.x;
    long long row = blockIdx.y * part_rows, end = row + part_rows < rows ? row + part_rows : rows;
    float sum = 0.0f;
    if (column < columns)
#pragma unroll 8
        for (row += lane; row < end; row += LANES) sum += x[row * columns + column];
    sums[lane][threadIdx.x] = sum;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) sums[lane][threadIdx.x] += sums[lane + half][threadIdx.x];
    }
    if (lane == 0 && column < columns) parts[blockIdx.y * columns + column] = sums[0][threadIdx.x];
}

// Parts in ascending order, one thread a column.
extern "C" __global__ void reduce_finish(const float* __restrict__ parts, long long n_parts, long long columns,
                                         float* __restrict__ out)
{
    long long column = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (column >= columns) return;
    float sum = parts[column];
#pragma unroll 8
    for (long long part = 1; part < n_parts; ++part) sum += parts[part * columns + column];
    out[column] = sum;
}
