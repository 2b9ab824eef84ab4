"""What our CUDA matmuls are compiled for: the tiles that are tried on a GPU, and what each takes of a multiprocessor.

Nothing here needs a GPU.
"""

from kernels.cuda.tiles import HOPPER_SHARED_BYTES, GroupTiles, WarpTiles

ITEMS_ON_16_BYTES = 8  # of 2 bytes


class Warps(WarpTiles, frozen=True):
    """matmul/cuda_warp.cu: of C a block and a warp, k a stage, of C a thread; stages; groups of warps that share a stage's k;
    blocks on a multiprocessor; threads along a row of A's tile that fetch."""

    deep: int
    each_m: int
    each_n: int
    stages: int
    slices: int
    blocks: int
    along: int

    @property
    def threads(self) -> int:
        return super().threads * self.slices

    @property
    def shared_bytes(self) -> int:
        """The ring of stages, k's of A 4 floats apart; where k is shared out, C's tile at the end too, of half the groups."""
        ring = 4 * self.stages * self.deep * (self.tile_m + 4 + self.tile_n)
        return max(ring, 4 * self.tile_m * self.tile_n * (self.slices // 2))

    def __str__(self) -> str:
        return (
            f"{self.tile_m}x{self.tile_n}x{self.deep} {self.each_m}x{self.each_n} stages={self.stages} slices={self.slices} "
            f"blocks={self.blocks} along={self.along}"
        )


# More of C a thread needs fewer loads for a product; smaller ones where C has too few large tiles for all multiprocessors.
WARPS = (
    Warps(128, 256, 64, 64, 16, 8, 16, 4, 1, 1, 8),
    Warps(128, 256, 64, 64, 16, 8, 16, 4, 1, 1, 16),
    Warps(96, 128, 96, 32, 16, 12, 8, 4, 1, 3, 8),
    Warps(96, 128, 96, 32, 16, 12, 8, 4, 1, 3, 16),
    Warps(128, 128, 64, 64, 16, 8, 16, 4, 1, 2, 16),
    Warps(64, 128, 64, 32, 16, 8, 8, 4, 1, 4, 8),
    Warps(64, 128, 64, 32, 32, 8, 8, 3, 2, 2, 16),
    Warps(64, 64, 64, 32, 32, 8, 8, 4, 4, 2, 8),
    Warps(64, 64, 64, 32, 64, 8, 8, 3, 4, 2, 16),
)


class Tensors(WarpTiles, frozen=True):
    """matmul/cuda_tensor.cu: of C a block and a warp, bytes of k a stage, stages, blocks on a multiprocessor."""

    line: int
    stages: int
    blocks: int

    def shared_bytes(self, size: int) -> int:
        """For items of `size` bytes: A's rows are 16 bytes longer than k's line, B's 8 items longer than the tile."""
        return self.stages * (self.tile_m * (self.line + 16) + self.line // size * (self.tile_n + 8) * size)

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
)


class Groups(GroupTiles, frozen=True):
    """matmul/cuda_wgmma.cu: warpgroups that multiply, of C each, stages, blocks of a cluster down and across, parts of a
    warpgroup's results on their way; `pingpong` 1: each warpgroup has tiles of its own, 0: they share one (cooperative)."""

    cluster_m: int
    cluster_n: int
    staged: int
    pingpong: int = 0

    @property
    def tile(self) -> tuple[int, int]:
        return self.rows if self.pingpong else self.consumers * self.rows, self.columns

    @property
    def threads(self) -> int:
        return 128 * (1 + self.consumers)

    @property
    def cluster(self) -> int:
        return self.cluster_m * self.cluster_n

    @property
    def shared_bytes(self) -> int:
        """1024 more, to begin on a multiple of as many."""
        return self.ring_bytes(self.staged) + 1024

    def shares(self) -> tuple[int, int]:
        """Rows of A's tile and columns of B's that a block loads for its cluster."""
        return self.tile[0] // self.cluster_n, self.tile[1] // self.cluster_m

    def fits(self, layout: str) -> bool:
        """Whether it can be compiled: shared memory, and shares of whole patterns of the swizzle (8 lines; 64 where k lies
        across)."""
        a, b = self.shares()
        whole = a % (64 if layout == "tn" else 8) == 0 and b % (8 if layout == "nt" else 64) == 0
        return whole and self.shared_bytes <= HOPPER_SHARED_BYTES

    def blocks(self, m: int, n: int, multiprocessors: int) -> int:
        """Of a launch: one a multiprocessor, whole clusters, no more than there are tiles."""
        (tile_m, tile_n), size = self.tile, self.cluster
        units = -(-m // (tile_m * self.cluster_m)) * -(-n // (tile_n * self.cluster_n))
        return min(units, multiprocessors // size) * size

    def __str__(self) -> str:
        return (
            f"{self.tile[0]}x{self.tile[1]} {'ping-pong' if self.pingpong else 'cooperative'} stages={self.stages} "
            f"cluster={self.cluster_m}x{self.cluster_n} staged={self.staged}"
        )


GROUPS = (
    Groups(2, 128, 128, 6, 1, 1, 2, 1),
    Groups(2, 128, 128, 6, 1, 2, 2, 1),
    Groups(2, 128, 128, 6, 2, 1, 2, 1),
    Groups(2, 64, 256, 4, 1, 1, 2),
)


def pitch(columns: int) -> int:
    """Items from row to row of a matrix of 2-byte items whose rows begin on 16 bytes."""
    return -(-columns // ITEMS_ON_16_BYTES) * ITEMS_ON_16_BYTES
