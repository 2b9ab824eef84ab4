// sm_75 sm_80 sm_90
// Holds a stream until the host says go, at most most_ns nanoseconds and a million looks: it ends whatever happens.
extern "C" __global__ void hold(volatile int* go, long long most_ns) {
    long long begin, now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin));
    for (int looks = 0; looks < (1 << 20) && !*go; looks++) {
        asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
        if (now - begin > most_ns) break;
    }
}
