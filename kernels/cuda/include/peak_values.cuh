// Shared text: operands for measuring the rate of tensor cores. PTX instructions convert them, so no CUDA header is needed.
//
//    factor = 1:   1 1 1 1 1 ..                all equal: sums are exact
//    else:         |-----.--.----.-.---|       spread: real data, which draws real power
//                  1 - d       1       1 + d   with d = 2000 |factor - 1|
//
// Takes: no shared memory; one register a word.
// Source: NVIDIA, PTX ISA, "cvt"; the scattering is Knuth's multiplicative hash (2654435761).

// A value for each i, between 1 - d and 1 + d with d = 2000 |factor - 1|; all are 1 if factor is 1.
__device__ float value(double factor, int i) {
    return (float)(1 + (factor - 1) * 1000 * ((i * 2654435761u >> 16) % 4001 / 1000.0 - 2));
}

// The value in a word: twice as bfloat16 or float16, once as tf32 (cut off).
__device__ unsigned packed_bf16(float v) { unsigned w; asm("cvt.rn.bf16x2.f32 %0, %1, %1;" : "=r"(w) : "f"(v)); return w; }
__device__ unsigned packed_f16(float v) { unsigned w; asm("cvt.rn.f16x2.f32 %0, %1, %1;" : "=r"(w) : "f"(v)); return w; }
__device__ unsigned packed_tf32(float v) { return __float_as_uint(v) & 0xffffe000u; }
