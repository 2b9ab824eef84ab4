// sm_75 sm_80 sm_90
// What computes beside a copy: multiply-adds in registers, which leave memory to the copy, or a triad in device memory, which
// shares it with the copy. `trips` says how long.
//
//    copy stream     |==== chunk 0 ====|==== chunk 1 ====|==== chunk 2 ====|
//    other streams                     |-- kernel on 0 --|-- kernel on 1 --|-- kernel on 2 --|
//
//    triad_trips     a [........]  b [........]  out [........]   VALUES double2 each; a block goes
//                       --->          --->           --->         on where the last trip ended
//
// Takes, from the constants here:
//   shared memory: none
//   registers:     8 values a thread of fma_trips; 2 * 4 * 4 = 32 words of loads a thread of triad_trips
// Source: NVIDIA, CUDA C++ Best Practices Guide, "Asynchronous and Overlapping Transfers with Computation".

extern "C" __global__ void fma_trips(float* room, int trips) {
    float x[8];
    #pragma unroll
    for (int c = 0; c < 8; c++) x[c] = c;
    for (int t = 0; t < trips; t++) {
        #pragma unroll
        for (int u = 0; u < 16; u++)
            #pragma unroll
            for (int c = 0; c < 8; c++) x[c] = 0.5f * x[c] + 1.0f;
    }
    float sum = 0;
    #pragma unroll
    for (int c = 0; c < 8; c++) sum += x[c];
    room[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

// Three arrays of 2^24 doubles behind each other; every block goes on where the grid's last trip ended, around and around.
extern "C" __global__ void triad_trips(double2* room, int trips) {
    constexpr long long VALUES = 1 << 23;  // double2 of an array: 2^24 doubles, 134 MB, more than an H200's L2 of 50 MB
    const double2* a = room;
    const double2* b = room + VALUES;
    double2* out = room + 2 * VALUES;
    const long long step = (long long)gridDim.x * blockDim.x;
    long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
    for (int t = 0; t < trips; t++) {
        // Load: four pieces of each array before the first is used.
        double2 x[4], y[4];
        #pragma unroll
        for (int f = 0; f < 4; f++) { x[f] = a[(i + f * step) & (VALUES - 1)]; y[f] = b[(i + f * step) & (VALUES - 1)]; }
        // Compute and store.
        #pragma unroll
        for (int f = 0; f < 4; f++)
            out[(i + f * step) & (VALUES - 1)] = make_double2(x[f].x + 3 * y[f].x, x[f].y + 3 * y[f].y);
        i += 4 * step;
    }
}
