// C51 (Bellemare et al. 2017): triangular projection, one thread a target atom, and cross-entropy, one a row.
// The span may live on the device (v_min_at, v_max_at) or come with the launch; one pair of them is null.

__device__ static float triangle(float position, float v_min, float delta, float last, float atom)
{
    float b = fminf(fmaxf((position - v_min) / delta, 0.0f), last);
    return fminf(fmaxf(1.0f - fabsf(b - atom), 0.0f), 1.0f);
}

extern "C" __global__ void c51_shifted_atoms(const float* rewards, const float* discounts, const float* v_min_at,
                                             float v_min, const float* v_max_at, float v_max, long long rows,
                                             long long atoms, float* out)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * atoms) return;
    long long row = i / atoms;
    float low = v_min_at ? *v_min_at : v_min, high = v_max_at ? *v_max_at : v_max;
    float z = low + (float)(i - row * atoms) * ((high - low) / (float)(atoms - 1));
    out[i] = rewards[row] + discounts[row] * z;
}

extern "C" __global__ void c51_project_atoms(const float* __restrict__ probs, const float* __restrict__ positions,
                                             const float* v_min_at, float v_min, const float* v_max_at, float v_max,
                                             long long rows, long long atoms, float* __restrict__ out)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * atoms) return;
    long long first = i / atoms * atoms;
    float low = v_min_at ? *v_min_at : v_min, high = v_max_at ? *v_max_at : v_max;
    float delta = (high - low) / (float)(atoms - 1), mass = 0.0f;
#pragma unroll 4
    for (long long j = 0; j < atoms; ++j)
        mass = fmaf(probs[first + j],
                    triangle(positions[first + j], low, delta, (float)(atoms - 1), (float)(i - first)), mass);
    out[i] = mass;
}

extern "C" __global__ void c51_cross_entropy(const float* __restrict__ logits, const float* __restrict__ target,
                                             long long rows, long long atoms, float* __restrict__ loss,
                                             float* __restrict__ probs)
{
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* x = logits + row * atoms;
    float top = x[0], total = 0.0f, sum = 0.0f;
    for (long long j = 1; j < atoms; ++j) top = fmaxf(top, x[j]);
    for (long long j = 0; j < atoms; ++j) total += expf(x[j] - top);
    float log_total = logf(total);
    for (long long j = 0; j < atoms; ++j) {
        float log_p = x[j] - top - log_total;
        sum += target[row * atoms + j] * log_p;
        probs[row * atoms + j] = expf(log_p);
    }
    loss[row] = -sum;
}

// dL/dlogits = grad (probs sum(target) - target); a target's mass is 1 up to rounding.
extern "C" __global__ void c51_cross_entropy_backward(const float* __restrict__ probs,
                                                      const float* __restrict__ target,
                                                      const float* __restrict__ grad, long long rows,
                                                      long long atoms, float* __restrict__ out)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= rows * atoms) return;
    long long row = i / atoms;
    float mass = 0.0f;
    for (long long j = 0; j < atoms; ++j) mass += target[row * atoms + j];
    out[i] = grad[row] * (probs[i] * mass - target[i]);
}
