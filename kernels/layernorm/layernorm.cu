// Layer normalisation of t = x + z + shift over the channels of a row, and its backward; x is the first of the `width`
// columns of its rows, and so is dt. A warp takes a row, lane l the channels l, l + 32, ...; the lanes' partial sums
// meet in shared memory, added in one order by every lane.

#define LANES 32
#define ROWS 8    // of a block of the forward
#define DEPTH 12  // rows a block of the backward has in hand: two such blocks fill a multiprocessor's registers
#define WIDE 8    // channels of a lane in the backward: a row has at most 256

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

extern "C" __global__ void layernorm_forward(const float* __restrict__ x, const float* __restrict__ z,
                                             const float* __restrict__ shift, const float* __restrict__ gain,
                                             const float* __restrict__ bias, float eps, long long rows,
                                             long long channels, long long width, float* __restrict__ out,
                                             float* __restrict__ total, float* __restrict__ means,
                                             float* __restrict__ rstds)
{
    __shared__ float4 sums[ROWS][LANES / 4], squares[ROWS][LANES / 4];
    int lane = threadIdx.x, slot = threadIdx.y, n = (int)channels;
    long long row = (long long)blockIdx.x * ROWS + slot;
    if (row >= rows) n = 0;
    x += row * width, z += row * channels, out += row * channels, total += row * channels;
    float sum = 0.0f, square = 0.0f;
    for (int c = lane; c < n; c += LANES) sum += x[c] + z[c] + shift[c];
    word_of(sums[slot], lane) = sum;
    __syncthreads();
    float mean = total_of(sums[slot]) / (float)channels;
    for (int c = lane; c < n; c += LANES) {
        float centred = x[c] + z[c] + shift[c] - mean;
        square += centred * centred;
    }
    word_of(squares[slot], lane) = square;
    __syncthreads();
    float rstd = 1.0f / sqrtf(total_of(squares[slot]) / (float)channels + eps);
    for (int c = lane; c < n; c += LANES) {
        float t = x[c] + z[c] + shift[c];
        total[c] = t, out[c] = (t - mean) * rstd * gain[c] + bias[c];
    }
    if (n > 0 && lane == 0) means[row] = mean, rstds[row] = rstd;
}

// With v = (t - mean) rstd and e = gain dy: dt = rstd (e - mean(e) - v mean(e v)). Block x takes part_rows rows; its
// sums of v dy, dy and dt are row x of parts [blocks, 3 channels].
extern "C" __global__ void layernorm_backward(const float* __restrict__ total, const float* __restrict__ means,
                                              const float* __restrict__ rstds, const float* __restrict__ gain,
                                              const float* __restrict__ dy, long long rows, long long channels,
                                              long long width, long long part_rows, float* __restrict__ dtotal,
                                              float* __restrict__ parts)
{
    __shared__ float4 sums[2][2][DEPTH][LANES / 4];  // of two rounds in turn, so that a round has one barrier
    int lane = threadIdx.x, slot = threadIdx.y, turn = 0;
    float gains[WIDE], biases[WIDE], shifts[WIDE];
#pragma unroll
    for (int j = 0; j < WIDE; ++j) gains[j] = biases[j] = shifts[j] = 0.0f;
    long long row = blockIdx.x * part_rows + slot, first_word = row * channels + lane;
    total += first_word, dy += first_word, dtotal += row * width + lane, gain += lane;
    int n = (int)channels - lane, step = DEPTH * (int)channels, wide = DEPTH * (int)width;
    for (int left = (int)part_rows; left > 0; left -= DEPTH, row += DEPTH, turn ^= 1) {
        if (row >= rows) n = 0;
        float mean = n > 0 ? means[row] : 0.0f, rstd = n > 0 ? rstds[row] : 0.0f, v[WIDE], e[WIDE];
        float first = 0.0f, second = 0.0f;
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if (j * LANES >= n) continue;
            float d = dy[j * LANES];
            v[j] = (total[j * LANES] - mean) * rstd, e[j] = gain[j * LANES] * d;
            first += e[j], second += e[j] * v[j];
            gains[j] += v[j] * d, biases[j] += d;
        }
        word_of(sums[turn][0][slot], lane) = first, word_of(sums[turn][1][slot], lane) = second;
        __syncthreads();
        first = total_of(sums[turn][0][slot]) / (float)channels;
        second = total_of(sums[turn][1][slot]) / (float)channels;
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if (j * LANES >= n) continue;
            float dt = rstd * (e[j] - first - v[j] * second);
            dtotal[j * LANES] = dt, shifts[j] += dt;
        }
        total += step, dy += step, dtotal += wide;
    }
    float* columns = (float*)sums;  // [DEPTH][LANES], of one of the three sums and 32 channels at a time
    for (int q = 0; q < 3; ++q)
#pragma unroll
        for (int j = 0; j < WIDE; ++j) {
            if (j * LANES >= channels) break;
            __syncthreads();
            columns[slot * LANES + lane] = q == 0 ? gains[j] : q == 1 ? biases[j] : shifts[j];
            __syncthreads();
            float sum = 0.0f;
            for (int s = 0; s < DEPTH; ++s) sum += columns[s * LANES + lane];
            if (slot == 0 && lane + j * LANES < channels)
                parts[(blockIdx.x * 3 + q) * channels + lane + j * LANES] = sum;
        }
}
