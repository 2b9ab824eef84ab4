// sm_90a
// Convolution as a product on Hopper. It adds to tensor_core: the copy engine (TMA) walks the pixels of the images itself (im2col
// mode). One thread says where a load begins, no other computes an address, and warpgroups multiply the stages by wgmma. Each
// multiprocessor has BLOCKS persistent blocks, which take tile after tile.
//
//     images                    a stage in shared memory          warpgroups           memory
//    +------------------+      +------------------------+
//    | x x x x x x x x  | TMA  | pixel p:   64 channels |
//    | x[p p p p p p p] |----->| pixel p+1: 64 channels | wgmma  +---------------+ TMA +-----+
//    |[p p p p]x x x x  |im2col| ..         (128 bytes) |------->| ROWS x COLUMNS|---->| out |
//    +------------------+      +------------------------+        | of sums       |     +-----+
//      one load: TILE_M pixels | B: COLUMNS filters     |        +---------------+
//      in order, moved by a tap+------------------------+
//
// Takes, from the constants here (defaults):
//   shared memory: STAGES * ((CONSUMERS * ROWS + COLUMNS) * 128 + 16) + CONSUMERS * STAGED * 64 * 128 = 196,688 bytes a block
//   registers:     65536 / ((128 * CONSUMERS + 32) * BLOCKS) = 227 a thread at most; ROWS * COLUMNS / 128 = 64 of them are its sums
// Source: NVIDIA, CUDA Driver API, cuTensorMapEncodeIm2col; PTX ISA, "cp.async.bulk.tensor", im2col mode; CUTLASS 3, Hopper's
// warp-specialized persistent kernels.

#ifndef TYPE
#define TYPE "bf16"   // of all operands: bf16 or f16; sums are float32
#define CONSUMERS 2   // warpgroups that multiply
#define ROWS 64       // rows of the product's tile per warpgroup
#define COLUMNS 128   // columns of the product's tile: 64, 128, 192 or 256
#define STAGES 5      // stages of the ring, each with 64 of the sum
#define STAGED 2      // parts of 64 x 64 of a warpgroup's results that may be in flight
#define BLOCKS 1      // blocks per multiprocessor: while one stores its results, another multiplies
#define WGRAD 0       // 1: rows are taps and channels, and the sum runs over pixels
#define OUT 0         // results are stored 0: by TMA, 1: as float32 sums for `reduce`, 2: in eights or 3: in pairs, each pixel where it belongs
#endif

#define A_ACROSS WGRAD
#define B_ACROSS WGRAD
constexpr int TILE_M = CONSUMERS * ROWS;  // rows of a block's tile
constexpr int TILE_N = COLUMNS;           // its columns
constexpr int SHARING = 1;                // blocks that share what they load: no clusters here
#include "implicit_gemm.cuh"
#include "rasterization.cuh"
#include "wgmma.cuh"

// Loads 64 channels, from c on, of a series of pixels. The first is (x, y) of image n; the next ones follow along the row, in the next
// rows and in the next images, within the map's box. Each is read `right` columns and `down` rows further on.
__device__ void load_pixels(unsigned to, const Map* map, int c, int x, int y, int n, int right, int down, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                 :: "r"(to), "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"((unsigned short)right),
                    "h"((unsigned short)down) : "memory");
}

// Of four eights in a row each of four neighboring lanes has two items. They are swapped until each lane has one whole eight.
__device__ uint4 whole_eight(const float* sums) {
    unsigned pair[4];
    #pragma unroll
    for (int e = 0; e < 4; e++) pair[e] = packed(sums[4 * e], sums[4 * e + 1]);
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        const int far = 1 + i / 2, e = i < 2 ? 2 * i : i - 2;
        const bool upper = threadIdx.x & far;
        const unsigned other = __shfl_xor_sync(~0u, upper ? pair[e] : pair[e + far], far);
        (upper ? pair[e] : pair[e + far]) = other;
    }
    return make_uint4(pair[0], pair[1], pair[2], pair[3]);
}

