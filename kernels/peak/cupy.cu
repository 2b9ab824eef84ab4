// sm_75 sm_80 sm_90
// The arithmetic ceiling: chains of fused multiply-adds in registers, which nothing but the units can slow down. Chains of one
// thread are independent, so the next can begin while one waits for its result. A value ends as the count of its multiply-adds
// when `factor` and `addend` are both 1.
//
//    x[0]  fma---->fma---->fma---->          each waits for the one before: the latency
//    x[1]   fma---->fma---->fma---->         CHAINS of them, and the other warps, fill the gaps
//    ..      ..
//    x[7]        fma---->fma---->            no memory until the end
//
// Takes, from the constants here (defaults):
//   shared memory: none
//   registers:     CHAINS = 8 values a thread, and both operands
// Source: Volkov, "Better Performance at Lower Occupancy", GTC 2010 (independent operations hide latency).

#ifndef REAL
#define REAL float
#define CHAINS 8   // independent values a thread: more than the 4 cycles that a result takes
#define UNROLL 16  // FMAs of a chain in a trip: the loop's own instructions are then few beside them
#endif

extern "C" __global__ void fma_chains(REAL* out, REAL factor, REAL addend, int trips) {
    REAL x[CHAINS];
    #pragma unroll
    for (int c = 0; c < CHAINS; c++) x[c] = 0;
    // Multiply.
    for (int t = 0; t < trips; t++) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            #pragma unroll
            for (int c = 0; c < CHAINS; c++) x[c] = factor * x[c] + addend;
    }
    // Store: all values, so that the compiler keeps the work.
    const long long thread = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    const long long threads = (long long)gridDim.x * blockDim.x;
    #pragma unroll
    for (int c = 0; c < CHAINS; c++) out[c * threads + thread] = x[c];
}
