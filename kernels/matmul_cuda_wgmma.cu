// sm_90a
// C = A B on Hopper: one warp has the copy engine (TMA) fill a ring of tiles, warpgroups multiply them with wgmma, results go
// back by TMA too. One block a multiprocessor stays and takes tile after tile; blocks of a cluster share what they load.
#ifndef TYPE
#define TYPE "bf16"   // of A, B and C: bf16 or f16; sums are float32
#define CONSUMERS 2   // warpgroups that multiply
#define ROWS 64       // of C's tile, a warpgroup
#define COLUMNS 256   // of C's tile: 64, 128, 192 or 256
#define STAGES 4      // places in the ring, each with 64 of k
#define CLUSTER_M 2   // blocks above each other: they share B's tile
#define CLUSTER_N 1   // blocks side by side: they share A's tile
#define IN_TURN 0     // 1: each warpgroup has tiles of its own, so that one multiplies while the other's results leave
#define STAGED 2      // parts of 64 x 64 of a warpgroup's results that may be on their way out
#define A_STORED_KM 0 // 1: A lies k x m
#define B_STORED_KN 1 // 1: B lies k x n
#endif

constexpr int DEEP = 64, LINE = 128;  // k of a place; bytes of a line, which is also how wide the swizzle is
constexpr int TILE_M = (IN_TURN ? 1 : CONSUMERS) * ROWS, TILE_N = COLUMNS, CLUSTER = CLUSTER_M * CLUSTER_N;
constexpr int A_BYTES = TILE_M * LINE, B_BYTES = TILE_N * LINE, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int OUT_BYTES = 64 * LINE;  // a part of the results: 64 rows of 64
constexpr int A_SHARE = TILE_M / CLUSTER_N, B_SHARE = TILE_N / CLUSTER_M;  // rows that this block loads for its cluster
static_assert(!IN_TURN || CONSUMERS == 2, "two take turns");
static_assert(ROWS % 64 == 0 && COLUMNS % 64 == 0, "tiles are made of 64 x 64");
static_assert(A_SHARE % (A_STORED_KM ? 64 : 8) == 0 && B_SHARE % (B_STORED_KN ? 64 : 8) == 0, "a share is whole patterns of the swizzle");

struct alignas(64) Map { char bytes[128]; };  // CUtensorMap

__device__ unsigned shared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }

// Until the barrier's phase of that parity is complete; stops the kernel after 4 s, as no wait here takes a millisecond. One piece
// of PTX: a trap that the compiler sees as a way out costs it the registers of products under way.
__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done, early;\n.reg .u64 since, now;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nmov.u64 since, %globaltimer;\n"
                 "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
                 "mov.u64 now, %globaltimer;\nsub.u64 now, now, since;\nsetp.lt.u64 early, now, 4000000000;\n@early bra AGAIN;\n"
                 "trap;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

__device__ void cluster_meets() {
    if (CLUSTER > 1)
        asm volatile("barrier.cluster.arrive.release;\nbarrier.cluster.wait.acquire;" ::: "memory");
    else
        __syncthreads();
}

// A box of 64 columns from (x, y) on into shared memory, of this block or (mask) at the same place in several of its cluster.
__device__ void load(unsigned to, const Map* map, int x, int y, unsigned barrier, unsigned short mask, bool several) {
    if (several)
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster "
                     "[%0], [%1, {%2, %3}], [%4], %5;"
                     :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier), "h"(mask) : "memory");
    else
        asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                     :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

// The share of an operand's tile whose first row (of A, column of B) is `at`: one box when k lies along the line, else one box
// for each 64 rows.
template <bool ALONG_K, int SHARE>
__device__ void load_share(unsigned to, const Map* map, int at, int k, unsigned barrier, unsigned short mask, bool several) {
    if (ALONG_K) {
        load(to, map, k, at, barrier, mask, several);
    } else {
        #pragma unroll
        for (int part = 0; part < SHARE / 64; part++)
            load(to + part * DEEP * LINE, map, at + 64 * part, k, barrier, mask, several);
    }
}

// wgmma's descriptor of an operand in 128-byte swizzle, 8 lines (1024 bytes) a pattern. Along k: patterns follow each other in
// rows. Across: lines are of one k and 64 rows, patterns follow each other in k, and the next 64 rows begin 64 lines later.
__device__ unsigned long long descriptor(unsigned at, bool along_k) {
    const unsigned long long leading = along_k ? 1 : DEEP * LINE >> 4, stride = 8 * LINE >> 4;
    return ((at & 0x3ffffull) >> 4) | leading << 16 | stride << 32 | 1ull << 62;
}

