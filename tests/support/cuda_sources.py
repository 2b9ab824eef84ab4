"""Expressions of CUDA sources, computed here; where PTX puts the elements of a tile."""

import re

from kernels.cuda import loader

PLAIN, WARP, DIRECT, TENSOR, WGMMA = (f"matmul/cuda{of}" for of in ("", "_warp", "_direct", "_tensor", "_wgmma"))
DEEP, LINE = 64, 128  # k of a place in the ring, bytes of a line


def c(expression: str, **names):
    """A C expression of whole numbers, worked out: `/` is division without a rest, `a ? b : c` of a word a stands alone."""
    text = re.sub(r"(?<=[0-9a-f])u?ll\b", "", expression).replace("/", "//")
    text = re.sub(r"(\w+) \? ([\w *>]+) : ([\w *>]+)", r"((\2) if (\1) else (\3))", text)
    return eval(text, {"min": min, **names})


def found(path, pattern: str) -> str:
    (text,) = set(re.findall(pattern, loader.source(path)))
    return text


def fragment(thread: int, index: int) -> tuple[int, int]:
    """(row, column) of sum number `index` that a thread of a warpgroup has, of 64 rows: wgmma's D as the PTX ISA has it."""
    row = thread // 32 * 16 + thread % 32 // 4 + index % 4 // 2 * 8
    return row, index // 4 * 8 + thread % 4 * 2 + index % 2
