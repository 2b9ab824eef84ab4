"""Matrix products in explicit vector code: a tile of C stays in registers; A and B are read in place or from packed panels.

Threads share the pieces of C for one block of B at a time; if it costs less, the transpose of C is computed and transposed back.
"""

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

from kernels.problems.arrays import empty
from kernels.simd import emit
from kernels.simd.caches import second_level_bytes
from kernels.simd.calls import direct
from kernels.simd.packing import origin, pack, room, transpose_block
from kernels.simd.product_tiles import VECTORS, tile, tile_rows
from kernels.simd.vector_product import vector_product

#: Most bytes of a row of A in a panel, so that the panel fits the first-level cache.
_DEPTH_BYTES = 2048
#: Most rows of C in a piece of work.
_MOST_ROWS = 64
#: Pieces a thread gets, about, so that a slower thread can do fewer.
_PIECES = 4
#: Bytes of a cache line.
_LINE = 64
#: B with contiguous rows is packed only if A has more rows and B exceeds the second-level cache.
_FEW_ROWS = 64
#: Time to copy one value into a panel, as a share of the time of a multiply-add of vectors.
_LAY_OUT = 0.35
#: Most tiles in a row of a transposed C that are transposed back together.
_TRANSPOSED_TILES = 10
#: FLOPs (about 15 µs on one core) from which a product is shared among threads.
_SHARED_FLOPS = 1.5e6

# Counters of a phase, which the threads share; those of the next phase follow behind the threads' own.

#: Pieces of A and B that threads have taken to pack.
_PACK_TAKEN = 0
#: Pieces that are packed.
_PACKED = 1
#: Pieces of C that are computed.
_COMPUTED = 2
#: Pieces of C taken from the first thread's share; a counter for each thread follows.
_SHARES_TAKEN = 3

_PLAN = (
    # Rows of A, columns of B and steps of the product.
    "m",
    "n",
    "k",
    # Elements from row to row, of A, C; from k to k, of A, B; from column to column, of B.
    "a_row",
    "a_step",
    "b_step",
    "b_column",
    "c_row",
    # A panel's steps in k, rows of A and columns of B.
    "depth",
    "rows",
    "columns",
    # Rows and columns of a piece of C, which a thread takes.
    "piece_rows",
    "piece_columns",
    # Columns of a phase, whose panels of B stay in the second-level cache.
    "phase_columns",
    # Columns of a piece of B to pack.
    "packed_columns",
    # Whether A and B are packed.
    "packs_a",
    "packs_b",
    # For how many phases there is room for panels.
    "phases_stored",
    # Whether C is computed transposed.
    "transposed",
    # Products of a batch.
    "count",
)
PLAN = np.dtype([(name, np.int64) for name in _PLAN])


@numba.njit(cache=True)
def _store_transposed(
    group: tuple, c: np.ndarray, at: int, stride: int, source: np.ndarray, columns: int, high: int, wide: int
) -> None:
    """Stores the transpose of `high` rows of `wide` values into C from c[at] on. Rows are `columns` elements long in the
    source, `stride` in C. Compiled by Numba; group: a tuple as long as the rows that are transposed at once."""
    if high == len(group):
        for j in range(0, wide, len(group)):
            transpose_block(group, group, c, at + j * stride, stride, source, j, columns, high - 1, wide - j)
    else:
        for j in range(wide):
            for r in range(high):
                c[at + j * stride + r] = source[r * columns + j]


