// sm_80 sm_90
// C = A B on tensor cores. It adds mma.sync to warp_tiled: a warp multiplies 16 x 8 of C by 32 bytes of k in one instruction, from
// pieces that ldmatrix brings into its registers in the order that the instruction wants.
//
//     shared memory, a stage              registers of a warp                C
//    +------------------+ TILE_M         +------+------+                    +----+----+----+ 16x8
//    | rows of A, LINE  |                | 8x16 | 8x16 | A: 16 x 32 bytes   | mma| mma|    |
//    | bytes of k each, | -ldmatrix.x4-> | bytes| bytes| of k               +----+----+----+
//    | padded by 16     |                +------+------+                    | mma|    |    |
//    +------------------+                | 8x16 | 8x16 | B: 32 bytes of k   +----+----+----+
//    | B, TILE_N        | -ldmatrix.x4-> | bytes| bytes| x 16 columns       each;
//    +------------------+                +------+------+ for two mma        WARP_M x WARP_N a warp
//
//    memory --cp.async--> ring of STAGES stages; step s + 1 is read while step s is multiplied
//
// Takes, from the constants here (defaults; A along k, B across it):
//   shared memory: STAGES * (TILE_M * (LINE + 16) + LINE * (TILE_N + 8)) = 75,776 bytes a block
//   registers:     65536 / (THREADS * BLOCKS) = 256 a thread at most; WARP_M * WARP_N / 32 = 128 of them are its sums
// Source: NVIDIA, PTX ISA, "mma.sync" and "ldmatrix" (which lane holds what); CUTLASS 2, "Efficient GEMM in CUDA".

#ifndef TF32
#define TF32 0        // 1: A, B and C are float32, rounded to TF32 before they are multiplied
#define TYPE "bf16"   // of A, B and C otherwise: bf16 or f16; sums are float32
#define TILE_M 128    // rows and columns of C per block
#define TILE_N 128
#define WARP_M 64     // rows and columns of C per warp
#define WARP_N 64
#define LINE 64       // bytes of k per stage: 64 or 128
#define STAGES 4      // stages in shared memory, each with a tile of A and of B
#define BLOCKS 2      // blocks per multiprocessor
#define A_STORED_KM 0 // 1: A is stored k x m
#define B_STORED_KN 1 // 1: B is stored k x n
#define BYTES_A 16    // alignment of the rows of A and of B: 2, 4, 8 or 16 bytes
#define BYTES_B 16
#define VECTOR 1      // 1: rows of C have even numbers of items
#endif

#if TF32
typedef float Item;
#define MMA "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32"
#else
typedef unsigned short Item;
#define MMA "mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE ".f32"
#endif
constexpr int SIZE = sizeof(Item);  // bytes of an item
constexpr int PIECE = 16 / SIZE;    // items in 16 bytes, the widest copy
constexpr int DEEP = LINE / SIZE;   // items of k per stage
constexpr int STEP = 32 / SIZE;     // items of k per mma: 32 bytes for every type (PTX ISA)
constexpr int WARPS_N = TILE_N / WARP_N;                         // warps side by side
constexpr int THREADS = TILE_M / WARP_M * WARPS_N * 32;          // of a block
constexpr int M16 = WARP_M / 16;                                 // products of a warp down: an mma has 16 rows
constexpr int N8 = WARP_N / 8;                                   // and across: it has 8 columns
// Steps of a stage that are unrolled. CUDA 12's compiler moves the loads of four tf32 steps so far ahead that registers run out.
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
#include "rows.cuh"
#include "split_sums.cuh"

__device__ unsigned rounded(unsigned bits) {
    unsigned to;
    asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(to) : "f"(__uint_as_float(bits)));
    return to;
}

