// sm_90a
// C = A B on Hopper. It adds to tensor_core: wgmma, by which four warps (a warpgroup) multiply tiles straight from shared memory,
// and roles of their own: one thread has the copy engine (TMA) fill a ring of stages, warpgroups do nothing but multiply, TMA
// stores the results. Each multiprocessor has one persistent block, which takes tile after tile, or with CLUSTER_K a block for
// each part of a tile. Blocks of a cluster share what they load.
//
//    one thread              ring in shared memory           warpgroups (CONSUMERS)      memory
//    waits for `empty`      +------------------------+       wait for `full`
//    announces bytes   TMA  | A: TILE_M lines, 128 B | wgmma +-------------------+ TMA  +----+
//    starts loads --------> | B: TILE_N lines, 128 B | ----> | ROWS x COLUMNS of | ---> | C  |
//            ^              +------------------------+       | sums in registers |      +----+
//            |              | stage 1 .. STAGES - 1  |       +-------------------+
//            |              +------------------------+                |
//            +------------------- `empty`: the stage has been read ---+
//
//    cluster, CLUSTER_M = 2:  block 0 loads A0 and half of B   each half goes to both (multicast):
//                             block 1 loads A1 and half of B   B crosses the L2 once for two tiles
//    ping-pong:    warpgroup 1  |multiply tile 0|store tile 0   |multiply tile 2|store tile 2   |
//                  warpgroup 2                  |multiply tile 1|store tile 1   |multiply tile 3|
//
// Takes, from the constants here (defaults):
//   shared memory: STAGES * ((CONSUMERS * ROWS + COLUMNS) * 128 + 16) + CONSUMERS * STAGED * 64 * 128 = 229,440 bytes a block
//   registers:     ROWS * COLUMNS / 128 = 128 sums a thread that multiplies; of the block 128 * 40 + 2 * 128 * 232 = 64,512
//                  with CONSUMERS 2 (setmaxnreg below), of 65,536
// Source: NVIDIA, PTX ISA, "wgmma", "cp.async.bulk.tensor", "mbarrier"; CUTLASS 3, Hopper's warp-specialized persistent kernels
// (cooperative, ping-pong); Osama et al., "Stream-K", PPoPP 2023 (splitting only the tiles of the last wave).

#ifndef TYPE
#define TYPE "bf16"   // of A, B and C: bf16 or f16, or tf32; sums are float32
#define TF32 0        // 1: TYPE is tf32, and A, B and C are float32 in memory
#define CONSUMERS 2   // warpgroups that multiply
#define ROWS 64       // rows of C's tile per warpgroup
#define COLUMNS 256   // columns of C's tile: 64, 96, 128, 160, 192 or 256
#define STAGES 4      // stages of the ring, each with 128 bytes of k
#define CLUSTER_M 2   // blocks above each other: they share B's tile
#define CLUSTER_N 1   // blocks side by side: they share A's tile
#define CLUSTER_K 1   // blocks of one tile: each multiplies a part of k, and adds its share of their sums
#define PINGPONG 0     // 1: each warpgroup has its own tiles, so that one multiplies while the other stores
#define STAGED 2      // parts (64 lines of 128 bytes) of a warpgroup's results that may be in flight
#define A_STORED_KM 0 // 1: A is stored k x m
#define B_STORED_KN 1 // 1: B is stored k x n
#define BIAS_RELU 0   // 1: C = max(A B + bias, 0) with a bias for each column
#endif

#define A_ACROSS A_STORED_KM
#define B_ACROSS B_STORED_KN
constexpr int TILE_M = (PINGPONG ? 1 : CONSUMERS) * ROWS;  // rows of a block's tile
constexpr int TILE_N = COLUMNS;                            // its columns
constexpr int SHARING = CLUSTER_M * CLUSTER_N;             // blocks that share what they load
constexpr int CLUSTER = SHARING * CLUSTER_K;               // all blocks of a cluster
#include "rasterization.cuh"
#include "split_sums.cuh"
#include "wgmma.cuh"

