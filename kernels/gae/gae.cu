// GAE(lambda) backwards over [steps, accounts]: one thread an account (Schulman et al. 2016, Eq. 16).

extern "C" __global__ void gae_backwards(const float* __restrict__ rewards, const float* __restrict__ values,
                                         const float* __restrict__ next_values, const bool* __restrict__ terminated,
                                         const bool* __restrict__ truncated, const float* __restrict__ gamma_at,
                                         float gamma, const float* __restrict__ decay_at, float decay,
                                         long long steps, long long accounts, float* __restrict__ advantages,
                                         float* __restrict__ returns)
{
    long long account = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (account >= accounts) return;
    float discount = gamma_at ? *gamma_at : gamma;
    float trace = decay_at ? *decay_at : decay;  // gamma lambda
    float running = 0.0f;
#pragma unroll 8
    for (long long t = steps - 1; t >= 0; --t) {
        long long at = t * accounts + account;
        bool ends = terminated[at];
        float value = values[at];
        float bootstrap = ends ? 0.0f : next_values[at];
        float delta = rewards[at] + discount * bootstrap - value;
        running = delta + (ends || truncated[at] ? 0.0f : trace) * running;
        advantages[at] = running;
        returns[at] = running + value;
    }
}
