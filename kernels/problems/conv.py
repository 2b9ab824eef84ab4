"""The 2-D convolution, forward and backward."""

import functools
import math
from typing import ClassVar, NamedTuple

import numpy as np

from kernels.problems.arrays import ITEM_BYTES, Make, random_array
from kernels.problems.fields import Base, alignment, check_counts, check_word, fill_math


class SidePhase(NamedTuple):
    """The pixels first, first + stride, ... of one side of dx, whose gradients meet the same taps of the filter."""

    #: Pixels.
    size: int
    #: Taps of the filter that reach them.
    taps: int
    #: Zeros before dy that the first of the pixels meets.
    zeros: int
    #: The last of the taps, with which the reversed filter begins.
    last: int


def phase(size: int, taps: int, stride: int, pad: int, first: int) -> SidePhase:
    """The phase of one side of dx that begins at the pixel `first`: the pixels first, first + stride, ..

    size: pixels of the side. taps: of the filter's side. pad: zeros before the side.
    """
    first_tap = (first + pad) % stride
    reached = max(0, -(-(taps - first_tap) // stride))
    return SidePhase(
        size=max(0, -(-(size - first) // stride)),
        taps=reached,
        zeros=reached - 1 - (first + pad - first_tap) // stride,
        last=first_tap + stride * (reached - 1),
    )


class Conv(Base, frozen=True, tag="conv"):
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
    products = property(lambda self: True)
    LAYOUTS: ClassVar[tuple] = ("NHWC", "NCHW")
    DIRECTIONS: ClassVar[tuple] = ("fprop", "dgrad", "wgrad")

    def __post_init__(self) -> None:
        """Fills in `math`, the arithmetic, where it is empty; raises ValueError for fields that are no convolution."""
        counts = ("n", "h", "w", "c_in", "c_out", "r", "s", "stride", "groups")
        check_counts(**{name: getattr(self, name) for name in counts})
        if self.pad not in ("same", "valid") and not (type(self.pad) is int and self.pad >= 0):
            raise ValueError(f"pad must be same, valid or a whole number of at least 0, not {self.pad!r}")
        check_word("layout", self.layout, self.LAYOUTS)
        check_word("direction", self.direction, self.DIRECTIONS)
        fill_math(self)
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
        """(zeros before, zeros after) a side of `size` pixels under a filter of `taps`: none, the same on both, or Keras's
        `same`."""
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
        """(M, N, K) of the matrix product that the convolution of one group is equal to, by im2col: the images' windows are
        rows."""
        positions = self.n * self.p * self.q
        taps = self.c_in // self.groups * self.r * self.s
        filters = self.c_out // self.groups
        sides = {
            "fprop": (positions, filters, taps),
            "dgrad": (positions, taps, filters),
            "wgrad": (taps, filters, positions),
        }
        return sides[self.direction]

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
        if self.layout == "NHWC":
            return (self.r, self.s, channels, self.c_out)
        return (self.c_out, channels, self.r, self.s)

    @property
    def out_shape(self) -> tuple[int, ...]:
        """Shape of the result: y (fprop), dx (dgrad) or dw (wgrad)."""
        return {"fprop": self.y_shape, "dgrad": self.x_shape, "wgrad": self.w_shape}[self.direction]

    @property
    def flops(self) -> int:
        """2 n p q c_out (c_in / groups) r s in every direction; products with the padding's zeros count."""
        return 2 * self.groups * math.prod(self.gemm)

    @property
    def bytes_moved(self) -> int:
        """Bytes of the two arrays read and the one written. Of x that is read, only the rows and columns that some filter
        covers count: a 1 x 1 filter with stride 2 needs a quarter; dx is written whole."""
        if self.direction == "dgrad":
            rows = self.h
            columns = self.w
        else:
            (top, _), (left, _) = self.pads
            rows = _covered(size=self.h, outputs=self.p, taps=self.r, stride=self.stride, before=top)
            columns = _covered(size=self.w, outputs=self.q, taps=self.s, stride=self.stride, before=left)
        images = self.n * rows * columns * self.c_in
        return (images + math.prod(self.w_shape) + math.prod(self.y_shape)) * ITEM_BYTES[self.dtype]

    @property
    def footprint_bytes(self) -> int:
        arrays = (self.x_shape, self.w_shape, self.y_shape)
        return sum(math.prod(shape) for shape in arrays) * ITEM_BYTES[self.dtype]

    @property
    def result_bytes(self) -> int:
        return math.prod(self.out_shape) * ITEM_BYTES[self.dtype]

    @property
    def alignment(self) -> int:
        """The largest of 8, 4 and 1 that divides a group's input and output channels; libraries' kernels depend on it."""
        return alignment(self.c_in // self.groups, self.c_out // self.groups)

    @property
    def operand_shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shapes of the two operands: x and w for fprop, dy and w for dgrad, x and dy for wgrad."""
        if self.direction == "fprop":
            return self.x_shape, self.w_shape
        if self.direction == "dgrad":
            return self.y_shape, self.w_shape
        return self.x_shape, self.y_shape

    def inputs(self, seed: int, whole_numbers: bool = False, make: Make = random_array) -> tuple[np.ndarray, ...]:
        """(x, w) for fprop, (dy, w) for dgrad, (x, dy) for wgrad."""
        a, b = self.operand_shapes
        return (make(a, self.dtype, seed, whole_numbers), make(b, self.dtype, seed + 1, whole_numbers))


@functools.lru_cache(maxsize=4096)
def _covered(size: int, outputs: int, taps: int, stride: int, before: int) -> int:
    """How many of the `size` positions of a side lie under some filter of `taps`, with `before` zeros in front of the side.

    outputs: how many filters lie side by side, `stride` apart.
    """
    covered: set[int] = set()
    for i in range(outputs):
        first = i * stride - before
        covered.update(range(first, first + taps))
    return len(covered.intersection(range(size)))
