// Windows of table rows by anchor, in words of four bytes, so that any type is moved and no bit is changed.

// Block (x, y): part y of window x, one thread a word. Rows anchor - steps + 1 .. anchor of the table, none before the
// first row of the segment. width: words of a row.
template <typename Word>
__device__ static void windows(const Word* __restrict__ table, const long long* __restrict__ segment_start,
                               const long long* __restrict__ anchors, long long steps, long long width,
                               Word* __restrict__ out)
{
    int i = blockIdx.y * blockDim.x + threadIdx.x, row_words = (int)width, words = (int)(steps * width);
    if (i >= words) return;
    long long anchor = anchors[blockIdx.x], first = segment_start[anchor];
    int k = i / row_words;
    long long row = anchor - steps + 1 + k;
    if (row < first) row = first;
    out[(long long)blockIdx.x * words + i] = table[row * width + (i - k * row_words)];
}

extern "C" __global__ void gather_windows(const int* table, const long long* segment_start, const long long* anchors,
                                          long long steps, long long width, int* out)
{
    windows(table, segment_start, anchors, steps, width, out);
}

// Rows of whole aligned sixteen bytes, which one load moves: width is in those.
extern "C" __global__ void gather_wide_windows(const int* table, const long long* segment_start,
                                               const long long* anchors, long long steps, long long width, int* out)
{
    windows((const int4*)table, segment_start, anchors, steps, width, (int4*)out);
}
