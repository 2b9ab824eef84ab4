"""Products of two matrices, a module a backend. Imports problems, reference and registry, and what operations share."""

# The order of the ladder, the simplest first. Other kernels with an idea follow.
LADDER = (
    "numba/naive",
    "numba/reordered",
    "numba/parallel",
    "numba/amx",
    "numba/packed",
    "numba/simd",
    "cuda/naive",
    "cuda/coalesced",
    "cuda/tiled",
    "cuda/register_tiled",
    "cuda/warp_tiled",
    "cuda/tensor_core",
    "cuda/wgmma_two_stages",
    "cuda/wgmma_stages",
    "cuda/wgmma_two_consumers",
    "cuda/wgmma_128x256",
    "cuda/wgmma_cluster",
    "cuda/wgmma_ping_pong",
    "cuda/wgmma_overlapped",
    "cuda/wgmma_split_k",
    "cuda/wgmma",
)
