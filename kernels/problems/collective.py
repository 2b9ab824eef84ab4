"""Sums over the arrays of several GPUs of one host."""

from typing import ClassVar

import numpy as np

from kernels.problems.arrays import DTYPES, ITEM_BYTES, random_array
from kernels.problems.fields import Base, check_counts, check_gpus, check_word

ONE_SHOT_BYTES = 1 << 20  # of the one-shot sums: they send each array whole to every other GPU, at twice its length


class AllReduce(Base, frozen=True, tag="all-reduce"):
    """Arrays of `nbytes`, one on each of the `gpus` ("0,1"), added element by element; each GPU then has the whole sum.

    form: whether the sum replaces the array (`in-place`) or has a place of its own (`out-of-place`).
    """

    nbytes: int
    gpus: str = "0,1"
    dtype: str = "float32"
    form: str = "out-of-place"
    op: ClassVar[str] = "collective"
    rated = property(lambda self: "bytes_moved")
    DTYPES: ClassVar[tuple] = tuple(name for name, dtype in DTYPES.items() if dtype.summed)
    FORMS: ClassVar[tuple] = ("out-of-place", "in-place")

    def __post_init__(self) -> None:
        """Raises ValueError for fields that are no such sum."""
        check_counts(nbytes=self.nbytes)
        check_word("dtype", self.dtype, self.DTYPES)
        check_word("form", self.form, self.FORMS)
        check_gpus(self.gpus)
        if len(set(self.members)) < 2 or ",".join(map(str, self.members)) != self.gpus:
            raise ValueError(f"a sum is over two GPUs or more, each once and in rising order, not {self.gpus!r}")
        if self.nbytes % ITEM_BYTES[self.dtype]:
            raise ValueError(f"{self.nbytes} bytes are no whole number of {self.dtype} values")

    @property
    def members(self) -> tuple[int, ...]:
        """The GPUs at work, by their numbers on this host, in rising order."""
        return tuple(sorted(int(word) for word in self.gpus.split(",")))

    @property
    def elements(self) -> int:
        return self.nbytes // ITEM_BYTES[self.dtype]

    @property
    def flops(self) -> int:
        """n - 1 additions for each element."""
        return (len(self.members) - 1) * self.elements

    @property
    def bytes_moved(self) -> int:
        """Bytes that each GPU must at least send (and receive): 2 (n - 1) / n of its array. Per second: the bus bandwidth.

        Source: nccl-tests, doc/PERFORMANCE.md.
        """
        n = len(self.members)
        return 2 * (n - 1) * self.nbytes // n

    @property
    def footprint_bytes(self) -> int:
        """On each GPU."""
        return self.nbytes * (1 if self.form == "in-place" else 2)

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """One array, a row for each GPU."""
        return (random_array((len(self.members), self.elements), self.dtype, seed, whole_numbers),)

    def expected(self, *inputs: np.ndarray) -> np.ndarray:
        """The sum of all rows in every row: of so few whole numbers it is exact in any type."""
        (data,) = inputs
        total = data.astype(np.float32).sum(axis=0).astype(data.dtype)
        return np.broadcast_to(total, data.shape)
