"""Register tiles of a convolution: products of pixels with a panel, summed over the runs of memory that a window covers."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.simd import vectors as emit

VECTORS = 2  # of a tile's row, and of a panel's step
_UNROLL = 4  # steps a trip
PAST_CACHES = -1  # as `added`: nothing is, and whole tiles, which begin where vectors do, go to memory past the caches
_LINE = 64  # bytes that a cache moves at a time


def tile_rows(vector: int) -> int:
    """The most rows of a tile with vectors of `vector` bytes: 14 x 2 sums, 2 of the panel and a factor fill 32 registers, 6 x 2
    and those fill 16. Rows of 7, 14, 28 and 56 pixels, as ResNet's are, come out even."""
    return 14 if emit.registers(vector) == 32 else 6


def heights(vector: int) -> tuple[int, ...]:
    """Rows of the tiles whose rows lie side by side: 64 and 192 rows, as filters of 64 channels have, come to 5 of 13 and 16 of
    12; images of 3 and of 1 channels under 3 taps to one of 9 and of 3."""
    return (14, 13, 12, 9, 3) if tile_rows(vector) == 14 else (6, 4)


def _tile_function(module: ir.Module, vector: ir.VectorType, rows: int, vectors: int, apart: bool) -> ir.Function:
    """C tile (+)= the sum over runs of A B panel, as a function of its own, so that nothing around it takes its registers.

    Its arguments: A; where its rows begin (`apart`; else they lie side by side and it is not looked at) and where those of the
    next tile do, which are asked for early; where its runs begin; how many runs there are, how many steps in each and how far the
    steps are apart (1 where rows are `apart`); B's panel (VECTORS vectors a step, run by run); C; where its rows begin; how many
    rows and columns of C are there; and how many of its columns are added to (all or none).
    """
    name = f"conv_tile_{rows}x{vectors}_{vector.count}_{vector.element}_{'apart' if apart else 'beside'}"
    if name in module.globals:
        return module.globals[name]
    index, value, table = emit.INDEX, vector.element.as_pointer(), emit.INDEX.as_pointer()
    kinds = [value, *[table] * 3, *[index] * 3, value, value, table, *[index] * 3]
    function = emit.internal_function(module, name, kinds)
    a, rows_at, next_at, runs_at, runs, length, step, b, c, c_at, height, columns, added = function.args
    builder, count = ir.IRBuilder(function.append_basic_block("entry")), vector.count
    item = 4 if isinstance(vector.element, ir.FloatType) else 8
    multiply = emit.multiplier(builder, vector, vector)

    def row_of(table, r: int):
        """The table's entry for the row; rows that are not there repeat the last one."""
        here = builder.icmp_signed("<", index(r), height)
        return builder.load(builder.gep(table, [builder.select(here, index(r), builder.sub(height, index(1)))]))

    past = builder.icmp_signed("==", added, index(PAST_CACHES))
    places = [emit.at(builder, c, row_of(c_at, r), vector, v * count) for r in range(rows) for v in range(vectors)]

    def steps(unroll: int, lines: list, offset, slots: list) -> list:
        """As many trips of `unroll` steps of a run as there are; gives where they stopped, B's next step and the sums."""
        loop = emit.Loop(builder, slots[0], slots[1:])
        k, right, *values = loop.slots
        after_k = builder.add(k, index(unroll))
        loop.enter(builder.icmp_signed("<=", after_k, length))
        if apart:
            lefts = [builder.gep(line, [builder.add(k, offset)]) for line in lines]
        else:
            left = builder.gep(a, [builder.add(offset, builder.mul(k, step))])
        trip = _LINE // item // _UNROLL
        share = -(-rows // trip)  # rows of the next tile, a line of each of which a trip asks for
        some = builder.and_(builder.lshr(k, index(_UNROLL // 2)), index(trip - 1))
        some = builder.gep(next_at, [builder.mul(some, index(share))])
        at_k = builder.add(offset, builder.and_(k, index(-_LINE // item)))
        for u in range(unroll):
            parts = (emit.at(builder, right, index(u * VECTORS * count), vector, v * count) for v in range(vectors))
            across = [builder.load(part, align=item * count) for part in parts]
            if apart:
                down = (builder.gep(line, [index(u)]) for line in lefts)
            else:
                left = builder.gep(left, [step]) if u else left
                down = (builder.gep(left, [index(r)]) for r in range(rows))
            values = emit.outer_product(builder, across, down, values, multiply)
            if apart and unroll == _UNROLL and u < share:
                row = builder.load(builder.gep(some, [index(u)]))
                emit.prefetch(builder, builder.gep(a, [builder.add(row, at_k)]))
        loop.leave([after_k, builder.gep(right, [index(unroll * VECTORS * count)]), *values])
        return loop.slots

    with builder.if_then(builder.not_(past)):
        for place in places:
            emit.prefetch(builder, place, write=True)
    lines = [builder.gep(a, [row_of(rows_at, r)]) for r in range(rows)] if apart else []
    loop = emit.Loop(builder, index(0), [b, *[ir.Constant(vector, None)] * (rows * vectors)])
    run, right, *sums = loop.slots
    loop.enter(builder.icmp_signed("<", run, runs))
    offset = builder.load(builder.gep(runs_at, [run]))
    k, right, *sums = steps(_UNROLL, lines, offset, [index(0), right, *sums])
    _, right, *sums = steps(1, lines, offset, [k, right, *sums])
    loop.leave([builder.add(run, index(1)), right, *sums])
    _store(builder, loop.slots[2:], places, item, vectors, past, (height, columns, added))
    return function


def _store(builder, sums: list, places: list, item: int, vectors: int, past, there: tuple) -> None:
    """Whole tiles as they are; of others, and to what is added, what is there."""
    (height, columns, added), vector = there, sums[0].type
    count, rows = vector.count, len(sums) // vectors
    few = builder.icmp_signed("<=", added, emit.INDEX(0))
    whole = builder.and_(few, builder.icmp_signed(">=", columns, emit.INDEX(vectors * count)))
    with builder.if_then(whole):
        with builder.if_then(past):
            for r, v in emit.vectors_there(builder, rows, vectors, height):
                emit.store_past_caches(builder, sums[r * vectors + v], places[r * vectors + v], item * count)
        for r, v in emit.vectors_there(builder, rows, vectors, height):
            builder.store(sums[r * vectors + v], places[r * vectors + v], item)
    stored, old = (
        [_first_lanes(builder, builder.sub(n, emit.INDEX(v * count)), vector) for v in range(vectors)]
        for n in (columns, added)
    )
    for r, v in emit.vectors_there(builder, rows, vectors, height):
        emit.add_masked(builder, sums[r * vectors + v], places[r * vectors + v], old[v], stored[v], item)


def _first_lanes(builder, count, vector):
    """The mask of a vector's first `count` lanes, made without a vector: all of those hold sums."""
    one, most = emit.INDEX(1), emit.INDEX(vector.count)
    count = builder.select(builder.icmp_signed("<", count, most), count, most)
    count = builder.select(builder.icmp_signed(">", count, emit.INDEX(0)), count, emit.INDEX(0))
    bits = builder.sub(builder.shl(one, count), one)
    return builder.bitcast(builder.trunc(bits, ir.IntType(vector.count)), ir.VectorType(ir.IntType(1), vector.count))


def _call(builder, vector: ir.VectorType, heights: tuple[int, ...], high, passed: list, apart: bool) -> None:
    """Calls the tile of as many rows as `high` says, one of `heights`, and of as many vectors as there are columns."""

    def cases():
        for rows in heights:
            for vectors in range(1, VECTORS + 1):
                enough = builder.icmp_signed("<=", passed[-2], emit.INDEX(vectors * vector.count))
                function = _tile_function(builder.module, vector, rows, vectors, apart)
                yield builder.and_(enough, builder.icmp_signed("==", high, emit.INDEX(rows))), function

    emit.call_first(builder, cases(), passed)


@intrinsic
def tile_apart(
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
    """Multiplies rows of A that lie anywhere with a panel of B into a tile of C; see _tile_function. Each array comes with the
    place where what is meant begins in it. `lanes`: a tuple as long as a vector; `rows`: one as long as the tile has rows."""
    one = types.intp
    tables = (rows_at, one, next_at, one, runs_at, one)
    signature = types.void(lanes, rows, a, one, *tables, one, one, b, one, c, one, c_at, *[one] * 4)

    def codegen(context, builder, signature, arguments):
        meant = emit.starts(context, builder, signature, arguments, (2, 4, 6, 8, 12, 14, 16))
        a, rows_at, next_at, runs_at, b, c, c_at = meant
        passed = [a, rows_at, next_at, runs_at, *arguments[10:12], emit.INDEX(1), b, c, c_at, *arguments[18:]]
        (vector, _), rows = emit.vector_of(context, signature, 2), signature.args[1].count
        _call(builder, vector, (rows,), emit.INDEX(rows), passed, True)
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
    """As tile_apart for rows of A that lie side by side, its steps `step` apart; `high`: a tuple as long as one of `heights`."""
    one = types.intp
    signature = types.void(lanes, one, a, one, runs_at, *[one] * 4, b, one, c, one, c_at, *[one] * 4)

    def codegen(context, builder, signature, arguments):
        a, runs_at, b, c, c_at = emit.starts(context, builder, signature, arguments, (2, 4, 9, 11, 13))
        passed = [a, runs_at, runs_at, runs_at, *arguments[6:9], b, c, c_at, *arguments[15:]]
        vector, item = emit.vector_of(context, signature, 2)
        _call(builder, vector, heights(vector.count * item), arguments[1], passed, False)
        return context.get_dummy_value()

    return signature, codegen
