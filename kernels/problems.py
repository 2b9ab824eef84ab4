"""What is computed: every problem knows its FLOPs, its compulsory bytes and its inputs, so all kernels share one count.

Compulsory bytes are the least a kernel must move: every input read once, every output written once.
"""

import functools
import math
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np

from kernels.arrays import ITEM_BYTES, MATHS, precision, random_array
from kernels.checked import check_counts, check_word
from kernels.movement import Launch, Transfer
from kernels.peers import AllReduce, AtOnce, PeerCopy
from kernels.whole_models import Inference, Training

__all__ = [
    "AllReduce",
    "AtOnce",
    "Conv",
    "Inference",
    "Launch",
    "Matmul",
    "Peak",
    "PeerCopy",
    "Problem",
    "Stream",
    "Training",
    "Transfer",
]


def _alignment(*sizes: int) -> int:
    """The largest of 8, 4 and 1 that divides every size."""
    return next(of for of in (8, 4, 1) if not any(size % of for size in sizes))


class Matmul(msgspec.Struct, frozen=True, tag="matmul"):
    """C = A B with A of m x k and B of k x n.

    `layout` says which operand is stored transposed, as the backward passes need it: `nn`, `nt` (B stored n x k),
    `tn` (A stored k x m). `math` is the arithmetic allowed and picks the roof; `out` is C's dtype.
    """

    m: int
    n: int
    k: int
    dtype: str = "float32"
    math: str = ""
    out: str = ""
    layout: str = "nn"
    op: ClassVar[str] = "matmul"

    def __post_init__(self):
        check_counts(m=self.m, n=self.n, k=self.k)
        if self.dtype not in MATHS:
            raise ValueError(f"unknown dtype {self.dtype!r}; known: {', '.join(MATHS)}")
        msgspec.structs.force_setattr(self, "math", self.math or MATHS[self.dtype][0])
        msgspec.structs.force_setattr(self, "out", self.out or self.dtype)
        if self.math not in MATHS[self.dtype]:
            raise ValueError(f"{self.dtype} operands cannot be multiplied in {self.math!r}")
        if self.layout not in ("nn", "nt", "tn"):
            raise ValueError(f"unknown layout {self.layout!r}; known: nn, nt, tn")

    @property
    def flops(self) -> int:
        """2 m n k: a multiplication and an addition for each of the m n k products."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes_moved(self) -> int:
        operands = (self.m * self.k + self.k * self.n) * ITEM_BYTES[self.dtype]
        return operands + self.m * self.n * ITEM_BYTES[self.out]

    @property
    def footprint_bytes(self) -> int:
        return self.bytes_moved

    @property
    def alignment(self) -> int:
        """8, 4 or 1: of which all rows of the stored matrices are multiples, as libraries' vector and tensor kernels want."""
        return _alignment(self.m if self.layout == "tn" else self.k, self.n)

    @property
    def operand_shapes(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Of A and B as they are stored."""
        a = (self.k, self.m) if self.layout == "tn" else (self.m, self.k)
        return a, (self.n, self.k) if self.layout == "nt" else (self.k, self.n)

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        a, b = self.operand_shapes
        return (random_array(a, self.dtype, seed, whole_numbers), random_array(b, self.dtype, seed + 1, whole_numbers))


class Conv(msgspec.Struct, frozen=True, tag="conv"):
    """A 2-D convolution (the cross-correlation of neural networks) of n images of h x w x c_in with c_out filters of r x s.

    `pad` is `same` or `valid` as Keras counts them (`same` with a stride pads the bottom and the right by one more, as
    TensorFlow does), or the zeros on every side. `direction` fprop gives y from x and w, dgrad dx from dy and w, wgrad dw
    from x and dy. Filters lie as `layout` has them: NHWC with r, s, c_in / groups, c_out (Keras's HWIO), NCHW with
    c_out, c_in / groups, r, s (OIHW).
    """

    n: int
    h: int
    w: int
    c_in: int
    c_out: int
    r: int
    s: int
    stride: int = 1
    pad: str | int = "valid"
    groups: int = 1
    layout: str = "NHWC"
    direction: str = "fprop"
    dtype: str = "float32"
    math: str = ""
    op: ClassVar[str] = "conv"
    LAYOUTS: ClassVar[tuple] = ("NHWC", "NCHW")
    DIRECTIONS: ClassVar[tuple] = ("fprop", "dgrad", "wgrad")

    def __post_init__(self):
        check_counts(
            n=self.n,
            h=self.h,
            w=self.w,
            c_in=self.c_in,
            c_out=self.c_out,
            r=self.r,
            s=self.s,
            stride=self.stride,
            groups=self.groups,
        )
        if self.pad not in ("same", "valid") and not (type(self.pad) is int and self.pad >= 0):
            raise ValueError(f"pad must be same, valid or a whole number of at least 0, not {self.pad!r}")
        check_word("layout", self.layout, self.LAYOUTS)
        check_word("direction", self.direction, self.DIRECTIONS)
        check_word("dtype", self.dtype, tuple(MATHS))
        msgspec.structs.force_setattr(self, "math", self.math or MATHS[self.dtype][0])
        if self.math not in MATHS[self.dtype]:
            raise ValueError(f"{self.dtype} operands cannot be multiplied in {self.math!r}")
        for name, channels in (("c_in", self.c_in), ("c_out", self.c_out)):
            if channels % self.groups:
                raise ValueError(f"{self.groups} groups do not divide {name} = {channels}")
        if min(self.p, self.q) < 1:
            (top, bottom), (left, right) = self.pads
            padded = f"{self.h + top + bottom} x {self.w + left + right}"
            raise ValueError(f"a filter of {self.r} x {self.s} is larger than the padded image of {padded}")

    @property
    def pads(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """Rows of zeros above and below the image, and columns to its left and right."""
        return self._pads(self.h, self.r), self._pads(self.w, self.s)

    def _pads(self, size: int, taps: int) -> tuple[int, int]:
        if isinstance(self.pad, int):
            return self.pad, self.pad
        if self.pad == "valid":
            return 0, 0
        zeros = max((-(-size // self.stride) - 1) * self.stride + taps - size, 0)
        return zeros // 2, zeros - zeros // 2

    @property
    def p(self) -> int:
        """Rows of the output."""
        return (self.h + sum(self.pads[0]) - self.r) // self.stride + 1

    @property
    def q(self) -> int:
        """Columns of the output."""
        return (self.w + sum(self.pads[1]) - self.s) // self.stride + 1

    @property
    def gemm(self) -> tuple[int, int, int]:
        """(M, N, K) of the matrix product that a group comes to, the columns made by im2col."""
        positions, taps, filters = (
            self.n * self.p * self.q,
            self.c_in // self.groups * self.r * self.s,
            self.c_out // self.groups,
        )
        return {
            "fprop": (positions, filters, taps),
            "dgrad": (positions, taps, filters),
            "wgrad": (taps, filters, positions),
        }[self.direction]

    @property
    def x_shape(self) -> tuple[int, ...]:
        """The images, dx too."""
        return self._images(self.h, self.w, self.c_in)

    @property
    def y_shape(self) -> tuple[int, ...]:
        """The output, dy too."""
        return self._images(self.p, self.q, self.c_out)

    def _images(self, rows: int, columns: int, channels: int) -> tuple[int, ...]:
        return (self.n, rows, columns, channels) if self.layout == "NHWC" else (self.n, channels, rows, columns)

    @property
    def w_shape(self) -> tuple[int, ...]:
        """The filters, dw too."""
        channels = self.c_in // self.groups
        return (
            (self.r, self.s, channels, self.c_out) if self.layout == "NHWC" else (self.c_out, channels, self.r, self.s)
        )

    @property
    def out_shape(self) -> tuple[int, ...]:
        """What the direction gives: y, dx or dw."""
        return {"fprop": self.y_shape, "dgrad": self.x_shape, "wgrad": self.w_shape}[self.direction]

    @property
    def flops(self) -> int:
        """2 n p q c_out (c_in / groups) r s in every direction; products with the padding's zeros count."""
        m, n, k = self.gemm
        return 2 * self.groups * m * n * k

    @property
    def bytes_moved(self) -> int:
        """Two arrays read and one written. Of x that is read, only the rows and columns that some filter covers count: a
        1 x 1 filter with stride 2 needs a quarter; dx is written whole."""
        rows, columns = self.h, self.w
        if self.direction != "dgrad":
            rows = _covered(self.h, self.p, self.r, self.stride, self.pads[0][0])
            columns = _covered(self.w, self.q, self.s, self.stride, self.pads[1][0])
        images = self.n * rows * columns * self.c_in
        return (images + math.prod(self.w_shape) + math.prod(self.y_shape)) * ITEM_BYTES[self.dtype]

    @property
    def footprint_bytes(self) -> int:
        arrays = (self.x_shape, self.w_shape, self.y_shape)
        return sum(math.prod(shape) for shape in arrays) * ITEM_BYTES[self.dtype]

    @property
    def alignment(self) -> int:
        """8, 4 or 1: of which the input and output channels of a group are multiples, as libraries' kernels want."""
        return _alignment(self.c_in // self.groups, self.c_out // self.groups)

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Of x and w for fprop, of dy and w for dgrad, of x and dy for wgrad."""
        x, w, y = self.x_shape, self.w_shape, self.y_shape
        return {"fprop": (x, w), "dgrad": (y, w), "wgrad": (x, y)}[self.direction]

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """(x, w) for fprop, (dy, w) for dgrad, (x, dy) for wgrad."""
        a, b = self.operand_shapes
        return (random_array(a, self.dtype, seed, whole_numbers), random_array(b, self.dtype, seed + 1, whole_numbers))


@functools.lru_cache(maxsize=4096)
def _covered(size: int, outputs: int, taps: int, stride: int, before: int) -> int:
    """How many of `size` positions lie under some filter of `taps`, `before` zeros being put in front."""
    return len({i * stride + tap - before for i in range(outputs) for tap in range(taps)} & set(range(size)))


class Stream(msgspec.Struct, frozen=True, tag="stream"):
    """An element-wise pass over arrays of `nbytes` in all: STREAM's copy, scale, add, triad, and read (a sum); then the
    passes of a training step: activations, pooling, normalization, optimizer updates.

    Source: J. McCalpin's STREAM; its byte count leaves out the read that a cache makes before a write.
    """

    operation: str
    nbytes: int
    dtype: str = "float64"
    op: ClassVar[str] = "stream"
    # operation -> arrays read, arrays written, FLOPs an element. An array of a quarter is a pooled one.
    WEIGHTS: ClassVar[dict] = {
        "copy": (1, 1, 0),
        "scale": (1, 1, 1),
        "add": (2, 1, 1),
        "triad": (2, 1, 2),
        "read": (1, 0, 1),
        "relu": (1, 1, 1),
        "relu_grad": (2, 1, 1),
        "dropout": (1, 1, 2),
        "maxpool": (1, 0.25, 0.75),
        "maxpool_grad": (1.5, 1, 1),
        "batchnorm": (1, 1, 8),
        "batchnorm_grad": (2, 1, 13),
        "sgd": (2, 1, 2),
        "adam": (4, 3, 12),
    }
    # Elements come in whole images of this (height, width, channels) where the operation knows of images.
    IMAGE: ClassVar[tuple] = (8, 8, 32)
    OF_IMAGES: ClassVar[tuple] = ("maxpool", "maxpool_grad", "batchnorm", "batchnorm_grad")

    def __post_init__(self):
        if self.operation not in self.WEIGHTS:
            raise ValueError(f"unknown operation {self.operation!r}; known: {', '.join(self.WEIGHTS)}")
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"unknown dtype {self.dtype!r}; known: {', '.join(ITEM_BYTES)}")
        check_counts(nbytes=self.nbytes)
        if self.elements < 1:
            least = math.ceil(self._element_bytes * self._granule)
            raise ValueError(f"{self.nbytes} bytes hold no element of each array; the smallest is {least}")

    @property
    def _element_bytes(self) -> float:
        read, written, _ = self.WEIGHTS[self.operation]
        return (read + written) * ITEM_BYTES[self.dtype]

    @property
    def _granule(self) -> int:
        return math.prod(self.IMAGE) if self.operation in self.OF_IMAGES else 1

    @property
    def elements(self) -> int:
        """Elements of each whole array."""
        return int(self.nbytes // (self._element_bytes * self._granule)) * self._granule

    @property
    def math(self) -> str:
        return self.dtype

    @property
    def flops(self) -> int:
        """Additions, multiplications, comparisons and square roots alike count 1."""
        return int(self.elements * self.WEIGHTS[self.operation][2])

    @property
    def bytes_moved(self) -> int:
        return int(self.elements * self._element_bytes)

    @property
    def footprint_bytes(self) -> int:
        return self.bytes_moved

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """The whole arrays read, each of `elements` values; the scalar is 3, as in STREAM.

        maxpool_grad has the images and the gradient of the pooled ones; batchnorm its images alone (scale 1, shift 0);
        adam: weights, gradient, first moment, second moment (never negative).
        """
        if self.operation == "maxpool_grad":
            sizes = [self.elements, self.elements // 4]
        else:
            sizes = [self.elements] * math.ceil(self.WEIGHTS[self.operation][0])
        arrays = [random_array((size,), self.dtype, seed + i, whole_numbers) for i, size in enumerate(sizes)]
        if self.operation == "adam":
            np.abs(arrays[3], out=arrays[3])
        return tuple(arrays)


class Peak(msgspec.Struct, frozen=True, tag="peak"):
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

    @property
    def footprint_bytes(self) -> int:
        return 0

    def inputs(self, seed: int, whole_numbers: bool = False) -> tuple[np.ndarray, ...]:
        """(factor, addend) of x <- factor * x + addend: 1 and 1 count the trips exactly, the random pair stays finite."""
        if whole_numbers:
            return (np.ones(2, dtype=np.float64),)
        return (np.array([0.999, np.random.default_rng(seed).standard_normal()]),)


if TYPE_CHECKING:
    Problem = Any  # which one it is, `op` says: no checker follows that, so to them it has every field
else:
    Problem = Matmul | Conv | Stream | Peak | Transfer | Launch | Training | Inference | PeerCopy | AllReduce | AtOnce
