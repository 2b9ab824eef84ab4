// Shared text: a convolution as a matrix product (implicit GEMM), and split-k, whose partial sums are added.
//
//    A: m pixels x (taps x channels)   B: (taps x channels) x n filters    m x n: pixels x filters
//    +-------------------+            +-----+                             +-----+
//    | split 0 | split 1 |     x      | s 0 |                      =      | sum |  the splits' sums
//    |         |         |            |-----|                             |     |  are added in
//    |         |         |            | s 1 |                             |     |  their order
//    +-------------------+            +-----+                             +-----+
//
// Takes, from the constants here:
//   shared memory: 16 * TEAMS * ROUND = 8,192 bytes a block that adds splits
//   registers:     4 sums a thread of those
// Source: Chetlur et al., "cuDNN: Efficient Primitives for Deep Learning", 2014; NVIDIA, CUDA C++ Programming Guide,
// "Programmatic Dependent Launch".

// The product: tap (i, j) of pixel (y, x), of n images of p x q, reads row y * step + i - top and column x * step + j - left of source
// images of h x w x c. Its result goes to row y * to_step + to_y and column x * to_step + to_x of images of to_h x to_w x k.
struct Shape { int h, w, c, n, p, q, k, r, s, step, top, left, to_h, to_w, to_step, to_y, to_x; };

// Number of the result's pixel for pixel number `at` of the product.
__device__ int landing(const Shape& of, int at) {
    const int x = at % of.q, rest = at / of.q, y = rest % of.p;
    return (rest / of.p * of.to_h + y * of.to_step + of.to_y) * of.to_w + x * of.to_step + of.to_x;
}

// The row of the result for row `at` of the product's m rows; for wgrad -1 for padding: the first `kept` channels are real.
__device__ int target(const Shape& of, int at, int m, int kept) {
    if (!WGRAD) return landing(of, at);
    const int channels = m / (of.r * of.s);
    return at % channels < kept ? at / channels * kept + at % channels : -1;
}

// Programmatic dependent launch: blocks of the next kernel may start when all of this one have started and there is room. `reduce` waits
// for all sums first. A phase of a stride needs nothing of the phase before and waits at its end: when the last has ended, all have.
__device__ void next_may_start() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
__device__ void previous_is_done() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Sums of four neighbors (`four`; else of one item) over the splits, always in the same order. A block has teams of ROUND threads. Each
// team adds every teams-th split, then the first team adds the teams' sums. `is`: the item exists.
constexpr int ROUND = 64;  // threads of a team: 1,024 bytes of each split, read as whole lines
constexpr int TEAMS = 8;   // teams of a block at most: 512 threads

__device__ float4 summed(const float* from, long long further, int splits, bool four, bool is) {
    __shared__ float4 held[TEAMS * ROUND];
    const int team = threadIdx.x / ROUND, teams = blockDim.x / ROUND;
    float4 sum = make_float4(0, 0, 0, 0);
    #pragma unroll 4
    for (int split = team; split < (is ? splits : 0); split += teams) {
        const float4 x = four ? *(const float4*)(from + split * further) : make_float4(from[split * further], 0, 0, 0);
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

// The sums over `splits` of this thread's four neighbors (`four`; else of its item). Sets their row `at`, of m, and their column.
__device__ __forceinline__ float4 added(const float* sums, const Shape& of, int m, int splits, bool four, int& at, int& column) {
    const unsigned e = blockIdx.x * ROUND + threadIdx.x % ROUND, across = four ? of.k / 4 : of.k;
    at = e / across;
    column = e % across * (four ? 4 : 1);
    previous_is_done();
    return summed(sums + (long long)at * of.k + column, (long long)m * of.k, splits, four, at < m);
}
