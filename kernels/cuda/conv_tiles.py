"""Compile-time parameters and arguments of our CUDA convolutions: tiles, a model of their cost, and the product that computes
each direction.

Nothing here needs a GPU.
"""

from collections.abc import Sequence
from typing import ClassVar, NamedTuple, TypeVar

import numpy as np

from kernels.cuda.tiles import LEAST_STEPS, GroupTiles, Plan, WarpTiles, few
from kernels.problems import Conv, conv
from kernels.problems.conv import phase

MOST_ITEMS = 1 << 31  # of an array: places are counted in 32 bits
# Cycles of one Hopper multiprocessor, fitted to layers timed on an H200 to rank plans, and for nothing else: a `reduce`, and each
# partial sum on its way there and back.
_REDUCE, _PARTIAL = 12000, 0.4


class Gather(NamedTuple):
    """A convolution as a product: pixel (y, x) of n images of p x q meets at tap (i, j) row y * step + i - top and column
    x * step + j - left of source images of h x w x c. It is fprop, or dgrad of one phase of a stride, with k columns; its
    result belongs to row y * to_step + to_y of images of to_h x to_w. wgrad sums over its pixels instead.

    The .cu's Shape, field by field.
    """

    h: int
    w: int
    c: int
    n: int
    p: int
    q: int
    k: int
    r: int
    s: int
    step: int
    top: int
    left: int
    to_h: int
    to_w: int
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
    """fprop, and the pixels and taps of wgrad; `c`: channels as they lie in memory, padded ones among them."""
    p, (top, _), (left, _) = problem, *problem.pads
    return Gather(p.h, p.w, c or p.c_in, p.n, p.p, p.q, p.c_out, p.r, p.s, p.stride, top, left, p.p, p.q)


class Phase(NamedTuple):
    """dgrad of the pixels that lie alike to the stride: its product, and the rows and columns of the filter that reach them."""

    of: Gather
    rows: slice
    columns: slice


def phases(problem: Conv, k: int = 0) -> list[Phase]:
    """dgrad as convolutions of dy with stride 1: one for each pixel of a stride x stride square, with every stride-th row and
    column of the filter, turned. Pixels that no tap reaches are in no phase: their gradient is zero.

    `k`: channels of dy as they lie in memory.
    """
    p, (top, _), (left, _) = problem, *problem.pads
    rows = [phase(p.h, p.r, p.stride, top, y) for y in range(p.stride)]
    columns = [phase(p.w, p.s, p.stride, left, x) for x in range(p.stride)]
    found = []
    for y, down in enumerate(rows):
        for x, across in enumerate(columns):
            if down.size and down.taps and across.size and across.taps:
                source = (p.p, p.q, k or p.c_out, p.n, down.size, across.size, p.c_in, down.taps, across.taps, 1)
                of = Gather(*source, down.zeros, across.zeros, p.h, p.w, p.stride, y, x)
                found.append(Phase(of, *(_turned(side, p.stride) for side in (down, across))))
    return found


def _turned(side: conv.Phase, stride: int) -> slice:
    """The taps of a phase, the last first."""
    before = side.last - side.taps * stride
    return slice(side.last, before if before >= 0 else None, -stride)


class Warps(WarpTiles, frozen=True):
    """Tiles of implicit_gemm in conv/cuda.cu: product per block and per warp, depth of a stage, product per thread, stages,
    blocks per multiprocessor."""

    deep: int
    each_m: int
    each_n: int
    stages: int
    blocks: int
    BUSY_WARPS: ClassVar[float] = 9.0

    @property
    def unit(self) -> tuple[int, int]:
        """Rows and columns of a thread."""
        return self.each_m, self.each_n

    def stage(self, wgrad: int) -> float:
        """Cycles of a stage on a busy multiprocessor: 128 multiply-adds each, and operands on their way."""
        return self.tile_m * self.tile_n * self.deep / 128 * (1 + 16 * (1 / self.tile_m + 1 / self.tile_n))

    def shared_bytes(self, wgrad: int) -> int:
        """The ring of stages; rows of A are 4 floats apart, but wgrad's lie across."""
        a = self.deep * self.tile_m if wgrad else self.tile_m * (self.deep + 4)
        return 4 * self.stages * (a + self.deep * self.tile_n)

    def __str__(self) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.deep} {self.each_m}x{self.each_n} stages={self.stages}"


