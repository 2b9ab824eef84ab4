// sm_90a
// C = A B on Hopper: one warp has the copy engine (TMA) fill a ring of tiles, warpgroups multiply them with wgmma, results go
// back by TMA too. One block a multiprocessor stays and takes tile after tile; blocks of a cluster share what they load.
#ifndef TYPE
#define TYPE "bf16"   // of A, B and C: bf16 or f16, or tf32; sums are float32
#define TF32 0        // 1: so it is, and C is float32
#define CONSUMERS 2   // warpgroups that multiply
#define ROWS 64       // of C's tile, a warpgroup
#define COLUMNS 256   // of C's tile: 64, 128, 192 or 256
#define STAGES 4      // stages of the ring, each with 64 of k
#define CLUSTER_M 2   // blocks above each other: they share B's tile
#define CLUSTER_N 1   // blocks side by side: they share A's tile
#define PINGPONG 0     // 1: each warpgroup has tiles of its own, so that one multiplies while the other's results leave
#define STAGED 2      // parts of 64 x 64 of a warpgroup's results that may be on their way out
#define A_STORED_KM 0 // 1: A lies k x m
#define B_STORED_KN 1 // 1: B lies k x n
#define BIAS_RELU 0   // 1: C = max(A B + bias, 0) with a bias for each column
#endif

#define A_ACROSS A_STORED_KM
#define B_ACROSS B_STORED_KN
constexpr int TILE_M = (PINGPONG ? 1 : CONSUMERS) * ROWS, TILE_N = COLUMNS, CLUSTER = CLUSTER_M * CLUSTER_N;
#include "rasterization.cuh"
#include "split_sums.cuh"
#include "wgmma.cuh"

constexpr int A_SHARE = TILE_M / CLUSTER_N, B_SHARE = TILE_N / CLUSTER_M;  // rows that this block loads for its cluster
static_assert(!PINGPONG || CONSUMERS == 2, "two take turns");
static_assert(A_SHARE % (A_STORED_KM ? 64 : 8) == 0 && B_SHARE % (B_STORED_KN ? 64 : 8) == 0, "a share is whole patterns of the swizzle");
static_assert(SIZE == 2 || !B_STORED_KN, "of four bytes wgmma takes B along the sum alone");

__device__ void cluster_meets() {
    if (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else
        __syncthreads();
}

// A box of a matrix at the same place in several blocks of the cluster (mask).
__device__ void load_for(unsigned short mask, unsigned to, const Map* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                 "[%0], [%1, {%2, %3}], [%4], %5;"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask) : "memory");
}

// The share of an operand's tile whose first row (of A, column of B) is `at`: one box when k lies along the line, else one box
// for each line's width of rows.
template <bool ALONG, int SHARE>
__device__ void load_share(unsigned to, const Map* map, int at, int k, unsigned barrier, unsigned short mask, bool several) {
    #pragma unroll
    for (int part = 0; part < (ALONG ? 1 : SHARE / DEEP); part++) {
        const int x = ALONG ? k : at + DEEP * part, y = ALONG ? at : k;
        if (several) load_for(mask, to + part * DEEP * LINE, map, x, y, barrier);
        else load(to + part * DEEP * LINE, map, x, y, barrier);
    }
}

// Whether this warpgroup is the last of `parts` that come to `arrived`.
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

// A warpgroup's sums with the bias of their columns, from `column` of the product on, and zero where that is less; NaN stays.
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

