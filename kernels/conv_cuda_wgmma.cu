// sm_90a
// Convolution as a product on Hopper (implicit GEMM): the copy engine (TMA) walks the pixels of the images itself (im2col mode) and
// fills a ring of tiles, warpgroups multiply them with wgmma. One block a multiprocessor stays and takes tile after tile.
#ifndef TYPE
#define TYPE "bf16"   // of all operands: bf16 or f16; sums are float32
#define CONSUMERS 2   // warpgroups that multiply
#define ROWS 64       // of the product's tile, a warpgroup
#define COLUMNS 128   // of the product's tile: 64, 128, 192 or 256
#define STAGES 5      // places in the ring, each with 64 of the sum
#define STAGED 2      // parts of 64 x 64 of a warpgroup's results that may be on their way out
#define BLOCKS 1      // that fit on a multiprocessor: while one's results leave, another multiplies
#define WGRAD 0       // 1: rows are taps and channels, and the sum goes over pixels
#define OUT 0         // results leave 0: by TMA, 1: as float32 sums of parts, for `reduce` to add, 2: one by one to where they belong
#endif

// The product: pixel (y, x) of n images of p x q meets at tap (i, j) row y * step + i - top of the source's h x w x c; its result
// belongs to row y * to_step + to_y of images of to_h x to_w x k.
struct Shape { int h, w, c, n, p, q, k, r, s, step, top, left, to_h, to_w, to_step, to_y, to_x; };
struct alignas(64) Map { char bytes[128]; };  // CUtensorMap

constexpr int DEEP = 64, LINE = 128;  // of the sum, a place; bytes of a line, which is also how wide the swizzle is
constexpr int TILE_M = CONSUMERS * ROWS, TILE_N = COLUMNS;
constexpr int A_BYTES = TILE_M * LINE, B_BYTES = TILE_N * LINE, STAGE_BYTES = A_BYTES + B_BYTES;
constexpr int PART_BYTES = 64 * LINE;  // 64 rows of 64
static_assert(ROWS % 64 == 0 && COLUMNS % 64 == 0, "tiles are made of 64 x 64");

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

// A box of a matrix, 64 columns from (x, y) on.
__device__ void load(unsigned to, const Map* map, int x, int y, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];"
                 :: "r"(to), "l"(map), "r"(x), "r"(y), "r"(barrier) : "memory");
}

// 64 channels of a column of pixels: the first is (x, y) of image n, the next ones follow along the row, in the next row and in the
// next image as the map's box has them; each is taken `right` and `down` of where it is.
__device__ void load_pixels(unsigned to, const Map* map, int c, int x, int y, int n, int right, int down, unsigned barrier) {
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3, %4, %5}], [%6], {%7, %8};"
                 :: "r"(to), "l"(map), "r"(c), "r"(x), "r"(y), "r"(n), "r"(barrier), "h"((unsigned short)right),
                    "h"((unsigned short)down) : "memory");
}