#define S0 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,%30,%31"
#define S1 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define S2 ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79,%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"
#define S3 ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111,%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
#define D8(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), "+f"(d[i + 6]), "+f"(d[i + 7])
#define D32(i) D8(i), D8(i + 8), D8(i + 16), D8(i + 24)
#if COLUMNS == 64
#define SUMS S0
#define HELD D32(0)
#define OPERANDS "%32, %33, p, 1, 1, %35, %36"
#define ADD "%34"
#elif COLUMNS == 128
#define SUMS S0 S1
#define HELD D32(0), D32(32)
#define OPERANDS "%64, %65, p, 1, 1, %67, %68"
#define ADD "%66"
#elif COLUMNS == 192
#define SUMS S0 S1 S2
#define HELD D32(0), D32(32), D32(64)
#define OPERANDS "%96, %97, p, 1, 1, %99, %100"
#define ADD "%98"
#else
#define SUMS S0 S1 S2 S3
#define HELD D32(0), D32(32), D32(64), D32(96)
#define OPERANDS "%128, %129, p, 1, 1, %131, %132"
#define ADD "%130"
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// d = A B + (add ? d : 0) of 64 x COLUMNS x 16.
__device__ __forceinline__ void multiply(float (&d)[COLUMNS / 2], unsigned long long a, unsigned long long b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n" TEXT(COLUMNS) "k16.f32." TYPE "." TYPE " {" SUMS "}, " OPERANDS ";\n}"
                 : HELD : "l"(a), "l"(b), "r"(add), "n"(A_STORED_KM), "n"(B_STORED_KN));
}

