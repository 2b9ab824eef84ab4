"""The base class of tile configurations, and the choice among their plans; nothing here needs a GPU."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

GROUP_ROWS = 2048  # rows of a product whose tiles are computed together (rasterization)
HOPPER_SHARED_BYTES = 227 << 10  # most shared memory of a thread block, from the CUDA C programming guide
# Bytes of a line of a stage, and of a part of the results (64 lines) in shared memory, as in the wgmma sources.
LINE, STORED_BYTES = 128, 64 * 128
TRIED = 4  # number of plans that are timed on the GPU: those that the cost model ranks first
MOST_PARTS, LEAST_STEPS = 16, 4  # most parts that k is split into; least stages in a part
SPLIT = 1.05  # factor on the modeled cycles of a split plan: smaller gains are within the model's error


class Tiles(msgspec.Struct, frozen=True):
    """Compile-time parameters of a kernel. Each field, in capitals, is a macro of its .cu file."""

    def macros(self) -> dict[str, int]:
        return {name.upper(): getattr(self, name) for name in self.__struct_fields__}

    @property
    def tile(self) -> tuple[int, int]:
        """(rows, columns) of the product per block; each kind of tiles defines its own."""
        raise NotImplementedError(type(self).__name__)

    def count(self, rows: int, columns: int) -> int:
        """Number of tiles that cover a product of rows x columns."""
        return -(-rows // self.tile[0]) * -(-columns // self.tile[1])

    @property
    def in_cluster(self) -> bool:
        """Whether the parts of a tile's k are the blocks of one cluster, which add their sums there."""
        return False

    def parts(self, most: int) -> range:
        """The numbers of parts, `most` at most, that k may be split into."""
        return range(1, most + 1)

    def group(self) -> int:
        """Rows of tiles that are computed together (rasterization)."""
        return max(1, GROUP_ROWS // self.tile[0])


def traffic(item_bytes: int, block: tuple[int, int], unit: tuple[int, int]) -> str:
    """Text with the bytes read per FLOP from the L2 and from shared memory (or the L1). `block` is (lines of operands read,
    results computed from them) of a thread block; `unit` is that of the thread, warp or instruction that multiplies."""
    l2, shared = (item_bytes * lines / (2 * results) for lines, results in (block, unit))
    return f"{l2:.2g} L2, {shared:.2g} shared"


class WarpTiles(Tiles, frozen=True):
    """Tiles of kernels that multiply by warps: rows and columns of the product per block and per warp."""

    tile_m: int
    tile_n: int
    warp_m: int
    warp_n: int

    @property
    def tile(self) -> tuple[int, int]:
        return self.tile_m, self.tile_n

    @property
    def unit(self) -> tuple[int, int]:
        """(rows, columns) of the product that are computed from the same registers: those of a warp."""
        return self.warp_m, self.warp_n

    @property
    def threads(self) -> int:
        return self.tile_m // self.warp_m * (self.tile_n // self.warp_n) * 32


class GroupTiles(Tiles, frozen=True):
    """Tiles of the wgmma kernels: warpgroups that multiply, rows and columns of the product per warpgroup, stages, and the most
    parts of a warpgroup's results in flight. `deep`: k per stage, in items of two bytes."""

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
        """(rows, columns) of the product of one wgmma instruction."""
        return 64, self.columns

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory, at most: the ring of stages with two barriers each, and all warpgroups' parts of results in
        flight. Of an operand that lies across k 64 columns are loaded at once."""
        lines = self.tile[0] + -(-self.columns // 64) * 64
        return self.stages * (lines * LINE + 16) + self.consumers * self.staged * STORED_BYTES


T = TypeVar("T", bound=Any)  # tiles with `deep`; those of a matmul also have `slots` and `cycles`


class Plan(msgspec.Struct, Generic[T], frozen=True):
    """Tiles, and the number of parts that k is split into (split-k); the parts' sums are added in order. In a matmul, tiles that
    fill all multiprocessors, wave by wave, have all of k, and only the rest are split. In a convolution all are."""

    of: T
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.of} split-k={self.parts}" if self.parts > 1 else str(self.of)

    def steps(self, k: int) -> int:
        """Number of stages in a part of k."""
        return -(-k // (self.of.deep * self.parts))

    def leaves_none_empty(self, k: int) -> bool:
        return (self.parts - 1) * self.steps(k) * self.of.deep < k

    def whole(self, m: int, n: int, multiprocessors: int) -> int:
        """Number of tiles that are not split."""
        if self.of.in_cluster:
            return 0
        tiles, slots = self.of.count(m, n), self.of.slots(multiprocessors)
        return tiles // slots * slots if self.parts > 1 else tiles

    def units(self, m: int, n: int, multiprocessors: int) -> int:
        """Number of units of work: whole tiles, and the parts of the split ones."""
        whole = self.whole(m, n, multiprocessors)
        return whole + (self.of.count(m, n) - whole) * self.parts

    def cycles(self, m: int, n: int, k: int, multiprocessors: int, **operands: bool) -> float:
        """Estimated cycles of a launch after its first stage has arrived. `operands`: what else the tiles' own estimate asks."""
        whole = self.whole(m, n, multiprocessors)
        shares = (whole, Plan(self.of).steps(k), 1), (self.of.count(m, n) - whole, self.steps(k), self.parts)
        return sum(self.of.cycles(*share, multiprocessors, **operands) for share in shares if share[0])


def plans(forms: Sequence[T], m: int, n: int, k: int, multiprocessors: int, **operands: bool) -> list[Plan[T]]:
    """The plans of a product to time, best first by the cost model: at most TRIED, and at most two with tiles of one size."""

    def cycles(plan: Plan[T]) -> float:
        return plan.cycles(m, n, k, multiprocessors, **operands) * (SPLIT if plan.parts > 1 else 1)

    def every(of: T) -> list[Plan[T]]:
        slots = of.slots(multiprocessors)
        room = 4 * slots // (of.count(m, n) % slots or slots)
        most = max(1, min(MOST_PARTS, -(-k // of.deep) // LEAST_STEPS, room))
        found = [Plan(of, parts) for parts in of.parts(most)]
        return [plan for plan in found if plan.leaves_none_empty(k)]

    return few(map(every, forms), cycles)


def few(forms: Iterable[list[Plan[T]]], cycles: Callable[[Plan[T]], float]) -> list[Plan[T]]:
    """The best plan of each form by the cost model `cycles`; of these the best TRIED, at most two with tiles of one size."""
    ranked = sorted((min(every, key=cycles) for every in forms if every), key=cycles)
    tiles = [plan.of.tile for plan in ranked]
    return [plan for i, plan in enumerate(ranked) if tiles[:i].count(tiles[i]) < 2][:TRIED]
