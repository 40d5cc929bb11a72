// The heads of a small batch without gradients. A block takes four rows and reads every weight once for them: eight
// lanes share a product, their shares meet in shared memory, and what lies there per unit are the four rows' values.

#define ROWS 4
#define LANES 8
#define THREADS 256
#define WIDE 256  // most units, and most outputs of a head

// out[o] = b[o] + w[o] . in for o < n, in four rows at once; `relu` keeps the positive part.
__device__ void product(const float4* in, const float* w, const float* b, int width, int n, bool relu,
                        float4 (*shares)[LANES + 1], float4* out)
{
    int lane = threadIdx.x % LANES;
    for (int o = threadIdx.x / LANES; o < n; o += THREADS / LANES) {
        float4 sum = {0.0f, 0.0f, 0.0f, 0.0f};
#pragma unroll 16
        for (int k = lane; k < width; k += LANES) {
            float weight = w[(long long)o * width + k];
            sum.x = fmaf(weight, in[k].x, sum.x), sum.y = fmaf(weight, in[k].y, sum.y);
            sum.z = fmaf(weight, in[k].z, sum.z), sum.w = fmaf(weight, in[k].w, sum.w);
        }
        shares[o][lane] = sum;
    }
    __syncthreads();
    for (int o = threadIdx.x; o < n; o += THREADS) {
        float4 sum = shares[o][0];
        for (int j = 1; j < LANES; ++j) {
            float4 share = shares[o][j];
            sum.x += share.x, sum.y += share.y, sum.z += share.z, sum.w += share.w;
        }
        sum.x += b[o], sum.y += b[o], sum.z += b[o], sum.w += b[o];
        if (relu) {  // not fmaxf, which would make 0 of what is not a number
            sum.x = sum.x < 0.0f ? 0.0f : sum.x, sum.y = sum.y < 0.0f ? 0.0f : sum.y;
            sum.z = sum.z < 0.0f ? 0.0f : sum.z, sum.w = sum.w < 0.0f ? 0.0f : sum.w;
        }
        out[o] = sum;
    }
    __syncthreads();
}

__device__ float value_of(const float4* values, int o, int row) { return ((const float*)&values[o])[row]; }

// to [rows, n] from values [n] of the block's rows.
__device__ void store(const float4* values, long long first, long long rows, int n, float* to)
{
    for (int i = threadIdx.x; i < ROWS * n; i += THREADS)
        if (first + i / n < rows) to[first * n + i] = value_of(values, i % n, i / n);
}

extern "C" __global__ void heads_acting(
    const float* __restrict__ h, const float* __restrict__ q_w, const float* __restrict__ q_b,
    const float* __restrict__ pi_w, const float* __restrict__ pi_b, const float* __restrict__ v_w,
    const float* __restrict__ v_b, const float* __restrict__ frd_w1, const float* __restrict__ frd_b1,
    const float* __restrict__ frd_w2, const float* __restrict__ frd_b2, const float* __restrict__ support,
    const double* __restrict__ frd_atoms, long long rows, long long units, long long actions, long long atoms,
    long long hidden, long long horizons, long long bins, float* __restrict__ q_logits, float* __restrict__ q_values,
    float* __restrict__ pi_logits, float* __restrict__ v, float* __restrict__ frd_logits,
    signed char* __restrict__ signs)
{
    __shared__ float4 in[WIDE], out[WIDE], shares[WIDE][LANES + 1];
    int t = threadIdx.x, width = (int)units, n_q = (int)(actions * atoms), n_frd = (int)(horizons * bins);
    long long first = (long long)blockIdx.x * ROWS;
    for (int i = t; i < ROWS * width; i += THREADS)
        ((float*)&in[i % width])[i / width] = first + i / width < rows ? h[first * width + i] : 0.0f;
    __syncthreads();
    product(in, q_w, q_b, width, n_q, false, shares, out);
    store(out, first, rows, n_q, q_logits);
    for (int i = t; i < ROWS * actions; i += THREADS) {
        int row = i / (int)actions, from = i % (int)actions * (int)atoms;
        float top = value_of(out, from, row), mass = 0.0f, sum = 0.0f;
        for (int j = 1; j < atoms; ++j) top = fmaxf(top, value_of(out, from + j, row));
        for (int j = 0; j < atoms; ++j) {
            float power = expf(value_of(out, from + j, row) - top);
            mass += power, sum += power * support[j];
        }
        if (first + row < rows) q_values[first * actions + i] = sum / mass;
    }
    product(in, pi_w, pi_b, width, (int)actions, false, shares, out);
    store(out, first, rows, (int)actions, pi_logits);
    product(in, v_w, v_b, width, 1, false, shares, out);
    store(out, first, rows, 1, v);
    product(in, frd_w1, frd_b1, width, (int)hidden, true, shares, out);
    product(out, frd_w2, frd_b2, (int)hidden, n_frd, false, shares, in);
    store(in, first, rows, n_frd, frd_logits);
    for (int i = t; i < ROWS * horizons; i += THREADS) {
        int row = i / (int)horizons, from = i % (int)horizons * (int)bins;
        double top = value_of(in, from, row), sum = 0.0;
        for (int j = 1; j < bins; ++j) top = fmax(top, (double)value_of(in, from + j, row));
        for (int j = 0; j < bins; ++j) sum += exp(value_of(in, from + j, row) - top) * frd_atoms[j];
        if (first + row < rows) signs[first * horizons + i] = (sum > 0.0) - (sum < 0.0);
    }
}
