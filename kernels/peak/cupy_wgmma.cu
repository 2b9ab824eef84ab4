// sm_90a
// The ceiling of Hopper's tensor cores. It adds wgmma to mma_chains: a warpgroup multiplies 64 x 256 tiles with both operands in
// shared memory, the only form that reaches the full rate.
//
//      shared memory                        registers of a warpgroup
//    +-------------------+
//    | A: 64 x 32 bytes  | --+  wgmma      +-----------------------+
//    +-------------------+   +-----------> | 64 x 256 sums: 128 of | --+  four products in a group;
//    | B: 256 x 32 bytes | --+             | them in each thread   |   |  the next group begins
//    +-------------------+                 +-----------------------+ <-+  before this one has ended
//      the same again and again: nothing is loaded
//
// Takes, from the constants here:
//   shared memory: 2 * A_BYTES + B_BYTES = 12,288 bytes a block of two warpgroups
//   registers:     64 * 256 / 128 = 128 sums a thread
// Source: NVIDIA, PTX ISA, "wgmma.mma_async" (descriptors, core matrices).

#ifndef WGMMA
#define WGMMA "wgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16"
#define FLAGS "p, 1, 1, 0, 0"
#define PACK packed_bf16
#endif

constexpr int CHAIN = 64;  // trips of four products of 32 at most: sums below 2^13
constexpr int A_BYTES = 64 * 32;   // of an instruction's A: 64 rows of 32 bytes of k, for every type (PTX ISA)
constexpr int B_BYTES = 256 * 32;  // of its B: 256 columns of 32 bytes of k

#include "peak_values.cuh"
#include "sum_lists.cuh"

#if __CUDA_ARCH__ >= 890
__device__ unsigned packed_e4m3(float v) {
    unsigned short two;
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %1;" : "=h"(two) : "f"(v));
    return 0x10001u * two;
}
#endif

// No swizzle: core matrices of 8 rows x 16 bytes lie behind each other, first along k, then along rows.
__device__ unsigned long long descriptor(const void* at) {
    const unsigned long long address = __cvta_generic_to_shared(at);
    return ((address & 0x3ffff) >> 4) | (128ull >> 4) << 16 | (256ull >> 4) << 32;
}

extern "C" __global__ void __launch_bounds__(256, 1) wgmma_chain(float* out, double factor, int trips) {
    // Load: operands are computed into shared memory.
    __shared__ __align__(1024) unsigned a[2][A_BYTES / 4], b[B_BYTES / 4];
    for (int i = threadIdx.x; i < 2 * A_BYTES / 4; i += blockDim.x) ((unsigned*)a)[i] = PACK(value(factor, i));
    for (int i = threadIdx.x; i < B_BYTES / 4; i += blockDim.x) b[i] = PACK(value(factor, 7 * i + 3));
    // Synchronize: wgmma may read what all threads have written.
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncthreads();
    const unsigned long long da = descriptor(a[threadIdx.x / 128]), db = descriptor(b);
    float d[128], counted = 0;  // fp8 sums keep 14 bits, so long chains are cut: what was cut off is counted by one of them
    // Multiply.
    for (int left = trips; left > 0; left -= CHAIN) {
        if (left < trips) counted += d[0];
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        for (int t = 0; t < min(left, CHAIN); t++) {
            #pragma unroll
            for (int u = 0; u < 4; u++)
                asm volatile(
                    "{\n.reg .pred p;\nsetp.ne.b32 p, %130, 0;\n" WGMMA " {" S0 S1 S2 S3 "}, %128, %129, " FLAGS ";\n}"
                    : D32(0), D32(32), D32(64), D32(96)
                    : "l"(da), "l"(db), "r"(t | u));
            asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 1;" ::: "memory");
        }
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }
    // Store: all sums, so that the compiler keeps the work.
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)gridDim.x * blockDim.x;
    #pragma unroll
    for (int i = 0; i < 128; i++) out[i * threads + thread] = d[i] + counted;
}
