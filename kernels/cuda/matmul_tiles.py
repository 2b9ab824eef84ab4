"""Compile-time parameters of our CUDA matmuls: the tiles that are tried on a GPU, and the resources that each needs.

Nothing here needs a GPU.
"""

import math
from collections.abc import Sequence

import msgspec

from kernels.cuda.tiles import GROUP_ROWS, HOPPER_SHARED_BYTES, LINE, MOST_PARTS, GroupTiles, Plan, Tiles, WarpTiles

# Figures of one Hopper multiprocessor, used only to rank plans. Per cycle: multiply-adds of 2-byte items (dense, from the data
# sheet), multiply-adds of float32, bytes that arrive from the L2, bytes that wgmma reads from shared memory. Last: cycles until
# the first stage has arrived.
MULTIPLIES, FMAS, L2_BYTES, SHARED_BYTES_CYCLE, FILL = 2048, 128, 64, 128, 1500
# Per cycle, measured on an H200: bytes of lines that lie across two of the L2's, of sums sent to another block of the cluster.
ACROSS_BYTES, CLUSTER_BYTES = 30, 14
# Cycles that a stage takes beside, for its barriers; how much longer one of ping-pong takes if the other warpgroup has no tile.
TURN, ALONE = 64, 1.25
HELD = 1.12  # how much slower a GPU at its power limit is; multiprocessors that idle in a last wave leave power to the others
POWER = 0.07  # slowdown at the GPU's power limit, as a share of the time that operands take from the L2
# Costs in the float32 kernel, in multiply-adds: reading an operand's item from shared memory, fetching it into shared memory, and
# waiting if a block is alone. Then: warps that keep a multiprocessor busy; a thread's registers beside sums and items, at least.
READ, FETCH, WAITED, BUSY_WARPS, OTHER_REGISTERS = 0.4, 4, 0.05, 5.2, 8


