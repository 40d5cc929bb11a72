// One block: rewards of a step from cents, PopArt's statistics of them, then the TD error of the step before.

#define THREADS 128
#define STATE 6  // started, mu, nu, count, welford mean, welford m2

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

// learn: move the statistics; the slots at mu, sigma and welford take their float32 copies.
extern "C" __global__ void reward_whiten(const long long* __restrict__ core_cents,
                                         const long long* __restrict__ fee_cents, long long point_lot_cents,
                                         long long accounts, long long learn, float sigma_min, const float* scale,
                                         const float* beta, float* mu_slot, float* sigma_slot, float* welford_slot,
                                         double* state, float* __restrict__ raw, float* __restrict__ scaled,
                                         float* __restrict__ whitened)
{
    __shared__ double room[THREADS];
    double many = (double)accounts, sum = 0.0, square = 0.0, signal = 0.0, around = 0.0;
    for (long long i = threadIdx.x; i < accounts; i += THREADS) {
        float points = (float)((double)(core_cents[i] - fee_cents[i]) / (double)point_lot_cents);
        float x = points * *scale;
        raw[i] = points, scaled[i] = x;
        sum += x, square += (double)x * x, signal += x != 0.0f;
    }
    if (learn) {
        double mean = over(sum, room) / many;
        square = over(square, room) / many, signal = over(signal, room);
        for (long long i = threadIdx.x; i < accounts; i += THREADS)
            around += (scaled[i] - mean) * (scaled[i] - mean);
        around = over(around, room);
        if (threadIdx.x == 0) {
            bool before = state[0] > 0.0, started = before || signal > 0.0;
            double rate = !started ? 0.0 : before ? (double)*beta : 1.0;
            double mu = state[1] + rate * (mean - state[1]), nu = state[2] + rate * (square - state[2]);
            double n = state[3] + many, delta = mean - state[4];
            double m2 = state[5] + around + delta * delta * state[3] * many / n;
            state[0] = started, state[1] = mu, state[2] = nu, state[3] = n;
            state[4] += delta * many / n, state[5] = m2;
            *mu_slot = (float)mu;
            if (started) *sigma_slot = (float)sqrt(fmax(nu - mu * mu, (double)sigma_min * sigma_min));
            *welford_slot = (float)sqrt(m2 / n);
        }
        __syncthreads();
    }
    for (long long i = threadIdx.x; i < accounts; i += THREADS) whitened[i] = scaled[i] / *sigma_slot;
}

// td_abs: mean |r + gamma V' - V| of the rows of the step before that are valid and were not truncated; then this
// step's are kept for the next.
extern "C" __global__ void reward_error(const float* __restrict__ values, const float* __restrict__ rewards,
                                        const bool* __restrict__ terminated, const bool* __restrict__ truncated,
                                        long long accounts, float gamma, long long valid, float* prev_value,
                                        float* prev_reward, bool* prev_terminated, bool* prev_truncated,
                                        bool* prev_valid, double* __restrict__ td_abs)
{
    __shared__ double room[THREADS];
    double sum = 0.0, count = 0.0;
    for (long long i = threadIdx.x; i < accounts; i += THREADS) {
        float next = prev_terminated[i] ? 0.0f : values[i];
        float error = prev_reward[i] + gamma * next - prev_value[i];
        if (prev_valid[i] && !prev_truncated[i]) sum += fabsf(error), count += 1.0;
        prev_value[i] = values[i], prev_reward[i] = rewards[i];
        prev_terminated[i] = terminated[i], prev_truncated[i] = truncated[i], prev_valid[i] = valid != 0;
    }
    sum = over(sum, room), count = over(count, room);
    if (threadIdx.x == 0) *td_abs = sum / fmax(count, 1.0);
}
