// The quantile draws of an earlier trainer: a block a quantile, all read the row's generator word, one advances it.
extern "C" __global__ void shared_word(int* state, long long rows, float* tau)
{
    long long row = threadIdx.x;
    if (row >= rows) return;
    unsigned int word = state[row];
    tau[row * gridDim.x + blockIdx.x] = (word * 747796405u + blockIdx.x * 2891336453u) * 0x1p-32f;
    word ^= word << 13, word ^= word >> 17, word ^= word << 5;
    if (blockIdx.x == 0) state[row] = (int)word;
}
