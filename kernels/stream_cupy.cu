// sm_75 sm_80 sm_90
// STREAM operations: each block has a tile, each thread FLIGHT loads of 16 bytes an array under way before it uses the first.
// Small arrays are gone over `passes` times in a launch: past the first-level caches, which would hold a block's own tile.
#ifndef REAL
#define REAL double
#define FORMULA a + 3 * b
#define HAS_B 1
#endif
#ifndef FLIGHT
#define FLIGHT 2
#endif

constexpr int N = 16 / sizeof(REAL);
union Wide { int4 raw; REAL v[N]; };
#ifdef MANY  // passes: every one loads anew, from beyond the first-level cache
__device__ __forceinline__ int4 load(const int4* at) {
    int4 x;
    asm volatile("ld.global.cg.v4.s32 {%0, %1, %2, %3}, [%4];" : "=r"(x.x), "=r"(x.y), "=r"(x.z), "=r"(x.w) : "l"(at));
    return x;
}
#else
__device__ __forceinline__ int4 load(const int4* at) { return __ldg(at); }
#endif
__device__ __forceinline__ REAL apply(REAL a, REAL b) { return FORMULA; }

extern "C" __global__ void stream(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out,
                                  long long count, int passes) {
    const int4* wa = (const int4*)a;
    const int4* wb = (const int4*)b;
    int4* wo = (int4*)out;
    const long long wide = count / N, first = (long long)blockIdx.x * blockDim.x * FLIGHT + threadIdx.x;
    for (int pass = 0; pass < passes; pass++) {
        Wide x[FLIGHT], y[FLIGHT];
        #pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const long long i = first + f * blockDim.x;
            if (i < wide) { x[f].raw = load(wa + i); y[f].raw = HAS_B ? load(wb + i) : x[f].raw; }
        }
        #pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            const long long i = first + f * blockDim.x;
            #pragma unroll
            for (int l = 0; l < N; l++) x[f].v[l] = apply(x[f].v[l], y[f].v[l]);
            if (i < wide) wo[i] = x[f].raw;
        }
    }
    const long long j = wide * N + threadIdx.x;  // what is left after the last whole 16 bytes
    if (blockIdx.x == 0 && j < count) out[j] = apply(a[j], HAS_B ? b[j] : a[j]);
}
