// The tree rebuild of an earlier trainer: several blocks, a level each turn, a fence taken for a grid-wide barrier.
extern "C" __global__ void fence_as_barrier(float* tree, long long capacity)
{
    for (long long width = capacity / 2; width > 0; width /= 2) {
        for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < width; i += gridDim.x * blockDim.x)
            tree[width + i] = tree[2 * (width + i)] + tree[2 * (width + i) + 1];
        __threadfence();
    }
}
