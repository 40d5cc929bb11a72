// Statistics of many matrices: a block adds up the part of a matrix that is `part_rows` rows of 32 columns, a second
// launch merges the parts of each matrix in order. float64 throughout; squares are about the first row.
// table row (rows, columns, words from row to row, parts, first column, words before, share) a matrix; item (matrix,
// column, part) a block.

#define COLUMNS 32
#define LANES 8
#define AHEAD 8  // loads of a thread on their way at once
#define MERGE_COLUMNS 64
#define MERGE_LANES 8
#define FAR 1e308  // no spread of float32 numbers reaches it
enum { OFF, SQUARE, SIZE, CLIPPED, ENTROPY, LARGEST, STATS };  // of a column
enum { MEAN, VARIANCE, ABS_MEAN, SHARE_CLIPPED, SHARE_ENTROPY, MEAN_ABS, STD, ABS_MAX, MEAN_ABS_MAX, STD_MIN, TOTALS };

struct Matrix { long long rows, columns, stride, parts, first_column, before, share; };

template <class T> __device__ static T larger(T a, T b) { return a != a || a > b ? a : b; }  // NaN stays

// Adds the lanes of a column pairwise, into lane 0, which alone may read it before the next barrier.
template <int LANES_, int COLUMNS_> __device__ static void merge(double (&sums)[STATS][LANES_][COLUMNS_])
{
    int t = threadIdx.x, lane = threadIdx.y;
    for (int half = LANES_ / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane >= half) continue;
        for (int k = 0; k < STATS; ++k) {
            double a = sums[k][lane][t], b = sums[k][lane + half][t];
            sums[k][lane][t] = k == LARGEST ? larger(a, b) : a + b;
        }
    }
}

// parts [matrix][STATS][part][column]; first [column of all matrices] is what the squares are about. Rows of the first
// matrix are those of `at`, where it is given.
extern "C" __global__ void statistics_parts(
    const float* __restrict__ s0, const float* __restrict__ s1, const float* __restrict__ s2,
    const float* __restrict__ s3, const float* __restrict__ s4, const float* __restrict__ s5,
    const float* __restrict__ s6, const float* __restrict__ s7, const float* __restrict__ s8,
    const float* __restrict__ s9, const float* __restrict__ s10, const float* __restrict__ s11,
    const float* __restrict__ s12, const float* __restrict__ s13, const float* __restrict__ s14,
    const float* __restrict__ s15, const float* __restrict__ s16, const float* __restrict__ s17,
    const float* __restrict__ s18, const float* __restrict__ s19, const long long* __restrict__ at,
    const long long* __restrict__ table, const long long* __restrict__ items, long long part_rows, float limit,
    double* __restrict__ first, double* __restrict__ parts)
{
    __shared__ double sums[STATS][LANES][COLUMNS];
    const long long* item = items + 3 * blockIdx.x;
    int which = (int)item[0], lane = threadIdx.y;
    Matrix m = ((const Matrix*)table)[which];
    const float* x = s0;
#define PICK(k) if (which == k) x = s##k;
    PICK(1) PICK(2) PICK(3) PICK(4) PICK(5) PICK(6) PICK(7) PICK(8) PICK(9) PICK(10) PICK(11) PICK(12) PICK(13)
    PICK(14) PICK(15) PICK(16) PICK(17) PICK(18) PICK(19)
    const long long* rows = which == 0 ? at : 0;
    long long column = item[1] + threadIdx.x, part = item[2], row = part * part_rows;
    long long end = row + part_rows < m.rows ? row + part_rows : m.rows;
    double own[STATS] = {};
    if (column < m.columns) {
        float about = x[(rows ? rows[0] : 0) * m.stride + column], largest = 0, v[AHEAD];
        int clipped = 0;
        if (part == 0 && lane == 0) first[m.first_column + column] = about;
        for (row += lane; row < end; row += AHEAD * LANES) {
#pragma unroll
            for (int j = 0; j < AHEAD; ++j) {  // all loads before any use
                long long r = row + j * LANES;
                if (r < end) v[j] = x[(rows ? rows[r] : r) * m.stride + column];
            }
#pragma unroll
            for (int j = 0; j < AHEAD; ++j) {
                if (row + j * LANES >= end) break;
                double value = v[j], off = value - about;
                own[OFF] += off;
                own[SQUARE] += off * off;
                own[SIZE] += fabs(value);
                clipped += fabsf(v[j]) >= limit;
                largest = larger(fabsf(v[j]), largest);
                if (m.share && value > 0) own[ENTROPY] -= value * log(value);
            }
        }
        own[CLIPPED] = clipped, own[LARGEST] = largest;
    }
    for (int k = 0; k < STATS; ++k) sums[k][lane][threadIdx.x] = own[k];
    merge(sums);
    if (lane == 0 && column < m.columns)
        for (int k = 0; k < STATS; ++k)
            parts[m.before + (k * m.parts + part) * m.columns + column] = sums[k][0][threadIdx.x];
}

