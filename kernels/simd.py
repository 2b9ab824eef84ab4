"""LLVM vectors inside Numba: what the compiler will not do by itself, spelled out in its own instructions."""

import functools

import llvmlite.binding as llvm
import numba
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

CHAINS = 12  # independent sums: more than 2 units x 4 cycles of latency, and they fit AVX2's 16 registers
UNROLL = 4
INDEX = ir.IntType(64)


@functools.cache
def vector_bytes() -> int:
    """Bytes in this CPU's widest vector register: 64 (AVX-512), 32 (AVX), else 16."""
    features = llvm.get_host_cpu_features()
    return 64 if features.get("avx512f") else 32 if features.get("avx") else 16


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
    bits = 32 if isinstance(vector.element, ir.FloatType) else 64
    kind = ir.FunctionType(vector, [vector] * 3)
    return cgutils.get_or_insert_function(builder.module, kind, f"{intrinsic_name}.v{vector.count}f{bits}")


def broadcast(builder, value, vector):
    one = builder.insert_element(ir.Constant(vector, ir.Undefined), value, ir.Constant(ir.IntType(32), 0))
    mask = ir.Constant(ir.VectorType(ir.IntType(32), vector.count), [0] * vector.count)
    return builder.shuffle_vector(one, ir.Constant(vector, ir.Undefined), mask)


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
