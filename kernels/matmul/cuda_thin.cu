// sm_90a
// C = A B with few rows, 64 at most: products of small batches and of inference, which are bound by reading B, the weights, once.
// It adds to cuda_wgmma.cu: the operands change sides. wgmma's side of 64 lines has columns of B, and its narrow side the rows of
// A, so that few rows leave no line of a tile empty: C^T = B^T A^T. All shared memory is a ring that B fills from the first cycle
// on, and k is split over the blocks of a cluster, so that most multiprocessors read where columns are few.
//
//            k ->                                    one block
//    +-------+-------+-------+-------+              ring of STAGES         warpgroups (CONSUMERS)
//    | rank 0| rank 1| rank 2| rank 3|  a tile      +-----------------+
//    +-------+-------+-------+-------+         TMA  | B: TILE_M lines | ---> ROWS x COLUMNS of
//        |       |       |       |             ---> | A: COLUMNS lines|      C^T in registers
//        v       v       v       v                  +-----------------+
//      sums    sums    sums    sums     each block sends shares of its sums to the other
//        \       \       /       /       blocks (st.async into their shared memory)
//       block r adds the shares r and stores them: columns of C^T are rows of C
//
// Takes, from the constants here (defaults):
//   shared memory: STAGES * ((TILE_M + COLUMNS) * 128 + 16) + 16 = 205,136 bytes of a block for the ring, and
//                  (CLUSTER_K - 1) * SHARE * THREADS * 4 = 2,048 bytes for what the other blocks send
//   registers:     ROWS / 64 * COLUMNS / 2 = 8 sums a thread
// Source: NVIDIA, PTX ISA, "wgmma", "st.async", "mbarrier"; CUTLASS 3, Hopper's warp-specialized persistent kernels.

#ifndef TYPE
#define TYPE "bf16"   // of A, B and C: bf16 or f16, or tf32; sums are float32
#define TF32 0        // 1: TYPE is tf32, and A, B and C are float32 in memory
#define CONSUMERS 1   // warpgroups that multiply
#define ROWS 64       // columns of B per warpgroup
#define COLUMNS 16    // rows of A, rounded up: 16, 32 or 64
#define STAGES 20     // stages of the ring, each with 128 bytes of k
#define CLUSTER_K 2   // blocks of a cluster: each multiplies a part of k
#define B_STORED_KN 1 // 1: B is stored k x n
#endif

#define A_ACROSS B_STORED_KN  // wgmma's left side is B^T
#define B_ACROSS 0            // its right side is A^T, stored along k
#define STAGED 0              // results do not leave through shared memory
constexpr int TILE_M = CONSUMERS * ROWS;  // columns of B of a tile
constexpr int TILE_N = COLUMNS;           // rows of A
constexpr int SHARING = 1;                // no block shares what it loads
#include "wgmma.cuh"

constexpr int THREADS = 128 * CONSUMERS;             // that multiply; a warp more loads
constexpr int THREAD_SUMS = ROWS / 64 * COLUMNS / 2;  // sums of a thread
constexpr int SHARE = THREAD_SUMS / CLUSTER_K;        // of them that a block adds up for the cluster
constexpr int WIDTH = SHARE % 4 == 0 ? 4 : SHARE % 2 == 0 ? 2 : 1;  // sums that are sent at once
static_assert(THREAD_SUMS % CLUSTER_K == 0, "every block adds as many sums");

#if TF32
typedef float Item;
__device__ float rounded(float sum) { return sum; }
#else
typedef unsigned short Item;
__device__ unsigned short rounded(float sum) { return (unsigned short)packed(sum, 0); }
#endif

// The barriers and the place of the exchange within a cluster, behind the ring in shared memory.
struct Exchange {
    unsigned sent, taken, place;  // `sent`: all shares have come; `taken`: the other blocks have read what this block sent
    const char* shares;
    __device__ Exchange(const char* memory) {
        const int begin = STAGES * (STAGE_BYTES + 16);
        sent = shared(memory) + begin, taken = sent + 8, place = sent + 16, shares = memory + begin + 16;
    }
};

