// sm_75 sm_90
constexpr int EACH = 8;  // items per thread, blockDim.x apart: so many loads are in flight at once
constexpr int SIDE = 64, APART = 4;  // side of a transposed tile, in items; its rows that a block of 256 threads moves at once

// Copies a matrix of four-byte items to another pitch. The driver's own copy takes up to twice as long if rows are not aligned.
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

// Writes the transpose of a matrix of four-byte items, through tiles in shared memory: whole lines are read and written.
extern "C" __global__ void __launch_bounds__(SIDE * APART)
turned(const unsigned* __restrict__ from, unsigned* __restrict__ to, int rows, int columns, int to_pitch) {
    __shared__ unsigned tile[SIDE][SIDE + 1];  // rows padded by an item, so that a column lies in different banks
    const int across = (columns + SIDE - 1) / SIDE, first = threadIdx.x / SIDE, beside = threadIdx.x % SIDE;
    const int row = blockIdx.x / across * SIDE, column = blockIdx.x % across * SIDE;
    #pragma unroll
    for (int e = first; e < SIDE + first; e += APART)
        tile[e][beside] = row + e < rows && column + beside < columns ? from[(row + e) * (long long)columns + column + beside] : 0;
    __syncthreads();
    #pragma unroll
    for (int e = first; e < SIDE + first; e += APART)
        if (column + e < columns && row + beside < rows) to[(column + e) * (long long)to_pitch + row + beside] = tile[beside][e];
}
