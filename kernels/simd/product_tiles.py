"""Register tiles of a matrix product in LLVM's instructions: a tile of C stays in registers while A and B are read once."""

from collections.abc import Iterator

from llvmlite import ir
from numba.core import types
from numba.extending import intrinsic

from kernels.simd import emit

#: Vectors in a row of a tile; one more in tiles with at most half of the rows.
VECTORS = 3
#: How many steps in k B is prefetched ahead: if it is not packed, each step is another row in memory.
_AHEAD = 8


def tile_rows(vector_bytes: int) -> int:
    """Rows of the largest tile, with vectors of `vector_bytes`: 8 x 3 sums and 3 of B fit 32 registers, 4 x 3 and 3 fit 16."""
    return 8 if emit.registers(vector_bytes) == 32 else 4


def tile_shapes(vector_bytes: int) -> list[tuple[int, int]]:
    """(rows, vectors per row) of all tiles for vectors of `vector_bytes`, smallest first: the first one that covers the rest
    of C is used."""
    most = tile_rows(vector_bytes)
    rows = [1 << i for i in range(most.bit_length())]
    shapes = []
    for r in rows:
        widest = VECTORS + 1 if 2 * r <= most else VECTORS
        shapes += [(r, v) for v in range(1, widest + 1)]
    return shapes


def _vectors(builder: ir.IRBuilder, places: list, vector: ir.VectorType, masks: list | None) -> list:
    """Emits loads of the vectors at these pointers; with masks, one for each, only their lanes are loaded and the others are
    0."""
    item = 8 if isinstance(vector.element, ir.DoubleType) else 4
    if masks is None:
        return [builder.load(place, align=item) for place in places]
    return [
        emit.masked_load(builder, place, mask, vector, align=item) for place, mask in zip(places, masks, strict=True)
    ]


def _row_starts(builder: ir.IRBuilder, first: ir.Value, stride: ir.Value, *, height: ir.Value, rows: int) -> list:
    """Emits pointers to the starts of `rows` rows, the first at `first` and the next `stride` elements on. Rows from number
    `height` on repeat the last one below it, so that storing them too does no harm."""
    pointers = [first]
    for r in range(1, rows):
        exists = builder.icmp_signed("<", emit.INDEX(r), height)
        pointers.append(builder.gep(pointers[-1], [builder.select(exists, stride, emit.INDEX(0))]))
    return pointers


def _across(builder: ir.IRBuilder, row: ir.Value, vector: ir.VectorType, vectors: int) -> list:
    """Emits pointers to the first `vectors` vectors of the row that begins at `row`."""
    return [emit.vector_pointer(builder, row, emit.INDEX(0), vector, ahead=v * vector.count) for v in range(vectors)]


def _tile_function(
    module: ir.Module, vector: ir.VectorType, words: ir.VectorType, shape: tuple[int, int]
) -> ir.Function:
    """An LLVM function that computes a tile of C from panels of A and B. It is not inlined, so it has all registers.

    vector, words: types of a vector of sums and of an operand's vector. shape: (rows, vectors per row) of the tile. The
    function's arguments: A, its strides between rows and between steps in k; B and its stride between steps; C and its row
    length; the steps, and how many of them may load whole vectors of B; the rows and columns of C present; whether to add to
    C.
    """
    rows, vectors = shape
    name = f"matmul_tile_{rows}x{vectors}_{vector.count}_{words.element}"
    if name in module.globals:
        return module.globals[name]
    index = emit.INDEX
    word = words.element.as_pointer()
    value = vector.element.as_pointer()
    function = emit.internal_function(module, name, [word, index, index, word, index, value, *[index] * 6])
    a, a_row, a_step, b, b_step, c, length, depth, whole, height, columns, added = tuple(function.args)
    builder = ir.IRBuilder(function.append_basic_block("entry"))
    multiply = emit.multiplier(builder, vector, words)

    lines = _row_starts(builder, a, a_row, height=height, rows=rows)
    places = []
    for row in _row_starts(builder, c, length, height=height, rows=rows):
        places += _across(builder, row, vector, vectors)
    for place in places:
        emit.prefetch(builder, place, write=True)
    masks = [emit.row_mask(builder, columns, v * vector.count, vector) for v in range(vectors)]
    early = builder.mul(b_step, index(_AHEAD))

    def steps(until: ir.Value, start: list, masked: bool) -> list:
        """Emits a loop over the steps in k before `until`; returns the places in A and B and the sums after them. The loop is
        not unrolled, as the addresses of A's rows would then need more registers than there are.

        start: places in A and B and sums before the loop. masked: whether only the columns present are loaded from B.
        """
        end = builder.gep(b, [builder.mul(until, b_step)])
        loop = emit.Loop(builder, start[0], start[1:])
        at, right, *sums = tuple(loop.slots)
        loop.enter(builder.icmp_unsigned("!=", right, end))
        for place in _across(builder, builder.gep(right, [early]), words, vectors):
            emit.prefetch(builder, place)
        # Load a step of B, multiply it with a number of each row of A.
        loaded = _vectors(builder, _across(builder, right, words, vectors), words, masks=masks if masked else None)
        factors = (builder.gep(line, [at]) for line in lines)
        sums = emit.outer_product(builder, loaded, factors, sums=sums, multiply=multiply)
        loop.leave([builder.add(at, a_step), builder.gep(right, [b_step]), *sums])
        return loop.slots

    middle = steps(whole, [index(0), b, *[ir.Constant(vector, None)] * len(places)], False)
    sums = steps(depth, middle, True)[2:]
    _store_tile(builder, sums, places, masks, columns=columns, added=added)
    return function