WARPS = (
    Warps(128, 64, 64, 32, 16, 8, 8, 4, 3),
    Warps(128, 128, 64, 64, 16, 8, 16, 4, 2),
    Warps(256, 32, 64, 32, 16, 8, 8, 3, 3),
    Warps(64, 64, 32, 32, 16, 4, 8, 4, 4),
    Warps(64, 32, 32, 32, 16, 4, 8, 4, 7),
    Warps(128, 16, 64, 16, 16, 8, 4, 3, 6),
)


class Tensors(WarpTiles, frozen=True):
    """Tiles of conv/cuda_tensor.cu: product per block and per warp, depth of a stage, stages, blocks per multiprocessor."""

    deep: int
    stages: int
    blocks: int
    BUSY_WARPS: ClassVar[float] = 5.6

    def stage(self, wgrad: int) -> float:
        """Cycles of a stage on a busy multiprocessor: most are of operands on their way."""
        return self.tile_m * self.tile_n * self.deep / 1024 * (0.28 + 36 * (1 / self.tile_m + 1 / self.tile_n))

    def shared_bytes(self, wgrad: int) -> int:
        """The ring of stages, every line 16 bytes longer than what it holds."""
        a = self.deep * (self.tile_m + 8) if wgrad else self.tile_m * (self.deep + 8)
        return 2 * self.stages * (a + self.deep * (self.tile_n + 8))

    def __str__(self) -> str:
        return f"{self.tile_m}x{self.tile_n}x{self.deep} stages={self.stages}"


TENSORS = (
    Tensors(128, 128, 64, 64, 32, 4, 2),
    Tensors(128, 128, 64, 64, 64, 3, 2),
    Tensors(128, 64, 64, 32, 64, 3, 2),
    Tensors(128, 64, 64, 32, 32, 4, 3),
    Tensors(128, 32, 32, 32, 32, 4, 4),
    Tensors(64, 64, 32, 32, 64, 3, 3),
    Tensors(256, 64, 64, 64, 32, 4, 2),
)


class Groups(GroupTiles, frozen=True):
    """Tiles of conv/cuda_wgmma.cu, and its blocks per multiprocessor."""

    blocks: int
    BUSY_WARPS: ClassVar[float] = 0.0

    def stage(self, wgrad: int) -> float:
        """Cycles of a stage: products, and lines that the copy engine walks; it takes twice as long across the sum (wgrad)."""
        tile_m, tile_n = self.tile
        return tile_m * tile_n / 160 + (4 if wgrad else 2) * tile_m + tile_n

    @property
    def threads(self) -> int:
        return 128 * self.consumers + 32

    def __str__(self) -> str:
        return f"{self.tile[0]}x{self.tile[1]} stages={self.stages} blocks={self.blocks}"


GROUPS = (
    Groups(2, 64, 64, 3, 1, 2),
    Groups(2, 64, 128, 3, 1, 2),
    Groups(2, 64, 64, 6, 1, 1),
    Groups(2, 64, 128, 5, 2, 1),
    Groups(2, 64, 192, 4, 2, 1),
    Groups(3, 64, 192, 4, 1, 1),
    Groups(2, 64, 256, 4, 2, 1),
    Groups(2, 128, 64, 4, 1, 1),
    Groups(2, 128, 128, 4, 2, 1),
)


T = TypeVar("T", Warps, Tensors, Groups)


def plans(forms: Sequence[T], m: int, n: int, k: int, wgrad: int, multiprocessors: int) -> list[Plan[T]]:
    """The plans of an implicit GEMM to be timed, the one that the model ranks first before the others. A sum has one part, or as
    many as make a wave or two of blocks."""

    def cycles(plan: Plan[T]) -> float:
        """Waves of blocks on the busiest multiprocessor, which few warps leave idle; then a `reduce`."""
        of = plan.of
        waves, rest = divmod(-(-of.count(m, n) * plan.parts // multiprocessors), of.blocks)
        alone = of.BUSY_WARPS / (of.threads // 32)  # blocks that it would have to have
        rounds = waves * max(of.blocks, alone) + (max(rest, alone) if rest else 0)
        reduced = plan.parts > 1 or (wgrad and isinstance(of, Groups))
        adding = _REDUCE + _PARTIAL * (plan.parts + 1) * m * n / multiprocessors if reduced else 0
        return plan.steps(k) * of.stage(wgrad) * rounds + adding

    def every(of: T) -> list[Plan[T]]:
        steps, at_once = -(-k // of.deep), of.blocks * multiprocessors
        most: list[int] = [min(steps // LEAST_STEPS, waves * at_once // of.count(m, n)) for waves in (0, 1, 2)]
        return [Plan(of, -(-steps // -(-steps // max(1, parts)))) for parts in most]  # none of them empty

    return few(map(every, forms), cycles)
