"""The rungs of the ladder between tensor_core and wgmma: its loop with one form of tiles each, an idea more from rung to rung."""

import cupy
from msgspec.structs import replace

from kernels.cuda import loader
from kernels.cuda.matmul_tiles import Groups
from kernels.cuda.rows import aligned
from kernels.cuda.tiles import LEAST_STEPS, TilePlan
from kernels.matmul.cuda_wgmma import call
from kernels.problems import Matmul
from kernels.problems.arrays import HALVES
from kernels.registry import TimedCall, kernel

_STAGES = Groups(consumers=1, rows=64, columns=128, stages=8, staged=2, cluster_m=1, cluster_n=1)
_WIDE = replace(_STAGES, consumers=2, columns=256, stages=4)
_PING_PONG = replace(_STAGES, consumers=2, rows=128, stages=6, cluster_n=2, pingpong=1)


def _bound(
    problem: Matmul, a: cupy.ndarray, b: cupy.ndarray, groups: Groups, *, parts: int = 1, early: bool = False
) -> TimedCall:
    """The timed call of matmul/cuda_wgmma.cu with those tiles, which returns C, m x n.

    a, b: A and B on the GPU, as problem.layout stores them. parts: of k (split-k). early: its blocks start while the launch
    before it ends.
    Raises: ValueError for another arithmetic and another GPU than Hopper's.
    """
    if problem.math not in HALVES or problem.out != problem.dtype or not groups.fits(problem.layout):
        raise ValueError(f"this rung multiplies float16 and bfloat16 into their own type, not {problem.math}")
    loader.require_capability(90, only=True)
    c = cupy.empty((problem.m, problem.n), a.dtype)
    plan = TilePlan(tiles=groups, parts=parts)
    return call(problem, plan, (aligned(a), aligned(b)), c=aligned(c, is_result=True), result=c, early=early)


@kernel(rung=True)
def wgmma_two_stages(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """TMA and wgmma: one warp has the copy engine fill tiles in shared memory, four warps at once multiply them
    from there; 64 x 128 of C a block, and two stages: while one is multiplied the other is filled."""
    return _bound(problem, a, b, replace(_STAGES, stages=2, staged=1))


@kernel(rung=True)
def wgmma_stages(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Eight stages: as many tiles are on their way as it takes for the memory's latency to be hidden behind
    products."""
    return _bound(problem, a, b, _STAGES)


@kernel(rung=True)
def wgmma_two_consumers(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Two groups of four warps multiply: 128 x 128 of C a block, so each tile of B is fetched once for both."""
    return _bound(problem, a, b, replace(_STAGES, consumers=2, stages=6))


@kernel(rung=True)
def wgmma_128x256(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """128 x 256 of C a block: a quarter fewer bytes from the L2 for a FLOP, and fewer from shared memory; half
    as many blocks, which a small product has too few of."""
    return _bound(problem, a, b, _WIDE)


@kernel(rung=True)
def wgmma_cluster(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Two blocks in a cluster load half a tile of B each and share it: fewer bytes from the L2 for a FLOP
    again; they wait for each other."""
    return _bound(problem, a, b, replace(_WIDE, cluster_m=2))


@kernel(rung=True)
def wgmma_ping_pong(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Each of the two groups has a tile of its own: one multiplies while the other's results leave, at smaller
    tiles, so at more bytes for a FLOP."""
    return _bound(problem, a, b, _PING_PONG)


@kernel(rung=True)
def wgmma_overlapped(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """The same launched early (programmatic dependent launch): as a call's last blocks end, the next one's make
    their barriers and wait for its results; it gains what lies between two calls."""
    return _bound(problem, a, b, _PING_PONG, early=True)


@kernel(rung=True)
def wgmma_split_k(problem: Matmul, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall:
    """Split-k: where C has fewer tiles than there are multiprocessors, several blocks share a tile's sum over k
    and their parts are added in a fixed order, which takes bytes.

    a: m x k, b: k x n (as problem.layout stores them), on the GPU.
    """
    multiprocessors = loader.attribute("MultiProcessorCount")
    tiles = _WIDE.count(problem.m, problem.n)
    stages = -(-problem.k // _WIDE.deep)
    parts = min(multiprocessors // tiles, -(-stages // LEAST_STEPS))
    if parts < 2:
        raise ValueError(f"{tiles} tiles keep all multiprocessors busy, or k is too short to be split")
    stages_of_a_part = -(-stages // parts)
    no_part_empty = -(-stages // stages_of_a_part)
    return _bound(problem, a, b, _WIDE, parts=no_part_empty, early=True)
