"""Matmul on vectors spelled out: a tile of C in registers, fed from panels that lie as it reads them.

Threads share the rows of C within a block of B: a product of few rows (32 x 4096 x 512) has too few for many threads.
"""

import numba
import numpy as np
from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.problems import Matmul
from kernels.problems.arrays import empty
from kernels.reference import operands
from kernels.registry import kernel
from kernels.simd import vectors as emit
from kernels.simd.packing import origin, pack, room

_VECTORS = 3  # of a tile's row
_UNROLL = 4  # steps in k a trip
_DEPTH_BYTES = 2048  # of a row of A in its panel: a panel of A lives in the first-level cache
# Rows of C in a piece of work, and pieces a thread, so that a thread that is held up does fewer of them.
_MOST_ROWS, _PIECES = 64, 4
_BLOCK_BYTES = 1 << 20  # of B in panels, which are read over and over: half of a 2 MiB second-level cache
_LINE = 64  # bytes
_SMALL_BYTES = 256 << 10  # of B in panels, of which a thread has one of its own


def tile_rows(vector: int) -> int:
    """Rows of the tile with vectors of `vector` bytes: 8 x 3 sums and 3 of B fill 32 registers, 4 x 3 and 3 fill 16."""
    return 8 if emit.registers(vector) == 32 else 4


def _tile_function(module: ir.Module, vector: ir.VectorType, rows: int, vectors: int, packed: bool) -> ir.Function:
    """C tile (+)= A panel B panel as a function of its own, so that nothing around it takes its registers.

    Its arguments: A's panel (packed: k-major, `rows` values a step; else where it is stored), how far its rows are apart
    there, B's panel (k-major, _VECTORS vectors a step), C, C's row length, depth, how many rows and columns of C are there,
    and how many of its columns are added to (all or none).
    """
    name = f"matmul_tile_{rows}x{vectors}_{vector.count}_{vector.element}_{'packed' if packed else 'stored'}"
    if name in module.globals:
        return module.globals[name]
    pointer, item = vector.element.as_pointer(), 4 if isinstance(vector.element, ir.FloatType) else 8
    function = emit.internal_function(module, name, [pointer] * 3 + [emit.INDEX] * 6)
    a, b, c, apart, length, depth, height, columns, added = function.args
    builder = ir.IRBuilder(function.append_basic_block("entry"))

    def place(base, row: int, v: int):
        offset = builder.add(builder.mul(length, emit.INDEX(row)), emit.INDEX(v * vector.count))
        return builder.bitcast(builder.gep(base, [offset]), vector.as_pointer())

    lines = [a]
    for r in range(rows):
        for v in range(vectors):
            emit.prefetch(builder, place(c, r, v), write=True)
        if r and not packed:  # rows that are not there repeat the last one
            more = builder.icmp_signed("<", emit.INDEX(r), height)
            lines.append(builder.gep(lines[-1], [builder.select(more, apart, emit.INDEX(0))]))

    def steps(count: int, start, sums):
        """As many trips of `count` steps as there are from `start`; gives where it stopped and the sums."""
        loop = emit.Loop(builder, start, sums)
        k, *values = loop.slots
        after_k = builder.add(k, emit.INDEX(count))
        loop.enter(builder.icmp_signed("<=", after_k, depth))
        lefts = [builder.gep(line, [builder.mul(k, emit.INDEX(rows)) if packed else k]) for line in lines]
        right = builder.gep(b, [builder.mul(k, emit.INDEX(_VECTORS * vector.count))])
        for u in range(count):
            across = (builder.gep(right, [emit.INDEX((u * _VECTORS + v) * vector.count)]) for v in range(vectors))
            if packed:
                down = (builder.gep(lefts[0], [emit.INDEX(u * rows + r)]) for r in range(rows))
            else:
                down = (builder.gep(left, [emit.INDEX(u)]) for left in lefts)
            values = emit.outer_product(builder, vector, across, down, values)
        loop.leave([after_k, *values])
        return loop.slots

    k, *sums = steps(_UNROLL, emit.INDEX(0), [ir.Constant(vector, None)] * (rows * vectors))
    _, *sums = steps(1, k, sums)
    stored, old = (
        [emit.first_lanes(builder, builder.sub(count, emit.INDEX(v * vector.count)), vector) for v in range(vectors)]
        for count in (columns, added)
    )
    for r, v in emit.vectors_there(builder, rows, vectors, height):
        emit.add_masked(builder, sums[r * vectors + v], place(c, r, v), old[v], stored[v], item)
    return function


