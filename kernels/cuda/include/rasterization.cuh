// Shared text: which tile of a product is worked on when.

// The tile number `unit`: `group` rows of tiles at a time, column by column, so that those at work together form a block near a
// square and share operands, which stay in the L2.
__device__ void rasterize(int unit, int units_m, int units_n, int group, int& m, int& n) {
    group = min(group, units_m);  // no more rows than there are: so many tiles may be past 32 bits
    const int first = unit / (group * units_n) * group, high = min(group, units_m - first), within = unit % (group * units_n);
    m = first + within % high;
    n = within / high;
}
