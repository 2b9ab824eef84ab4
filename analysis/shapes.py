"""The shapes of products and convolutions in a few words, the same on a terminal, in sentences and in tables."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernels.problems import Conv, Matmul


def product(of: "Matmul") -> str:
    """`1024` for a square one, else `32x512x3136`; with its layout where an operand is stored transposed."""
    shape = str(of.n) if of.m == of.n == of.k else f"{of.m}x{of.n}x{of.k}"
    return shape if of.layout == "nn" else f"{shape} {of.layout}"


def convolution(of: "Conv") -> str:
    """`32x16x16x64:64x3x3 fprop (pad valid)`: images, filters, direction, and what is not the usual."""
    return conv_words({field: getattr(of, field) for field in of.__struct_fields__})


def conv_words(of: Mapping[str, str | int]) -> str:
    """The same of a convolution's fields, any of which may be a word: N, C, H for what varies."""
    return f"{image(of)} {of['direction']} ({how(of)})"


def image(of: Mapping[str, str | int]) -> str:
    """`32x16x16x64:64x3x3`: NxHxWxC of the images, KxRxS of the filters."""
    return f"{of['n']}x{of['h']}x{of['w']}x{of['c_in']}:{of['c_out']}x{of['r']}x{of['s']}"


def how(of: Mapping[str, str | int]) -> str:
    """`stride 2, 2 groups, NCHW, pad same`: the padding always, the others where they are not the usual."""
    more = [f"stride {of['stride']}"] * (of["stride"] != 1) + [f"{of['groups']} groups"] * (of["groups"] != 1)
    return ", ".join([*more, *[str(of["layout"])] * (of["layout"] != "NHWC"), f"pad {of['pad']}"])
