"""The CPU's ceilings in bfloat16 with float32 sums: AVX-512's dot products and AMX's tiles, operands in registers."""

import ctypes
import functools
import platform

import llvmlite.binding as llvm
import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels import simd
from kernels.problems import Matmul, Peak
from kernels.problems.arrays import empty, numpy_dtype
from kernels.registry import kernel

llvm.initialize_native_asmparser()  # Numba starts LLVM without one; assembly in text needs it

_UNROLL = 4
_EXACT = 1 << 24  # float32 counts up to here; then the sums are carried over into float64
_TILES, _ROWS, _ROW_BYTES = 6, 16, 64  # tiles of sums (two more hold the operands), 1 KiB each
_TILE_FLOPS_A_CALL = 1 << 33  # a thread's, some 3 ms: starting the threads then takes no share that shows
_ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA, _SYS_ARCH_PRCTL = 0x1023, 18, 158  # Linux, Documentation/arch/x86/xstate.rst


@intrinsic
def _dots(typingctx, sums, a, b, trips):
    """`trips` x _UNROLL dot products of pairs on CHAINS vectors from 0, stored at `sums` (CHAINS * 16 float32 values).

    a, b: arrays of 32 bfloat16 values as 16 words. The instruction is written out, as LLVM's names for it change.
    """
    signature = types.void(sums, a, b, types.intp)

    def codegen(context, builder, signature, arguments):
        vector, words = ir.VectorType(ir.FloatType(), 16), ir.VectorType(ir.IntType(32), 16)
        target, *sources = simd.datas(context, builder, signature, arguments, (0, 1, 2))
        operands = [builder.load(builder.bitcast(source, words.as_pointer())) for source in sources]
        for operand in operands:
            operand.align = 4
        dot = ir.FunctionType(vector, [words, words, vector])
        slots = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(simd.CHAINS)]
        with cgutils.for_range(builder, arguments[3]):
            for _ in range(_UNROLL):
                for slot in slots:
                    values = [*operands, builder.load(slot)]
                    builder.store(builder.asm(dot, "vdpbf16ps $2, $1, $0", "=v,v,v,0", values, False), slot)
        for i, slot in enumerate(slots):
            store = builder.store(builder.load(slot), simd.at(builder, target, ir.Constant(simd.INDEX, i * 16), vector))
            store.align = 4
        return context.get_dummy_value()

    return signature, codegen


_TILE_CODE = "\n".join(
    [
        "ldtilecfg ($4)",
        *(f"tilezero %tmm{i}" for i in range(_TILES)),
        f"tileloadd ($2,$5,1), %tmm{_TILES}",
        f"tileloadd ($3,$5,1), %tmm{_TILES + 1}",
        "1:",
        *(f"tdpbf16ps %tmm{_TILES + 1}, %tmm{_TILES}, %tmm{i}" for i in range(_TILES)),
        "decq $0",
        "jnz 1b",
        *(f"tilestored %tmm{i}, {i * _ROWS * _ROW_BYTES}($1,$5,1)" for i in range(_TILES)),
        "tilerelease",
    ]
)


@intrinsic
def _tile_products(typingctx, sums, a, b, config, trips):
    """`trips` (at least 1) times 16 x 32 by 32 x 16 products into each of _TILES tiles from 0, stored at `sums`.

    a, b: a tile each, 1 KiB; config: the 64 bytes of LDTILECFG. All in one piece of assembly: the compiler, which knows
    nothing of tiles, can put nothing in between and needs no name of a chip to allow it.
    """
    signature = types.void(sums, a, b, config, types.intp)

    def codegen(context, builder, signature, arguments):
        pointers = simd.datas(context, builder, signature, arguments, (0, 1, 2, 3))
        kind = ir.FunctionType(simd.INDEX, [p.type for p in pointers] + [simd.INDEX] * 2)
        constraints = "=&r,r,r,r,r,r,0,~{memory},~{flags}"
        values = [*pointers, ir.Constant(simd.INDEX, _ROW_BYTES), arguments[4]]
        builder.asm(kind, _TILE_CODE, constraints, values, side_effect=True)
        return context.get_dummy_value()

    return signature, codegen


