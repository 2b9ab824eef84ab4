"""Copies from GPU to GPU of one host, and the same work on all of them at once."""

from typing import ClassVar

import numpy as np

from kernels.problems.arrays import precision, random_bytes
from kernels.problems.fields import Base, check_counts, check_gpus, check_word
from kernels.problems.matmul import Matmul
from kernels.problems.stream import Stream
from kernels.problems.transfer import Transfer


class PeerCopy(Base, frozen=True, tag="peer-copy"):
    """A copy of `nbytes` from the memory of GPU `source` to that of GPU `target`; with ways = 2 as many back at the same time."""

    source: int
    target: int
    nbytes: int
    ways: int = 1
    op: ClassVar[str] = "peer"
    rated = property(lambda self: "bytes_moved")

    def __post_init__(self):
        check_counts(nbytes=self.nbytes, ways=self.ways)
        if self.ways > 2:
            raise ValueError(f"a copy goes 1 way or 2, not {self.ways}")
        if self.source == self.target or min(self.source, self.target) < 0:
            raise ValueError(f"a copy goes between two GPUs, not from {self.source} to {self.target}")

    @property
    def members(self) -> tuple[int, ...]:
        """The GPUs at work, by their numbers on this host, in rising order."""
        return tuple(sorted((self.source, self.target)))

    @property
    def bytes_moved(self) -> int:
        """Bytes that cross the link, both ways together."""
        return self.nbytes * self.ways

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """The bytes that go, and with two ways other ones that come back."""
        return tuple(random_bytes(self.nbytes, seed + i) for i in range(self.ways))

    def expected(self, *inputs: np.ndarray) -> np.ndarray:
        """The bytes that arrive on the target, then those that arrive on the source."""
        return np.concatenate(inputs)


class AtOnce(Base, frozen=True, tag="at-once"):
    """The work of one GPU while all `gpus` ("0,1") do the same; with a single one in `gpus`, its work alone.

    operation: `matmul` (a square product of side `size` in the arithmetic `math`), `triad` (of `size` bytes), `h2d` and `d2h`
    (copies of `size` bytes from and to page-locked host memory).
    """

    operation: str
    size: int
    gpus: str
    math: str = "float32"
    op: ClassVar[str] = "at-once"
    OPERATIONS: ClassVar[tuple] = ("matmul", "triad", "h2d", "d2h")

    def __post_init__(self):
        check_counts(size=self.size)
        check_word("operation", self.operation, self.OPERATIONS)
        precision(self.math)
        check_gpus(self.gpus)

    @property
    def together(self) -> int:
        """How many GPUs are at work."""
        return len(self.gpus.split(","))

    @property
    def inner(self) -> Matmul | Stream | Transfer:
        """The problem that each GPU works on."""
        if self.operation == "matmul":
            dtype, math = precision(self.math)
            return Matmul(m=self.size, n=self.size, k=self.size, dtype=dtype, math=math)
        if self.operation == "triad":
            return Stream(operation="triad", nbytes=self.size, dtype="float32")
        return Transfer(direction=self.operation, nbytes=self.size, host_memory="pinned")

    @property
    def rated(self) -> str:
        return self.inner.rated

    @property
    def flops(self) -> int:
        """FLOPs of one GPU."""
        return self.inner.flops or 0

    @property
    def bytes_moved(self) -> int:
        """Bytes that one GPU moves."""
        return self.inner.bytes_moved

    @property
    def locked_bytes(self) -> int:
        """Host memory of each that may not be paged out meanwhile."""
        return self.inner.locked_bytes