__device__ unsigned packed(float low, float high) {
    unsigned both;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// The unit of work number `unit`: clusters of tiles, `group` rows of them at a time, column by column, so that those at work
// together form a block near a square, whose operands stay in the L2.
__device__ void place(int unit, int units_m, int units_n, int group, int& m, int& n) {
    const int first = unit / (group * units_n) * group, high = min(group, units_m - first), within = unit % (group * units_n);
    m = first + within % high;
    n = within / high;
}

extern "C" __global__ void __launch_bounds__(128 + 128 * CONSUMERS, 1)
#if CLUSTER_M * CLUSTER_N > 1
__cluster_dims__(CLUSTER_M * CLUSTER_N, 1, 1)
#endif
matmul(const __grid_constant__ Map a_map, const __grid_constant__ Map b_map, const __grid_constant__ Map c_map,
       int m, int n, int k, int group) {
    extern __shared__ char raw[];
    char* const memory = raw + (-shared(raw) & 1023);  // the swizzle counts from multiples of 1024
    const unsigned ring = shared(memory), out = ring + STAGES * STAGE_BYTES;
    const unsigned full = out + CONSUMERS * STAGED * OUT_BYTES, empty = full + 8 * STAGES;
    const int team = __shfl_sync(~0u, threadIdx.x / 128, 0);  // the first loads, the others multiply; one number for the compiler
    unsigned rank = 0;
    if (CLUSTER > 1) asm("mov.u32 %0, %cluster_ctarank;" : "=r"(rank));
    const int rank_m = rank % CLUSTER_M, rank_n = rank / CLUSTER_M;
    const int units_m = (m + TILE_M * CLUSTER_M - 1) / (TILE_M * CLUSTER_M);
    const int units_n = (n + TILE_N * CLUSTER_N - 1) / (TILE_N * CLUSTER_N);
    const int units = units_m * units_n, clusters = gridDim.x / CLUSTER, steps = (k + DEEP - 1) / DEEP;

    asm volatile("griddepcontrol.launch_dependents;");  // the next kernel's blocks may come as these leave
    if (threadIdx.x == 0) {
        asm volatile("prefetch.tensormap [%0];\nprefetch.tensormap [%1];\nprefetch.tensormap [%2];"
                     :: "l"(&a_map), "l"(&b_map), "l"(&c_map) : "memory");
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8 * i));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(empty + 8 * i), "r"(TILE_M / ROWS * CLUSTER));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    cluster_meets();
    asm volatile("griddepcontrol.wait;" ::: "memory");  // what this kernel reads may be what the one before it wrote

    if (team == 0) {
        if (CONSUMERS == 2) asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (CONSUMERS == 3) asm volatile("setmaxnreg.dec.sync.aligned.u32 32;");
        if (threadIdx.x == 0) {
            unsigned slot = 0, parity = 1;  // of a barrier that has completed nothing, parity 1 counts as complete
            const unsigned short column = ((1 << CLUSTER_M) - 1) << rank_n * CLUSTER_M;  // who shares B's tile
            unsigned short row = 0;                                                     // who shares A's tile
            for (int i = 0; i < CLUSTER_N; i++) row |= 1 << (rank_m + i * CLUSTER_M);
            for (int unit = blockIdx.x / CLUSTER; unit < units; unit += clusters) {
                int at_m, at_n;
                place(unit, units_m, units_n, group, at_m, at_n);
                at_m = (at_m * CLUSTER_M + rank_m) * TILE_M + rank_n * A_SHARE;
                at_n = (at_n * CLUSTER_N + rank_n) * TILE_N + rank_m * B_SHARE;
                for (int step = 0; step < steps; step++) {
                    const unsigned barrier = full + 8 * slot, to = ring + slot * STAGE_BYTES;
                    wait(empty + 8 * slot, parity);
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                                 :: "r"(barrier), "r"(STAGE_BYTES) : "memory");
                    load_share<!A_STORED_KM, A_SHARE>(to + rank_n * A_SHARE * LINE, &a_map, at_m, step * DEEP, barrier, row,
                                                      CLUSTER_N > 1);
                    load_share<!B_STORED_KN, B_SHARE>(to + A_BYTES + rank_m * B_SHARE * LINE, &b_map, at_n, step * DEEP, barrier,
                                                      column, CLUSTER_M > 1);
                    if (++slot == STAGES) slot = 0, parity ^= 1;
                }
            }
        }
    } else {
        if (CONSUMERS == 2) asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
        if (CONSUMERS == 3) asm volatile("setmaxnreg.inc.sync.aligned.u32 160;");
        const int thread = threadIdx.x % 128, lane = thread % 32, consumer = team - 1;
        const int own = IN_TURN ? 0 : consumer * ROWS;  // the first of its rows in the tile
        const unsigned staged = out + consumer * STAGED * OUT_BYTES;
        // where this thread writes for stmatrix: 8 x 8 matrices in the order upper left, lower left, upper right, lower right
        const int line = thread / 32 * 16 + lane % 16, piece = lane / 16;
        unsigned far_empty = empty;  // the barriers of the block that this thread tells
        if (CLUSTER > 1 && thread < CLUSTER)
            asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(far_empty) : "r"(empty), "r"(thread));
        auto release = [&](unsigned slot) {  // tells every block of the cluster that loads into this place
            if (thread < CLUSTER)
                asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(far_empty + 8 * slot) : "memory");
        };
        unsigned slot = 0, parity = 0, part = 0;
        float d[ROWS / 64][COLUMNS / 2];
        int turn = consumer;
        // A barrier tells odd phases from even ones alone, so who takes turns may not wait for a place's next but one filling:
        // it begins when the other has seen the last of its own. Barrier 4 + i lets warpgroup i begin.
        if (IN_TURN && consumer == 1) asm volatile("bar.arrive %0, 256;" :: "r"(4) : "memory");
        for (int unit = blockIdx.x / CLUSTER; unit < units; unit += clusters) {
            if (IN_TURN && turn-- > 0) {  // another's tile: its places in the ring go by
                const unsigned on = slot + steps;
                slot = on % STAGES, parity ^= on / STAGES & 1;
                continue;
            }
            turn = CONSUMERS - 1;
            int at_m, at_n;
            place(unit, units_m, units_n, group, at_m, at_n);
            at_m = (at_m * CLUSTER_M + rank_m) * TILE_M + own;
            at_n = (at_n * CLUSTER_N + rank_n) * TILE_N;
            unsigned before = 0;
            if (IN_TURN) asm volatile("bar.sync %0, 256;" :: "r"(4 + consumer) : "memory");
            #pragma unroll 1
            for (int step = 0; step < steps; step++) {
                const unsigned at = ring + slot * STAGE_BYTES;
                const unsigned long long a = descriptor(at + own * LINE, !A_STORED_KM);
                const unsigned long long b = descriptor(at + A_BYTES, !B_STORED_KN);
                wait(full + 8 * slot, parity);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                #pragma unroll
                for (int i = 0; i < DEEP / 16; i++)
                    #pragma unroll
                    for (int r = 0; r < ROWS / 64; r++)
                        multiply(d[r], a + r * (64 * LINE >> 4) + i * (A_STORED_KM ? 16 * LINE >> 4 : 32 >> 4),
                                 b + i * (B_STORED_KN ? 16 * LINE >> 4 : 32 >> 4), step | i);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // those of the step before are done
                if (step) release(before);
                before = slot;
                if (++slot == STAGES) slot = 0, parity ^= 1;
            }
            if (IN_TURN && unit + clusters < units) asm volatile("bar.arrive %0, 256;" :: "r"(5 - consumer) : "memory");
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            release(before);
            #pragma unroll
            for (int r = 0; r < ROWS / 64; r++) {
                #pragma unroll
                for (int c = 0; c < COLUMNS / 64; c++) {
                    const unsigned to = staged + part * OUT_BYTES;
                    if (thread == 0) asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(STAGED - 1) : "memory");
                    asm volatile("bar.sync %0, 128;" :: "r"(1 + consumer) : "memory");
                    #pragma unroll
                    for (int q = 0; q < 4; q++) {
                        const float* v = d[r] + 32 * c + 8 * q;
                        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                                     :: "r"(to + line * LINE + ((2 * q + piece) ^ line % 8) * 16), "r"(packed(v[0], v[1])),
                                        "r"(packed(v[2], v[3])), "r"(packed(v[4], v[5])), "r"(packed(v[6], v[7])) : "memory");
                    }
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    asm volatile("bar.sync %0, 128;" :: "r"(1 + consumer) : "memory");
                    if (thread == 0) {
                        asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                                     :: "l"(&c_map), "r"(at_n + 64 * c), "r"(at_m + 64 * r), "r"(to) : "memory");
                        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                    }
                    if (++part == STAGED) part = 0;
                }
            }
        }
        if (thread == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");  // shared memory goes with the block
    }
    cluster_meets();  // nobody leaves while others still write into its shared memory or tell its barriers
}
