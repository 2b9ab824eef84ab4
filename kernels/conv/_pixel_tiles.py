"""Register tiles of a convolution: products of pixels and a panel, summed over the runs of memory under a window."""

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.simd import emit

VECTORS = 2  # vectors in a row of a tile, and in a step of a panel
_UNROLL = 4  # steps in a trip of the inner loop
PAST_CACHES = -1  # as `added`: add nothing, and store whole tiles, aligned to vectors, by non-temporal stores
_LINE = 64  # bytes of a cache line


def tile_rows(vector: int) -> int:
    """Most rows of a tile for vectors of `vector` bytes: 14 x 2 sums, 2 vectors of the panel and a factor use 31 of 32 registers;
    with 6 x 2 sums they use 15 of 16. ResNet's rows of 7, 14, 28 and 56 pixels fill tiles of 14 without a rest."""
    return 14 if emit.registers(vector) == 32 else 6


def heights(vector: int) -> tuple[int, ...]:
    """Row counts of the tiles whose rows are adjacent (one row per tap and channel). With 64 channels, 64 rows of one tap take
    5 tiles of 13, and 192 rows of three taps 16 of 12. Three taps of 3 channels or of one take a tile of 9 or of 3."""
    return (14, 13, 12, 9, 3) if tile_rows(vector) == 14 else (6, 4)


def _tile_function(module: ir.Module, vector: ir.VectorType, rows: int, vectors: int, apart: bool) -> ir.Function:
    """An LLVM function that sums the products of A's runs and B's panel to a tile of C; not inlined, so it has all registers.

    Its arguments: A; offsets of its rows (only with `apart`: else rows are adjacent elements) and of the next tile's rows, which
    are prefetched; offsets of the runs; the number of runs, the steps in each, and the stride from step to step (1 with `apart`);
    B's panel (VECTORS vectors a step, run by run); C; offsets of its rows; the rows and columns of C that are present; how many
    columns are added to what C holds (all, none, or PAST_CACHES).
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
        """The table's entry for row r; rows beyond `height` repeat the last one."""
        here = builder.icmp_signed("<", index(r), height)
        return builder.load(builder.gep(table, [builder.select(here, index(r), builder.sub(height, index(1)))]))

    past = builder.icmp_signed("==", added, index(PAST_CACHES))
    places = [emit.at(builder, c, row_of(c_at, r), vector, v * count) for r in range(rows) for v in range(vectors)]

    def steps(unroll: int, lines: list, offset, slots: list) -> list:
        """Emits all whole trips of `unroll` steps of a run; returns the step reached, the place in B and the sums."""
        loop = emit.Loop(builder, slots[0], slots[1:])
        k, right, *values = loop.slots
        after_k = builder.add(k, index(unroll))
        loop.enter(builder.icmp_signed("<=", after_k, length))
        if apart:
            lefts = [builder.gep(line, [builder.add(k, offset)]) for line in lines]
        else:
            left = builder.gep(a, [builder.add(offset, builder.mul(k, step))])
        trip = _LINE // item // _UNROLL
        share = -(-rows // trip)  # rows of the next tile of which a trip prefetches a cache line
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
    """Stores a tile: whole vectors if it is whole and adds nothing (non-temporal if `past`), else the lanes present, by masks."""
    (height, columns, added), vector = there, sums[0].type
    count, rows = vector.count, len(sums) // vectors
    few = builder.icmp_signed("<=", added, emit.INDEX(0))
    whole = builder.and_(few, builder.icmp_signed(">=", columns, emit.INDEX(vectors * count)))
    with builder.if_then(whole):
        with builder.if_then(past):
            for r, v in emit.existing_vectors(builder, rows, vectors, height):
                emit.store_past_caches(builder, sums[r * vectors + v], places[r * vectors + v], item * count)
        for r, v in emit.existing_vectors(builder, rows, vectors, height):
            builder.store(sums[r * vectors + v], places[r * vectors + v], item)
    stored, old = (
        [_first_lanes(builder, builder.sub(n, emit.INDEX(v * count)), vector) for v in range(vectors)]
        for n in (columns, added)
    )
    for r, v in emit.existing_vectors(builder, rows, vectors, height):
        emit.add_masked(builder, sums[r * vectors + v], places[r * vectors + v], old[v], stored[v], item)


def _first_lanes(builder, count, vector):
    """Mask of a vector's first `count` lanes, made without vector registers, as all of these hold sums."""
    one, most = emit.INDEX(1), emit.INDEX(vector.count)
    count = builder.select(builder.icmp_signed("<", count, most), count, most)
    count = builder.select(builder.icmp_signed(">", count, emit.INDEX(0)), count, emit.INDEX(0))
    bits = builder.sub(builder.shl(one, count), one)
    return builder.bitcast(builder.trunc(bits, ir.IntType(vector.count)), ir.VectorType(ir.IntType(1), vector.count))


def _call(builder, vector: ir.VectorType, heights: tuple[int, ...], high, passed: list, apart: bool) -> None:
    """Emits a call of the tile function with `high` rows (one of `heights`) and as many vectors as the columns need."""

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
    """Computes a tile of C from rows of A at any offsets and a panel of B; _tile_function explains the arguments. After an array
    comes the index of its first element used. `lanes`: a tuple as long as a vector; `rows`: one as long as the tile has rows."""
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
    """As tile_apart, for adjacent rows of A, with steps `step` apart. `high`: the tile's number of rows, one of `heights`."""
    one = types.intp
    signature = types.void(lanes, one, a, one, runs_at, *[one] * 4, b, one, c, one, c_at, *[one] * 4)

    def codegen(context, builder, signature, arguments):
        a, runs_at, b, c, c_at = emit.starts(context, builder, signature, arguments, (2, 4, 9, 11, 13))
        passed = [a, runs_at, runs_at, runs_at, *arguments[6:9], b, c, c_at, *arguments[15:]]
        vector, item = emit.vector_of(context, signature, 2)
        _call(builder, vector, heights(vector.count * item), arguments[1], passed, False)
        return context.get_dummy_value()

    return signature, codegen