@intrinsic
def tile(typingctx, lanes, a, a_at, b, b_at, c, c_at, apart, length, depth, height, columns, added):
    """Multiplies a panel of A with one of B into a tile of C; see _tile_function. `lanes`: a tuple as long as a vector;
    apart: 0 for a packed panel of A."""
    signature = types.void(lanes, a, types.intp, b, types.intp, c, *[types.intp] * 7)

    def codegen(context, builder, signature, arguments):
        vector, item = emit.vector_of(context, signature, 1)
        rows = tile_rows(vector.count * item)

        def cases():
            for packed in (True, False):
                for vectors in range(1, _VECTORS + 1):
                    same = builder.icmp_signed("==" if packed else "!=", arguments[7], emit.INDEX(0))
                    enough = builder.icmp_signed("<=", arguments[11], emit.INDEX(vectors * vector.count))
                    function = _tile_function(builder.module, vector, rows, vectors, packed)
                    yield builder.and_(same, enough), function

        panels = emit.starts(context, builder, signature, arguments, (1, 3, 5))
        emit.call_first(builder, cases(), [*panels, *arguments[7:]])
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def _ask(typingctx, array, index):
    """Asks for the line of the value `index` places from an array's first."""
    signature = types.void(array, types.intp)

    def codegen(context, builder, signature, arguments):
        emit.prefetch(builder, *emit.starts(context, builder, signature, arguments, (0,)))
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True)
def _row_of_tiles(lanes, a, rows_of_a, line, at, sizes, old):
    """Tiles of C: a panel of A, whose rows are `apart` (0: packed), by the panels of a block of B. Each asks for its share of
    the next panel of A, which lies `ahead` of this one."""
    (a_at, apart, ahead), (right, right_at, c, c_at) = rows_of_a, at
    n, rows, columns, deep, depth, high, wide = sizes
    tiles = -(-wide // columns)
    streams = high if apart else 1
    share = -(-(deep if apart else deep * rows) // (tiles * line)) * line
    for j in range(0, wide, columns):
        for r in range(streams):
            first = a_at + ahead + r * apart + j // columns * share
            for at in range(first, first + share, line):
                _ask(a, at)
        there = min(columns, wide - j)
        tile(lanes, a, a_at, right, right_at + j * depth, c, c_at + j, apart, n, deep, high, there, min(old, there))


@numba.njit(cache=True)
def _work(lanes, group, a, a_by, b, b_by, c, sizes, plan, left, right, counters):
    """One thread's share: phases of `depth` steps in k and `length` columns of B, whose panels stay in the second-level cache;
    in each, whoever is free takes the next piece to pack and then the next `height` rows of C to add to.

    Panels of all of B at once would be written to memory and read back: 5 % of the time at n = 2048. Four counters a phase:
    pieces taken and packed, pieces of C taken and done. A thread waits only for pieces that others have begun, so any number
    of threads comes to an end; it packs for a phase while others still finish the one before, from the other half.
    """
    (m, n, k), (a_row, a_col), (b_row, b_col) = sizes, a_by, b_by
    depth, rows, columns, height, length, broad, sides = plan
    blocks, a_pieces = -(-n // length), -(-m // height)
    a_side = -(-m // rows) * rows * depth
    line = _LINE // a.itemsize
    for phase in range(-(-k // depth) * blocks):
        start, j0 = phase // blocks * depth, phase % blocks * length
        deep, wide = min(depth, k - start), min(length, n - j0)
        left_at, right_at = phase // blocks % sides * a_side, phase % sides * length * depth
        b_packs = -(-wide // broad)
        packs = b_packs + (0 if a_col == 1 or j0 else a_pieces)
        while True:
            piece = emit.take_number(counters, 4 * phase)
            if piece >= packs:
                break
            if piece < b_packs:
                first = j0 + piece * broad
                pack(
                    lanes,
                    lanes,
                    right,
                    right_at - j0 * depth,
                    columns,
                    b,
                    b_col,
                    b_row,
                    first,
                    min(first + broad, j0 + wide),
                    start,
                    deep,
                    depth,
                )
            else:
                first = (piece - b_packs) * height
                pack(
                    lanes,
                    group,
                    left,
                    left_at,
                    rows,
                    a,
                    a_row,
                    a_col,
                    first,
                    min(first + height, m),
                    start,
                    deep,
                    depth,
                )
            emit.take_number(counters, 4 * phase + 1)
        emit.wait_for(counters, 4 * phase + 1, packs)
        if phase:
            emit.wait_for(counters, 4 * phase - 1, a_pieces)
        while True:
            piece = emit.take_number(counters, 4 * phase + 2)
            if piece >= a_pieces:
                break
            for i in range(piece * height, min((piece + 1) * height, m), rows):
                high, old = min(rows, m - i), wide if start else 0
                shape = (n, rows, columns, deep, depth, high, wide)
                at = right, right_at, c, i * n + j0
                if a_col == 1:
                    _row_of_tiles(lanes, a, (i * a_row + start, a_row, rows * a_row), line, at, shape, old)
                else:
                    _row_of_tiles(lanes, left, (left_at + i * depth, 0, rows * depth), line, at, shape, old)
            emit.take_number(counters, 4 * phase + 3)


@numba.njit(cache=True, parallel=True)
def _product(threads, lanes, group, a, a_by, b, b_by, c, sizes, plan, left, right, counters):
    counters[:] = 0
    for _ in numba.prange(threads):
        _work(lanes, group, a, a_by, b, b_by, c, sizes, plan, left, right, counters)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, vector: int = 0):
    """The call that computes C = A B in vectors of `vector` bytes (0: the widest) on Numba's threads.

    a: m x k; b: k x n, any strides; c: m x n, contiguous.
    """
    (m, k), n, item, threads = a.shape, b.shape[1], a.itemsize, numba.get_num_threads()
    vector = vector or emit.vector_bytes()
    lanes = vector // item
    rows, columns = tile_rows(vector), _VECTORS * lanes
    phases = -(-k * item // _DEPTH_BYTES)
    depth = _up(-(-k // phases), lanes)
    most = max(columns, _BLOCK_BYTES // (depth * item) // columns * columns)
    blocks = -(-n // most)
    length = _up(-(-n // blocks), columns)
    height = max(rows, min(_MOST_ROWS, _up(-(-m // (_PIECES * threads)), rows)))
    broad = max(1, min(8, length // columns // (_PIECES * (threads - 1) + 1))) * columns
    sides = min(2, threads)  # alone, a thread packs what it needs next where it has just finished
    a_values = 0 if a.strides[1] == item else sides * _up(m, rows) * depth
    left, right = room(a.dtype, (a_values,), (sides * length * depth,))
    a_by, b_by = (tuple(step // item for step in x.strides) for x in (a, b))
    plan = (depth, rows, columns, height, length, broad, sides)
    arguments = (
        threads,
        (0,) * lanes,
        (0,) * min(lanes, rows),
        origin(a),
        a_by,
        origin(b),
        b_by,
        c.reshape(-1),
        (m, n, k),
        plan,
        left,
        right,
        np.zeros(4 * phases * blocks, np.int64),
    )
    return lambda keep=(a, b): _product(*arguments)


@numba.njit(cache=True, parallel=True)
def _products(threads, lanes, a, b, b_by, c, sizes, plan, panels, counters):
    """Whoever is free takes the next product, packs its B and goes over its rows."""
    (count, m, n, k), (rows, columns, wide, line) = sizes, plan
    counters[:] = 0
    for thread in numba.prange(threads):
        at = thread * wide * k
        while True:
            i = emit.take_number(counters, 0)
            if i >= count:
                break
            pack(lanes, lanes, panels, at, columns, b, b_by[1], b_by[0], 0, n, i * (n * k // b_by[0]), k, k)
            for row in range(0, m, rows):
                shape = (n, rows, columns, k, k, min(rows, m - row), n)
                where = panels, at, c, (i * m + row) * n
                _row_of_tiles(lanes, a, ((i * m + row) * k, k, rows * k), line, where, shape, 0)


def products(problem: Matmul, a: np.ndarray, b: np.ndarray, c: np.ndarray):
    """The call that computes many small products, a product a thread: its B is packed into the second-level cache.

    a: count x m x k, contiguous; b: count x k x n, of either layout; c: count x m x n, contiguous.
    Raises: ValueError for A stored k x m, and for a B that does not fit.
    """
    m, n, k, item, threads = problem.m, problem.n, problem.k, a.itemsize, numba.get_num_threads()
    if problem.layout == "tn":
        raise ValueError("of many products this kernel reads A along its rows, so not stored k x m")
    lanes = emit.vector_bytes() // item
    rows, columns = tile_rows(emit.vector_bytes()), _VECTORS * lanes
    wide = _up(n, columns)
    if wide * k * item > _SMALL_BYTES:
        raise ValueError(f"of many products this kernel makes small ones, B within {_SMALL_BYTES >> 10} KiB")
    _, panels = room(a.dtype, (0,), (threads * wide * k,))
    b_by = tuple(step // item for step in b.strides[1:])
    sizes, plan = (problem.count, m, n, k), (rows, columns, wide, _LINE // item)
    at = origin(a), origin(b), b_by, origin(c)
    arguments = (threads, (0,) * lanes, *at, sizes, plan, panels, np.zeros(1, np.int64))
    return lambda keep=(a, b): _products(*arguments)


@kernel(batched=True)
def simd(problem: Matmul, a, b):
    if problem.math not in ("float32", "float64") or problem.out != problem.dtype:
        raise ValueError(f"the Numba vectors multiply float32 and float64, not {problem.math} to {problem.out}")
    c = empty(problem.out_shape, a.dtype, 5)
    a, b = operands(problem, (a, b))
    multiply = products(problem, a, b, c) if problem.count > 1 else product(a, b, c)

    def run():
        multiply()
        return c

    return run
