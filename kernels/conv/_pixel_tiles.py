"""Register tiles of a convolution: products of pixels and a panel, summed over the runs of memory under a window."""

from collections.abc import Iterator
from typing import NamedTuple

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.simd import emit

#: Vectors in a row of a tile, and in a step of a panel.
VECTORS = 2
#: Steps in a trip of the inner loop.
_UNROLL = 4
#: As `added`: add nothing, and store whole tiles, aligned to vectors, by non-temporal stores.
PAST_CACHES = -1
#: Bytes of a cache line.
_LINE = 64


def tile_rows(vector_bytes: int) -> int:
    """Most rows of a tile of sums for vectors of `vector_bytes`: 14 x 2 sums, 2 vectors of the panel and a factor use 31 of
    32 registers; with 6 x 2 sums they use 15 of 16. ResNet's rows of 7, 14, 28 and 56 pixels fill tiles of 14 without a rest."""
    return 14 if emit.registers(vector_bytes) == 32 else 6


def heights(vector_bytes: int) -> tuple[int, ...]:
    """Row counts of the tiles whose rows are adjacent (one row per tap and channel), for vectors of `vector_bytes`. With 64
    channels, 64 rows of one tap take 5 tiles of 13, and 192 rows of three taps 16 of 12. Three taps of 3 channels or of one
    take a tile of 9 or of 3."""
    return (14, 13, 12, 9, 3) if tile_rows(vector_bytes) == 14 else (6, 4)


class _Tile(NamedTuple):
    """A form of tile that is compiled."""

    #: A vector of sums, of the panel or of C.
    vector: ir.VectorType
    #: Rows of the tile.
    rows: int
    #: Vectors in a row.
    vectors: int
    #: Whether A's rows lie anywhere, by a table of their offsets; else they are adjacent elements.
    scattered: bool

    @property
    def name(self) -> str:
        """The name of its LLVM function."""
        layout = "scattered" if self.scattered else "adjacent"
        return f"conv_tile_{self.rows}x{self.vectors}_{self.vector.count}_{self.vector.element}_{layout}"

    @property
    def item(self) -> int:
        """Bytes of a value."""
        return 4 if isinstance(self.vector.element, ir.FloatType) else 8


def _step_of_panel(builder: ir.IRBuilder, tile: _Tile, panel: ir.Value, step: int) -> list:
    """Emits loads of step number `step` of B's panel: the vectors that meet every row of the tile."""
    vector = tile.vector
    start = emit.INDEX(step * VECTORS * vector.count)
    loaded = []
    for v in range(tile.vectors):
        place = emit.vector_pointer(builder, panel, start, vector, ahead=v * vector.count)
        loaded.append(builder.load(place, align=tile.item * vector.count))
    return loaded


def _row_offset(builder: ir.IRBuilder, table: ir.Value, row: int, height: ir.Value) -> ir.Value:
    """Emits a load of the table's entry for a row; rows from number `height` on repeat the last one below it."""
    exists = builder.icmp_signed("<", emit.INDEX(row), height)
    last = builder.sub(height, emit.INDEX(1))
    return builder.load(builder.gep(table, [builder.select(exists, emit.INDEX(row), last)]))


