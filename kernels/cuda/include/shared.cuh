// Shared text: a pointer into shared memory as the 32-bit address that PTX instructions take.
//
//    generic pointer, 64 bits   |---- window of shared memory ----|-- offset --|
//                                                                       |
//    shared address, 32 bits                                     |-- offset --|
//
// Takes: one register an address.
// Source: NVIDIA, CUDA C++ Programming Guide, "Address Space Conversion Functions".

__device__ unsigned shared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
