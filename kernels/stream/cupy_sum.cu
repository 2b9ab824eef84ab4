// sm_75 sm_80 sm_90
// The sum of an array in two launches. `tiles`: each block sums a tile and adds it to one of SLOTS places without waiting for the
// answer. `places`: one block adds up the places, and leaves them at zero for the next call.
//
//    array   |   tile 0   |   tile 1   |   tile 2   | ..    a thread: FLIGHT loads of 16 bytes
//                 |            |            |
//             warp sums    warp sums    warp sums           by shuffles: 16, 8, 4, 2, 1 lanes away
//                 |            |            |
//    places   [ 0 ]        [ 1 ]   ..   [ SLOTS - 1 ]       atomicAdd, no answer waited for
//                  \           |           /
//                   one block: shuffles, shared memory -> out
//
// Takes, from the constants here (defaults):
//   shared memory: 32 * 8 = 256 bytes in `places` with doubles
//   registers:     FLIGHT * 4 = 64 words of loads a thread at most; the compiler may add some before it loads the next
// Source: Harris, "Optimizing Parallel Reduction in CUDA", NVIDIA; Luitjens, "Faster Parallel Reductions on Kepler", NVIDIA.

#ifndef REAL
#define REAL double
#endif

constexpr int N = 16 / sizeof(REAL);  // items of a load of 16 bytes, the widest that there is
constexpr int FLIGHT = 16;  // loads a thread, as stream/cupy.py has it for the grid
constexpr int SLOTS = 1024;  // places that blocks add to: few wait for the same one, and one block adds them all up
union Wide { int4 raw; REAL v[N]; };

__device__ REAL warp_sum(REAL value) {
    for (int w = 16; w; w /= 2) value += __shfl_down_sync(~0u, value, w);
    return value;
}

extern "C" __global__ void tiles(const REAL* __restrict__ a, REAL* places, long long count) {
    const int4* wa = (const int4*)a;
    const long long wide = count / N, first = (long long)blockIdx.x * blockDim.x * FLIGHT + threadIdx.x;
    // Load.
    Wide x[FLIGHT];
    #pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
        const long long i = first + f * blockDim.x;
        x[f].raw = i < wide ? wa[i] : make_int4(0, 0, 0, 0);
    }
    // Add: the thread's items, then the warp's threads.
    REAL mine = 0;
    #pragma unroll
    for (int f = 0; f < FLIGHT; f++)
        #pragma unroll
        for (int l = 0; l < N; l++) mine += x[f].v[l];
    if (blockIdx.x == 0 && wide * N + threadIdx.x < count) mine += a[wide * N + threadIdx.x];
    mine = warp_sum(mine);
    // Store: nobody waits for the answer.
    if (threadIdx.x % 32 == 0) atomicAdd(places + blockIdx.x % SLOTS, mine);
}

extern "C" __global__ void places(REAL* places, REAL* out) {
    __shared__ REAL warps[32];
    REAL mine = warp_sum(places[threadIdx.x]);
    places[threadIdx.x] = 0;
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = mine;
    // Synchronize: the sums of all warps are there.
    __syncthreads();
    if (threadIdx.x >= 32) return;
    mine = warp_sum(warps[threadIdx.x]);
    if (threadIdx.x == 0) out[0] = mine;
}
