"""LLVM vectors inside Numba: what the compiler will not do by itself, spelled out in its own instructions."""

import functools
import platform

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

CHAINS = 12  # independent sums: more than 2 units x 4 cycles of latency, and they fit AVX2's 16 registers
UNROLL = 4
INDEX = ir.IntType(64)


def features() -> set[str]:
    """Names of what the code that Numba makes may use of this CPU, as LLVM calls them; $NUMBA_CPU_FEATURES overrides it."""
    if (asked := numba.config.CPU_FEATURES) is not None:
        return {word[1:] for word in asked.split(",") if word.startswith("+")}
    return {name for name, there in llvm.get_host_cpu_features().items() if there}


@functools.cache
def vector_bytes() -> int:
    """Bytes in this CPU's widest vector register: 64 (AVX-512), 32 (AVX), else 16."""
    there = features()
    return 64 if "avx512f" in there else 32 if "avx" in there else 16


def registers(vector: int) -> int:
    """How many registers of `vector` bytes there are: 32 of AVX-512's and of ARM's, 16 of AVX's and SSE's."""
    return 32 if vector == 64 or platform.machine().lower() in ("aarch64", "arm64") else 16


def lanes(dtype) -> int:
    """Values of `dtype` (a NumPy dtype) in a vector register."""
    return vector_bytes() // dtype.itemsize


def vector_type(context, array: types.Array, width: int = 0) -> ir.VectorType:
    """The vector of `width` bytes, else of the widest register, with the array's elements."""
    return ir.VectorType(context.get_value_type(array.dtype), (width or vector_bytes()) * 8 // array.dtype.bitwidth)


def at(builder, pointer, index, vector, ahead: int = 0):
    return builder.bitcast(builder.gep(pointer, [builder.add(index, ir.Constant(INDEX, ahead))]), vector.as_pointer())


def datas(context, builder, signature, arguments, places):
    """The data pointers of the arguments that are arrays, which lie at `places`."""
    return [cgutils.create_struct_proxy(signature.args[i])(context, builder, arguments[i]).data for i in places]


def fused(builder, vector: ir.VectorType, intrinsic_name: str):
    """llvm.fma or llvm.fmuladd of that vector type."""
    kind = ir.FunctionType(vector, [vector] * 3)
    return cgutils.get_or_insert_function(builder.module, kind, f"{intrinsic_name}.{_suffix(vector)}")


def _suffix(vector: ir.VectorType) -> str:
    return f"v{vector.count}f{32 if isinstance(vector.element, ir.FloatType) else 64}"


def broadcast(builder, value, vector):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


def first_lanes(builder, count, vector):
    """The mask of a vector's first `count` lanes (a small number): none of them below 0, all from its length on."""
    word = ir.VectorType(ir.IntType(32), vector.count)
    counts = broadcast(builder, builder.trunc(count, word.element), word)
    return builder.icmp_signed("<", ir.Constant(word, list(range(vector.count))), counts)


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


def prefetch(builder, pointer, write: bool = False) -> None:
    """Asks for the line at `pointer`, to read it or to write it."""
    byte, flag = ir.IntType(8).as_pointer(), ir.IntType(32)
    kind = ir.FunctionType(ir.VoidType(), [byte, flag, flag, flag])
    function = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
    builder.call(function, [builder.bitcast(pointer, byte), flag(int(write)), flag(3), flag(1)])


def own_function(module: ir.Module, name: str, kinds: list) -> ir.Function:
    """A function, with arguments of those types, that is not worked into its callers: nothing around it takes its registers.

    By its model of AMD's Zen, LLVM loads so much ahead, and unrolls so far, that it does not fit beside a tile's sums. There it
    is told to order this function as for an Intel CPU: in its loops as fast, and nothing spills.
    """
    function = ir.Function(module, ir.FunctionType(ir.VoidType(), kinds), name)
    function.linkage = "internal"
    function.attributes.add("noinline")
    if (numba.config.CPU_NAME or llvm.get_host_cpu_name()).startswith("znver"):
        set.add(function.attributes, '"tune-cpu"="sapphirerapids"')  # llvmlite's own add() knows no target's attributes
    return function


def zipped(builder, rows: list) -> list:
    """Vectors, a power of two of them, as the vectors of their elements in turns: x0 y0 z0 w0 x1 y1 z1 w1 ..."""
    count = rows[0].type.count
    halves = [[lane for i in range(start, start + count // 2) for lane in (i, count + i)] for start in (0, count // 2)]
    masks = [ir.Constant(ir.VectorType(ir.IntType(32), count), half) for half in halves]
    series = [[row] for row in rows]
    while len(series) > 1:
        pairs = zip(series[: len(series) // 2], series[len(series) // 2 :], strict=True)
        series = [
            [builder.shuffle_vector(x, y, mask) for x, y in zip(one, other, strict=True) for mask in masks]
            for one, other in pairs
        ]
    return series[0]


@intrinsic
def take_number(typingctx, counters, place):
    """Adds 1 to counters[place] (an array of int64 that threads share) and gives what it was before."""
    signature = types.intp(counters, types.intp)

    def codegen(context, builder, signature, arguments):
        (pointer,) = datas(context, builder, signature, arguments, (0,))
        return builder.atomic_rmw("add", builder.gep(pointer, [arguments[1]]), ir.Constant(INDEX, 1), "seq_cst")

    return signature, codegen


@intrinsic
def wait_for(typingctx, counters, place, count):
    """Returns when other threads have brought counters[place] to `count`; until then it spins."""
    signature = types.void(counters, types.intp, types.intp)

    def codegen(context, builder, signature, arguments):
        (pointer,) = datas(context, builder, signature, arguments, (0,))
        pointer = builder.gep(pointer, [arguments[1]])
        look, spin, after = (builder.append_basic_block(name) for name in ("look", "spin", "after"))
        builder.branch(look)
        builder.position_at_end(look)
        seen = builder.load_atomic(pointer, "acquire", 8)
        builder.cbranch(builder.icmp_signed(">=", seen, arguments[2]), after, spin)
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
        array = cgutils.create_struct_proxy(signature.args[0])(context, builder, arguments[0])
        vector = vector_type(context, signature.args[0])
        fma = fused(builder, vector, "llvm.fma")
        factors, addends = (broadcast(builder, value, vector) for value in arguments[1:3])
        sums = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(CHAINS)]
        with cgutils.for_range(builder, arguments[3]):
            for _ in range(UNROLL):
                for slot in sums:
                    builder.store(builder.call(fma, [factors, builder.load(slot), addends]), slot)
        target = builder.bitcast(array.data, vector.as_pointer())
        for i, slot in enumerate(sums):
            store = builder.store(builder.load(slot), builder.gep(target, [ir.Constant(INDEX, i)]))
            store.align = signature.args[0].dtype.bitwidth // 8
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True, parallel=True)
def fma_peak(out, factor, addend, trips):
    """Each thread runs fma_chains into its own row of `out` (threads x CHAINS * lanes)."""
    for thread in numba.prange(out.shape[0]):
        fma_chains(out[thread], factor, addend, trips)
