// sm_75 sm_90
// Before and after a convolution as a product: `widen` pads channels with zeros to 16 bytes, so that every copy is a whole one;
// `reduce` adds the partial sums of several blocks (split-k).
//
//    widen   |c c c|c c c|c c c|   ->   |c c c 0 0 0 0 0|c c c 0 0 0 0 0|    a thread: 16 bytes
//
//    reduce  sums [split 0] [split 1] [split 2] ..  a team of ROUND threads: every TEAMS-th split
//                     |         |
//                     v         v
//                 [team 0]  [team 1]  ..  shared memory  ->  team 0 adds the teams  ->  result
//
// Takes, from the constants here:
//   shared memory: 16 * TEAMS * ROUND = 8,192 bytes a block of reduce
//   registers:     4 sums a thread of reduce, 8 items a thread of widen
// Source: NVIDIA, CUTLASS, "Efficient GEMM in CUDA" (split-k with a reduction kernel).

#ifndef HALVES
#define HALVES 0     // 1: results are rounded to TYPE, bf16 or f16
#define TYPE "bf16"
#define WGRAD 0
#endif

#include "implicit_gemm.cuh"
#if HALVES
#include "pairs.cuh"
typedef unsigned short Item;
#else
typedef float Item;
#endif

// Adds the `splits` partial sums of each item of the product. With HALVES it rounds the result.
extern "C" __global__ void reduce(const float* sums, Item* out, const Shape of, int m, int splits, int kept) {
    const bool four = of.k % 4 == 0;
    int at, column;
    // Load and add: the item's partial sums, in their order.
    const float4 sum = added(sums, of, m, splits, four, at, column);
    if (at >= m || threadIdx.x >= ROUND) return;
    const int row = target(of, at, m, kept);
    if (row < 0) return;
    // Store, rounded if the images have 16 bits.
    Item* const to = out + (long long)row * of.k + column;
#if HALVES
    const unsigned low = packed(sum.x, sum.y), high = packed(sum.z, sum.w);
    if (four) *(uint2*)to = make_uint2(low, high);
    else *to = (unsigned short)low;
#else
    if (four) *(float4*)to = sum;
    else *to = sum.x;
#endif
}

// Copies pixels of `channels` items, padded with zeros to whole pieces of 16 bytes. A thread copies a piece.
extern "C" __global__ void widen(const unsigned short* __restrict__ from, uint4* __restrict__ to, int pieces, int channels) {
    const unsigned e = blockIdx.x * blockDim.x + threadIdx.x, across = (channels + 7) / 8;
    if (e >= pieces) return;
    const int column = e % across * 8;
    const unsigned short* const at = from + (long long)(e / across) * channels + column;
    // Load: eight items, zeros where the pixel has no more channels.
    unsigned item[8];
    #pragma unroll
    for (int i = 0; i < 8; i++) item[i] = column + i < channels ? at[i] : 0;
    // Store: one piece.
    to[e] = make_uint4(item[0] | item[1] << 16, item[2] | item[3] << 16, item[4] | item[5] << 16, item[6] | item[7] << 16);
}
