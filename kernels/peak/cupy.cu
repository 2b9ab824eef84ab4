// sm_75 sm_80 sm_90
// Independent chains of fused multiply-adds in registers; every value ends as the count of its own when both are 1.
#ifndef REAL
#define REAL float
#define CHAINS 8
#define UNROLL 16
#endif

extern "C" __global__ void fma_chains(REAL* out, REAL factor, REAL addend, int trips) {
    REAL x[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; c++) x[c] = 0;
    for (int t = 0; t < trips; t++) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            #pragma unroll
            for (int c = 0; c < CHAINS; c++) x[c] = factor * x[c] + addend;
    }
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    #pragma unroll
    for (int c = 0; c < CHAINS; c++) out[c * threads + thread] = x[c];
}
