// Shared text: the order in which the tiles of a product are computed.

// Row m and column n of tile number `unit`: `group` rows of tiles at a time, column by column. Tiles that are computed together then
// form a nearly square block and share operands, which stay in the L2.
__device__ void rasterize(int unit, int units_m, int units_n, int group, int& m, int& n) {
    group = min(group, units_m);  // no more rows than there are: else group * units_n may exceed 32 bits
    const int first = unit / (group * units_n) * group, high = min(group, units_m - first), within = unit % (group * units_n);
    m = first + within % high;
    n = within / high;
}
