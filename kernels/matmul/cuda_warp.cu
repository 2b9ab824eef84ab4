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
#define A_STORED_KM 0 // 1: A lies k x m
#define B_STORED_KN 1 // 1: B lies k x n
#define VECTOR_A 1   // rows of A, of B, of C begin on 16 bytes; beside an operand's may lie zeros
#define VECTOR_B 1
#define VECTOR 1
#endif

constexpr int LANES_M = WARP_M / EACH_M, LANES_N = WARP_N / EACH_N;
constexpr int WARPS_M = TILE_M / WARP_M, WARPS_N = TILE_N / WARP_N, GROUP = WARPS_M * WARPS_N * 32, THREADS = GROUP * SLICES;
constexpr int OWN_DEEP = DEEP / SLICES;
constexpr bool THIN = LANES_M == 1;  // a warp is 8 x 4 threads, or of few rows of C 1 x 32
static_assert((THIN ? WARPS_M == 1 : LANES_M == 8) && LANES_M * LANES_N == 32 && EACH_M % 4 == 0 && EACH_N % 4 == 0 && OWN_DEEP % 16 == 0, "its threads");

#include "cp_async.cuh"
#include "rows.cuh"
#include "split_sums.cuh"

// An operand's tile of TILE lines (rows of A, columns of B) in shared memory: lines side by side with k down (4 floats apart, which
// spreads k over banks), to which one K_ALONG is turned item by item, or where a long stage is fetched by fours, LIES as it does:
// lines of DEEP, whose fours have another order in the next four lines. A thread takes EACH lines, four neighbors of every LANES
// fours: one k of them at a time, or four k's of each.
template <bool K_ALONG, int TILE, int EACH, int LANES, bool FOURS> struct Operand {
    static constexpr bool LIES = K_ALONG && FOURS && DEEP > 16;
    static constexpr int WIDE = FOURS && (LIES || !K_ALONG) ? 4 : 1, PITCH = LIES ? DEEP : TILE + 4, SIZE = (LIES ? TILE : DEEP) * PITCH;
    static constexpr int DOWN = K_ALONG ? TILE : DEEP, LINE = K_ALONG ? DEEP : TILE;                 // rows in memory, floats of each
    static constexpr int EVEN = LINE & -LINE, ACROSS = K_ALONG && !LIES ? 8 : (EVEN < THREADS * WIDE ? EVEN : THREADS * WIDE) / WIDE;
    static constexpr int ROWS = THREADS / ACROSS;
    static_assert(DOWN % ROWS == 0 || ROWS > DOWN, "every thread fetches whole pieces, or nothing");
    const float *start, *next, *from;  // of the operand, of this thread's first piece of the next stage; what it reads
    long long further, deeper;
    int row, column, first, size, turn;  // where this thread begins in the tile, the tile in the operand's lines
    float4 held[LIES ? EACH : EACH / 2];

    __device__ Operand(const float* operand, int first, int size, int pitch, int k0, int t, const float* ring, int line, int own_k)
        : start(operand), first(first), size(size) {
        row = t / ACROSS, column = t % ACROSS * WIDE;
        next = operand + ((K_ALONG ? first : k0) + row) * (long long)pitch + (K_ALONG ? k0 : first) + column;
        further = (long long)ROWS * pitch, deeper = K_ALONG ? DEEP : (long long)DEEP * pitch;
        from = ring + (LIES ? line * PITCH + own_k : own_k * PITCH + line), turn = line / 4 % 4 * 4;
    }
    __device__ void piece(float* slot, const float* source, int e, int i, bool valid) {  // zeros where nothing is
        const int line = K_ALONG ? row + e : column + i, l = K_ALONG ? column + i : row + e;
        float* const to = slot + (LIES ? line : l) * PITCH + (LIES ? l ^ line / 4 % 4 * 4 : line);
        fetch<4 * WIDE>(to, valid ? source + i : start, valid ? 4 * WIDE : 0);
    }
    __device__ void stage(float* slot, int left) {  // `left`: of k
        const float* source = next;
        if (ROWS > DOWN && row >= DOWN) return;
        if (first + TILE <= size && left >= DEEP) {
            #pragma unroll (K_ALONG || FOURS ? DOWN : 2)  // item by item there may be too many addresses for a thread's registers
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
    __device__ void read(int l) {  // k number l of the slice, or it and the three that follow
        #pragma unroll
        for (int i = 0; i < (LIES ? EACH : EACH / 4); i++)
            if (!LIES) held[l % 2 * (EACH / 4) + i] = *(const float4*)(from + l * PITCH + i * LANES * 4);
            else if (l % 4 == 0) held[i] = *(const float4*)(from + (i / 4 * LANES * 4 + i % 4) * PITCH + (l ^ turn + i / 4 * LANES % 4 * 4));
    }
    __device__ float item(int l, int i) const {
        return ((const float*)held)[LIES ? 4 * i + l % 4 : l % 2 * EACH + i];
    }
};
using A = Operand<!A_STORED_KM, TILE_M, EACH_M, LANES_M, VECTOR_A>;
using B = Operand<!B_STORED_KN, TILE_N, EACH_N, LANES_N, VECTOR_B>;
constexpr int STAGE = A::SIZE + B::SIZE, PITCH_C = WARP_N + 4, HIGH = 4 * LANES_M;
static_assert(GROUP / 32 * HIGH * PITCH_C <= STAGES * STAGE, "HIGH rows of each warp's results find room");

// `scale` is 1. Multiplying by it at the end frees the sums' registers: those that are stored 16 bytes at once lie in groups of four,
// and the sums would keep to these all along, often in the bank of the register file that holds the operand they are added to.
// A multiply-add whose registers lie in one bank waits: without it the loop's take 1.2 to 2 cycles, with it 1.1 (counted
// in the machine code for sm_90, two banks that give a register a cycle each).
extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int a_pitch, int b_pitch,
       int whole, int parts, int deep, float* partial, unsigned* arrived_parts, float scale) {
    extern __shared__ __align__(16) float memory[];
    a += (long long)blockIdx.y * m * k, b += (long long)blockIdx.y * n * k;  // of many products
    const int t = threadIdx.x, lane = t % 32, warp = t % GROUP / 32, slice = t / GROUP;
    // Neighbors differ in n, the next in m: either operand's 16-byte loads are then the same in half of the lanes near by.
    const int lane_n = THIN ? lane : (lane & 1) | (lane >> 1 & 2), lane_m = THIN ? 0 : (lane >> 1 & 1) | (lane >> 2 & 6);
    const int row = warp / WARPS_N * WARP_M + lane_m * 4, column = warp % WARPS_N * WARP_N + lane_n * 4;
    const Share own = share(blockIdx.x, whole, parts, deep, k);  // split_sums.cuh
    const int across = (n + TILE_N - 1) / TILE_N, top = own.tile / across * TILE_M, left = own.tile % across * TILE_N;

    A a_tile(a, top, m, a_pitch, own.first, t, memory, row, slice * OWN_DEEP);
    B b_tile(b, left, n, b_pitch, own.first, t, memory + A::SIZE, column, slice * OWN_DEEP);
    int slot_in = 0, l_left = own.count;  // where the next stage goes, and how much of k is left for it
    const int steps = (l_left + DEEP - 1) / DEEP;
    auto stage = [&]() {
        a_tile.stage(memory + slot_in * STAGE, l_left);
        b_tile.stage(memory + slot_in * STAGE + A::SIZE, l_left);
        l_left -= DEEP;
        if (++slot_in == STAGES) slot_in = 0;
    };

    #pragma unroll 1
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[EACH_M][EACH_N] = {};
    int slot = 0;
    auto next_slot = [&]() {
        const int on = ++slot == STAGES ? (1 - STAGES) * STAGE : STAGE;
        if (slot == STAGES) slot = 0;
        a_tile.from += on, b_tile.from += on;
    };
    arrived();
    __syncthreads();
    if (!A::LIES) a_tile.read(0);
    if (!B::LIES) b_tile.read(0);
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        if (step + STAGES - 1 < steps) stage();
        fetched();
        #pragma unroll
        for (int l = 0; l < OWN_DEEP; l++) {
            if (A::LIES) a_tile.read(l);
            if (B::LIES) b_tile.read(l);
            if (l == OWN_DEEP - 1) {
                arrived();
                __syncthreads();
                next_slot();
            }
            if (!A::LIES) a_tile.read((l + 1) % OWN_DEEP);  // while what was read before is multiplied
            if (!B::LIES) b_tile.read((l + 1) % OWN_DEEP);
            #pragma unroll
            for (int e = 0; e < EACH_M * EACH_N; e++) {  // there and back: each shares an operand with the one before
                const int i = e / EACH_N, j = i % 2 * (EACH_N - 1) + (1 - i % 2 * 2) * (e % EACH_N);
                sums[i][j] += a_tile.item(l, i) * b_tile.item(l, j);
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
    auto put = [&](int i, int j, float4 x) {  // four neighbors of C that belong to row i of this thread's
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
    constexpr int FOURS = EACH_N / 4;
    // Of several parts of k each leaves its sums, and whoever comes last adds them in their order: no result depends on who that is.
    const int piece_of_c = own.tile - whole;
    const bool cut = parts > 1 && piece_of_c >= 0;
    float4* const held = (float4*)partial + (long long)piece_of_c * parts * EACH_M * FOURS * GROUP + t % GROUP;
    float* const piece = memory + warp * HIGH * PITCH_C;
    if (!VECTOR) __syncthreads();  // nobody reads the ring any more
    if (!slice)
        #pragma unroll
        for (int i = 0; i < EACH_M; i++) {
            #pragma unroll
            for (int j = 0; j < FOURS; j++) {
                const float* const v = sums[i] + 4 * j;
                const float4 x = make_float4(v[0] * scale, v[1] * scale, v[2] * scale, v[3] * scale);
                if (cut) __stcg(held + (own.part * EACH_M * FOURS + i * FOURS + j) * GROUP, x);
                else if (VECTOR) put(i, j, x);
                else *(float4*)(piece + (lane_m * 4 + i % 4) * PITCH_C + (lane_n + j * LANES_N) * 4) = x;
            }
            if (VECTOR || cut || i % 4 < 3) continue;
            const int at = top + row - lane_m * 4 + i / 4 * HIGH, beside = left + column - lane_n * 4;
            put_rows<HIGH, WARP_N, PITCH_C>(c + ((long long)blockIdx.y * m + at) * n + beside, piece, n, m - at, n - beside);
        }
    if (!cut || !is_last((unsigned*)memory, arrived_parts + piece_of_c, parts)) return;
    #pragma unroll 1
    for (int q = slice; q < EACH_M * FOURS; q += SLICES) {
        float4 sum = make_float4(0, 0, 0, 0);
        #pragma unroll 4
        for (int part = 0; part < parts; part++) {
            const float4 x = __ldcg(held + (part * EACH_M * FOURS + q) * GROUP);
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
        put(q / FOURS, q % FOURS, sum);
    }
}
