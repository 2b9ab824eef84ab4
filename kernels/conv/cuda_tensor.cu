// sm_80 sm_90
// Convolution as a product on tensor cores. It adds mma.sync to implicit_gemm of conv/cuda.cu: pixels are gathered the same way,
// ldmatrix reads them into registers. Channels come in eights, so every copy has 16 bytes.
//
//     images          shared memory, a stage          registers of a warp       the product
//    +-----------+   +--------------------+ TILE_M   +----+----+ 16 x 16       +----+----+
//    | tap (i,j) |   | pixel 0: DEEP items| ldmatrix |8x8 |8x8 | of A          |mma |mma | 16 x 8
//    | of pixel 0| ->| pixel 1: ..        | -------> +----+----+               +----+----+ a mma
//    | of pixel 1|   +--------------------+ DEEP     |8x8 |8x8 | 16 x 16       |mma |    |
//    +-----------+   | B: TILE_N filters  | -------> +----+----+ of B,         +----+----+
//       cp.async     +--------------------+                      transposed    WARP_M x WARP_N
//
// Takes, from the constants here (defaults):
//   shared memory: 2 * STAGES * (TILE_M * (DEEP + 8) + DEEP * (TILE_N + 8)) + 16 * TILE_M = 77,824 bytes a block, the table with it
//   registers:     65536 / (THREADS * BLOCKS) = 256 a thread at most; WARP_M * WARP_N / 32 = 128 of them are its sums
// Source: NVIDIA, PTX ISA, "mma.sync" and "ldmatrix"; CUTLASS, "Implicit GEMM Convolution".

#ifndef TYPE
#define TYPE "bf16"  // of all operands: bf16 or f16; sums are float32
#define TILE_M 128   // rows and columns of the product per block
#define TILE_N 128
#define WARP_M 64    // rows and columns of the product per warp
#define WARP_N 64
#define DEEP 32      // items of the sum per stage
#define STAGES 4     // stages in shared memory, each with a tile of A and of B
#define BLOCKS 2     // blocks per multiprocessor
#define WGRAD 0      // 1: A's rows are taps and channels, and the sum runs over pixels
#endif

typedef unsigned short Item;
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32"
#include "cp_async.cuh"
#include "implicit_gemm.cuh"
#include "mma.cuh"
#include "pairs.cuh"
#include "rasterization.cuh"

constexpr int WARPS_N = TILE_N / WARP_N;                 // warps side by side
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;  // of a block
#include "gather.cuh"
constexpr int A_PITCH = A_LINE + 8;  // items from line to line, padded by 16 bytes: 8 lines then lie in different banks
constexpr int B_PITCH = TILE_N + 8;  // the same of B
constexpr int A_SIZE = A_LINES * A_PITCH;        // items of A's tile
constexpr int STAGE = A_SIZE + DEEP * B_PITCH;   // items of a stage
constexpr int M16 = WARP_M / 16;  // products of a warp down: an mma has 16 rows
constexpr int N8 = WARP_N / 8;    // and across: it has 8 columns
static_assert(N8 % 2 == 0, "B's pieces are loaded in pairs");

