// sm_75 sm_90
// A matrix of four-byte items from one pitch to another: the driver's own copy takes up to twice as long where rows begin anywhere.
constexpr int EACH = 8;  // items of a thread, a block's width apart: so many are on their way at once

extern "C" __global__ void rows(const unsigned* __restrict__ from, unsigned* __restrict__ to, long long items, int columns, int from_pitch, int to_pitch) {
    const long long first = (long long)blockIdx.x * EACH * blockDim.x, row = first / columns;
    const unsigned column = first % columns + threadIdx.x;
    unsigned held[EACH];
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned at = column + e * blockDim.x;
        if (first + threadIdx.x + e * blockDim.x < items) held[e] = from[(row + at / columns) * from_pitch + at % columns];
    }
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned at = column + e * blockDim.x;
        if (first + threadIdx.x + e * blockDim.x < items) to[(row + at / columns) * to_pitch + at % columns] = held[e];
    }
}
