// sm_75 sm_80 sm_90
// Nothing: what is left is the launch.
extern "C" __global__ void nothing() {}
