// sm_75 sm_80 sm_90
// Two kernels that wait for the host. `hold` keeps a stream from going on until everything behind it is queued, so that a
// queue's time is the device's own. `keep_busy` keeps a multiprocessor from other work.
//
//    host    |-- launch hold --|-- queue call 1, 2, 3 --|go[0] = 1
//    stream       |.......... hold looks at go[0] ..........|call 1|call 2|call 3|
//                                                           ^ begins: no gap between the calls
//
// Takes:
//   shared memory: none of hold; of keep_busy all that a block may have, given at the launch
//   registers:     one value a thread
// Source: NVIDIA, NVBench, blocking_kernel.cu.

// Holds the stream until the host sets go[0], for at most most_ns nanoseconds and 2^20 looks at it: it ends whatever happens. Sets
// go[1] if the host had not set go[0].
extern "C" __global__ void hold(volatile int* go, long long most_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (int looks = 0; looks < (1 << 20) && !*go; looks++) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - begin > most_ns) break;
    }
    if (!*go) go[1] = 1;
}

// Each block keeps a multiprocessor busy until the host sets *stop, for at most most_ns nanoseconds and 2^20 looks at it. It is launched
// with all the shared memory that a block may have, so that no block that needs some fits beside it.
extern "C" __global__ void keep_busy(volatile int* stop, long long most_ns, float* out) {
    long long begin, now;
    float x = threadIdx.x;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (int looks = 0; looks < (1 << 20) && !*stop; looks++) {
        for (int i = 0; i < 4096; i++) x = x * 0.999f + 1.0f;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - begin > most_ns) break;
    }
    if (x < 0) *out = x;  // never true; the compiler must keep the work
}
