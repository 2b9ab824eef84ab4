// sm_75 sm_80 sm_90
// Nothing: what is left is the launch.
//
//    host    |-- Python, CuPy, driver --|
//    device                             |start|end|        no work between
//
// Takes:
//   shared memory: none
//   registers:     none for values
// Source: NVIDIA, CUDA C++ Programming Guide, "Asynchronous Concurrent Execution".

extern "C" __global__ void nothing() {}