constexpr int A_SHARE = TILE_M / CLUSTER_N;   // rows of A that a block loads for its cluster
constexpr int B_SHARE = B_LINES / CLUSTER_M;  // columns of B
static_assert(!PINGPONG || CONSUMERS == 2, "two take turns");
static_assert(A_SHARE % (A_STORED_KM ? 64 : 8) == 0 && B_SHARE % (B_STORED_KN ? 64 : 8) == 0, "a share is whole patterns of the swizzle");
static_assert(SIZE == 2 || !B_STORED_KN, "of four bytes wgmma takes B along the sum alone");
constexpr int PIECES = ROWS * COLUMNS / 4096;  // pieces of 64 x 64 sums of a warpgroup
constexpr int PIECE_BYTES = 4 * 4096;          // float32 sums
constexpr int OWN_PIECES = (CONSUMERS * PIECES - 1) / CLUSTER_K + 1;  // most of a tile that a block of a cluster along k adds up
static_assert(CLUSTER_K == 1 || !PINGPONG && COLUMNS % 64 == 0, "warpgroups send each other pieces of one tile");
static_assert((CLUSTER_K - 1) * OWN_PIECES * PIECE_BYTES <= STAGES * STAGE_BYTES, "sums fit where stages were");

// Waits until all threads of the cluster are here: what they wrote before is then seen.
__device__ void cluster_meets() {
    if (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else
        __syncthreads();
}

// Loads a box of a matrix to the same place in several blocks of the cluster (mask).
__device__ void load_for(unsigned short mask, unsigned to, const Map* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask) : "memory");
}

// Loads a share of an operand's tile, from row (B: column) `at` on: one box if the operand is stored along k, else one box for each
// line's width of rows.
template <bool ALONG, int SHARE>
__device__ void load_share(unsigned to, const Map* map, int at, int k, unsigned barrier, unsigned short mask, bool several) {
    #pragma unroll
    for (int part = 0; part < (ALONG ? 1 : SHARE / DEEP); part++) {
        const int x = ALONG ? k : at + DEEP * part, y = ALONG ? at : k;
        if (several) load_for(mask, to + part * DEEP * LINE, map, x, y, barrier);
        else load(to + part * DEEP * LINE, map, x, y, barrier);
    }
}

// True in the last of `parts` warpgroups that count up `arrived`, which it sets to 0 again.
__device__ bool is_last(unsigned* arrived, int parts, int thread, int consumer) {
    __threadfence();
    meet(consumer);
    unsigned last = 0;
    if (thread == 0) last = atomicAdd(arrived, 1) == parts - 1;
    asm volatile("{\n.reg .pred mine, any;\nsetp.ne.u32 mine, %0, 0;\nbarrier.red.or.pred any, %1, 128, mine;\nselp.u32 %0, 1, 0, any;\n}"
                 : "+r"(last) : "r"(1 + consumer) : "memory");
    if (last && thread == 0) *arrived = 0;
    __threadfence();
    return last;
}

// Adds the bias of their columns to a warpgroup's sums, from `column` of the product on; a negative result becomes zero, NaN stays.
__device__ __forceinline__ void add_bias(float (&d)[ROWS / 64][COLUMNS / 2], const unsigned short* bias, int column, int n) {
    column += threadIdx.x % 4 * 2;
    #pragma unroll
    for (int i = 0; i < COLUMNS / 4; i++) {
        const int at = column + i / 2 * 8 + i % 2;
        float x = 0;
        if (at < n) asm("cvt.f32." TYPE " %0, %1;" : "=f"(x) : "h"(bias[at]));
        #pragma unroll
        for (int e = 0; e < ROWS / 32; e++) {
            float& sum = d[e / 2][i / 2 * 4 + e % 2 * 2 + i % 2];
            sum = sum + x < 0 ? 0 : sum + x;
        }
    }
}

// The block (of those along k) that adds and stores a piece of a warpgroup's sums: they take turns.
__device__ int adder(int consumer, int piece) { return (consumer * PIECES + piece) % CLUSTER_K; }