class Warps(WarpTiles, frozen=True):
    """Tiles of matmul/cuda_warp.cu: C per block and per warp, k per stage, C per thread, stages, groups of warps (slices) that
    share a stage's k, blocks per multiprocessor."""

    deep: int
    each_m: int
    each_n: int
    stages: int
    slices: int
    blocks: int

    @property
    def threads(self) -> int:
        return super().threads * self.slices

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory: the ring of stages, rows padded by 4 floats, or the sums of half the slices if more."""
        ring = 4 * self.stages * self.deep * (self.tile_m + 4 + self.tile_n + 4)
        return max(ring, 4 * self.tile_m * self.tile_n * (self.slices // 2))

    def registers(self, layout: str) -> int:
        """Least registers of a thread: its sums, and items of four k of an operand stored along k, or of two k of one stored
        across k or transposed on its way (in a short stage)."""
        a, b = (2 if across or self.deep == 16 else 4 for across in (layout[0] == "t", layout[1] == "n"))
        return self.each_m * self.each_n + a * self.each_m + b * self.each_n + OTHER_REGISTERS

    def by_items(self) -> "Warps":
        """For operands with rows not aligned to 16 bytes: one block fewer, as the addresses of single items need registers."""
        return msgspec.structs.replace(self, blocks=max(1, self.blocks - 1))

    def slots(self, multiprocessors: int) -> int:
        """Number of tiles that are computed at once."""
        return self.blocks * multiprocessors

    def cycles(self, tiles: int, steps: int, parts: int, multiprocessors: int) -> float:
        """Estimated cycles of `tiles` tiles in `parts` parts of `steps` stages each. A multiprocessor computes its tiles one
        after the other. The same for all layouts."""
        rounds = -(-tiles * parts // multiprocessors)
        items = READ * (1 / self.each_m + 1 / self.each_n) + FETCH * (1 / self.tile_m + 1 / self.tile_n)
        slower = 1 + items + WAITED / self.blocks
        alone = max(1.0, BUSY_WARPS / (self.threads // 32 * min(self.blocks, rounds)))
        stage = self.tile_m * self.tile_n * self.deep / FMAS * slower * alone
        leaving = self.tile_m * self.tile_n * 4 / L2_BYTES
        adding = leaving * (parts + 1) + FILL if parts > 1 else 0
        return rounds * (steps * stage + (leaving + adding) / self.blocks)

    def __str__(self) -> str:
        return (
            f"{self.tile_m}x{self.tile_n}x{self.deep} {self.each_m}x{self.each_n} stages={self.stages} slices={self.slices} "
            f"blocks={self.blocks}"
        )


# With more of C per thread a product needs fewer loads. Small tiles are for few rows, or too few tiles for all multiprocessors.
WARPS = (
    Warps(128, 256, 64, 64, 16, 8, 16, 4, 1, 1),
    Warps(96, 128, 96, 32, 16, 12, 8, 4, 1, 3),
    Warps(64, 128, 64, 32, 16, 8, 8, 4, 1, 4),
    Warps(64, 64, 32, 32, 32, 4, 8, 3, 1, 4),
    Warps(64, 128, 64, 32, 32, 8, 8, 3, 2, 2),
    Warps(64, 64, 64, 32, 32, 8, 8, 4, 2, 3),
    Warps(64, 32, 32, 32, 32, 4, 8, 4, 2, 4),
    Warps(16, 128, 16, 128, 32, 16, 4, 3, 2, 3),
    Warps(4, 128, 4, 128, 32, 4, 4, 3, 2, 4),
    Warps(32, 64, 32, 32, 32, 4, 8, 4, 2, 4),
)
# For batches, which have enough blocks: a tile is not much larger than a small product, and its stages hold all of a short k.
SMALL = (
    Warps(64, 64, 64, 32, 32, 8, 8, 3, 2, 3),
    Warps(64, 64, 32, 32, 32, 4, 8, 2, 1, 4),
    Warps(64, 64, 32, 32, 32, 4, 8, 3, 2, 2),
    Warps(32, 32, 32, 32, 32, 4, 8, 2, 1, 8),
    Warps(32, 32, 32, 16, 32, 4, 4, 2, 2, 4),
    Warps(32, 16, 32, 16, 16, 4, 4, 2, 1, 16),
)


class Direct(Tiles, frozen=True):
    """Parameters of matmul/cuda_direct.cu: units per block, threads that share a unit's k (a power of four), most rows of C per
    unit, and its columns."""

    lanes: int
    deep: int
    few: int
    columns: int

    def fitted(self, rows: int, along: bool, vector: bool) -> "Direct":
        """As compiled for so many rows. Four columns if rows are many, to use loads again, or if B is read by fours across k."""
        few = min(rows, self.few)
        wide = (few > 2 and self.deep > 1) or (vector and not along)
        return msgspec.structs.replace(self, few=few, columns=4 if wide else 1 if along else self.columns)

    def __str__(self) -> str:
        return f"direct lanes={self.lanes} deep={self.deep}"


DIRECT = (Direct(64, 1, 4, 4), Direct(16, 16, 8, 4), Direct(4, 64, 8, 1), Direct(2, 256, 4, 1))
# Longest sum that a thread has alone; k from which this kernel is not tried; most rows or columns of C that count as few; blocks
# per multiprocessor that keep memory busy; least k per thread when k is split over blocks.
SHORT, LONG, FEW, BUSY_BLOCKS, LEAST_DEEP = 32, 1 << 15, 8, 3, 16


class Tensors(WarpTiles, frozen=True):
    """Tiles of matmul/cuda_tensor.cu: C per block and per warp, bytes of k per stage, stages, blocks per multiprocessor."""

    line: int
    stages: int
    blocks: int

    @property
    def deep(self) -> int:
        """k per stage, in items of two bytes."""
        return self.line // 2

    def shared_bytes(self, layout: str, size: int) -> int:
        """Bytes of shared memory for items of `size` bytes: the ring of stages. An operand's lines along k are padded by
        16 bytes, its rows across k by 8 items."""
        sides = ((self.tile_m, layout[0] == "t"), (self.tile_n, layout[1] == "n"))
        return self.stages * sum(self.line * (of + 8) if across else of * (self.line + 16) for of, across in sides)

    def slots(self, multiprocessors: int) -> int:
        """Number of tiles that are computed at once."""
        return self.blocks * multiprocessors

    def cycles(self, tiles: int, steps: int, parts: int, multiprocessors: int) -> float:
        """Estimated cycles of `tiles` tiles in `parts` parts of `steps` stages each. A stage is multiplied at half of wgmma's
        rate, or waits for its operands; all stages but one are loaded ahead. The same for all layouts."""
        rounds = -(-tiles * parts // multiprocessors)
        arriving = (self.tile_m + self.tile_n) * self.line / L2_BYTES
        stage = max(2 * self.tile_m * self.tile_n * self.deep / MULTIPLIES, arriving)
        waited = max(rounds * stage, FILL / (self.stages - 1))
        leaving = rounds * self.tile_m * self.tile_n * 4 / L2_BYTES
        return steps * waited + leaving + ((parts + 1) * leaving + 2 * FILL if parts > 1 else 0)

    def __str__(self) -> str:
        return (
            f"{self.tile_m}x{self.tile_n} of {self.warp_m}x{self.warp_n} line={self.line} stages={self.stages} "
            f"blocks={self.blocks}"
        )


TENSORS = (
    Tensors(128, 128, 64, 64, 64, 4, 2),
    Tensors(128, 256, 64, 64, 128, 3, 1),
    Tensors(256, 128, 64, 64, 128, 3, 1),
    Tensors(64, 128, 64, 32, 128, 3, 2),
    Tensors(64, 64, 32, 32, 128, 3, 3),
    Tensors(32, 64, 16, 32, 128, 4, 3),
    Tensors(32, 32, 16, 16, 128, 4, 4),
)


class Groups(GroupTiles, frozen=True):
    """Tiles of matmul/cuda_wgmma.cu, and blocks of a cluster down, across, and along k (those add their sums in shared memory).
    `pingpong` 1: each warpgroup has its own tiles (ping-pong); 0: the warpgroups share one (cooperative)."""

    cluster_m: int
    cluster_n: int
    pingpong: int = 0
    cluster_k: int = 1

    @property
    def tile(self) -> tuple[int, int]:
        return self.rows if self.pingpong else self.consumers * self.rows, self.columns

    @property
    def threads(self) -> int:
        return 128 * (1 + self.consumers)

    @property
    def cluster(self) -> int:
        return self.sharing * self.cluster_k

    @property
    def sharing(self) -> int:
        """Blocks of a cluster that have the same part of k, and share what they load."""
        return self.cluster_m * self.cluster_n

    @property
    def in_cluster(self) -> bool:
        return self.cluster_k > 1

    def parts(self, most: int) -> range:
        return range(self.cluster_k, most + 1)[:1] if self.in_cluster else super().parts(most)

    def shares(self) -> tuple[int, int]:
        """(rows of A's tile, columns of B's tile) that a block loads for its cluster."""
        return self.tile[0] // self.cluster_n, self.tile[1] // self.cluster_m

    def fits(self, layout: str, item_bytes: int = 2) -> bool:
        """Whether the tiles can be compiled: shared memory suffices, a block's shares are whole swizzle patterns (8 lines, or 64
        if the operand lies across k and is shared), and registers hold the sums and an A that goes through them."""
        a, b = self.shares()
        a_across, b_across = layout[0] == "t", layout[1] == "n"
        whole = a % (64 if a_across else 8) == 0 and b % (64 if b_across and self.cluster_m > 1 else 8) == 0
        if a_across and item_bytes == 4:
            whole &= self.columns % 64 == 0
        held = self.rows // 64 * (self.columns // 2 + (16 if a_across and item_bytes == 4 else 0))
        return whole and self.shared_bytes <= HOPPER_SHARED_BYTES and held <= MOST_HELD

    def count(self, rows: int, columns: int) -> int:
        """Number of clusters' tiles that cover a product."""
        tile_m, tile_n = self.tile
        return -(-rows // (tile_m * self.cluster_m)) * -(-columns // (tile_n * self.cluster_n))

    def group(self) -> int:
        """Rows of clusters' tiles that are computed together (rasterization)."""
        return max(1, GROUP_ROWS // (self.tile[0] * self.cluster_m))

    def slots(self, multiprocessors: int) -> int:
        """Number of clusters' tiles, or of their parts within a cluster, that are computed at once, with one block per
        multiprocessor. Larger clusters leave some idle: an H200 with 132 has 30 of four at once, 15 of eight."""
        fitting = multiprocessors if self.cluster <= 2 else multiprocessors * 10 // 11
        return max(1, fitting // self.cluster) * self.cluster_k

    def cycles(self, tiles: int, steps: int, parts: int, multiprocessors: int, aligned: bool = True) -> float:
        """Estimated cycles of `tiles` clusters' tiles in `parts` parts of `steps` stages each, wave by wave, or at the power
        limit if that takes longer. A stage takes the longest of its products, its loads from the L2 (not `aligned`: lines lie
        across two of the L2's) and its reads of shared memory. Storing C is added (ping-pong hides three quarters of it), and
        with split-k the parts' way through the L2, or to the cluster's other blocks. The same for all layouts."""
        tile_m, tile_n = self.tile
        share = tiles * parts / self.slots(multiprocessors)
        waves = max(math.ceil(share), HELD * share)
        wgmmas = tile_m // 64 * self.deep // 16
        loaded = sum(self.shares()) * LINE
        arriving = max((tile_m + tile_n) * LINE / L2_BYTES, 0 if aligned else loaded / ACROSS_BYTES)
        products = max(tile_m * tile_n * self.deep / MULTIPLIES, wgmmas * (64 + tile_n) * 32 / SHARED_BYTES_CYCLE)
        alone = ALONE if self.pingpong and share <= 1 else 1
        stage = max(products, arriving) * alone + POWER * loaded / L2_BYTES + TURN
        leaving = tile_m * tile_n * 2 / L2_BYTES * (0.25 if self.pingpong else 1)
        sums, held = tile_m * tile_n * 4, self.rows * self.columns // 128  # bytes; sums in a thread's registers
        if self.in_cluster:
            adding = sums * (parts - 1) / parts / CLUSTER_BYTES + 2 * FILL
        else:
            adding = sums * (parts + 1) / L2_BYTES + max(4, held // 16) * FILL if parts > 1 else 0
        return waves * (steps * stage + leaving + adding)

    def __str__(self) -> str:
        return (
            f"{self.tile[0]}x{self.tile[1]} {'ping-pong' if self.pingpong else 'cooperative'} stages={self.stages} "
            f"cluster={self.cluster_m}x{self.cluster_n}{f'x{self.cluster_k}' * self.in_cluster} staged={self.staged}"
        )


GROUPS = (
    Groups(2, 128, 128, 6, 2, 1, 2, 1),
    Groups(2, 128, 128, 6, 2, 2, 1, 1),
    Groups(2, 64, 256, 4, 2, 1, 1),
    Groups(2, 64, 256, 4, 2, 2, 1),
    Groups(2, 64, 256, 3, 4, 2, 1),
    Groups(2, 128, 192, 3, 2, 1, 2),
    Groups(2, 128, 192, 4, 2, 1, 1, 1),
    Groups(2, 128, 192, 5, 1, 2, 1, 1),
    Groups(2, 128, 192, 5, 1, 1, 2, 1),
    Groups(2, 128, 128, 4, 2, 1, 1),
    Groups(2, 64, 64, 8, 1, 1, 1),
    Groups(1, 64, 256, 5, 2, 1, 1),
    Groups(1, 64, 128, 8, 2, 1, 1),
    Groups(1, 64, 64, 12, 1, 1, 1),
    Groups(2, 64, 128, 6, 2, 1, 1),
    Groups(1, 64, 96, 8, 2, 1, 1),
    Groups(1, 64, 160, 6, 2, 1, 1),
    Groups(2, 64, 96, 6, 2, 1, 1),
    Groups(2, 64, 160, 5, 1, 1, 1),
    Groups(2, 128, 160, 5, 1, 2, 1, 1),
    Groups(2, 128, 160, 3, 2, 1, 2),
    Groups(2, 64, 128, 6, 2, 1, 1, 0, 2),
    Groups(2, 64, 128, 6, 2, 1, 1, 0, 3),
    Groups(2, 64, 128, 6, 2, 2, 1, 0, 2),
    Groups(2, 64, 128, 6, 2, 2, 2, 0, 2),
    Groups(1, 64, 128, 8, 2, 1, 1, 0, 2),
    Groups(2, 64, 64, 8, 1, 1, 1, 0, 2),
)
MOST_HELD = 192  # most sums and items of A in a thread's registers


def warps(layout: str, single: bool = True) -> list[Warps]:
    """The tiles of matmul/cuda_warp.cu for one product or (not `single`) a batch, each with as many blocks per multiprocessor
    as there are registers for."""
    found = []
    for of in WARPS if single else SMALL:
        each = [65536 // (of.threads * blocks) for blocks in range(1, of.blocks + 1)]
        fitting = sum(of.registers(layout) <= min(255, given // 8 * 8) for given in each)
        found.append(msgspec.structs.replace(of, blocks=fitting))
    return found


def direct(m: int, n: int, k: int, multiprocessors: int) -> list[Plan[Direct]]:
    """The plans of matmul/cuda_direct.cu: for short sums, and for few rows or columns. With few, k is split if there are too few
    blocks to keep memory busy. None for 2^31 items of C or more, which it counts in 32 bits."""
    found, (few, many) = [], sorted((m, n))
    if m * n >= 1 << 31:
        return []
    if k <= SHORT:
        return [Plan(DIRECT[0])]
    for of in (of for of in DIRECT[1:] if few <= of.few and k < LONG):
        room = BUSY_BLOCKS * multiprocessors * of.lanes * of.columns // many
        found.append(Plan(of, max(1, min(MOST_PARTS, room, k // (LEAST_DEEP * of.deep)))))
    return found


def groups(layout: str, item_bytes: int) -> list[Groups]:
    """The tiles of matmul/cuda_wgmma.cu that can be compiled for items of `item_bytes` bytes. A part of the results is 64 lines
    of 128 bytes, so 64 x 64 items of four bytes are two parts, and `staged` is even."""
    every: Sequence[Groups] = GROUPS
    if item_bytes == 4:
        every = [msgspec.structs.replace(of, staged=max(2, of.staged // 2 * 2)) for of in GROUPS]
    return [of for of in every if of.fits(layout, item_bytes)]
