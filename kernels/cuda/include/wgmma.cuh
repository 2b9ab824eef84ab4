// Shared text: the copy engine (TMA) fills tiles, warpgroups multiply them, results leave by TMA. A stage has DEEP of the
// sum for ROWS (a warpgroup) and COLUMNS; A_ACROSS, B_ACROSS: the operand's lines lie across the sum, not along it.
#include "pairs.cuh"
#include "shared.cuh"
#include "sum_lists.cuh"

struct alignas(64) Map { char bytes[128]; };  // CUtensorMap

constexpr int DEEP = 64, LINE = 128;  // of the sum, a stage; bytes of a line, which is also how wide the swizzle is
constexpr int PART_BYTES = 64 * LINE;  // 64 rows of 64
static_assert(ROWS % 64 == 0 && COLUMNS % 64 == 0, "tiles are made of 64 x 64");

// Until the barrier's phase of that parity is complete; stops the kernel after 4 s, as no wait here takes a millisecond. One piece
// of PTX: a trap that the compiler sees as a way out costs it the registers of products under way.
__device__ void wait(unsigned barrier, unsigned parity) {
    asm volatile("{\n.reg .pred done, early;\n.reg .u64 since, now;\n"
                 "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\nmov.u64 since, %globaltimer;\n"
                 "AGAIN:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@done bra DONE;\n"
                 "mov.u64 now, %globaltimer;\nsub.u64 now, now, since;\nsetp.lt.u64 early, now, 4000000000;\n@early bra AGAIN;\n"
                 "trap;\nDONE:\n}" :: "r"(barrier), "r"(parity) : "memory");
}

// The barriers of the STAGES: `full` completes with what one thread announced, `empty` when so many have told it.
__device__ void make_barriers(unsigned full, unsigned empty, int readers) {
    for (int i = 0; i < STAGES; i++) {
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8 * i));
        asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(empty + 8 * i), "r"(readers));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// So many bytes will come, and then the barrier is complete.
__device__ void announce(unsigned barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(barrier), "r"(bytes) : "memory");
}

// A box of a matrix, 64 columns from (x, y) on.
__device__ void load(unsigned to, const Map* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

// wgmma's descriptor of an operand in 128-byte swizzle, 8 lines (1024 bytes) a pattern. Along the sum: patterns follow each other in
// rows. Across: lines are of one place in the sum and 64 rows, patterns follow along the sum, the next 64 rows begin 64 lines later.
__device__ unsigned long long descriptor(unsigned at, bool along) {
    const unsigned long long leading = along ? 1 : DEEP * LINE >> 4, stride = 8 * LINE >> 4;
    return ((at & 0x3ffffull) >> 4) | leading << 16 | stride << 32 | 1ull << 62;
}

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
                 : HELD : "l"(a), "l"(b), "r"(add), "n"(A_ACROSS), "n"(B_ACROSS));
}

// The products of a stage, of which those of the one before are done afterwards; step 0 begins the sums.
__device__ __forceinline__ void multiply_stage(float (&d)[ROWS / 64][COLUMNS / 2], unsigned long long a, unsigned long long b, int step) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    #pragma unroll
    for (int i = 0; i < DEEP / 16; i++)
        #pragma unroll
        for (int r = 0; r < ROWS / 64; r++)
            multiply(d[r], a + r * (64 * LINE >> 4) + i * (A_ACROSS ? 16 * LINE >> 4 : 32 >> 4),
                     b + i * (B_ACROSS ? 16 * LINE >> 4 : 32 >> 4), step | i);
    asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
}

__device__ void multiplied() { asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory"); }

// 64 x 64 of a warpgroup's sums, those of this thread from v on, into shared memory for TMA to take. `line` and `piece` (of 16 bytes)
// are where its lane writes for stmatrix: 8 x 8 matrices in the order upper left, lower left, upper right, lower right.
__device__ __forceinline__ void stage_out(unsigned to, int line, int piece, const float* v) {
    #pragma unroll
    for (int q = 0; q < 4; q++, v += 8)
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :: "r"(to + line * LINE + ((2 * q + piece) ^ line % 8) * 16), "r"(packed(v[0], v[1])),
                        "r"(packed(v[2], v[3])), "r"(packed(v[4], v[5])), "r"(packed(v[6], v[7])) : "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// A box of 64 x 64 to the matrix's (x, y), and until all but so many of these copies have read what they take.
__device__ void store(const Map* map, int x, int y, unsigned from) {
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%1, %2}], [%3];"
                 :: "l"(map), "r"(x), "r"(y), "r"(from) : "memory");
    asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int LEFT> __device__ void stored() { asm volatile("cp.async.bulk.wait_group.read %0;" :: "n"(LEFT) : "memory"); }

// The warpgroup's threads wait for each other.
__device__ void meet(int consumer) { asm volatile("bar.sync %0, 128;" :: "r"(1 + consumer) : "memory"); }
