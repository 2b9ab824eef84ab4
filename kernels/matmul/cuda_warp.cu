// sm_75 sm_90
// C = A B in float32. It adds to register_tiled: a tile for each warp between the block's and the thread's, loads of 16 bytes that
// neighboring lanes share, and stages that are fetched ahead (cp.async), so that no thread waits for memory.
//
//     a block's tile of C              a warp's tile                  a lane's THREAD_M x THREAD_N
//    +---------+---------+ TILE_M     +--+--+--+--+ WARP_M           +----+    +----+
//    | warp 0  | warp 1  |            |00|01|04|05|  lanes:          |4x4 |    |4x4 |  fours of
//    |         |         |            +--+--+--+--+  8 down,         +----+    +----+  neighbors;
//    +---------+---------+            |02|03|06|07|  4 across,                         between them
//    | warp 2  | warp 3  |            +--+--+--+--+  Z order         +----+    +----+  lie those of
//    |         |         |            |08|09|12|13|                  |4x4 |    |4x4 |  other lanes
//    +---------+---------+ TILE_N     +--+--+--+--+ WARP_N           +----+    +----+
//
//    memory --cp.async--> ring of STAGES stages, tiles of A and B --16-byte loads--> registers
//           [0: multiplied] [1: on its way] [2: on its way] [3: asked for]
//
// Takes, from the constants here (defaults):
//   shared memory: 4 * STAGES * DEEP * (TILE_M + 4 + TILE_N + 4) = 67,584 bytes a block
//   registers:     65536 / (THREADS * BLOCKS) = 256 a thread at most; THREAD_M * THREAD_N = 128 of them are its sums
// Source: NVIDIA, CUTLASS, "Efficient GEMM in CUDA" (warps' tiles, stages); Gray, maxas, "SGEMM" (order of lanes, register
// banks).

#ifndef TILE_M
#define TILE_M 128   // rows and columns of C per block
#define TILE_N 128
#define DEEP 16      // k per stage
#define WARP_M 64    // rows and columns of C per warp
#define WARP_N 64
#define THREAD_M 8     // rows and columns of C per thread
#define THREAD_N 16
#define STAGES 4     // stages in shared memory, each with a tile of A and of B
#define SLICES 1     // groups of warps that share a stage's k; their sums are added at the end
#define BLOCKS 2     // blocks per multiprocessor
#define A_STORED_KM 0 // 1: A is stored k x m
#define B_STORED_KN 1 // 1: B is stored k x n
#define VECTOR_A 1   // 1: rows of A, of B, of C begin on 16 bytes; an operand's may be padded with zeros
#define VECTOR_B 1
#define VECTOR 1
#endif

constexpr int LANES_M = WARP_M / THREAD_M;  // threads of a warp down
constexpr int LANES_N = WARP_N / THREAD_N;  // and across
constexpr int WARPS_M = TILE_M / WARP_M;  // warps of a block down
constexpr int WARPS_N = TILE_N / WARP_N;  // and across
constexpr int GROUP = WARPS_M * WARPS_N * 32;  // threads of a slice
constexpr int THREADS = GROUP * SLICES;        // of a block
constexpr int OWN_DEEP = DEEP / SLICES;        // k per stage of a slice
constexpr bool THIN = LANES_M == 1;  // a warp is 8 x 4 threads, or 1 x 32 for few rows of C
static_assert((THIN ? WARPS_M == 1 : LANES_M == 8) && LANES_M * LANES_N == 32 && THREAD_M % 4 == 0 && THREAD_N % 4 == 0 && OWN_DEEP % 16 == 0, "its threads");

#include "cp_async.cuh"
#include "rows.cuh"
#include "split_sums.cuh"

