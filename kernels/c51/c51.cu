// C51 with double Q-learning on sampled transitions: one block a row, then one block for the statistics of the batch.

#define THREADS 128      // of a row: two a next action, one an atom
#define KEEP_THREADS 256
#define SUMS 18  // over the rows, in c51_keep
#define TOPS 5
#define PARTS 11  // of a row: loss, weighed loss, error, expectation, gap, atoms above and below the span, how far they
                  // lie outside, largest |atom|, |mass - 1|, reward above 0

struct Softmax { float top, total; };  // of n logits: the largest, and the sum of exp(logit - top)

__device__ static Softmax softmax(const float* x, int n)
{
    float top = x[0], total = 0.0f;
    for (int j = 1; j < n; ++j) top = fmaxf(top, x[j]);
    for (int j = 0; j < n; ++j) total += expf(x[j] - top);
    return Softmax{top, total};
}

// E[z] under the softmax of n logits, z on the span from low in steps of delta.
__device__ static float expected(const float* x, int n, float low, float delta)
{
    Softmax s = softmax(x, n);
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += expf(x[j] - s.top) / s.total * (low + (float)j * delta);
    return sum;
}

extern "C" __global__ void c51_rows(const float* __restrict__ logits, const float* __restrict__ online_next,
                                   const float* __restrict__ target_next, const long long* __restrict__ actions,
                                   const bool* __restrict__ legal_next, const float* __restrict__ rewards,
                                   const bool* __restrict__ closed, const bool* __restrict__ terminated,
                                   const float* __restrict__ weights, const float* __restrict__ v_min,
                                   const float* __restrict__ v_max, const float* __restrict__ reward_scale,
                                   long long rows, long long n_actions, long long atoms, float gamma, float eps,
                                   float alpha, float* __restrict__ grad, float* __restrict__ priorities,
                                   double* __restrict__ parts)
{
    __shared__ float q[THREADS], chosen[THREADS], place[THREADS], mass[THREADS], log_p[THREADS];
    __shared__ int best;
    __shared__ float gap, whole;
    long long row = blockIdx.x;
    int t = threadIdx.x, n = (int)atoms, n_act = (int)n_actions, action = (int)actions[row];
    float low = *v_min, high = *v_max, delta = (high - low) / (float)(n - 1);
    const float* here = logits + (row * n_act + action) * n;
    if (t < n_act) q[t] = expected(online_next + (row * n_act + t) * n, n, low, delta);
    else if (t < 2 * n_act) q[t] = expected(target_next + (row * n_act + t - n_act) * n, n, low, delta);
    __syncthreads();
    if (t == 0) {
        const bool* may = legal_next + row * n_act;
        float top = 0.0f, target_top = 0.0f;
        best = -1;
        for (int a = 0; a < n_act; ++a) {
            if (!may[a]) continue;
            if (best < 0 || q[n_act + a] > target_top) target_top = q[n_act + a];
            if (best < 0 || q[a] > top) top = q[a], best = a;
        }
        gap = target_top - q[n_act + best];
    }
    __syncthreads();
    float reward = rewards[row] * *reward_scale, discount = closed[row] || terminated[row] ? 0.0f : gamma;
    if (t < n) {
        const float* x = target_next + (row * n_act + best) * n;
        Softmax next = softmax(x, n), now = softmax(here, n);
        chosen[t] = expf(x[t] - next.top) / next.total;
        place[t] = reward + discount * (low + (float)t * delta);
        log_p[t] = here[t] - now.top - logf(now.total);
    }
    __syncthreads();
    if (t < n) {
        float sum = 0.0f;
        for (int j = 0; j < n; ++j) {
            float at = fminf(fmaxf((place[j] - low) / delta, 0.0f), (float)(n - 1));
            sum = fmaf(chosen[j], fminf(fmaxf(1.0f - fabsf(at - (float)t), 0.0f), 1.0f), sum);
        }
        mass[t] = sum;
    }
    __syncthreads();
    if (t == 0) {
        float loss = 0.0f, now = 0.0f, target = 0.0f, above = 0.0f, below = 0.0f, out = 0.0f, far = 0.0f;
        whole = 0.0f;
        for (int j = 0; j < n; ++j) {
            float z = low + (float)j * delta;
            loss -= mass[j] * log_p[j];
            now += expf(log_p[j]) * z;
            target += mass[j] * z;
            whole += mass[j];
            above += place[j] > high, below += place[j] < low;
            out += fmaxf(place[j] - high, 0.0f) + fmaxf(low - place[j], 0.0f);
            far = fmaxf(far, fabsf(place[j]));
        }
        float priority = powf(loss + eps, alpha);
        priorities[row] = priority - priority == 0.0f ? priority : eps;  // the tree must stay one of numbers
        double found[PARTS] = {loss, weights[row] * loss, target - now, target, gap, above, below, out, far,
                               fabsf(whole - 1.0f), (double)(rewards[row] > 0.0f)};
        for (int k = 0; k < PARTS; ++k) parts[row * PARTS + k] = found[k];
    }
    __syncthreads();
    for (int i = t; i < n_act * n; i += THREADS) {
        int a = i / n, j = i - a * n;
        float slope = a == action ? weights[row] / (float)rows * (expf(log_p[j]) * whole - mass[j]) : 0.0f;
        grad[row * n_act * n + i] = slope;
    }
}

