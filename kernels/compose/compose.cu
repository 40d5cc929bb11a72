// Composed weights of a state-space block: joint = [W_in; W_ab W_in] with its biases, out = W_out diag(w_c), and the
// gradients of the parameters from theirs. A block of threads takes one row of one matrix; sums run in one order.

#define TILE 32      // inputs of a tile of W_in in shared memory
#define CHANNELS 128 // and its channels: one a thread

// Row of joint and, as one column more, of its biases: shift in the first `hidden` rows, gates below.
__device__ static float joint_of(const float* w_in, const float* b_in, const float* w_ab, const float* b_ab,
                                 const float* b_out, int hidden, int inputs, int row, int column)
{
    const float* from = column < inputs ? w_in + column : b_in;
    int stride = column < inputs ? inputs : 1;
    if (row < hidden) return from[row * stride] + (column < inputs ? 0.0f : b_out[row]);
    const float* gate = w_ab + (row - hidden) * hidden;
    float sum = column < inputs ? 0.0f : b_ab[row - hidden];
#pragma unroll 8
    for (int j = 0; j < hidden; ++j) sum = fmaf(gate[j], from[j * stride], sum);
    return sum;
}

// Blocks: the 3 hidden rows of joint, then the hidden rows of out.
extern "C" __global__ void compose_weights(const float* __restrict__ w_in, const float* __restrict__ b_in,
                                           const float* __restrict__ w_ab, const float* __restrict__ b_ab,
                                           const float* __restrict__ w_c, const float* __restrict__ w_out,
                                           const float* __restrict__ b_out, long long hidden, long long inputs,
                                           float* __restrict__ joint, float* __restrict__ gates,
                                           float* __restrict__ out, float* __restrict__ shift)
{
    int h = (int)hidden, n = (int)inputs, row = blockIdx.x;
    if (row >= 3 * h) {
        row -= 3 * h;
        for (int j = threadIdx.x; j < h; j += blockDim.x) out[row * h + j] = w_out[row * h + j] * w_c[j];
        return;
    }
    for (int c = threadIdx.x; c <= n; c += blockDim.x) {
        float value = joint_of(w_in, b_in, w_ab, b_ab, b_out, h, n, row, c);
        if (c < n) joint[row * n + c] = value;
        else if (row < h) shift[row] = value;
        else gates[row - h] = value;
    }
}

// d_in = d_u + W_ab' d_ab: a row of W_in, and of b_in as one column more.
__device__ static void input_row(const float* w_ab, const float* d_joint, const float* d_gates, const float* d_shift,
                                 int h, int n, int row, float* into_w, float* into_b)
{
    for (int c = threadIdx.x; c <= n; c += blockDim.x) {
        const float* below = c < n ? d_joint + h * n + c : d_gates;
        int stride = c < n ? n : 1;
        float sum = c < n ? d_joint[row * n + c] : d_shift[row];
#pragma unroll 8
        for (int r = 0; r < 2 * h; ++r) sum = fmaf(w_ab[r * h + row], below[r * stride], sum);
        if (c < n) into_w[row * n + c] = sum;
        else into_b[row] = sum;
    }
}

// dW_ab = d_ab W_in' + d_gates b_in': a row of it; W_in passes through shared memory, since a thread needs a row of it.
__device__ static void gate_row(float (*tile)[TILE + 1], const float* w_in, const float* b_in, const float* d_row,
                                float d_gate, int h, int n, float* into)
{
    for (int first = 0; first < h; first += CHANNELS) {
        int channel = first + threadIdx.x;
        float sum = channel < h ? d_gate * b_in[channel] : 0.0f;
        for (int from = 0; from < n; from += TILE) {
            int wide = n - from < TILE ? n - from : TILE;
            __syncthreads();
            for (int w = threadIdx.x; w < CHANNELS * TILE; w += blockDim.x) {
                int r = w / TILE, c = w % TILE;
                if (first + r < h && c < wide) tile[r][c] = w_in[(first + r) * n + from + c];
            }
            __syncthreads();
            if (channel < h)
                for (int c = 0; c < wide; ++c) sum = fmaf(d_row[from + c], tile[threadIdx.x][c], sum);
        }
        if (channel < h) into[channel] = sum;
    }
}

// Blocks: the hidden rows of W_in, the 2 hidden rows of W_ab, the hidden rows of W_out, then w_c.
extern "C" __global__ void compose_gradients(
    const float* __restrict__ w_in, const float* __restrict__ b_in, const float* __restrict__ w_ab,
    const float* __restrict__ w_c, const float* __restrict__ w_out, const float* __restrict__ d_joint,
    const float* __restrict__ d_gates, const float* __restrict__ d_out, const float* __restrict__ d_shift,
    long long hidden, long long inputs, float* __restrict__ into_w_in, float* __restrict__ into_b_in,
    float* __restrict__ into_w_ab, float* __restrict__ into_b_ab, float* __restrict__ into_w_c,
    float* __restrict__ into_w_out, float* __restrict__ into_b_out)
{
    __shared__ float tile[CHANNELS][TILE + 1];
    int h = (int)hidden, n = (int)inputs, row = blockIdx.x;
    if (row < h) {
        input_row(w_ab, d_joint, d_gates, d_shift, h, n, row, into_w_in, into_b_in);
    } else if (row < 3 * h) {
        int gate = row - h;
        gate_row(tile, w_in, b_in, d_joint + row * n, d_gates[gate], h, n, into_w_ab + gate * h);
        if (threadIdx.x == 0) into_b_ab[gate] = d_gates[gate];
    } else if (row < 4 * h) {
        int o = row - 3 * h;
        for (int j = threadIdx.x; j < h; j += blockDim.x) into_w_out[o * h + j] = d_out[o * h + j] * w_c[j];
        if (threadIdx.x == 0) into_b_out[o] = d_shift[o];
    } else {
        for (int j = threadIdx.x; j < h; j += blockDim.x) {
            float sum = 0.0f;
#pragma unroll 8
            for (int o = 0; o < h; ++o) sum = fmaf(d_out[o * h + j], w_out[o * h + j], sum);
            into_w_c[j] = sum;
        }
    }
}
