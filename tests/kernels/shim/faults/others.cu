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
