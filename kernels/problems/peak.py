"""Multiply-adds in registers: the peak arithmetic rate of a device."""

from typing import ClassVar

import numpy as np

from kernels.problems.arrays import precision
from kernels.problems.fields import Base, check_counts


class Peak(Base, frozen=True, tag="peak"):
    """At least `flops` multiply-adds in registers, in the arithmetic `math`: the compute ceiling; no memory traffic.

    A kernel rounds its loop count up, so the rate is understated by at most one loop trip a thread.
    """

    math: str
    flops: int
    op: ClassVar[str] = "peak"

    def __post_init__(self):
        precision(self.math)
        check_counts(flops=self.flops)

    @property
    def dtype(self) -> str:
        return precision(self.math)[0]

    @property
    def bytes_moved(self) -> int:
        return 0

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """(factor, addend) of x <- factor * x + addend: 1 and 1 count the trips exactly, the random pair stays finite."""
        if whole_numbers:
            return (np.ones(2, dtype=np.float64),)
        return (np.array([0.999, np.random.default_rng(seed).standard_normal()]),)
