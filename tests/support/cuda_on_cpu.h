// A CUDA block on the CPU: every thread is a fiber that runs until it waits; warps exchange registers where tensor cores do.
#include <setjmp.h>
#include <ucontext.h>

#include <algorithm>
#include <ctime>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __forceinline__ inline
#define __restrict__
#define __align__(n) alignas(n)
#define __launch_bounds__(...)
#define __global__
using std::min;

struct Index { unsigned x, y; };
struct float2 { float x, y; };
struct alignas(16) float4 { float x, y, z, w; };
struct uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) ulonglong2 { unsigned long long x, y; };
static float2 make_float2(float x, float y) { return {x, y}; }
static float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
static uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
static uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

template <class T> static void __stcg(T* to, T value) { *to = value; }
template <class T> static T __ldcg(const T* from) { return *from; }
extern "C" { const char* arrays[32]; int strayed; }  // where each argument begins and ends; whether anything else was read
static bool readable(const char* from, int bytes) {
    for (int i = 0; i < 32; i += 2) if (arrays[i] <= from && from + bytes <= arrays[i + 1]) return true;
    return !(strayed = 1);
}
template <class T> static T __ldg(const T* from) { return (size_t)from % sizeof *from == 0 && readable((const char*)from, sizeof *from) ? *from : (strayed = 1, T()); }
static unsigned atomicAdd(unsigned* to, unsigned more) { const unsigned before = *to; *to += more; return before; }
static void __threadfence() {}

typedef std::function<void()> Action;
struct Fiber { jmp_buf at; bool begun = false, done = false; Index index; unsigned number; std::function<bool()> ready; std::vector<std::vector<Action>> groups; std::vector<Action> open; };
struct Meeting { int here = 0, times = 0; };
struct Warp { Meeting meeting; unsigned words[32][6]; };

static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static Meeting block_meeting;
static Fiber* now;
static jmp_buf outside;
static Index blockIdx, blockDim, gridDim;
static Action body;
alignas(1024) static char shared_memory[232448];
#define threadIdx (now->index)

static void leave() { if (!_setjmp(now->at)) _longjmp(outside, 1); }  // without the system's calls that swapcontext makes

static void meet(Meeting& m, int count) {
    const int before = m.times;
    if (++m.here == count) { m.here = 0, m.times++; return; }
    now->ready = [&m, before] { return m.times != before; };
    leave();
}
static void __syncthreads() { meet(block_meeting, blockDim.x * blockDim.y); }
static Warp& warp_met() { Warp& w = warps[now->number / 32]; meet(w.meeting, 32); return w; }
static void __syncwarp() { warp_met(); }

static size_t __cvta_generic_to_shared(const void* at) {
    const long place = (const char*)at - shared_memory;
    if (place < 0 || place >= (long)sizeof shared_memory) { fprintf(stderr, "not in shared memory: %ld\n", place); abort(); }
    return place;
}

static bool early = true;  // in every other launch a copy happens at once, else when it is waited for, as late as it may
static void copy_later(unsigned to, const void* from, int bytes, int valid) {
    if (to % bytes || (valid && (uintptr_t)from % bytes)) { fprintf(stderr, "a copy of %d bytes begins between them\n", bytes); abort(); }
    const bool copied = valid && readable((const char*)from, valid);
    const Action copy = [=] { memset(shared_memory + to, 0, bytes); if (copied) memcpy(shared_memory + to, from, valid); };
    early ? copy() : now->open.push_back(copy);
}
static void commit() { now->groups.push_back(std::move(now->open)); now->open.clear(); }
static void wait_group(size_t left) {
    for (size_t i = 0; i + left < now->groups.size(); i++) { for (auto& copy : now->groups[i]) copy(); now->groups[i].clear(); }
}

static void load_matrices(unsigned (&to)[4], unsigned at, bool turned) {  // ldmatrix.x4 of the PTX ISA
    const unsigned lane = now->number % 32;
    warps[now->number / 32].words[lane][0] = at;
    const Warp& w = warp_met();
    for (int i = 0; i < 4; i++)
        for (int half = 0; half < 2; half++) {
            const unsigned row = turned ? lane % 4 * 2 + half : lane / 4, column = turned ? lane / 4 : lane % 4 * 2 + half;
            uint16_t item;
            memcpy(&item, shared_memory + w.words[8 * i + row][0] + 2 * column, 2);
            to[i] = half ? to[i] | (unsigned)item << 16 : item;
        }
    warp_met();
}

