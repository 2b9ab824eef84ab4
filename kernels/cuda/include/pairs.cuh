// Shared text: sums are stored in pairs of neighbors, as float32 or rounded to TYPE (bf16 or f16).
//
//    lane     0        1        2        3            low 16 bits: the left neighbor
//    sums   [a b]    [c d]    [e f]    [g h]
//              |        |        |        |
//              v        v        v        v
//            |b:a|    |d:c|    |f:e|    |h:g|         4 bytes a lane
//
// Takes: no shared memory; one register a pair.
// Source: NVIDIA, PTX ISA, "cvt" (bf16x2, f16x2).

__device__ unsigned packed(float low, float high) {
    unsigned both;
    asm("cvt.rn." TYPE "x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

// Stores two neighbors of a row in which `left` items are left; `even`: all rows have an even number of items.
__device__ void put(float* to, float low, float high, int left, bool even) {
    if (left <= 0) return;
    if (even) { *(float2*)to = make_float2(low, high); return; }
    to[0] = low;
    if (left > 1) to[1] = high;
}

__device__ void put(unsigned short* to, float low, float high, int left, bool even) {
    if (left <= 0) return;
    const unsigned both = packed(low, high);
    if (even) { *(unsigned*)to = both; return; }
    to[0] = (unsigned short)both;
    if (left > 1) to[1] = (unsigned short)(both >> 16);
}