// wgmma's descriptor of an operand in 128-byte swizzle, 8 lines (1024 bytes) a pattern. Along the sum: patterns follow each other in
// rows. Across: lines are of one place in the sum and 64 rows, patterns follow along the sum, the next 64 rows begin 64 lines later.
__device__ unsigned long long descriptor(unsigned at, bool along) {
    const unsigned long long leading = along ? 1 : DEEP * LINE >> 4, stride = 8 * LINE >> 4;
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
#define OPERANDS "%32, %33, p, 1, 1, %35, %35"
#define ADD "%34"
#elif COLUMNS == 128
#define SUMS S0 S1
#define HELD D32(0), D32(32)
#define OPERANDS "%64, %65, p, 1, 1, %67, %67"
#define ADD "%66"
#elif COLUMNS == 192
#define SUMS S0 S1 S2
#define HELD D32(0), D32(32), D32(64)
#define OPERANDS "%96, %97, p, 1, 1, %99, %99"
#define ADD "%98"
#else
#define SUMS S0 S1 S2 S3
#define HELD D32(0), D32(32), D32(64), D32(96)
#define OPERANDS "%128, %129, p, 1, 1, %131, %131"
#define ADD "%130"
#endif
#define TEXT_(x) #x
#define TEXT(x) TEXT_(x)

// d = A B + (add ? d : 0) of 64 x COLUMNS x 16.
__device__ __forceinline__ void multiply(float (&d)[COLUMNS / 2], unsigned long long a, unsigned long long b, int add) {
    asm volatile("{\n.reg .pred p;\nsetp.ne.b32 p, " ADD ", 0;\n"
                 "wgmma.mma_async.sync.aligned.m64n" TEXT(COLUMNS) "k16.f32." TYPE "." TYPE " {" SUMS "}, " OPERANDS ";\n}"
                 : HELD : "l"(a), "l"(b), "r"(add), "n"(WGRAD));
}

__device__ unsigned packed(float low, float high) {
    unsigned both;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Two neighbors of a row that has `left` more; `even`: all rows have an even number.
__device__ void put(float* to, float low, float high, int left, bool even) {
    if (left <= 0) return;
    if (even) { *(float2*)to = make_float2(low, high); return; }
    to[0] = low;
    if (left > 1) to[1] = high;
}

__device__ void put(unsigned short* to, unsigned both, int left, bool even) {
    if (left <= 0) return;
    if (even) { *(unsigned*)to = both; return; }
    to[0] = (unsigned short)both;
    if (left > 1) to[1] = (unsigned short)(both >> 16);
}

// The row of the result that row `at` of the product belongs to, or -1; `kept` of a wgrad's channels are no padding.
__device__ int target(const Shape& of, int at, int kept) {
    const int wide = (of.c + 63) / 64 * 64;
    if (WGRAD) return at % wide < kept ? at / wide * kept + at % wide : -1;
    const int x = at % of.q, rest = at / of.q, y = rest % of.p;
    return (rest / of.p * of.to_h + y * of.to_step + of.to_y) * of.to_w + x * of.to_step + of.to_x;
}

// The tile number `unit`: `group` rows of tiles at a time, column by column, so that those at work together share operands.
__device__ void place(int unit, int units_m, int units_n, int group, int& m, int& n) {
    const int first = unit / (group * units_n) * group, high = min(group, units_m - first), within = unit % (group * units_n);
    m = first + within % high;
    n = within / high;
}

// A unit of work is a tile of the product and one of `parts` shares of its sum. Along the sum go taps, each with `chunks` times 64
// channels (B holds zeros beyond them), or for wgrad pixels; wgrad's rows are taps with their chunks, 64 rows each.
extern "C" __global__ void __launch_bounds__(128 * CONSUMERS + 32, BLOCKS)
convolve(const __grid_constant__ Map a_map, const __grid_constant__ Map b_map, const __grid_constant__ Map c_map, float* sums,
         unsigned short* result, const Shape of, int parts, int group) {
    extern __shared__ __align__(1024) char memory[];  // the swizzle counts from multiples of 1024
    const unsigned ring = shared(memory), out = ring + STAGES * STAGE_BYTES;
    const unsigned full = out + CONSUMERS * STAGED * PART_BYTES, empty = full + 8 * STAGES;
    const int team = __shfl_sync(~0u, threadIdx.x / 128, 0);  // warpgroups, then the warp that loads; one number for the compiler
    const int chunks = (of.c + 63) / 64, count = of.n * of.p * of.q, deep = of.r * of.s * chunks;
    const int m = WGRAD ? deep * 64 : count, all = WGRAD ? (count + DEEP - 1) / DEEP : deep;
    const int units_m = (m + TILE_M - 1) / TILE_M, units_n = (of.k + TILE_N - 1) / TILE_N;
    const int tiles = units_m * units_n, units = tiles * parts, share = (all + parts - 1) / parts;

    if (threadIdx.x == 128 * CONSUMERS) {  // the maps are on their way while the barriers are made
        asm volatile("prefetch.tensormap [%0];" :: "l"(&a_map) : "memory");
        asm volatile("prefetch.tensormap [%0];" :: "l"(&b_map) : "memory");
    }
    if (threadIdx.x == 0) {
        for (int i = 0; i < STAGES; i++) {
            asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" :: "r"(full + 8 * i));
            asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" :: "r"(empty + 8 * i), "r"(CONSUMERS));
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();

    if (team == CONSUMERS) {
        if (threadIdx.x == 128 * CONSUMERS) {
            unsigned slot = 0, parity = 1;  // of a barrier that has completed nothing, parity 1 counts as complete
            for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
                int at_m, at_n;
                place(unit % tiles, units_m, units_n, group, at_m, at_n);
                at_m *= TILE_M, at_n *= TILE_N;
                const int first = unit / tiles * share, last = min(first + share, all);
                int pixel = WGRAD ? first * DEEP : at_m;
                int x = pixel % of.q, y = pixel / of.q % of.p, n = pixel / of.q / of.p;
                int chunk = first % chunks, j = first / chunks % of.s, i = first / chunks / of.s;
                for (int step = first; step < last; step++) {
                    const unsigned barrier = full + 8 * slot, to = ring + slot * STAGE_BYTES;
                    wait(empty + 8 * slot, parity);
                    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
                                 :: "r"(barrier), "r"(STAGE_BYTES) : "memory");
                    const int left = x * of.step - of.left, top = y * of.step - of.top;
                    if (WGRAD) {
                        #pragma unroll
                        for (int e = 0; e < TILE_M / 64; e++) {
                            const int row = at_m / 64 + e, tap = row / chunks;
                            const bool is = tap < of.r * of.s;  // beyond the last tap: channels that no image has
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
                    if (++slot == STAGES) slot = 0, parity ^= 1;
                }
            }
        }
    } else {
        const int thread = threadIdx.x % 128, lane = thread % 32, consumer = team;
        const unsigned staged = out + consumer * STAGED * PART_BYTES;
        // where this thread writes for stmatrix: 8 x 8 matrices in the order upper left, lower left, upper right, lower right
        const int line = thread / 32 * 16 + lane % 16, piece = lane / 16;
        auto release = [&](unsigned slot) {
            if (thread == 0) asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" :: "r"(empty + 8 * slot) : "memory");
        };
        const bool even = of.k % 2 == 0;
        unsigned slot = 0, parity = 0, part = 0;
        float d[ROWS / 64][COLUMNS / 2];
        for (int unit = blockIdx.x; unit < units; unit += gridDim.x) {
            int at_m, at_n;
            place(unit % tiles, units_m, units_n, group, at_m, at_n);
            at_m = at_m * TILE_M + consumer * ROWS, at_n *= TILE_N;
            const int first = unit / tiles * share, steps = min(share, all - first);
            unsigned before = 0;
            #pragma unroll 1
            for (int step = 0; step < steps; step++) {
                const unsigned at = ring + slot * STAGE_BYTES;
                const unsigned long long a = descriptor(at + consumer * ROWS * LINE, !WGRAD), b = descriptor(at + A_BYTES, !WGRAD);
                wait(full + 8 * slot, parity);
                asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
                #pragma unroll
                for (int l = 0; l < DEEP / 16; l++)
                    #pragma unroll
                    for (int r = 0; r < ROWS / 64; r++)
                        multiply(d[r], a + r * (64 * LINE >> 4) + l * (WGRAD ? 16 * LINE >> 4 : 32 >> 4),
                                 b + l * (WGRAD ? 16 * LINE >> 4 : 32 >> 4), step | l);
                asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");  // those of the step before are done
                if (step) release(before);
                before = slot;
                if (++slot == STAGES) slot = 0, parity ^= 1;
            }
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            release(before);
            #pragma unroll
            for (int r = 0; r < ROWS / 64; r++) {
#if OUT
                #pragma unroll
                for (int h = 0; h < 2; h++) {
                    const int row = at_m + 64 * r + thread / 32 * 16 + lane / 4 + 8 * h;
                    const int column = at_n + lane % 4 * 2, left = row < m ? of.k - column : 0;
                    const long long place = OUT == 1 ? (long long)(unit / tiles) * m + row : target(of, row, 0);
                    #pragma unroll
                    for (int q = 0; q < COLUMNS / 8; q++) {
                        const float low = d[r][4 * q + 2 * h], high = d[r][4 * q + 2 * h + 1];
                        if (OUT == 1) put(sums + (place * of.k + column) + 8 * q, low, high, left - 8 * q, even);
                        else put(result + (place * of.k + column) + 8 * q, packed(low, high), left - 8 * q, even);
                    }
                }
#else
                #pragma unroll
                for (int c = 0; c < COLUMNS / 64; c++) {
                    if (at_n + 64 * c >= of.k) continue;
                    const unsigned to = staged + part * PART_BYTES;
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
#endif
            }
        }
        if (OUT == 0 && thread == 0) asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
    }
}

// The sum of four neighbors (of one where rows have an odd rest) over the parts, always in the same order: ROUND threads at a time
// share them out, and the first of a block's teams adds what they have.
constexpr int ROUND = 64, TEAMS = 8;
__device__ float4 summed(const float* from, long long further, int parts, bool four, bool is) {
    __shared__ float4 held[TEAMS * ROUND];
    const int team = threadIdx.x / ROUND, teams = blockDim.x / ROUND;
    float4 sum = make_float4(0, 0, 0, 0);
    #pragma unroll 4
    for (int part = team; part < (is ? parts : 0); part += teams) {
        const float4 x = four ? *(const float4*)(from + part * further) : make_float4(from[part * further], 0, 0, 0);
        sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
    }
    if (teams == 1) return sum;
    held[threadIdx.x] = sum;
    __syncthreads();
    if (team == 0)
        for (int e = 1; e < teams; e++) {
            const float4 x = held[e * ROUND + threadIdx.x];
            sum.x += x.x, sum.y += x.y, sum.z += x.z, sum.w += x.w;
        }
    return sum;
}

// Adds the sums of `parts` shares of each item of the product and rounds them; `kept` of a wgrad's channels are no padding.
extern "C" __global__ void reduce(const float* __restrict__ sums, unsigned short* __restrict__ out, const Shape of, int parts, int kept) {
    const int chunks = (of.c + 63) / 64, m = WGRAD ? of.r * of.s * chunks * 64 : of.n * of.p * of.q;
    const bool four = of.k % 4 == 0;
    const unsigned e = blockIdx.x * ROUND + threadIdx.x % ROUND, across = four ? of.k / 4 : of.k;
    const int at = e / across, column = e % across * (four ? 4 : 1);
    const float4 sum = summed(sums + (long long)at * of.k + column, (long long)m * of.k, parts, four, at < m);
    if (at >= m || threadIdx.x >= ROUND) return;
    const int row = target(of, at, kept);
    if (row < 0) return;
    unsigned short* const to = (unsigned short*)out + (long long)row * of.k + column;
    const unsigned low = packed(sum.x, sum.y), high = packed(sum.z, sum.w);
    if (four) *(uint2*)to = make_uint2(low, high);
    else *to = (unsigned short)low;
}
