// Shared text: a warp loads matrices from shared memory into registers (ldmatrix) and multiplies them by the instruction MMA.
//
//    shared memory                    registers                        mma
//    +------------------------+      +------+ lane l: 4 bytes of      A 16 x 16, B 16 x 8
//    | row 0: 16 bytes        |      | to[0]| row l / 4 of each       (items of 16 bits)
//    | ..  four 8x8 matrices  | ---> | ..   | matrix (transposed:     -> d: 16 x 8 sums,
//    | lane i: a row's address|      | to[3]| of column l / 4)           4 a lane
//    +------------------------+      +------+
//
// Takes: no shared memory of its own; 4 registers for A, 2 for B and 4 sums a lane for each product.
// Source: NVIDIA, PTX ISA, "ldmatrix" and "mma" (fragments of m16n8k16).

__device__ void matrices(unsigned (&to)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ void transposed(unsigned (&to)[4], unsigned at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3]) : "r"(at) : "memory");
}

__device__ void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    asm volatile(MMA " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
