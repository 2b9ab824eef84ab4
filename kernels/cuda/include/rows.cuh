// Shared text: a warp stores results row by row if C's rows are not aligned. Neighboring threads store neighbors: whole sectors.
//
//    a piece in shared memory, PITCH wide          C, rows that begin anywhere
//    +---------------------------+                 .....+--------------------+....
//    | lane 0, 1, 2 .. 31        |  ------------>   ....| lane 0, 1, 2 ..    |.....
//    | the next row              |                 .....+--------------------+....
//    +---------------------------+
//
// Takes: HEIGHT rows of PITCH items of the caller's shared memory; registers for up to 8 items a lane.
// Source: NVIDIA, CUTLASS, epilogues through shared memory.

// Stores a piece of HEIGHT x WIDTH that the warp has put into shared memory, PITCH items from row to row. Of it `high` rows and `wide`
// columns are inside C; from row to row of C there are n items.
template <int HEIGHT, int WIDTH, int PITCH, class Item>
__device__ __forceinline__ void put_rows(Item* to, const Item* piece, int n, int high, int wide) {
    __syncwarp();
    #pragma unroll 8
    for (int e = threadIdx.x % 32; e < HEIGHT * WIDTH; e += 32) {
        const int row = e / WIDTH, column = e % WIDTH;
        if (row < high && column < wide) to[(long long)row * n + column] = piece[row * PITCH + column];
    }
    __syncwarp();
}
