// Shared text: a warp's results leave row by row where C's rows begin anywhere: neighbors stored by neighbors fill whole sectors.

// A piece of HEIGHT x WIDTH that the warp has put into shared memory, PITCH items from row to row, of which `high` rows and `wide`
// columns are C's; from row to row of C there are n items.
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