// Clusters' tiles from `whole` on have k in `parts` of `deep` stages each (split_sums.cuh).
extern "C" __global__ void __launch_bounds__(128 + 128 * CONSUMERS, 1)
#if CLUSTER_M * CLUSTER_N > 1
__cluster_dims__(CLUSTER_M * CLUSTER_N, 1, 1)
#endif
matmul(const __grid_constant__ Map a_map, const __grid_constant__ Map b_map, const __grid_constant__ Map c_map,
       int m, int n, int k, int group, int whole, int parts, int deep, float* partial, unsigned* arrived, const unsigned short* bias) {
    extern __shared__ __align__(1024) char memory[];  // the swizzle counts from multiples of 1024
    const int team = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the first loads, the others multiply; one number for the compiler
    Ring ring(memory, team == 0);
    const int rank = blockIdx.x % CLUSTER;  // in the cluster
    const int rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
    const int units_m = (m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
    const int units_n = (n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N);
    const int units = whole + (units_m * units_n - whole) * parts, clusters = gridDim.x / CLUSTER;
    auto share_of = [&](int unit) { return share(unit, whole, parts, deep, (k + DEEP - 1) / DEEP); };

    asm volatile("griddepcontrol.launch_dependents;");  // the next kernel's blocks may come as these leave
    if (threadIdx.x == 0) prepare(ring, TILE_M / ROWS * CLUSTER, &a_map, &b_map, &c_map);
    cluster_meets();
    asm volatile("griddepcontrol.wait;" ::: "memory");  // what this kernel reads may be what the one before it wrote

    if (team == 0) {
        if (CONSUMERS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x == 0) {
            const unsigned short column = ((1 << CLUSTER_M) - 1) << rank_n * CLUSTER_M;  // who shares B's tile
            unsigned short row = 0;                                                     // who shares A's tile
            for (int i = 0; i < CLUSTER_N; i++) row |= 1 << (rank_m + i * CLUSTER_M);
            for (int unit = blockIdx.x / CLUSTER; unit < units; unit += clusters) {
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
    } else {
        if (CONSUMERS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        const int thread = threadIdx.x % 128, consumer = team - 1;
        const int down = PINGPONG ? 0 : consumer * ROWS;  // the first of its rows in the tile
        unsigned part = 0;
        float d[ROWS / 64][COLUMNS / 2];
        int turn = consumer;
        // A barrier tells odd phases from even ones alone, so who takes turns may not wait for a stage's next but one filling:
        // it begins when the other has seen the last of its own. Barrier 4 + i lets warpgroup i begin.
        if (PINGPONG && consumer == 1) asm volatile("bar.arrive %0, 256;" :: "r"(4) : "memory");
        for (int unit = blockIdx.x / CLUSTER; unit < units; unit += clusters) {
            const Share own = share_of(unit);
            if (PINGPONG && turn-- > 0) {  // another's tile: its stages go by
                ring.skip(own.count);
                continue;
            }
            turn = CONSUMERS - 1;
            int at_m, at_n;
            rasterize(own.tile, units_m, units_n, group, at_m, at_n);
            at_m = (at_m * CLUSTER_M + rank_m) * TILE_M + down;
            at_n = (at_n * CLUSTER_N + rank_n) * TILE_N;
            if (PINGPONG) asm volatile("bar.sync %0, 256;" :: "r"(4 + consumer) : "memory");
            multiply_tile(d, ring, down, own.count, [&] {
                if (PINGPONG && unit + clusters < units) asm volatile("bar.arrive %0, 256;" :: "r"(5 - consumer) : "memory");
            });
            const int cut = own.tile - whole, piece_of_c = (cut * CLUSTER + rank) * (TILE_M / ROWS) + down / ROWS;
            auto last = [&] { return is_last(arrived + piece_of_c, parts, thread, consumer); };
            if (parts > 1 && cut >= 0
                && !added<ROWS / 64 * COLUMNS / 8, 128>(d[0], partial, piece_of_c, unit - whole - cut * parts, parts, thread, last))
                continue;
            if (BIAS_RELU) add_bias(d, bias, at_n, n);
            store_tile(d, &c_map, at_m, at_n, ring.results + consumer * STAGED * PART_BYTES, part, consumer);
        }
        if (thread == 0) stored<0>();  // shared memory goes with the block
    }
    cluster_meets();  // nobody leaves while others still write into its shared memory or tell its barriers
}
