// Attention pooling: w = softmax(q . x_k / sqrt(H)) over the K steps of a row, c = sum of w_k x_k; a block takes a row.
// A warp forms the products of a step, 32 lanes wide; one thread a step adds them; one thread a channel sums over k.

#define LANES 32
#define WARPS 8
#define STEPS 64  // most of a row

// products[k][lane] = the lane's share of v . x_k; left to be added by the thread of step k.
__device__ void shares(const float* v, const float* x, int steps, int channels, float (*products)[LANES + 1])
{
    for (int k = threadIdx.y; k < steps; k += WARPS) {
        float sum = 0.0f;
        for (int c = threadIdx.x; c < channels; c += LANES) sum += v[c] * x[k * channels + c];
        products[k][threadIdx.x] = sum;
    }
}

__device__ float total_of(const float* words, int n)
{
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += words[j];
    return sum;
}

// out [rows, H + A]: the context, then what the caller puts beside it.
extern "C" __global__ void attention_forward(const float* __restrict__ q, const float* __restrict__ x,
                                             const float* __restrict__ beside, float scale, long long rows,
                                             long long steps, long long channels, long long others,
                                             float* __restrict__ weights, float* __restrict__ out)
{
    __shared__ float products[STEPS][LANES + 1], scores[STEPS], powers[STEPS];
    int t = threadIdx.y * LANES + threadIdx.x, n = (int)steps, width = (int)channels;
    long long row = blockIdx.x;
    x += row * steps * channels, out += row * (channels + others);
    shares(q, x, n, width, products);
    __syncthreads();
    if (t < n) scores[t] = total_of(products[t], LANES) * scale;
    __syncthreads();
    if (t < n) {
        float top = scores[0];
        for (int k = 1; k < n; ++k) top = fmaxf(top, scores[k]);
        powers[t] = expf(scores[t] - top);
    }
    __syncthreads();
    if (t < n) weights[row * steps + t] = scores[t] = powers[t] / total_of(powers, n);
    __syncthreads();
    for (int c = t; c < width; c += LANES * WARPS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int k = 0; k < n; ++k) sum += scores[k] * x[k * width + c];
        out[c] = sum;
    }
    for (int j = t; j < others; j += LANES * WARPS) out[channels + j] = beside[row * others + j];
}

// dw_k = dc . x_k, ds_k = w_k (dw_k - sum(w dw)) / sqrt(H), dx_k = w_k dc + ds_k q; a row's sum of ds_k x_k is its row
// of parts.
extern "C" __global__ void attention_backward(const float* __restrict__ q, const float* __restrict__ x,
                                              const float* __restrict__ weights, const float* __restrict__ dout,
                                              float scale, long long rows, long long steps, long long channels,
                                              long long others, float* __restrict__ dx, float* __restrict__ parts)
{
    __shared__ float products[STEPS][LANES + 1], w[STEPS], along[STEPS], ds[STEPS];
    int t = threadIdx.y * LANES + threadIdx.x, n = (int)steps, width = (int)channels;
    long long row = blockIdx.x;
    x += row * steps * channels, dx += row * steps * channels, dout += row * (channels + others);
    shares(dout, x, n, width, products);
    __syncthreads();
    float mine = 0.0f;
    if (t < n) mine = total_of(products[t], LANES), w[t] = weights[row * steps + t], along[t] = w[t] * mine;
    __syncthreads();
    if (t < n) ds[t] = w[t] * (mine - total_of(along, n)) * scale;
    __syncthreads();
    for (int k = threadIdx.y; k < n; k += WARPS)
        for (int c = threadIdx.x; c < width; c += LANES) dx[k * width + c] = w[k] * dout[c] + ds[k] * q[c];
    for (int c = t; c < width; c += LANES * WARPS) {
        float sum = 0.0f;
#pragma unroll 8
        for (int k = 0; k < n; ++k) sum += ds[k] * x[k * width + c];
        parts[row * channels + c] = sum;
    }
}