def _store_tile(
    builder: ir.IRBuilder, sums: list, places: list, masks: list, *, columns: ir.Value, added: ir.Value
) -> None:
    """Emits the end of a tile function: adds what C has to the sums if `added`, and stores them as whole vectors, or by the
    masks if fewer columns are present.

    places: pointers into C, one for each vector of sums. masks: for each vector of a row, the lanes in `columns`.
    """
    vector = sums[0].type
    vectors = len(masks)
    item = 8 if isinstance(vector.element, ir.DoubleType) else 4
    # Add.
    before = builder.block
    with builder.if_then(builder.icmp_signed("!=", added, emit.INDEX(0))):
        old = _vectors(builder, places, vector, masks=masks * (len(places) // vectors))
        more = [builder.fadd(total, value) for total, value in zip(sums, old, strict=True)]
        loaded = builder.block
    sums = [emit.either(builder, (total, before), (value, loaded)) for total, value in zip(sums, more, strict=True)]
    # Store.
    with builder.if_then(builder.icmp_signed("==", columns, emit.INDEX(vectors * vector.count))):
        for total, place in zip(sums, places, strict=True):
            builder.store(total, place, item)
        builder.ret_void()
    for i, place in enumerate(places):
        emit.masked_store(builder, sums[i], place, masks[i % vectors], align=item)
    builder.ret_void()


@intrinsic
def tile(typingctx, lanes, a, a_row, a_step, b, b_step, c, length, depth, whole, height, columns, added):
    """A Numba intrinsic: computes a tile of C from panels of A and B at these addresses; _tile_function explains the arguments.

    lanes: a tuple as long as a vector, of the operands' type: floating-point numbers, or words with two bfloat16 each.
    """
    signature = types.void(lanes, *[types.intp] * 12)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a call of the smallest tile function that covers `height` x `columns`; Numba calls this with the LLVM values
        of the arguments."""
        lanes = signature.args[0]
        words = ir.VectorType(context.get_value_type(lanes.dtype), lanes.count)
        vector_bytes = lanes.count * lanes.dtype.bitwidth // 8
        vector = ir.VectorType(ir.FloatType(), words.count) if isinstance(words.element, ir.IntType) else words
        *_, height, columns, _ = tuple(arguments)

        def cases() -> Iterator[tuple[ir.Value, ir.Function]]:
            """Yields (condition that the tile covers what is left of C, its function) for each shape of tile, the smallest
            first."""
            for rows, vectors in tile_shapes(vector_bytes):
                fits = builder.icmp_signed("<=", height, emit.INDEX(rows))
                enough = builder.icmp_signed("<=", columns, emit.INDEX(vectors * vector.count))
                yield builder.and_(fits, enough), _tile_function(builder.module, vector, words, (rows, vectors))

        numbers = list(arguments[1:])
        for i, kind in ((0, words), (3, words), (5, vector)):  # A, B and C
            numbers[i] = builder.inttoptr(numbers[i], kind.element.as_pointer())
        emit.call_first(builder, cases(), numbers)
        return context.get_dummy_value()

    return signature, codegen
