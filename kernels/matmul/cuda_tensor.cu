// sm_80 sm_90
// C = A B on tensor cores by mma.sync: every warp loads its pieces from shared memory into registers and multiplies them there.
#ifndef TF32
#define TF32 0       // 1: A, B and C are float32, rounded to TF32 before they are multiplied
#define TYPE "bf16"  // of A, B and C otherwise: bf16 or f16; sums are float32
#define TILE_M 128   // of C, a block
#define TILE_N 128
#define WARP_M 64    // of C, a warp
#define WARP_N 64
#define LINE 64      // bytes of k, a stage: 64 or 128
#define STAGES 4     // tiles of A and B in shared memory
#define BLOCKS 2     // that fit on a multiprocessor
#define VECTOR 1     // rows of A, B and C begin on 16 bytes
#endif

#if TF32
typedef float Item;
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#else
typedef unsigned short Item;
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32"
#endif
constexpr int SIZE = sizeof(Item), PIECE = 16 / SIZE, DEEP = LINE / SIZE, STEP = 32 / SIZE;  // in items: 16 bytes, a stage's k, an mma's k
constexpr int WARPS_N = TILE_N / WARP_N, THREADS = TILE_M / WARP_M * WARPS_N * 32;
// 16 (A) and 16 or 32 (B) bytes more than a row has: 8 rows, or 4 of floats, then lie in different banks.
constexpr int A_PITCH = DEEP + PIECE, B_PITCH = TILE_N + 32 / SIZE / (TF32 ? 1 : 2), A_SIZE = TILE_M * A_PITCH, STAGE = A_SIZE + DEEP * B_PITCH;
constexpr int M16 = WARP_M / 16, N8 = WARP_N / 8;
// Steps of a stage that the compiler sees at once: CUDA 12's moves four of float's loads so far ahead that registers run out.
#if TF32 && __CUDACC_VER_MAJOR__ < 13
constexpr int AT_ONCE = 2;
#else
constexpr int AT_ONCE = DEEP / STEP;
#endif
static_assert(N8 % 2 == 0, "B's pieces are loaded in pairs");

#include "cp_async.cuh"
#include "mma.cuh"
#include "pairs.cuh"
#include "rasterization.cuh"

__device__ void fetch(Item* to, const Item* from, bool inside) {  // zeros where nothing is
    if (VECTOR)
        fetch_piece(to, from, inside);
    else  // item by item: no copy of 16 bytes can begin where such a row does
        *to = inside ? *from : (Item)0;
}

__device__ unsigned rounded(unsigned bits) {
    unsigned to;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to) : "f"(__uint_as_float(bits)));
    return to;
}

