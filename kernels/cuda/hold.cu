// sm_75 sm_80 sm_90
// Holds a stream until the host sets go[0], for at most most_ns nanoseconds and 2^20 looks at it: it ends whatever happens. Sets
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
