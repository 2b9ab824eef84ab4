"""Panels of a matrix: pieces of it copied by whole vectors into the order in which a kernel reads them."""

import types as py_types

import numba
import numpy as np
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
    """A flat view of array.size elements from the array's first one on. Its type is the same for all strides, so Numba
    compiles once. The view does not keep the array alive."""
    start = array.__array_interface__["data"][0]
    interface = {"data": (start, False), "shape": (array.size,), "typestr": array.dtype.str, "version": 3}
    return np.asarray(py_types.SimpleNamespace(__array_interface__=interface))


def room(dtype: np.dtype, *shapes: tuple[int, ...]) -> list[np.ndarray]:
    """Uninitialized arrays of these shapes for panels, in one piece of memory, on huge pages if the system gives them: a block
    that is read over and over has more small pages than the first-level TLB has entries.

    NumPy asks for huge pages for 4 MiB and more, and this is always more. Each array begins on a cache line, a KiB further into
    its page than the one before.
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
    """The value `index` elements after the array's first one; the index may be outside of the array's shape."""
    signature = array.dtype(array, types.intp)

    def codegen(context, builder, signature, arguments):
        return builder.load(*emit.starts(context, builder, signature, arguments, (0,)))

    return signature, codegen


@intrinsic
def copy_some(typingctx, lanes, target, target_at, source, source_at, valid):
    """Copies `valid` values, at most as many as `lanes` is long."""
    signature = types.void(lanes, target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder, signature, arguments):
        vector, item = emit.vector_of(context, signature, 1)
        to, source = emit.datas(context, builder, signature, arguments, (1, 3))
        mask = emit.first_lanes(builder, arguments[5], vector)
        loaded = emit.masked_load(builder, emit.at(builder, source, arguments[4], vector), mask, vector, align=item)
        emit.masked_store(builder, loaded, emit.at(builder, to, arguments[2], vector), mask, align=item)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def copy_group(typingctx, group, target, target_at, source, source_at, ahead):
    """Copies as many values as `group` is long, and prefetches the source `ahead` elements further on."""
    signature = types.void(group, target, types.intp, source, types.intp, types.intp)

    def codegen(context, builder, signature, arguments):
        vector, item = emit.vector_of(context, signature, 1)
        to, source = emit.datas(context, builder, signature, arguments, (1, 3))
        loaded = builder.load(emit.at(builder, source, arguments[4], vector), align=item)
        emit.prefetch(builder, emit.at(builder, source, builder.add(arguments[4], arguments[5]), vector))
        builder.store(loaded, emit.at(builder, to, arguments[2], vector), item)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def transpose_block(typingctx, lanes, group, target, target_at, step, source, source_at, across, last, deep):
    """Transposes a block. The source has as many rows as `group` is long, `across` apart. Of each row the first `deep` values are
    read, at most as many as `lanes` is long. In the target the rows' values of one k are side by side, `step` after those of the
    k before. Rows after number `last` repeat it. Whole vectors are written: zeros may follow the last k if `group` is shorter."""
    signature = types.void(lanes, group, target, types.intp, types.intp, source, *[types.intp] * 4)

    def codegen(context, builder, signature, arguments):
        vector, item = emit.vector_of(context, signature, 2)
        rows = signature.args[1].count
        to, source = emit.datas(context, builder, signature, arguments, (2, 5))
        # Load: a vector of each row; lanes beyond `deep` are 0.
        mask = emit.first_lanes(builder, arguments[9], vector)
        row_start = arguments[6]
        loaded = []
        for r in range(rows):
            if r:
                more = builder.icmp_signed("<=", emit.INDEX(r), arguments[8])
                row_start = builder.add(row_start, builder.select(more, arguments[7], emit.INDEX(0)))
            pointer = emit.at(builder, source, row_start, vector)
            loaded.append(emit.masked_load(builder, pointer, mask, vector, align=item))
        # Transpose and store.
        for i, value in enumerate(emit.zipped(builder, loaded)):
            first = emit.INDEX(i * (vector.count // rows))
            into = builder.add(arguments[3], builder.mul(arguments[4], first))
            with builder.if_then(builder.icmp_signed("<", first, arguments[9])):
                builder.store(value, emit.at(builder, to, into, vector), item)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def pack_panel(lanes, group, target, at, width, source, start, across, along, valid, depth):
    """Packs a panel: target[at + k * width + w] = source[start + w * across + k * along] for w < valid and k < depth."""
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
def pack(lanes, group, target, at, width, source, across, along, first, stop, start, depth, stride):
    """Packs the panels of the elements `first` to `stop`. If elements of one k are side by side in memory, a few k of all panels
    are packed at a time, so that memory is read along its rows."""
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
