// Shared text: what tensor cores multiply when their rate is measured, by the conversions of PTX: no header is needed.

// A value near `factor`, another for each i; where factor is 1 they are all 1.
__device__ float value(double factor, int i) {
    return (float)(1 + (factor - 1) * 1000 * ((i * 2654435761u >> 16) % 4001 / 1000.0 - 2));
}

// The value in every half (quarter) of a word.
__device__ unsigned packed_bf16(float v) { unsigned w; asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(w) : "f"(v)); return w; }
__device__ unsigned packed_f16(float v) { unsigned w; asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(w) : "f"(v)); return w; }
__device__ unsigned packed_tf32(float v) { return __float_as_uint(v) & 0xffffe000u; }
