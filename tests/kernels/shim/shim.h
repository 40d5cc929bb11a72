// What a CUDA source needs to be compiled by g++: qualifiers, indices, barriers, the intrinsics our kernels use.
// Loads and stores reach the runtime through -fsanitize=thread, whose hooks runtime.cpp defines; nothing else of it
// is linked. Add an intrinsic here when a kernel needs one.
#pragma once
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>

struct uint3 { unsigned int x, y, z; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) float4 { float x, y, z, w; };

extern "C" {
uint3 shim_thread();
uint3 shim_block();
uint3 shim_block_dim();
uint3 shim_grid_dim();
int shim_barrier(int line, int vote);
const uint64_t* shim_exchange(int line, uint64_t said);
void shim_warp_barrier(int line);
void shim_switch();
void shim_atomic(void* word, int bytes);
}

#define __global__
#define __device__
#define __launch_bounds__(...)
#define __shared__ static __attribute__((section("shim_shared")))
#define threadIdx (shim_thread())
#define blockIdx (shim_block())
#define blockDim (shim_block_dim())
#define gridDim (shim_grid_dim())
#define __syncthreads() shim_barrier(__LINE__, 0)
#define __syncthreads_or(vote) shim_barrier(__LINE__, (vote) != 0)
#define __syncwarp() shim_warp_barrier(__LINE__)
#define __shfl_sync(mask, x, lane, width) shim_shuffle(__LINE__, x, lane, width)  // mask: the whole warp
#define __any_sync(mask, vote) shim_any(__LINE__, vote)
#define __threadfence() shim_switch()  // orders this thread's writes; holds nobody up

#define SHIM_UNSEEN __attribute__((no_sanitize("thread"), noinline))

// Fibers switch only where the runtime says so: between the hook and the end of an atomic nobody else runs.
template <class T> SHIM_UNSEEN T atomicAdd(T* word, T x)
{
    shim_atomic(word, sizeof(T));
    T old = *word;
    *word = old + x;
    return old;
}

template <class T> SHIM_UNSEEN T atomicMin(T* word, T x)
{
    shim_atomic(word, sizeof(T));
    T old = *word;
    if (x < old) *word = x;
    return old;
}

template <class T> SHIM_UNSEEN T atomicOr(T* word, T x)
{
    shim_atomic(word, sizeof(T));
    T old = *word;
    *word = old | x;
    return old;
}

template <class T> SHIM_UNSEEN T atomicAnd(T* word, T x)
{
    shim_atomic(word, sizeof(T));
    T old = *word;
    *word = old & x;
    return old;
}

template <class T> SHIM_UNSEEN T shim_shuffle(int line, T x, int lane, int width)
{
    uint64_t bits = 0;
    memcpy(&bits, &x, sizeof(T));
    int mine = threadIdx.x % 32, from = (mine & ~(width - 1)) | (lane & (width - 1));
    bits = shim_exchange(line, bits)[from];
    memcpy(&x, &bits, sizeof(T));
    return x;
}

SHIM_UNSEEN inline int shim_any(int line, bool vote)
{
    const uint64_t* votes = shim_exchange(line, vote);
    int found = 0;
    for (int lane = 0; lane < 32; ++lane) found |= (int)votes[lane];
    return found;
}

// A kernel as a function of an array of pointers to its arguments.
template <class... P, size_t... I> SHIM_UNSEEN void shim_call(void (*kernel)(P...), void** args, std::index_sequence<I...>)
{
    kernel(*static_cast<P*>(args[I])...);
}

template <class... P> SHIM_UNSEEN void shim_call(void (*kernel)(P...), void** args)
{
    shim_call(kernel, args, std::index_sequence_for<P...>());
}

#define SHIM_KERNEL(name) \
    extern "C" SHIM_UNSEEN void shim_kernel_##name(void** args) { shim_call(name, args); }
