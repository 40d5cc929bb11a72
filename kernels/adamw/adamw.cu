// Clipped AdamW on flat float32 buffers in three launches: norms, step, statistics. A segment is a run of elements that
// has norms of its own; item row (first, end, segment) a chunk of one, which one block works on. Sums are double, in
// an order that depends on the chunks alone.

#define THREADS 256
#define TINY 1.17549435e-38f  // the least normal float
#define BEFORE 4  // of a chunk: sum g^2, sum w^2, largest |g|, elements whose |g| is below TINY
#define AFTER 2   // sum change^2, sum |m_hat| / (sqrt v_hat + eps)

// Lane 0 of `sums` gets the sum over the block, pairwise.
__device__ static void add_up(double* sums)
{
    int t = threadIdx.x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
}

extern "C" __global__ void adamw_norms(const float* __restrict__ weights, const float* __restrict__ grads,
                                       const long long* __restrict__ items, double* __restrict__ before)
{
    __shared__ double squares[THREADS], weight_squares[THREADS], tops[THREADS], zeros[THREADS];
    int t = threadIdx.x;
    const long long* item = items + 3 * (long long)blockIdx.x;
    double square = 0.0, weight_square = 0.0, top = 0.0, zero = 0.0;
    for (long long i = item[0] + t; i < item[1]; i += THREADS) {
        double g = grads[i], w = weights[i];
        square += g * g;
        weight_square += w * w;
        top = fmax(top, fabs(g));
        zero += fabs(g) < TINY;
    }
    squares[t] = square, weight_squares[t] = weight_square, tops[t] = top, zeros[t] = zero;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        squares[t] += squares[t + half];
        weight_squares[t] += weight_squares[t + half];
        tops[t] = fmax(tops[t], tops[t + half]);
        zeros[t] += zeros[t + half];
    }
    if (t > 0) return;
    double* out = before + BEFORE * (long long)blockIdx.x;
    out[0] = squares[0], out[1] = weight_squares[0], out[2] = tops[0], out[3] = zeros[0];
}

// constants: beta1, beta2, eps, weight decay, largest norm of the whole gradient. t: steps taken so far.
extern "C" __global__ void adamw_step(float* __restrict__ weights, const float* __restrict__ grads,
                                      float* __restrict__ m, float* __restrict__ v,
                                      const long long* __restrict__ t_at, const float* __restrict__ rates,
                                      const float* __restrict__ gate, const double* __restrict__ constants,
                                      const long long* __restrict__ items, long long n_items,
                                      const double* __restrict__ before, double* __restrict__ after)
{
    __shared__ double sums[THREADS], snrs[THREADS];
    int t = threadIdx.x;
    const long long* item = items + 3 * (long long)blockIdx.x;
    double square = 0.0;
    for (long long i = t; i < n_items; i += THREADS) square += before[BEFORE * i];
    sums[t] = square;
    add_up(sums);
    __syncthreads();
    double norm = sqrt(sums[0]), steps = (double)(*t_at + 1);
    float clip = (float)fmin(constants[4] / fmax(norm, (double)TINY), 1.0);
    float rate1 = (float)(1.0 - constants[0]), rate2 = (float)(1.0 - constants[1]);
    float bias1 = (float)(1.0 - pow(constants[0], steps)), bias2 = (float)(1.0 - pow(constants[1], steps));
    float eps = (float)constants[2], decay = (float)constants[3];
    bool open = *gate > 0.0f && norm - norm == 0.0;  // a norm that is not finite moves nothing
    double moved = 0.0, snr = 0.0;
#pragma unroll 4
    for (long long i = item[0] + t; open && i < item[1]; i += THREADS) {
        float g = grads[i] * clip, w = weights[i];
        float first = m[i] + rate1 * (g - m[i]), second = v[i] + rate2 * (g * g - v[i]);
        float m_hat = first / bias1, root = sqrtf(second / bias2) + eps;
        float change = -rates[i] * (m_hat / root + decay * w);
        m[i] = first, v[i] = second, weights[i] = w + change;
        moved += (double)change * change;
        snr += fabsf(m_hat) / root;
    }
    __syncthreads();
    sums[t] = moved, snrs[t] = snr;
    add_up(sums);
    add_up(snrs);
    if (t > 0) return;
    after[AFTER * (long long)blockIdx.x] = sums[0], after[AFTER * (long long)blockIdx.x + 1] = snrs[0];
}

// Block s < segments: norms of segment s, whose chunks are bounds[s] .. bounds[s + 1]. The last block: those of all,
// and the step count. stats: gradient norm a segment, update ratio a segment, then the six of op.py; kept where the
// gate is closed.
extern "C" __global__ void adamw_finish(const double* __restrict__ before, const double* __restrict__ after,
                                        const long long* __restrict__ bounds, const float* __restrict__ gate,
                                        long long segments, long long elements, long long* __restrict__ t_at,
                                        double* __restrict__ stats)
{
    __shared__ double squares[THREADS], weight_squares[THREADS], moves[THREADS], snrs[THREADS], tops[THREADS],
        zeros[THREADS];
    if (*gate <= 0.0f) return;
    int t = threadIdx.x;
    bool all = blockIdx.x == segments;
    long long first = bounds[all ? 0 : blockIdx.x], end = bounds[all ? segments : blockIdx.x + 1];
    double square = 0.0, weight_square = 0.0, moved = 0.0, snr = 0.0, top = 0.0, zero = 0.0;
    for (long long i = first + t; i < end; i += THREADS) {
        square += before[BEFORE * i];
        weight_square += before[BEFORE * i + 1];
        top = fmax(top, before[BEFORE * i + 2]);
        zero += before[BEFORE * i + 3];
        moved += after[AFTER * i];
        snr += after[AFTER * i + 1];
    }
    squares[t] = square, weight_squares[t] = weight_square, tops[t] = top, zeros[t] = zero;
    moves[t] = moved, snrs[t] = snr;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        squares[t] += squares[t + half];
        weight_squares[t] += weight_squares[t + half];
        tops[t] = fmax(tops[t], tops[t + half]);
        zeros[t] += zeros[t + half];
        moves[t] += moves[t + half];
        snrs[t] += snrs[t + half];
    }
    if (t > 0) return;
    if (!all) {
        stats[blockIdx.x] = sqrt(squares[0]);
        stats[segments + blockIdx.x] = sqrt(moves[0]) / fmax(sqrt(weight_squares[0]), (double)TINY);
        return;
    }
    double* out = stats + 2 * segments;
    out[0] = sqrt(squares[0]);
    out[1] = sqrt(moves[0]);
    out[2] = snrs[0] / (double)elements;
    out[3] = tops[0];
    out[4] = zeros[0] / (double)elements;
    bool sound = out[0] - out[0] == 0.0;  // as in the step
    out[5] = sound;
    *t_at += sound;
}