// What other GPUs see of this memory, and this one of theirs: each 8 bytes at once.
template <class T> static void write_pair(T* to, unsigned long long x, unsigned long long y) {
    __atomic_store_n((unsigned long long*)to, x, __ATOMIC_RELAXED), __atomic_store_n((unsigned long long*)to + 1, y, __ATOMIC_RELAXED);
}
template <class T> static void read_pair(const T* at, unsigned long long& x, unsigned long long& y) {
    x = __atomic_load_n((const unsigned long long*)at, __ATOMIC_RELAXED), y = __atomic_load_n((const unsigned long long*)at + 1, __ATOMIC_RELAXED);
}
static long long nanoseconds() {
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000ll + now.tv_nsec;
}
static unsigned __float_as_uint(float f) { unsigned u; memcpy(&u, &f, 4); return u; }
static float __uint_as_float(unsigned u) { float f; memcpy(&f, &u, 4); return f; }

// Of bfloat16, or of what `type` says (f16).
static float wide(unsigned bits, const char* type = "bf16") {
    if (*type == 'f') { _Float16 half; memcpy(&half, &bits, 2); return half; }
    bits <<= 16; float f; memcpy(&f, &bits, 4); return f;
}
static unsigned narrow(float f, const char* type) {
    if (*type == 'f') { const _Float16 half = f; unsigned short bits; memcpy(&bits, &half, 2); return bits; }
    unsigned u; memcpy(&u, &f, 4); return (u + 0x7fff + (u >> 16 & 1)) >> 16;
}

static unsigned to_tf32(float f) { unsigned u; memcpy(&u, &f, 4); return (u + 0x1000) & 0xffffe000; }  // ties away from zero

// mma.m16n8k16 of bfloat16, or mma.m16n8k8 of TF32, whose every word is one item: bits that TF32 has not are no part of it.
template <int SIZE> static void multiply_pieces(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    const unsigned lane = now->number % 32;
    unsigned* const own = warps[now->number / 32].words[lane];
    memcpy(own, a, 16), own[4] = b0, own[5] = b1;
    const Warp& w = warp_met();
    for (int e = 0; e < 4; e++) {
        const int row = lane / 4 + 8 * (e / 2), column = lane % 4 * 2 + e % 2;
        for (int k = 0; k < 8; k++) {
            const unsigned x = w.words[row % 8 * 4 + k % 4][row / 8 + 2 * (k / 4)], y = w.words[column * 4 + k % 4][4 + k / 4];
            if (SIZE == 2) d[e] += wide(x & 0xffff) * wide(y & 0xffff) + wide(x >> 16) * wide(y >> 16);
            else d[e] += __uint_as_float(x & 0xffffe000) * __uint_as_float(y & 0xffffe000);
        }
    }
    warp_met();
}

static void fiber() { for (;; leave()) body(), now->done = true; }  // of every block's thread of this number, one after the other

static void resume(Fiber& f) {
    static char* const stacks = (char*)malloc(1024 << 17);  // of which only what is touched is there
    now = &f, f.ready = nullptr;
    if (_setjmp(outside)) return;
    if (f.begun) _longjmp(f.at, 1);
    f.begun = true;
    ucontext_t first;
    getcontext(&first);
    first.uc_stack.ss_sp = stacks + ((size_t)f.number << 17), first.uc_stack.ss_size = 1 << 17;
    makecontext(&first, fiber, 0), setcontext(&first);
}

extern "C" { unsigned block_rows = 1; }  // of a block's threads

static void launch(Index grid, unsigned threads, Action kernel) {
    const Index block = {threads / block_rows, block_rows};
    gridDim = grid, blockDim = block, body = kernel, early = !early;
    for (blockIdx.y = 0; blockIdx.y < grid.y; blockIdx.y++)
        for (blockIdx.x = 0; blockIdx.x < grid.x; blockIdx.x++) {
            memset(shared_memory, 0xff, sizeof shared_memory);  // NaNs
            fibers.resize(threads), warps.assign((threads + 31) / 32, Warp()), block_meeting = Meeting();
            for (unsigned t = 0; t < threads; t++) {
                Fiber& f = fibers[t];
                f.index = {t % block.x, t / block.x}, f.number = t, f.done = false, f.groups.clear(), f.open.clear();
            }
            for (size_t left = threads, moved = 1; left;) {
                if (!moved) { fprintf(stderr, "every thread waits for another\n"); abort(); }
                moved = 0;
                for (auto& f : fibers) {
                    if (f.done || (f.ready && !f.ready())) continue;
                    resume(f), moved = 1, left -= f.done;
                }
            }
        }
}
