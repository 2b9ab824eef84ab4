"""What all records of tiles have in common; nothing here needs a GPU."""

from typing import ClassVar

import msgspec

GROUP_ROWS = 2048  # of a product, whose tiles are worked on together
HOPPER_SHARED_BYTES = 227 << 10  # what a block may have, from the CUDA C programming guide
# Bytes of a row of a stage, and of a part of the results on their way, as the wgmma sources have them.
LINE, STORED_BYTES = 128, 64 * 128
_LEAST_STEPS = 4  # of each part of a split-k
_PARTIAL_BYTES = 1 << 28


class Tiles(msgspec.Struct, frozen=True):
    """What a kernel is compiled for: each field is a macro of its .cu in capitals."""

    def macros(self) -> dict[str, int]:
        return {name.upper(): getattr(self, name) for name in self.__struct_fields__}

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of the product that a block works on; each kind of tiles has its own."""
        raise NotImplementedError(type(self).__name__)

    def count(self, rows: int, columns: int) -> int:
        """Tiles that cover a product."""
        return -(-rows // self.tile[0]) * -(-columns // self.tile[1])

    def group(self) -> int:
        """Rows of tiles that are worked on together."""
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
    def threads(self) -> int:
        return self.tile_m // self.warp_m * (self.tile_n // self.warp_n) * 32


class GroupTiles(Tiles, frozen=True):
    """The wgmma sources: warpgroups that multiply, of the product each, stages, parts of a warpgroup's results on their way;
    `deep`: of the sum a stage, in items of two bytes."""

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
    def shared_bytes(self) -> int:
        """The ring of stages with two barriers each, and parts of each warpgroup's results on their way."""
        return self.stages * (sum(self.tile) * LINE + 16) + self.consumers * self.staged * STORED_BYTES


def splits(tiles: int, steps: int, at_once: int, outputs: int) -> list[int]:
    """Blocks that may share a sum (split-k): one, and as many as make a wave or two of blocks where that is more; each has a few
    steps and all partial sums together fit where they are kept."""
    most = max(1, min(steps // _LEAST_STEPS, _PARTIAL_BYTES // (4 * outputs)))
    counts = {1, *(min(most, max(1, waves * at_once // tiles)) for waves in (1, 2))}
    return sorted({-(-steps // -(-steps // of)) for of in counts} if steps else {1})  # none of them empty
