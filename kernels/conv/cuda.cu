// sm_75 sm_90
// Convolution in float32: `direct`, seven plain loops, and `implicit_gemm`, which adds the tiles, warps and stages of
// matmul/cuda_warp.cu. The im2col matrix A that it multiplies is never stored: each piece is fetched from the image it lies in.
//
//     images, n x h x w x c           A, pixels x (taps x channels)      B, filters   the product
//    +--------------------+          +----------------+ TILE_M          +--------+   +--------+
//    |    +-----+         |          | pixel 0: tap 0 | <- an entry of  |  DEEP  |   | TILE_M |
//    |    |3 x 3| window  |  fetch   | pixel 1: tap 0 |    the table    |   x    | = |   x    |
//    |    |     | of a    | -------> | ..             |    `pixels`     | TILE_N |   | TILE_N |
//    |    +-----+ pixel   |          +----------------+                 +--------+   +--------+
//    +--------------------+            DEEP of the sum: taps, and in each its channels
//      zeros outside the image         (wgrad: A transposed, so that the sum runs over pixels)
//
// Takes, from the constants here (defaults; implicit_gemm):
//   shared memory: 4 * STAGES * (TILE_M * (DEEP + 4) + DEEP * TILE_N) + 16 * TILE_M = 59,392 bytes a block, the table with it
//   registers:     65536 / (THREADS * BLOCKS) = 170 a thread at most; THREAD_M * THREAD_N = 64 of them are its sums
// Source: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014 (implicit GEMM).

#ifndef TILE_M
#define TILE_M 128   // rows and columns of the product per block
#define TILE_N 64
#define DEEP 16      // items of the sum per stage
#define WARP_M 64    // rows and columns of the product per warp
#define WARP_N 32
#define THREAD_M 8     // rows and columns of the product per thread
#define THREAD_N 8
#define STAGES 4     // stages in shared memory, each with a tile of A and of B
#define BLOCKS 3     // blocks per multiprocessor
#define WGRAD 0      // 1: A's rows are taps and channels, and the sum runs over pixels
#define VECTOR_A 1   // 1: channels of the images come in fours, so copies have 16 bytes
#define VECTOR_B 1   // 1: so do items of B's rows
#define VECTOR 1     // 1: so do columns of the product
#endif

struct Loops { int n, h, w, c, p, q, k, r, s, step, top, left, groups, channels_last; };

// Offset of an item in images with so many `channels`.
__device__ long long image(const Loops& of, int n, int y, int x, int channel, int height, int width, int channels) {
    return of.channels_last ? (((long long)n * height + y) * width + x) * channels + channel
                            : (((long long)n * channels + channel) * height + y) * width + x;
}

__device__ long long filter(const Loops& of, int i, int j, int c, int k) {  // c counts within its group
    const int channels = of.c / of.groups;
    return of.channels_last ? (((long long)i * of.s + j) * channels + c) * of.k + k
                            : (((long long)k * channels + c) * of.r + i) * of.s + j;
}

// One output per thread; neighboring threads have neighbors in memory. `way`: 0 fprop (a: images, b: filters), 1 dgrad (a: gradient,
// b: filters), 2 wgrad (a: images, b: gradient).
extern "C" __global__ void direct(const float* a, const float* b, float* out, const Loops of, int way, int outputs) {
    int at = blockIdx.x * blockDim.x + threadIdx.x;
    if (at >= outputs) return;
    float* const to = out + at;
    const int channels = of.c / of.groups, filters = of.k / of.groups;
    float sum = 0;
    if (way == 2) {
        int i, j, c, k;
        if (of.channels_last) k = at % of.k, at /= of.k, c = at % channels, at /= channels, j = at % of.s, i = at / of.s;
        else j = at % of.s, at /= of.s, i = at % of.r, at /= of.r, c = at % channels, k = at / channels;
        const int channel = k / filters * channels + c;
        for (int n = 0; n < of.n; n++)
            for (int y = 0; y < of.p; y++)
                for (int x = 0; x < of.q; x++) {
                    const int row = y * of.step + i - of.top, column = x * of.step + j - of.left;
                    if (row >= 0 && row < of.h && column >= 0 && column < of.w)
                        sum += a[image(of, n, row, column, channel, of.h, of.w, of.c)] * b[image(of, n, y, x, k, of.p, of.q, of.k)];
                }
        *to = sum;
        return;
    }
    const int height = way ? of.h : of.p, width = way ? of.w : of.q, depth = way ? of.c : of.k;
    int n, y, x, channel;
    if (of.channels_last) channel = at % depth, at /= depth, x = at % width, at /= width, y = at % height, n = at / height;
    else x = at % width, at /= width, y = at % height, at /= height, channel = at % depth, n = at / depth;
    const int group = channel / (way ? channels : filters);
    for (int i = 0; i < of.r; i++)
        for (int j = 0; j < of.s; j++) {
            int row = way ? y + of.top - i : y * of.step + i - of.top, column = way ? x + of.left - j : x * of.step + j - of.left;
            if (way) {  // the row and column of dy whose tap (i, j) is this pixel, if there are such
                if (row % of.step || column % of.step) continue;
                row /= of.step, column /= of.step;
            }
            if (row < 0 || row >= (way ? of.p : of.h) || column < 0 || column >= (way ? of.q : of.w)) continue;
            if (way)
                for (int k = group * filters; k < (group + 1) * filters; k++)
                    sum += a[image(of, n, row, column, k, of.p, of.q, of.k)] * b[filter(of, i, j, channel % channels, k)];
            else
                for (int c = 0; c < channels; c++)
                    sum += a[image(of, n, row, column, group * channels + c, of.h, of.w, of.c)] * b[filter(of, i, j, c, channel)];
        }
    *to = sum;
}