// A unit of work is a tile of the product and one of `splits` parts of its sum. The sum runs over taps, each with `chunks` times 64
// channels (padded with zeros in B), or for wgrad over pixels; wgrad's rows are taps with their chunks, 64 rows each.
extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
convolve(const __grid_constant__ Map a_map, const __grid_constant__ Map b_map, const __grid_constant__ Map c_map, float* sums,
         unsigned short* result, const Shape of, int splits, int group) {
    extern __shared__ __align__(1024) char memory[];  // swizzle patterns begin at multiples of 1024 bytes
    const int team = __shfl_sync(~0u, threadIdx.x / 128, 0);  // warpgroups, then the warp that loads; uniform in a warp for the compiler
    const int chunks = (of.c + 63) / 64, count = of.n * of.p * of.q, deep = of.r * of.s * chunks;
    const int m = WGRAD ? deep * 64 : count, all = WGRAD ? (count + DEEP - 1) / DEEP : deep;
    const int units_m = (m + TILE_M - 1) / TILE_M, units_n = (of.k + TILE_N - 1) / TILE_N;
    const int tiles = units_m * units_n, units = tiles * splits, share = (all + splits - 1) / splits;

    // Synchronize: barriers exist before anybody waits for one.
    next_may_start();
    Ring ring(memory, team == CONSUMERS);
    if (threadIdx.x == 0) prepare(ring, CONSUMERS, &a_map, &b_map, &c_map);
    __syncthreads();

    // Load: one thread walks the tiles and starts the copies of every stage.
    if (team == CONSUMERS) {
        if (threadIdx.x == 128 * CONSUMERS) {
            for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
                int at_m, at_n;
                rasterize(unit % tiles, units_m, units_n, group, at_m, at_n);
                at_m *= TILE_M, at_n *= TILE_N;
                const int first = unit / tiles * share, last = min(first + share, all);
                int pixel = WGRAD ? first * DEEP : at_m;
                int x = pixel % of.q, y = pixel / of.q % of.p, n = pixel / of.q / of.p;
                int chunk = first % chunks, j = first / chunks % of.s, i = first / chunks / of.s;
                fill(ring, first, last, [&](int step, unsigned to, unsigned barrier) {
                    const int left = x * of.step - of.left, top = y * of.step - of.top;
                    if (WGRAD) {
                        #pragma unroll
                        for (int e = 0; e < TILE_M / 64; e++) {
                            const int row = at_m / 64 + e, tap = row / chunks;
                            const bool is = tap < of.r * of.s;  // beyond the last tap: channels that no image has, read as zeros
                            load_pixels(to + e * PART_BYTES, &a_map, is ? row % chunks * 64 : chunks * 64, left, top, n,
                                        is ? tap % of.s : 0, is ? tap / of.s : 0, barrier);
                        }
                        #pragma unroll
                        for (int e = 0; e < TILE_N / 64; e++)
                            load(to + A_BYTES + e * PART_BYTES, &b_map, at_n + 64 * e, step * DEEP, barrier);
                        x += DEEP % of.q, y += DEEP / of.q % of.p, n += DEEP / of.q / of.p;
                        if (x >= of.q) x -= of.q, y++;
                        if (y >= of.p) y -= of.p, n++;
                    } else {
                        load_pixels(to, &a_map, chunk * 64, left, top, n, j, i, barrier);
                        load(to + A_BYTES, &b_map, step * DEEP, at_n, barrier);
                        if (++chunk == chunks) chunk = 0, j++;
                        if (j == of.s) j = 0, i++;
                    }
                });
            }
        }
    } else {
        const int thread = threadIdx.x % 128, consumer = team;
        const bool even = of.k % 2 == 0;
        unsigned part = 0;
        float d[ROWS / 64][COLUMNS / 2];
        for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
            int at_m, at_n;
            rasterize(unit % tiles, units_m, units_n, group, at_m, at_n);
            at_m = at_m * TILE_M + consumer * ROWS, at_n *= TILE_N;
            const int first = unit / tiles * share, steps = min(share, all - first);
            // Synchronize and multiply: each stage as it arrives (wgmma.cuh).
            multiply_tile(d, ring, consumer * ROWS, steps, [] {});
            // Store: from registers, or by TMA through shared memory.
#if OUT
            #pragma unroll
            for (int r = 0; r < ROWS / 64; r++)
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int lane = thread % 32, row = at_m + 64 * r + thread / 32 * 16 + lane / 4 + 8 * h;
                    const int column = at_n + lane % 4 * (OUT == 2 ? 8 : 2), left = row < m ? of.k - column : 0;
                    const long long place = OUT == 1 ? (long long)(unit / tiles) * m + row : landing(of, row);
                    #pragma unroll
                    for (int q = 0; q < COLUMNS / 8; q += OUT == 2 ? 4 : 1) {
                        const uint4 eight = OUT == 2 ? whole_eight(d[r] + 4 * q + 2 * h) : uint4();
                        const float low = d[r][4 * q + 2 * h], high = d[r][4 * q + 2 * h + 1];
                        if (OUT == 1) put(sums + (place * of.k + column) + 8 * q, low, high, left - 8 * q, even);
                        else if (OUT == 3) put(result + (place * of.k + column) + 8 * q, low, high, left - 8 * q, even);
                        else if (8 * q < left) *(uint4*)(result + (place * of.k + column) + 8 * q) = eight;
                    }
                }
#else
            store_tile(d, &c_map, &c_map, at_m, at_n, ring.results + consumer * STAGED * PART_BYTES, part, consumer,
                       [](int) { return true; });
#endif
        }
        if (OUT == 0 && thread == 0) stored<0>();  // TMA must read shared memory before the block ends
    }
    previous_is_done();
}