// Folds `adds` sums and `tops` maxima of every thread over the block, pairwise; thread 0 gets them.
__device__ static void fold(double* mine, int adds, int tops, double (*room)[KEEP_THREADS])
{
    int t = threadIdx.x;
    for (int k = 0; k < adds + tops; ++k) room[k][t] = mine[k];
    for (int half = KEEP_THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        for (int k = 0; k < adds + tops; ++k)
            room[k][t] = k < adds ? room[k][t] + room[k][t + half] : fmax(room[k][t], room[k][t + half]);
    }
    if (t == 0)
        for (int k = 0; k < adds + tops; ++k) mine[k] = room[k][0];
}

// One block. stats as op.py names them. Draws of strata come in ascending order, so that equal ones lie side by side.
extern "C" __global__ void c51_keep(const double* __restrict__ parts, const float* __restrict__ weights,
                                   const float* __restrict__ leaves, const float* __restrict__ draws,
                                   const long long* __restrict__ indices, const long long* __restrict__ steps,
                                   const long long* __restrict__ now, const bool* __restrict__ closed,
                                   const bool* __restrict__ terminated, long long rows, long long atoms,
                                   double* __restrict__ stats)
{
    __shared__ double room[SUMS + TOPS][KEEP_THREADS];
    __shared__ double mean;
    double found[SUMS + TOPS] = {}, many = (double)rows, cells = many * (double)atoms;
    double *sums = found, *tops = found + SUMS, away = 0.0;
    tops[3] = -1e300;
    for (long long row = threadIdx.x; row < rows; row += KEEP_THREADS) {
        const double* p = parts + row * PARTS;
        double weight = weights[row], age = (double)(*now - steps[row]);
        double adds[SUMS] = {p[1], fabs(p[2]), p[2], p[3], p[4], p[5], p[6], p[7], p[5] + p[6], weight,
                             weight * weight, leaves[row], age,
                             (double)(row == 0 || indices[row] != indices[row - 1]), (double)closed[row],
                             (double)terminated[row], p[10], draws[row]};
        double highs[TOPS] = {fabs(p[2]), p[8], p[9], -weight, age};
        for (int k = 0; k < SUMS; ++k) sums[k] += adds[k];
        for (int k = 0; k < TOPS; ++k) tops[k] = fmax(tops[k], highs[k]);
    }
    fold(found, SUMS, TOPS, room);
    if (threadIdx.x == 0) mean = sums[3] / many;
    __syncthreads();
    for (long long row = threadIdx.x; row < rows; row += KEEP_THREADS)
        away += (parts[row * PARTS + 3] - mean) * (parts[row * PARTS + 3] - mean);
    fold(&away, 1, 0, room);
    if (threadIdx.x > 0) return;
    double kept[23] = {
        sums[0] / many, sums[1] / many, tops[0], sums[2] / many, mean, sqrt(away / many), sums[4] / many,
        sums[5] / cells, sums[6] / cells, sums[7] / fmax(sums[8], 1.0), tops[1], tops[2],
        fmin(sums[9] * sums[9] / (many * sums[10]), 1.0), sums[11] / many, sums[9] / many, -tops[3], sums[12] / many,
        tops[4], sums[13] / many, sums[14] / many, sums[15] / many, sums[16] / many, sums[17] / many,
    };
    for (int k = 0; k < 23; ++k) stats[k] = kept[k];
}
