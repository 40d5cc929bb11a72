// Variable selection m = softmax(logits), y = m x F over the F features of a row, and its backward. A warp takes a row,
// lane l the features l, l + 32, ...; the lanes' partial results meet in shared memory, joined in one order by all.

#define LANES 32
#define ROWS 8    // of a block of the forward
#define DEPTH 12  // rows a block of the backward has in hand: two such blocks fill a multiprocessor's registers
#define WIDE 8    // features of a lane in the backward: a row has at most 256

// Sum of 32 words in one order, the same for every lane.
__device__ float total_of(const float4* words)
{
    float4 sum = words[0];
#pragma unroll
    for (int j = 1; j < LANES / 4; ++j)
        sum.x += words[j].x, sum.y += words[j].y, sum.z += words[j].z, sum.w += words[j].w;
    return (sum.x + sum.y) + (sum.z + sum.w);
}

__device__ float& word_of(float4* words, int lane) { return ((float*)words)[lane]; }

extern "C" __global__ void vsn_forward(const float* __restrict__ logits, const float* __restrict__ x, long long rows,
                                       long long features, float* __restrict__ mask, float* __restrict__ out)
{
    __shared__ float4 tops[ROWS][LANES / 4], sums[ROWS][LANES / 4];
    int lane = threadIdx.x, slot = threadIdx.y, n = (int)features;
    long long row = (long long)blockIdx.x * ROWS + slot;
    if (row >= rows) n = 0;
    logits += row * features, x += row * features, mask += row * features, out += row * features;
    float top = n > 0 ? logits[lane < n ? lane : 0] : 0.0f, sum = 0.0f;
    for (int f = lane + LANES; f < n; f += LANES) top = fmaxf(top, logits[f]);
    word_of(tops[slot], lane) = top;
    __syncthreads();
    for (int j = 0; j < LANES / 4; ++j) {
        float4 four = tops[slot][j];
        top = fmaxf(top, fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)));
    }
    for (int f = lane; f < n; f += LANES) sum += expf(logits[f] - top);
    word_of(sums[slot], lane) = sum;
    __syncthreads();
    sum = total_of(sums[slot]);
    for (int f = lane; f < n; f += LANES) {
        float m = expf(logits[f] - top) / sum;
        mask[f] = m, out[f] = m * x[f] * (float)features;
    }
}

// With t = dy x F: dlogits = m (t - sum(m t)). Block i takes part_rows rows; the sums over its rows are row i of parts.
extern "C" __global__ void vsn_backward(const float* __restrict__ mask, const float* __restrict__ x,
                                        const float* __restrict__ dy, long long rows, long long features,
                                        long long part_rows, float* __restrict__ dlogits, float* __restrict__ parts)
{
    __shared__ float4 sums[2][DEPTH][LANES / 4];  // of two rounds in turn, so that a round has one barrier
    int lane = threadIdx.x, slot = threadIdx.y, turn = 0;
    float columns[WIDE] = {0.0f};
    long long row = blockIdx.x * part_rows + slot, first_word = row * features + lane;
    mask += first_word, x += first_word, dy += first_word, dlogits += first_word;
    int n = (int)features - lane, step = DEPTH * (int)features;
    for (int left = (int)part_rows; left > 0; left -= DEPTH, row += DEPTH, turn ^= 1) {
        if (row >= rows) n = 0;
        float m[WIDE], t[WIDE], along = 0.0f;
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if (j * LANES >= n) continue;
            m[j] = mask[j * LANES], t[j] = dy[j * LANES] * x[j * LANES] * (float)features;
            along += m[j] * t[j];
        }
        word_of(sums[turn][slot], lane) = along;
        __syncthreads();
        along = total_of(sums[turn][slot]);
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if (j * LANES >= n) continue;
            float d = m[j] * (t[j] - along);
            dlogits[j * LANES] = d;
            columns[j] += d;
        }
        mask += step, x += step, dy += step, dlogits += step;
    }
#pragma unroll
    for (int j = 0; j < WIDE; ++j) {
        if (j * LANES >= features) break;
        __syncthreads();
        word_of(sums[0][slot], lane) = columns[j];
        __syncthreads();
        float sum = 0.0f;
        for (int s = 0; s < DEPTH; ++s) sum += word_of(sums[0][s], lane);
        if (slot == 0 && lane + j * LANES < features) parts[blockIdx.x * features + lane + j * LANES] = sum;
    }
}
