// Shared text: the order in which the tiles of a product are computed.
//
//    plain: row after row                 group = 3: column by column in 3 rows of tiles
//    +--+--+--+--+--+--+                  +--+--+--+--+--+--+
//    | 0| 1| 2| 3| 4| 5|                  | 0| 3| 6| 9|12|15|     tiles 0 to 8 need 3 rows of A and
//    +--+--+--+--+--+--+                  +--+--+--+--+--+--+     3 columns of B; in plain order
//    | 6| 7| 8|  |  |  |                  | 1| 4| 7|10|13|16|     2 rows and 6 columns
//    +--+--+--+--+--+--+                  +--+--+--+--+--+--+
//    |  |  |  |  |  |  |                  | 2| 5| 8|11|14|17|
//    +--+--+--+--+--+--+                  +--+--+--+--+--+--+
//
// Takes: no shared memory; a few registers once a tile.
// Source: NVIDIA, CUTLASS, "Efficient GEMM in CUDA" (threadblock rasterization).

// Row m and column n of tile number `unit`: `group` rows of tiles at a time, column by column. Tiles that are computed together then
// form a nearly square block and share operands, which stay in the L2.
__device__ void rasterize(int unit, int units_m, int units_n, int group, int& m, int& n) {
    group = min(group, units_m);  // no more rows than there are: else group * units_n may exceed 32 bits
    const int first = unit / (group * units_n) * group, high = min(group, units_m - first), within = unit % (group * units_n);
    m = first + within % high;
    n = within / high;
}
