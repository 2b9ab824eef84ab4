"""Element-wise passes over arrays, limited by memory bandwidth."""

import math
from typing import ClassVar, NamedTuple

import numpy as np

from kernels.problems.arrays import ITEM_BYTES, Make, empty, random_array
from kernels.problems.fields import Base, check_counts, check_word


class PassWeights(NamedTuple):
    """What a pass does for each element; an array of a quarter is a pooled one."""

    #: Arrays read.
    read: float
    #: Arrays written.
    written: float
    #: Additions, multiplications, comparisons and square roots alike count 1.
    flops: float


class Stream(Base, frozen=True, tag="stream"):
    """An element-wise pass over arrays of `nbytes` in all: STREAM's copy, scale, add, triad, and read (a sum); then the
    passes of a training step: activations, pooling, normalization, optimizer updates.

    Source: J. McCalpin's STREAM; its byte count leaves out the read that a cache makes before a write.
    """

    operation: str
    nbytes: int
    dtype: str = "float64"
    op: ClassVar[str] = "stream"
    rated = property(lambda self: "bytes_moved")
    WEIGHTS: ClassVar[dict[str, PassWeights]] = {
        "copy": PassWeights(read=1, written=1, flops=0),
        "scale": PassWeights(read=1, written=1, flops=1),
        "add": PassWeights(read=2, written=1, flops=1),
        "triad": PassWeights(read=2, written=1, flops=2),
        "read": PassWeights(read=1, written=0, flops=1),
        "relu": PassWeights(read=1, written=1, flops=1),
        "relu_grad": PassWeights(read=2, written=1, flops=1),
        "dropout": PassWeights(read=1, written=1, flops=2),
        "maxpool": PassWeights(read=1, written=0.25, flops=0.75),
        "maxpool_grad": PassWeights(read=1.5, written=1, flops=1),
        "batchnorm": PassWeights(read=1, written=1, flops=8),
        "batchnorm_grad": PassWeights(read=2, written=1, flops=13),
        "sgd": PassWeights(read=2, written=1, flops=2),
        "adam": PassWeights(read=4, written=3, flops=12),
    }
    # Elements come in whole images of this (height, width, channels) where the operation knows of images.
    IMAGE: ClassVar[tuple] = (8, 8, 32)
    IMAGE_OPERATIONS: ClassVar[tuple] = ("maxpool", "maxpool_grad", "batchnorm", "batchnorm_grad")

    def __post_init__(self) -> None:
        """Raises ValueError for fields that are no such operation, or bytes that hold no element of each array."""
        check_word("operation", self.operation, self.WEIGHTS)
        check_word("dtype", self.dtype, ITEM_BYTES)
        check_counts(nbytes=self.nbytes)
        if self.elements < 1:
            least = math.ceil(self._element_bytes * self._granule)
            raise ValueError(f"{self.nbytes} bytes hold no element of each array; the smallest is {least}")

    @property
    def _element_bytes(self) -> float:
        weights = self.WEIGHTS[self.operation]
        return (weights.read + weights.written) * ITEM_BYTES[self.dtype]

    @property
    def _granule(self) -> int:
        return math.prod(self.IMAGE) if self.operation in self.IMAGE_OPERATIONS else 1

    @property
    def elements(self) -> int:
        """Elements of each whole array."""
        return int(self.nbytes // (self._element_bytes * self._granule)) * self._granule

    @property
    def math(self) -> str:
        return self.dtype

    @property
    def flops(self) -> int:
        return int(self.elements * self.WEIGHTS[self.operation].flops)

    @property
    def bytes_moved(self) -> int:
        return int(self.elements * self._element_bytes)

    @property
    def result_bytes(self) -> int:
        """Bytes written."""
        weights = self.WEIGHTS[self.operation]
        return int(self.bytes_moved * weights.written / (weights.read + weights.written))

    def inputs(self, seed: int, whole_numbers: bool = False, make: Make = random_array) -> tuple[np.ndarray, ...]:
        """The arrays read, flat, each of `elements` values.

        maxpool_grad has the images and the gradient of the pooled ones, a quarter as many values; batchnorm its images alone
        (scale 1, shift 0); adam: weights, gradient, first moment, second moment (never negative).
        seed: of the random values. whole_numbers: -2, -1, 1 and 2 instead of normal ones. make: makes an array instead of
        random_array.
        """
        if self.operation == "maxpool_grad":
            sizes = [self.elements, self.elements // 4]
        else:
            sizes = [self.elements] * math.ceil(self.WEIGHTS[self.operation].read)
        arrays = [make((size,), self.dtype, seed + i, whole_numbers) for i, size in enumerate(sizes)]
        if self.operation == "adam":
            arrays[3] = np.abs(arrays[3], out=empty(arrays[3].shape, arrays[3].dtype, seed + 3))
        return tuple(arrays)
