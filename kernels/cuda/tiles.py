"""The base classes of tile configurations, and the choice among their plans; nothing here needs a GPU."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, ClassVar, Generic, TypeVar

import msgspec

#: Rows of a product whose tiles are computed together (rasterization).
GROUP_ROWS = 2048
#: Most shared memory of a thread block, in bytes. Source: CUDA C++ Programming Guide, compute capability 9.0.
HOPPER_SHARED_BYTES = 227 << 10
#: Bytes of a line of a stage in shared memory, as in the wgmma sources.
LINE = 128
#: Bytes of a part of the results in shared memory: 64 lines, as in the wgmma sources.
STORED_BYTES = 64 * LINE
#: Plans that are timed on the GPU: the first by the cost model.
TRIED = 4
#: Most of these whose tiles have one size.
TRIED_OF_ONE_SIZE = 2
#: Most parts that k is split into.
MOST_PARTS = 16
#: Least stages in a part of k.
LEAST_STEPS = 4
#: Factor on the modeled cycles of a split plan: smaller gains are within the model's error.
SPLIT_MARGIN = 1.05


class Tiles(msgspec.Struct, frozen=True, kw_only=True):
    """Compile-time parameters of a kernel. A field, in capitals, is a macro of its .cu file."""

    def macros(self) -> dict[str, int]:
        return {name.upper(): getattr(self, name) for name in self.__struct_fields__}

    @property
    def tile(self) -> tuple[int, int]:
        """(rows, columns) of the product per block; a kind of tiles defines its own."""
        raise NotImplementedError(type(self).__name__)

    def count(self, rows: int, columns: int) -> int:
        """Number of tiles that cover a matrix product C of rows x columns."""
        tile_m, tile_n = self.tile
        return -(-rows // tile_m) * -(-columns // tile_n)

    @property
    def in_cluster(self) -> bool:
        """Whether the parts of a tile's k are the blocks of one cluster, which add their sums there."""
        return False

    def parts(self, most: int) -> range:
        """The numbers of parts, `most` at most, that the sum over k may be split into."""
        return range(1, most + 1)

    def group(self) -> int:
        """Rows of tiles that are computed one after the other column by column (rasterization), so that the L2 serves their
        operands."""
        return max(1, GROUP_ROWS // self.tile[0])


def traffic(item_bytes: int, block: tuple[int, int], unit: tuple[int, int]) -> str:
    """Text with the bytes read per FLOP from the L2, by a thread block, and from shared memory (or the L1), by what
    multiplies.

    block: (lines of operands read, results computed from them) of a thread block.
    unit: the same of the thread, warp or instruction that multiplies.
    """

    def bytes_per_flop(lines: int, results: int) -> float:
        return item_bytes * lines / (2 * results)

    return f"{bytes_per_flop(*block):.2g} L2, {bytes_per_flop(*unit):.2g} shared"


def lines_and_results(rows: int, columns: int) -> tuple[int, int]:
    """(lines of operands read, results) of a tile of rows x columns, as `traffic` takes them."""
    return rows + columns, rows * columns


class WarpTiles(Tiles, frozen=True, kw_only=True):
    """Tiles of kernels that multiply by warps."""

    #: Rows of the product per block.
    tile_m: int
    #: Columns of the product per block.
    tile_n: int
    #: Rows of the product per warp.
    warp_m: int
    #: Columns of the product per warp.
    warp_n: int

    @property
    def tile(self) -> tuple[int, int]:
        return self.tile_m, self.tile_n

    @property
    def unit(self) -> tuple[int, int]:
        """(rows, columns) of the product that are computed from the same registers: a warp's."""
        return self.warp_m, self.warp_n

    @property
    def threads(self) -> int:
        warps = (self.tile_m // self.warp_m) * (self.tile_n // self.warp_n)
        return warps * 32


class GroupTiles(Tiles, frozen=True, kw_only=True):
    """Tiles of the wgmma kernels, which multiply by warpgroups of four warps."""

    #: Warpgroups that multiply.
    consumers: int
    #: Rows of the product per warpgroup.
    rows: int
    #: Columns of the product per warpgroup.
    columns: int
    #: Stages of the ring in shared memory.
    stages: int
    #: Most parts of a warpgroup's results that are on their way to memory.
    staged: int
    #: k per stage, in items of two bytes.
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
        """Bytes of shared memory that a block takes, at most: the ring of stages, and the results on their way to memory.

        A stage has the lines of both operands and two barriers of 8 bytes. An operand that lies across k is loaded by whole
        64 columns.
        """
        lines = self.tile[0] + -(-self.columns // 64) * 64
        ring = self.stages * (lines * LINE + 16)
        results = self.consumers * self.staged * STORED_BYTES
        return ring + results


T = TypeVar("T", bound=Any)  # tiles with `deep`; a matmul's also have `slots` and `cycles`


class TilePlan(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Tiles, and into how many parts k is split (split-k).

    The parts' sums are added in order. In a matmul only the tiles of the last wave, which leaves multiprocessors idle, are split;
    in a convolution all are.
    """

    #: Compile-time parameters.
    tiles: T
    #: Parts of k; 1: not split.
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.tiles} split-k={self.parts}" if self.parts > 1 else str(self.tiles)

    def steps(self, k: int) -> int:
        """Number of stages (steps of the tiles' `deep` in k) in a part of a sum over k."""
        return -(-k // (self.tiles.deep * self.parts))

    def leaves_none_empty(self, k: int) -> bool:
        """Whether even the last part of a sum over k has something to add up."""
        return (self.parts - 1) * self.steps(k) * self.tiles.deep < k

    def whole(self, m: int, n: int, multiprocessors: int) -> int:
        """Number of tiles of an m x n product whose sum is not split, on a GPU with so many multiprocessors."""
        if self.tiles.in_cluster:
            return 0
        count = self.tiles.count(m, n)
        if self.parts == 1:
            return count
        slots = self.tiles.slots(multiprocessors)
        return count // slots * slots

    def units(self, m: int, n: int, multiprocessors: int) -> int:
        """Number of units of work of an m x n product on a GPU with so many multiprocessors: whole tiles, and the parts of
        the split ones."""
        whole = self.whole(m, n, multiprocessors)
        split = self.tiles.count(m, n) - whole
        return whole + split * self.parts

    def cycles(self, m: int, n: int, k: int, multiprocessors: int, **operands: bool) -> float:
        """Estimated cycles of a launch for a product of m x k and k x n, after its first stage has arrived.

        operands: facts of the operands that the tiles' estimate depends on beside sizes, as `aligned`.
        """
        whole = self.whole(m, n, multiprocessors)
        split = self.tiles.count(m, n) - whole
        cycles = 0.0
        if whole:
            steps = TilePlan(tiles=self.tiles).steps(k)
            cycles += self.tiles.cycles(whole, steps, 1, multiprocessors, **operands)
        if split:
            cycles += self.tiles.cycles(split, self.steps(k), self.parts, multiprocessors, **operands)
        return cycles


def plans(forms: Sequence[T], m: int, n: int, k: int, *, multiprocessors: int, **operands: bool) -> list[TilePlan[T]]:
    """The plans worth timing for a product of m x k and k x n, best first by the cost model: those of `best_plans`.

    forms: the tiles to choose from. operands: facts of the operands that the tiles' estimate depends on, as `aligned`.
    """

    def cycles(plan: TilePlan[T]) -> float:
        """Estimated cycles of a plan; a split one must be better by more than the model's error."""
        margin = SPLIT_MARGIN if plan.parts > 1 else 1
        return plan.cycles(m, n, k, multiprocessors=multiprocessors, **operands) * margin

    def splits(tiles: T) -> list[TilePlan[T]]:
        """The plans with these tiles: parts for at most four waves of the tiles that are split, none of them empty."""
        slots = tiles.slots(multiprocessors)
        tiles_to_split = tiles.count(m, n) % slots or slots
        stages = -(-k // tiles.deep)
        most = max(1, min(MOST_PARTS, stages // LEAST_STEPS, 4 * slots // tiles_to_split))
        split = [TilePlan(tiles=tiles, parts=parts) for parts in tiles.parts(most)]
        return [plan for plan in split if plan.leaves_none_empty(k)]

    return best_plans(map(splits, forms), cycles)


def best_plans(forms: Iterable[list[TilePlan[T]]], cycles: Callable[[TilePlan[T]], float]) -> list[TilePlan[T]]:
    """The plans worth timing, best first by the cost model `cycles`: the best of each form, of these the first TRIED, and at
    most TRIED_OF_ONE_SIZE of them with tiles of one size.

    forms: for each form of tiles, its plans.
    """
    best_of_forms = [min(plans_of_form, key=cycles) for plans_of_form in forms if plans_of_form]
    chosen: list[TilePlan[T]] = []
    count_of_size: dict[tuple[int, int], int] = {}
    for plan in sorted(best_of_forms, key=cycles):
        size = plan.tiles.tile
        count_of_size[size] = count_of_size.get(size, 0) + 1
        if count_of_size[size] <= TRIED_OF_ONE_SIZE:
            chosen.append(plan)
    return chosen[:TRIED]
