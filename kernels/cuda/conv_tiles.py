"""Compile-time parameters and arguments of our CUDA convolutions: tiles, a model of their cost, and the product that computes
a direction.

Nothing here needs a GPU.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from kernels.cuda.tiles import LEAST_STEPS, GroupTiles, TilePlan, WarpTiles, best_plans
from kernels.problems import Conv, conv
from kernels.problems.conv import phase

#: Items of an array: offsets are counted in 32 bits.
MOST_ITEMS = 1 << 31
#: Cycles of one Hopper multiprocessor for a launch of `reduce`; fitted to layers timed on an H200, used only to rank plans.
_REDUCE_CYCLES = 12000
#: Cycles for a partial sum that is written and read; fitted like _REDUCE_CYCLES.
_PARTIAL_CYCLES = 0.4


class Gather(NamedTuple):
    """A convolution as a matrix product with k columns. Tap (i, j) of pixel (y, x), of n images of p x q, reads row
    y * step + i - top and column x * step + j - left of source images of h x w x c. It is fprop, or dgrad of one phase of a
    stride; its results go to row y * to_step + to_y of images of to_h x to_w. wgrad sums over the pixels instead.

    The fields are those of Shape in include/implicit_gemm.cuh, in its order.
    """

    #: Rows, columns and channels of the source images.
    h: int
    w: int
    c: int
    #: Images; rows and columns of pixels in the product's.
    n: int
    p: int
    q: int
    #: Filters.
    k: int
    #: Rows and columns of taps.
    r: int
    s: int
    #: Source pixels from pixel to pixel.
    step: int
    #: Rows of zeros above the source, and columns to its left.
    top: int
    left: int
    #: Rows and columns of the images that the results go to.
    to_h: int
    to_w: int
    #: Pixels from result to result, and the first result's row and column.
    to_step: int = 1
    to_y: int = 0
    to_x: int = 0

    @property
    def pixels(self) -> int:
        return self.n * self.p * self.q

    @property
    def taps(self) -> int:
        return self.r * self.s

    @property
    def passed(self) -> np.ndarray:
        """The record as a kernel argument passed by value: CuPy passes arrays of one item that way."""
        return np.array(self, np.int32).view(f"V{4 * len(self)}")


def gather(problem: Conv, c: int = 0) -> Gather:
    """The Gather of fprop, whose pixels and taps are wgrad's too. `c`: channels as stored, with padding (0: the problem's)."""
    (top, _), (left, _) = problem.pads
    return Gather(
        h=problem.h,
        w=problem.w,
        c=c or problem.c_in,
        n=problem.n,
        p=problem.p,
        q=problem.q,
        k=problem.c_out,
        r=problem.r,
        s=problem.s,
        step=problem.stride,
        top=top,
        left=left,
        to_h=problem.p,
        to_w=problem.q,
    )


class StridePhase(NamedTuple):
    """dgrad of the pixels at one position within a stride."""

    #: Its product.
    gather: Gather
    #: The filter's rows and columns that reach these pixels, the last one first.
    rows: slice
    columns: slice


def phases(problem: Conv, k: int = 0) -> list[StridePhase]:
    """dgrad as convolutions of dy with stride 1: one for each pixel of a stride x stride square, with every stride-th row and
    column of the filter, reversed. Pixels that no tap reaches are in no phase: their gradient is zero.

    k: channels of dy as stored, with padding (0: the problem's).
    """
    (top, _), (left, _) = problem.pads
    nonempty = []
    for y in range(problem.stride):
        down = phase(problem.h, problem.r, problem.stride, pad=top, first=y)
        for x in range(problem.stride):
            across = phase(problem.w, problem.s, problem.stride, pad=left, first=x)
            if not (down.size and down.taps and across.size and across.taps):
                continue
            product = Gather(
                h=problem.p,
                w=problem.q,
                c=k or problem.c_out,
                n=problem.n,
                p=down.size,
                q=across.size,
                k=problem.c_in,
                r=down.taps,
                s=across.taps,
                step=1,
                top=down.zeros,
                left=across.zeros,
                to_h=problem.h,
                to_w=problem.w,
                to_step=problem.stride,
                to_y=y,
                to_x=x,
            )
            rows = _reversed_taps(down, problem.stride)
            columns = _reversed_taps(across, problem.stride)
            nonempty.append(StridePhase(gather=product, rows=rows, columns=columns))
    return nonempty


def _reversed_taps(side: conv.SidePhase, stride: int) -> slice:
    """The taps of a phase, the last one first."""
    before_first = side.last - side.taps * stride
    return slice(side.last, before_first if before_first >= 0 else None, -stride)


class ConvWarps(WarpTiles, frozen=True, kw_only=True):
    """Tiles of implicit_gemm in conv/cuda.cu."""

    #: Depth of a stage.
    deep: int
    #: Rows of the product per thread.
    thread_m: int
    #: Columns of the product per thread.
    thread_n: int
    #: Stages of the ring in shared memory.
    stages: int
    #: Blocks per multiprocessor.
    blocks: int
    #: Warps that keep a multiprocessor busy; fitted like _REDUCE_CYCLES.
    BUSY_WARPS: ClassVar[float] = 9.0

    @property
    def unit(self) -> tuple[int, int]:
        """(rows, columns) of the product per thread."""
        return self.thread_m, self.thread_n

    def stage(self, wgrad: int) -> float:
        """Estimated cycles of a stage on a busy multiprocessor: 128 multiply-adds per cycle, and loading operands. The same
        for wgrad."""
        loading = 16 * (1 / self.tile_m + 1 / self.tile_n)
        return self.tile_m * self.tile_n * self.deep / 128 * (1 + loading)

    def shared_bytes(self, wgrad: int) -> int:
        """Bytes of shared memory that a block takes: the ring of stages. Rows of A are padded by 4 floats, but not wgrad's,
        which lie across k."""
        a = self.deep * self.tile_m if wgrad else self.tile_m * (self.deep + 4)
        b = self.deep * self.tile_n
        return 4 * self.stages * (a + b)

    def __str__(self) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.deep} {self.thread_m}x{self.thread_n} stages={self.stages}"


WARPS = (
    ConvWarps(tile_m=128, tile_n=64, warp_m=64, warp_n=32, deep=16, thread_m=8, thread_n=8, stages=4, blocks=3),
    ConvWarps(tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=16, thread_m=8, thread_n=16, stages=4, blocks=2),
    ConvWarps(tile_m=256, tile_n=32, warp_m=64, warp_n=32, deep=16, thread_m=8, thread_n=8, stages=3, blocks=3),
    ConvWarps(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=16, thread_m=4, thread_n=8, stages=4, blocks=4),
    ConvWarps(tile_m=64, tile_n=32, warp_m=32, warp_n=32, deep=16, thread_m=4, thread_n=8, stages=4, blocks=7),
    ConvWarps(tile_m=128, tile_n=16, warp_m=64, warp_n=16, deep=16, thread_m=8, thread_n=4, stages=3, blocks=6),
)


class ConvTensors(WarpTiles, frozen=True, kw_only=True):
    """Tiles of conv/cuda_tensor.cu."""

    #: Depth of a stage.
    deep: int
    #: Stages of the ring in shared memory.
    stages: int
    #: Blocks per multiprocessor.
    blocks: int
    #: Warps that keep a multiprocessor busy; fitted like _REDUCE_CYCLES.
    BUSY_WARPS: ClassVar[float] = 5.6

    def stage(self, wgrad: int) -> float:
        """Estimated cycles of a stage on a busy multiprocessor, most of them for loading operands. The same for wgrad."""
        loading = 36 * (1 / self.tile_m + 1 / self.tile_n)
        return self.tile_m * self.tile_n * self.deep / 1024 * (0.28 + loading)

    def shared_bytes(self, wgrad: int) -> int:
        """Bytes of shared memory that a block takes: the ring of stages, with every line padded by 16 bytes; wgrad's A lies
        across k."""
        a = self.deep * (self.tile_m + 8) if wgrad else self.tile_m * (self.deep + 8)
        b = self.deep * (self.tile_n + 8)
        return 2 * self.stages * (a + b)

    def __str__(self) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.deep} stages={self.stages}"


TENSORS = (
    ConvTensors(tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=32, stages=4, blocks=2),
    ConvTensors(tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=64, stages=3, blocks=2),
    ConvTensors(tile_m=128, tile_n=64, warp_m=64, warp_n=32, deep=64, stages=3, blocks=2),
    ConvTensors(tile_m=128, tile_n=64, warp_m=64, warp_n=32, deep=32, stages=4, blocks=3),
    ConvTensors(tile_m=128, tile_n=32, warp_m=32, warp_n=32, deep=32, stages=4, blocks=4),
    ConvTensors(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=64, stages=3, blocks=3),
    ConvTensors(tile_m=256, tile_n=64, warp_m=64, warp_n=64, deep=32, stages=4, blocks=2),
)


class ConvGroups(GroupTiles, frozen=True, kw_only=True):
    """Tiles of conv/cuda_wgmma.cu."""

    #: Blocks per multiprocessor.
    blocks: int
    #: One block keeps a multiprocessor busy.
    BUSY_WARPS: ClassVar[float] = 0.0

    def stage(self, wgrad: int) -> float:
        """Estimated cycles of a stage: products, and lines that TMA loads; A's lines take twice as long across the sum
        (wgrad)."""
        tile_m, tile_n = self.tile
        products = tile_m * tile_n / 160
        a_line = 4 if wgrad else 2
        return products + a_line * tile_m + tile_n

    @property
    def threads(self) -> int:
        """The warpgroups that multiply, and the warp that loads."""
        return 128 * self.consumers + 32

    def __str__(self) -> str:
        tile_m, tile_n = self.tile
        return f"{tile_m}x{tile_n} stages={self.stages} blocks={self.blocks}"


GROUPS = (
    ConvGroups(consumers=2, rows=64, columns=64, stages=3, staged=1, blocks=2),
    ConvGroups(consumers=2, rows=64, columns=128, stages=3, staged=1, blocks=2),
    ConvGroups(consumers=2, rows=64, columns=64, stages=6, staged=1, blocks=1),
    ConvGroups(consumers=2, rows=64, columns=128, stages=5, staged=2, blocks=1),
    ConvGroups(consumers=2, rows=64, columns=192, stages=4, staged=2, blocks=1),
    ConvGroups(consumers=3, rows=64, columns=192, stages=4, staged=1, blocks=1),
    ConvGroups(consumers=2, rows=64, columns=256, stages=4, staged=2, blocks=1),
    ConvGroups(consumers=2, rows=128, columns=64, stages=4, staged=1, blocks=1),
    ConvGroups(consumers=2, rows=128, columns=128, stages=4, staged=2, blocks=1),
)


T = TypeVar("T", ConvWarps, ConvTensors, ConvGroups)


def plans(forms: Sequence[T], m: int, n: int, k: int, *, wgrad: int, multiprocessors: int) -> list[TilePlan[T]]:
    """The plans worth timing for an implicit GEMM of m x k and k x n, best first by the cost model. The sum is in one part,
    or in as many parts as make one or two waves of blocks.

    forms: the tiles to choose from. wgrad: whether it is wgrad, 0 or 1.
    """

    def cycles(plan: TilePlan[T]) -> float:
        """Estimated cycles: waves of blocks on the busiest multiprocessor, longer if its warps are few; then `reduce`."""
        tiles = plan.tiles
        blocks_per_multiprocessor = -(-tiles.count(m, n) * plan.parts // multiprocessors)
        waves, rest = divmod(blocks_per_multiprocessor, tiles.blocks)
        busy_blocks = tiles.BUSY_WARPS / (tiles.threads // 32)
        rounds = waves * max(tiles.blocks, busy_blocks)
        if rest:
            rounds += max(rest, busy_blocks)
        computing = plan.steps(k) * tiles.stage(wgrad) * rounds
        is_reduced = plan.parts > 1 or (wgrad and isinstance(tiles, ConvGroups))
        reducing = _REDUCE_CYCLES + _PARTIAL_CYCLES * (plan.parts + 1) * m * n / multiprocessors if is_reduced else 0
        return computing + reducing

    def splits(tiles: T) -> list[TilePlan[T]]:
        """The plans with these tiles: the sum in one part, and for one and for two waves of blocks."""
        stages = -(-k // tiles.deep)
        slots = tiles.blocks * multiprocessors
        splits = []
        for waves in (0, 1, 2):
            parts = max(1, min(stages // LEAST_STEPS, waves * slots // tiles.count(m, n)))
            stages_in_a_part = -(-stages // parts)
            no_part_empty = -(-stages // stages_in_a_part)
            splits.append(TilePlan(tiles=tiles, parts=no_part_empty))
        return splits

    return best_plans(map(splits, forms), cycles)
