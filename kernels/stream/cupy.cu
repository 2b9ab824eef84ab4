// sm_75 sm_80 sm_90
// STREAM operations: each block has a tile, each thread FLIGHT loads of 16 bytes an array under way before it uses the first.
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
__device__ __forceinline__ REAL apply(REAL a, REAL b) { return FORMULA; }

extern "C" __global__ void stream(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out,
                                  long long count) {
    const int4* wa = (const int4*)a;
    const int4* wb = (const int4*)b;
    int4* wo = (int4*)out;
    const long long wide = count / N, first = (long long)blockIdx.x * blockDim.x * FLIGHT + threadIdx.x;
    Wide x[FLIGHT], y[FLIGHT];
    #pragma unroll
    for (int f = 0; f < FLIGHT; f++) {
        const long long i = first + f * blockDim.x;
        if (i < wide) { x[f].raw = wa[i]; y[f].raw = HAS_B ? wb[i] : x[f].raw; }
    }
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
