// C51 (Bellemare et al. 2017): triangular projection and cross-entropy, one thread an atom.
// The span may live on the device (v_min_at, v_max_at) or come with the launch; one pair of them is null.

#define THREADS 128  // of a block; a row has at most as many atoms

// A block takes as many whole rows as fit its threads, one thread an atom, and shares a row through shared memory.
struct Place { long long row, word; int first; bool used; };  // first: the thread of the row's atom 0

__device__ static Place place(long long rows, long long atoms)
{
    int n = (int)atoms, fit = blockDim.x / n, t = threadIdx.x, local = t / n;
    long long row = (long long)blockIdx.x * fit + local;
    return Place{row, row * atoms + (t - local * n), local * n, local < fit && row < rows};
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
    __shared__ float mass[THREADS], at[THREADS];  // of source atoms; at is in atom numbers
    Place here = place(rows, atoms);
    int n = (int)atoms, t = threadIdx.x;
    if (here.used) {
        float low = v_min_at ? *v_min_at : v_min, high = v_max_at ? *v_max_at : v_max;
        float delta = (high - low) / (float)(n - 1);
        mass[t] = probs[here.word];
        at[t] = fminf(fmaxf((positions[here.word] - low) / delta, 0.0f), (float)(n - 1));
    }
    __syncthreads();
    if (!here.used) return;
    float atom = (float)(t - here.first), sum = 0.0f;
    for (int j = here.first; j < here.first + n; ++j)
        sum = fmaf(mass[j], fminf(fmaxf(1.0f - fabsf(at[j] - atom), 0.0f), 1.0f), sum);
    out[here.word] = sum;
}

extern "C" __global__ void c51_cross_entropy(const float* __restrict__ logits, const float* __restrict__ target,
                                             long long rows, long long atoms, float* __restrict__ loss,
                                             float* __restrict__ probs)
{
    __shared__ float x[THREADS], terms[THREADS];
    Place here = place(rows, atoms);
    int n = (int)atoms, t = threadIdx.x;
    if (here.used) x[t] = logits[here.word];
    __syncthreads();
    if (here.used) {
        float top = x[here.first], total = 0.0f;
        for (int j = 1; j < n; ++j) top = fmaxf(top, x[here.first + j]);
        for (int j = 0; j < n; ++j) total += expf(x[here.first + j] - top);
        float log_p = x[t] - top - logf(total);
        terms[t] = target[here.word] * log_p;
        probs[here.word] = expf(log_p);
    }
    __syncthreads();
    if (!here.used || t != here.first) return;
    float sum = 0.0f;
    for (int j = 0; j < n; ++j) sum += terms[t + j];
    loss[here.row] = -sum;
}

// dL/dlogits = grad (probs sum(target) - target); a target's mass is 1 up to rounding.
extern "C" __global__ void c51_cross_entropy_backward(const float* __restrict__ probs,
                                                      const float* __restrict__ target,
                                                      const float* __restrict__ grad, long long rows,
                                                      long long atoms, float* __restrict__ out)
{
    __shared__ float m[THREADS];
    Place here = place(rows, atoms);
    int n = (int)atoms, t = threadIdx.x;
    if (here.used) m[t] = target[here.word];
    __syncthreads();
    if (!here.used) return;
    float mass = 0.0f;
    for (int j = 0; j < n; ++j) mass += m[here.first + j];
    out[here.word] = grad[here.row] * (probs[here.word] * mass - m[t]);
}
