// Shared text: asynchronous copies (cp.async) into a ring of STAGES stages in shared memory. They go past the
// registers, and threads wait only before they use a stage.
//
//    memory ==cp.async==> [0: ready] [1: on its way] [2: on its way] [3: asked for]
//                         |
//                         +--> multiplied      `fetched` ends the copies of a stage
//                             `arrived` waits until at most STAGES - 2 stages are on their way
//
// Takes: no shared memory of its own, and no register for a copy; before sm_80 a plain copy through a register.
// Source: NVIDIA, PTX ISA, "cp.async"; CUDA C++ Programming Guide, "Asynchronous Data Copies".

#include "shared.cuh"

#if __CUDA_ARCH__ >= 800
template <int BYTES> __device__ void fetch(void* to, const void* from, int valid) {  // valid: BYTES, or 0 to write zeros
    const unsigned at = shared(to);
    if (BYTES == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" :: "r"(at), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" :: "r"(at), "l"(from), "n"(BYTES), "r"(valid) : "memory");
}
__device__ void fetched() { asm volatile("cp.async.commit_group;" ::: "memory"); }
__device__ void arrived() { asm volatile("cp.async.wait_group %0;" :: "n"(STAGES - 2) : "memory"); }
#else
template <int BYTES> __device__ void fetch(float* to, const float* from, int valid) {
    for (int i = 0; i < BYTES / 4; i++) to[i] = valid ? from[i] : 0;
}
__device__ void fetched() {}
__device__ void arrived() {}
#endif
