"""LLVM vectors inside Numba: explicit LLVM instructions for code that the compiler does not vectorize by itself."""

import functools
import platform
from collections.abc import Callable, Iterable, Iterator, Sequence

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

llvm.initialize_native_asmparser()  # inline assembly needs a parser, which Numba does not start

#: Independent sums of the peak: more than 2 units x 4 cycles of latency, and they fit AVX2's 16 registers.
CHAINS = 12
#: Multiply-adds of each sum in a trip of the peak's loop.
UNROLL = 4
#: Time of a multiply-add of half-wide vectors, as a share of one of the widest vectors.
NARROW = 0.515
#: LLVM's type of sizes and indices.
INDEX = ir.IntType(64)


def features() -> set[str]:
    """Names, as LLVM has them (`avx2`), of the CPU features that code compiled by Numba may use: this CPU's, or those of
    $NUMBA_CPU_FEATURES (`+avx2,-avx512f`) if it is set."""
    chosen = numba.config.CPU_FEATURES
    if chosen is not None:
        return {word[1:] for word in chosen.split(",") if word.startswith("+")}
    return {name for name, present in llvm.get_host_cpu_features().items() if present}


@functools.cache
def vector_bytes() -> int:
    """Bytes in this CPU's widest vector register: 64 (AVX-512), 32 (AVX), else 16."""
    names = features()
    if "avx512f" in names:
        return 64
    return 32 if "avx" in names else 16


def cpu_name() -> str:
    """This CPU as LLVM calls it; $NUMBA_CPU_NAME overrides it."""
    return numba.config.CPU_NAME or llvm.get_host_cpu_name()


def vector_sizes() -> tuple[int, ...]:
    """Bytes of the vectors that kernels choose from: the widest; on AMD's Zen 4, whose units are half as wide, half of that
    too."""
    return (64, 32) if vector_bytes() == 64 and cpu_name() == "znver4" else (vector_bytes(),)