// A is the im2col matrix: pixels (rows) by taps and channels, or for wgrad its transpose. B's rows are `pitch` items apart. With several
// blocks in the grid's y each computes a part of the sum; `partial_sums` has room for all parts, which `reduce` then adds.
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
implicit_gemm(const Item* __restrict__ a, const Item* __restrict__ b, Item* __restrict__ out, float* __restrict__ partial_sums,
              const Shape of, int pitch, int kept, int group) {
    extern __shared__ __align__(16) char raw[];
    __shared__ int4 pixels[PIXELS];
    Item* const memory = (Item*)raw;
    const int count = of.n * of.p * of.q, taps = of.r * of.s * of.c, n = of.k;
    const int m = WGRAD ? taps : count, k = WGRAD ? count : taps;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32, row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
    int top, left;
    rasterize(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, group, top, left);
    top *= TILE_M, left *= TILE_N;
    const int all = (k + DEEP - 1) / DEEP, share = (all + gridDim.y - 1) / gridDim.y;  // stages of the whole sum, and of a block
    const int first = min(share * (int)blockIdx.y, all), steps = min(share, all - first);
    next_may_start();

    // This thread's first piece of each tile; its other pieces are LINES_A lines of A and ROWS_B rows of B further down.
    constexpr int LINES_A = THREADS * 8 / A_LINE;   // lines of A that all threads copy at once, eight items each
    constexpr int PIECES_A = A_LINES / LINES_A;     // copies of A a thread and stage
    constexpr int ROWS_B = THREADS * 8 / TILE_N;
    constexpr int PIECES_B = DEEP / ROWS_B;
    static_assert(LINES_A > 0 && A_LINES % LINES_A == 0 && ROWS_B > 0 && DEEP % ROWS_B == 0, "every thread fetches whole pieces");
    const int a_line = t * 8 / A_LINE, a_at = t * 8 % A_LINE, b_l = t * 8 / TILE_N, b_column = t * 8 % TILE_N;
    const int from = WGRAD ? top + a_at : first * DEEP + a_at;  // tap and channel of this thread's pieces of A, as one number
    Tap at_tap = tap(of, from);
    const Item* b_next = b + (long long)(first * DEEP + b_l) * pitch + left + b_column;
    const long long b_further = (long long)ROWS_B * pitch;
    const bool b_inside = left + b_column < pitch;
    int slot_in = 0, l_left = k - first * DEEP;  // slot of the next stage, and items of the sum that are left for it

    Counted at_pixel = first_pixels(of, pixels, top, first * DEEP, count);
    __syncthreads();

    auto stage = [&]() {
        Item* const as = memory + slot_in * STAGE + a_line * A_PITCH + a_at;
        Item* const bs = memory + slot_in * STAGE + A_SIZE + b_l * B_PITCH + b_column;
        const int further = shift(of, at_tap), b_rows = l_left - b_l;
        const int4* const at = pixels + (WGRAD ? slot_in * DEEP : 0) + a_line;
        #pragma unroll
        for (int e = 0; e < PIECES_A; e++) {
            const int4 here = at[e * LINES_A];
            const bool inside = at_tap.i < of.r && (unsigned)(here.y + at_tap.i) < (unsigned)of.h && (unsigned)(here.z + at_tap.j) < (unsigned)of.w;
            fetch<16>(as + e * LINES_A * A_PITCH, a + (here.x + further), inside ? 16 : 0);
        }
        #pragma unroll
        for (int e = 0; e < PIECES_B; e++)
            fetch<16>(bs + e * ROWS_B * B_PITCH, b_next + e * b_further, e * ROWS_B < b_rows && b_inside ? 16 : 0);
        b_next += (long long)DEEP * pitch, l_left -= DEEP;
        if (!WGRAD) next_tap(of, at_tap);
        if (++slot_in == STAGES) slot_in = 0;
    };

    // Load: all stages but one are on their way before the first is multiplied.
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[M16][N8][4] = {};
    int slot = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        // Synchronize: this stage has arrived for all threads, and all have read the one before.
        arrived();
        __syncthreads();
        // Load: the stage before takes the next pixels and filters.
        if (step + STAGES - 1 < steps) stage();
        fetched();
        const Item* const as = memory + slot * STAGE + row * (WGRAD ? 1 : A_PITCH);
        const Item* const bs = memory + slot * STAGE + A_SIZE + column;
        if (WGRAD && t < DEEP) next_pixel(of, at_pixel, pixels, slot, count);  // of a stage that all threads have fetched
        if (++slot == STAGES) slot = 0;
        // Multiply: 16 of the sum at a time.
        #pragma unroll
        for (int l = 0; l < DEEP; l += 16) {
            unsigned u[M16][4], v[N8][2];
            #pragma unroll
            for (int p = 0; p < M16; p++)  // matrices of 8 rows x 8 of the sum: upper left, lower left, upper right, lower right
                if (WGRAD) transposed(u[p], shared(as + (l + lane % 8 + lane / 16 * 8) * A_PITCH + 16 * p + lane / 8 % 2 * 8));
                else matrices(u[p], shared(as + (16 * p + lane % 16) * A_PITCH + l + lane / 16 * 8));
            #pragma unroll
            for (int q = 0; q < N8; q += 2) {  // upper and lower 8 of the sum for 8 columns, then for the next 8
                unsigned w[4];
                transposed(w, shared(bs + (l + lane % 16) * B_PITCH + 8 * q + lane / 16 * 8));
                v[q][0] = w[0], v[q][1] = w[1], v[q + 1][0] = w[2], v[q + 1][1] = w[3];
            }
            #pragma unroll
            for (int p = 0; p < M16; p++)
                #pragma unroll
                for (int q = 0; q < N8; q++) multiply(sums[p][q], u[p], v[q][0], v[q][1]);
        }
    }

    // Store: each pixel's results where it belongs, or as partial sums.
    const bool even = n % 2 == 0;
    #pragma unroll
    for (int p = 0; p < M16; p++)
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int within = row + 16 * p + lane / 4 + 8 * h, at = top + within;
            if (at >= m) continue;
            const int to = gridDim.y > 1 ? at : WGRAD ? target(of, at, m, kept) : pixels[within].w;
            if (to < 0) continue;
            #pragma unroll
            for (int q = 0; q < N8; q++) {
                const int beside = left + column + 8 * q + lane % 4 * 2;
                const float low = sums[p][q][2 * h], high = sums[p][q][2 * h + 1];
                if (gridDim.y > 1) put(partial_sums + ((long long)blockIdx.y * m + to) * n + beside, low, high, n - beside, even);
                else put(out + (long long)to * n + beside, low, high, n - beside, even);
            }
        }
    previous_is_done();
}