// columns [3][column of all matrices]: mean, standard deviation, largest size. whole [matrix][10] in the twin's order.
extern "C" __global__ void statistics_merge(const double* __restrict__ first, const double* __restrict__ parts,
                                            const long long* __restrict__ table, long long all_columns,
                                            double* columns, double* __restrict__ whole)
{
    __shared__ double sums[STATS][MERGE_LANES][MERGE_COLUMNS], totals[TOTALS][MERGE_COLUMNS];
    Matrix m = ((const Matrix*)table)[blockIdx.x];
    int t = threadIdx.x, lane = threadIdx.y;
    double total[TOTALS] = {};
    total[STD_MIN] = FAR;
    for (long long column = t; column - t < m.columns; column += MERGE_COLUMNS) {
        double own[STATS] = {};
        if (column < m.columns)
#pragma unroll 4
            for (long long part = lane; part < m.parts; part += MERGE_LANES)
                for (int k = 0; k < STATS; ++k) {
                    double x = parts[m.before + (k * m.parts + part) * m.columns + column];
                    own[k] = k == LARGEST ? larger(x, own[k]) : own[k] + x;
                }
        for (int k = 0; k < STATS; ++k) sums[k][lane][t] = own[k];
        merge(sums);
        if (lane == 0 && column < m.columns) {
            long long to = m.first_column + column;
            double shift = sums[OFF][0][t] / m.rows, mean = first[to] + shift;
            double variance = sums[SQUARE][0][t] / m.rows - shift * shift;
            variance = variance < 0 ? 0 : variance;
            double std = sqrt(variance);
            columns[to] = mean, columns[all_columns + to] = std, columns[2 * all_columns + to] = sums[LARGEST][0][t];
            total[MEAN] += mean, total[VARIANCE] += variance, total[ABS_MEAN] += sums[SIZE][0][t] / m.rows;
            total[SHARE_CLIPPED] += sums[CLIPPED][0][t] / m.rows, total[SHARE_ENTROPY] += sums[ENTROPY][0][t] / m.rows;
            total[MEAN_ABS] += fabs(mean), total[STD] += std;
            total[ABS_MAX] = larger(sums[LARGEST][0][t], total[ABS_MAX]);
            total[MEAN_ABS_MAX] = larger(fabs(mean), total[MEAN_ABS_MAX]);
            total[STD_MIN] = -larger(-std, -total[STD_MIN]);
        }
        __syncthreads();
    }
    if (lane == 0)
        for (int k = 0; k < TOTALS; ++k) totals[k][t] = total[k];
    for (int half = MERGE_COLUMNS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            for (int k = lane; k < TOTALS; k += MERGE_LANES) {
                double a = totals[k][t], b = totals[k][t + half];
                totals[k][t] = k < ABS_MAX ? a + b : k < STD_MIN ? larger(a, b) : -larger(-a, -b);
            }
    }
    __syncthreads();
    double mean = totals[MEAN][0] / m.columns, between = 0;  // of the column means
    if (lane == 0)
        for (long long column = t; column < m.columns; column += MERGE_COLUMNS) {
            double off = columns[m.first_column + column] - mean;
            between += off * off;
        }
    if (lane == 0) sums[0][0][t] = between;
    for (int half = MERGE_COLUMNS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane == 0 && t < half) sums[0][0][t] += sums[0][0][t + half];
    }
    if (lane != 0 || t != 0) return;
    double n = (double)m.columns, *out = whole + 10 * blockIdx.x;
    out[0] = mean, out[1] = sqrt(totals[VARIANCE][0] / n + sums[0][0][0] / n);
    out[2] = totals[ABS_MEAN][0] / n, out[3] = totals[ABS_MAX][0], out[4] = totals[SHARE_CLIPPED][0] / n;
    out[5] = totals[SHARE_ENTROPY][0], out[6] = totals[MEAN_ABS][0] / n, out[7] = totals[MEAN_ABS_MAX][0];
    out[8] = totals[STD][0] / n, out[9] = totals[STD_MIN][0];
}
