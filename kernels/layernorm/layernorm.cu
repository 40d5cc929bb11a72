// Layer normalisation of t = x + z + shift over the channels of a row, and its backward; x is the first of the `width`
// columns of its rows, and so is dt. A warp takes a row, lane l the channels l, l + 32, ..., and waits for no other warp.

#define LANES 32
#define WIDE 8    // channels of a lane: a row has at most 256
#define DEPTH 12  // warps of a block of the backward

// The sum over the lanes of a warp, to each of them, pairwise.
__device__ static float total_of(float mine)
{
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        mine += __shfl_sync(~0u, mine, threadIdx.x ^ apart, LANES);
    return mine;
}

extern "C" __global__ void layernorm_forward(const float* __restrict__ x, const float* __restrict__ z,
                                             const float* __restrict__ shift, const float* __restrict__ gain,
                                             const float* __restrict__ bias, float eps, long long rows,
                                             long long channels, long long width, float* __restrict__ out,
                                             float* __restrict__ total, float* __restrict__ means,
                                             float* __restrict__ rstds)
{
    int lane = threadIdx.x, n = (int)channels - lane;
    long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y, word = row * channels + lane;
    if (row >= rows) return;
    x += row * width + lane, z += word, out += word, total += word, shift += lane, gain += lane, bias += lane;
    float t[WIDE], sum = 0.0f, square = 0.0f;
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        if (j * LANES < n) t[j] = x[j * LANES] + z[j * LANES] + shift[j * LANES], sum += t[j];
    float mean = total_of(sum) / (float)channels;
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        if (j * LANES < n) square += (t[j] - mean) * (t[j] - mean);
    float rstd = 1.0f / sqrtf(total_of(square) / (float)channels + eps);
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        if (j * LANES < n) {
            total[j * LANES] = t[j];
            out[j * LANES] = (t[j] - mean) * rstd * gain[j * LANES] + bias[j * LANES];
        }
    if (lane == 0) means[row] = mean, rstds[row] = rstd;
}

// With v = (t - mean) rstd and e = gain dy: dt = rstd (e - mean(e) - v mean(e v)). Block x takes part_rows rows; its
// sums of v dy, dy and dt are row x of parts [blocks, 3 channels].
extern "C" __global__ void layernorm_backward(const float* __restrict__ total, const float* __restrict__ means,
                                              const float* __restrict__ rstds, const float* __restrict__ gain,
                                              const float* __restrict__ dy, long long rows, long long channels,
                                              long long width, long long part_rows, float* __restrict__ dtotal,
                                              float* __restrict__ parts)
{
    __shared__ float columns[DEPTH][LANES];
    int lane = threadIdx.x, slot = threadIdx.y, n = (int)channels - lane;
    float gains[WIDE] = {}, biases[WIDE] = {}, shifts[WIDE] = {};
    long long first = blockIdx.x * part_rows, end = first + part_rows < rows ? first + part_rows : rows;
    for (long long row = first + slot; row < end; row += DEPTH) {
        long long word = row * channels + lane;
        float mean = means[row], rstd = rstds[row], v[WIDE], e[WIDE], along = 0.0f, across = 0.0f;
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
            if (j * LANES < n) v[j] = total[word + j * LANES], e[j] = dy[word + j * LANES];
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
            if (j * LANES < n) {
                v[j] = (v[j] - mean) * rstd;
                gains[j] += v[j] * e[j], biases[j] += e[j];
                e[j] *= gain[lane + j * LANES];
                along += e[j], across += e[j] * v[j];
            }
        along = total_of(along) / (float)channels, across = total_of(across) / (float)channels;
#pragma unroll
        for (int j = 0; j < WIDE; ++j)
            if (j * LANES < n) {
                float dt = rstd * (e[j] - along - v[j] * across);
                dtotal[row * width + lane + j * LANES] = dt, shifts[j] += dt;
            }
    }
    for (int q = 0; q < 3; ++q)
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if (j * LANES >= channels) break;
            __syncthreads();
            columns[slot][lane] = q == 0 ? gains[j] : q == 1 ? biases[j] : shifts[j];
            __syncthreads();
            float sum = 0.0f;
            for (int s = 0; s < DEPTH; ++s) sum += columns[s][lane];
            if (slot == 0 && lane + j * LANES < channels)
                parts[(blockIdx.x * 3 + q) * channels + lane + j * LANES] = sum;
        }
}
