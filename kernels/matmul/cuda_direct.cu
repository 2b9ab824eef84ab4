// sm_75 sm_90
// C = A B for few rows or a short sum, where little is read twice: tiles in shared memory would gain nothing. It leaves them out.
// Threads load operands from memory into registers, with as many loads in flight as there are registers for. Threads that share a
// sum add their parts in a fixed order, and so do blocks that share k.
//
//                       B, k x n                     a block: LANES units of FEW x COLUMNS of C,
//                     +-------------------+          DEEP threads to a unit
//        part 0       |  ====             |  thread 0
//        part 1       |  ====             |  thread 1     a part of k: AT_ONCE loads in flight,
//        ..           |  ====             |  ..           then FEW * COLUMNS sums
//        part DEEP-1  |  ====             |  thread DEEP - 1
//                     +-------------------+               \    |    |    /
//     A, few rows        COLUMNS                           four add to one, and again, until
//    +------------+   +-------------------+                one thread has the sum -> C
//    | 0  1  2 .. |   |  C unit           |
//    +------------+   +-------------------+
//
// Takes, from the constants here (defaults):
//   shared memory: 4 * FEW * COLUMNS * LANES * DEEP = 4,096 bytes a block, for the sums that threads add up
//   registers:     65536 / (LANES * DEEP * 2) = 128 a thread at most, with two blocks of 256 threads on a multiprocessor
// Source: Harris, "Optimizing Parallel Reduction in CUDA", NVIDIA (several loads a thread, sums by a tree); ours: which of both
// operands is read by fours.

#ifndef FEW
#define FEW 1       // rows of C per thread
#define COLUMNS 4   // columns of C per thread
#define LANES 4     // units per block; a unit is FEW rows by COLUMNS columns of C
#define DEEP 64     // threads that share a unit's k: a power of four
#define ALONG 0     // 1: B is stored n x k
#define VECTOR 1    // 1: each row of B is aligned to loads of four items
#define VECTOR_A 0  // A too is loaded by four items; 1: A and B lie along k, 2: A lies across k, in whole groups of FEW rows
#define TF32 0      // 1: A and B are rounded to TF32 before they are multiplied
#define HALVES 0    // 1: A, B and C are of TYPE; sums are float32
#define TYPE "bf16" // bf16 or f16
#endif

#if HALVES
typedef unsigned short Item; typedef uint2 Four;
#else
typedef float Item; typedef float4 Four;
#endif
constexpr int STEP = ALONG && VECTOR ? 4 : 1;  // k per load
constexpr int HELD = FEW * STEP / (HALVES && VECTOR_A ? 2 : 1) + COLUMNS * STEP / (HALVES && VECTOR ? 2 : 1);  // registers per step
constexpr int ROOM = (ALONG && FEW > 2) || (VECTOR_A == 2 && !VECTOR) ? 7 : HALVES && FEW & FEW - 1 ? 6 : 8;  // most registers per step with eight steps at once, without spills
// Steps whose loads are in flight together: as many as registers allow, counted for sm_90 (tests/kernels/cuda/test_loader.py).
constexpr int AT_ONCE = DEEP == 1 ? 4 : HELD <= 2 ? 16 : HELD <= ROOM ? 8 : HELD <= 11 ? 4 : HELD <= 16 ? 3 : HELD <= 24 ? 2 : 1;
static_assert(ALONG || !VECTOR || COLUMNS == 4, "a load is of four columns");

#include "pairs.cuh"
#include "split_sums.cuh"

__device__ float value(float x) {
    if (TF32) asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(*(unsigned*)&x) : "f"(x));
    return x;
}
__device__ float value(unsigned short x) {
    float to;
    asm("cvt.f32." TYPE " %0, %1;" : "=f"(to) : "h"(x));
    return to;
}

template <bool WHOLE, int COUNT> __device__ void read(Item* to, const Item* from, long long apart, int last) {  // beyond `last`: that item again
    if (WHOLE) *(Four*)to = __ldg((const Four*)from);
    #pragma unroll
    for (int e = 0; e < (WHOLE ? 0 : COUNT); e++) to[e] = __ldg(from + min(e, last) * apart);
}

__device__ void put_four(float* to, const float* x) { *(float4*)to = make_float4(x[0], x[1], x[2], x[3]); }
__device__ void put_four(unsigned short* to, const float* x) { *(uint2*)to = make_uint2(packed(x[0], x[1]), packed(x[2], x[3])); }

