// sm_75 sm_90
// C = A B in float32, all stored row by row: A is m x k, B is k x n. Four rungs from plain loops to tiles in registers.
// Each holds what it has loaded nearer to the multiply-adds than the one before, and so loads it fewer times.
//
//                       B, k x n
//                      +----+------+----+    naive           a thread: an item; a warp: a column
//                      |    | tile |    |    coalesced       the same; a warp: a row
//                      |    |  |   |    |    tiled           a block: TILE x TILE, shared memory
//                      |    |  v   |    |    register_tiled  a block: SIDE x SIDE, shared memory;
//     A, m x k         +----+------+----+                    a thread: EACH x EACH, registers
//    +-------------+   +----+------+----+
//    | tile -->    |   |    |C tile|    |    memory -> shared memory -> registers -> C
//    +-------------+   +----+------+----+    both tiles step along k, TILE (or DEEP) at a time
//
// Takes, from the constants here:
//   tiled, shared memory:          2 * 4 * TILE * TILE = 8,192 bytes a block
//   tiled, registers:              65536 / (TILE * TILE) = 64 a thread at most; one of them is its sum
//   register_tiled, shared memory: 2 * 4 * SIDE * DEEP = 8,192 bytes a block
//   register_tiled, registers:     65536 / (TEAM * TEAM) = 256 a thread at most; EACH * EACH = 64 of them are its sums
// Source: NVIDIA, CUDA C++ Programming Guide, "Shared Memory" (tiled); Volkov and Demmel, "Benchmarking GPUs to Tune
// Dense Linear Algebra", SC 2008 (tiles in registers).

// An item of C per thread. Neighbors in a warp take neighboring rows, so every load of A and every store touches 32 lines.
extern "C" __global__ void naive(const float* a, const float* b, float* c, int m, int n, int k) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x, column = blockIdx.y * blockDim.y + threadIdx.y;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int inner = 0; inner < k; inner++) sum += a[(long long)row * k + inner] * b[(long long)inner * n + column];
    c[(long long)row * n + column] = sum;
}

// The same loop. Neighbors in a warp take neighboring columns, so a load of B and a store are one line, and all read one item of A.
extern "C" __global__ void coalesced(const float* a, const float* b, float* c, int m, int n, int k) {
    const int row = blockIdx.y * blockDim.y + threadIdx.y, column = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || column >= n) return;
    float sum = 0;
    for (int inner = 0; inner < k; inner++) sum += a[(long long)row * k + inner] * b[(long long)inner * n + column];
    c[(long long)row * n + column] = sum;
}

constexpr int TILE = 32;  // side of a tile in items: a row of it is a line of 128 bytes, and TILE * TILE threads are the most of a block

// Tiles in shared memory: the threads of a block load a tile of A and of B together, then each reads a row and a column of them.
extern "C" __global__ void __launch_bounds__(TILE * TILE) tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float a_tile[TILE][TILE], b_tile[TILE][TILE];
    const int thread_column = threadIdx.x, thread_row = threadIdx.y;
    const int row = blockIdx.y * TILE + thread_row, column = blockIdx.x * TILE + thread_column;
    float sum = 0;
    for (int tile_k = 0; tile_k < k; tile_k += TILE) {
        // Load: an item of each tile per thread, zeros outside the operands.
        a_tile[thread_row][thread_column] = row < m && tile_k + thread_column < k ? a[(long long)row * k + tile_k + thread_column] : 0;
        b_tile[thread_row][thread_column] = tile_k + thread_row < k && column < n ? b[(long long)(tile_k + thread_row) * n + column] : 0;
        // Synchronize: both tiles are whole.
        __syncthreads();
        // Multiply.
        #pragma unroll
        for (int inner = 0; inner < TILE; inner++) sum += a_tile[thread_row][inner] * b_tile[inner][thread_column];
        // Synchronize: all have read the tiles, which may be overwritten.
        __syncthreads();
    }
    // Store.
    if (row < m && column < n) c[(long long)row * n + column] = sum;
}

constexpr int SIDE = 128;          // rows and columns of C per block
constexpr int DEEP = 8;            // k per step: each thread loads four items of each tile
constexpr int EACH = 8;            // rows and columns of C per thread: 16 loads from shared memory feed 64 products
constexpr int TEAM = SIDE / EACH;  // threads of a block down and across

// Tiles in registers: a thread computes EACH neighboring rows by EACH columns that are TEAM apart, so that neighbors read neighbors.
extern "C" __global__ void __launch_bounds__(TEAM * TEAM) register_tiled(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float a_tile[DEEP][SIDE], b_tile[DEEP][SIDE];
    const int thread_column = threadIdx.x, thread_row = threadIdx.y, thread = thread_row * TEAM + thread_column;
    const int top = blockIdx.y * SIDE, left = blockIdx.x * SIDE;
    float sums[EACH][EACH] = {};
    for (int tile_k = 0; tile_k < k; tile_k += DEEP) {
        // Load: A's tile is transposed on its way, so that a thread's rows of one k lie side by side.
        #pragma unroll
        for (int item = thread; item < SIDE * DEEP; item += TEAM * TEAM) {
            const int row = item / DEEP, a_inner = item % DEEP, b_inner = item / SIDE, column = item % SIDE;
            a_tile[a_inner][row] = top + row < m && tile_k + a_inner < k ? a[(long long)(top + row) * k + tile_k + a_inner] : 0;
            b_tile[b_inner][column] = tile_k + b_inner < k && left + column < n ? b[(long long)(tile_k + b_inner) * n + left + column] : 0;
        }
        // Synchronize: both tiles are whole.
        __syncthreads();
        // Multiply: of each k a column of A's tile by a row of B's, from registers.
        #pragma unroll
        for (int inner = 0; inner < DEEP; inner++) {
            float a_column[EACH], b_row[EACH];
            #pragma unroll
            for (int e = 0; e < EACH; e++) a_column[e] = a_tile[inner][thread_row * EACH + e], b_row[e] = b_tile[inner][thread_column + e * TEAM];
            #pragma unroll
            for (int i = 0; i < EACH; i++)
                #pragma unroll
                for (int j = 0; j < EACH; j++) sums[i][j] += a_column[i] * b_row[j];
        }
        // Synchronize: all have read the tiles, which may be overwritten.
        __syncthreads();
    }
    // Store.
    #pragma unroll
    for (int i = 0; i < EACH; i++)
        #pragma unroll
        for (int j = 0; j < EACH; j++)
            if (top + thread_row * EACH + i < m && left + thread_column + j * TEAM < n)
                c[(long long)(top + thread_row * EACH + i) * n + left + thread_column + j * TEAM] = sums[i][j];
}