// An operand's tile in shared memory: TILE lines (rows of A, columns of B), stored as in memory. A row of the tile is DEEP items of a line,
// or with K_ACROSS all lines' items of one k. Rows are padded by 16 bytes (tf32 across k: 32), so that 8 (4) lie in different banks.
template <bool K_ACROSS, bool LEFT, int TILE, int BYTES> struct Operand {
    static constexpr int DOWN = K_ACROSS ? DEEP : TILE;   // rows of the tile
    static constexpr int WIDTH = K_ACROSS ? TILE : DEEP;  // items in each
    static constexpr int PITCH = WIDTH + (TF32 && K_ACROSS ? 2 : 1) * PIECE;  // items from row to row, padding with them
    static constexpr int WIDE = BYTES / SIZE;             // items of a copy
    static constexpr int ACROSS = WIDTH / WIDE < THREADS ? WIDTH / WIDE : THREADS;  // threads side by side on a row
    static constexpr int ROWS = THREADS / ACROSS;         // rows that all threads copy at once
    static_assert(DOWN % ROWS == 0 && WIDTH % (ACROSS * WIDE) == 0, "every thread fetches whole pieces");
    const Item *next, *from;  // source of this thread's first piece of the next stage; where it reads in the ring
    int lines, pitch;         // lines of the operand from the tile on; items from row to row

    __device__ Operand(const Item* operand, int first, int size, int k, int k0, const Item* ring, int line)
        : lines(size - first), pitch(K_ACROSS ? size : k) {
        const int lane = threadIdx.x % 32, lower = LEFT ? lane / 8 % 2 : lane / 16, right = LEFT ? lane / 16 : lane / 8 % 2;
        from = ring + (!K_ACROSS ? (line + lane % 8 + 8 * lower) * PITCH + right * PIECE
                       : TF32 ? lane % 4 * PITCH + line + lane / 4 : (lane % 8 + 8 * right) * PITCH + line + 8 * lower);
        next = operand + ((K_ACROSS ? k0 : first) + row()) * (long long)pitch + (K_ACROSS ? first : k0) + column();
    }
    __device__ static int row() { return threadIdx.x / ACROSS; }  // of this thread's first piece in the tile
    __device__ static int column() { return threadIdx.x % ACROSS * WIDE; }
    __device__ void stage(Item* slot, int left) {  // writes zeros outside the operand; `left`: k that are left
        #pragma unroll (BYTES == 16 || M16 * N8 < 32 ? DOWN : 2)  // smaller pieces: addresses and many sums would need too many registers
        for (int e = 0; e < DOWN; e += ROWS)
            #pragma unroll
            for (int i = 0; i < WIDTH; i += ACROSS * WIDE) {
                const int down = row() + e, along = column() + i;
                const bool inside = (K_ACROSS ? along : down) < lines && (K_ACROSS ? down : along) < left;
                Item* const to = slot + down * PITCH + along;
                const Item* const source = next + (long long)e * pitch + i;
                if constexpr (BYTES > 2) fetch<BYTES>(to, source, inside ? BYTES : 0);
                else *to = inside ? __ldg(source) : (Item)0;  // cp.async copies no fewer than 4 bytes
            }
        next += K_ACROSS ? (long long)DEEP * pitch : DEEP;
    }
    // Reads 16 lines by 32 bytes of k as four matrices of 8 lines by 16 bytes. For an mma's A (LEFT): upper left, lower left, upper right,
    // lower right. For two mmas' B: upper left, upper right, lower left, lower right.
    __device__ void read(unsigned (&to)[4], int line, int l) const {
        const Item* const at = from + (K_ACROSS ? l * PITCH + line : line * PITCH + l);
        if (!K_ACROSS) matrices(to, shared(at));
        else if (!TF32) transposed(to, shared(at));
        else
            #pragma unroll
            for (int e = 0; e < 4; e++)
                to[e] = __float_as_uint(at[4 * (LEFT ? e / 2 : e % 2) * PITCH + 8 * (LEFT ? e % 2 : e / 2)]);
    }
};
using A = Operand<A_STORED_KM, true, TILE_M, BYTES_A>;
using B = Operand<B_STORED_KN, false, TILE_N, BYTES_B>;
constexpr int A_SIZE = A::DOWN * A::PITCH;           // items of A's tile
constexpr int STAGE = A_SIZE + B::DOWN * B::PITCH;   // items of a stage
constexpr int PITCH_C = WARP_N + 8;                  // items from row to row of results on their way, padded by 16 bytes
static_assert(THREADS / 2 * PITCH_C <= STAGES * STAGE, "16 rows of each warp's results find room");

