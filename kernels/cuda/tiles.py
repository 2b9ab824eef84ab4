"""Base of all records of tiles, and the choice among their plans; nothing here needs a GPU."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

GROUP_ROWS = 2048  # of a product, whose tiles are worked on together
HOPPER_SHARED_BYTES = 227 << 10  # what a block may have, from the CUDA C programming guide
# Bytes of a row of a stage, and of a part of the results on their way, as the wgmma sources have them.
LINE, STORED_BYTES = 128, 64 * 128
TRIED = 4  # number of plans that are timed on the GPU: those that the cost model ranks first
MOST_PARTS, LEAST_STEPS = 16, 4  # most parts that k is split into; least stages in a part
SPLIT = 1.05  # factor on the modeled cycles of a split plan: smaller gains are within the model's error


class Tiles(msgspec.Struct, frozen=True):
    """Compile-time parameters of a kernel. Each field becomes a macro, in capitals, of its .cu file."""

    def macros(self) -> dict[str, int]:
        return {name.upper(): getattr(self, name) for name in self.__struct_fields__}

    @property
    def tile(self) -> tuple[int, int]:
        """(rows, columns) of the product per block; each kind of tiles defines its own."""
        raise NotImplementedError(type(self).__name__)

    def count(self, rows: int, columns: int) -> int:
        """Tiles that cover a product."""
        return -(-rows // self.tile[0]) * -(-columns // self.tile[1])

    def group(self) -> int:
        """Rows of tiles that are worked on together (rasterization)."""
        return max(1, GROUP_ROWS // self.tile[0])


def traffic(item_bytes: int, block: tuple[int, int], unit: tuple[int, int]) -> str:
    """Bytes for a FLOP from the L2 and from shared memory (or the L1), in words. Of each: lines of operands that are read, and
    results that they are read for; of a block, and of the thread, warp or instruction that multiplies."""
    l2, shared = (item_bytes * lines / (2 * results) for lines, results in (block, unit))
    return f"{l2:.2g} L2, {shared:.2g} shared"


class WarpTiles(Tiles, frozen=True):
    """Tiles of kernels that multiply by warps: rows and columns of the product of a block and of a warp."""

    tile_m: int
    tile_n: int
    warp_m: int
    warp_n: int

    @property
    def tile(self) -> tuple[int, int]:
        return self.tile_m, self.tile_n

    @property
    def unit(self) -> tuple[int, int]:
        """Rows and columns that are multiplied from the same registers: a warp's."""
        return self.warp_m, self.warp_n

    @property
    def threads(self) -> int:
        return self.tile_m // self.warp_m * (self.tile_n // self.warp_n) * 32


class GroupTiles(Tiles, frozen=True):
    """Tiles of the wgmma sources: warpgroups that multiply, product per warpgroup, stages, parts of its results in flight;
    `deep`: depth of a stage, in items of two bytes."""

    consumers: int
    rows: int
    columns: int
    stages: int
    staged: int
    deep: ClassVar[int] = LINE // 2

    @property
    def tile(self) -> tuple[int, int]:
        return self.consumers * self.rows, self.columns

    @property
    def unit(self) -> tuple[int, int]:
        """Rows and columns of an instruction."""
        return 64, self.columns

    @property
    def shared_bytes(self) -> int:
        """The ring of stages with two barriers each, and parts of each warpgroup's results on their way."""
        return self.stages * (sum(self.tile) * LINE + 16) + self.consumers * self.staged * STORED_BYTES


T = TypeVar("T", bound=Any)  # tiles that have `deep`, a product's `slots` and `cycles` too


class Plan(msgspec.Struct, Generic[T], frozen=True):
    """Tiles, and the number of parts that k is split into; their sums are added in order (split-k). Tiles that fill all
    multiprocessors, wave by wave, have all of k; only the rest are split."""

    of: T
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.of} split-k={self.parts}" if self.parts > 1 else str(self.of)

    def steps(self, k: int) -> int:
        """Stages of a part of k."""
        return -(-k // (self.of.deep * self.parts))

    def leaves_none_empty(self, k: int) -> bool:
        return (self.parts - 1) * self.steps(k) * self.of.deep < k

    def whole(self, m: int, n: int, multiprocessors: int) -> int:
        """Number of tiles that are not split."""
        tiles, slots = self.of.count(m, n), self.of.slots(multiprocessors)
        return tiles // slots * slots if self.parts > 1 else tiles

    def units(self, m: int, n: int, multiprocessors: int) -> int:
        """Units of work: whole tiles, and the parts of the split ones."""
        whole = self.whole(m, n, multiprocessors)
        return whole + (self.of.count(m, n) - whole) * self.parts

    def cycles(self, m: int, n: int, k: int, multiprocessors: int) -> float:
        """Cycles of a launch after its first stage has come, roughly."""
        whole = self.whole(m, n, multiprocessors)
        shares = (whole, Plan(self.of).steps(k), 1), (self.of.count(m, n) - whole, self.steps(k), self.parts)
        return sum(self.of.cycles(*share, multiprocessors) for share in shares if share[0])


def plans(forms: Sequence[T], m: int, n: int, k: int, multiprocessors: int) -> list[Plan[T]]:
    """The plans of a product to be timed, the one that the model ranks first before the others; two of one size of tile."""

    def cycles(plan: Plan[T]) -> float:
        return plan.cycles(m, n, k, multiprocessors) * (SPLIT if plan.parts > 1 else 1)

    def every(of: T) -> list[Plan[T]]:
        slots = of.slots(multiprocessors)
        room = 4 * slots // (of.count(m, n) % slots or slots)
        most = max(1, min(MOST_PARTS, -(-k // of.deep) // LEAST_STEPS, room))
        found = [Plan(of, parts) for parts in range(1, most + 1)]
        return [plan for plan in found if plan.leaves_none_empty(k)]

    return few(map(every, forms), cycles)


def few(forms: Iterable[list[Plan[T]]], cycles: Callable[[Plan[T]], float]) -> list[Plan[T]]:
    """Of each form's plans the one that a model of cost ranks first; of these the first ones, two of one size of tile."""
    ranked = sorted((min(every, key=cycles) for every in forms), key=cycles)
    tiles = [plan.of.tile for plan in ranked]
    return [plan for i, plan in enumerate(ranked) if tiles[:i].count(tiles[i]) < 2][:TRIED]
