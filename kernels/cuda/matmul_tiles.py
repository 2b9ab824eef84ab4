"""Compile-time parameters of our CUDA matmuls: the tiles that are tried on a GPU, and the resources that they need.

Nothing here needs a GPU.
"""

import math
from collections.abc import Sequence

from msgspec.structs import replace

from kernels.cuda.tiles import GROUP_ROWS, HOPPER_SHARED_BYTES, LINE, MOST_PARTS, GroupTiles, TilePlan, Tiles, WarpTiles

# Figures of one Hopper multiprocessor, used only to rank plans.

#: Multiply-adds of 2-byte items per cycle; dense, from the data sheet.
MULTIPLY_ADDS_PER_CYCLE = 2048
#: Multiply-adds of float32 per cycle; from the data sheet.
FMAS_PER_CYCLE = 128
#: Bytes per cycle that arrive from the L2.
L2_BYTES_PER_CYCLE = 64
#: Bytes per cycle that wgmma reads from shared memory.
SHARED_BYTES_PER_CYCLE = 128
#: Cycles until the first stage has arrived.
FILL_CYCLES = 1500
#: Bytes per cycle of lines that lie across two of the L2's; measured on an H200.
UNALIGNED_BYTES_PER_CYCLE = 30
#: Bytes per cycle of sums that are sent to another block of the cluster; measured on an H200.
CLUSTER_BYTES_PER_CYCLE = 14
#: Cycles that the barriers of a stage take.
BARRIER_CYCLES = 64
#: How much longer a stage of ping-pong takes if the other warpgroup has no tile.
IDLE_PARTNER_SLOWDOWN = 1.25
#: How much slower a GPU at its power limit is; multiprocessors that idle in a last wave leave power to the others.
POWER_LIMIT_SLOWDOWN = 1.12
#: Slowdown at the GPU's power limit, as a share of the time that operands take from the L2.
POWER_SHARE_OF_L2_TIME = 0.07

# Costs in the float32 kernel.

#: Reading an operand's item from shared memory, in multiply-adds.
READ_MULTIPLY_ADDS = 0.4
#: Fetching an operand's item into shared memory, in multiply-adds.
FETCH_MULTIPLY_ADDS = 4
#: Waiting if a multiprocessor has a single block, as a share of its multiply-adds.
WAITING_SHARE = 0.05
#: Warps that keep a multiprocessor busy.
BUSY_WARPS = 5.2
#: A thread's registers for anything but sums and items, at least.
OTHER_REGISTERS = 8

# Limits of the kernels that read operands straight from memory.

#: Longest sum that a thread computes alone.
MOST_SHORT_K = 32
#: k from which matmul/cuda_direct.cu is not tried.
LEAST_LONG_K = 1 << 15
#: Most rows or columns of C that count as few.
MOST_FEW = 8
#: Blocks per multiprocessor that keep memory busy.
BUSY_BLOCKS = 3
#: Least k per thread when k is split over blocks.
LEAST_K_OF_A_THREAD = 16

#: 32-bit registers of a multiprocessor. Source: CUDA C++ Programming Guide.
REGISTERS = 65536
#: Most registers of a thread. Source: CUDA C++ Programming Guide.
MOST_REGISTERS = 255
#: Most sums and items of A in a thread's registers.
MOST_SUMS = 192


def is_across(layout: str) -> tuple[bool, bool]:
    """Whether A, and whether B, is stored across k: the numbers of one k follow each other in memory. layout: `nn`, `nt` (B
    stored n x k), `tn` (A stored k x m) or `tt`."""
    return layout[0] == "t", layout[1] == "n"


