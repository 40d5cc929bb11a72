// Clipped AdamW on flat float32 buffers in three launches: norms, step, statistics. A segment is a run of elements that
// has norms of its own; item row (first, end, segment) a chunk of one, which one block works on. Sums are double, in
// an order that depends on the chunks alone.

#define THREADS 256
#define TINY 1.17549435e-38f  // the least normal float
#define BEFORE 4  // of a chunk: sum g^2, sum w^2, elements whose |g| is below TINY, largest |g|
#define AFTER 2   // sum change^2, sum |m_hat| / (sqrt v_hat + eps)

// Folds SUMS sums and then TOPS maxima of every thread over the block, pairwise: into column 0 of room, for all.
template <int SUMS, int TOPS> __device__ static void fold(const double* mine, double (*room)[THREADS])
{
    int t = threadIdx.x;
    for (int k = 0; k < SUMS + TOPS; ++k) room[k][t] = mine[k];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        for (int k = 0; k < SUMS + TOPS; ++k)
            room[k][t] = k < SUMS ? room[k][t] + room[k][t + half] : fmax(room[k][t], room[k][t + half]);
    }
    __syncthreads();
}

extern "C" __global__ void adamw_norms(const float* __restrict__ weights, const float* __restrict__ grads,
                                       const long long* __restrict__ items, double* __restrict__ before)
{
    __shared__ double room[BEFORE][THREADS];
    const long long* item = items + 3 * (long long)blockIdx.x;
    double found[BEFORE] = {};
    for (long long i = item[0] + threadIdx.x; i < item[1]; i += THREADS) {
        double g = grads[i], w = weights[i];
        found[0] += g * g;
        found[1] += w * w;
        found[2] += fabs(g) < TINY;
        found[3] = fmax(found[3], fabs(g));
    }
    fold<BEFORE - 1, 1>(found, room);
    if (threadIdx.x > 0) return;
    for (int k = 0; k < BEFORE; ++k) before[BEFORE * (long long)blockIdx.x + k] = room[k][0];
}

// constants: beta1, beta2, eps, weight decay, largest norm of the whole gradient. t: steps taken so far.
extern "C" __global__ void adamw_step(float* __restrict__ weights, const float* __restrict__ grads,
                                      float* __restrict__ m, float* __restrict__ v,
                                      const long long* __restrict__ t_at, const float* __restrict__ rates,
                                      const float* __restrict__ gate, const double* __restrict__ constants,
                                      const long long* __restrict__ items, long long n_items,
                                      const double* __restrict__ before, double* __restrict__ after)
{
    __shared__ double room[AFTER][THREADS];
    const long long* item = items + 3 * (long long)blockIdx.x;
    double square = 0.0, found[AFTER] = {};
    for (long long i = threadIdx.x; i < n_items; i += THREADS) square += before[BEFORE * i];
    fold<1, 0>(&square, room);
    double norm = sqrt(room[0][0]), steps = (double)(*t_at + 1);
    float clip = (float)fmin(constants[4] / fmax(norm, (double)TINY), 1.0);
    float rate1 = (float)(1.0 - constants[0]), rate2 = (float)(1.0 - constants[1]);
    float bias1 = (float)(1.0 - pow(constants[0], steps)), bias2 = (float)(1.0 - pow(constants[1], steps));
    float eps = (float)constants[2], decay = (float)constants[3];
    bool open = *gate > 0.0f && norm - norm == 0.0;  // a norm that is not finite moves nothing
#pragma unroll 4
    for (long long i = item[0] + threadIdx.x; open && i < item[1]; i += THREADS) {
        float g = grads[i] * clip, w = weights[i];
        float first = m[i] + rate1 * (g - m[i]), second = v[i] + rate2 * (g * g - v[i]);
        float m_hat = first / bias1, root = sqrtf(second / bias2) + eps;
        float change = -rates[i] * (m_hat / root + decay * w);
        m[i] = first, v[i] = second, weights[i] = w + change;
        found[0] += (double)change * change;
        found[1] += fabsf(m_hat) / root;
    }
    __syncthreads();  // everybody has read the norm
    fold<AFTER, 0>(found, room);
    if (threadIdx.x > 0) return;
    for (int k = 0; k < AFTER; ++k) after[AFTER * (long long)blockIdx.x + k] = room[k][0];
}

// Block s < segments: norms of segment s, whose chunks are bounds[s] .. bounds[s + 1]. The last block: those of all,
// and the step count. stats: gradient norm a segment, update ratio a segment, then the six of op.py; kept where the
// gate is closed.
extern "C" __global__ void adamw_finish(const double* __restrict__ before, const double* __restrict__ after,
                                        const long long* __restrict__ bounds, const float* __restrict__ gate,
                                        long long segments, long long elements, long long* __restrict__ t_at,
                                        double* __restrict__ stats)
{
    __shared__ double room[AFTER + BEFORE][THREADS];
    if (*gate <= 0.0f) return;
    bool all = blockIdx.x == segments;
    long long first = bounds[all ? 0 : blockIdx.x], end = bounds[all ? segments : blockIdx.x + 1];
    double found[AFTER + BEFORE] = {};
    for (long long i = first + threadIdx.x; i < end; i += THREADS) {
        for (int k = 0; k < AFTER; ++k) found[k] += after[AFTER * i + k];
        for (int k = 0; k < BEFORE - 1; ++k) found[AFTER + k] += before[BEFORE * i + k];
        found[AFTER + BEFORE - 1] = fmax(found[AFTER + BEFORE - 1], before[BEFORE * i + BEFORE - 1]);
    }
    fold<AFTER + BEFORE - 1, 1>(found, room);
    if (threadIdx.x > 0) return;
    double moved = sqrt(room[0][0]), snr = room[1][0], norm = sqrt(room[2][0]), weight = sqrt(room[3][0]);
    if (!all) {
        stats[blockIdx.x] = norm;
        stats[segments + blockIdx.x] = moved / fmax(weight, (double)TINY);
        return;
    }
    double* out = stats + 2 * segments;
    out[0] = norm;
    out[1] = moved;
    out[2] = snr / (double)elements;
    out[3] = room[5][0];
    out[4] = room[4][0] / (double)elements;
    bool sound = norm - norm == 0.0;  // as in the step
    out[5] = sound;
    *t_at += sound;
}
