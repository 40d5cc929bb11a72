// Policy sampling, one thread a row: masked softmax with a floor, inverse CDF, log-probability.

extern "C" __global__ void policy_sample(const float* __restrict__ logits, const bool* __restrict__ legal,
                                         const long long* __restrict__ draws, const float* __restrict__ floor_at,
                                         float floor, long long rows, long long actions, float* __restrict__ pi,
                                         long long* __restrict__ action, float* __restrict__ log_pi)
{
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = logits + row * actions;
    const bool* may = legal + row * actions;
    float* p = pi + row * actions;
    float least = floor_at ? *floor_at : floor;
    float top = 0.0f, total = 0.0f, n_legal = 0.0f;
    for (long long a = 0; a < actions; ++a)
        if (may[a]) top = n_legal > 0.0f ? fmaxf(top, x[a]) : x[a], n_legal += 1.0f;
    for (long long a = 0; a < actions; ++a)
        if (may[a]) total += expf(x[a] - top);
    float kept = 1.0f - least * n_legal;
    float u = (float)(draws[row] >> 8) * 0x1p-24f;
    double cumulative = 0.0;  // as the twin's cumsum on the CPU: a double sum, rounded at each action
    long long chosen = -1, last = actions - 1;
    for (long long a = 0; a < actions; ++a) {
        float mass = may[a] ? kept * (expf(x[a] - top) / total) + least : 0.0f;
        p[a] = mass;
        cumulative += mass;
        if (!(mass > 0.0f)) continue;
        last = a;
        if (chosen < 0 && (float)cumulative > u) chosen = a;
    }
    if (chosen < 0) chosen = last;
    action[row] = chosen;
    log_pi[row] = logf(fmaxf(p[chosen], 1e-38f));
}