// An operand's tile in shared memory: TILE lines (rows of A, columns of B). A row of it is all lines' items of one k, padded by 4 floats,
// which spreads k over banks; an operand stored along k (K_ALONG) is transposed item by item. But if that is fetched by fours in a long
// stage, it LIES as in memory: a row is DEEP items of one line, and its fours have another order every four lines (a swizzle).
// A thread takes EACH lines, four neighbors of every LANES fours: one k of them at a time, or with LIES four k of each.
template <bool K_ALONG, int TILE, int EACH, int LANES, bool FOURS> struct Operand {
    static constexpr bool LIES = K_ALONG && FOURS && DEEP > 16;
    static constexpr int WIDE = FOURS && (LIES || !K_ALONG) ? 4 : 1;  // floats of a copy
    static constexpr int PITCH = LIES ? DEEP : TILE + 4;              // floats from row to row in shared memory
    static constexpr int SIZE = (LIES ? TILE : DEEP) * PITCH;         // floats of the tile there
    static constexpr int DOWN = K_ALONG ? TILE : DEEP;                // the tile's rows in memory
    static constexpr int LINE = K_ALONG ? DEEP : TILE;                // floats in each
    static constexpr int EVEN = LINE & -LINE;                         // largest power of two that divides a row
    static constexpr int ACROSS = K_ALONG && !LIES ? 8 : (EVEN < THREADS * WIDE ? EVEN : THREADS * WIDE) / WIDE;  // threads on a row
    static constexpr int ROWS = THREADS / ACROSS;                     // rows that all threads copy at once
    static_assert(DOWN % ROWS == 0 || ROWS > DOWN, "every thread fetches whole pieces, or nothing");
    const float *start, *next, *from;  // the operand; source of this thread's first piece of the next stage; where it reads in the ring
    long long further, deeper;
    int row, column, first, size, turn;  // this thread's first place in the tile; the tile's first line, of `size`; swizzle of its lines
    float4 held[LIES ? EACH : EACH / 2];

    __device__ Operand(const float* operand, int first, int size, int pitch, int k0, int t, const float* ring, int line, int own_k)
        : start(operand), first(first), size(size) {
        row = t / ACROSS, column = t % ACROSS * WIDE;
        next = operand + ((K_ALONG ? first : k0) + row) * (long long)pitch + (K_ALONG ? k0 : first) + column;
        further = (long long)ROWS * pitch, deeper = K_ALONG ? DEEP : (long long)DEEP * pitch;
        from = ring + (LIES ? line * PITCH + own_k : own_k * PITCH + line), turn = line / 4 % 4 * 4;
    }
    __device__ void piece(float* slot, const float* source, int e, int i, bool valid) {  // writes zeros if not valid
        const int line = K_ALONG ? row + e : column + i, l = K_ALONG ? column + i : row + e;
        float* const to = slot + (LIES ? line : l) * PITCH + (LIES ? l ^ line / 4 % 4 * 4 : line);
        fetch<4 * WIDE>(to, valid ? source + i : start, valid ? 4 * WIDE : 0);
    }
    __device__ void stage(float* slot, int left) {  // `left`: k that are left
        const float* source = next;
        if (ROWS > DOWN && row >= DOWN) return;
        if (first + TILE <= size && left >= DEEP) {
            #pragma unroll (K_ALONG || FOURS ? DOWN : 2)  // item by item, addresses may need too many registers
            for (int e = 0; e < DOWN; e += ROWS, source += further)
                #pragma unroll
                for (int i = 0; i < LINE; i += ACROSS * WIDE) piece(slot, source, e, i, true);
        } else {  // at an edge
            #pragma unroll 1
            for (int e = 0; e < DOWN; e += ROWS, source += further)
                #pragma unroll 1
                for (int i = 0; i < LINE; i += ACROSS * WIDE)
                    piece(slot, source, e, i, first + (K_ALONG ? row + e : column + i) < size && (K_ALONG ? column + i : row + e) < left);
        }
        next += deeper;
    }
    __device__ void read(int l) {  // loads k number l of the slice; with LIES also the three after it
        #pragma unroll
        for (int i = 0; i < (LIES ? EACH : EACH / 4); i++)
            if (!LIES) held[l % 2 * (EACH / 4) + i] = *(const float4*)(from + l * PITCH + i * LANES * 4);
            else if (l % 4 == 0) held[i] = *(const float4*)(from + (i / 4 * LANES * 4 + i % 4) * PITCH + (l ^ turn + i / 4 * LANES % 4 * 4));
    }
    __device__ float item(int l, int i) const {
        return ((const float*)held)[LIES ? 4 * i + l % 4 : l % 2 * EACH + i];
    }
};
using A = Operand<!A_STORED_KM, TILE_M, THREAD_M, LANES_M, VECTOR_A>;
using B = Operand<!B_STORED_KN, TILE_N, THREAD_N, LANES_N, VECTOR_B>;
constexpr int STAGE = A::SIZE + B::SIZE;  // floats of a stage
constexpr int PITCH_C = WARP_N + 4;       // floats from row to row of results on their way, padded by 16 bytes
constexpr int HIGH = 4 * LANES_M;         // rows of them at once
static_assert(GROUP / 32 * HIGH * PITCH_C <= STAGES * STAGE, "HIGH rows of each warp's results find room");

