// sm_75 sm_90
// C = A B in float32: a tile a block, a part of it a warp, a part of that a thread; tiles are fetched several ahead.
#ifndef TILE_M
#define TILE_M 128   // of C, a block
#define TILE_N 128
#define DEEP 16      // of k, a stage
#define WARP_M 64    // of C, a warp
#define WARP_N 64
#define EACH_M 8     // of C, a thread
#define EACH_N 16
#define STAGES 4     // tiles of A and B in shared memory
#define SLICES 1     // groups of warps that share a stage's k and add up at the end
#define BLOCKS 2     // that fit on a multiprocessor
#define ALONG 16     // threads along a row of A's tile: 8, 16 or 32
#define VECTOR 1     // rows of B and C begin on 16 bytes
#endif

constexpr int LANES_M = WARP_M / EACH_M, LANES_N = WARP_N / EACH_N;
constexpr int WARPS_M = TILE_M / WARP_M, WARPS_N = TILE_N / WARP_N, GROUP = WARPS_M * WARPS_N * 32, THREADS = GROUP * SLICES;
constexpr int A_PITCH = TILE_M + 4, A_SIZE = DEEP * A_PITCH, STAGE = A_SIZE + DEEP * TILE_N;  // in floats; A lies k x m, + 4 spreads k over banks
constexpr int OWN_DEEP = DEEP / SLICES;
static_assert(LANES_M == 8 && LANES_N == 4 && EACH_M % 4 == 0 && EACH_N % 4 == 0 && OWN_DEEP % ALONG == 0, "a warp is 8 x 4 threads");

#include "cp_async.cuh"

