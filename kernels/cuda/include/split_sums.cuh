// Shared text: split-k. Each part of k stores its sums of a piece of C. The block that comes last adds all of them in their order, so
// the result does not depend on which block is last.
//
//    tiles     | 0 | 1 | .. | whole - 1 |      whole           |     whole + 1        |
//    units     | 0 | 1 | .. | whole - 1 | part 0 | part 1 | ..  | part 0 | part 1 | ..  |
//                all of k, wave by wave     \       |       /
//                                            `partial` in memory, a place a part
//                                            the last to count up `arrived` adds 0, 1, .. -> C
//
// Takes: a shared word a block; 4 bytes of `partial` for each sum of each part; no register but a load of 16 bytes.
// Source: NVIDIA, CUDA sample threadFenceReduction (the last block); Osama et al., "Stream-K", PPoPP 2023 (only the last wave).

// A unit of work: its tile, the number of its part of k, the first k of that part, and the length of the part in k.
struct Share { int tile, part, first, count; };

// Tiles before `whole` fill all multiprocessors, wave by wave, and have all of k. The k of each other tile is split into `parts`
// consecutive parts of length `deep` (the last may be shorter).
__device__ Share share(int unit, int whole, int parts, int deep, int k) {
    if (unit < whole) return {unit, 0, 0, k};
    const int part = (unit - whole) % parts, first = part * deep;
    return {whole + (unit - whole) / parts, part, first, min(deep, k - first)};
}

// True in the last of `parts` blocks that count up `arrived`. That block sets the counter to 0 again for the next launch. Its threads
// share the answer through `last` in shared memory.
__device__ bool is_last(unsigned* last, unsigned* arrived, int parts) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) *last = atomicAdd(arrived, 1) == parts - 1;
    __syncthreads();
    if (!*last) return false;
    if (threadIdx.x == 0) *arrived = 0;
    __threadfence();
    return true;
}

// Each of THREADS threads stores its sums of a part of k in `partial`. True in the part that is last: its threads then have the whole sums.
template <int FOURS, int THREADS, class Last>
__device__ __forceinline__ bool added(float* sums, float* partial, int piece, int part, int parts, int thread, Last is_last) {
    float4* const held = (float4*)partial + (long long)piece * parts * FOURS * THREADS + thread;
    #pragma unroll
    for (int q = 0; q < FOURS; q++)
        __stcg(held + (part * FOURS + q) * THREADS, make_float4(sums[4 * q], sums[4 * q + 1], sums[4 * q + 2], sums[4 * q + 3]));
    if (!is_last()) return false;
    #pragma unroll
    for (int i = 0; i < 4 * FOURS; i++) sums[i] = 0;
    #pragma unroll (FOURS < 32 ? 32 / FOURS : 1)  // as many loads at once as there are registers for
    for (int i = 0; i < parts; i++)
        #pragma unroll
        for (int q = 0; q < FOURS; q++) {
            const float4 x = __ldcg(held + (i * FOURS + q) * THREADS);
            sums[4 * q] += x.x, sums[4 * q + 1] += x.y, sums[4 * q + 2] += x.z, sums[4 * q + 3] += x.w;
        }
    return true;
}