@numba.njit(cache=True, parallel=True)
def _dot_peak(total, sums, a, b, rounds, trips):
    for thread in numba.prange(total.shape[0]):
        total[thread] = 0
        for _ in range(rounds):
            _dots(sums[thread], a, b, trips)
            total[thread] += sums[thread]


@numba.njit(cache=True, parallel=True)
def _tile_peak(total, sums, a, b, shapes, passes, rounds, trips):
    for thread in numba.prange(total.shape[0]):
        for _ in range(passes):
            total[thread] = 0
            for _ in range(rounds):
                _tile_products(sums[thread], a, b, shapes, trips)
                total[thread] += sums[thread]


def _operands(constants, size: int) -> np.ndarray:
    """`size` bfloat16 values: the addend times the powers of the factor, so all ones of ones and no zero of others."""
    factor, addend = constants
    return (addend * factor ** np.arange(size)).astype(numpy_dtype("bfloat16")).view(np.uint32)


def tile_shapes() -> np.ndarray:
    """The 64 bytes of LDTILECFG: eight tiles of 16 rows of 64 bytes."""
    config = np.zeros(64, np.uint8)
    config[0] = 1  # palette
    config[16:32].view(np.uint16)[:] = _ROW_BYTES
    config[48:56] = _ROWS
    return config


def _plan(problem: Peak, a_trip: int, counts: int) -> tuple[int, int]:
    """(rounds, trips of a round) for the FLOPs, of which all threads do `a_trip` in a trip, where a sum grows by `counts`."""
    trips = -(-problem.flops // a_trip)
    rounds = -(-trips * counts // _EXACT)
    trips = -(-trips // rounds)
    if rounds * trips * a_trip > 1.05 * problem.flops:
        raise ValueError(f"{problem.flops} FLOPs are too few: a single trip of all threads' loops does {a_trip}")
    return rounds, trips


def require(problem: Peak | Matmul, *features: str) -> None:
    if problem.math != "bfloat16":
        raise ValueError(f"these instructions multiply bfloat16, not {problem.math}")
    missing = [name for name in features if not llvm.get_host_cpu_features().get(name)]
    if missing:
        raise ValueError(f"this CPU, or its system, has no {' and no '.join(missing)}")


@functools.cache
def tiles_allowed() -> bool:
    """Whether Linux lets this process use AMX's tiles; it must be asked once."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return False
    return ctypes.CDLL(None).syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) == 0


@kernel
def dot(problem: Peak, constants):
    """AVX-512's vdpbf16ps, twelve independent sums a thread: each of 16 lanes adds two products of pairs."""
    require(problem, "avx512f", "avx512bf16")
    a, b = _operands(constants, 32), _operands(constants, 32)
    sums = empty((numba.get_num_threads(), simd.CHAINS * 16), np.dtype(np.float32))
    total = np.zeros(sums.shape)
    rounds, trips = _plan(problem, 4 * sums.size * _UNROLL, 2 * _UNROLL)

    def run():
        _dot_peak(total, sums, a, b, rounds, trips)
        return total

    return run


@kernel
def tiles(problem: Peak, constants):
    """AMX's tdpbf16ps on six independent tiles a thread: 16 x 32 by 32 x 16 in an instruction, 16 cycles each."""
    require(problem, "amx-tile", "amx-bf16")
    if not tiles_allowed():
        raise ValueError("the kernel of this system does not let a process use AMX's tiles")
    a, b = (_operands(constants, _ROWS * _ROW_BYTES // 2) for _ in range(2))
    sums = empty((numba.get_num_threads(), _TILES * _ROWS * _ROW_BYTES // 4), np.dtype(np.float32))
    total = np.zeros(sums.shape)
    rounds, trips = _plan(problem, 2 * 32 * sums.size, 32)
    shapes, passes = tile_shapes(), max(1, len(sums) * _TILE_FLOPS_A_CALL // problem.flops)

    def run():
        _tile_peak(total, sums, a, b, shapes, passes, rounds, trips)
        return total

    run.passes = passes
    return run