// The cluster's blocks meet once: their barriers then exist (`prepare` has a fence for that, so `relaxed` suffices).
__device__ void cluster_arrives() {
    if (CLUSTER_K > 1) asm volatile("barrier.cluster.arrive.relaxed;" ::: "memory");
}

__device__ void cluster_waits() {
    if (CLUSTER_K > 1) asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The address in another block of the cluster of what has this address here.
__device__ unsigned in_block(int rank, unsigned address) {
    asm volatile("mapa.shared::cluster.u32 %0, %0, %1;" : "+r"(address) : "r"(rank));
    return address;
}

// Sends WIDTH sums to another block, whose barrier counts their bytes.
__device__ __forceinline__ void send(unsigned to, const float* x, unsigned barrier) {
    if constexpr (WIDTH == 4)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];"
                     :: "r"(to), "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(barrier) : "memory");
    else if constexpr (WIDTH == 2)
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];"
                     :: "r"(to), "f"(x[0]), "f"(x[1]), "r"(barrier) : "memory");
    else
        asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];"
                     :: "r"(to), "f"(x[0]), "r"(barrier) : "memory");
}

// Offset at which a block has sums q * WIDTH and following of a thread's share from the `other`th of the other blocks: neighboring
// threads have neighboring places.
__device__ int share_at(int other, int q, int thread) { return ((other * (SHARE / WIDTH) + q) * THREADS + thread) * WIDTH * 4; }

// Adds the sums of all blocks of the cluster: `mine` is this block's share of them. `round`: how many tiles there were before.
// Nothing is on its way to a block that has waited for all shares of its `last` tile, so blocks may end one by one.
__device__ __forceinline__ void add_in_cluster(float (&mine)[SHARE], const float* sums, const Exchange& exchange, int rank, int round,
                                               bool last) {
    const int thread = threadIdx.x;
    if (thread == 0) announce(exchange.sent, (CLUSTER_K - 1) * SHARE * THREADS * 4);
    if (round > 0) wait(exchange.taken, (round - 1) % 2);
    #pragma unroll
    for (int to = 0; to < CLUSTER_K; to++) {
        if (to == rank) {
            #pragma unroll
            for (int i = 0; i < SHARE; i++) mine[i] = sums[to * SHARE + i];
            continue;
        }
        const unsigned place = in_block(to, exchange.place), barrier = in_block(to, exchange.sent);
        #pragma unroll
        for (int q = 0; q < SHARE / WIDTH; q++)
            send(place + share_at(rank - (rank > to), q, thread), sums + to * SHARE + q * WIDTH, barrier);
    }
    wait(exchange.sent, round % 2);
    #pragma unroll
    for (int other = 0; other < CLUSTER_K - 1; other++)
        #pragma unroll
        for (int q = 0; q < SHARE / WIDTH; q++) {
            const float* const share = (const float*)(exchange.shares + share_at(other, q, thread));
            #pragma unroll
            for (int i = 0; i < WIDTH; i++) mine[q * WIDTH + i] += share[i];
        }
    if (last) return;
    meet(thread / 128);  // the warpgroup has read its sums: the other blocks may send those of the next tile
    if (thread % 128 < CLUSTER_K && thread % 128 != rank)
        asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" :: "r"(in_block(thread % 128, exchange.taken)) : "memory");
}

// Stores sums `first` and following of a thread: rows of C are columns of the tile, which begins at `column` of C.
__device__ __forceinline__ void store(const float (&mine)[SHARE], int first, Item* c, int column, int m, int n) {
    const int warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32, g = lane / 4;
    column += threadIdx.x / 128 * ROWS;
    #pragma unroll
    for (int i = 0; i < SHARE; i++) {
        const int sum = first + i, e = sum % (COLUMNS / 2), lower = e % 4 / 2;
#if TF32 && A_ACROSS
        const int line = 32 * lower + 4 * warp + g / 4 * 16 + g % 4;  // Operand::read
#else
        const int line = 16 * warp + 8 * lower + g;
#endif
        const int at_n = column + sum / (COLUMNS / 2) * 64 + line, at_m = e / 4 * 8 + lane % 4 * 2 + e % 2;
        if (at_m < m && at_n < n) c[(long long)at_m * n + at_n] = rounded(mine[i]);
    }
}