def _next_rows(builder: ir.IRBuilder, tile: _Tile, next_at: ir.Value, k: ir.Value) -> tuple:
    """(pointer to the offsets of some rows of the next tile, their number): those of which the trip at step k prefetches a
    cache line. The trips along a line share the rows out."""
    trips_of_a_line = _LINE // tile.item // _UNROLL
    share = -(-tile.rows // trips_of_a_line)
    trip = builder.and_(builder.lshr(k, emit.INDEX(_UNROLL // 2)), emit.INDEX(trips_of_a_line - 1))
    return builder.gep(next_at, [builder.mul(trip, emit.INDEX(share))]), share


def _places_in_c(builder: ir.IRBuilder, tile: _Tile, c: ir.Value, table: ir.Value, *, height: ir.Value) -> list:
    """Emits pointers to a tile's vectors in C, row by row; the table has the rows' offsets, `height` of them."""
    places = []
    for r in range(tile.rows):
        for v in range(tile.vectors):
            row = _row_offset(builder, table, r, height)
            places.append(emit.vector_pointer(builder, c, row, tile.vector, ahead=v * tile.vector.count))
    return places


def _tile_function(module: ir.Module, tile: _Tile) -> ir.Function:
    """An LLVM function that sums the products of A's runs and B's panel to a tile of C; not inlined, so it has all registers.

    Its arguments: A; offsets of its rows (only if scattered) and of the next tile's rows, which are prefetched; offsets of the
    runs; the number of runs, the steps in each, and the stride from step to step (1 if scattered); B's panel (VECTORS vectors a
    step, run by run); C; offsets of its rows; the rows and columns of C that are present; how many columns are added to what C
    holds (all, none, or PAST_CACHES).
    """
    if tile.name in module.globals:
        return module.globals[tile.name]
    vector = tile.vector
    index = emit.INDEX
    value = vector.element.as_pointer()
    table = index.as_pointer()
    kinds = [value, table, table, table, index, index, index, value, value, table, index, index, index]
    function = emit.internal_function(module, tile.name, kinds)
    a, rows_at, next_at, runs_at, runs, length, step, b, c, c_at, height, columns, added = tuple(function.args)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    multiply = emit.multiplier(builder, vector, vector)

    past = builder.icmp_signed("==", added, index(PAST_CACHES))
    places = _places_in_c(builder, tile, c, c_at, height=height)

    def steps(unroll: int, lines: list, offset: ir.Value, slots: list) -> list:
        """Emits all whole trips of `unroll` steps of a run of memory; returns the step reached, the place in B's panel and
        the sums.

        lines: pointers to the rows of A, only if they are scattered. offset: where the run begins. slots: step, place in B
        and sums before.
        """
        loop = emit.Loop(builder, slots[0], slots[1:])
        k, right, *values = tuple(loop.slots)
        after_k = builder.add(k, index(unroll))
        loop.enter(builder.icmp_signed("<=", after_k, length))
        if tile.scattered:
            lefts = [builder.gep(line, [builder.add(k, offset)]) for line in lines]
        else:
            left = builder.gep(a, [builder.add(offset, builder.mul(k, step))])
        next_rows, share = _next_rows(builder, tile, next_at, k)
        at_k = builder.add(offset, builder.and_(k, index(-_LINE // tile.item)))
        for u in range(unroll):
            # Load a step of B's panel, multiply it with a number of each row of A.
            across = _step_of_panel(builder, tile, right, u)
            if tile.scattered:
                down = (builder.gep(line, [index(u)]) for line in lefts)
            else:
                left = builder.gep(left, [step]) if u else left
                down = (builder.gep(left, [index(r)]) for r in range(tile.rows))
            values = emit.outer_product(builder, across, down, values, multiply=multiply)
            if tile.scattered and unroll == _UNROLL and u < share:
                row = builder.load(builder.gep(next_rows, [index(u)]))
                emit.prefetch(builder, builder.gep(a, [builder.add(row, at_k)]))
        loop.leave([after_k, builder.gep(right, [index(unroll * VECTORS * vector.count)]), *values])
        return loop.slots

    with builder.if_then(builder.not_(past)):
        for place in places:
            emit.prefetch(builder, place, write=True)
    lines = []
    if tile.scattered:
        lines = [builder.gep(a, [_row_offset(builder, rows_at, r, height)]) for r in range(tile.rows)]
    loop = emit.Loop(builder, index(0), [b, *[ir.Constant(vector, None)] * len(places)])
    run, right, *sums = tuple(loop.slots)
    loop.enter(builder.icmp_signed("<", run, runs))
    offset = builder.load(builder.gep(runs_at, [run]))
    reached = steps(_UNROLL, lines, offset, [index(0), right, *sums])
    reached = steps(1, lines, offset, reached)
    loop.leave([builder.add(run, index(1)), *reached[1:]])
    _store(builder, tile, loop.slots[2:], places, height=height, columns=columns, added=added)
    return function


def _store(
    builder: ir.IRBuilder,
    tile: _Tile,
    sums: list,
    places: list,
    *,
    height: ir.Value,
    columns: ir.Value,
    added: ir.Value,
) -> None:
    """Emits the stores of a tile: whole vectors if it is whole and adds nothing (non-temporal ones if `added` is
    PAST_CACHES), else the lanes present, by masks.

    places: pointers into C, one for each vector of sums. height, columns: how many C has there. added: to how many of these
    columns C's numbers are added.
    """
    vector = tile.vector
    vectors = tile.vectors
    adds_nothing = builder.icmp_signed("<=", added, emit.INDEX(0))
    whole = builder.and_(adds_nothing, builder.icmp_signed(">=", columns, emit.INDEX(vectors * vector.count)))
    with builder.if_then(whole):
        with builder.if_then(builder.icmp_signed("==", added, emit.INDEX(PAST_CACHES))):
            for r, v in emit.existing_vectors(builder, tile.rows, vectors, height):
                i = r * vectors + v
                emit.store_past_caches(builder, sums[i], places[i], tile.item * vector.count)
        for r, v in emit.existing_vectors(builder, tile.rows, vectors, height):
            i = r * vectors + v
            builder.store(sums[i], places[i], tile.item)
    stored = [_first_lanes(builder, columns, v * vector.count, vector) for v in range(vectors)]
    old = [_first_lanes(builder, added, v * vector.count, vector) for v in range(vectors)]
    for r, v in emit.existing_vectors(builder, tile.rows, vectors, height):
        i = r * vectors + v
        emit.add_masked(builder, sums[i], places[i], old[v], stored=stored[v], align=tile.item)


def _first_lanes(builder: ir.IRBuilder, columns: ir.Value, first: int, vector: ir.VectorType) -> ir.Value:
    """Emits a mask for the vector that begins at column `first`: its lanes that lie in `columns` columns. It is made without
    vector registers, as all of these hold sums."""
    one = emit.INDEX(1)
    most = emit.INDEX(vector.count)
    count = builder.sub(columns, emit.INDEX(first))
    count = builder.select(builder.icmp_signed("<", count, most), count, most)
    count = builder.select(builder.icmp_signed(">", count, emit.INDEX(0)), count, emit.INDEX(0))
    bits = builder.sub(builder.shl(one, count), one)
    return builder.bitcast(builder.trunc(bits, ir.IntType(vector.count)), ir.VectorType(ir.IntType(1), vector.count))


def _call(
    builder: ir.IRBuilder,
    vector: ir.VectorType,
    heights: tuple[int, ...],
    high: ir.Value,
    *,
    arguments: list,
    scattered: bool,
) -> None:
    """Emits a call of the tile function with `high` rows (one of `heights`) and as many vectors as the columns need."""
    columns = arguments[-2]  # of C that are present, the last argument but one of a tile function

    def cases() -> Iterator[tuple[ir.Value, ir.Function]]:
        """Yields (condition that a tile has `high` rows and covers the columns, its function) for each form of tile, narrow
        ones first."""
        for rows in heights:
            for vectors in range(1, VECTORS + 1):
                enough = builder.icmp_signed("<=", columns, emit.INDEX(vectors * vector.count))
                tile = _Tile(vector=vector, rows=rows, vectors=vectors, scattered=scattered)
                function = _tile_function(builder.module, tile)
                yield builder.and_(enough, builder.icmp_signed("==", high, emit.INDEX(rows))), function

    emit.call_first(builder, cases(), arguments)


@intrinsic
def scattered_tile(
    typingctx,
    lanes,
    rows,
    a,
    a_at,
    rows_at,
    rows_from,
    next_at,
    next_from,
    runs_at,
    runs_from,
    count,
    length,
    b,
    b_at,
    c,
    c_start,
    c_at,
    c_from,
    height,
    columns,
    added,
):
    """A Numba intrinsic: computes a tile of C from rows of A at any offsets and a panel of B; _tile_function explains the
    arguments. After an array comes the index of its first element used. `lanes`: a tuple as long as a vector; `rows`: one as
    long as the tile has rows."""
    one = types.intp
    tables = (rows_at, one, next_at, one, runs_at, one)
    signature = types.void(lanes, rows, a, one, *tables, one, one, b, one, c, one, c_at, *[one] * 4)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a call of a tile function; Numba calls this with the LLVM values of the intrinsic's arguments, in their
        order."""
        count, length = arguments[10:12]
        height, columns, added = tuple(arguments[18:])
        arrays = emit.element_pointers(context, builder, signature, arguments, arrays=(2, 4, 6, 8, 12, 14, 16))
        a_and_tables = arrays[:4]
        b_c_and_table = arrays[4:]
        step = emit.INDEX(1)  # the elements of a scattered row follow each other
        passed = [*a_and_tables, count, length, step, *b_c_and_table, height, columns, added]
        vector, _ = emit.vector_of(context, signature, array=2)
        rows = signature.args[1].count
        _call(builder, vector, (rows,), emit.INDEX(rows), arguments=passed, scattered=True)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def adjacent_tile(
    typingctx,
    lanes,
    high,
    a,
    a_at,
    runs_at,
    runs_from,
    count,
    length,
    step,
    b,
    b_at,
    c,
    c_start,
    c_at,
    c_from,
    height,
    columns,
    added,
):
    """A Numba intrinsic: as scattered_tile, for adjacent rows of A, with steps `step` elements from each other. After an
    array comes the index of its first element used. `lanes`: a tuple as long as a vector; `high`: the tile's number of rows,
    one of `heights`."""
    one = types.intp
    signature = types.void(lanes, one, a, one, runs_at, *[one] * 4, b, one, c, one, c_at, *[one] * 4)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a call of a tile function; Numba calls this with the LLVM values of the intrinsic's arguments, in their
        order."""
        high = arguments[1]
        count_length_step = arguments[6:9]
        height_columns_added = arguments[15:]
        a, runs_at, b, c, c_at = emit.element_pointers(context, builder, signature, arguments, arrays=(2, 4, 9, 11, 13))
        rows_at = next_at = runs_at  # not read where rows are adjacent
        passed = [a, rows_at, next_at, runs_at, *count_length_step, b, c, c_at, *height_columns_added]
        vector, item = emit.vector_of(context, signature, array=2)
        _call(builder, vector, heights(vector.count * item), high, arguments=passed, scattered=False)
        return context.get_dummy_value()

    return signature, codegen
