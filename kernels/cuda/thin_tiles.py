"""Tiles of our CUDA matmul for few rows, and the model that chooses among them. Nothing here needs a GPU."""

import itertools
import math

from msgspec.structs import replace

from kernels.cuda.tiles import HOPPER_SHARED_BYTES, LINE, Tiles

# Figures of the model, fitted to times on an H200 with a cold L2 at 23 shapes with 1 to 64 rows. The choice by a fit without the
# shape takes 1.02 times the time of the fastest tiles in the geometric mean, 1.11 at most.

#: Microseconds until the first stage has arrived and from the last product to the end; 1.3 of them are the events'.
START_MICROSECONDS = 4.1
#: Microseconds of a stage's barriers and of the start of its loads.
STAGE_MICROSECONDS = 0.039
#: Kilobytes per microsecond that one multiprocessor reads.
READ_KB_PER_MICROSECOND = 158.0
#: Kilobytes per microsecond that all multiprocessors read from memory.
MEMORY_KB_PER_MICROSECOND = 4490.0
#: Microseconds until the first sums of another block of the cluster have come.
EXCHANGE_MICROSECONDS = 0.71
#: Kilobytes of sums per microsecond that a block sends.
SEND_KB_PER_MICROSECOND = 20.4

#: Most rows of a product that count as few: with 65 to 128 drawn on an H200, the tiles of matmul/cuda/wgmma were no slower.
MOST_ROWS = 64
#: Rows of A that its tiles have.
COLUMNS = (16, 32, 64)
#: (warpgroups, columns of C per warpgroup) of its tiles.
SIDES = ((1, 64), (2, 64), (3, 64), (2, 128))
#: Bytes of an item -> most warpgroups: of four bytes B goes through registers, which three warpgroups have too few of.
MOST_CONSUMERS = {2: 3, 4: 2}
#: Blocks of a cluster -> the part of all multiprocessors that clusters of so many occupy at once. A cluster is on multiprocessors
#: of one group (GPC): an H200 with 132 runs 66 clusters of two, 30 of four and 15 of eight.
CLUSTERS = {1: 1.0, 2: 1.0, 4: 10 / 11, 8: 10 / 11}


class Thin(Tiles, frozen=True, kw_only=True):
    """Tiles of matmul/cuda_thin.cu for a product with few rows: of C^T, so that a tile's rows are columns of C."""

    #: Warpgroups that multiply.
    consumers: int
    #: Columns of C per warpgroup.
    rows: int
    #: Rows of C, rounded up.
    columns: int
    #: Blocks of a cluster: each multiplies a part of k.
    cluster_k: int
    #: Stages of the ring in shared memory; 0: not yet chosen.
    stages: int = 0

    @property
    def tile(self) -> tuple[int, int]:
        return self.columns, self.consumers * self.rows

    @property
    def threads(self) -> int:
        """The warpgroups that multiply, and a warp that loads."""
        return 128 * self.consumers + 32

    @property
    def stage_bytes(self) -> int:
        """Bytes of a stage: a line of each row and column of the tile."""
        columns, rows = self.tile
        return (columns + rows) * LINE

    @property
    def share_bytes(self) -> int:
        """Bytes of the sums that a block sends to another."""
        columns, rows = self.tile
        return 4 * columns * rows // self.cluster_k

    @property
    def shared_bytes(self) -> int:
        """Bytes of shared memory: the ring with two barriers a stage, two barriers, and what the other blocks send."""
        return self.stages * (self.stage_bytes + 16) + 16 + (self.cluster_k - 1) * self.share_bytes

    def filled(self) -> "Thin":
        """These tiles with as many stages as fit shared memory."""
        without = replace(self, stages=0).shared_bytes
        return replace(self, stages=(HOPPER_SHARED_BYTES - without) // (self.stage_bytes + 16))

    def clusters(self, n: int, multiprocessors: int) -> int:
        """Clusters of a launch for n columns of C: as many as run at once on the GPU, but no more than tiles."""
        at_once = int(multiprocessors * CLUSTERS[self.cluster_k]) // self.cluster_k
        return min(self.count(self.columns, n), at_once)

    def microseconds(self, n: int, k: int, *, multiprocessors: int, item_bytes: int) -> float:
        """Estimated time of a product with n columns and k steps, with operands that are not in the L2:

            start + sqrt(multiprocessor^2 + memory^2) + exchange

        multiprocessor: what each one takes for its stages. memory: B at the rate of memory. exchange: of sums within
        clusters.
        item_bytes: bytes of an operand's item.
        """
        rounds = math.ceil(self.count(self.columns, n) / self.clusters(n, multiprocessors))
        stages = rounds * math.ceil(k * item_bytes / LINE) / self.cluster_k
        multiprocessor = stages * (STAGE_MICROSECONDS + self.stage_bytes / 1000 / READ_KB_PER_MICROSECOND)
        memory = n * k * item_bytes / 1000 / MEMORY_KB_PER_MICROSECOND
        exchange = 0.0
        if self.cluster_k > 1:
            sent = (self.cluster_k - 1) * self.share_bytes / 1000
            exchange = rounds * (EXCHANGE_MICROSECONDS + sent / SEND_KB_PER_MICROSECOND)
        return START_MICROSECONDS + math.hypot(multiprocessor, memory) + exchange

    def __str__(self) -> str:
        _, rows = self.tile
        return f"{rows} columns x {self.columns} rows stages={self.stages} split-k={self.cluster_k}"


def forms(m: int, k: int, item_bytes: int) -> list[Thin]:
    """The tiles for a product of m rows, 64 at most, and k steps, with as many stages as fit; every block of a cluster has a
    part of k.

    item_bytes: bytes of an operand's item.
    """
    columns = next(columns for columns in COLUMNS if m <= columns)
    parts = math.ceil(k * item_bytes / LINE)
    fitting = []
    for (consumers, rows), cluster_k in itertools.product(SIDES, CLUSTERS):
        if cluster_k <= parts and consumers <= MOST_CONSUMERS[item_bytes]:
            tiles = Thin(consumers=consumers, rows=rows, columns=columns, cluster_k=cluster_k)
            fitting.append(tiles.filled())
    return fitting


def chosen(m: int, n: int, k: int, *, multiprocessors: int, item_bytes: int) -> Thin:
    """The tiles of matmul/cuda_thin.cu for a product of m x k and k x n: the fastest by the model.

    item_bytes: bytes of an operand's item.
    """

    def microseconds(tiles: Thin) -> float:
        return tiles.microseconds(n, k, multiprocessors=multiprocessors, item_bytes=item_bytes)

    return min(forms(m, k, item_bytes), key=microseconds)
