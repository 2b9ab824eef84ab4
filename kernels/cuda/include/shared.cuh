// Shared text: a pointer into shared memory as the 32-bit address that PTX instructions take.

__device__ unsigned shared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
