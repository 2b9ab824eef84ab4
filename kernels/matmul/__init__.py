"""Products of two matrices, a module a backend. Imports problems, reference and registry, and what operations share."""

# The ladder, the simplest first: the ideas of kernels whose first stored rows do not tell them. A new kernel's is its docstring.
IDEAS = {
    "numba/naive": "Loops in i-j-k order on one thread: B is read down its columns, a cache line for each element.",
    "numba/reordered": (
        "Loops in i-k-j order: B and C are read along their rows, so the compiler can use whole vectors."
    ),
    "numba/parallel": "The i-k-j loops with the rows of A shared out over the threads: what a few lines of Numba give.",
    "numba/amx": (
        "AMX: four tiles of sums take products of two tiles of A and two of B; a packed block of A stays in the "
        "second-level cache, and a piece of a panel of B, the next one asked for early, in the first-level one."
    ),
    "numba/packed": (
        "Panels: blocks of A and B are copied into the order in which they are used, B's fitting the first-level "
        "cache, and four steps in k go onto two rows of C in one pass over them."
    ),
    "numba/simd": (
        "A tile of C stays in registers while a panel of A meets panels of B in the second-level cache, or B's rows "
        "where they lie if A has few; the transpose of C where that is cheaper; threads take the next piece."
    ),
    "cuda/naive": (
        "A product a thread, a warp's threads in a column of C: each of its loads of A, and each store, is 32 "
        "lines of memory."
    ),
    "cuda/coalesced": (
        "The same product a thread with a warp's threads in a row of C: loads of B and stores are whole lines, "
        "A's are shared."
    ),
    "cuda/tiled": (
        "Tiles of 32 x 32 of A and B in shared memory: each element is read from memory once for 32 products, not "
        "once for each."
    ),
    "cuda/register_tiled": (
        "8 x 8 of C in each thread's registers, 128 x 128 a block: 16 loads from shared memory feed 64 products, "
        "not 2 for each."
    ),
    "cuda/warp_tiled": (
        "A tile a warp inside the block's: 16-byte loads that neighbors share, stages fetched ahead, a tile of C a thread in "
        "banks that multiply-adds read at once; few rows or columns, or short sums, straight from memory; the fastest here."
    ),
    "cuda/tensor_core": (
        "mma.sync: a warp multiplies a small tile at once from pieces that ldmatrix brings into its registers: "
        "all that Ampere's tensor cores have, not all that Hopper's have."
    ),
    "cuda/wgmma_two_stages": (
        "TMA and wgmma: one warp has the copy engine fill tiles in shared memory, four warps at once multiply them from there; "
        "64 x 128 of C a block, and two stages: while one is multiplied the other is filled."
    ),
    "cuda/wgmma_stages": (
        "Eight stages: as many tiles are on their way as it takes for the memory's latency to be hidden behind products."
    ),
    "cuda/wgmma_two_consumers": (
        "Two groups of four warps multiply: 128 x 128 of C a block, so each tile of B is fetched once for both."
    ),
    "cuda/wgmma_128x256": (
        "128 x 256 of C a block: a quarter fewer bytes from the L2 for a FLOP, and fewer from shared memory; half as many "
        "blocks, which a small product has too few of."
    ),
    "cuda/wgmma_cluster": (
        "Two blocks in a cluster load half a tile of B each and share it: fewer bytes from the L2 for a FLOP again; they "
        "wait for each other."
    ),
    "cuda/wgmma_ping_pong": (
        "Each of the two groups has a tile of its own: one multiplies while the other's results leave, at smaller tiles, so at "
        "more bytes for a FLOP."
    ),
    "cuda/wgmma_overlapped": (
        "The same launched early (programmatic dependent launch): as a call's last blocks end, the next one's make their "
        "barriers and wait for its results; it gains what lies between two calls."
    ),
    "cuda/wgmma_split_k": (
        "Split-k: where C has fewer tiles than there are multiprocessors, several blocks share a tile's sum over k and their "
        "parts are added in a fixed order, which takes bytes."
    ),
    "cuda/wgmma": (
        "Four warps at once multiply tiles straight from shared memory (wgmma), a warp has TMA fill a ring of "
        "them, which blocks of a cluster share, results leave by TMA while the next tile begins; the tiles are "
        "the fastest of several here."
    ),
}
# Those among the kernels here that are rungs, for stored rows that do not tell it. A new one says @kernel(rung=True) alone.
RUNGS = (
    "numba/naive",
    "numba/reordered",
    "numba/amx",
    "numba/packed",
    "cuda/naive",
    "cuda/coalesced",
    "cuda/tiled",
    "cuda/register_tiled",
    "tensorflow/graph",
)
