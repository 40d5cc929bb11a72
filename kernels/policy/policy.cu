// Policy sampling: masked softmax with a floor, inverse CDF, log-probability. A block takes as many whole rows as fit
// its threads, one thread an action; the first of a row walks its cumulative sum.

#define THREADS 128  // of a block; a row has at most as many actions

extern "C" __global__ void policy_sample(const float* __restrict__ logits, const bool* __restrict__ legal,
                                         const long long* __restrict__ draws, const float* __restrict__ floor_at,
                                         float floor, long long rows, long long actions, float* __restrict__ pi,
                                         long long* __restrict__ action, float* __restrict__ log_pi)
{
    __shared__ float x[THREADS], p[THREADS];
    __shared__ bool may[THREADS];
    int n = (int)actions, fit = blockDim.x / n, t = threadIdx.x, first = t / n * n;
    long long row = (long long)blockIdx.x * fit + t / n, word = row * actions + (t - first);
    bool used = t / n < fit && row < rows;
    if (used) x[t] = logits[word], may[t] = legal[word];
    __syncthreads();
    if (used) {
        float least = floor_at ? *floor_at : floor, top = 0.0f, total = 0.0f, n_legal = 0.0f;
        for (int a = first; a < first + n; ++a)
            if (may[a]) top = n_legal > 0.0f ? fmaxf(top, x[a]) : x[a], n_legal += 1.0f;
        for (int a = first; a < first + n; ++a)
            if (may[a]) total += expf(x[a] - top);
        p[t] = may[t] ? (1.0f - least * n_legal) * (expf(x[t] - top) / total) + least : 0.0f;
        pi[word] = p[t];
    }
    __syncthreads();
    if (!used || t != first) return;
    float u = (float)(draws[row] >> 8) * 0x1p-24f;
    double cumulative = 0.0;  // as the twin's cumsum on the CPU: a double sum, rounded at each action
    int chosen = -1, last = n - 1;
    for (int a = 0; a < n; ++a) {
        cumulative += p[first + a];
        if (!(p[first + a] > 0.0f)) continue;
        last = a;
        if (chosen < 0 && (float)cumulative > u) chosen = a;
    }
    if (chosen < 0) chosen = last;
    action[row] = chosen;
    log_pi[row] = logf(fmaxf(p[first + chosen], 1e-38f));
}
