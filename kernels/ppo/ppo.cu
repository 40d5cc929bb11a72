// PPO's clipped surrogate, entropy bonus and clipped value loss: gradients to logits and values in one launch, one
// thread a row, then the running means of what was measured, in a second of one block.

#define THREADS 128
#define SUMS 12  // of a row: surrogate, value loss, entropy, k3, ratio, clipped, V - R, |V - R|, V, R, V V, V R
#define PARTS 13  // and the largest ratio
#define NAMES 16  // of op.py
#define TINY 1.17549435e-38f

struct Row {
    float ratio, log_ratio, surrogate, slope;  // slope: d surrogate / d ln pi(action)
    float entropy, top, total, free;           // free: the softmax's share of the mass above the floor
};

__device__ static Row of_policy(const float* x, const bool* may, int n, int action, float log_pi_old, float advantage,
                                float low, float high, float floor)
{
    Row r = {};
    int n_legal = 0;
    for (int a = 0; a < n; ++a)
        if (may[a]) r.top = n_legal ? fmaxf(r.top, x[a]) : x[a], ++n_legal;
    for (int a = 0; a < n; ++a)
        if (may[a]) r.total += expf(x[a] - r.top);
    for (int a = 0; a < n; ++a) {
        float p = may[a] ? expf(x[a] - r.top) / r.total : 0.0f;
        r.entropy -= p * logf(fmaxf(p, TINY));
    }
    r.free = 1.0f - floor * (float)n_legal;
    float softmax = expf(x[action] - r.top) / r.total, pi = r.free * softmax + floor;
    r.log_ratio = logf(pi) - log_pi_old;
    r.ratio = expf(r.log_ratio);
    float plain = r.ratio * advantage, held = fminf(fmaxf(r.ratio, low), high) * advantage;
    bool inside = r.ratio >= low && r.ratio <= high;
    r.surrogate = -fminf(plain, held);
    r.slope = inside || plain < held ? -advantage * r.ratio * (r.free * softmax / pi) : 0.0f;
    return r;
}

// window: mean and standard deviation of the advantages of the whole window. sums: PARTS a block.
extern "C" __global__ void ppo_rows(const float* __restrict__ logits, const float* __restrict__ values,
                                    const bool* __restrict__ legal, const long long* __restrict__ actions,
                                    const float* __restrict__ log_pi_old, const float* __restrict__ advantages,
                                    const float* __restrict__ values_old, const float* __restrict__ returns,
                                    const double* __restrict__ window, long long rows, long long n_actions, float low,
                                    float high, float value_clip, float entropy_coef, float floor,
                                    float* __restrict__ grad_logits, float* __restrict__ grad_values,
                                    double* __restrict__ sums)
{
    __shared__ double parts[PARTS][THREADS];
    int t = threadIdx.x, n = (int)n_actions;
    long long row = (long long)blockIdx.x * THREADS + t;
    double found[PARTS] = {};
    if (row < rows) {
        const float* x = logits + row * n;
        const bool* may = legal + row * n;
        int action = (int)actions[row];
        float mean = (float)window[0], spread = fmaxf((float)window[1], 1e-8f), many = (float)rows;
        Row r = of_policy(x, may, n, action, log_pi_old[row], (advantages[row] - mean) / spread, low, high, floor);
        for (int a = 0; a < n; ++a) {
            float p = may[a] ? expf(x[a] - r.top) / r.total : 0.0f;
            float bonus = entropy_coef * (p * (logf(fmaxf(p, TINY)) + r.entropy));
            grad_logits[row * n + a] = (r.slope * ((a == action ? 1.0f : 0.0f) - p) + bonus) / many;
        }
        float v = values[row], target = returns[row], moved = v - values_old[row];
        float near = values_old[row] + fminf(fmaxf(moved, -value_clip), value_clip);
        float plain = (v - target) * (v - target), held = (near - target) * (near - target);
        bool follows = fabsf(moved) <= value_clip || plain >= held;
        grad_values[row] = follows ? (v - target) / many : 0.0f;
        double here[PARTS] = {
            r.surrogate, 0.5f * fmaxf(plain, held), r.entropy, expm1f(r.log_ratio) - r.log_ratio, r.ratio,
            (double)(r.ratio < low || r.ratio > high), v - target, fabsf(v - target), v, target, (double)v * v,
            (double)v * target, r.ratio,
        };
        for (int k = 0; k < PARTS; ++k) found[k] = here[k];
    }
    for (int k = 0; k < PARTS; ++k) parts[k][t] = found[k];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        for (int k = 0; k < SUMS; ++k) parts[k][t] += parts[k][t + half];
        parts[SUMS][t] = fmax(parts[SUMS][t], parts[SUMS][t + half]);
    }
    __syncthreads();
    if (t < PARTS) sums[blockIdx.x * PARTS + t] = parts[t][0];
}

// Running mean over the minibatches applied so far; `applied` is 0 or 1.
__device__ static void blend(double* mean, double now, double applied, double count)
{
    *mean += applied * (now - *mean) / fmax(count, 1.0);
}

// One block. stats as op.py names them; minibatch 0 starts them and the gate anew, which closes until then where the KL
// of a minibatch is above kl_stop.
extern "C" __global__ void ppo_keep(const double* __restrict__ sums, long long blocks, long long rows,
                                    const long long* minibatch, float entropy_coef, float kl_stop, double* stats,
                                    float* gate, long long* stops)
{
    __shared__ double means[PARTS];
    int t = threadIdx.x;
    if (t < PARTS) {
        double sum = 0.0;
        for (long long b = 0; b < blocks; ++b)
            sum = t < SUMS ? sum + sums[b * PARTS + t] : fmax(sum, sums[b * PARTS + t]);
        means[t] = t < SUMS ? sum / (double)rows : sum;
    }
    __syncthreads();
    if (t > 0) return;
    if (*minibatch == 0) {
        *gate = 1.0f;
        for (int k = 0; k < NAMES; ++k) stats[k] = 0.0;
    }
    bool open = *gate > 0.0f, first = open && stats[11] == 0.0;
    double kl = means[3], applied = open && kl <= (double)kl_stop, count = stats[11] + applied;
    blend(stats + 0, means[0], applied, count);
    blend(stats + 1, means[1], applied, count);
    blend(stats + 2, entropy_coef * means[2], applied, count);
    blend(stats + 3, kl, applied, count);
    blend(stats + 4, means[4], applied, count);
    if (applied > 0.0) stats[5] = fmax(stats[5], means[12]), stats[10] = fmax(kl, 0.0);
    blend(stats + 6, means[5], applied, count);
    blend(stats + 7, means[6], applied, count);
    blend(stats + 8, means[7], applied, count);
    if (first) stats[9] = fmax(kl, 0.0);
    stats[11] = count;
    for (int k = 0; k < 4; ++k) blend(stats + 12 + k, means[8 + k], applied, count);
    *stops += open && applied == 0.0;
    *gate = (float)applied;
}
