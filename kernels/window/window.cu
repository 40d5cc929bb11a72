// Moments of a rollout window, one block: means first, then what lies around them. Sums are double. And the value of
// the state that a row arrived in.

#define THREADS 512

// The sum over the block, to all of it, pairwise.
__device__ static double over(double mine, double* room)
{
    int t = threadIdx.x;
    __syncthreads();
    room[t] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) room[t] += room[t + half];
    }
    __syncthreads();
    return room[0];
}

// out as op.py names it. entries: 1 where a position was asked for, -1 where the account held. The last `accounts` rows
// are those of the window's end.
extern "C" __global__ void window_moments(const float* __restrict__ advantages, const float* __restrict__ returns,
                                          const float* __restrict__ values, const float* __restrict__ next_values,
                                          const bool* __restrict__ terminated, const bool* __restrict__ truncated,
                                          const signed char* __restrict__ entries, long long rows,
                                          long long accounts, double* __restrict__ out)
{
    __shared__ double room[THREADS];
    double sums[14] = {}, many = (double)rows;
    for (long long i = threadIdx.x; i < rows; i += THREADS) {
        double a = advantages[i], g = returns[i];
        bool entry = entries[i] == 1, hold = entries[i] == -1, last = i >= rows - accounts;
        double adds[11] = {a, fabs(a), g, g - (double)values[i], (double)terminated[i], (double)truncated[i],
                           (double)(a > 0.0), entry ? a : 0.0, (double)entry, hold ? a : 0.0, (double)hold};
        for (int k = 0; k < 11; ++k) sums[k] += adds[k];
        if (last && !terminated[i]) sums[11] += next_values[i];
    }
    for (int k = 0; k < 12; ++k) sums[k] = over(sums[k], room);
    double a_mean = sums[0] / many, g_mean = sums[2] / many, e_mean = sums[3] / many, spread = 0.0;
    for (long long i = threadIdx.x; i < rows; i += THREADS) {
        double a = advantages[i] - a_mean, g = returns[i] - g_mean, e = (double)returns[i] - values[i] - e_mean;
        spread += a * a;
        sums[12] += g * g;
        sums[13] += e * e;
    }
    spread = over(spread, room);
    sums[12] = over(sums[12], room);
    sums[13] = over(sums[13], room);
    if (threadIdx.x > 0) return;
    double apart = sums[7] / fmax(sums[8], 1.0) - sums[9] / fmax(sums[10], 1.0);
    double found[10] = {
        a_mean, sqrt(spread / many), sums[1] / many, g_mean, sums[11] / (double)accounts, sums[4] / many,
        sums[5] / many, sums[12] > 0.0 ? 1.0 - sums[13] / sums[12] : 0.0, sums[6] / many,
        sums[8] > 0.0 && sums[10] > 0.0 ? apart : 0.0,
    };
    for (int k = 0; k < 10; ++k) out[k] = found[k];
}

// One thread an account. Row t - 1 of next_values [steps, accounts] takes v where its episode went on; row 0 has none.
extern "C" __global__ void window_arrive(const float* __restrict__ v, const long long* __restrict__ t_at,
                                         const bool* __restrict__ terminated, const bool* __restrict__ truncated,
                                         long long accounts, float* __restrict__ next_values)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x, t = *t_at;
    if (i >= accounts || t < 1) return;
    long long word = (t - 1) * accounts + i;
    if (!terminated[word] && !truncated[word]) next_values[word] = v[i];
}
