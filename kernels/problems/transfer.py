"""Copies between host and device memory."""

from typing import ClassVar

import msgspec
import numpy as np

from kernels.problems.arrays import random_bytes
from kernels.problems.fields import Base, check_counts, check_word


class Transfer(Base, frozen=True, tag="transfer"):
    """A copy of `nbytes` between host and device memory.

    direction: h2d, d2h, d2d (on the device), both (h2d and d2h at once, `nbytes` each way). host_memory: pageable, pinned,
    write-combined, registered, managed; empty for d2d. compute: a kernel of about the copy's length that runs beside it
    (`fma` in registers, `triad` in device memory), in `chunks`: the first of the `streams` copies, the others compute; each
    chunk is copied, then computed on.
    """

    direction: str
    nbytes: int
    host_memory: str = ""
    compute: str = ""
    chunks: int = 1
    streams: int = 1
    op: ClassVar[str] = "transfer"
    rated = property(lambda self: "bytes_moved")
    DIRECTIONS: ClassVar[tuple] = ("h2d", "d2h", "d2d", "both")
    HOST_MEMORIES: ClassVar[tuple] = ("pageable", "pinned", "write-combined", "registered", "managed")
    COMPUTES: ClassVar[tuple] = ("fma", "triad")
    MOST_MANAGED: ClassVar[int] = 1 << 30

    def __post_init__(self) -> None:
        """Fills in pageable host memory where none is named; raises ValueError for fields that are no such copy."""
        check_counts(nbytes=self.nbytes, chunks=self.chunks, streams=self.streams)
        check_word("direction", self.direction, self.DIRECTIONS)
        if self.direction == "d2d":
            if self.host_memory:
                raise ValueError("a copy on the device has no host memory")
        else:
            msgspec.structs.force_setattr(self, "host_memory", self.host_memory or "pageable")
            check_word("host memory", self.host_memory, self.HOST_MEMORIES)
        if self.compute:
            check_word("compute", self.compute, self.COMPUTES)
        if self.host_memory == "managed" and self.nbytes > self.MOST_MANAGED:
            raise ValueError(f"{self.nbytes} bytes of managed memory; at most {self.MOST_MANAGED} are asked for here")
        if self.chunks > self.nbytes:
            raise ValueError(f"{self.nbytes} bytes cannot be cut into {self.chunks} chunks")

    @property
    def bytes_moved(self) -> int:
        """Bytes that cross the link, both directions together; on the device every byte is read and written."""
        return self.nbytes * (2 if self.direction in ("both", "d2d") else 1)

    @property
    def footprint_bytes(self) -> int:
        return self.nbytes * (2 if self.direction in ("both", "d2d") or self.compute == "triad" else 1)

    @property
    def locked_bytes(self) -> int:
        """Host memory that may not be paged out meanwhile, or that the device shares."""
        return self.footprint_bytes if self.host_memory not in ("", "pageable") else 0

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """The bytes that are copied, in pageable host memory."""
        return (random_bytes(self.nbytes, seed),)

    def expected(self, *inputs: np.ndarray) -> np.ndarray:
        """The bytes that arrive: in both directions at once they arrive twice."""
        (data,) = inputs
        return np.concatenate([data, data]) if self.direction == "both" else data
