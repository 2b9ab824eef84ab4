// sm_75 sm_80 sm_90
// STREAM operations: each thread has FLIGHT loads of 16 bytes an array under way before it uses the first.
#ifndef REAL
#define REAL double
#define FORMULA a + 3 * b
#define HAS_B 1
#endif

constexpr int N = 16 / sizeof(REAL), FLIGHT = 4;
struct alignas(16) Wide { REAL v[N]; };
__device__ __forceinline__ REAL apply(REAL a, REAL b) { return FORMULA; }

extern "C" __global__ void stream(const REAL* __restrict__ a, const REAL* __restrict__ b, REAL* __restrict__ out,
                                  long long count) {
    const Wide* wa = (const Wide*)a;
    const Wide* wb = (const Wide*)b;
    Wide* wo = (Wide*)out;
    const long long wide = count / N, step = (long long)gridDim.x * blockDim.x;
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    long long i = thread;
    for (; i + (FLIGHT - 1) * step < wide; i += FLIGHT * step) {
        Wide x[FLIGHT], y[FLIGHT];
        #pragma unroll
        for (int f = 0; f < FLIGHT; f++) { x[f] = wa[i + f * step]; y[f] = HAS_B ? wb[i + f * step] : x[f]; }
        #pragma unroll
        for (int f = 0; f < FLIGHT; f++) {
            #pragma unroll
            for (int l = 0; l < N; l++) x[f].v[l] = apply(x[f].v[l], y[f].v[l]);
            wo[i + f * step] = x[f];
        }
    }
    for (; i < wide; i += step)
        for (int l = 0; l < N; l++) out[i * N + l] = apply(a[i * N + l], HAS_B ? b[i * N + l] : a[i * N + l]);
    const long long j = wide * N + thread;  // what is left after the last whole 16 bytes
    if (j < count) out[j] = apply(a[j], HAS_B ? b[j] : a[j]);
}