// `scale` is 1. A store of 16 bytes needs its values in a group of four registers. Without the multiplication by `scale` before it, the
// compiler keeps the sums in such groups all along, often in the same register bank as the operands of their multiply-adds. A multiply-add
// whose registers are in one bank waits: without `scale` those of the loop take 1.2 to 2 cycles, with it 1.1 (counted in the machine code
// for sm_90, with two banks that give a register per cycle each).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int a_pitch, int b_pitch,
       int whole, int parts, int deep, float* partial, unsigned* arrived_parts, float scale) {
    extern __shared__ __align__(16) float memory[];
    a += (long long)blockIdx.y * m * k, b += (long long)blockIdx.y * n * k;  // product number blockIdx.y of a batch
    const int t = threadIdx.x, lane = t % 32, warp = t % GROUP / 32, slice = t / GROUP;
    // Bits of the lane number go to n and m in turns: in half a warp every 16-byte load of an operand is then shared by four lanes.
    const int lane_n = THIN ? lane : (lane & 1) | (lane >> 1 & 2), lane_m = THIN ? 0 : (lane >> 1 & 1) | (lane >> 2 & 6);
    const int row = warp / WARPS_N * WARP_M + lane_m * 4, column = warp % WARPS_N * WARP_N + lane_n * 4;
    const Share own = share(blockIdx.x, whole, parts, deep, k);  // split_sums.cuh
    const int across = (n + TILE_N - 1) / TILE_N, top = own.tile / across * TILE_M, left = own.tile % across * TILE_N;

    A a_tile(a, top, m, a_pitch, own.first, t, memory, row, slice * OWN_DEEP);
    B b_tile(b, left, n, b_pitch, own.first, t, memory + A::SIZE, column, slice * OWN_DEEP);
    int slot_in = 0, l_left = own.count;  // slot of the next stage, and k that are left for it
    const int steps = (l_left + DEEP - 1) / DEEP;
    auto stage = [&]() {
        a_tile.stage(memory + slot_in * STAGE, l_left);
        b_tile.stage(memory + slot_in * STAGE + A::SIZE, l_left);
        l_left -= DEEP;
        if (++slot_in == STAGES) slot_in = 0;
    };

    // Load: all stages but one are on their way before the first is multiplied.
    #pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[THREAD_M][THREAD_N] = {};
    int slot = 0;
    auto next_slot = [&]() {
        const int on = ++slot == STAGES ? (1 - STAGES) * STAGE : STAGE;
        if (slot == STAGES) slot = 0;
        a_tile.from += on, b_tile.from += on;
    };
    // Synchronize: the first stage has arrived for all threads.
    arrived();
    __syncthreads();
    if (!A::LIES) a_tile.read(0);
    if (!B::LIES) b_tile.read(0);
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        // Load: the stage that all warps have read takes the next tiles.
        if (step + STAGES - 1 < steps) stage();
        fetched();
        #pragma unroll
        for (int l = 0; l < OWN_DEEP; l++) {
            if (A::LIES) a_tile.read(l);
            if (B::LIES) b_tile.read(l);
            // Synchronize: at the last k of a stage, the next stage must have arrived.
            if (l == OWN_DEEP - 1) {
                arrived();
                __syncthreads();
                next_slot();
            }
            if (!A::LIES) a_tile.read((l + 1) % OWN_DEEP);  // the next k is loaded while this one is multiplied
            if (!B::LIES) b_tile.read((l + 1) % OWN_DEEP);
            // Multiply: one k of the whole tile of the thread.
            #pragma unroll
            for (int e = 0; e < THREAD_M * THREAD_N; e++) {  // back and forth: each shares an operand with the one before
                const int i = e / THREAD_N, j = i % 2 * (THREAD_N - 1) + (1 - i % 2 * 2) * (e % THREAD_N);
                sums[i][j] += a_tile.item(l, i) * b_tile.item(l, j);
            }
        }
    }
    #pragma unroll
    for (int half = SLICES / 2; half; half /= 2) {  // half of the slices add the other half's sums, until one has all
        float* const own = memory + slice % half * THREAD_M * THREAD_N * GROUP + t % GROUP;
        __syncthreads();
        if (slice >= half && slice < 2 * half) {
            #pragma unroll
            for (int e = 0; e < THREAD_M * THREAD_N; e++) own[e * GROUP] = sums[e / THREAD_N][e % THREAD_N];
        }
        __syncthreads();
        if (slice < half) {
            #pragma unroll
            for (int e = 0; e < THREAD_M * THREAD_N; e++) sums[e / THREAD_N][e % THREAD_N] += own[e * GROUP];
        }
    }
    // Store.
    auto put = [&](int i, int j, float4 x) {  // stores four neighbors of C, in row i of this thread's
        const int at = top + row + i / 4 * HIGH + i % 4, beside = left + column + j * LANES_N * 4;
        float* const to = c + ((long long)blockIdx.y * m + at) * n + beside;
        if (at >= m || beside >= n) return;
        if (VECTOR) *(float4*)to = x;
        else {
            to[0] = x.x;
            if (beside + 1 < n) to[1] = x.y;
            if (beside + 2 < n) to[2] = x.z;
            if (beside + 3 < n) to[3] = x.w;
        }
    };
    constexpr int FOURS = THREAD_N / 4;
    // Split-k: each part stores its sums, and the block that is last adds all in order, so the result does not depend on which it is.
    const int piece_of_c = own.tile - whole;
    const bool cut = parts > 1 && piece_of_c >= 0;
    float4* const held = (float4*)partial + (long long)piece_of_c * parts * THREAD_M * FOURS * GROUP + t % GROUP;
    float* const piece = memory + warp * HIGH * PITCH_C;
    if (!VECTOR) __syncthreads();  // all warps have finished reading the ring
    if (!slice)
        #pragma unroll
        for (int i = 0; i < THREAD_M; i++) {
            #pragma unroll
            for (int j = 0; j < FOURS; j++) {
                const float* const v = sums[i] + 4 * j;
                const float4 x = make_float4(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale);
                if (cut) __stcg(held + (own.part * THREAD_M * FOURS + i * FOURS + j) * GROUP, x);
                else if (VECTOR) put(i, j, x);
                else *(float4*)(piece + (lane_m * 4 + i % 4) * PITCH_C + (lane_n + j * LANES_N) * 4) = x;
            }
            if (VECTOR || cut || i % 4 < 3) continue;
            const int at = top + row - lane_m * 4 + i / 4 * HIGH, beside = left + column - lane_n * 4;
            put_rows<HIGH, WARP_N, PITCH_C>(c + ((long long)blockIdx.y * m + at) * n + beside, piece, n, m - at, n - beside);
        }
    if (!cut || !is_last((unsigned*)memory, arrived_parts + piece_of_c, parts)) return;
    #pragma unroll 1
    for (int q = slice; q < THREAD_M * FOURS; q += SLICES) {
        float4 sum = make_float4(0, 0, 0, 0);
        #pragma unroll 4
        for (int part = 0; part < parts; part++) {
            const float4 x = __ldcg(held + (part * THREAD_M * FOURS + q) * GROUP);
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        put(q / FOURS, q % FOURS, sum);
    }
}
