// Position-keyed digests of raw bits over a table of digests: integer sums modulo 2^64, so any order gives the same.
// table row (bytes, address of the seed, kind) a digest; item row (digest, address of a part, its bytes, the chunk's
// first word in it, words of the parts before it) a chunk of one part, which one block adds up.

#define THREADS 256
#define TABLE 3
#define ITEM 5
#define CHAIN 1   // kinds: the digest becomes the seed of the next run
#define NARROW 2  // digest32 instead
typedef unsigned long long u64;

__device__ static u64 fmix(u64 x)  // MurmurHash3's 64-bit finaliser
{
    x = (x ^ (x >> 33)) * 0xFF51AFD7ED558CCDull;
    x = (x ^ (x >> 33)) * 0xC4CEB9FE1A85EC53ull;
    return x ^ (x >> 33);
}

#define GOLDEN 0x9E3779B97F4A7C15ull

// Word i of `bytes` bytes, zero padded at the tail; a part that starts off a word boundary is read in smaller pieces.
__device__ static u64 word_at(const unsigned char* base, u64 i, u64 bytes)
{
    bool whole = 8 * i + 8 <= bytes;
    if (whole && (u64)base % 8 == 0) return ((const u64*)base)[i];
    if (whole && (u64)base % 4 == 0) {
        const unsigned int* half = (const unsigned int*)base + 2 * i;
        return half[0] | (u64)half[1] << 32;
    }
    u64 word = 0;
    for (u64 byte = 8 * i; byte < bytes && byte < 8 * i + 8; ++byte) word |= (u64)base[byte] << 8 * (byte - 8 * i);
    return word;
}

// totals[digest] += the sum over a chunk's words: fmix(w XOR fmix(i K + seed)), or the two halves' terms of digest32.
extern "C" __global__ void digest_sums(const long long* table, const long long* items, long long chunk_words,
                                       long long* totals)
{
    __shared__ u64 sums[THREADS];
    int t = threadIdx.x;
    const long long* item = items + ITEM * (long long)blockIdx.x;
    const long long* row = table + TABLE * item[0];
    const unsigned char* base = (const unsigned char*)item[1];
    u64 bytes = item[2], first = item[3], before = item[4];
    u64 words = (bytes + 7) / 8, end = first + chunk_words < words ? first + chunk_words : words, sum = 0;
    u64 seed = *(const long long*)row[1], key = (before + first + t) * GOLDEN + seed;
    int n = (int)(end - first);
    if (row[2] == NARROW) {
        for (u64 i = first + t; i < end; i += THREADS) {
            u64 word = word_at(base, i, bytes), odd = 4 * (before + i) + 1;
            sum += odd * (word & 0xFFFFFFFFull) + (odd + 2) * (word >> 32);
        }
    } else if ((u64)base % 8 == 0 && 8 * end <= bytes) {
        const u64* words = (const u64*)base + first;
#pragma unroll 8
        for (int i = t; i < n; i += THREADS, key += THREADS * GOLDEN) sum += fmix(words[i] ^ fmix(key));
    } else {
        for (int i = t; i < n; i += THREADS, key += THREADS * GOLDEN)
            sum += fmix(word_at(base, first + i, bytes) ^ fmix(key));
    }
    sums[t] = sum;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) sums[t] += sums[t + half];
    }
    if (t == 0) atomicAdd((u64*)totals + item[0], sums[0]);
}

// out = fmix(total XOR nbytes K), or the low half of the total; the totals are left at zero for the next run.
extern "C" __global__ void digest_finish(const long long* table, long long digests, long long* totals, long long* out)
{
    long long digest = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (digest >= digests) return;
    const long long* row = table + TABLE * digest;
    u64 total = totals[digest];
    totals[digest] = 0;
    long long found = row[2] == NARROW ? total & 0xFFFFFFFFull : fmix(total ^ (u64)row[0] * GOLDEN);
    out[digest] = found;
    if (row[2] == CHAIN) *(long long*)row[1] = found;
}