class Warps(WarpTiles, frozen=True, kw_only=True):
    """Tiles of matmul/cuda_warp.cu."""

    #: k per stage.
    deep: int
    #: Rows of C per thread.
    thread_m: int
    #: Columns of C per thread.
    thread_n: int
    #: Stages of the ring in shared memory.
    stages: int
    #: Groups of warps that share a stage's k.
    slices: int
    #: Blocks per multiprocessor.
    blocks: int

    @property
    def unit(self) -> tuple[int, int]:
        """(rows, columns) of C per thread."""
        return self.thread_m, self.thread_n

    @property
    def threads(self) -> int:
        return super().threads * self.slices

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory that a block takes: the ring of stages, rows padded by 4 floats, or the sums of half the
        slices if more."""
        ring = 4 * self.stages * self.deep * (self.tile_m + 4 + self.tile_n + 4)
        sums = 4 * self.tile_m * self.tile_n * (self.slices // 2)
        return max(ring, sums)

    def registers(self, layout: str) -> int:
        """Least registers of a thread: its sums, and the items of A and B that it multiplies.

        It has items of four k of an operand stored along k, but of two k where the operand is stored across k or transposed
        on its way into shared memory (a short stage).
        layout: `nn`, `nt` (B stored n x k) or `tn` (A stored k x m).
        """
        is_short = self.deep == 16
        a_across, b_across = is_across(layout)
        a_items = self.thread_m * (2 if a_across or is_short else 4)
        b_items = self.thread_n * (2 if b_across or is_short else 4)
        return self.thread_m * self.thread_n + a_items + b_items + OTHER_REGISTERS

    def by_items(self) -> "Warps":
        """These tiles for operands with rows not aligned to 16 bytes: one block fewer, as the addresses of single items need
        registers."""
        return replace(self, blocks=max(1, self.blocks - 1))

    def slots(self, multiprocessors: int) -> int:
        """Number of tiles that are computed at once."""
        return self.blocks * multiprocessors

    def cycles(self, tiles: int, steps: int, parts: int, multiprocessors: int) -> float:
        """Estimated cycles of `tiles` tiles of C in `parts` parts of `steps` stages each (split-k). A multiprocessor computes
        its tiles one after the other. The same for all layouts."""
        rounds = -(-tiles * parts // multiprocessors)
        reading = READ_MULTIPLY_ADDS * (1 / self.thread_m + 1 / self.thread_n)
        fetching = FETCH_MULTIPLY_ADDS * (1 / self.tile_m + 1 / self.tile_n)
        slowdown = 1 + (reading + fetching) + WAITING_SHARE / self.blocks
        warps = self.threads // 32 * min(self.blocks, rounds)
        too_few_warps = max(1.0, BUSY_WARPS / warps)
        stage = self.tile_m * self.tile_n * self.deep / FMAS_PER_CYCLE * slowdown * too_few_warps
        storing = self.tile_m * self.tile_n * 4 / L2_BYTES_PER_CYCLE
        adding = storing * (parts + 1) + FILL_CYCLES if parts > 1 else 0
        return rounds * (steps * stage + (storing + adding) / self.blocks)

    def __str__(self) -> str:
        return (
            f"{self.tile_m}x{self.tile_n}x{self.deep} {self.thread_m}x{self.thread_n} stages={self.stages} "
            f"slices={self.slices} blocks={self.blocks}"
        )


# With more of C per thread a product needs fewer loads. Small tiles are for few rows, or too few tiles for all multiprocessors.
WARPS = (
    Warps(tile_m=128, tile_n=256, warp_m=64, warp_n=64, deep=16, thread_m=8, thread_n=16, stages=4, slices=1, blocks=1),
    Warps(tile_m=96, tile_n=128, warp_m=96, warp_n=32, deep=16, thread_m=12, thread_n=8, stages=4, slices=1, blocks=3),
    Warps(tile_m=64, tile_n=128, warp_m=64, warp_n=32, deep=16, thread_m=8, thread_n=8, stages=4, slices=1, blocks=4),
    Warps(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=3, slices=1, blocks=4),
    Warps(tile_m=64, tile_n=128, warp_m=64, warp_n=32, deep=32, thread_m=8, thread_n=8, stages=3, slices=2, blocks=2),
    Warps(tile_m=64, tile_n=64, warp_m=64, warp_n=32, deep=32, thread_m=8, thread_n=8, stages=4, slices=2, blocks=3),
    Warps(tile_m=64, tile_n=32, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=4, slices=2, blocks=4),
    Warps(tile_m=16, tile_n=128, warp_m=16, warp_n=128, deep=32, thread_m=16, thread_n=4, stages=3, slices=2, blocks=3),
    Warps(tile_m=4, tile_n=128, warp_m=4, warp_n=128, deep=32, thread_m=4, thread_n=4, stages=3, slices=2, blocks=4),
    Warps(tile_m=32, tile_n=64, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=4, slices=2, blocks=4),
)
# For batches, which have enough blocks: a tile is not much larger than a small product, and its stages hold all of a short k.
SMALL = (
    Warps(tile_m=64, tile_n=64, warp_m=64, warp_n=32, deep=32, thread_m=8, thread_n=8, stages=3, slices=2, blocks=3),
    Warps(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=2, slices=1, blocks=4),
    Warps(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=3, slices=2, blocks=2),
    Warps(tile_m=32, tile_n=32, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=2, slices=1, blocks=8),
    Warps(tile_m=32, tile_n=32, warp_m=32, warp_n=16, deep=32, thread_m=4, thread_n=4, stages=2, slices=2, blocks=4),
    Warps(tile_m=32, tile_n=16, warp_m=32, warp_n=16, deep=16, thread_m=4, thread_n=4, stages=2, slices=1, blocks=16),
)


class Direct(Tiles, frozen=True, kw_only=True):
    """Parameters of matmul/cuda_direct.cu."""

    #: Units of work per block.
    lanes: int
    #: Threads that share a unit's k: a power of four.
    deep: int
    #: Most rows of C per unit.
    few: int
    #: Columns of C per unit.
    columns: int

    def fitted(self, rows: int, along: bool, vector: bool) -> "Direct":
        """These parameters as compiled for a product with `rows` rows of C. A unit has four columns if rows are many, to use
        loads again, or if B is read by fours across k.

        along: whether B lies along k. vector: whether B is read four items at a time.
        """
        few = min(rows, self.few)
        loads_used_again = few > 2 and self.deep > 1
        reads_fours_across = vector and not along
        if loads_used_again or reads_fours_across:
            columns = 4
        elif along:
            columns = 1
        else:
            columns = self.columns
        return replace(self, few=few, columns=columns)

    def __str__(self) -> str:
        return f"direct lanes={self.lanes} deep={self.deep}"


DIRECT = (
    Direct(lanes=64, deep=1, few=4, columns=4),
    Direct(lanes=16, deep=16, few=8, columns=4),
    Direct(lanes=4, deep=64, few=8, columns=1),
    Direct(lanes=2, deep=256, few=4, columns=1),
)


class Tensors(WarpTiles, frozen=True, kw_only=True):
    """Tiles of matmul/cuda_tensor.cu."""

    #: Bytes of k per stage.
    line: int
    #: Stages of the ring in shared memory.
    stages: int
    #: Blocks per multiprocessor.
    blocks: int

    @property
    def deep(self) -> int:
        """k per stage, in items of two bytes."""
        return self.line // 2

    def shared_bytes(self, layout: str, size: int) -> int:
        """Bytes of shared memory that a block takes for items of `size` bytes: the ring of stages. An operand's lines along k
        are padded by 16 bytes, its rows across k by 8 items.

        layout: `nn`, `nt` (B stored n x k) or `tn` (A stored k x m).
        """
        a_across, b_across = is_across(layout)
        a = self.line * (self.tile_m + 8) if a_across else self.tile_m * (self.line + 16)
        b = self.line * (self.tile_n + 8) if b_across else self.tile_n * (self.line + 16)
        return self.stages * (a + b)

    def slots(self, multiprocessors: int) -> int:
        """Number of tiles that are computed at once."""
        return self.blocks * multiprocessors

    def cycles(self, tiles: int, steps: int, parts: int, multiprocessors: int) -> float:
        """Estimated cycles of `tiles` tiles of C in `parts` parts of `steps` stages each (split-k). A stage is multiplied at
        half of wgmma's rate, or waits for its operands; all stages but one are loaded ahead. The same for all layouts."""
        rounds = -(-tiles * parts // multiprocessors)
        multiplying = 2 * self.tile_m * self.tile_n * self.deep / MULTIPLY_ADDS_PER_CYCLE
        arriving = (self.tile_m + self.tile_n) * self.line / L2_BYTES_PER_CYCLE
        stage = max(rounds * max(multiplying, arriving), FILL_CYCLES / (self.stages - 1))
        storing = rounds * self.tile_m * self.tile_n * 4 / L2_BYTES_PER_CYCLE
        adding = (parts + 1) * storing + 2 * FILL_CYCLES if parts > 1 else 0
        return steps * stage + storing + adding

    def __str__(self) -> str:
        return (
            f"{self.tile_m}x{self.tile_n} of {self.warp_m}x{self.warp_n} line={self.line} stages={self.stages} "
            f"blocks={self.blocks}"
        )


TENSORS = (
    Tensors(tile_m=128, tile_n=128, warp_m=64, warp_n=64, line=64, stages=4, blocks=2),
    Tensors(tile_m=128, tile_n=256, warp_m=64, warp_n=64, line=128, stages=3, blocks=1),
    Tensors(tile_m=256, tile_n=128, warp_m=64, warp_n=64, line=128, stages=3, blocks=1),
    Tensors(tile_m=64, tile_n=128, warp_m=64, warp_n=32, line=128, stages=3, blocks=2),
    Tensors(tile_m=64, tile_n=64, warp_m=32, warp_n=32, line=128, stages=3, blocks=3),
    Tensors(tile_m=32, tile_n=64, warp_m=16, warp_n=32, line=128, stages=4, blocks=3),
    Tensors(tile_m=32, tile_n=32, warp_m=16, warp_n=16, line=128, stages=4, blocks=4),
)


class Groups(GroupTiles, frozen=True, kw_only=True):
    """Tiles of matmul/cuda_wgmma.cu."""

    #: Blocks of a cluster down: they share B's tile.
    cluster_m: int
    #: Blocks of a cluster across: they share A's tile.
    cluster_n: int
    #: 1: a warpgroup has its own tiles (ping-pong); 0: the warpgroups share one (cooperative).
    pingpong: int = 0
    #: Blocks of a cluster along k: they add their sums in shared memory.
    cluster_k: int = 1

    @property
    def tile(self) -> tuple[int, int]:
        return self.rows if self.pingpong else self.consumers * self.rows, self.columns

    @property
    def threads(self) -> int:
        """The warpgroups that multiply, and the one that loads."""
        return 128 * (1 + self.consumers)

    @property
    def cluster(self) -> int:
        """Blocks of a cluster."""
        return self.sharing * self.cluster_k

    @property
    def sharing(self) -> int:
        """Blocks of a cluster that have the same part of k, and share what they load."""
        return self.cluster_m * self.cluster_n

    @property
    def in_cluster(self) -> bool:
        return self.cluster_k > 1

    def parts(self, most: int) -> range:
        """The numbers of parts, `most` at most, that the sum over k may be split into: the blocks of a cluster along k, or
        any number."""
        if not self.in_cluster:
            return super().parts(most)
        return range(self.cluster_k, self.cluster_k + 1) if self.cluster_k <= most else range(0)

    def shares(self) -> tuple[int, int]:
        """(rows of A's tile, columns of B's tile) that a block loads for its cluster."""
        tile_m, tile_n = self.tile
        return tile_m // self.cluster_n, tile_n // self.cluster_m

    def fits(self, layout: str, item_bytes: int = 2) -> bool:
        """Whether these tiles can be compiled: shared memory suffices, a block's shares are whole swizzle patterns, and
        registers hold the sums and an A that goes through them.

        layout: `nn`, `nt` (B stored n x k) or `tn` (A stored k x m). item_bytes: bytes of an operand's item.
        """
        a_across, b_across = is_across(layout)
        a_in_registers = a_across and item_bytes == 4
        # A swizzle pattern is 8 lines, or 64 if the operand lies across k and is shared.
        a_pattern = 64 if a_across else 8
        b_pattern = 64 if b_across and self.cluster_m > 1 else 8
        a_share, b_share = self.shares()
        if a_share % a_pattern or b_share % b_pattern:
            return False
        if a_in_registers and self.columns % 64:
            return False
        sums = self.columns // 2
        items_of_a = 16 if a_in_registers else 0
        registers = self.rows // 64 * (sums + items_of_a)
        return self.shared_bytes <= HOPPER_SHARED_BYTES and registers <= MOST_SUMS

    def count(self, rows: int, columns: int) -> int:
        """Number of clusters' tiles that cover a product."""
        tile_m, tile_n = self.tile
        return -(-rows // (tile_m * self.cluster_m)) * -(-columns // (tile_n * self.cluster_n))

    def group(self) -> int:
        """Rows of clusters' tiles that are computed together (rasterization)."""
        return max(1, GROUP_ROWS // (self.tile[0] * self.cluster_m))

    def slots(self, multiprocessors: int) -> int:
        """Number of clusters' tiles, or of their parts within a cluster, that are computed at once, with one block per
        multiprocessor. Larger clusters leave some idle: an H200 with 132 multiprocessors has 30 of four at once, 15 of eight."""
        fitting = multiprocessors if self.cluster <= 2 else multiprocessors * 10 // 11
        return max(1, fitting // self.cluster) * self.cluster_k

    def cycles(self, tiles: int, steps: int, parts: int, multiprocessors: int, *, aligned: bool = True) -> float:
        """Estimated cycles of `tiles` clusters' tiles in `parts` parts of `steps` stages each (split-k), wave by wave, or at
        the power limit if that takes longer. Storing C is added, and with split-k adding the parts. The same for all layouts.

        aligned: no line of the operands lies across two of the L2's.
        """
        share = tiles * parts / self.slots(multiprocessors)
        waves = max(math.ceil(share), POWER_LIMIT_SLOWDOWN * share)
        stage = self._stage(idle_partner=share <= 1, aligned=aligned)
        tile_m, tile_n = self.tile
        storing = tile_m * tile_n * 2 / L2_BYTES_PER_CYCLE
        if self.pingpong:
            storing *= 0.25  # the rest is hidden behind the other warpgroup's products
        return waves * (steps * stage + storing + self._adding(parts))

    def _stage(self, *, idle_partner: bool, aligned: bool) -> float:
        """Estimated cycles of a stage of a block: the longest of its products, its loads from the L2 and its reads of shared
        memory; then what the power limit and the barriers add.

        idle_partner: whether the other warpgroup has no tile where two take turns (ping-pong).
        aligned: no line of the operands lies across two of the L2's.
        """
        tile_m, tile_n = self.tile
        wgmmas = tile_m // 64 * self.deep // 16
        multiplying = tile_m * tile_n * self.deep / MULTIPLY_ADDS_PER_CYCLE
        reading = wgmmas * (64 + tile_n) * 32 / SHARED_BYTES_PER_CYCLE
        loaded = sum(self.shares()) * LINE
        arriving = (tile_m + tile_n) * LINE / L2_BYTES_PER_CYCLE
        if not aligned:
            arriving = max(arriving, loaded / UNALIGNED_BYTES_PER_CYCLE)
        slowdown = IDLE_PARTNER_SLOWDOWN if self.pingpong and idle_partner else 1
        return (
            max(multiplying, reading, arriving) * slowdown
            + POWER_SHARE_OF_L2_TIME * loaded / L2_BYTES_PER_CYCLE
            + BARRIER_CYCLES
        )

    def _adding(self, parts: int) -> float:
        """Estimated cycles until the sums of all parts of k are added: through the L2, or in the shared memory of a cluster."""
        tile_m, tile_n = self.tile
        sum_bytes = tile_m * tile_n * 4
        if self.in_cluster:
            return sum_bytes * (parts - 1) / parts / CLUSTER_BYTES_PER_CYCLE + 2 * FILL_CYCLES
        if parts == 1:
            return 0
        sums_of_a_thread = self.rows * self.columns // 128
        return sum_bytes * (parts + 1) / L2_BYTES_PER_CYCLE + max(4, sums_of_a_thread // 16) * FILL_CYCLES

    def __str__(self) -> str:
        """The tiles as rows' notes have them: size, form, stages, cluster, results on their way."""
        tile_m, tile_n = self.tile
        form = "ping-pong" if self.pingpong else "cooperative"
        cluster = f"{self.cluster_m}x{self.cluster_n}"
        if self.in_cluster:
            cluster += f"x{self.cluster_k}"
        return f"{tile_m}x{tile_n} {form} stages={self.stages} cluster={cluster} staged={self.staged}"


GROUPS = (
    Groups(consumers=2, rows=128, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=2, pingpong=1),
    Groups(consumers=2, rows=128, columns=128, stages=6, staged=2, cluster_m=2, cluster_n=1, pingpong=1),
    Groups(consumers=2, rows=64, columns=256, stages=4, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=2, rows=64, columns=256, stages=4, staged=2, cluster_m=2, cluster_n=1),
    Groups(consumers=2, rows=64, columns=256, stages=3, staged=4, cluster_m=2, cluster_n=1),
    Groups(consumers=2, rows=128, columns=192, stages=3, staged=2, cluster_m=1, cluster_n=2),
    Groups(consumers=2, rows=128, columns=192, stages=4, staged=2, cluster_m=1, cluster_n=1, pingpong=1),
    Groups(consumers=2, rows=128, columns=192, stages=5, staged=1, cluster_m=2, cluster_n=1, pingpong=1),
    Groups(consumers=2, rows=128, columns=192, stages=5, staged=1, cluster_m=1, cluster_n=2, pingpong=1),
    Groups(consumers=2, rows=128, columns=128, stages=4, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=2, rows=64, columns=64, stages=8, staged=1, cluster_m=1, cluster_n=1),
    Groups(consumers=1, rows=64, columns=256, stages=5, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=1, rows=64, columns=128, stages=8, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=1, rows=64, columns=64, stages=12, staged=1, cluster_m=1, cluster_n=1),
    Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=1, rows=64, columns=96, stages=8, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=1, rows=64, columns=160, stages=6, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=2, rows=64, columns=96, stages=6, staged=2, cluster_m=1, cluster_n=1),
    Groups(consumers=2, rows=64, columns=160, stages=5, staged=1, cluster_m=1, cluster_n=1),
    Groups(consumers=2, rows=128, columns=160, stages=5, staged=1, cluster_m=2, cluster_n=1, pingpong=1),
    Groups(consumers=2, rows=128, columns=160, stages=3, staged=2, cluster_m=1, cluster_n=2),
    Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1, cluster_k=2),
    Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1, cluster_k=3),
    Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=2, cluster_n=1, cluster_k=2),
    Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=2, cluster_n=2, cluster_k=2),
    Groups(consumers=1, rows=64, columns=128, stages=8, staged=2, cluster_m=1, cluster_n=1, cluster_k=2),
    Groups(consumers=2, rows=64, columns=64, stages=8, staged=1, cluster_m=1, cluster_n=1, cluster_k=2),
)


