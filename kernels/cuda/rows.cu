// sm_75 sm_90
// Two copies that a product may need before it. `rows` copies a matrix to another pitch, so that each row begins on 16 bytes.
// `turned` writes the transpose through a tile in shared memory, so that both sides read and write whole lines.
//
//    rows    |row 0|row 1|row 2|      ->   |row 0|00|row 1|00|row 2|00|
//
//    turned  from                     tile, SIDE x (SIDE + 1)          to
//            +----------+             +--+--+--+--+                    +----------+
//            | -------> |  a line     | a| b| c| d|  a column: each    | a e i .. |
//            | -------> | ----------> | e| f| g| h|  item in a bank -> | b f j .. |
//            | -------> |  to a row   | i| j| k| l|  of its own        | c g k .. |
//            +----------+             +--+--+--+--+                    +----------+
//
// Takes, from the constants here:
//   shared memory: 4 * SIDE * (SIDE + 1) = 16,640 bytes a block of turned
//   registers:     EACH = 8 items a thread of rows
// Source: Harris, "An Efficient Matrix Transpose in CUDA C/C++", NVIDIA (the padded tile).

constexpr int EACH = 8;  // items per thread, blockDim.x apart: so many loads are in flight at once
constexpr int SIDE = 64;  // side of a transposed tile, in items: two lines of 128 bytes
constexpr int APART = 4;  // rows of it that a block moves at once: SIDE * APART = 256 threads

// Copies a matrix of four-byte items to another pitch. The driver's own copy takes up to twice as long if rows are not aligned.
extern "C" __global__ void rows(const unsigned* __restrict__ from, unsigned* __restrict__ to, long long items, int columns, int from_pitch, int to_pitch) {
    const long long first = (long long)blockIdx.x * EACH * blockDim.x, row = first / columns;
    const unsigned column = first % columns + threadIdx.x;
    unsigned held[EACH];
    // Load: all items of the thread, before the first is stored.
    #pragma unroll
    for (int e = 0; e < EACH; e++) {
        const unsigned at = column + e * blockDim.x;
        if (first + threadIdx.x + e * blockDim.x < items) held[e] = from[(row + at / columns) * from_pitch + at % columns];
    }
    // Store.
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
    // Load: a row of the source becomes a row of the tile.
    #pragma unroll
    for (int e = first; e < SIDE + first; e += APART)
        tile[e][beside] = row + e < rows && column + beside < columns ? from[(row + e) * (long long)columns + column + beside] : 0;
    // Synchronize: the tile is whole.
    __syncthreads();
    // Store: a column of the tile becomes a row of the result.
    #pragma unroll
    for (int e = first; e < SIDE + first; e += APART)
        if (column + e < columns && row + beside < rows) to[(column + e) * (long long)to_pitch + row + beside] = tile[beside][e];
}