// Offset, from where stages were, at which the adder of a piece gets its sums from the `other`th of the other blocks.
__device__ int sent_to(int consumer, int piece, int other) {
    return (other * OWN_PIECES + (consumer * PIECES + piece) / CLUSTER_K) * PIECE_BYTES;
}

// Split-k within a cluster: each block of a tile has a part of k. They send each other their sums through shared memory, so that each adds
// and stores some pieces: the others' sums to its own, in the blocks' order. `rank`: this block's number in the cluster.
__device__ __forceinline__ void add_in_cluster(float (&d)[ROWS / 64][COLUMNS / 2], unsigned stages, int rank, int consumer) {
    const int own = rank / SHARING, thread = threadIdx.x % 128;
    cluster_meets();  // all have read their last stage
    #pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        const int to = adder(consumer, piece);
        if (to == own) continue;
        unsigned at = stages + sent_to(consumer, piece, own - (own > to)) + thread * 16;
        asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(at) : "r"(to * SHARING + rank % SHARING));
        #pragma unroll
        for (int q = 0; q < 8; q++) {
            const float* const x = d[0] + 32 * piece + 4 * q;
            asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};"
                         :: "r"(at + q * 128 * 16), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]) : "memory");
        }
    }
    cluster_meets();
    #pragma unroll
    for (int piece = 0; piece < PIECES; piece++) {
        if (adder(consumer, piece) != own) continue;
        #pragma unroll
        for (int other = 0; other < CLUSTER_K - 1; other++)
            #pragma unroll
            for (int q = 0; q < 8; q++) {
                float* const sums = d[0] + 32 * piece + 4 * q;
                float4 x;
                asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
                             : "r"(stages + sent_to(consumer, piece, other) + thread * 16 + q * 128 * 16) : "memory");
                sums[0] += x.x, sums[1] += x.y, sums[2] += x.z, sums[3] += x.w;
            }
    }
}

