"""LLVM vectors inside Numba: explicit LLVM instructions for code that the compiler does not vectorize by itself."""

import functools
import platform
from collections.abc import Iterable, Iterator

import llvmlite.binding as llvm
import numba
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
    """Names, as LLVM has them, of the CPU features that Numba's code may use; $NUMBA_CPU_FEATURES overrides them."""
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
    """Bytes of the vectors to choose from: the widest, and half of them on a Zen 4, whose units are half as wide."""
    return (64, 32) if vector_bytes() == 64 and cpu_name() == "znver4" else (vector_bytes(),)


def fastest_size(row: int) -> int:
    """Bytes of the vectors (one of vector_sizes) that take the least time for rows of `row` bytes."""
    return min(vector_sizes(), key=lambda size: -(-row // size) * (1 if size == vector_bytes() else NARROW))


def registers(vector: int) -> int:
    """Registers to plan with for vectors of `vector` bytes: 32 for AVX-512's 64 bytes and on ARM, else 16 (AVX, SSE)."""
    return 32 if vector == 64 or platform.machine().lower() in ("aarch64", "arm64") else 16


def lanes(dtype) -> int:
    """Values of `dtype` (a NumPy dtype) in a vector register."""
    return vector_bytes() // dtype.itemsize


def vector_type(context, array: types.Array, width: int = 0) -> ir.VectorType:
    """The vector of `width` bytes, else of the widest register, with the array's elements."""
    return ir.VectorType(context.get_value_type(array.dtype), (width or vector_bytes()) * 8 // array.dtype.bitwidth)


def at(builder, pointer, index, vector, ahead: int = 0):
    return builder.bitcast(builder.gep(pointer, [builder.add(index, INDEX(ahead))]), vector.as_pointer())


def vector_of(context, signature, array: int, lanes: int = 0) -> tuple[ir.VectorType, int]:
    """(vector type, bytes of an element): elements of argument number `array`, as many as the tuple argument `lanes` has."""
    element = signature.args[array].dtype
    return ir.VectorType(context.get_value_type(element), signature.args[lanes].count), element.bitwidth // 8


def datas(context, builder, signature, arguments, places):
    """Data pointers of the array arguments whose numbers are in `places`."""
    return [cgutils.create_struct_proxy(signature.args[i])(context, builder, arguments[i]).data for i in places]


def starts(context, builder, signature, arguments, arrays: tuple[int, ...]) -> list:
    """Pointers to one element of each array argument in `arrays`; the next argument is the index of that element."""
    pointers = datas(context, builder, signature, arguments, places=arrays)
    return [builder.gep(pointer, [arguments[i + 1]]) for pointer, i in zip(pointers, arrays, strict=True)]


def fused(builder, vector: ir.VectorType, intrinsic_name: str):
    """The LLVM function `intrinsic_name` (llvm.fma or llvm.fmuladd) for that vector type."""
    kind = ir.FunctionType(vector, [vector] * 3)
    return cgutils.get_or_insert_function(builder.module, kind, f"{intrinsic_name}.{_suffix(vector)}")


def _suffix(vector: ir.VectorType) -> str:
    known = {"float": "f32", "double": "f64"}
    return f"v{vector.count}{known.get(str(vector.element), vector.element)}"


def broadcast(builder, value, vector):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


def first_lanes(builder, count, vector):
    """Mask of a vector's first `count` lanes (a 32-bit number): none if it is negative, all if it exceeds the length."""
    word = ir.VectorType(ir.IntType(32), vector.count)
    counts = broadcast(builder, builder.trunc(count, word.element), word)
    return builder.icmp_signed("<", ir.Constant(word, list(range(vector.count))), counts)


def row_mask(builder, columns, first: int, vector):
    """Mask of a vector that begins at column `first` of a row of `columns`: the lanes that lie in the row."""
    return first_lanes(builder, builder.sub(columns, INDEX(first)), vector)


def masked_load(builder, pointer, mask, vector, align: int):
    """The vector at `pointer`; lanes outside `mask` are 0 and their memory is not touched."""
    flags = ir.VectorType(ir.IntType(1), vector.count)
    kind = ir.FunctionType(vector, [vector.as_pointer(), ir.IntType(32), flags, vector])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.load.{_suffix(vector)}.p0")
    return builder.call(function, [pointer, ir.IntType(32)(align), mask, ir.Constant(vector, None)])


def masked_store(builder, value, pointer, mask, align: int) -> None:
    """Stores the lanes in `mask`; the others' memory is not touched."""
    flags = ir.VectorType(ir.IntType(1), value.type.count)
    kind = ir.FunctionType(ir.VoidType(), [value.type, value.type.as_pointer(), ir.IntType(32), flags])
    function = cgutils.get_or_insert_function(builder.module, kind, f"llvm.masked.store.{_suffix(value.type)}.p0")
    builder.call(function, [value, pointer, ir.IntType(32)(align), mask])


def add_masked(builder, value, pointer, old, stored, align: int) -> None:
    """Adds the memory's lanes in the mask `old` to the value, then stores the lanes in the mask `stored`."""
    value = builder.fadd(value, masked_load(builder, pointer, old, value.type, align=align))
    masked_store(builder, value, pointer, stored, align=align)


def prefetch(builder, pointer, write: bool = False) -> None:
    """Prefetches the cache line at `pointer`, for reading or for writing."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), flag(int(write)), flag(3), flag(1)])


def store_past_caches(builder, value, pointer, align: int) -> None:
    """Stores the value by a non-temporal store."""
    flag = builder.module.add_metadata([ir.IntType(32)(1)])
    builder.store(value, pointer, align).set_metadata("nontemporal", flag)


def either(builder, *ways: tuple):
    """A phi node for pairs of (value, block): the value of the block from which this one was reached."""
    slot = builder.phi(ways[0][0].type)
    for value, block in ways:
        slot.add_incoming(value, block)
    return slot


class Loop:
    """A loop built by hand. `slots`: its counter, which begins at `start`, and values that are carried from trip to trip."""

    def __init__(self, builder: ir.IRBuilder, start, values: list):
        self.builder = builder
        before = builder.block
        self.look = builder.append_basic_block("look")
        builder.branch(self.look)
        builder.position_at_end(self.look)
        self.slots = [builder.phi(value.type) for value in (start, *values)]
        for slot, value in zip(self.slots, (start, *values), strict=True):
            slot.add_incoming(value, before)

    def enter(self, going) -> None:
        trip = self.builder.append_basic_block("trip")
        self.after = self.builder.append_basic_block("after")
        self.builder.cbranch(going, trip, self.after)
        self.builder.position_at_end(trip)

    def leave(self, values: list) -> None:
        for slot, value in zip(self.slots, values, strict=True):
            slot.add_incoming(value, self.builder.block)
        self.builder.branch(self.look)
        self.builder.position_at_end(self.after)


def multiplier(builder, sums: ir.VectorType, words: ir.VectorType):
    """A function (x, y, sum) that emits x y + sum on vectors. Integer words hold two bfloat16 each; both products are added.

    Their instruction, vdpbf16ps, is inline assembly, as LLVM's name for it changes between versions.
    """
    if isinstance(words.element, ir.IntType):
        dot = ir.FunctionType(sums, [words, words, sums])
        return lambda x, y, total: builder.asm(dot, "vdpbf16ps $2, $1, $0", "=v,v,v,0", [x, y, total], False)
    fma = fused(builder, sums, "llvm.fma")
    return lambda *values: builder.call(fma, values)


def outer_product(builder, across: list, left: Iterable, sums: list, multiply) -> list:
    """The new sums, row by row: each adds a vector of `across` times the factor at the row's pointer in `left`."""
    new_sums: list = []
    for pointer in left:
        factor = broadcast(builder, builder.load(pointer), across[0].type)
        for values in across:
            new_sums.append(multiply(factor, values, sums[len(new_sums)]))
    return new_sums


def existing_vectors(builder, rows: int, vectors: int, height) -> Iterator[tuple[int, int]]:
    """Yields (row, vector) of a tile, in code that only runs if the row exists: at the first missing row the function returns."""
    for r in range(rows):
        row = builder.append_basic_block("row")
        end = builder.append_basic_block("end")
        builder.cbranch(builder.icmp_signed("<", INDEX(r), height), row, end)
        builder.position_at_end(end)
        builder.ret_void()
        builder.position_at_end(row)
        yield from ((r, v) for v in range(vectors))
    builder.ret_void()


def call_first(builder, cases: Iterable[tuple], arguments: list) -> None:
    """Emits a call of the function in the first (condition, function) of `cases` whose condition holds; one must hold."""
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


def internal_function(module: ir.Module, name: str, kinds: list) -> ir.Function:
    """An LLVM function with arguments of those types that is never inlined, so that its callers take none of its registers.

    LLVM's model of AMD's Zen loads so far ahead, and unrolls so much, that registers spill beside a tile's sums. On Zen this
    function is therefore tuned as for an Intel CPU: its loops are as fast, and nothing spills.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    if cpu_name().startswith("znver"):
        set.add(function.attributes, '"tune-cpu"="sapphirerapids"')  # llvmlite's own add() refuses target attributes
    return function


def zipped(builder, rows: list) -> list:
    """Interleaves the elements of a power of two of vectors (x0 y0 z0 w0 x1 y1 z1 w1 ...) into as many vectors."""
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


def _shuffled(builder, first: list, second: list, masks: list) -> list:
    """Both halves of each vector of `first` interleaved with its partner of `second`."""
    halves = []
    for x, y in zip(first, second, strict=True):
        halves += [builder.shuffle_vector(x, y, mask) for mask in masks]
    return halves


@intrinsic
def address(typingctx, array):
    """The address of an array's first value. Passing a number instead of an array avoids counting references."""
    signature = types.intp(array)

    def codegen(context, builder, signature, arguments):
        return builder.ptrtoint(*datas(context, builder, signature, arguments, (0,)), INDEX)

    return signature, codegen


@intrinsic
def ask_for(typingctx, place):
    """Prefetches the cache line at an address."""
    signature = types.void(types.intp)

    def codegen(context, builder, signature, arguments):
        prefetch(builder, builder.inttoptr(arguments[0], ir.IntType(8).as_pointer()))
        return context.get_dummy_value()

    return signature, codegen


@intrinsic
def take_number(typingctx, counters, place):
    """Atomically adds 1 to counters[place] (int64, shared by threads) and returns the value before."""
    signature = types.intp(counters, types.intp)

    def codegen(context, builder, signature, arguments):
        (pointer,) = starts(context, builder, signature, arguments, (0,))
        return builder.atomic_rmw("add", pointer, INDEX(1), "seq_cst")

    return signature, codegen


@intrinsic
def wait_for(typingctx, counters, place, count):
    """Spins until other threads have raised counters[place] to `count`."""
    signature = types.void(counters, types.intp, types.intp)

    def codegen(context, builder, signature, arguments):
        (pointer,) = starts(context, builder, signature, arguments, (0,))
        look = builder.append_basic_block("look")
        spin = builder.append_basic_block("spin")
        after = builder.append_basic_block("after")
        builder.branch(look)
        builder.position_at_end(look)
        value = builder.load_atomic(pointer, "acquire", 8)
        builder.cbranch(builder.icmp_signed(">=", value, arguments[2]), after, spin)
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
    """Runs `trips` x UNROLL steps x <- factor * x + addend on CHAINS vectors from 0 and stores them at `out`.

    out: array of CHAINS * lanes values; factor, addend: scalars of its dtype. Everything stays in registers, so only
    the FMA units are at work.
    """
    if not (isinstance(out, types.Array) and isinstance(out.dtype, types.Float)):
        return None
    signature = types.void(out, factor, addend, types.intp)

    def codegen(context, builder, signature, arguments):
        (pointer,) = datas(context, builder, signature, arguments, (0,))
        vector = vector_type(context, signature.args[0])
        fma = fused(builder, vector, "llvm.fma")
        factors, addends = (broadcast(builder, value, vector) for value in arguments[1:3])
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(CHAINS)]
        with cgutils.for_range(builder, arguments[3]):
            for _ in range(UNROLL):
                for slot in sums:
                    builder.store(builder.call(fma, [factors, builder.load(slot), addends]), slot)
        target = builder.bitcast(pointer, vector.as_pointer())
        for i, slot in enumerate(sums):
            item = signature.args[0].dtype.bitwidth // 8
            builder.store(builder.load(slot), builder.gep(target, [INDEX(i)]), item)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True, parallel=True)
def fma_peak(out, factor, addend, trips):
    """Each thread runs fma_chains into its own row of `out` (threads x CHAINS * lanes)."""
    for thread in numba.prange(out.shape[0]):
        fma_chains(out[thread], factor, addend, trips)
