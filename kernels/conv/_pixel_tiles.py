"""Register tiles of a convolution: products of pixels with a panel, summed over the runs of memory that a window covers."""

import itertools

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
    pointer, places = vector.element.as_pointer(), emit.INDEX.as_pointer()
    kinds = [pointer, places, places, places, *[emit.INDEX] * 3, pointer, pointer, places, *[emit.INDEX] * 3]
    function = emit.internal_function(module, name, kinds)
    tile = _Tile(function, vector, rows, vectors, apart)
    tile.ask_for_targets()
    tile.store(tile.sums())
    return function


class _Tile:
    """The body of a tile's function, written step by step."""

    def __init__(self, function: ir.Function, vector: ir.VectorType, rows: int, vectors: int, apart: bool):
        self.vector, self.rows, self.vectors, self.apart = vector, rows, vectors, apart
        self.item = 4 if isinstance(vector.element, ir.FloatType) else 8
        (self.a, self.rows_at, self.next_at, self.runs_at, self.count, self.length, self.step) = function.args[:7]
        (self.b, c, c_at, self.height, self.columns, self.added) = function.args[7:]
        self.builder = builder = ir.IRBuilder(function.append_basic_block("entry"))
        self.targets = [builder.gep(c, [self.row_of(c_at, r)]) for r in range(rows)]
        self.past = ir.IntType(1)(0)
        if apart:
            self.past = builder.icmp_signed("==", self.added, emit.INDEX(PAST_CACHES))

    def row_of(self, table, r: int):
        """The table's entry for the row; rows that are not there repeat the last one."""
        last = self.builder.sub(self.height, emit.INDEX(1))
        here = self.builder.icmp_signed("<", emit.INDEX(r), self.height)
        return self.builder.load(self.builder.gep(table, [self.builder.select(here, emit.INDEX(r), last)]))

    def place(self, r: int, v: int):
        target = self.builder.gep(self.targets[r], [emit.INDEX(v * self.vector.count)])
        return self.builder.bitcast(target, self.vector.as_pointer())

    def ask_for_targets(self) -> None:
        with self.builder.if_then(self.builder.not_(self.past)):
            for r, v in itertools.product(range(self.rows), range(self.vectors)):
                emit.prefetch(self.builder, self.place(r, v), write=True)

    def sums(self) -> list:
        """Loops over the runs."""
        builder, zero = self.builder, ir.Constant(self.vector, None)
        lines = [builder.gep(self.a, [self.row_of(self.rows_at, r)]) for r in range(self.rows)] if self.apart else []
        runs = emit.Loop(builder, emit.INDEX(0), [self.b, *[zero] * (self.rows * self.vectors)])
        run, right, *sums = runs.slots
        runs.enter(builder.icmp_signed("<", run, self.count))
        offset = builder.load(builder.gep(self.runs_at, [run]))
        k, right, *sums = self.steps(_UNROLL, lines, offset, [emit.INDEX(0), right, *sums])
        _, right, *sums = self.steps(1, lines, offset, [k, right, *sums])
        runs.leave([builder.add(run, emit.INDEX(1)), right, *sums])
        return runs.slots[2:]

    def steps(self, unroll: int, lines: list, offset, slots: list) -> list:
        """As many trips of `unroll` steps of a run as there are; gives where they stopped, B's next step and the sums."""
        builder, count = self.builder, self.vector.count
        multiply = emit.multiplier(builder, self.vector, self.vector)
        loop = emit.Loop(builder, slots[0], slots[1:])
        k, right, *values = loop.slots
        after_k = builder.add(k, emit.INDEX(unroll))
        loop.enter(builder.icmp_signed("<=", after_k, self.length))
        if self.apart:
            lefts = [builder.gep(line, [builder.add(k, offset)]) for line in lines]
        else:
            left = builder.gep(self.a, [builder.add(offset, builder.mul(k, self.step))])
        trip = _LINE // self.item // _UNROLL
        share = -(-self.rows // trip)  # rows of the next tile, a line of each of which a trip asks for
        some = builder.and_(builder.lshr(k, emit.INDEX(_UNROLL // 2)), emit.INDEX(trip - 1))
        some = builder.gep(self.next_at, [builder.mul(some, emit.INDEX(share))])
        at_k = builder.add(offset, builder.and_(k, emit.INDEX(-_LINE // self.item)))
        for u in range(unroll):
            places = (
                emit.at(builder, right, emit.INDEX(u * VECTORS * count), self.vector, v * count)
                for v in range(self.vectors)
            )
            across = [builder.load(place, align=self.item * count) for place in places]
            if self.apart:
                down = (builder.gep(line, [emit.INDEX(u)]) for line in lefts)
            else:
                left = builder.gep(left, [self.step]) if u else left
                down = (builder.gep(left, [emit.INDEX(r)]) for r in range(self.rows))
            values = emit.outer_product(builder, across, down, values, multiply)
            if self.apart and unroll == _UNROLL and u < share:
                row = builder.load(builder.gep(some, [emit.INDEX(u)]))
                emit.prefetch(builder, builder.gep(self.a, [builder.add(row, at_k)]))
        loop.leave([after_k, builder.gep(right, [emit.INDEX(unroll * VECTORS * count)]), *values])
        return loop.slots

    def store(self, sums: list) -> None:
        """Whole tiles as they are; of others, and to what is added, what is there."""
        builder, vectors, count = self.builder, self.vectors, self.vector.count
        few = builder.icmp_signed("<=", self.added, emit.INDEX(0))
        whole = builder.and_(few, builder.icmp_signed(">=", self.columns, emit.INDEX(vectors * count)))
        with builder.if_then(whole):
            if self.apart:
                with builder.if_then(self.past):
                    for r, v in emit.vectors_there(builder, self.rows, vectors, self.height):
                        emit.store_past_caches(builder, sums[r * vectors + v], self.place(r, v), self.item * count)
            for r, v in emit.vectors_there(builder, self.rows, vectors, self.height):
                builder.store(sums[r * vectors + v], self.place(r, v), self.item)
        stored, old = (
            [_first_lanes(builder, builder.sub(n, emit.INDEX(v * count)), self.vector) for v in range(vectors)]
            for n in (self.columns, self.added)
        )
        for r, v in emit.vectors_there(builder, self.rows, vectors, self.height):
            emit.add_masked(builder, sums[r * vectors + v], self.place(r, v), old[v], stored[v], self.item)


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