__device__ void put(Item* to, float low, float high, bool both) {  // two neighbors of C, or the first alone
#if TF32
    if (VECTOR && both) { *(float2*)to = make_float2(low, high); return; }
    to[0] = low;
    if (both) to[1] = high;
#else
    const unsigned pair = packed(low, high);
    if (VECTOR && both) { *(unsigned*)to = pair; return; }
    to[0] = (unsigned short)pair;
    if (both) to[1] = (unsigned short)(pair >> 16);
#endif
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
matmul(const Item* __restrict__ a, const Item* __restrict__ b, Item* __restrict__ c, int m, int n, int k, int group) {
    extern __shared__ __align__(16) char raw[];
    Item* const memory = (Item*)raw;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
    int top, left;
    rasterize(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, group, top, left);
    top *= TILE_M, left *= TILE_N;

    // This thread's first piece of either tile; the others lie ROWS_A (of A's rows) and ROWS_B (of B's) further down.
    constexpr int WIDE = VECTOR ? PIECE : 1, ROWS_A = THREADS * WIDE / DEEP, ROWS_B = THREADS * WIDE / TILE_N;
    constexpr int PIECES_A = TILE_M / ROWS_A, PIECES_B = ROWS_B ? DEEP / ROWS_B : 0, HALVES = ROWS_B ? 1 : TILE_N / THREADS / WIDE;
    static_assert(TILE_M % ROWS_A == 0 && HALVES > 0 && (!ROWS_B || DEEP % ROWS_B == 0), "every thread fetches whole pieces");
    const int a_row = t * WIDE / DEEP, a_l = t * WIDE % DEEP, b_l = t * WIDE / TILE_N, b_column = t * WIDE % TILE_N;
    const Item* a_next = a + (long long)(top + a_row) * k + a_l;
    const Item* b_next = b + (long long)b_l * n + left + b_column;
    const long long a_further = (long long)ROWS_A * k, b_further = (long long)(ROWS_B ? ROWS_B : 1) * n;
    const int a_left = m - top - a_row, b_left = n - left - b_column;
    int slot_in = 0, l_left = k;  // where the next stage goes, and how much of k is left for it
    auto stage = [&]() {
        Item* const as = memory + slot_in * STAGE + a_row * A_PITCH + a_l;
        Item* const bs = memory + slot_in * STAGE + A_SIZE + b_l * B_PITCH + b_column;
        const int a_rows = a_l < l_left ? a_left : 0, b_rows = l_left - b_l;
        #pragma unroll
        for (int e = 0; e < PIECES_A; e++) fetch(as + e * ROWS_A * A_PITCH, a_next + e * a_further, e * ROWS_A < a_rows);
        #pragma unroll
        for (int e = 0; e < (ROWS_B ? PIECES_B : DEEP); e++)
            #pragma unroll
            for (int h = 0; h < HALVES; h++)
                fetch(bs + e * (ROWS_B ? ROWS_B : 1) * B_PITCH + h * THREADS * WIDE, b_next + e * b_further + h * THREADS * WIDE,
                      e * (ROWS_B ? ROWS_B : 1) < b_rows && h * THREADS * WIDE < b_left);
        a_next += DEEP, b_next += (long long)DEEP * n, l_left -= DEEP;
        if (++slot_in == STAGES) slot_in = 0;
    };

    const int steps = (k + DEEP - 1) / DEEP;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[M16][N8][4] = {};
    unsigned u[2][M16][4], v[2][N8][2];
    const Item *as = memory + row * A_PITCH, *bs = memory + A_SIZE + column;
    auto read = [&](int which, int l) {
        #pragma unroll
        for (int i = 0; i < M16; i++)  // upper left, lower left, upper right, lower right 8 rows x 16 bytes
            matrices(u[which][i], shared(as + (16 * i + lane % 16) * A_PITCH + l + lane / 16 * PIECE));
#if TF32
        #pragma unroll
        for (int j = 0; j < N8; j++)
            #pragma unroll
            for (int e = 0; e < 2; e++) v[which][j][e] = __float_as_uint(bs[(l + lane % 4 + 4 * e) * B_PITCH + 8 * j + lane / 4]);
#else
        #pragma unroll
        for (int j = 0; j < N8; j += 2) {  // k from above and below of 8 columns, then of the next 8
            unsigned w[4];
            transposed(w, shared(bs + (l + lane % 16) * B_PITCH + 8 * j + lane / 16 * 8));
            v[which][j][0] = w[0], v[which][j][1] = w[1], v[which][j + 1][0] = w[2], v[which][j + 1][1] = w[3];
        }
#endif
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
        #pragma unroll AT_ONCE
        for (int l = 0; l < DEEP; l += STEP) {
            const int now = l / STEP % 2;
            if (l + STEP == DEEP) {
                arrived();
                __syncthreads();
                next_slot();
            }
            read(now ^ 1, (l + STEP) % DEEP);  // while what was read before is multiplied
#if TF32
            #pragma unroll
            for (int i = 0; i < M16; i++)
                #pragma unroll
                for (int e = 0; e < 4; e++) u[now][i][e] = rounded(u[now][i][e]);
            #pragma unroll
            for (int j = 0; j < N8; j++)
                #pragma unroll
                for (int e = 0; e < 2; e++) v[now][j][e] = rounded(v[now][j][e]);
#endif
            #pragma unroll
            for (int i = 0; i < M16; i++)
                #pragma unroll
                for (int j = 0; j < N8; j++) multiply(sums[i][j], u[now][i], v[now][j][0], v[now][j][1]);
        }
    }
    #pragma unroll
    for (int i = 0; i < M16; i++)
        #pragma unroll
        for (int j = 0; j < N8; j++)
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const int at = top + row + 16 * i + lane / 4 + 8 * h, beside = left + column + 8 * j + lane % 4 * 2;
                if (at < m && beside < n)
                    put(c + (long long)at * n + beside, sums[i][j][2 * h], sums[i][j][2 * h + 1], beside + 1 < n);
            }
}