@numba.njit(cache=True)
def _row_of_tiles(
    lanes: tuple,
    item_bytes: int,
    p: np.void,
    left: tuple,
    right: tuple,
    c: int,
    length: int,
    start: int,
    deep: int,
    high: int,
    j0: int,
    j1: int,
) -> None:
    """Computes the tiles of `high` rows of C from column j0 to j1, adding `deep` steps in k from `start` on. If B is packed,
    each prefetches a share of A's next panel. Compiled by Numba.

    item_bytes: bytes of an operand's value. p: a record of PLAN.
    left: (address of A's rows, elements from row to row and from k to k).
    right: (address of B's columns, elements from k to k).
    c: address of these rows of C, each `length` elements long.
    """
    (a, a_row, a_step), (b, b_step) = left, right
    columns = p.columns if p.packs_b or 2 * high > p.rows else (VECTORS + 1) * len(lanes)
    # Of A's next panel, or if it is not packed of each of its rows, a tile prefetches so many bytes.
    streams = 0
    share = 0
    if p.packs_b and p.packs_a:
        streams = 1
        share = deep * p.rows
    elif p.packs_b:
        streams = high
        share = deep
    if p.packs_b:
        tiles = -(-(j1 - j0) // columns)
        share = -(-share * item_bytes // (tiles * _LINE)) * _LINE
    ahead = a + p.rows * (p.depth if p.packs_a else a_row) * item_bytes
    for j in range(j0, j1, columns):
        # Prefetch.
        for r in range(streams):
            for at in range(ahead + r * a_row * item_bytes, ahead + r * a_row * item_bytes + share, _LINE):
                emit.ask_for(at)
        ahead += share
        # Multiply.
        wide = min(columns, j1 - j)
        whole = deep
        if not p.packs_b and j + columns > p.n:  # in the last steps whole vectors would end behind B
            whole = min(deep, max(0, ((p.k - 1) * p.b_step + p.n - j - columns) // p.b_step + 1 - start))
        at = b + (j - j0) * (p.depth if p.packs_b else 1) * item_bytes
        to = c + (j - j0) * item_bytes
        tile(lanes, a, a_row, a_step, at, b_step, to, length, deep, whole, high, wide, start > 0)


@numba.njit(cache=True)
def _take(counters: np.ndarray, place: int, thread: int, threads: int, pieces: int) -> int:
    """Number of the thread's next piece of work: first from its own share, whose operands its cache may hold from the last
    call, then from other threads' shares; `pieces` if none is left. Compiled by Numba.

    counters[place + t]: how many pieces of thread t's share are taken.
    """
    share = -(-pieces // threads)
    for i in range(threads):
        owner = (thread + i) % threads
        piece = owner * share + emit.take_number(counters, place + owner)
        if piece < min((owner + 1) * share, pieces):
            return piece
    return pieces


@numba.njit(cache=True)
def _work(
    lanes: tuple,
    group: tuple,
    plan: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    spare: np.ndarray,
    counters: np.ndarray,
    thread: int,
    threads: int,
) -> None:
    """One thread's work on C = A B, compiled by Numba. A phase has `depth` steps in k and `phase_columns` columns of B, whose
    panels stay in the second-level cache. In each phase a free thread takes the next piece to pack, and then the next piece
    of C to add to.

    Packing all of B at once would write the panels to memory and read them back: 5 % of the time at n = 2048. A thread waits
    only for pieces that others have begun, so any number of threads comes to an end. It packs a phase into one half of the
    panels while others still finish the phase before from the other half.

    lanes, group: tuples as long as a vector and as the rows transposed at once. plan: one record of PLAN. a, b, c: flat
    arrays that begin at the matrices' first values. left, right: panels of A and B. spare: a row of tiles of a transposed C.
    """
    p = plan[0]
    item_bytes = a.itemsize
    counters_of_a_phase = _SHARES_TAKEN + threads
    a_first = emit.address(a)
    b_first = emit.address(b)
    c_first = emit.address(c)
    left_first = emit.address(left)
    right_first = emit.address(right)
    spare_first = emit.address(spare)
    blocks = -(-p.n // p.phase_columns)
    down = -(-p.m // p.piece_rows)
    a_side = -(-p.m // p.rows) * p.rows * p.depth
    for phase in range(-(-p.k // p.depth) * blocks):
        start = phase // blocks * p.depth
        j0 = phase % blocks * p.phase_columns
        deep = min(p.depth, p.k - start)
        wide = min(p.phase_columns, p.n - j0)
        left_at = phase // blocks % p.phases_stored * a_side
        right_at = phase % p.phases_stored * p.phase_columns * p.depth
        b_packs = -(-wide // p.packed_columns) if p.packs_b else 0
        packs = b_packs + (down if p.packs_a and not j0 else 0)
        across = -(-wide // p.piece_columns)
        # Pack: pieces of B, then of A.
        while packs:
            piece = emit.take_number(counters, counters_of_a_phase * phase + _PACK_TAKEN)
            if piece >= packs:
                break
            if piece < b_packs:
                first = j0 + piece * p.packed_columns
                stop = min(first + p.packed_columns, j0 + wide)
                at = right_at - j0 * p.depth
                pack(lanes, lanes, right, at, p.columns, b, p.b_column, p.b_step, first, stop, start, deep, p.depth)
            else:
                first = (piece - b_packs) * p.piece_rows
                stop = min(first + p.piece_rows, p.m)
                pack(lanes, group, left, left_at, p.rows, a, p.a_row, p.a_step, first, stop, start, deep, p.depth)
            emit.take_number(counters, counters_of_a_phase * phase + _PACKED)
        # Wait: for others' packing, and for their pieces of C of the phase before.
        emit.wait_for(counters, counters_of_a_phase * phase + _PACKED, packs)
        if phase:
            before = -(-min(p.phase_columns, p.n - (phase - 1) % blocks * p.phase_columns) // p.piece_columns)
            emit.wait_for(counters, counters_of_a_phase * (phase - 1) + _COMPUTED, down * before)
        # Multiply: pieces of C.
        while True:
            piece = _take(counters, counters_of_a_phase * phase + _SHARES_TAKEN, thread, threads, down * across)
            if piece == down * across:
                break
            begin = j0 + piece % across * p.piece_columns
            end = min(begin + p.piece_columns, j0 + wide)
            row = piece // across * p.piece_rows
            if p.packs_b:
                b_panel = right_first + (right_at + (begin - j0) * p.depth) * item_bytes, p.columns
            else:
                b_panel = b_first + (start * p.b_step + begin) * item_bytes, p.b_step
            for i in range(row, min(row + p.piece_rows, p.m), p.rows):
                high = min(p.rows, p.m - i)
                if p.packs_a:
                    a_panel = left_first + (left_at + i * p.depth) * item_bytes, 1, p.rows
                else:
                    a_panel = a_first + (i * p.a_row + start * p.a_step) * item_bytes, p.a_row, p.a_step
                if p.transposed:
                    to = spare_first
                    _row_of_tiles(
                        lanes, item_bytes, p, a_panel, b_panel, to, p.piece_columns, start, deep, high, begin, end
                    )
                    _store_transposed(group, c, begin * p.c_row + i, p.c_row, spare, p.piece_columns, high, end - begin)
                else:
                    to = c_first + (i * p.c_row + begin) * item_bytes
                    _row_of_tiles(lanes, item_bytes, p, a_panel, b_panel, to, p.c_row, start, deep, high, begin, end)
            emit.take_number(counters, counters_of_a_phase * phase + _COMPUTED)


@numba.njit(cache=True)
def _reset(counters):
    """Sets the counters to 0. In a parallel function Numba would run this on all threads, and so start them twice."""
    counters[:] = 0


@numba.njit(cache=True)
def _alone(lanes, group, plan, a, b, c, left, right, spare, counters):
    _reset(counters)
    _work(lanes, group, plan, a, b, c, left, right, spare[0], counters, 0, 1)


@numba.njit(cache=True, parallel=True)
def _together(lanes, group, plan, a, b, c, left, right, spare, counters):
    _reset(counters)
    for thread in numba.prange(spare.shape[0]):
        _work(lanes, group, plan, a, b, c, left, right, spare[thread], counters, thread, spare.shape[0])


@numba.njit(cache=True, parallel=True)
def _batch(
    lanes: tuple,
    group: tuple,
    plan: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    c: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    spare: np.ndarray,
    counters: np.ndarray,
) -> None:
    """Computes many small products, stored one after the other in each array; a free thread takes the next one. Compiled by
    Numba.

    lanes, group: tuples as long as a vector and as the rows transposed at once. plan: one record of PLAN. a, b, c: flat.
    left, right, spare, counters: room for panels, for a row of tiles and for counters, a row for each thread.
    """
    p = plan[0]
    count = p.count
    a_size = p.m * p.k
    b_size = p.k * p.n
    c_size = p.m * p.n
    taken_products = counters[-1]
    taken_products[0] = 0
    for thread in numba.prange(spare.shape[0]):
        while True:
            i = emit.take_number(taken_products, 0)
            if i >= count:
                break
            counters[thread][:] = 0
            arrays = a[i * a_size :], b[i * b_size :], c[i * c_size :]
            _work(lanes, group, plan, *arrays, left[thread], right[thread], spare[thread], counters[thread], 0, 1)


def _up(value: int, step: int) -> int:
    return -(-value // step) * step


def _cost(a: np.ndarray, b: np.ndarray, vector_bytes: int, lay_out: float) -> float:
    """Estimated cost of A B in multiply-adds of the widest vectors, computed with vectors of `vector_bytes`.

    lay_out: cost for each value of an operand without contiguous rows, which must be copied into panels.
    """
    m, k = a.shape
    n = b.shape[1]
    rows = tile_rows(vector_bytes)
    last = next(size for size in (0, 1, 2, 4, 8) if m % rows <= size)
    laid_out = sum(x.size for x in (a, b) if x.strides[1] != x.itemsize)
    across = -(-n * a.itemsize // vector_bytes)
    if vector_bytes < emit.vector_bytes():  # with one vector a row each multiply-add waits for the one before
        across = emit.NARROW * max(2, across)
    return (m // rows * rows + last) * across * k + lay_out * laid_out


def _plan(
    a: np.ndarray, b: np.ndarray, *, length: int, threads: int, vector_bytes: int, transposed: bool, count: int
) -> np.ndarray:
    """An array with one PLAN record, which says how A B is cut into pieces.

    length: elements from row to row of the result. vector_bytes: bytes of a vector. transposed: whether A and B were exchanged to
    compute the transpose of C. count: products of a batch.
    """
    m, k = a.shape
    n = b.shape[1]
    item_bytes = a.itemsize
    a_row = a.strides[0] // item_bytes
    a_step = a.strides[1] // item_bytes
    b_step = b.strides[0] // item_bytes
    b_column = b.strides[1] // item_bytes
    lanes = vector_bytes // item_bytes
    rows = tile_rows(vector_bytes)
    columns = VECTORS * lanes
    cache = second_level_bytes()
    packs_b = b_column != 1 or b_step < n or (m > _FEW_ROWS and b_step * k * item_bytes > cache)
    packs_a = a_step != 1 and not (a_row == 1 and n * item_bytes <= 2 * VECTORS * emit.vector_bytes())
    # if panels of A or of B are read only once, they need not stay in a cache, so k is not split
    once = transposed or (m <= rows and not packs_b) or (n <= columns and k * _up(n, lanes) * item_bytes <= cache)
    phases = 1 if once else -(-k * item_bytes // _DEPTH_BYTES)
    depth = _up(-(-k // phases), lanes)
    most = max(columns, cache // 2 // (depth * item_bytes) // columns * columns)
    block = _up(-(-n // -(-n // most)), columns)
    height = max(rows, min(_MOST_ROWS, _up(-(-m // (_PIECES * threads)), rows)))
    pieces = -(-_PIECES * threads // -(-m // height)) if threads > 1 else 1
    fields = {
        "m": m,
        "n": n,
        "k": k,
        "a_row": a_row,
        "a_step": a_step,
        "b_step": b_step,
        "b_column": b_column,
        "c_row": length,
        "depth": depth,
        "rows": rows,
        "columns": columns,
        "piece_rows": height,
        "piece_columns": min(_up(-(-block // pieces), columns), _TRANSPOSED_TILES * columns if transposed else block),
        "phase_columns": block,
        "packed_columns": max(1, min(8, block // columns // (_PIECES * (threads - 1) + 1))) * columns,
        "packs_a": packs_a,
        "packs_b": packs_b,
        "phases_stored": min(2, threads),  # a single thread packs over the phase that it has just finished
        "transposed": transposed,
        "count": count,
    }
    plan = np.zeros(1, PLAN)
    for name, value in fields.items():
        plan[name] = value
    return plan


def _cheapest(a: np.ndarray, b: np.ndarray, c: np.ndarray, sizes: tuple[int, ...], lay_out: float) -> tuple[bool, int]:
    """(whether the transpose of C is computed, bytes of a vector) at the least estimated cost of C = A B.

    sizes: bytes of the vectors to choose from. lay_out: cost of copying one value into a panel.
    """
    costs = [(_cost(a, b, size, lay_out), False, size) for size in sizes]
    step = VECTORS * max(sizes)  # bytes of a panel's step; a transposed panel with all of k should stay in a cache
    if c.shape[1] * c.itemsize <= step or len(b) * step <= second_level_bytes() // 2:
        costs += [(_cost(b.T, a.T, size, lay_out) + lay_out * c.size, True, size) for size in sizes]
    _, transposed, vector_bytes = min(costs)
    return transposed, vector_bytes


def product(a: np.ndarray, b: np.ndarray, c: np.ndarray, vector_bytes: int = 0) -> Callable[[], Any]:
    """A call without arguments that computes C = A B, or a batch of products, on Numba's threads.

    a: m x k and b: k x n, any strides, either numbers or words with two bfloat16 each; c: m x n, contiguous. In a batch all
    three have a leading dimension, and its products lie one after the other. vector_bytes: bytes of a vector; 0 chooses the
    fastest.
    """
    is_batch = c.ndim == 3 and len(c) > 1
    count = len(c) if c.ndim == 3 else 1
    flat = c.reshape(-1)
    keep = (a, b)
    threads = numba.get_num_threads() if 2 * c.size * a.shape[-1] >= _SHARED_FLOPS else 1
    if not is_batch and a.dtype == c.dtype:
        call = vector_product(a, b, c, threads)
        if call:
            return call
    starts = (origin(a), origin(b))
    if is_batch:
        a = a[0]
        b = b[0]
        c = c[0]
    sizes = (vector_bytes,) if vector_bytes else emit.vector_sizes()
    lay_out = _LAY_OUT * (1 if is_batch else threads)  # what one thread packs others read from its cache
    transposed, vector_bytes = _cheapest(a, b, c, sizes=sizes, lay_out=lay_out)
    if transposed:
        a, b = b.T, a.T
        starts = starts[::-1]
    plan = _plan(
        a,
        b,
        length=c.shape[1],
        threads=1 if is_batch else threads,
        vector_bytes=vector_bytes,
        transposed=transposed,
        count=count,
    )
    panels, counters = _room(plan[0], a.dtype, c.dtype, threads=threads)
    if is_batch:
        function = _batch
    else:
        function = _together if threads > 1 else _alone
    lanes = vector_bytes // a.itemsize
    group = (0,) * min(lanes, tile_rows(vector_bytes))
    arguments = ((a.dtype.type(0),) * lanes, group, plan, *starts, flat, *panels, counters)
    call = direct(function, *arguments)

    def run(keep=keep):  # the call has raw addresses alone: this keeps the operands alive
        return call()

    return run


def _room(p: np.void, operand: np.dtype, result: np.dtype, *, threads: int) -> tuple[list[np.ndarray], np.ndarray]:
    """([panels of A, panels of B, spare tiles with a row for each thread], counters), as the plan needs them; in a batch all
    have a row for each thread.

    p: a record of PLAN. operand, result: types of A's and B's values and of C's.
    """
    rows = int(p["rows"])
    left = p["packs_a"] * p["phases_stored"] * _up(p["m"], rows) * p["depth"]
    right = p["packs_b"] * p["phases_stored"] * p["phase_columns"] * p["depth"]
    phases = -(-p["k"] // p["depth"]) * -(-p["n"] // p["phase_columns"])
    counted = (_SHARES_TAKEN + threads) * phases
    if p["count"] > 1:
        shapes: list[tuple] = [(threads, left), (threads, right), (threads, rows * p["piece_columns"])]
        counters = np.zeros((threads + 1, counted), np.int64)
    else:
        shapes = [(left,), (right,), (threads, rows * p["piece_columns"])]
        counters = np.zeros(counted, np.int64)
    panels = room(operand, *shapes) if left or right else [empty(shape, operand) for shape in shapes]
    panels[-1] = panels[-1].view(result)
    return panels, counters