// In clusters' tiles from number `whole` on, k is split into `parts` parts of `deep` stages each (split_sums.cuh); with
// CLUSTER_K that of all tiles, and each block has one part of one tile.
extern "C" __global__ void __launch_bounds__(128 + 128 * CONSUMERS, 1)
#if CLUSTER_M * CLUSTER_N * CLUSTER_K > 1
__cluster_dims__(CLUSTER_M * CLUSTER_N * CLUSTER_K, 1, 1)
#endif
matmul(const __grid_constant__ Map a_map, const __grid_constant__ Map b_map, const __grid_constant__ Map c_map,
       const __grid_constant__ Map rest_map, int m, int n, int k, int group, int whole, int parts, int deep, float* partial, unsigned* arrived, const unsigned short* bias) {
    extern __shared__ __align__(1024) char memory[];  // swizzle patterns begin at multiples of 1024 bytes
    const int team = __shfl_sync(~0u, threadIdx.x / 128, 0);  // warpgroup 0 loads, the others multiply; uniform in a warp for the compiler
    const int rank = blockIdx.x % CLUSTER;  // this block's number in the cluster
    const int rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M % CLUSTER_N, rank_k = rank / SHARING;
    Ring ring(memory, team == 0, rank_k * SHARING);
    const int units_m = (m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
    const int units_n = (n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N);
    const int units = whole + (units_m * units_n - whole) * parts, at_once = gridDim.x / SHARING;
    auto share_of = [&](int unit) { return share(unit, whole, parts, deep, (k + DEEP - 1) / DEEP); };

    asm volatile("griddepcontrol.launch_dependents;");  // the next kernel's blocks may start as these end
    // Synchronize: barriers exist before anybody waits for one.
    if (threadIdx.x == 0) prepare(ring, TILE_M / ROWS * SHARING, &a_map, &b_map, &c_map);
    cluster_meets();
    asm volatile("griddepcontrol.wait;" ::: "memory");  // this kernel may read what the one before it wrote

    // Load: one thread walks the tiles and starts the copies of every stage. It gives its registers to those that multiply.
    if (team == 0) {
        if (CONSUMERS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            const unsigned short column = ((1 << CLUSTER_M) - 1) << rank - rank_m;  // blocks that share B's tile
            unsigned short row = 0;                                                     // blocks that share A's tile
            for (int i = 0; i < CLUSTER_N; i++) row |= 1 << (rank_k * SHARING + rank_m + i * CLUSTER_M);
            for (int unit = blockIdx.x / SHARING; unit < units; unit += at_once) {
                const Share own = share_of(unit);
                int at_m, at_n;
                rasterize(own.tile, units_m, units_n, group, at_m, at_n);
                at_m = (at_m * CLUSTER_M + rank_m) * TILE_M + rank_n * A_SHARE;
                at_n = (at_n * CLUSTER_N + rank_n) * TILE_N + rank_m * B_SHARE;
                fill(ring, own.first, own.first + own.count, [&](int step, unsigned to, unsigned barrier) {
                    load_share<!A_STORED_KM, A_SHARE>(to + rank_n * A_SHARE * LINE, &a_map, at_m, step * DEEP, barrier, row,
                                                      CLUSTER_N > 1);
                    load_share<!B_STORED_KN, B_SHARE>(to + A_BYTES + rank_m * B_SHARE * LINE, &b_map, at_n, step * DEEP, barrier,
                                                      column, CLUSTER_M > 1);
                });
            }
        }
        if (CLUSTER_K > 1) cluster_meets(), cluster_meets();  // as add_in_cluster
    } else {
        if (CONSUMERS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int thread = threadIdx.x % 128, consumer = team - 1;
        const int down = PINGPONG ? 0 : consumer * ROWS;  // its first row in the tile
        unsigned part = 0;
        float d[ROWS / 64][COLUMNS / 2];
        int turn = consumer;
        // A barrier only tells odd phases from even ones, so a warpgroup must not wait for the fill of a stage after the next. With
        // ping-pong it begins when the other one has seen the last stage of its tile. Named barrier 4 + i lets warpgroup i begin.
        if (PINGPONG && consumer == 1) asm volatile("bar.arrive %0, 256;" :: "r"(4) : "memory");
        for (int unit = blockIdx.x / SHARING; unit < units; unit += at_once) {
            const Share own = share_of(unit);
            if (PINGPONG && turn-- > 0) {  // the other warpgroup's tile: its stages are skipped
                ring.skip(own.count);
                continue;
            }
            turn = CONSUMERS - 1;
            int at_m, at_n;
            rasterize(own.tile, units_m, units_n, group, at_m, at_n);
            at_m = (at_m * CLUSTER_M + rank_m) * TILE_M + down;
            at_n = (at_n * CLUSTER_N + rank_n) * TILE_N;
            if (PINGPONG) asm volatile("bar.sync %0, 256;" :: "r"(4 + consumer) : "memory");
            // Synchronize and multiply: each stage as it arrives (wgmma.cuh).
            multiply_tile(d, ring, down, own.count, [&] {
                if (PINGPONG && unit + at_once < units) asm volatile("bar.arrive %0, 256;" :: "r"(5 - consumer) : "memory");
            });
            const int cut = own.tile - whole, piece_of_c = (cut * CLUSTER + rank) * (TILE_M / ROWS) + down / ROWS;
            auto last = [&] { return is_last(arrived + piece_of_c, parts, thread, consumer); };
            if (CLUSTER_K > 1) add_in_cluster(d, ring.stages, rank, consumer);
            else if (parts > 1 && cut >= 0
                && !added<ROWS / 64 * COLUMNS / 8, 128>(d[0], partial, piece_of_c, unit - whole - cut * parts, parts, thread, last))
                continue;
            // Store: by TMA through shared memory, while the next tile begins.
            if (BIAS_RELU) add_bias(d, bias, at_n, n);
            store_tile(d, &c_map, &rest_map, at_m, at_n, ring.results + consumer * STAGED * PART_BYTES, part, consumer,
                       [&](int piece) { return CLUSTER_K == 1 || adder(consumer, piece) == rank_k; });
        }
        if (thread == 0) stored<0>();  // TMA must read shared memory before the block ends
    }
    cluster_meets();  // no block ends while others still write into its shared memory or signal its barriers
}
