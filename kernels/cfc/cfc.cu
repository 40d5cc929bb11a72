// CfC cell: h = tanh(f1) (1 - g) + tanh(f2) g with g = sigmoid(a dt + b); f1, f2, a, b are the four quarters of
// x + z, both [rows, 4 units].

#define COLUMNS 32  // units of a block
#define LANES 8     // and its rows

extern "C" __global__ void cfc_forward(const float* __restrict__ x, const float* __restrict__ z,
                                       const float* __restrict__ dt, long long rows, long long units,
                                       float* __restrict__ h, float* __restrict__ gate)
{
    long long unit = (long long)blockIdx.x * COLUMNS + threadIdx.x, row = (long long)blockIdx.y * LANES + threadIdx.y;
    if (row >= rows || unit >= units) return;
    long long at = row * 4 * units + unit, out = row * units + unit;
    float a = x[at + 2 * units] + z[at + 2 * units], b = x[at + 3 * units] + z[at + 3 * units];
    float g = 1.0f / (1.0f + expf(-(a * dt[row] + b)));
    h[out] = tanhf(x[at] + z[at]) * (1.0f - g) + tanhf(x[at + units] + z[at + units]) * g;
    gate[out] = g;
}

// Block (x, y): 32 units of 8 rows; the sums of d over its rows are row y of parts [blocks, 4 units].
extern "C" __global__ void cfc_backward(const float* __restrict__ x, const float* __restrict__ z,
                                        const float* __restrict__ dt, const float* __restrict__ gate,
                                        const float* __restrict__ dh, long long rows, long long units,
                                        float* __restrict__ d, float* __restrict__ parts)
{
    __shared__ float sums[4][LANES][COLUMNS];
    int column = threadIdx.x, lane = threadIdx.y;
    long long unit = (long long)blockIdx.x * COLUMNS + column, row = (long long)blockIdx.y * LANES + lane;
    float found[4] = {0.0f, 0.0f, 0.0f, 0.0f};
    if (row < rows && unit < units) {
        long long at = row * 4 * units + unit;
        float t1 = tanhf(x[at] + z[at]), t2 = tanhf(x[at + units] + z[at + units]);
        float g = gate[row * units + unit], grad = dh[row * units + unit];
        float through = grad * (t2 - t1) * g * (1.0f - g);
        found[0] = grad * (1.0f - g) * (1.0f - t1 * t1), found[1] = grad * g * (1.0f - t2 * t2);
        found[2] = through * dt[row], found[3] = through;
        for (int q = 0; q < 4; ++q) d[at + q * units] = found[q];
    }
    for (int q = 0; q < 4; ++q) sums[q][lane][column] = found[q];
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            for (int q = 0; q < 4; ++q) sums[q][lane][column] += sums[q][lane + half][column];
    }
    if (lane == 0 && unit < units)
        for (int q = 0; q < 4; ++q) parts[(blockIdx.y * 4 + q) * units + unit] = sums[q][0][column];
}
