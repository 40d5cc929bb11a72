// Position-keyed digests of raw bits over a table of buffers: integer sums modulo 2^64, so any order gives the same.
// table row (address, bytes, seed) a buffer; item row (buffer, first word) a chunk of one, which one block adds up.

#define THREADS 256
typedef unsigned long long u64;

__device__ static u64 fmix(u64 x)  // MurmurHash3's 64-bit finaliser
{
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
    return x ^ (x >> 33);
}

#define GOLDEN 0x9E3779B97F4A7C15ull

// Word i of `bytes` bytes, zero padded at the tail; a buffer that starts off a word boundary is read by bytes.
__device__ static u64 word_at(const unsigned char* base, u64 i, u64 bytes)
{
    if ((u64)base % 8 == 0 && 8 * i + 8 <= bytes) return ((const u64*)base)[i];
    u64 word = 0;
    for (u64 byte = 8 * i; byte < bytes && byte < 8 * i + 8; ++byte) word |= (u64)base[byte] << 8 * (byte - 8 * i);
    return word;
}

// totals[buffer] += the sum of a chunk's words: fmix(w XOR fmix(i K + seed)).
extern "C" __global__ void digest_sums(const long long* table, const long long* items, long long chunk_words,
                                       long long* totals)
{
    __shared__ u64 sums[THREADS];
    int t = threadIdx.x;
    long long buffer = items[2 * blockIdx.x];
    const unsigned char* base = (const unsigned char*)table[3 * buffer];
    u64 bytes = table[3 * buffer + 1], seed = table[3 * buffer + 2];
    u64 first = items[2 * blockIdx.x + 1], words = (bytes + 7) / 8;
    u64 end = first + chunk_words < words ? first + chunk_words : words, sum = 0;
#pragma unroll 4
    for (u64 i = first + t; i < end; i += THREADS)
        sum += fmix(word_at(base, i, bytes) ^ fmix(i * GOLDEN + seed));
    sums[t] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) atomicAdd((u64*)totals + buffer, sums[0]);
}

// out = fmix(total XOR nbytes K); the totals are left at zero for the next run.
extern "C" __global__ void digest_finish(const long long* table, long long buffers, long long* totals, long long* out)
{
    long long buffer = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (buffer >= buffers) return;
    out[buffer] = (long long)fmix((u64)totals[buffer] ^ (u64)table[3 * buffer + 1] * GOLDEN);
    totals[buffer] = 0;
}
