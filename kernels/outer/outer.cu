// Sums over rows of outer products slope' x and of slope: the gradient of a linear layer with few outputs, whose rows
// are too few and whose outputs too odd in number for a library's product.

#define SIDE 32  // outputs and inputs of a tile, and its rows
#define LANES 8
#define EACH (SIDE / LANES)  // outputs of a thread

__device__ static void stage(float (*tile)[SIDE + 1], const float* from, long long row, long long rows, int columns,
                             int first)
{
    int column = first + threadIdx.x;
#pragma unroll
    for (int r = threadIdx.y; r < SIDE; r += LANES)
        tile[r][threadIdx.x] = row + r < rows && column < columns ? from[(row + r) * columns + column] : 0.0f;
}

// Block (x, y, z): 32 inputs, 32 outputs, 32 rows, added from the first to the last. parts [parts, outputs inputs +
// outputs]: the biases behind the weights, by the blocks of the first inputs.
extern "C" __global__ void outer_parts(const float* __restrict__ slope, const float* __restrict__ x, long long rows,
                                       long long outputs, long long inputs, float* __restrict__ parts)
{
    __shared__ float slopes[SIDE][SIDE + 1], xs[SIDE][SIDE + 1];
    int m = (int)outputs, n = (int)inputs, first = blockIdx.y * SIDE, input = blockIdx.x * SIDE + threadIdx.x;
    long long row = (long long)blockIdx.z * SIDE;
    stage(slopes, slope, row, rows, m, first);
    stage(xs, x, row, rows, n, blockIdx.x * SIDE);
    __syncthreads();
    float weight[EACH] = {}, bias[EACH] = {};
#pragma unroll 8
    for (int r = 0; r < SIDE; ++r) {
        float value = xs[r][threadIdx.x];
#pragma unroll
        for (int j = 0; j < EACH; ++j) {
            float s = slopes[r][threadIdx.y + j * LANES];
            weight[j] = fmaf(s, value, weight[j]), bias[j] += s;
        }
    }
    float* into = parts + (long long)blockIdx.z * m * (n + 1);
    for (int j = 0; j < EACH; ++j) {
        int output = first + threadIdx.y + j * LANES;
        if (output < m && input < n) into[output * n + input] = weight[j];
        if (output < m && input == 0) into[m * n + output] = bias[j];
    }
}
