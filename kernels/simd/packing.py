"""Panels of a matrix: pieces of it copied by whole vectors into the order in which a kernel reads them."""

import types as py_types

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.simd import emit

#: How many rows ahead a copy without transposition prefetches.
_AHEAD_ROWS = 16
#: Steps in k of neighboring panels that are copied at a time.
_FEW = 16
#: Bytes of a page.
_PAGE = 4096
#: Bytes of a huge page.
_HUGE = 1 << 21


def origin(array: np.ndarray) -> np.ndarray:
    """A flat view of array.size elements that begins at the array's first one, whatever its strides. It has one type for all
    strides, so that Numba compiles once. It does not keep the array alive."""
    start = array.__array_interface__["data"][0]
    interface = {"data": (start, False), "shape": (array.size,), "typestr": array.dtype.str, "version": 3}
    return np.asarray(py_types.SimpleNamespace(__array_interface__=interface))


def room(dtype: np.dtype, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Uninitialized arrays of these shapes for panels, in one piece of memory, on huge pages if the system gives them: a
    block that is read over and over has more small pages than the first-level TLB has entries.

    NumPy asks for huge pages for 4 MiB and more, and this is always more. Each array begins on a cache line, a KiB further
    into its page than the one before.
    """
    sizes = [int(np.prod(shape)) * dtype.itemsize for shape in shapes]
    starts = np.cumsum([0, *(-(-size // _PAGE) * _PAGE + _PAGE // 4 for size in sizes)])
    raw = np.empty(int(starts[-1]) + 2 * _HUGE, np.uint8)
    base = -raw.ctypes.data % _HUGE
    return [
        raw[base + at : base + at + size].view(dtype).reshape(shape)
        for at, size, shape in zip(starts.tolist(), sizes, shapes, strict=False)
    ]


@intrinsic
def peek(typingctx, array, index):
    """A Numba intrinsic: the value `index` elements after the array's first one; the index may lie outside of the array's
    shape."""
    signature = array.dtype(array, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.load(*emit.element_pointers(context, builder, signature, arguments, arrays=(0,)))

    return signature, codegen


@intrinsic
def copy_some(typingctx, lanes, target, target_at, source, source_at, valid):
    """A Numba intrinsic: copies `valid` values, at most as many as the tuple `lanes` is long, from source[source_at] on to
    target[target_at] on."""
    signature = types.void(lanes, target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a masked load and a masked store; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, target_at, _, source_at, valid = tuple(arguments)
        vector, item = emit.vector_of(context, signature, array=1)
        target, source = emit.data_pointers(context, builder, signature, arguments, places=(1, 3))
        mask = emit.first_lanes(builder, valid, vector)
        read = emit.vector_pointer(builder, source, source_at, vector)
        loaded = emit.masked_load(builder, read, mask, vector, align=item)
        emit.masked_store(builder, loaded, emit.vector_pointer(builder, target, target_at, vector), mask, align=item)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_group(typingctx, group, target, target_at, source, source_at, ahead):
    """A Numba intrinsic: copies as many values as the tuple `group` is long, from source[source_at] on to target[target_at] on,
    and prefetches the source `ahead` elements further on."""
    signature = types.void(group, target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a load, a prefetch and a store; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, target_at, _, source_at, ahead = tuple(arguments)
        vector, item = emit.vector_of(context, signature, array=1)
        target, source = emit.data_pointers(context, builder, signature, arguments, places=(1, 3))
        loaded = builder.load(emit.vector_pointer(builder, source, source_at, vector), align=item)
        emit.prefetch(builder, emit.vector_pointer(builder, source, builder.add(source_at, ahead), vector))
        builder.store(loaded, emit.vector_pointer(builder, target, target_at, vector), item)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def transpose_block(typingctx, lanes, group, target, target_at, step, source, source_at, across, last, deep):
    """A Numba intrinsic: transposes a block, from source[source_at] on to target[target_at] on.

    The source has as many rows as the tuple `group` is long, `across` elements from each other. Of each row the first `deep`
    values are read, at most as many as the tuple `lanes` is long; rows after number `last` repeat it. In the target the rows'
    values of one k are side by side, `step` elements after those of the k before. Whole vectors are written: zeros may follow
    the last k if `group` is shorter than `lanes`.
    """
    signature = types.void(lanes, group, target, types.intp, types.intp, source, *[types.intp] * 4)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a load of each row and stores of the interleaved rows; Numba calls this with the LLVM values of the
        intrinsic's arguments."""
        _, _, _, target_at, step, _, row_start, across, last, deep = tuple(arguments)
        vector, item = emit.vector_of(context, signature, array=2)
        rows = signature.args[1].count  # the length of `group`
        target, source = emit.data_pointers(context, builder, signature, arguments, places=(2, 5))
        # Load: a vector of each row; lanes beyond `deep` are 0.
        mask = emit.first_lanes(builder, deep, vector)
        loaded = []
        for r in range(rows):
            if r:
                more = builder.icmp_signed("<=", emit.INDEX(r), last)
                row_start = builder.add(row_start, builder.select(more, across, emit.INDEX(0)))
            pointer = emit.vector_pointer(builder, source, row_start, vector)
            loaded.append(emit.masked_load(builder, pointer, mask, vector, align=item))
        # Transpose and store.
        for i, value in enumerate(emit.zipped(builder, loaded)):
            first_k = emit.INDEX(i * (vector.count // rows))  # of the steps that this vector has
            place = builder.add(target_at, builder.mul(step, first_k))
            with builder.if_then(builder.icmp_signed("<", first_k, deep)):
                builder.store(value, emit.vector_pointer(builder, target, place, vector), item)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def pack_panel(
    lanes: tuple,
    group: tuple,
    target: np.ndarray,
    at: int,
    width: int,
    source: np.ndarray,
    start: int,
    across: int,
    along: int,
    valid: int,
    depth: int,
) -> None:
    """Packs a panel: target[at + k * width + w] = source[start + w * across + k * along] for w < valid and k < depth.

    lanes: a tuple as long as a vector; group: one as long as the rows that are copied or transposed at once, which divide
    `width`. Compiled by Numba; target and source are flat.
    """
    if across == 1 and valid == width:
        for k in range(depth):
            for w in range(0, width, len(group)):
                copy_group(group, target, at + k * width + w, source, start + k * along + w, _AHEAD_ROWS * along)
    elif across == 1:
        for k in range(depth):
            for w in range(0, valid, len(group)):
                copy_some(group, target, at + k * width + w, source, start + k * along + w, min(valid - w, len(group)))
    elif along == 1:
        for k in range(0, depth, len(lanes)):
            for w in range(0, valid, len(group)):
                to = at + k * width + w
                row_start = start + w * across + k
                last = valid - w - 1
                transpose_block(lanes, group, target, to, width, source, row_start, across, last, depth - k)
    else:
        for k in range(depth):
            for w in range(valid):
                target[at + k * width + w] = peek(source, start + w * across + k * along)


@numba.njit(cache=True)
def pack(
    lanes: tuple,
    group: tuple,
    target: np.ndarray,
    at: int,
    width: int,
    source: np.ndarray,
    across: int,
    along: int,
    first: int,
    stop: int,
    start: int,
    depth: int,
    stride: int,
) -> None:
    """Packs the panels, of `width` each, of the rows or columns `first` to `stop` of a matrix, `depth` k of them from k =
    `start` on. If elements of one k are side by side in memory, a few k of all panels are packed at a time, so that memory is
    read along its rows. Compiled by Numba.

    lanes: a tuple as long as a vector; group: one as long as the rows that are copied or transposed at once.
    target: flat; row or column i of the matrix has its panel at `at` + i * stride.
    source: flat; `across` and `along` are its elements from one row or column, and from one k, to the next.
    """
    few = _FEW if across == 1 else depth
    for k in range(0, depth, few):
        for i in range(first, stop, width):
            pack_panel(
                lanes,
                group,
                target,
                at + i * stride + k * width,
                width,
                source,
                i * across + (start + k) * along,
                across,
                along,
                min(width, stop - i),
                min(few, depth - k),
            )
