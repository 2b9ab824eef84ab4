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
#define VECTOR 1     // rows of A and B begin on 16 bytes
#endif

constexpr int LANES_M = WARP_M / EACH_M, LANES_N = WARP_N / EACH_N;
constexpr int WARPS_M = TILE_M / WARP_M, WARPS_N = TILE_N / WARP_N, GROUP = WARPS_M * WARPS_N * 32, THREADS = GROUP * SLICES;
constexpr int A_PITCH = DEEP + 4, A_SIZE = TILE_M * A_PITCH, STAGE = A_SIZE + DEEP * TILE_N;  // in floats; + 4 spreads rows over banks
constexpr int OWN_DEEP = DEEP / SLICES;
static_assert(LANES_M * LANES_N == 32 && LANES_N == 4 && EACH_N % 4 == 0 && OWN_DEEP % 4 == 0, "a warp is 8 x 4 threads");

#if __CUDA_ARCH__ >= 800
template <int BYTES> __device__ void fetch(float* to, const float* from, int valid) {  // what is not valid becomes zero
    const unsigned at = (unsigned)__cvta_generic_to_shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" :: "r"(at), "l"(from), "r"(valid) : "memory");
}
__device__ void fetched() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ void arrived() { asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory"); }
#else
template <int BYTES> __device__ void fetch(float* to, const float* from, int valid) {
    for (int i = 0; i < BYTES / 4; i++) to[i] = valid ? from[i] : 0;
}
__device__ void fetched() {}
__device__ void arrived() {}
#endif

// The tile number `unit`: `group` rows of tiles at a time, column by column, so that those at work together share operands.
__device__ void place(int unit, int units_m, int units_n, int group, int& m, int& n) {
    const int first = unit / (group * units_n) * group, high = min(group, units_m - first), within = unit % (group * units_n);
    m = first + within % high;
    n = within / high;
}

extern "C" __global__ void __launch_bounds__(THREADS, BLOCKS)
matmul(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int m, int n, int k, int group) {
    extern __shared__ __align__(16) float memory[];
    constexpr int WIDE = VECTOR ? 4 : 1;
    const int t = threadIdx.x, lane = t % 32, warp = t % GROUP / 32, slice = t / GROUP;
    // Neighbors differ in n, the next in m: either operand's 16-byte loads are then the same in half of the lanes near by.
    const int lane_n = (lane & 1) | (lane >> 1 & 2), lane_m = (lane >> 1 & 1) | (lane >> 2 & 6);
    const int row = warp / WARPS_N * WARP_M + lane_m, column = warp % WARPS_N * WARP_N + lane_n * 4;
    int top, left;
    place(blockIdx.x, (m + TILE_M - 1) / TILE_M, (n + TILE_N - 1) / TILE_N, group, top, left);
    top *= TILE_M, left *= TILE_N;

    // This thread's first piece of either tile; the others lie ROWS_A (of A's rows) and ROWS_B (of B's) further down.
    constexpr int ROWS_A = THREADS * WIDE / DEEP, PIECES_A = TILE_M / ROWS_A, ROWS_B = THREADS * WIDE / TILE_N, PIECES_B = DEEP / ROWS_B;
    static_assert(TILE_M % ROWS_A == 0 && ROWS_B > 0 && DEEP % ROWS_B == 0, "every thread fetches whole pieces");
    const int a_row = t * WIDE / DEEP, a_l = t * WIDE % DEEP, b_l = t * WIDE / TILE_N, b_column = t * WIDE % TILE_N;
    const float* a_next = a + (long long)(top + a_row) * k + a_l;
    const float* b_next = b + (long long)b_l * n + left + b_column;
    const long long a_further = (long long)ROWS_A * k, b_further = (long long)ROWS_B * n;
    const int a_left = m - top - a_row, b_inside = left + b_column < n ? 4 * WIDE : 0;
    int slot_in = 0, l_left = k;  // where the next stage goes, and how much of k is left for it
    auto stage = [&]() {
        float* const as = memory + slot_in * STAGE + a_row * A_PITCH + a_l;
        float* const bs = memory + slot_in * STAGE + A_SIZE + b_l * TILE_N + b_column;
        const int a_rows = a_l < l_left ? a_left : 0, b_rows = l_left - b_l;
        #pragma unroll
        for (int e = 0; e < PIECES_A; e++)
            fetch<4 * WIDE>(as + e * ROWS_A * A_PITCH, a_next + e * a_further, e * ROWS_A < a_rows ? 4 * WIDE : 0);
        #pragma unroll
        for (int e = 0; e < PIECES_B; e++)
            fetch<4 * WIDE>(bs + e * ROWS_B * TILE_N, b_next + e * b_further, e * ROWS_B < b_rows ? b_inside : 0);
        a_next += DEEP, b_next += (long long)DEEP * n, l_left -= DEEP;
        if (++slot_in == STAGES) slot_in = 0;
    };

    const int steps = (k + DEEP - 1) / DEEP;
    for (int s = 0; s < STAGES - 1; s++) {
        if (s < steps) stage();
        fetched();
    }
    float sums[EACH_M][EACH_N] = {};
    int slot = 0;
    #pragma unroll 1
    for (int step = 0; step < steps; step++) {
        arrived();
        __syncthreads();
        if (step + STAGES - 1 < steps) stage();
        fetched();
        const float* const as = memory + slot * STAGE + slice * OWN_DEEP + row * A_PITCH;
        const float* const bs = memory + slot * STAGE + A_SIZE + slice * OWN_DEEP * TILE_N + column;
        if (++slot == STAGES) slot = 0;
        #pragma unroll
        for (int l = 0; l < OWN_DEEP; l += 4) {
            float4 u[EACH_M];
            #pragma unroll
            for (int i = 0; i < EACH_M; i++) u[i] = *(const float4*)(as + i * LANES_M * A_PITCH + l);
            #pragma unroll
            for (int f = 0; f < 4; f++) {
                float4 v[EACH_N / 4];
                #pragma unroll
                for (int j = 0; j < EACH_N / 4; j++) v[j] = *(const float4*)(bs + (l + f) * TILE_N + j * 16);
                #pragma unroll
                for (int i = 0; i < EACH_M; i++)
                    #pragma unroll
                    for (int j = 0; j < EACH_N; j++)
                        sums[i][j] += ((const float*)&u[i])[f] * ((const float*)v)[j];
            }
        }
    }
    if (SLICES > 1) {  // the first group adds what the others have
        #pragma unroll
        for (int other = 1; other < SLICES; other++) {
            __syncthreads();
            #pragma unroll
            for (int e = 0; e < EACH_M * EACH_N; e++)
                if (slice == other) memory[e * GROUP + t % GROUP] = sums[e / EACH_N][e % EACH_N];
            __syncthreads();
            #pragma unroll
            for (int e = 0; e < EACH_M * EACH_N; e++)
                if (slice == 0) sums[e / EACH_N][e % EACH_N] += memory[e * GROUP + t];
        }
        if (slice) return;
    }
    #pragma unroll
    for (int i = 0; i < EACH_M; i++) {
        const int at = top + row + i * LANES_M;
        if (at >= m) break;
        #pragma unroll
        for (int j = 0; j < EACH_N / 4; j++) {
            const int beside = left + column + j * 16;
            float* const to = c + (long long)at * n + beside;
            if (VECTOR) {
                if (beside < n) *(float4*)to = make_float4(sums[i][4 * j], sums[i][4 * j + 1], sums[i][4 * j + 2], sums[i][4 * j + 3]);
            } else {
                #pragma unroll
                for (int e = 0; e < 4; e++)
                    if (beside + e < n) to[e] = sums[i][4 * j + e];
            }
        }
    }
}
