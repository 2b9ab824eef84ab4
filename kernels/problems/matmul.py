"""The product of two matrices."""

import math
from typing import ClassVar

import msgspec
import numpy as np

from kernels.problems.arrays import ITEM_BYTES, Make, random_array
from kernels.problems.fields import Base, alignment, check_counts, check_word, fill_math


class Matmul(Base, frozen=True, tag="matmul"):
    """C = A B with A of m x k and B of k x n.

    `layout` says which operand is stored transposed, as the backward passes need it: `nn`, `nt` (B stored n x k),
    `tn` (A stored k x m). `math` is the arithmetic allowed and picks the roof; `out` is C's dtype. `batch`: so many such products
    in one call, their matrices one behind the other; unset of a single one, so that keys of rows from before there were any stay.
    `epilogue`: what is done to each result before it is stored, unset if nothing is. `bias-relu` is a dense layer's forward step,
    max(A B + bias, 0), with a bias for each column; it is the third input.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    math: str = ""
    out: str = ""
    layout: str = "nn"
    batch: int | msgspec.UnsetType = msgspec.UNSET
    epilogue: str | msgspec.UnsetType = msgspec.UNSET
    op: ClassVar[str] = "matmul"
    products = property(lambda self: True)

    def __post_init__(self) -> None:
        """Fills in `math` and `out` where they are empty, and unsets a batch of 1; raises ValueError for fields that are no
        product."""
        check_counts(m=self.m, n=self.n, k=self.k, batch=self.count)
        fill_math(self)
        msgspec.structs.force_setattr(self, "out", self.out or self.dtype)
        check_word("dtype", self.out, ITEM_BYTES)
        check_word("layout", self.layout, ("nn", "nt", "tn"))
        msgspec.structs.force_setattr(self, "batch", self.count if self.count > 1 else msgspec.UNSET)
        msgspec.structs.force_setattr(self, "epilogue", self.epilogue or msgspec.UNSET)
        if self.epilogue and (self.epilogue != "bias-relu" or self.count > 1):
            raise ValueError(f"the one epilogue is bias-relu, of one product, not {self.epilogue} of {self.count:,}")

    @property
    def count(self) -> int:
        """Products in a call."""
        return 1 if self.batch is msgspec.UNSET else self.batch

    @property
    def side(self) -> int:
        """n of a single square product alone; 0 of any other."""
        return self.n if self.m == self.n == self.k and self.count == 1 and not self.epilogue else 0

    @property
    def flops(self) -> int:
        """2 m n k: a multiplication and an addition for each of the m n k products; bias and ReLU are two more a result."""
        return 2 * self.m * self.n * (self.k + bool(self.epilogue)) * self.count

    @property
    def bytes_moved(self) -> int:
        operands = (self.m * self.k + self.k * self.n) * self.count * ITEM_BYTES[self.dtype]
        return operands + self.result_bytes + (self.n * ITEM_BYTES[self.out] if self.epilogue else 0)

    @property
    def result_bytes(self) -> int:
        return math.prod(self.out_shape) * ITEM_BYTES[self.out]

    @property
    def alignment(self) -> int:
        """8, 4 or 1: of which all rows of the stored matrices are multiples, as libraries' vector and tensor kernels want."""
        return alignment(self.m if self.layout == "tn" else self.k, self.n)

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of A and B as they are stored."""
        a = (self.k, self.m) if self.layout == "tn" else (self.m, self.k)
        b = (self.n, self.k) if self.layout == "nt" else (self.k, self.n)
        return self._every(*a), self._every(*b)

    @property
    def out_shape(self) -> tuple[int, ...]:
        return self._every(self.m, self.n)

    def _every(self, *shape: int) -> tuple[int, ...]:
        """The shape of an array that has a matrix of each product."""
        return shape if self.count == 1 else (self.count, *shape)

    def inputs(self, seed: int, whole_numbers: bool = False, make: Make = random_array) -> tuple[np.ndarray, ...]:
        a, b = self.operand_shapes
        bias = (make((self.n,), self.out, seed + 2, whole_numbers),) if self.epilogue else ()
        return (make(a, self.dtype, seed, whole_numbers), make(b, self.dtype, seed + 1, whole_numbers), *bias)
