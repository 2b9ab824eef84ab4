// Shared text: the copy engine (TMA) fills stages, warpgroups multiply them by wgmma, and TMA stores the results. A stage has DEEP items
// of the sum for ROWS rows (per warpgroup) and COLUMNS columns. A_ACROSS, B_ACROSS: the operand's lines lie across the sum, not along it.
// TF32: items have four bytes. wgmma then reads shared memory only along the sum, so A across the sum goes through registers, and
// its results are stored transposed: C is n x m.
//
//    shared memory                                  the swizzle: of line l piece p is at p ^ l % 8
//    +----------------------------+ STAGES of       line 0  |0|1|2|3|4|5|6|7|  8 pieces of
//    | A: lines of 128 bytes      | these           line 1  |1|0|3|2|5|4|7|6|  16 bytes: a column
//    | B: lines of 128 bytes      |                 line 2  |2|3|0|1|6|7|4|5|  of pieces touches
//    +----------------------------+                 ..                         all banks
//    | results, parts of 64 lines | STAGED a warpgroup
//    +----------------------------+                 full:  --bytes have arrived-> may be multiplied
//    | barriers: full, empty      | 8 bytes each    empty: --has been read-----> may be filled
//    +----------------------------+
//
// Takes, from the constants here:
//   shared memory: PART_BYTES = 8,192 bytes a part of the results, STAGE_BYTES + 16 a stage
//   registers:     ROWS * COLUMNS / 128 sums a thread
// Source: NVIDIA, PTX ISA, "wgmma" (descriptors, 128-byte swizzle), "mbarrier", "stmatrix"; CUTLASS 3, Hopper's pipelines.

#include "pairs.cuh"
#include "shared.cuh"
#include "sum_lists.cuh"

struct alignas(64) Map { char bytes[128]; };  // CUtensorMap

#if TF32
#define EACH_K "8"
constexpr int SIZE = 4;
#else
#define EACH_K "16"
constexpr int SIZE = 2;
#endif
constexpr int LINE = 128;          // bytes of a line: the width of the widest swizzle (PTX ISA)
constexpr int DEEP = LINE / SIZE;  // items of the sum per stage
constexpr int PART_BYTES = 64 * LINE;          // a part of the results: 64 lines
constexpr int B_LINES = B_ACROSS ? (TILE_N + DEEP - 1) / DEEP * DEEP : TILE_N;  // of whole boxes
constexpr int A_BYTES = TILE_M * LINE;   // of A's tile in a stage
constexpr int B_BYTES = B_LINES * LINE;  // of B's
constexpr int STAGE_BYTES = A_BYTES + B_BYTES;
constexpr bool FROM_REGISTERS = SIZE == 4 && A_ACROSS;
static_assert(ROWS % 64 == 0 && COLUMNS % (!STAGED ? 16 : FROM_REGISTERS ? 64 : 32) == 0, "tiles are made of 64 x 64 and 64 x 32, or of 64 x 16 that TMA does not store");

// Waits until the barrier's phase of that parity is complete. Stops the kernel after 4 s, as no wait here takes a millisecond. It is one
// piece of PTX: if the compiler saw the trap as a way out, it would lose the registers of products in flight.
__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done, early;\n.reg .u64 since, now;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nmov.u64 since, %globaltimer;\n"
                 "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
                 "mov.u64 now, %globaltimer;\nsub.u64 now, now, since;\nsetp.lt.u64 early, now, 4000000000;\n@early bra AGAIN;\n"
                 "trap;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// Shared memory: the ring of stages, STAGED parts of each consumer's results, then two barriers per stage (full, empty). `slot`: the stage
// that the filling thread or a consumer has reached. On a new barrier parity 1 counts as complete, so the first fill need not wait.
struct Ring {
    unsigned stages, parity, results, full, empty, slot, first;  // `first`: the number in the cluster of the first that shares loads
    __device__ Ring(const char* memory, bool fills, unsigned first = 0) : stages(shared(memory)), parity(fills), slot(0), first(first) {
        results = stages + STAGES * STAGE_BYTES, full = results + CONSUMERS * STAGED * PART_BYTES, empty = full + 8 * STAGES;
    }
    __device__ void release(unsigned slot) const {  // a consumer has read the stage: signals every block that shares loads
        const unsigned thread = threadIdx.x % 128;
        unsigned barrier = empty + 8 * slot;
        if (thread >= SHARING) return;
        if (SHARING > 1) asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(barrier), "r"(first + thread));
        asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" :: "r"(barrier) : "memory");
    }
    __device__ unsigned stage() const { return stages + slot * STAGE_BYTES; }
    __device__ void next() { if (++slot == STAGES) slot = 0, parity ^= 1; }
    __device__ void skip(unsigned steps) {
        const unsigned on = slot + steps;
        slot = on % STAGES, parity ^= on / STAGES & 1;
    }
};

