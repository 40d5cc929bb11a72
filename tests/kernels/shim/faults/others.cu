// One fault a kernel; each is what its name says.

extern "C" __global__ void missing_barrier(const float* x, float* out)
{
    __shared__ float word[64];
    word[threadIdx.x] = x[threadIdx.x];
    out[threadIdx.x] = word[(threadIdx.x + 1) % 64];
}

extern "C" __global__ void two_writers_of_one_value(int* flag)
{
    flag[0] = 1;
}

extern "C" __global__ void lost_updates(int* count)
{
    count[0] = count[0] + 1;
}

extern "C" __global__ void counted(int* count)
{
    atomicAdd(count, 1);
}

extern "C" __global__ void reads_past_the_end(const float* x, long long n, float* out)
{
    if (threadIdx.x < n) out[threadIdx.x] = x[threadIdx.x + 1];
}

extern "C" __global__ void writes_before_the_start(float* out)
{
    out[(long long)threadIdx.x - 1] = 0.0f;
}

extern "C" __global__ void waits_for_a_later_block(volatile int* flag)
{
    if (blockIdx.x == 1) flag[0] = 1;
    else while (flag[0] == 0) __threadfence();
}

extern "C" __global__ void never_ends(volatile int* flag)
{
    while (flag[0] == 0) __threadfence();
}

extern "C" __global__ void diverging_barriers(float* out)
{
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
    out[threadIdx.x] = 1.0f;
}

extern "C" __global__ void reads_unwritten(const float* x, float* out)
{
    out[threadIdx.x] = x[threadIdx.x] + 1.0f;
}

extern "C" __global__ void reads_shared_unwritten(float* out)
{
    __shared__ float word[2];
    word[0] = 1.0f;
    out[0] = word[0] + word[1];
}

// Lane 0 reads what lane 1 wrote; only a barrier of the warp makes that sure.
extern "C" __global__ void handed_over_by_an_exchange(const float* x, float* words, float* out)
{
    words[threadIdx.x] = x[threadIdx.x];
    float other = __shfl_sync(~0u, x[threadIdx.x], threadIdx.x ^ 1, 32);
    if (threadIdx.x == 0) out[0] = words[1] - other;
}

extern "C" __global__ void handed_over_by_a_barrier(const float* x, float* words, float* out)
{
    words[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    if (threadIdx.x == 0) out[0] = words[1];
}

extern "C" __global__ void lanes_part(float* out)
{
    if (threadIdx.x < 16) {
        out[threadIdx.x] = __shfl_sync(~0u, 1.0f, 0, 4);
    } else {
        out[threadIdx.x] = __any_sync(~0u, true);
    }
}

extern "C" __global__ void half_a_warp_waits_for_the_block(float* out)
{
    if (threadIdx.x < 16) out[threadIdx.x] = __shfl_sync(~0u, 1.0f, 0, 4);
    __syncthreads();
}

extern "C" __global__ void exchanged(const int* x, int* found)
{
    int t = threadIdx.x;
    found[t] = 100 * __shfl_sync(~0u, x[t], t ^ 1, 4) + 10 * __shfl_sync(~0u, x[t], 7, 4) + __any_sync(~0u, x[t] == 5);
}
