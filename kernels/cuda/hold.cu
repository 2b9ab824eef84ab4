// sm_75 sm_80 sm_90
// Holds a stream until the host says go (go[0]), at most most_ns nanoseconds and a million looks: it ends whatever happens, and
// says so in go[1] when the host did not.
extern "C" __global__ void hold(volatile int* go, long long most_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (int looks = 0; looks < (1 << 20) && !*go; looks++) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - begin > most_ns) break;
    }
    if (!*go) go[1] = 1;
}

// Keeps an SM busy with each block, launched with all the shared memory that a block may have, so that no other that wants some
// fits beside it: until the host says stop, at most most_ns nanoseconds and a million looks.
extern "C" __global__ void keep_busy(volatile int* stop, long long most_ns, float* out) {
    long long begin, now;
    float x = threadIdx.x;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (int looks = 0; looks < (1 << 20) && !*stop; looks++) {
        for (int i = 0; i < 4096; i++) x = x * 0.999f + 1.0f;
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - begin > most_ns) break;
    }
    if (x < 0) *out = x;  // never: it keeps the work
}