// Strides in items: `a_row` and `a_k` from row to row and from k to k of A, `pitch` from row to row of B as stored, `c_row` and `c_column`
// of C. A product with few columns is thus computed as its transpose. Blocks with the same blockIdx.y share one part of k, `deep` long.
extern "C" __global__ void __launch_bounds__(LANES * DEEP, LANES * DEEP > 256 ? 1 : 2)
matmul(const Item* __restrict__ a, const Item* __restrict__ b, Item* __restrict__ c, int m, int n, int k, int a_row, int a_k, int pitch,
       int c_row, int c_column, int deep, float* partial, unsigned* arrived) {
    __shared__ float held[FEW * COLUMNS][LANES * DEEP];
    const int t = threadIdx.x, lane = ALONG ? t / DEEP : t % LANES, part = ALONG ? t % DEEP : t / LANES;
    // a thread's columns are neighbors, or `apart` apart, with those of other threads between them
    const int groups = (n - 1) / (COLUMNS * (ALONG || VECTOR ? 1 : LANES)) + 1, apart = (n - 1) / (COLUMNS * groups) + 1, across = groups * apart;
    const int unit = blockIdx.x * LANES + lane, row = unit / across * FEW, turn = unit % across, column = turn / apart * apart * COLUMNS + turn % apart;
    const int inside = min(column, n - 1), first = blockIdx.y * deep, end = first + min(deep, k - first);
    float sums[FEW * COLUMNS] = {};
    #pragma unroll 1
    for (int from = first; from < end; from += AT_ONCE * DEEP * STEP) {
        __align__(16) Item x[AT_ONCE][FEW * STEP], y[AT_ONCE][COLUMNS * STEP];
        // Load: AT_ONCE steps, before any is multiplied.
        #pragma unroll
        for (int u = 0; u < AT_ONCE; u++) {
            const int l = min(from + (u * DEEP + part) * STEP, k - STEP);  // a clamped place, so that no load depends on a condition
            if (!ALONG) read<VECTOR, COLUMNS>(y[u], b + (long long)l * pitch + inside, apart, (n - 1 - inside) / apart);
            #pragma unroll
            for (int j = 0; j < (ALONG ? COLUMNS : 0); j++) read<VECTOR, STEP>(y[u] + j * STEP, b + (long long)min(column + j, n - 1) * pitch + l, 1, 0);
            #pragma unroll
            for (int i = 0; i < (VECTOR_A < 2 ? FEW : 0); i++) read<VECTOR_A == 1, STEP>(x[u] + i * STEP, a + (long long)min(row + i, m - 1) * a_row + (long long)l * a_k, a_k, STEP);
            #pragma unroll
            for (int e = 0; e < (VECTOR_A < 2 ? 0 : FEW * STEP); e += 4) read<true, 4>(x[u] + e, a + min(row, m - FEW) + e % FEW + (long long)(l + e / FEW) * a_k, 1, 0);
        }
        // Multiply.
        auto add = [&](bool whole) {
            #pragma unroll
            for (int e = 0; e < AT_ONCE * STEP; e++) {
                const int l = e % STEP, u = e / STEP;
                float p[FEW], q[COLUMNS];  // each item is converted once
                #pragma unroll
                for (int i = 0; i < FEW; i++) p[i] = value(x[u][VECTOR_A < 2 ? i * STEP + l : l * FEW + i]);
                #pragma unroll
                for (int j = 0; j < COLUMNS; j++) q[j] = value(y[u][j * STEP + l]);
                #pragma unroll
                for (int i = 0; i < FEW * COLUMNS; i++) if (whole || from + (u * DEEP + part) * STEP + l < end) sums[i] += p[i / COLUMNS] * q[i % COLUMNS];
            }
        };
        if (from + AT_ONCE * DEEP * STEP <= end) add(true);
        else add(false);
    }
    // Synchronize and add: parts of k that threads of this block have, then those that other blocks have.
    #pragma unroll
    for (int left = DEEP / 4; left; left /= 4) {  // a quarter of the threads adds the others' sums, until one has the whole sum
        #pragma unroll
        for (int e = 0; e < FEW * COLUMNS; e++) if (part >= left && part < 4 * left) held[e][t] = sums[e];
        __syncthreads();
        #pragma unroll
        for (int e = 0; e < 3 * FEW * COLUMNS; e++)
            if (part < left) sums[e / 3] += held[e / 3][t + (e % 3 + 1) * left * (ALONG ? 1 : LANES)];
    }
    if (gridDim.y > 1) {
        float* const own = partial + (long long)blockIdx.x * gridDim.y * FEW * COLUMNS * LANES + lane;
        #pragma unroll
        for (int e = 0; e < FEW * COLUMNS; e++) if (!part) __stcg(own + (blockIdx.y * FEW * COLUMNS + e) * LANES, sums[e]);
        if (!is_last((unsigned*)held, arrived + blockIdx.x, gridDim.y) || part) return;
        for (int i = 0; i < gridDim.y; i++)
            #pragma unroll
            for (int e = 0; e < FEW * COLUMNS; e++) sums[e] = (i ? sums[e] : 0) + __ldcg(own + (i * FEW * COLUMNS + e) * LANES);
    }
    // Store.
    #pragma unroll
    for (int i = 0; i < FEW; i++) {
        Item* const to = c + (long long)(row + i) * c_row + (long long)column * c_column;
        if (part || row + i >= m) return;
        if (!ALONG && VECTOR && c_column == 1) put_four(to, sums + 4 * i);
        else
            #pragma unroll
            for (int j = 0; j < COLUMNS; j++) if (column + j * apart < n) put(to + (long long)j * apart * c_column, sums[i * COLUMNS + j], 0, 1, false);
    }
}
