// sm_75 sm_80 sm_90
// STREAM operations: copy, scale, add, triad. It adds to one element a thread: loads of 16 bytes, and FLIGHT of them an array
// under way before the first is used. A memory is busy only if enough requests are under way.
//
//    a   |16 B|16 B|16 B| .. |16 B|16 B|16 B| ..     a block's tile: FLIGHT rows of its threads
//          |    |    |         |    |    |
//    b   |16 B|16 B|16 B| .. |16 B|16 B|16 B| ..     thread t: piece t of each row; all are asked
//          v    v    v         v    v    v           for first, then computed, then stored
//    out |16 B|16 B|16 B| .. |16 B|16 B|16 B| ..
//         t=0  t=1  t=2       t=0  t=1  t=2
//
// Takes, from the constants here (defaults):
//   shared memory: none
//   registers:     2 * FLIGHT * 4 = 16 words of loads a thread
// Source: McCalpin, STREAM (the operations); Volkov, "Better Performance at Lower Occupancy", GTC 2010 (several loads a thread).

#ifndef REAL
#define REAL double
#define FORMULA a + 3 * b
#define HAS_B 1
#endif
#ifndef FLIGHT
#define FLIGHT 2  // loads an array and thread; cuda/loader.py says what an H200 likes
#endif

constexpr int N = 16 / sizeof(REAL);  // items of a load of 16 bytes, the widest that there is
union Wide { int4 raw; REAL v[N]; };
__device__ __forceinline__ REAL apply(REAL a, REAL b) { return FORMULA; }

extern "C" __global__ void stream(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out,
                                  long long count) {
    const int4* wa = (const int4*)a;
    const int4* wb = (const int4*)b;
    int4* wo = (int4*)out;
    const long long wide = count / N, first = (long long)blockIdx.x * blockDim.x * FLIGHT + threadIdx.x;
    // Load: all of them are under way before the first is used.
    Wide x[FLIGHT], y[FLIGHT];
    #pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
        const long long i = first + f * blockDim.x;
        if (i < wide) { x[f].raw = wa[i]; y[f].raw = HAS_B ? wb[i] : x[f].raw; }
    }
    // Compute and store.
    #pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
        const long long i = first + f * blockDim.x;
        #pragma unroll
        for (int l = 0; l < N; l++) x[f].v[l] = apply(x[f].v[l], y[f].v[l]);
        if (i < wide) wo[i] = x[f].raw;
    }
    const long long j = wide * N + threadIdx.x;  // what is left after the last whole 16 bytes
    if (blockIdx.x == 0 && j < count) out[j] = apply(a[j], HAS_B ? b[j] : a[j]);
}