// In tiles from number `whole` on, k is split into `parts` parts of `deep` stages each (split_sums.cuh).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
matmul(const Item* __restrict__ a, const Item* __restrict__ b, Item* __restrict__ c, int m, int n, int k, int group, int whole, int parts,
       int deep, float* partial, unsigned* arrived_parts) {
    extern __shared__ __align__(16) char raw[];
    Item* const memory = (Item*)raw;
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, row = warp / WARPS_N * WARP_M, column = warp % WARPS_N * WARP_N;
    const Share own = share(blockIdx.x, whole, parts, deep * DEEP, k);
    int top, left;
    rasterize(own.tile, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, group, top, left);
    top *= TILE_M, left *= TILE_N;

    A a_tile(a, top, m, k, own.first, memory, row);
    B b_tile(b, left, n, k, own.first, memory + A_SIZE, column);
    int l_left = own.count;  // k that are left for the next stage
    auto stage = [&](int slot) {
        a_tile.stage(memory + slot * STAGE, l_left);
        b_tile.stage(memory + slot * STAGE + A_SIZE, l_left);
    };
    // Load: all stages but one are on their way before the first is multiplied.
    for (int s = 0; s < STAGES - 1; s++, l_left -= DEEP) {
        if (l_left > 0) stage(s);
        fetched();
    }
    float sums[M16][N8][4] = {};
    unsigned u[2][M16][4], v[2][N8 / 2][4];
    auto read = [&](int which, int l) {
        #pragma unroll
        for (int i = 0; i < M16; i++) a_tile.read(u[which][i], 16 * i, l);
        #pragma unroll
        for (int j = 0; j < N8 / 2; j++) b_tile.read(v[which][j], 16 * j, l);
    };
    // Synchronize: the first stage has arrived for all threads.
    int slot = 0;
    arrived();
    __syncthreads();
    read(0, 0);
    #pragma unroll 1
    for (; l_left > (1 - STAGES) * DEEP; l_left -= DEEP) {
        // Load: the stage that all warps have read takes the next tiles.
        if (l_left > 0) stage(slot ? slot - 1 : STAGES - 1);
        fetched();
        #pragma unroll AT_ONCE
        for (int l = 0; l < DEEP; l += STEP) {
            const int now = l / STEP % 2;
            // Synchronize: at the last step of a stage, the next stage must have arrived.
            if (l + STEP == DEEP) {
                arrived();
                __syncthreads();
                const int on = ++slot == STAGES ? (1 - STAGES) * STAGE : STAGE;
                if (slot == STAGES) slot = 0;
                a_tile.from += on, b_tile.from += on;
            }
            read(now ^ 1, (l + STEP) % DEEP);  // the next step is loaded while this one is multiplied
            #pragma unroll
            for (int e = 0; e < (TF32 ? 4 * M16 : 0); e++) u[now][e / 4][e % 4] = rounded(u[now][e / 4][e % 4]);
            #pragma unroll
            for (int e = 0; e < (TF32 ? 2 * N8 : 0); e++) v[now][e / 4][e % 4] = rounded(v[now][e / 4][e % 4]);
            // Multiply: 16 x 8 of C at a time.
            #pragma unroll
            for (int i = 0; i < M16; i++)
                #pragma unroll
                for (int j = 0; j < N8; j++) multiply(sums[i][j], u[now][i], v[now][j / 2][j % 2 * 2], v[now][j / 2][j % 2 * 2 + 1]);
        }
    }
    const int piece_of_c = own.tile - whole;
    auto last = [&] { return is_last((unsigned*)memory, arrived_parts + piece_of_c, parts); };
    if (parts > 1 && piece_of_c >= 0
        && !added<M16 * N8, THREADS>(&sums[0][0][0], partial, piece_of_c, own.part, parts, threadIdx.x, last))
        return;
    // Store: pairs straight from registers, or rows by way of shared memory where C's rows are not aligned.
    Item* const piece = memory + warp * 16 * PITCH_C;
    top = m - a_tile.lines + row, left = n - b_tile.lines + column;
    if (!VECTOR) __syncthreads();  // all warps have finished reading the ring
    #pragma unroll
    for (int i = 0; i < M16; i++) {
        #pragma unroll
        for (int j = 0; j < N8; j++)
            #pragma unroll
            for (int h = 0; h < 2; h++) {
                const int down = lane / 4 + 8 * h, along = 8 * j + lane % 4 * 2, at = top + 16 * i + down, beside = left + along;
                const float x = sums[i][j][2 * h], y = sums[i][j][2 * h + 1];
                if (!VECTOR) put(piece + down * PITCH_C + along, x, y, 2, true);
                else if (at < m) put(c + (long long)at * n + beside, x, y, n - beside, true);
            }
        if (!VECTOR) put_rows<16, WARP_N, PITCH_C>(c + (long long)(top + 16 * i) * n + left, piece, n, m - top - 16 * i, n - left);
    }
}
