// Philox 4x32-10 (Salmon et al. 2011), output word 0: a draw is a function of its counter and key alone.

__device__ static unsigned int philox4x32(unsigned int c0, unsigned int c1, unsigned int c2, unsigned int c3,
                                          unsigned int k0, unsigned int k1)
{
    for (int round = 0; round < 10; ++round) {
        unsigned long long p0 = 0xD2511F53ull * c0, p1 = 0xCD9E8D57ull * c2;  // multipliers of the paper
        c0 = (unsigned int)(p1 >> 32) ^ c1 ^ k0;
        c1 = (unsigned int)p1;
        c2 = (unsigned int)(p0 >> 32) ^ c3 ^ k1;
        c3 = (unsigned int)p0;
        k0 += 0x9E3779B9u;  // Weyl increments
        k1 += 0xBB67AE85u;
    }
    return c0;
}

// out [n_rows, lanes]: one thread a draw. step_at may be null; then step holds.
extern "C" __global__ void philox_words(const long long* rows, const long long* step_at, long long step,
                                        long long purpose, long long key0, long long key1, long long n_rows,
                                        long long lanes, long long* out)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_rows * lanes) return;
    long long row = i / lanes, lane = i - row * lanes;
    unsigned int at = (unsigned int)(step_at ? *step_at : step);
    out[i] = philox4x32((unsigned int)lane, (unsigned int)rows[row], at, (unsigned int)purpose,
                        (unsigned int)key0, (unsigned int)key1);
}

// Lane 0 of every row as float32 in [0, 1): (x >> 8) 2^-24.
extern "C" __global__ void philox_uniforms(const long long* rows, const long long* step_at, long long step,
                                           long long purpose, long long key0, long long key1, long long n_rows,
                                           float* out)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n_rows) return;
    unsigned int at = (unsigned int)(step_at ? *step_at : step);
    out[i] = (float)(philox4x32(0, (unsigned int)rows[i], at, (unsigned int)purpose, (unsigned int)key0,
                                (unsigned int)key1) >> 8) * 0x1p-24f;
}
