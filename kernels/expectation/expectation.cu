// E = sum of softmax(logits)_j z_j over the atoms of a row: one thread a row, whose few atoms lie side by side.

extern "C" __global__ void expectation_rows(const float* __restrict__ logits, const float* __restrict__ support,
                                            long long rows, long long atoms, float* __restrict__ out)
{
    long long row = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    logits += row * atoms;
    int n = (int)atoms;
    float top = logits[0], mass = 0.0f, sum = 0.0f;
#pragma unroll 8
    for (int j = 1; j < n; ++j) top = fmaxf(top, logits[j]);
#pragma unroll 8
    for (int j = 0; j < n; ++j) {
        float power = expf(logits[j] - top);
        mass += power, sum += power * support[j];
    }
    out[row] = sum / mass;
}
