// sm_75 sm_80 sm_90
// One-shot all-reduce. A ring passes a sum on from GPU to GPU; here every GPU writes its values into an inbox in every other's
// memory, and adds what arrives in its own inbox in the order of the GPUs, so all get the same bits. Data crosses the link once.
//
//     GPU 0                GPU 1                       8 bytes of an inbox
//    +--------+           +--------+                  +---------+---------+
//    | values | --------> | inbox  |  half 0: even    | 4 bytes | number  |  one store writes both:
//    | inbox  | <-------- | values |  half 1: odd     | of value| of call |  who sees the number
//    +--------+           +--------+  calls           +---------+---------+  has the values too
//         |                    |
//         |  sum in the order 0, 1, ..  of the GPUs, on each of them
//         v                    v
//      output               output
//
// A GPU that begins call k + 2 has received call k + 1 of all others, so no GPU still reads call k: two halves suffice. A thread
// that waits longer than most_ns gives up, and later calls do nothing.
//
// Takes, from the constants here (defaults):
//   shared memory: none
//   registers:     65536 / 512 = 128 a thread at most (launch bounds)
//   memory:        2 * GPUS * 16 = 64 bytes of inbox for each piece of 8 bytes of values
// Source: NVIDIA, NCCL, protocol LL (4 bytes of data beside 4 of a flag); TensorRT-LLM, one-shot all-reduce.

#ifndef GPUS
#define GPUS 2
#define BFLOAT16 1
#endif

struct Boxes { ulonglong2* of[GPUS]; };

__device__ long long timer() {
    long long now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now) :: "memory");
    return now;
}

__device__ void send(ulonglong2* to, uint2 values, unsigned call) {
    const unsigned long long number = (unsigned long long)call << 32, first = number | values.x, second = number | values.y;
    asm volatile("st.relaxed.sys.global.v2.u64 [%0], {%1, %2};" :: "l"(to), "l"(first), "l"(second) : "memory");
}

__device__ bool here(const ulonglong2* at, unsigned call, uint2& values) {
    unsigned long long first, second;
    asm volatile("ld.relaxed.sys.global.v2.u64 {%0, %1}, [%2];" : "=l"(first), "=l"(second) : "l"(at) : "memory");
    values = make_uint2((unsigned)first, (unsigned)second);
    return first >> 32 == call && second >> 32 == call;
}

__device__ unsigned narrow_to_even(float f) {  // bfloat16's bits
    const unsigned bits = __float_as_uint(f);
    return f != f ? 0x7fffu : (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

#if BFLOAT16
struct Sum { float of[4]; };

__device__ void add(Sum& sum, uint2 v) {
    sum.of[0] += __uint_as_float(v.x << 16), sum.of[1] += __uint_as_float(v.x & 0xffff0000u);
    sum.of[2] += __uint_as_float(v.y << 16), sum.of[3] += __uint_as_float(v.y & 0xffff0000u);
}
__device__ uint2 rounded(const Sum& sum) {
    return make_uint2(narrow_to_even(sum.of[0]) | narrow_to_even(sum.of[1]) << 16,
                      narrow_to_even(sum.of[2]) | narrow_to_even(sum.of[3]) << 16);
}
#else
struct Sum { float of[2]; };

__device__ void add(Sum& sum, uint2 v) { sum.of[0] += __uint_as_float(v.x), sum.of[1] += __uint_as_float(v.y); }
__device__ uint2 rounded(const Sum& sum) { return make_uint2(__float_as_uint(sum.of[0]), __float_as_uint(sum.of[1])); }
#endif

// pieces: of 8 bytes. boxes: every GPU's inbox, [half][from][piece]. calls: how often each thread was here. failed: here, told: on
// the host, the GPU that did not come, counted from 1.
extern "C" __global__ void __launch_bounds__(512) one_shot(const uint2* input, uint2* output, long long pieces, Boxes boxes, int rank,
                                                           unsigned* calls, volatile int* failed, volatile int* told, long long most_ns) {
#if EARLY  // started before the kernel ahead of it ended: nothing may be touched until it has
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
    const long long first = (long long)blockIdx.x * blockDim.x + threadIdx.x, step = (long long)gridDim.x * blockDim.x;
    const unsigned call = calls[first] + 1;
    const int dead = *failed;
    // Load: the first values, before anything is decided.
    const uint2 begin = first < pieces ? input[first] : make_uint2(0, 0);
    calls[first] = call;
    if (dead) return;
    const long long half = (long long)(call & 1) * GPUS * pieces;
    // Store: values and the call's number into every other GPU's inbox.
    for (long long i = first; i < pieces; i += step) {
        const uint2 own = i == first ? begin : input[i];
#pragma unroll
        for (int hop = 1; hop < GPUS; hop++) send(boxes.of[(rank + hop) % GPUS] + half + rank * pieces + i, own, call);
    }
    // Synchronize and add: a value with this call's number has arrived.
    const long long began = timer();
    for (long long i = first; i < pieces; i += step) {
        const uint2 own = i == first ? begin : input[i];
        Sum sum = {};
        for (int from = 0; from < GPUS; from++) {
            uint2 values = own;
            if (from != rank)
                for (int looks = 1; !here(boxes.of[rank] + half + from * pieces + i, call, values); looks++)
                    if (looks % 256 == 0 && timer() - began > most_ns) {
                        *failed = from + 1, *told = from + 1;
                        return;
                    }
            add(sum, values);
        }
        output[i] = rounded(sum);
    }
}
