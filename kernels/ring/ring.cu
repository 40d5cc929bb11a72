// Rows of many columns in one launch, moved as bits. table row (address, bytes of a row) a ring column of `capacity`
// rows; block (x, y) moves a part of column y, whose other side is argument y. Slot of row i: (start scale + offset + i)
// modulo capacity, where the scalar start lives on the device, or at[i].

typedef unsigned char u8;

struct Slots { const long long* at; long long first, capacity; };

__device__ static Slots slots(const long long* at, const long long* start, long long scale, long long offset,
                              long long capacity)
{
    long long first = at ? 0 : (*start * scale + offset) % capacity;
    return Slots{at, first < 0 ? first + capacity : first, capacity};
}

__device__ static long long slot(const Slots& s, long long row)  // row < capacity where at is null
{
    if (s.at) return s.at[row];
    long long found = s.first + row;
    return found < s.capacity ? found : found - s.capacity;
}

// from null: zeros. one: its single row for all of them. width: units of a row.
template <typename Unit>
__device__ static void put(u8* ring, const u8* from, bool one, int width, int rows, const Slots& s)
{
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * width; i += step) {
        int row = i / width, unit = i - row * width;
        ((Unit*)ring)[slot(s, row) * width + unit] = from ? ((const Unit*)from)[one ? unit : i] : Unit();
    }
}

template <typename Unit>
__device__ static void take(const u8* ring, u8* to, int width, int rows, const Slots& s)
{
    int step = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < rows * width; i += step) {
        int row = i / width, unit = i - row * width;
        ((Unit*)to)[i] = ((const Unit*)ring)[slot(s, row) * width + unit];
    }
}

// The widest unit that divides both addresses and the width: 16, 8, 4 or 1 bytes.
__device__ static int unit_of(const u8* ring, const u8* other, int width)
{
    long long bits = (long long)ring | (long long)other | width;
    return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 1;
}

// Bit c of `repeated`: source c is one row for all.
extern "C" __global__ void ring_put(const long long* table, const long long* start, long long scale, long long offset,
                                    long long capacity, long long rows, long long repeated, const unsigned char* s0,
                                    const unsigned char* s1, const unsigned char* s2, const unsigned char* s3,
                                    const unsigned char* s4, const unsigned char* s5, const unsigned char* s6,
                                    const unsigned char* s7, const unsigned char* s8, const unsigned char* s9,
                                    const unsigned char* s10, const unsigned char* s11, const unsigned char* s12,
                                    const unsigned char* s13, const unsigned char* s14, const unsigned char* s15)
{
    const u8* sources[] = {s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, s10, s11, s12, s13, s14, s15};
    int c = blockIdx.y;
    u8* ring = (u8*)table[2 * c];
    const u8* from = sources[c];
    int width = (int)table[2 * c + 1], n = (int)rows;
    bool one = repeated >> c & 1;
    Slots s = slots(nullptr, start, scale, offset, capacity);
    switch (unit_of(ring, from, width)) {
    case 16: put<int4>(ring, from, one, width / 16, n, s); break;
    case 8: put<long long>(ring, from, one, width / 8, n, s); break;
    case 4: put<int>(ring, from, one, width / 4, n, s); break;
    default: put<u8>(ring, from, one, width, n, s);
    }
}

// at, or start, scale and offset where at is null.
extern "C" __global__ void ring_take(const long long* table, const long long* at, const long long* start,
                                     long long scale, long long offset, long long capacity, long long rows,
                                     unsigned char* d0, unsigned char* d1, unsigned char* d2, unsigned char* d3,
                                     unsigned char* d4, unsigned char* d5, unsigned char* d6, unsigned char* d7,
                                     unsigned char* d8, unsigned char* d9, unsigned char* d10, unsigned char* d11,
                                     unsigned char* d12, unsigned char* d13, unsigned char* d14, unsigned char* d15)
{
    u8* outs[] = {d0, d1, d2, d3, d4, d5, d6, d7, d8, d9, d10, d11, d12, d13, d14, d15};
    int c = blockIdx.y;
    const u8* ring = (const u8*)table[2 * c];
    int width = (int)table[2 * c + 1], n = (int)rows;
    Slots s = slots(at, start, scale, offset, capacity);
    switch (unit_of(ring, outs[c], width)) {
    case 16: take<int4>(ring, outs[c], width / 16, n, s); break;
    case 8: take<long long>(ring, outs[c], width / 8, n, s); break;
    case 4: take<int>(ring, outs[c], width / 4, n, s); break;
    default: take<u8>(ring, outs[c], width, n, s);
    }
}

// counts[at[i]] += 1: integers, so that duplicates add up to the same in any order.
extern "C" __global__ void ring_tally(const long long* at, long long rows, int* counts)
{
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < rows) atomicAdd(counts + at[i], 1);
}
