// Shared text: an address in shared memory as the instructions of PTX want it.

__device__ unsigned shared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