// A cluster takes tile after tile; with as many clusters as tiles, one each.
extern "C" __global__ void __launch_bounds__(THREADS + 32, 1)
#if CLUSTER_K > 1
__cluster_dims__(CLUSTER_K, 1, 1)
#endif
matmul(const __grid_constant__ Map b_map, const __grid_constant__ Map a_map, Item* c, int m, int n, int k) {
    extern __shared__ __align__(1024) char memory[];  // swizzle patterns begin at multiples of 1024 bytes
    const bool loads = __shfl_sync(~0u, threadIdx.x / 32, 0) == THREADS / 32;  // uniform in a warp for the compiler
    const int rank = blockIdx.x % CLUSTER_K, clusters = gridDim.x / CLUSTER_K;
    const int tiles = (n + TILE_M - 1) / TILE_M, steps = (k + DEEP - 1) / DEEP;
    const int first = steps * rank / CLUSTER_K, end = steps * (rank + 1) / CLUSTER_K;  // this block's part of k
    Ring ring(memory, loads);
    const Exchange exchange(memory);

    asm volatile("griddepcontrol.launch_dependents;");  // the next kernel's blocks may start as these end
    // Synchronize: barriers exist before anybody waits for one. The other blocks' are needed only when sums are sent.
    if (threadIdx.x == THREADS) {
        if (CLUSTER_K > 1) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(exchange.sent));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(exchange.taken), "r"((CLUSTER_K - 1) * CONSUMERS));
        }
        prepare(ring, CONSUMERS, &b_map, &a_map);
    }
    __syncthreads();
    cluster_arrives();
    asm volatile("griddepcontrol.wait;" ::: "memory");  // this kernel may read what the one before it wrote

    // Load: one thread starts the copies of every stage, as far ahead as the ring has room.
    if (loads) {
        if (threadIdx.x == THREADS) {
            for (int tile = blockIdx.x / CLUSTER_K; tile < tiles; tile += clusters) {
                fill(ring, first, end, [&](int step, unsigned to, unsigned barrier) {
#if B_STORED_KN
                    #pragma unroll
                    for (int part = 0; part < TILE_M / DEEP; part++)
                        load(to + part * DEEP * LINE, &b_map, tile * TILE_M + part * DEEP, step * DEEP, barrier);
#else
                    load(to, &b_map, step * DEEP, tile * TILE_M, barrier);
#endif
                    load(to + A_BYTES, &a_map, step * DEEP, 0, barrier);
                });
            }
        }
        __syncwarp();
        cluster_waits();
    } else {
        const int down = threadIdx.x / 128 * ROWS;  // the warpgroup's first line in the tile
        int round = 0;
        cluster_waits();
        for (int tile = blockIdx.x / CLUSTER_K; tile < tiles; tile += clusters, round++) {
            // Synchronize and multiply: each stage as it arrives (wgmma.cuh).
            float d[ROWS / 64][COLUMNS / 2], mine[SHARE];
            multiply_tile(d, ring, down, end - first, [] {});
            // Add: a share of the sums in each block.
            if constexpr (CLUSTER_K > 1) {
                add_in_cluster(mine, d[0], exchange, rank, round, tile + clusters >= tiles);
            } else {
                #pragma unroll
                for (int i = 0; i < SHARE; i++) mine[i] = d[i / (COLUMNS / 2)][i % (COLUMNS / 2)];
            }
            store(mine, rank * SHARE, c, tile * TILE_M, m, n);
        }
    }
}
