"""Matrices whose rows begin anywhere, and copies of them whose rows are aligned."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import loader

#: Threads of a block, as rows.cu has them.
_THREADS = 256
#: Words that a thread of `rows` copies, as rows.cu has them.
_WORDS_OF_A_THREAD = 8
#: Rows and columns that a block of `turned` transposes, as rows.cu has them.
_SIDE = 64
#: Bytes from row to row that are further than the driver copies.
_DRIVER_PITCH_BYTES = 1 << 31


class Placed(NamedTuple):
    """A matrix as a kernel reads or writes it."""

    #: The array that the kernel is passed.
    array: cupy.ndarray
    #: Items from row to row.
    pitch: int
    #: The copy to it, of a result from it; None where the matrix is used where it lies.
    copy: Callable[[], None] | None = None
    #: Whether that copy transposes.
    is_transposed: bool = False


class _Copy(NamedTuple):
    """What is copied between a matrix and its wider form, row by row."""

    source: cupy.ndarray
    #: Items from row to row of the source.
    source_pitch: int
    target: cupy.ndarray
    #: Items from row to row of the target.
    target_pitch: int
    rows: int
    columns: int


def in_place(array: cupy.ndarray) -> Placed:
    """The matrix where it lies, without a copy."""
    return Placed(array=array, pitch=array.shape[-1])


def aligned(array: cupy.ndarray, is_result: bool = False, line_bytes: int = 16) -> Placed:
    """The matrix where it lies, if its rows begin on 16 bytes; else a wider one whose rows do, filled up with zeros. An
    operand is copied to it in each call; a result (`is_result`) is copied from it.

    line_bytes: rows of the wider matrix begin on so many bytes, if they are at least as long.
    """
    rows, columns = array.shape
    size = array.dtype.itemsize
    if columns * size % 16 == 0 and array.data.ptr % 16 == 0:
        return in_place(array)
    alignment = line_bytes if columns * size >= line_bytes else 16
    pitch = -(-columns * size // alignment) * alignment // size
    wider = cupy.zeros((rows, pitch), array.dtype)
    if pitch * size >= _DRIVER_PITCH_BYTES:
        inside = wider[:, :columns]
        target, source = (array, inside) if is_result else (inside, array)
        return Placed(array=wider, pitch=pitch, copy=lambda: cupy.copyto(target, source))
    source, source_pitch = (wider, pitch) if is_result else (array, columns)
    target, target_pitch = (array, columns) if is_result else (wider, pitch)
    copy = _Copy(
        source=source,
        source_pitch=source_pitch,
        target=target,
        target_pitch=target_pitch,
        rows=rows,
        columns=columns,
    )
    is_of_words = columns * size % 4 == 0 and array.data.ptr % 4 == 0
    return Placed(array=wider, pitch=pitch, copy=_by_words(copy) if is_of_words else _by_driver(copy))


def _by_driver(copy: _Copy) -> Callable[[], None]:
    """The call that lets the driver copy rows of items of two bytes, which it does faster than our kernel."""
    size = copy.source.dtype.itemsize
    arguments = (
        copy.target.data.ptr,
        copy.target_pitch * size,
        copy.source.data.ptr,
        copy.source_pitch * size,
        copy.columns * size,
        copy.rows,
        loader.D2D,
    )

    def run(keep=copy):  # the call has raw addresses alone: this keeps their arrays alive
        runtime.memcpy2DAsync(*arguments, cupy.cuda.get_current_stream().ptr)

    return run


def _by_words(copy: _Copy) -> Callable[[], None]:
    """The call that copies rows of 4-byte words, by our kernel `rows`."""
    compiled = loader.compile_kernel("cuda/rows", "rows")
    size = copy.source.dtype.itemsize
    row_words = copy.columns * size // 4
    words = copy.rows * row_words
    arguments = (
        copy.source,
        copy.target,
        np.int64(words),
        np.int32(row_words),
        np.int32(copy.source_pitch * size // 4),
        np.int32(copy.target_pitch * size // 4),
    )
    grid = (-(-words // (_THREADS * _WORDS_OF_A_THREAD)),)
    return lambda: compiled(grid, (_THREADS,), arguments)


def transposed(array: cupy.ndarray) -> Placed:
    """A matrix that receives the transpose of a float32 matrix in each call; its rows begin on 16 bytes and are filled up
    with zeros."""
    rows, columns = array.shape
    pitch = -(-rows // 4) * 4
    transpose = cupy.zeros((columns, pitch), array.dtype)
    compiled = loader.compile_kernel("cuda/rows", "turned")
    grid = (-(-rows // _SIDE) * -(-columns // _SIDE),)
    arguments = (array, transpose, np.int32(rows), np.int32(columns), np.int32(pitch))
    return Placed(array=transpose, pitch=pitch, copy=lambda: compiled(grid, (_THREADS,), arguments), is_transposed=True)


def with_copies(
    launch: Callable[[], None], read: Sequence[Placed], written: Placed, result: cupy.ndarray
) -> Callable[[], cupy.ndarray]:
    """A call that copies the operands `read` to where the kernel reads them, launches it, copies what it has `written` to
    where it belongs, and returns `result`; copies that are not needed are left out."""
    calls = [operand.copy for operand in read if operand.copy]
    calls.append(launch)
    if written.copy:
        calls.append(written.copy)

    def run(keep=(read, written)):  # a launch may have raw addresses alone: this keeps their arrays alive
        """Makes these calls in order. keep: alive as long as this function, as a launch may have raw addresses alone."""
        for call in calls:
            call()
        return result

    return run
