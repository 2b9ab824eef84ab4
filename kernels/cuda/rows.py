"""Matrices whose rows begin anywhere, and copies of them whose rows are aligned."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import loader

_THREADS, _EACH, _SIDE = 256, 8, 64


class Placed(NamedTuple):
    """A matrix as a kernel sees it: array, items from row to row, the copy to or from it, and whether that transposes."""

    array: cupy.ndarray
    pitch: int
    copy: Callable[[], None] | None = None
    turned: bool = False


def in_place(array: cupy.ndarray) -> Placed:
    """The matrix where it lies, without a copy."""
    return Placed(array, array.shape[-1])


def placed(array: cupy.ndarray, out: bool = False, line: int = 16) -> Placed:
    """The matrix where it lies, if its rows begin on 16 bytes; else a wider one with rows on 16 bytes, or if they are as long on
    `line`, padded with zeros, copied to (a result: copied from) in each call."""
    (rows, columns), size = array.shape, array.dtype.itemsize
    if columns * size % 16 == array.data.ptr % 16 == 0:
        return in_place(array)
    on = line if columns * size >= line else 16
    pitch = -(-columns * size // on) * on // size
    wider = cupy.zeros((rows, pitch), array.dtype)
    (to, to_pitch), (source, source_pitch) = ((array, columns), (wider, pitch))[:: 1 if out else -1]
    if pitch * size >= 1 << 31:  # further than the driver copies from row to row
        views = (wider[:, :columns], array)[:: -1 if out else 1]
        return Placed(wider, pitch, lambda: cupy.copyto(*views))
    if columns * size % 4 or array.data.ptr % 4:  # of two bytes, which the driver copies faster than we do

        def driver(keep=(array, wider)):
            ends = to.data.ptr, to_pitch * size, source.data.ptr, source_pitch * size, columns * size, rows
            runtime.memcpy2DAsync(*ends, runtime.memcpyDeviceToDevice, cupy.cuda.get_current_stream().ptr)

        return Placed(wider, pitch, driver)
    words = [of * size // 4 for of in (columns, source_pitch, to_pitch)]
    compiled, items = loader.load("cuda/rows", "rows"), rows * words[0]
    arguments = (source, to, np.int64(items), *map(np.int32, words))
    grid = (-(-items // (_THREADS * _EACH)),)
    return Placed(wider, pitch, lambda: compiled(grid, (_THREADS,), arguments))


def turned(array: cupy.ndarray) -> Placed:
    """The transpose of a float32 matrix with rows on 16 bytes and zeros beside them, copied to in each call."""
    rows, columns = array.shape
    across = cupy.zeros((columns, -(-rows // 4) * 4), array.dtype)
    compiled, grid = loader.load("cuda/rows", "turned"), (-(-rows // _SIDE) * -(-columns // _SIDE),)
    arguments = (array, across, *map(np.int32, (rows, columns, across.shape[1])))
    return Placed(across, across.shape[1], lambda: compiled(grid, (_THREADS,), arguments), True)


def copying(launch: Callable[[], None], read: Sequence[Placed], written: Placed, result) -> Callable:
    """The `run()` that launches between the copies of what is read and of what is written, and gives `result`."""
    calls = [call for call in (*(x.copy for x in read), launch, written.copy) if call]

    def run(keep=(read, written)):  # a launch may hold raw addresses, so their owners are held here
        for call in calls:
            call()
        return result

    return run