__device__ void prefetch(const Map* map) { asm volatile("prefetch.tensormap [%0];" :: "l"(map) : "memory"); }

// Initializes the barriers while the tensor maps are prefetched. `full` completes when the bytes that one thread announced have arrived,
// `empty` when `readers` warpgroups have released the stage.
template <class... Maps> __device__ void prepare(const Ring& ring, int readers, const Maps*... maps) {
    (prefetch(maps), ...);
    for (int i = 0; i < STAGES; i++) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(ring.full + 8 * i));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(ring.empty + 8 * i), "r"(readers));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Announces so many bytes; when they have arrived, the barrier is complete.
__device__ void announce(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

// One thread starts the loads of stages first to end - 1; load(step, to, barrier) starts those of one.
template <class Load> __device__ __forceinline__ void fill(Ring& ring, int first, int end, Load load) {
    for (int step = first; step < end; step++, ring.next()) {
        const unsigned barrier = ring.full + 8 * ring.slot;
        wait(ring.empty + 8 * ring.slot, ring.parity);
        announce(barrier, STAGE_BYTES);
        load(step, ring.stage(), barrier);
    }
}

// Loads a box of a matrix, a line wide, from (x, y) on.
__device__ void load(unsigned to, const Map* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

// wgmma's descriptor of an operand with 128-byte swizzle, whose pattern is 8 lines (1024 bytes). Along the sum: the next pattern has the
// next 8 rows. Across: a line has 64 rows at one place of the sum, patterns follow along the sum, the next 64 rows begin 64 lines later.
__device__ unsigned long long descriptor(unsigned at, bool along) {
    const unsigned long long leading = along ? 1 : DEEP * LINE >> 4, stride = 8 * LINE >> 4;
    return ((at & 0x3ffffull) >> 4) | leading << 16 | stride << 32 | 1ull << 62;
}

#if COLUMNS == 16
#define SUMS S0_8
#define HELD D8(0)
#define NUMBERED(text) text("%8", "%9", "%10", "%11", "%12", "%13")
#elif COLUMNS == 32
#define SUMS S0_16
#define HELD D16(0)
#define NUMBERED(text) text("%16", "%17", "%18", "%19", "%20", "%21")
#elif COLUMNS == 64
#define SUMS S0
#define HELD D32(0)
#define NUMBERED(text) text("%32", "%33", "%34", "%35", "%36", "%37")
#elif COLUMNS == 96
#define SUMS S0 T1
#define HELD D32(0), D16(32)
#define NUMBERED(text) text("%48", "%49", "%50", "%51", "%52", "%53")
#elif COLUMNS == 128
#define SUMS S0 S1
#define HELD D32(0), D32(32)
#define NUMBERED(text) text("%64", "%65", "%66", "%67", "%68", "%69")
#elif COLUMNS == 160
#define SUMS S0 S1 T2
#define HELD D32(0), D32(32), D16(64)
#define NUMBERED(text) text("%80", "%81", "%82", "%83", "%84", "%85")
#elif COLUMNS == 192
#define SUMS S0 S1 S2
#define HELD D32(0), D32(32), D32(64)
#define NUMBERED(text) text("%96", "%97", "%98", "%99", "%100", "%101")
#else
#define SUMS S0 S1 S2 S3
#define HELD D32(0), D32(32), D32(64), D32(96)
#define NUMBERED(text) text("%128", "%129", "%130", "%131", "%132", "%133")
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)
#define WGMMA(add, a, b, more) "{\n.reg .pred p;\nsetp.ne.b32 p, " add ", 0;\nwgmma.mma_async.sync.aligned.m64n" TEXT(COLUMNS) \
    "k" EACH_K ".f32." TYPE "." TYPE " {" SUMS "}, " a ", " b ", p, 1, 1" more ";\n}"
#define ALONG_K(b, add, a, u1, u2, u3) WGMMA(add, a, b, "")
#define ANY_WAY(b, add, a, across_a, across_b, u3) WGMMA(add, a, b, ", " across_a ", " across_b)
#define A_HELD(b, add, u0, u1, u2, u3) WGMMA(add, "{" u0 ", " u1 ", " u2 ", " u3 "}", b, "")

// A warpgroup's rows of A in a stage. `multiply`: d = A B + (add ? d : 0) for the 64 rows from 64 r on, with piece i (32 bytes) of the sum.
#if TF32 && A_ACROSS
constexpr int GROUPS = 2;  // groups of pieces: one is read while the other is multiplied
struct Operand {
    unsigned at, u[LINE / 32][ROWS / 64][4];
    // Row g + 8 h of warp w's 16 is the operand's row 32 h + 4 w + g / 4 * 16 + g % 4: a warp's loads are then from different banks.
    __device__ __forceinline__ void read(int i, int r) {
        const int thread = threadIdx.x % 128, g = thread % 32 / 4;
        #pragma unroll
        for (int e = 0; e < 4; e++) {
            const int row = 64 * r + e % 2 * 32, k = thread % 4 + e / 2 * 4, piece = (thread / 32 + g / 4 * 4) ^ k;
            asm volatile("ld.shared.b32 %0, [%1];" : "=r"(u[i][r][e])
                         : "r"(at + (row + 8 * i + k) * LINE + piece * 16 + g % 4 * 4) : "memory");
        }
    }
    __device__ __forceinline__ void multiply(float (&d)[COLUMNS / 2], int i, int r, unsigned long long b, int add) const {
        asm volatile(NUMBERED(A_HELD) : HELD : "l"(b), "r"(add), "r"(u[i][r][0]), "r"(u[i][r][1]), "r"(u[i][r][2]), "r"(u[i][r][3]));
    }
};
#else
constexpr int GROUPS = 1;
struct Operand {
    unsigned at;
    __device__ void read(int, int) {}
    __device__ __forceinline__ void multiply(float (&d)[COLUMNS / 2], int i, int r, unsigned long long b, int add) const {
        const unsigned long long a = descriptor(at, !A_ACROSS) + r * (64 * LINE >> 4) + i * (A_ACROSS ? 16 * LINE >> 4 : 32 >> 4);
#if TF32
        asm volatile(NUMBERED(ALONG_K) : HELD : "l"(b), "r"(add), "l"(a));
#else
        asm volatile(NUMBERED(ANY_WAY) : HELD : "l"(b), "r"(add), "l"(a), "n"(A_ACROSS), "n"(B_ACROSS));
#endif
    }
};
#endif

// Starts the products of a stage, with A's rows at `a` and B at `b_at`; those of the stage before are then done. Step 0 begins the sums.
__device__ __forceinline__ void multiply_stage(float (&d)[ROWS / 64][COLUMNS / 2], Operand& a, unsigned b_at, int step) {
    const unsigned long long b = descriptor(b_at, !B_ACROSS);
    #pragma unroll
    for (int first = 0; first < LINE / 32; first += LINE / 32 / GROUPS) {
        #pragma unroll
        for (int e = 0; e < LINE / 32 / GROUPS * ROWS / 64; e++) a.read(first + e % (LINE / 32 / GROUPS), e / (LINE / 32 / GROUPS));
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        #pragma unroll
        for (int i = first; i < first + LINE / 32 / GROUPS; i++)
            #pragma unroll
            for (int r = 0; r < ROWS / 64; r++) a.multiply(d[r], i, r, b + i * (B_ACROSS ? 16 * LINE >> 4 : 32 >> 4), step | i);
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
    }
}

// Computes a warpgroup's sums over `steps` stages, for rows from `own` of the tile on. Calls `asked()` when all products are in flight.
template <class Asked>
__device__ __forceinline__ void multiply_tile(float (&d)[ROWS / 64][COLUMNS / 2], Ring& ring, int own, int steps, Asked asked) {
    Operand a;
    unsigned before = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; step++, ring.next()) {
        a.at = ring.stage() + own * LINE;
        wait(ring.full + 8 * ring.slot, ring.parity);
        multiply_stage(d, a, ring.stage() + A_BYTES, step);
        if (step) ring.release(before);
        before = ring.slot;
    }
    asked();
    asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
    ring.release(before);
}

