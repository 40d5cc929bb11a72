// Sums over the rows of h [rows, units] and over pairs of its units, in float64. Blocks of the first launch take a tile
// of the covariance or a part of the rows; one block of the second adds their words in order.

#define TILE 16        // units a side of a tile of the covariance
#define THREADS 256    // TILE x TILE
#define TILE_ROWS 64   // rows of a tile loaded at once
#define PART_ROWS 8    // rows of a part
#define ROW_LANES 32   // threads a row; PART_ROWS x ROW_LANES is THREADS
#define MERGE_LANES 16
#define MERGE_UNITS 32
#define NUMBERS 5

// The sum of x over a block. words: a double a thread; every thread comes here. Every thread reads it behind a barrier:
// of a read by thread 0 alone the compiler made one by all, beside the last write.
__device__ static double block_sum(double x, double* words, int t)
{
    __syncthreads();
    words[t] = x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) words[t] += words[t + half];
    }
    __syncthreads();
    return words[0];
}

// Covariance of TILE by TILE units over all rows, about the first row: its squares and, on the diagonal, its trace.
__device__ static void covariance(const float* h, long long rows, long long units, long long across, long long down,
                                  double* squares, double* traces, double* words)
{
    __shared__ double left[TILE_ROWS][TILE], right[TILE_ROWS][TILE];
    int t = threadIdx.x, x = t % TILE, y = t / TILE;
    long long a = down * TILE + y, b = across * TILE + x, mine = down * TILE + x;  // columns: of the pair, of the load
    double product = 0, sum_a = 0, sum_b = 0;
    double zero_a = mine < units ? h[mine] : 0, zero_b = b < units ? h[b] : 0;
    for (long long row = 0; row < rows; row += TILE_ROWS) {
        __syncthreads();
#pragma unroll
        for (int k = 0; k < TILE_ROWS / TILE; ++k) {
            int r = k * TILE + y;
            bool there = row + r < rows;
            left[r][x] = there && mine < units ? h[(row + r) * units + mine] - zero_a : 0;
            right[r][x] = there && b < units ? h[(row + r) * units + b] - zero_b : 0;
        }
        __syncthreads();
#pragma unroll 8
        for (int r = 0; r < TILE_ROWS; ++r) {
            product += left[r][y] * right[r][x];
            sum_a += left[r][y];
            sum_b += right[r][x];
        }
    }
    double value = product / rows - (sum_a / rows) * (sum_b / rows);  // 0 beyond the units
    double square = block_sum(value * value, words, t);
    double trace = block_sum(a == b ? value : 0, words, t);
    if (t == 0) *squares = square, *traces = trace;
}

// Unit rows added up a unit, and the distances of the counted rows, over PART_ROWS rows.
__device__ static void part_of_rows(const float* h, const float* before, const bool* left_out, long long rows,
                                    long long units, long long part, double* unit_sums, double* moved, double* words)
{
    __shared__ double square[PART_ROWS][ROW_LANES], step[PART_ROWS][ROW_LANES], norm[PART_ROWS];
    int t = threadIdx.x, lane = t % ROW_LANES, at = t / ROW_LANES;
    long long row = part * PART_ROWS + at;
    double sum = 0, far = 0;
    if (row < rows)
#pragma unroll 4
        for (long long u = lane; u < units; u += ROW_LANES) {
            double x = h[row * units + u], off = h[row * units + u] - before[row * units + u];
            sum += x * x;
            far += off * off;
        }
    square[at][lane] = sum, step[at][lane] = far;
    for (int half = ROW_LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half) square[at][lane] += square[at][lane + half], step[at][lane] += step[at][lane + half];
    }
    if (lane == 0) norm[at] = sqrt(square[at][0]) < 1e-300 ? 1e-300 : sqrt(square[at][0]);
    bool counted = lane == 0 && row < rows && !left_out[row];
    double distance = block_sum(counted ? sqrt(step[at][0]) : 0, words, t);
    double number = block_sum(counted, words, t);
    if (t == 0) moved[2 * part] = distance, moved[2 * part + 1] = number;
    int here = rows - part * PART_ROWS < PART_ROWS ? (int)(rows - part * PART_ROWS) : PART_ROWS;
    for (long long u = t; u < units; u += THREADS) {
        double total = 0;
        for (int r = 0; r < here; ++r) total += h[(part * PART_ROWS + r) * units + u] / norm[r];
        unit_sums[part * units + u] = total;
    }
}

// Blocks: tiles_a_side x tiles_a_side tiles, then the parts of the rows.
extern "C" __global__ void geometry_parts(const float* __restrict__ h, const float* __restrict__ before,
                                          const bool* __restrict__ left_out, long long rows, long long units,
                                          long long tiles_a_side, double* __restrict__ squares,
                                          double* __restrict__ traces, double* __restrict__ unit_sums,
                                          double* __restrict__ moved)
{
    __shared__ double words[THREADS];
    long long tiles = tiles_a_side * tiles_a_side, tile = blockIdx.x;
    if (tile < tiles)
        covariance(h, rows, units, tile % tiles_a_side, tile / tiles_a_side, squares + tile, traces + tile, words);
    else
        part_of_rows(h, before, left_out, rows, units, tile - tiles, unit_sums, moved, words);
}

// out: as the twin names them. One block.
extern "C" __global__ void geometry_merge(const double* __restrict__ squares, const double* __restrict__ traces,
                                          const double* __restrict__ unit_sums, const double* __restrict__ moved,
                                          long long tiles, long long parts, long long units,
                                          double* __restrict__ out)
{
    __shared__ double words[NUMBERS][MERGE_LANES * MERGE_UNITS], sums[MERGE_LANES][MERGE_UNITS];
    int x = threadIdx.x, lane = threadIdx.y, t = lane * MERGE_UNITS + x, threads = MERGE_LANES * MERGE_UNITS;
    double total = 0;
    for (long long first = 0; first < units; first += MERGE_UNITS) {
        double sum = 0;
        if (first + x < units)
            for (long long part = lane; part < parts; part += MERGE_LANES) sum += unit_sums[part * units + first + x];
        sums[lane][x] = sum;
        for (int half = MERGE_LANES / 2; half > 0; half /= 2) {
            __syncthreads();
            if (lane < half) sums[lane][x] += sums[lane + half][x];
        }
        if (lane == 0) total += sums[0][x] * sums[0][x];
        __syncthreads();
    }
    double square = 0, trace = 0, distance = 0, number = 0;
    for (long long i = t; i < tiles; i += threads) square += squares[i], trace += traces[i];
    for (long long i = t; i < parts; i += threads) distance += moved[2 * i], number += moved[2 * i + 1];
    double found[NUMBERS] = {total, trace, square, distance, number};
    for (int k = 0; k < NUMBERS; ++k) words[k][t] = found[k];
    for (int half = threads / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            for (int k = 0; k < NUMBERS; ++k) words[k][t] += words[k][t + half];
    }
    if (t == 0)
        for (int k = 0; k < NUMBERS; ++k) out[k] = words[k][0];
}
