// Sum tree: root at 1, children of n at 2n and 2n + 1, leaf i at capacity + i. A launch rebuilds up to eleven levels,
// one block a subtree; the next launch is the only barrier between blocks (a fence orders writes, it waits for none).

#define MAX_WIDTH 1024  // nodes a block writes on its lowest level; also its threads

// Block b recomputes the inner nodes of the subtree under node roots + b, from the nodes `depth` levels below it.
extern "C" __global__ void sumtree_rebuild(float* tree, long long roots, long long depth)
{
    __shared__ float level[MAX_WIDTH];
    int t = threadIdx.x, width = 1 << (depth - 1);
    long long root = roots + blockIdx.x;
    float sum = 0.0f;
    if (t < width) {
        long long node = root * width + t;
        sum = tree[2 * node] + tree[2 * node + 1];
        tree[node] = sum;
        level[t] = sum;
    }
    for (width /= 2; width > 0; width /= 2) {
        __syncthreads();
        if (t < width) sum = level[2 * t] + level[2 * t + 1];
        __syncthreads();
        if (t < width) {
            level[t] = sum;
            tree[root * width + t] = sum;
        }
    }
}

// One thread a draw: the mass of its stratum, then strict descent (mass below the left sum goes left).
extern "C" __global__ void sumtree_sample(const float* __restrict__ tree, const float* __restrict__ u,
                                          long long capacity, long long draws, long long* __restrict__ leaf)
{
    long long s = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    if (s >= draws) return;
    float total = tree[1];
    float mass = ((float)s + u[s]) * (total / (float)draws);
    mass = fminf(mass, nextafterf(total, 0.0f));
    long long node = 1;
    while (node < capacity) {
        float left = tree[2 * node], other = tree[2 * node + 1];
        bool right = mass >= left && other > 0.0f;
        if (right) mass -= left;
        node = 2 * node + right;
    }
    leaf[s] = total > 0.0f ? node - capacity : -1;
}

// One block a batch row: it writes its leaf unless a lower row names the same one. rows^2 / 2 compares, no scratch.
extern "C" __global__ void sumtree_set_leaves(float* __restrict__ tree, const long long* __restrict__ indices,
                                              const float* __restrict__ values, long long capacity)
{
    long long row = blockIdx.x, mine = indices[row];
    int taken = 0;
#pragma unroll 4
    for (long long lower = threadIdx.x; lower < row; lower += blockDim.x) taken |= indices[lower] == mine;
    if (!__syncthreads_or(taken) && threadIdx.x == 0) tree[capacity + mine] = values[row];
}

#define THREADS 256

// Lane 0 of `values` gets the largest over the block.
__device__ static void largest(float* values)
{
    int t = threadIdx.x;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half) values[t] = fmaxf(values[t], values[t + half]);
    }
    __syncthreads();
}

// tops[block] = the largest of the block's share of the leaves.
extern "C" __global__ void sumtree_largest(const float* __restrict__ tree, long long capacity, long long share,
                                           float* __restrict__ tops)
{
    __shared__ float values[THREADS];
    long long first = blockIdx.x * share, end = first + share < capacity ? first + share : capacity;
    float top = 0.0f;
    for (long long i = first + threadIdx.x; i < end; i += THREADS) top = fmaxf(top, tree[capacity + i]);
    values[threadIdx.x] = top;
    largest(values);
    if (threadIdx.x == 0) tops[blockIdx.x] = values[0];
}

// One block: leaves count .. count + rows, modulo the capacity, get the largest of all, or 1 where there is none.
extern "C" __global__ void sumtree_append(float* __restrict__ tree, const float* __restrict__ tops, long long n_tops,
                                          const long long* __restrict__ count, long long capacity, long long rows)
{
    __shared__ float values[THREADS];
    float top = 0.0f;
    for (long long i = threadIdx.x; i < n_tops; i += THREADS) top = fmaxf(top, tops[i]);
    values[threadIdx.x] = top;
    largest(values);
    for (long long i = threadIdx.x; i < rows; i += THREADS)
        tree[capacity + (*count + i) % capacity] = values[0] > 0.0f ? values[0] : 1.0f;
}

// One block: leaves and importance weights (length P)^-beta over their largest, of the leaves drawn.
extern "C" __global__ void sumtree_weigh(const float* __restrict__ tree, const long long* __restrict__ indices,
                                         const long long* __restrict__ count, long long capacity, long long rows,
                                         float beta, float* __restrict__ leaves, float* __restrict__ weights)
{
    __shared__ float values[THREADS];
    float total = tree[1], length = (float)(*count < capacity ? *count : capacity), top = 0.0f;
    for (long long row = threadIdx.x; row < rows; row += THREADS) {
        float leaf = indices[row] < 0 ? 0.0f : tree[capacity + indices[row]];
        float weight = powf(length * (total > 0.0f ? leaf / total : 0.0f), -beta);
        leaves[row] = leaf, weights[row] = weight;
        top = fmaxf(top, weight);
    }
    values[threadIdx.x] = top;
    largest(values);
    for (long long row = threadIdx.x; row < rows; row += THREADS) weights[row] /= values[0];
}

#define MOMENTS 4  // sum of the leaves, of their squares, the largest, slots held and never drawn

// The four over the block, summed pairwise, to row `blockIdx.x` of out.
__device__ static void fold(double* found, double* out)
{
    __shared__ double room[MOMENTS][THREADS];
    int t = threadIdx.x;
    for (int k = 0; k < MOMENTS; ++k) room[k][t] = found[k];
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t >= half) continue;
        for (int k = 0; k < MOMENTS; ++k)
            room[k][t] = k == 2 ? fmax(room[k][t], room[k][t + half]) : room[k][t] + room[k][t + half];
    }
    if (t == 0)
        for (int k = 0; k < MOMENTS; ++k) out[blockIdx.x * MOMENTS + k] = room[k][0];
}

extern "C" __global__ void sumtree_moments(const float* __restrict__ tree, const int* __restrict__ draws,
                                           const long long* __restrict__ count, long long capacity, long long share,
                                           double* __restrict__ parts)
{
    double found[MOMENTS] = {};
    long long first = blockIdx.x * share, end = first + share < capacity ? first + share : capacity;
    for (long long i = first + threadIdx.x; i < end; i += THREADS) {
        double leaf = tree[capacity + i];
        found[0] += leaf;
        found[1] += leaf * leaf;
        found[2] = fmax(found[2], leaf);
        found[3] += i < *count && draws[i] == 0;
    }
    fold(found, parts);
}

// One block.
extern "C" __global__ void sumtree_moments_finish(const double* __restrict__ parts, long long n_parts,
                                                  double* __restrict__ out)
{
    double found[MOMENTS] = {};
    for (long long i = threadIdx.x; i < n_parts; i += THREADS)
        for (int k = 0; k < MOMENTS; ++k)
            found[k] = k == 2 ? fmax(found[k], parts[i * MOMENTS + k]) : found[k] + parts[i * MOMENTS + k];
    fold(found, out);
}