// Writes part c (64 lines of WIDTH bytes) of a warpgroup's sums d into shared memory, from where TMA stores it.
template <int WIDTH> __device__ __forceinline__ void stage_out(unsigned to, const float (&d)[COLUMNS / 2], int c) {
    const int thread = threadIdx.x % 128, lane = thread % 32;
#if TF32
    #pragma unroll
    for (int e = 0; e < 16; e += 2 - FROM_REGISTERS) {
#if A_ACROSS
        // transposed: the lines of parts 2 i and 2 i + 1 are columns 64 i to 64 i + 63, with the rows of h = 0 and of h = 1 (see `read`)
        const int line = e / 2 * 8 + lane % 4 * 2 + e % 2, piece = (thread / 32 + lane / 16 * 4) ^ line % 8;
        asm volatile("st.shared.f32 [%0], %1;" :: "r"(to + line * LINE + piece * 16 + lane / 4 % 4 * 4),
                     "f"(d[c / 2 * 32 + e / 2 * 4 + c % 2 * 2 + e % 2]) : "memory");
#else
        const float* const v = d + 16 * c + e;
        const int line = thread / 32 * 16 + lane / 4 + e % 4 / 2 * 8, piece = (e / 4 * 2 + lane % 4 / 2) ^ line % 8;
        asm volatile("st.shared.v2.f32 [%0], {%1, %2};" :: "r"(to + line * LINE + piece * 16 + lane % 2 * 8), "f"(v[0]), "f"(v[1]) : "memory");
#endif
    }
#else
    // where a lane's row goes by stmatrix: 8 x 8 matrices in the order upper left, lower left, upper right, lower right
    const int line = thread / 32 * 16 + lane % 16, piece = lane / 16;
    const float* v = d + 32 * c;
    #pragma unroll
    for (int q = 0; q < WIDTH / 32; q++, v += 8)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :: "r"(to + line * WIDTH + ((2 * q + piece) ^ line * WIDTH / LINE % (WIDTH / 16)) * 16), "r"(packed(v[0], v[1])),
                        "r"(packed(v[2], v[3])), "r"(packed(v[4], v[5])), "r"(packed(v[6], v[7])) : "memory");
