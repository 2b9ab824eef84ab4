"""Shapes of a layer's inputs as words: `32x32x3`, `200:int32`, with blanks between several."""

import re
from collections.abc import Iterable

import msgspec

from workloads import options

#: Types that a layer may take, the first where none is named.
TYPES = ("float32", "int32", "int64", "bool", "uint8")


class InputShape(msgspec.Struct, frozen=True, kw_only=True):
    """The shape of one input of a layer."""

    #: The sides of a sample; () of a single number.
    sides: tuple[int, ...]
    #: The type of its numbers.
    dtype: str = "float32"

    @property
    def words(self) -> str:
        shape = "x".join(map(str, self.sides)) or "1"
        return shape if self.dtype == TYPES[0] else f"{shape}:{self.dtype}"


def parsed(text: str) -> InputShape:
    """The shape that a word of the user names: `32,32,3` or `32x32x3`, with a type behind a colon as in `200:int32`.

    Raises: Usage for a word that is no shape, an unknown type, and a side of 0.
    """
    shape, _, dtype = text.partition(":")
    if dtype and dtype not in TYPES:
        raise options.unknown("type", dtype, TYPES)
    if not re.fullmatch(r"\d{1,9}([x,]\d{1,9})*,?", shape):
        numbers = re.findall(r"\d+", shape)
        right = ",".join(numbers) if numbers else "32,32,3"
        raise options.Usage(f"{text!r} is no shape; one is written 32,32,3", wrong=text, right=right)
    sides = tuple(int(side) for side in re.split("[x,]", shape) if side)
    if 0 in sides:
        raise options.Usage(f"{text!r} has a side of 0, which leaves nothing to compute", wrong=text, right="32,32,3")
    return InputShape(sides=sides, dtype=dtype or TYPES[0])


def parsed_shapes(text: str) -> list[InputShape]:
    """The shapes of several inputs, named by words with blanks between them.

    Raises: Usage.
    """
    return [parsed(word) for word in text.split()]


def input_words(specs: Iterable) -> str:
    """The shapes of a sample of each TensorSpec, without the first side, as words with blanks between them: `32x32x3
    200:int32`."""
    words = []
    for spec in specs:
        sides = tuple(int(side or 1) for side in spec.shape[1:]) if spec.shape.rank else ()
        words.append(InputShape(sides=sides, dtype=spec.dtype.name).words)
    return " ".join(words)
