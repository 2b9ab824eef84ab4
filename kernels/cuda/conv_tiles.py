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

MOST_ITEMS = 1 << 31  # items of an array: offsets are counted in 32 bits
# Cycles of one Hopper multiprocessor, fitted to layers timed on an H200 and used only to rank plans: for a launch of `reduce` and
# for each partial sum that is written and read.
_REDUCE, _PARTIAL = 12000, 0.4


class Gather(NamedTuple):
    """A convolution as a matrix product with k columns. Tap (i, j) of pixel (y, x), of n images of p x q, reads row
    y * step + i - top and column x * step + j - left of source images of h x w x c. It is fprop, or dgrad of one phase of a
    stride; its results go to row y * to_step + to_y of images of to_h x to_w. wgrad sums over the pixels instead.

    The fields are those of Shape in include/implicit_gemm.cuh.
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
    """fprop, and the pixels and taps of wgrad. `c`: channels as stored, with padding (0: those of the problem)."""
    p, (top, _), (left, _) = problem, *problem.pads
    return Gather(p.h, p.w, c or p.c_in, p.n, p.p, p.q, p.c_out, p.r, p.s, p.stride, top, left, p.p, p.q)


class Phase(NamedTuple):
    """dgrad of the pixels at one position within a stride: its product, and the filter's rows and columns that reach them."""

    of: Gather
    rows: slice
    columns: slice


def phases(problem: Conv, k: int = 0) -> list[Phase]:
    """dgrad as convolutions of dy with stride 1: one for each pixel of a stride x stride square, with every stride-th row and
    column of the filter, reversed. Pixels that no tap reaches are in no phase: their gradient is zero.

    `k`: channels of dy as stored, with padding (0: those of the problem).
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


def _turned(side: conv.SidePhase, stride: int) -> slice:
    """The taps of a phase as a slice, the last tap first."""
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
        """(rows, columns) of the product per thread."""
        return self.each_m, self.each_n

    def stage(self, wgrad: int) -> float:
        """Estimated cycles of a stage on a busy multiprocessor: 128 multiply-adds per cycle, and loading operands."""
        return self.tile_m * self.tile_n * self.deep / 128 * (1 + 16 * (1 / self.tile_m + 1 / self.tile_n))

    def shared_bytes(self, wgrad: int) -> int:
        """Bytes of shared memory: the ring of stages. Rows of A are padded by 4 floats, but not wgrad's, which lie across."""
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
        """Estimated cycles of a stage on a busy multiprocessor, most of them for loading operands."""
        return self.tile_m * self.tile_n * self.deep / 1024 * (0.28 + 36 * (1 / self.tile_m + 1 / self.tile_n))

    def shared_bytes(self, wgrad: int) -> int:
        """Bytes of shared memory: the ring of stages, with every line padded by 16 bytes."""
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
        """Estimated cycles of a stage: products, and lines that TMA loads; A's take twice as long across the sum (wgrad)."""
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
    """The plans of an implicit GEMM to time, best first by the cost model. The sum is in one part, or in as many parts as make
    one or two waves of blocks."""

    def cycles(plan: Plan[T]) -> float:
        """Estimated cycles: waves of blocks on the busiest multiprocessor, longer if its warps are few; then `reduce`."""
        of = plan.of
        waves, rest = divmod(-(-of.count(m, n) * plan.parts // multiprocessors), of.blocks)
        alone = of.BUSY_WARPS / (of.threads // 32)  # blocks that keep a multiprocessor busy
        rounds = waves * max(of.blocks, alone) + (max(rest, alone) if rest else 0)
        reduced = plan.parts > 1 or (wgrad and isinstance(of, Groups))
        adding = _REDUCE + _PARTIAL * (plan.parts + 1) * m * n / multiprocessors if reduced else 0
        return plan.steps(k) * of.stage(wgrad) * rounds + adding

    def every(of: T) -> list[Plan[T]]:
        steps, at_once = -(-k // of.deep), of.blocks * multiprocessors
        most: list[int] = [min(steps // LEAST_STEPS, waves * at_once // of.count(m, n)) for waves in (0, 1, 2)]
        return [Plan(of, -(-steps // -(-steps // max(1, parts)))) for parts in most]  # no part is empty

    return few(map(every, forms), cycles)