// `scale` is 1. Multiplying by it at the end frees the sums' registers: those that are stored 16 bytes at once lie in groups of four,
// and the sums would keep to these all along, often in the bank of the register file that holds the operand they are added to.
// A multiply-add whose registers lie in one bank waits: without it the loop's take 1.2 to 2 cycles, with it 1.1 (counted
// in the machine code for sm_90, two banks that give a register a cycle each).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, float scale) {
    extern __shared__ __align__(16) float memory[];
    constexpr int WIDE = VECTOR ? 4 : 1;
    const int t = threadIdx.x, lane = t % 32, warp = t % GROUP / 32, slice = t / GROUP;
    // Neighbors differ in n, the next in m: either operand's 16-byte loads are then the same in half of the lanes near by.
    const int lane_n = (lane & 1) | (lane >> 1 & 2), lane_m = (lane >> 1 & 1) | (lane >> 2 & 6);
    const int row = warp / WARPS_N * WARP_M + lane_m * 4, column = warp % WARPS_N * WARP_N + lane_n * 4;
    const int across = (n + TILE_N - 1) / TILE_N, top = blockIdx.x / across * TILE_M, left = blockIdx.x % across * TILE_N;

    // A is turned on its way, so that a thread finds its rows side by side: ALONG threads fetch as many neighbors of a row, item by
    // item. Rows are swapped in their four (by xor) from 8 k's to the next, so that these items go to different banks too.
    constexpr int ROWS_A = THREADS / ALONG, PIECES_A = TILE_M / ROWS_A;
    constexpr int EVEN = TILE_N & -TILE_N, ACROSS = (EVEN < THREADS * WIDE ? EVEN : THREADS * WIDE) / WIDE;  // threads along a row of B's tile
    constexpr int ROWS_B = THREADS / ACROSS, PIECES_B = DEEP / ROWS_B;
    static_assert(TILE_M % ROWS_A == 0 && DEEP % ROWS_B == 0 && ROWS_A % 4 == 0, "every thread fetches whole pieces");
    const int a_row = t / ALONG, a_l = t % ALONG, b_l = t / ACROSS, b_column = t % ACROSS * WIDE;
    const float* a_next = a + (long long)(top + a_row) * k + a_l;
    const float* b_next = b + (long long)b_l * n + left + b_column;
    const long long a_further = (long long)ROWS_A * k, b_further = (long long)ROWS_B * n;
    const bool inside = top + TILE_M <= m && left + TILE_N <= n;
    int slot_in = 0, l_left = k;  // where the next stage goes, and how much of k is left for it
    auto stage = [&]() {
        float* const as = memory + slot_in * STAGE + a_l * A_PITCH + (a_row ^ a_l / 8 * (32 / ALONG));
        float* const bs = memory + slot_in * STAGE + A_SIZE + b_l * TILE_N + b_column;
        if (inside && l_left >= DEEP) {
            #pragma unroll
            for (int e = 0; e < PIECES_A; e++)
                #pragma unroll
                for (int l = 0; l < DEEP; l += ALONG) fetch<4>(as + l * A_PITCH + e * ROWS_A, a_next + e * a_further + l, 4);
            #pragma unroll
            for (int e = 0; e < PIECES_B; e++)
                #pragma unroll
                for (int j = 0; j < TILE_N; j += ACROSS * WIDE)
                    fetch<4 * WIDE>(bs + e * ROWS_B * TILE_N + j, b_next + e * b_further + j, 4 * WIDE);
        } else {  // at an edge: zeros where nothing is
            #pragma unroll 1
            for (int e = 0; e < PIECES_A; e++)
                #pragma unroll 1
                for (int l = 0; l < DEEP; l += ALONG) {
                    const bool valid = top + a_row + e * ROWS_A < m && a_l + l < l_left;
                    fetch<4>(as + l * A_PITCH + e * ROWS_A, valid ? a_next + e * a_further + l : a, valid ? 4 : 0);
                }
            #pragma unroll 1
            for (int e = 0; e < PIECES_B; e++)
                #pragma unroll 1
                for (int j = 0; j < TILE_N; j += ACROSS * WIDE) {
                    const bool valid = left + b_column + j < n && b_l + e * ROWS_B < l_left;
                    fetch<4 * WIDE>(bs + e * ROWS_B * TILE_N + j, valid ? b_next + e * b_further + j : b, valid ? 4 * WIDE : 0);
                }
        }
        a_next += DEEP, b_next += (long long)DEEP * n, l_left -= DEEP;
        if (++slot_in == STAGES) slot_in = 0;
    };

    const int steps = (k + DEEP - 1) / DEEP;
    #pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[EACH_M][EACH_N] = {};
    float4 u[2][EACH_M / 4], v[2][EACH_N / 4];
    const float *as = memory + slice * OWN_DEEP * A_PITCH + row, *bs = memory + A_SIZE + slice * OWN_DEEP * TILE_N + column;
    auto read = [&](int which, int l) {
        #pragma unroll
        for (int i = 0; i < EACH_M / 4; i++) u[which][i] = *(const float4*)(as + l * A_PITCH + i * LANES_M * 4);
        #pragma unroll
        for (int j = 0; j < EACH_N / 4; j++) v[which][j] = *(const float4*)(bs + l * TILE_N + j * LANES_N * 4);
    };
    int slot = 0;
    auto next_slot = [&]() {
        as += STAGE, bs += STAGE;
        if (++slot == STAGES) slot = 0, as -= STAGES * STAGE, bs -= STAGES * STAGE;
    };
    arrived();
    __syncthreads();
    read(0, 0);
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        if (step + STAGES - 1 < steps) stage();
        fetched();
        #pragma unroll
        for (int l = 0; l < OWN_DEEP; l++) {
            if (l == OWN_DEEP - 1) {
                arrived();
                __syncthreads();
                next_slot();
            }
            read((l + 1) % 2, (l + 1) % OWN_DEEP);  // while what was read before is multiplied
            #pragma unroll
            for (int e = 0; e < EACH_M * EACH_N; e++) {  // there and back: each shares an operand with the one before
                const int i = e / EACH_N, j = i % 2 * (EACH_N - 1) + (1 - i % 2 * 2) * (e % EACH_N);
                sums[i][j] += ((const float*)u[l % 2])[i ^ l % ALONG / 8 * (32 / ALONG)] * ((const float*)v[l % 2])[j];
            }
        }
    }
    #pragma unroll
    for (int half = SLICES / 2; half; half /= 2) {  // half of the groups add what the other half has, until one has all
        float* const own = memory + slice % half * EACH_M * EACH_N * GROUP + t % GROUP;
        __syncthreads();
        if (slice >= half && slice < 2 * half) {
            #pragma unroll
            for (int e = 0; e < EACH_M * EACH_N; e++) own[e * GROUP] = sums[e / EACH_N][e % EACH_N];
        }
        __syncthreads();
        if (slice < half) {
            #pragma unroll
            for (int e = 0; e < EACH_M * EACH_N; e++) sums[e / EACH_N][e % EACH_N] += own[e * GROUP];
        }
    }
    if (slice) return;
    #pragma unroll
    for (int i = 0; i < EACH_M; i++) {
        const int at = top + row + i / 4 * LANES_M * 4 + i % 4;
        if (at < m)
            #pragma unroll
            for (int j = 0; j < EACH_N / 4; j++) {
                const int beside = left + column + j * LANES_N * 4;
                float* const to = c + (long long)at * n + beside;
                const float x[4] = {sums[i][4 * j] * scale, sums[i][4 * j + 1] * scale, sums[i][4 * j + 2] * scale, sums[i][4 * j + 3] * scale};
                if (VECTOR) {
                    if (beside < n) *(float4*)to = make_float4(x[0], x[1], x[2], x[3]);
                } else {
                    #pragma unroll
                    for (int e = 0; e < 4; e++)
                        if (beside + e < n) to[e] = x[e];
                }
            }
    }
}
