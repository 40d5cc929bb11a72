// One thread a number: table row (address, type), out float64. Types are numbered as in kernel.py.

extern "C" __global__ void pack_numbers(const long long* __restrict__ table, long long numbers,
                                        double* __restrict__ out)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= numbers) return;
    const void* at = (const void*)table[2 * i];
    switch (table[2 * i + 1]) {
    case 0: out[i] = *(const float*)at; break;
    case 1: out[i] = *(const double*)at; break;
    case 2: out[i] = *(const int*)at; break;
    case 3: out[i] = (double)*(const long long*)at; break;  // exact to 2^53: digests are packed as leaf53
    case 4: out[i] = *(const signed char*)at; break;
    default: out[i] = *(const unsigned char*)at; break;
    }
}
