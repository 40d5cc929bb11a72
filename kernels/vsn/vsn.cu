// Variable selection m = softmax(logits), y = m x F over the F features of a row, and its backward. A warp takes a row,
// lane l the features l, l + 32, ..., and waits for no other warp.

#define LANES 32
#define WIDE 8    // features of a lane: a row has at most 256
#define DEPTH 12  // warps of a block of the backward
#define HELD 2    // rows a warp of it has in hand

// The sum over the lanes of a warp, to each of them, pairwise.
__device__ static float total_of(float mine)
{
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        mine += __shfl_sync(~0u, mine, threadIdx.x ^ apart, LANES);
    return mine;
}

__device__ static float top_of(float mine)
{
#pragma unroll
    for (int apart = LANES / 2; apart > 0; apart /= 2)
        mine = fmaxf(mine, __shfl_sync(~0u, mine, threadIdx.x ^ apart, LANES));
    return mine;
}

extern "C" __global__ void vsn_forward(const float* __restrict__ logits, const float* __restrict__ x, long long rows,
                                       long long features, float* __restrict__ mask, float* __restrict__ out)
{
    int lane = threadIdx.x, n = (int)features - lane;
    long long row = (long long)blockIdx.x * blockDim.y + threadIdx.y, word = row * features + lane;
    if (row >= rows) return;
    logits += word, x += word, mask += word, out += word;
    float m[WIDE], of[WIDE], top = logits[n > 0 ? 0 : -lane], sum = 0.0f;
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        if (j * LANES < n) m[j] = logits[j * LANES], of[j] = x[j * LANES], top = fmaxf(top, m[j]);
    top = top_of(top);
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        if (j * LANES < n) m[j] = expf(m[j] - top), sum += m[j];
    sum = total_of(sum);
#pragma unroll
    for (int j = 0; j < WIDE; ++j)
        if (j * LANES < n) {
            float share = m[j] / sum;
            mask[j * LANES] = share, out[j * LANES] = share * of[j] * (float)features;
        }
}

// With t = dy x F: dlogits = m (t - sum(m t)). Block i takes part_rows rows; the sums over its rows are row i of parts.
extern "C" __global__ void __launch_bounds__(LANES * DEPTH, 2) vsn_backward(
    const float* __restrict__ mask, const float* __restrict__ x, const float* __restrict__ dy, long long rows,
    long long features, long long part_rows, float* __restrict__ dlogits, float* __restrict__ parts)
{
    __shared__ float columns[DEPTH][LANES];
    int lane = threadIdx.x, slot = threadIdx.y, n = (int)features - lane;
    float sums[WIDE] = {};
    long long first = blockIdx.x * part_rows, end = first + part_rows < rows ? first + part_rows : rows;
    for (long long row = first + slot; row < end; row += HELD * DEPTH) {
        float m[HELD][WIDE], t[HELD][WIDE], along[HELD] = {};
#pragma unroll
        for (int q = 0; q < HELD; ++q) {
            long long at = row + q * DEPTH, word = at * features + lane;
            int here = at < end ? n : 0;
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
                if (j * LANES < here) {
                    m[q][j] = mask[word + j * LANES];
                    t[q][j] = dy[word + j * LANES] * x[word + j * LANES] * (float)features;
                    along[q] += m[q][j] * t[q][j];
                }
        }
#pragma unroll
        for (int q = 0; q < HELD; ++q) along[q] = total_of(along[q]);
#pragma unroll
        for (int q = 0; q < HELD; ++q) {
            long long at = row + q * DEPTH, word = at * features + lane;
            int here = at < end ? n : 0;
#pragma unroll
            for (int j = 0; j < WIDE; ++j)
                if (j * LANES < here) {
                    float d = m[q][j] * (t[q][j] - along[q]);
                    dlogits[word + j * LANES] = d, sums[j] += d;
                }
        }
    }
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
        if (j * LANES >= features) break;
        __syncthreads();
        columns[slot][lane] = sums[j];
        __syncthreads();
        float sum = 0.0f;
        for (int s = 0; s < DEPTH; ++s) sum += columns[s][lane];
        if (slot == 0 && lane + j * LANES < features) parts[blockIdx.x * features + lane + j * LANES] = sum;
    }
}
