// sm_80 sm_90
// The ceiling of tensor cores by mma.sync. It adds to fma_chains the instruction of a whole warp: operands and sums lie in
// registers, so neither memory nor shared memory limits it. This is the form that every GPU since Ampere has.
//
//      A 16 x k        B k x 8         sums 16 x 8                 a warp
//    +---------+      +-----+         +-----+                      tile 0: mma---->mma---->
//    | A_WORDS |  x   |     |   +->   |     | --+                  tile 1:  mma---->mma---->
//    | a lane  |      +-----+   |     +-----+   |                  ..
//    +---------+                +---------------+                  tile CHAINS - 1: mma---->
//
// Takes, from the constants here (defaults):
//   shared memory: none
//   registers:     CHAINS * SUMS = 32 sums a thread and A_WORDS + A_WORDS / 2 = 6 words of operands
// Source: NVIDIA, PTX ISA, "mma.sync"; the chains are those of peak/cupy.cu.

#ifndef MMA
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32"
#define PACK packed_bf16
#define WORD unsigned
#define SUM float
#define AS "r"
#define TO "f"
#define A_WORDS 4
#define SUMS 4
#endif

constexpr int CHAINS = 8;  // independent tiles of sums a warp, as in peak/cupy.cu
constexpr int UNROLL = 4;  // products of a tile in a trip of the loop
constexpr int B_WORDS = A_WORDS == 1 ? 1 : A_WORDS / 2;  // words of B a lane: B has 8 columns, A 16 rows (8 with one word)

#include "peak_values.cuh"

__device__ double packed_f64(float v) { return v; }

extern "C" __global__ void mma_chains(SUM* out, double factor, int trips) {
    // Load: operands are computed, so no memory is read.
    WORD a[A_WORDS], b[B_WORDS];
    #pragma unroll
    for (int i = 0; i < A_WORDS; i++) a[i] = PACK(value(factor, threadIdx.x * 8 + i));
    #pragma unroll
    for (int i = 0; i < B_WORDS; i++) b[i] = PACK(value(factor, threadIdx.x * 8 + 4 + i));
    SUM d[CHAINS][SUMS];
    #pragma unroll
    for (int c = 0; c < CHAINS; c++)
        #pragma unroll
        for (int i = 0; i < SUMS; i++) d[c][i] = 0;
    // Multiply.
    for (int t = 0; t < trips; t++)
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            #pragma unroll
            for (int c = 0; c < CHAINS; c++)
#if A_WORDS == 4
                asm volatile(MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                             : "+" TO(d[c][0]), "+" TO(d[c][1]), "+" TO(d[c][2]), "+" TO(d[c][3])
                             : AS(a[0]), AS(a[1]), AS(a[2]), AS(a[3]), AS(b[0]), AS(b[1]));
#elif A_WORDS == 8
                asm volatile(MMA " {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, {%12,%13,%14,%15}, {%0,%1,%2,%3};"
                             : "+" TO(d[c][0]), "+" TO(d[c][1]), "+" TO(d[c][2]), "+" TO(d[c][3])
                             : AS(a[0]), AS(a[1]), AS(a[2]), AS(a[3]), AS(a[4]), AS(a[5]), AS(a[6]), AS(a[7]),
                               AS(b[0]), AS(b[1]), AS(b[2]), AS(b[3]));
#else
                asm volatile(MMA " {%0,%1}, {%2}, {%3}, {%0,%1};"
                             : "+" TO(d[c][0]), "+" TO(d[c][1]) : AS(a[0]), AS(b[0]));
#endif
    // Store: all sums, so that the compiler keeps the work.
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x, threads = (long long)gridDim.x * blockDim.x;
    #pragma unroll
    for (int c = 0; c < CHAINS; c++)
        #pragma unroll
        for (int i = 0; i < SUMS; i++) out[(c * SUMS + i) * threads + thread] = d[c][i];
}