#endif
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

template <int LEFT> __device__ void stored() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(LEFT) : "memory"); }

// The warpgroup's threads wait for each other.
__device__ void meet(int consumer) { asm volatile("bar.sync %0, 128;" :: "r"(1 + consumer) : "memory"); }

// Stores a warpgroup's sums by TMA, from (row, column) of the product on: part by part, of which STAGED may be in flight. wanted(piece):
// whether this block stores that piece (64 x 64). `rest`: the map of boxes half as wide, for what is left of an odd number of them.
template <class Wanted>
__device__ __forceinline__ void store_tile(const float (&d)[ROWS / 64][COLUMNS / 2], const Map* map, const Map* rest, int row, int column,
                                           unsigned results, unsigned& part, int consumer, Wanted wanted) {
    const bool first = threadIdx.x % 128 == 0;
    #pragma unroll
    for (int r = 0; r < ROWS / 64; r++)
        #pragma unroll
        for (int c = 0; c * DEEP < COLUMNS; c++) {
            const bool half = (c + 1) * DEEP > COLUMNS;
            if (!wanted(r * (COLUMNS / 64) + c * DEEP / 64)) continue;
            const unsigned from = results + part * PART_BYTES;
            const int x = FROM_REGISTERS ? row + 64 * r + c % 2 * DEEP : column + DEEP * c;
            const int y = FROM_REGISTERS ? column + c / 2 * 64 : row + 64 * r;
            if (first) stored<STAGED - 1>();  // TMA has read what was here
            meet(consumer);
            if (half) stage_out<LINE / 2>(from, d[r], c);
            else stage_out<LINE>(from, d[r], c);
            meet(consumer);
            if (first)
                asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];\ncp.async.bulk.commit_group;"
                             :: "l"(half ? rest : map), "r"(x), "r"(y), "r"(from) : "memory");
            if (++part == STAGED) part = 0;
        }
}