def fastest_size(row_bytes: int) -> int:
    """Bytes of the vectors, one of vector_sizes(), that take the least time for rows of `row_bytes`."""
    return min(vector_sizes(), key=lambda size: -(-row_bytes // size) * (1 if size == vector_bytes() else NARROW))


def registers(vector_bytes: int) -> int:
    """Vector registers to plan with, for vectors of `vector_bytes`: 32 for AVX-512's 64 bytes and on ARM, else 16 (AVX, SSE)."""
    return 32 if vector_bytes == 64 or platform.machine().lower() in ("aarch64", "arm64") else 16


def lanes(dtype: np.dtype) -> int:
    """Values of `dtype` in the widest vector register."""
    return vector_bytes() // dtype.itemsize


def vector_type(context, array: types.Array, width: int = 0) -> ir.VectorType:
    """LLVM's vector type of the array's elements that has `width` bytes; by default as many as the widest register.

    context: Numba's target context. array: Numba's type of the array.
    """
    return ir.VectorType(context.get_value_type(array.dtype), (width or vector_bytes()) * 8 // array.dtype.bitwidth)


def vector_pointer(
    builder: ir.IRBuilder, pointer: ir.Value, index: ir.Value, vector: ir.VectorType, ahead: int = 0
) -> ir.Value:
    """Emits the address of element `index` + `ahead` of the array at `pointer`, as a pointer to a vector that begins there."""
    return builder.bitcast(builder.gep(pointer, [builder.add(index, INDEX(ahead))]), vector.as_pointer())


def vector_of(context, signature, array: int, lanes: int = 0) -> tuple[ir.VectorType, int]:
    """(LLVM's vector type, bytes of an element) for an intrinsic: elements of its array parameter number `array`, as many as
    its tuple parameter number `lanes` is long."""
    element = signature.args[array].dtype
    return ir.VectorType(context.get_value_type(element), signature.args[lanes].count), element.bitwidth // 8


def data_pointers(
    context, builder: ir.IRBuilder, signature, arguments: Sequence[ir.Value], places: Sequence[int]
) -> list[ir.Value]:
    """Emits pointers to the data of an intrinsic's array arguments, those whose numbers are in `places`."""
    return [cgutils.create_struct_proxy(signature.args[i])(context, builder, arguments[i]).data for i in places]


def element_pointers(
    context, builder: ir.IRBuilder, signature, arguments: Sequence[ir.Value], arrays: Sequence[int]
) -> list[ir.Value]:
    """Emits a pointer into each of an intrinsic's array arguments whose numbers are in `arrays`: to the element whose index
    is the argument after the array."""
    pointers = data_pointers(context, builder, signature, arguments, places=arrays)
    return [builder.gep(pointer, [arguments[i + 1]]) for pointer, i in zip(pointers, arrays, strict=True)]


def fused(builder: ir.IRBuilder, vector: ir.VectorType, intrinsic_name: str) -> ir.Function:
    """The LLVM function `intrinsic_name` for that vector type: llvm.fma, or llvm.fmuladd, which may round twice."""
    kind = ir.FunctionType(vector, [vector] * 3)
    return cgutils.get_or_insert_function(builder.module, kind, f"{intrinsic_name}.{_suffix(vector)}")


def _suffix(vector: ir.VectorType) -> str:
    known = {"float": "f32", "double": "f64"}
    return f"v{vector.count}{known.get(str(vector.element), vector.element)}"


def broadcast(builder: ir.IRBuilder, value: ir.Value, vector: ir.VectorType) -> ir.Value:
    """Emits a vector that has the scalar `value` in every lane."""
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


def first_lanes(builder: ir.IRBuilder, count: ir.Value, vector: ir.VectorType) -> ir.Value:
    """Emits a mask of the vector's first `count` lanes: none if `count`, a 64-bit integer, is negative, all if it exceeds the
    length."""
    word = ir.VectorType(ir.IntType(32), vector.count)
    counts = broadcast(builder, builder.trunc(count, word.element), word)
    return builder.icmp_signed("<", ir.Constant(word, list(range(vector.count))), counts)


def row_mask(builder: ir.IRBuilder, columns: ir.Value, first: int, vector: ir.VectorType) -> ir.Value:
    """Emits a mask for a vector that begins at column `first` of a row of `columns` values: the lanes that lie in the row."""
    return first_lanes(builder, builder.sub(columns, INDEX(first)), vector)


def masked_load(
    builder: ir.IRBuilder, pointer: ir.Value, mask: ir.Value, vector: ir.VectorType, align: int
) -> ir.Value:
    """Emits a load of the vector at `pointer`; lanes outside `mask` are 0 and their memory is not touched. align: bytes on
    which the address begins for sure."""
    flags = ir.VectorType(ir.IntType(1), vector.count)
    kind = ir.FunctionType(vector, [vector.as_pointer(), ir.IntType(32), flags, vector])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.{_suffix(vector)}.p0")
    return builder.call(function, [pointer, ir.IntType(32)(align), mask, ir.Constant(vector, None)])


def masked_store(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, mask: ir.Value, align: int) -> None:
    """Emits a store of the lanes in `mask`; the others' memory is not touched. align: bytes on which the address begins for
    sure."""
    flags = ir.VectorType(ir.IntType(1), value.type.count)
    kind = ir.FunctionType(ir.VoidType(), [value.type, value.type.as_pointer(), ir.IntType(32), flags])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.{_suffix(value.type)}.p0")
    builder.call(function, [value, pointer, ir.IntType(32)(align), mask])


def add_masked(
    builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, old: ir.Value, stored: ir.Value, align: int
) -> None:
    """Emits what adds to a vector of sums what memory has in the lanes of the mask `old`, and stores its lanes in the mask
    `stored`."""
    value = builder.fadd(value, masked_load(builder, pointer, old, value.type, align=align))
    masked_store(builder, value, pointer, stored, align=align)


def prefetch(builder: ir.IRBuilder, pointer: ir.Value, write: bool = False) -> None:
    """Emits a prefetch of the cache line at `pointer` into all caches, for reading or for writing."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), flag(int(write)), flag(3), flag(1)])


def store_past_caches(builder: ir.IRBuilder, value: ir.Value, pointer: ir.Value, align: int) -> None:
    """Emits a non-temporal store: the line is written to memory and is not read into a cache first."""
    flag = builder.module.add_metadata([ir.IntType(32)(1)])
    builder.store(value, pointer, align).set_metadata("nontemporal", flag)


def either(builder: ir.IRBuilder, *choices: tuple[ir.Value, ir.Block]) -> ir.Value:
    """Emits a phi node for pairs of (value, block): it is the value whose block ran last before this one."""
    slot = builder.phi(choices[0][0].type)
    for value, block in choices:
        slot.add_incoming(value, block)
    return slot


class Loop:
    """A loop built by hand in LLVM's form, where a variable is a phi node of its values from before the loop and from the
    last trip.

    Loop(...) begins it; enter(condition) begins its body, which uses `slots`; leave(values) ends the body and the loop.
    """

    def __init__(self, builder: ir.IRBuilder, start: ir.Value, values: list) -> None:
        """Emits the block that every trip begins with. `slots` are then the loop's variables: its counter and those that are
        carried.

        start: the counter's value in the first trip. values: the carried variables' values in the first trip.
        """
        self.builder = builder
        before = builder.block
        self.look = builder.append_basic_block("look")
        builder.branch(self.look)
        builder.position_at_end(self.look)
        self.slots = [builder.phi(value.type) for value in (start, *values)]
        for slot, value in zip(self.slots, (start, *values), strict=True):
            slot.add_incoming(value, before)

    def enter(self, going: ir.Value) -> None:
        """Emits the branch into the loop's body if `going`, else behind the loop; what is emitted next is the body."""
        trip = self.builder.append_basic_block("trip")
        self.after = self.builder.append_basic_block("after")
        self.builder.cbranch(going, trip, self.after)
        self.builder.position_at_end(trip)

    def leave(self, values: list) -> None:
        """Ends the body: `values` are the loop's variables in the next trip. What is emitted next comes behind the loop."""
        for slot, value in zip(self.slots, values, strict=True):
            slot.add_incoming(value, self.builder.block)
        self.builder.branch(self.look)
        self.builder.position_at_end(self.after)


def multiplier(builder: ir.IRBuilder, sums: ir.VectorType, words: ir.VectorType) -> Callable:
    """A function (x, y, total) that emits x y + total on vectors: x and y of the type `words`, total of the type `sums`.

    Integer words hold two bfloat16 each, whose two products are both added. Their instruction, vdpbf16ps, is inline assembly,
    as LLVM's name for it changes between versions.
    """
    if isinstance(words.element, ir.IntType):
        dot = ir.FunctionType(sums, [words, words, sums])
        return lambda x, y, total: builder.asm(dot, "vdpbf16ps $2, $1, $0", "=v,v,v,0", [x, y, total], False)
    fma = fused(builder, sums, "llvm.fma")
    return lambda *values: builder.call(fma, values)


def outer_product(
    builder: ir.IRBuilder, across: list, left: Iterable[ir.Value], sums: list, multiply: Callable
) -> list:
    """Emits one step of a matrix product on a tile of sums and gives the new sums, row by row: each adds a vector of B's row
    times a number of A's column.

    across: the vectors of B's row. left: for each row of the tile the pointer to its number of A. multiply: as `multiplier`
    gives it.
    """
    new_sums: list = []
    for pointer in left:
        factor = broadcast(builder, builder.load(pointer), across[0].type)
        for values in across:
            new_sums.append(multiply(factor, values, sums[len(new_sums)]))
    return new_sums


def existing_vectors(builder: ir.IRBuilder, rows: int, vectors: int, height: ir.Value) -> Iterator[tuple[int, int]]:
    """Yields (row, vector) of a tile of `rows` x `vectors` vectors. What the caller emits for one only runs if its row is
    below `height`: at the first row that is not, the function being emitted returns."""
    for r in range(rows):
        row = builder.append_basic_block("row")
        end = builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed("<", INDEX(r), height), row, end)
        builder.position_at_end(end)
        builder.ret_void()
        builder.position_at_end(row)
        yield from ((r, v) for v in range(vectors))
    builder.ret_void()


def call_first(builder: ir.IRBuilder, cases: Iterable[tuple[ir.Value, ir.Function]], arguments: list) -> None:
    """Emits a call of the function in the first (condition, function) of `cases` whose condition holds when the code runs;
    one must hold."""
    end = builder.append_basic_block("done")
    for condition, function in cases:
        fits = builder.append_basic_block("fits")
        other = builder.append_basic_block("other")
        builder.cbranch(condition, fits, other)
        builder.position_at_end(fits)
        builder.call(function, arguments)
        builder.branch(end)
        builder.position_at_end(other)
    builder.unreachable()
    builder.position_at_end(end)


def internal_function(module: ir.Module, name: str, kinds: list[ir.Type]) -> ir.Function:
    """A new LLVM function with parameters of these types and no result. It is never inlined, so that its callers take none of
    its registers.

    LLVM's model of AMD's Zen loads so far ahead, and unrolls so much, that registers spill beside a tile's sums. On Zen this
    function is therefore tuned as for an Intel CPU: its loops are as fast, and nothing spills.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    if cpu_name().startswith("znver"):
        set.add(function.attributes, '"tune-cpu"="sapphirerapids"')  # llvmlite's own add() refuses target attributes
    return function


def zipped(builder: ir.IRBuilder, rows: list) -> list:
    """Emits the interleaving of a power of two of vectors, x0 x1 .., y0 y1 .., z0 z1 .., w0 w1 .., into as many: x0 y0 z0 w0
    x1 y1 z1 w1 ...

    In each round every vector is zipped with the one that lies half of them further on.
    """
    count = rows[0].type.count
    masks = []
    for start in (0, count // 2):
        lanes: list[int] = []
        for i in range(start, start + count // 2):
            lanes += [i, count + i]  # lane i of the first vector, then of the second
        masks.append(ir.Constant(ir.VectorType(ir.IntType(32), count), lanes))
    series = [[row] for row in rows]
    while len(series) > 1:
        half = len(series) // 2
        pairs = zip(series[:half], series[half:], strict=True)
        series = [_shuffled(builder, first, second, masks=masks) for first, second in pairs]
    return series[0]


def _shuffled(builder: ir.IRBuilder, first: list, second: list, masks: list) -> list:
    """Emits the interleaving of each vector of `first` with its partner of `second`: two vectors, by the two shuffle masks."""
    halves = []
    for x, y in zip(first, second, strict=True):
        halves += [builder.shuffle_vector(x, y, mask) for mask in masks]
    return halves


@intrinsic
def address(typingctx, array):
    """A Numba intrinsic: the address of an array's first value. To pass a number instead of an array avoids counting
    references."""
    signature = types.intp(array)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        return builder.ptrtoint(*data_pointers(context, builder, signature, arguments, places=(0,)), INDEX)

    return signature, codegen


@intrinsic
def ask_for(typingctx, place):
    """A Numba intrinsic: prefetches the cache line at the address `place`."""
    signature = types.void(types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        prefetch(builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def take_number(typingctx, counters, place):
    """A Numba intrinsic: atomically adds 1 to counters[place] (int64, shared by threads) and returns the value before."""
    signature = types.intp(counters, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the addition; Numba calls this with the LLVM values of the intrinsic's arguments."""
        (pointer,) = element_pointers(context, builder, signature, arguments, arrays=(0,))
        return builder.atomic_rmw("add", pointer, INDEX(1), "seq_cst")

    return signature, codegen


@intrinsic
def wait_for(typingctx, counters, place, count):
    """A Numba intrinsic: spins until other threads have raised counters[place] to `count`."""
    signature = types.void(counters, types.intp, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits a loop that reads the counter; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, count_wanted = tuple(arguments)
        (pointer,) = element_pointers(context, builder, signature, arguments, arrays=(0,))
        look = builder.append_basic_block("look")
        spin = builder.append_basic_block("spin")
        after = builder.append_basic_block("after")
        builder.branch(look)
        builder.position_at_end(look)
        value = builder.load_atomic(pointer, "acquire", 8)
        builder.cbranch(builder.icmp_signed(">=", value, count_wanted), after, spin)
        builder.position_at_end(spin)
        if "sse2" in features():
            kind = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, kind, "llvm.x86.sse2.pause"), [])
        builder.branch(look)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def fma_chains(typingctx, out, factor, addend, trips):
    """A Numba intrinsic: runs `trips` x UNROLL steps x <- factor * x + addend on CHAINS vectors from 0 and stores them at `out`.

    out: array of CHAINS * lanes values; factor, addend: scalars of its dtype. Everything stays in registers, so only the FMA
    units are at work.
    """
    if not (isinstance(out, types.Array) and isinstance(out.dtype, types.Float)):
        return None
    signature = types.void(out, factor, addend, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the loop; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, factor, addend, trips = tuple(arguments)
        (pointer,) = data_pointers(context, builder, signature, arguments, places=(0,))
        vector = vector_type(context, signature.args[0])
        item_bytes = signature.args[0].dtype.bitwidth // 8
        fma = fused(builder, vector, "llvm.fma")
        factors = broadcast(builder, factor, vector)
        addends = broadcast(builder, addend, vector)
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(CHAINS)]
        with cgutils.for_range(builder, trips):
            for _ in range(UNROLL):
                for slot in sums:
                    builder.store(builder.call(fma, [factors, builder.load(slot), addends]), slot)
        target = builder.bitcast(pointer, vector.as_pointer())
        for i, slot in enumerate(sums):
            builder.store(builder.load(slot), builder.gep(target, [INDEX(i)]), item_bytes)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True, parallel=True)
def fma_peak(out, factor, addend, trips):
    """Each thread runs fma_chains into its own row of `out` (threads x CHAINS * lanes)."""
    for thread in numba.prange(out.shape[0]):
        fma_chains(out[thread], factor, addend, trips)