#include "cp_async.cuh"
#include "implicit_gemm.cuh"
#include "rasterization.cuh"

constexpr int LANES_M = WARP_M / THREAD_M;  // threads of a warp down: 8
constexpr int LANES_N = WARP_N / THREAD_N;  // and across: 4
constexpr int WARPS_M = TILE_M / WARP_M;  // warps of a block down
constexpr int WARPS_N = TILE_N / WARP_N;  // and across
constexpr int THREADS = WARPS_M * WARPS_N * 32;
#include "gather.cuh"
constexpr int A_PITCH = WGRAD ? TILE_M : DEEP + 4;  // floats from line to line; + 4 spreads lines over banks
constexpr int A_SIZE = A_LINES * A_PITCH;           // floats of A's tile
constexpr int STAGE = A_SIZE + DEEP * TILE_N;
static_assert(LANES_M * LANES_N == 32 && LANES_N == 4 && THREAD_N % 4 == 0 && THREAD_M % 4 == 0 && DEEP % 4 == 0, "a warp is 8 x 4 threads");

// A is the im2col matrix: pixels (rows) by taps and channels, or for wgrad its transpose. B's rows are `pitch` items apart. With several
// blocks in the grid's y each computes a part of the sum; `partial_sums` has room for all parts, which `reduce` then adds.
// `scale` is 1: multiplying by it at the end frees the sums from the groups of four registers that stores need, and so from the register
// banks of the operands (see matmul/cuda_warp.cu).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
implicit_gemm(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ out, float* __restrict__ partial_sums,
              const Shape of, int pitch, int kept, int group, float scale) {
    extern __shared__ __align__(16) float memory[];
    __shared__ int4 pixels[PIXELS];
    constexpr int WIDE_A = VECTOR_A ? 4 : 1;  // floats of a copy
    constexpr int WIDE_B = VECTOR_B ? 4 : 1;
    const int count = of.n * of.p * of.q, taps = of.r * of.s * of.c, n = of.k;
    const int m = WGRAD ? taps : count, k = WGRAD ? count : taps;
    const int t = threadIdx.x, lane = t % 32, warp = t / 32;
    // Bits of the lane number go to n and m in turns: in half a warp every 16-byte load of an operand is then shared by four lanes.
    const int lane_n = (lane & 1) | (lane >> 1 & 2), lane_m = (lane >> 1 & 1) | (lane >> 2 & 6);
    const int row = warp / WARPS_N * WARP_M + lane_m * (WGRAD ? 4 : 1), column = warp % WARPS_N * WARP_N + lane_n * 4;
    int top, left;
    rasterize(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, group, top, left);
    top *= TILE_M, left *= TILE_N;
    const int all = (k + DEEP - 1) / DEEP, share = (all + gridDim.y - 1) / gridDim.y;  // stages of the whole sum, and of a block
    const int first = min(share * (int)blockIdx.y, all), steps = min(share, all - first);
    next_may_start();

    // This thread's first piece of each tile; its other pieces are LINES_A lines of A and ROWS_B rows of B further down.
    constexpr int LINES_A = THREADS * WIDE_A / A_LINE;  // lines of A that all threads copy at once
    constexpr int PIECES_A = A_LINES / LINES_A;         // copies of A a thread and stage
    constexpr int ROWS_B = THREADS * WIDE_B / TILE_N;
    constexpr int PIECES_B = DEEP / ROWS_B;
    static_assert(LINES_A > 0 && A_LINES % LINES_A == 0 && ROWS_B > 0 && DEEP % ROWS_B == 0, "every thread fetches whole pieces");
    const int a_line = t * WIDE_A / A_LINE, a_at = t * WIDE_A % A_LINE, b_l = t * WIDE_B / TILE_N, b_column = t * WIDE_B % TILE_N;
    const int from = WGRAD ? top + a_at : first * DEEP + a_at;  // tap and channel of this thread's pieces of A, as one number
    Tap at_tap = tap(of, from);
    const float* b_next = b + (long long)(first * DEEP + b_l) * pitch + left + b_column;
    const long long b_further = (long long)ROWS_B * pitch;
    const int b_inside = left + b_column < pitch ? 4 * WIDE_B : 0;
    int slot_in = 0, l_left = k - first * DEEP;  // slot of the next stage, and items of the sum that are left for it

    Counted at_pixel = first_pixels(of, pixels, top, first * DEEP, count);
    __syncthreads();

    auto stage = [&]() {
        float* const as = memory + slot_in * STAGE + a_line * A_PITCH + a_at;
        float* const bs = memory + slot_in * STAGE + A_SIZE + b_l * TILE_N + b_column;
        const int further = shift(of, at_tap), b_rows = l_left - b_l;
        const int4* const at = pixels + (WGRAD ? slot_in * DEEP : 0) + a_line;
        #pragma unroll
        for (int e = 0; e < PIECES_A; e++) {
            const int4 here = at[e * LINES_A];
            const bool inside = at_tap.i < of.r && (unsigned)(here.y + at_tap.i) < (unsigned)of.h && (unsigned)(here.z + at_tap.j) < (unsigned)of.w;
            fetch<4 * WIDE_A>(as + e * LINES_A * A_PITCH, a + (here.x + further), inside ? 4 * WIDE_A : 0);
        }
        #pragma unroll
        for (int e = 0; e < PIECES_B; e++)
            fetch<4 * WIDE_B>(bs + e * ROWS_B * TILE_N, b_next + e * b_further, e * ROWS_B < b_rows ? b_inside : 0);
        b_next += (long long)DEEP * pitch, l_left -= DEEP;
        if (!WGRAD) next_tap(of, at_tap);
        if (++slot_in == STAGES) slot_in = 0;
    };

    // Load: all stages but one are on their way before the first is multiplied.
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[THREAD_M][THREAD_N] = {};
    int slot = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        // Synchronize: this stage has arrived for all threads, and all have read the one before.
        arrived();
        __syncthreads();
        // Load: the stage before takes the next pixels and filters.
        if (step + STAGES - 1 < steps) stage();
        fetched();
        const float* const as = memory + slot * STAGE + row * (WGRAD ? 1 : A_PITCH);
        const float* const bs = memory + slot * STAGE + A_SIZE + column;
        if (WGRAD && t < DEEP) next_pixel(of, at_pixel, pixels, slot, count);  // of a stage that all threads have fetched
        if (++slot == STAGES) slot = 0;
        // Multiply: four of the sum at a time, as operands are read by fours.
        #pragma unroll
        for (int l = 0; l < DEEP; l += 4) {
            float4 u[THREAD_M];  // an entry is a row's next 4 items of the sum, or for wgrad 4 rows' items of 1
            if (!WGRAD) {
                #pragma unroll
                for (int e = 0; e < THREAD_M; e++) u[e] = *(const float4*)(as + e * LANES_M * A_PITCH + l);
            }
            #pragma unroll
            for (int f = 0; f < 4; f++) {
                float4 v[THREAD_N / 4];
                if (WGRAD) {
                    #pragma unroll
                    for (int e = 0; e < THREAD_M / 4; e++) u[e] = *(const float4*)(as + (l + f) * A_PITCH + e * LANES_M * 4);
                }
                #pragma unroll
                for (int e = 0; e < THREAD_N / 4; e++) v[e] = *(const float4*)(bs + (l + f) * TILE_N + e * 16);
                #pragma unroll
                for (int e = 0; e < THREAD_M * THREAD_N; e++) {  // back and forth: each shares an operand with the one before
                    const int q = e / THREAD_M, p = q % 2 ? THREAD_M - 1 - e % THREAD_M : e % THREAD_M;
                    sums[p][q] += (WGRAD ? ((const float*)u)[p] : ((const float*)&u[p])[f]) * ((const float*)v)[q];
                }
            }
        }
    }

    // Store: each pixel's results where it belongs, or as partial sums.
    #pragma unroll
    for (int p = 0; p < THREAD_M; p++) {
        const int within = row + (WGRAD ? p / 4 * LANES_M * 4 + p % 4 : p * LANES_M), at = top + within;
        if (at >= m) continue;
        const int place = gridDim.y > 1 ? at : WGRAD ? target(of, at, m, kept) : pixels[within].w;
        if (place < 0) continue;
        float* const row_of = gridDim.y > 1 ? partial_sums + (long long)blockIdx.y * m * n : out;
        #pragma unroll
        for (int q = 0; q < THREAD_N / 4; q++) {
            const int beside = left + column + q * 16;
            float* const to = row_of + (long long)place * n + beside;
            const float4 put = make_float4(sums[p][4 * q] * scale, sums[p][4 * q + 1] * scale, sums[p][4 * q + 2] * scale,
                                           sums[p][4 * q + 3] * scale);
            if (VECTOR) {
                if (beside < n) *(float4*)to = put;
            } else {
                #pragma unroll
                for (int e = 0; e < 4; e++)
                    if (beside + e < n) to[e] = ((const float*)&put)[e];
            }
        }
    }
    previous_is_done();
}
