// Sum of [rows, columns] over the rows in an order that depends on the number of rows alone: parts of the rows, then
// the parts as rows, until one is left.

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
