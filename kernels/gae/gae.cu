// GAE(lambda) backwards over [steps, accounts] (Schulman et al. 2016, Eq. 16): a block owns 32 accounts. For a tile of
// steps, all its threads load and form the deltas at once; one warp then walks the recursion in shared memory, so that
// a step costs an addition and a product and not a trip to memory.

#define ACCOUNTS 32
#define LANES 8
#define TILE 64  // steps

extern "C" __global__ void gae_backwards(const float* __restrict__ rewards, const float* __restrict__ values,
                                         const float* __restrict__ next_values, const bool* __restrict__ terminated,
                                         const bool* __restrict__ truncated, const float* __restrict__ gamma_at,
                                         float gamma, const float* __restrict__ decay_at, float decay,
                                         long long steps, long long accounts, float* __restrict__ advantages,
                                         float* __restrict__ returns)
{
    __shared__ float delta[TILE][ACCOUNTS], trace[TILE][ACCOUNTS];  // delta becomes the advantage
    int x = threadIdx.x, lane = threadIdx.y;
    long long account = (long long)blockIdx.x * ACCOUNTS + x;
    float discount = gamma_at ? *gamma_at : gamma;
    float continued = decay_at ? *decay_at : decay;  // gamma lambda
    float running = 0.0f, value[TILE / LANES], next[TILE / LANES], reward[TILE / LANES];
    bool ends[TILE / LANES], cut[TILE / LANES];
    for (long long end = steps; end > 0; end -= TILE) {
        long long first = end > TILE ? end - TILE : 0, at = (first + lane) * accounts + account;
        int n = (int)(end - first);
#pragma unroll
        for (int j = 0; j < TILE / LANES; ++j)
            if (lane + j * LANES < n && account < accounts) {
                long long word = at + j * LANES * accounts;
                value[j] = values[word];
                next[j] = next_values[word];
                reward[j] = rewards[word];
                ends[j] = terminated[word];
                cut[j] = truncated[word];
            }
#pragma unroll
        for (int j = 0; j < TILE / LANES; ++j) {
            int k = lane + j * LANES;
            if (k < n && account < accounts) {
                delta[k][x] = reward[j] + discount * (ends[j] ? 0.0f : next[j]) - value[j];
                trace[k][x] = ends[j] || cut[j] ? 0.0f : continued;
            }
        }
        __syncthreads();
        if (lane == 0 && account < accounts)
#pragma unroll 8
            for (int k = n - 1; k >= 0; --k) delta[k][x] = running = delta[k][x] + trace[k][x] * running;
        __syncthreads();
#pragma unroll
        for (int j = 0; j < TILE / LANES; ++j) {
            int k = lane + j * LANES;
            if (k < n && account < accounts) {
                long long word = at + j * LANES * accounts;
                advantages[word] = delta[k][x];
                returns[word] = delta[k][x] + value[j];
            }
        }
    }
}
