// Composed weights of a state-space block: joint = [W_in; W_ab W_in] with its biases, out = W_out diag(w_c), and the
// gradients of the parameters from theirs. A block of threads takes 32 columns of one row of one matrix; eight lanes
// share a column's sum, and are added pairwise.

#define COLUMNS 32
#define LANES 8

struct Sums {
    float lanes[LANES][COLUMNS], tile[COLUMNS][COLUMNS + 1];
};

// The sum of a column's lanes.
__device__ static float over_lanes(Sums& s, float mine)
{
    __syncthreads();
    s.lanes[threadIdx.y][threadIdx.x] = mine;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.y < half) s.lanes[threadIdx.y][threadIdx.x] += s.lanes[threadIdx.y + half][threadIdx.x];
    }
    __syncthreads();
    return s.lanes[0][threadIdx.x];
}

// sum_k a[k a_step] b[k b_step + column], the lane's share.
__device__ static float down(const float* a, int a_step, const float* b, int b_step, int n)
{
    float sum = 0.0f;
#pragma unroll 4
    for (int k = threadIdx.y; k < n; k += LANES) sum = fmaf(a[k * a_step], b[k * b_step], sum);
    return sum;
}

// sum_k a[k] b[column n + k], the lane's share: rows of b pass through shared memory.
__device__ static float along(Sums& s, const float* a, const float* b, int n, int first, int columns)
{
    float sum = 0.0f;
    for (int from = 0; from < n; from += COLUMNS) {
        int k = from + threadIdx.x;
        __syncthreads();
#pragma unroll
        for (int r = threadIdx.y; r < COLUMNS; r += LANES)
            s.tile[r][threadIdx.x] = first + r < columns && k < n ? a[k] * b[(first + r) * n + k] : 0.0f;
        __syncthreads();
#pragma unroll
        for (int r = threadIdx.y; r < COLUMNS; r += LANES) sum += s.tile[threadIdx.x][r];
    }
    return sum;
}

// Blocks (x, y): columns of row y: the 3 hidden rows of joint with their biases as one column more, then the hidden
// rows of out.
extern "C" __global__ void compose_weights(const float* __restrict__ w_in, const float* __restrict__ b_in,
                                           const float* __restrict__ w_ab, const float* __restrict__ b_ab,
                                           const float* __restrict__ w_c, const float* __restrict__ w_out,
                                           const float* __restrict__ b_out, long long hidden, long long inputs,
                                           float* __restrict__ joint, float* __restrict__ gates,
                                           float* __restrict__ out, float* __restrict__ shift)
{
    __shared__ Sums sums;
    int h = (int)hidden, n = (int)inputs, row = blockIdx.y, c = blockIdx.x * COLUMNS + threadIdx.x;
    bool bias = c == n, first = threadIdx.y == 0;
    if (row < h) {
        if (first && c < n) joint[row * n + c] = w_in[row * n + c];
        if (first && bias) shift[row] = b_in[row] + b_out[row];
    } else if (row < 3 * h) {
        float mine = c <= n ? down(w_ab + (row - h) * h, 1, bias ? b_in : w_in + c, bias ? 1 : n, h) : 0.0f;
        float sum = over_lanes(sums, mine);
        if (first && c < n) joint[row * n + c] = sum;
        if (first && bias) gates[row - h] = sum + b_ab[row - h];
    } else if (first && c < h) {
        out[(row - 3 * h) * h + c] = w_out[(row - 3 * h) * h + c] * w_c[c];
    }
}

// Blocks (x, y): columns of row y: the hidden rows of d_in = d_u + W_ab' d_ab with that of b_in as one column more, the
// 2 hidden rows of dW_ab = d_ab W_in' + d_gates b_in', the hidden rows of W_out, then w_c.
extern "C" __global__ void compose_gradients(
    const float* __restrict__ w_in, const float* __restrict__ b_in, const float* __restrict__ w_ab,
    const float* __restrict__ w_c, const float* __restrict__ w_out, const float* __restrict__ d_joint,
    const float* __restrict__ d_gates, const float* __restrict__ d_out, const float* __restrict__ d_shift,
    long long hidden, long long inputs, float* __restrict__ into_w_in, float* __restrict__ into_b_in,
    float* __restrict__ into_w_ab, float* __restrict__ into_b_ab, float* __restrict__ into_w_c,
    float* __restrict__ into_w_out, float* __restrict__ into_b_out)
{
    __shared__ Sums sums;
    int h = (int)hidden, n = (int)inputs, row = blockIdx.y, start = blockIdx.x * COLUMNS, c = start + threadIdx.x;
    bool bias = c == n, first = threadIdx.y == 0;
    if (row < h) {
        const float* below = bias ? d_gates : d_joint + h * n + c;
        float sum = over_lanes(sums, c <= n ? down(w_ab + row, h, below, bias ? 1 : n, 2 * h) : 0.0f);
        if (first && c < n) into_w_in[row * n + c] = d_joint[row * n + c] + sum;
        if (first && bias) into_b_in[row] = d_shift[row] + sum;
    } else if (row < 3 * h) {
        int gate = row - h;
        float sum = over_lanes(sums, along(sums, d_joint + row * n, w_in, n, start, h));
        if (first && c < h) into_w_ab[gate * h + c] = sum + d_gates[gate] * b_in[c];
        if (first && c == 0) into_b_ab[gate] = d_gates[gate];
    } else if (row < 4 * h) {
        int o = row - 3 * h;
        if (first && c < h) into_w_out[o * h + c] = d_out[o * h + c] * w_c[c];
        if (first && c == 0) into_b_out[o] = d_shift[o];
    } else {
        float sum = over_lanes(sums, c < h ? down(d_out + c, h, w_out + c, h, h) : 0.0f);
        if (first && c < h) into_w_c[c] = sum;
    }
}