def warps(layout: str, single: bool = True) -> list[Warps]:
    """The tiles of matmul/cuda_warp.cu for one product or (not `single`) a batch, with as many blocks per multiprocessor as
    there are registers for.

    layout: `nn`, `nt` (B stored n x k) or `tn` (A stored k x m).
    """
    fitting = []
    for tiles in WARPS if single else SMALL:
        needed = tiles.registers(layout)
        blocks = 0
        for number in range(1, tiles.blocks + 1):
            registers = REGISTERS // (tiles.threads * number)
            if needed <= min(MOST_REGISTERS, registers // 8 * 8):
                blocks = number
        fitting.append(replace(tiles, blocks=blocks))
    return fitting


def direct(m: int, n: int, k: int, multiprocessors: int) -> list[TilePlan[Direct]]:
    """The plans of matmul/cuda_direct.cu for a product of m x k and k x n: for short sums, and for few rows or columns. With
    few, k is split if there are too few blocks to keep memory busy. None for 2^31 items of C or more, which it counts in 32
    bits."""
    if m * n >= 1 << 31:
        return []
    if k <= MOST_SHORT_K:
        return [TilePlan(tiles=DIRECT[0])]
    if k >= LEAST_LONG_K:
        return []
    few, many = sorted((m, n))
    plans = []
    for tiles in DIRECT[1:]:
        if few <= tiles.few:
            parts_for_busy_memory = BUSY_BLOCKS * multiprocessors * tiles.lanes * tiles.columns // many
            parts = max(1, min(MOST_PARTS, parts_for_busy_memory, k // (LEAST_K_OF_A_THREAD * tiles.deep)))
            plans.append(TilePlan(tiles=tiles, parts=parts))
    return plans


def groups(layout: str, item_bytes: int) -> list[Groups]:
    """The tiles of matmul/cuda_wgmma.cu that can be compiled for operands of that layout with items of `item_bytes` bytes.

    layout: `nn`, `nt` (B stored n x k) or `tn` (A stored k x m).
    """
    forms: Sequence[Groups] = GROUPS
    if item_bytes == 4:
        # A part of the results is 64 lines of 128 bytes, so 64 x 64 items of four bytes are two parts: `staged` is even.
        forms = [replace(tiles, staged=max(2, tiles.staged // 2 * 2)) for tiles in GROUPS]
    return [tiles for tiles in forms if tiles.fits(layout, item_bytes)]
