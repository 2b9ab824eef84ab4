"""The CPU's ceilings in bfloat16 with float32 sums: AVX-512's dot products and AMX's tiles, operands in registers."""

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic

from kernels.problems import Peak
from kernels.problems.arrays import empty, numpy_dtype
from kernels.registry import TimedCall, kernel, timed_call
from kernels.simd import emit
from kernels.simd.amx import ROW_BYTES, ROWS, require, tile_shapes, tiles_allowed

_UNROLL = 4
_EXACT = 1 << 24  # float32 counts up to here; then the sums are carried over into float64
_TILES = 6  # of sums; two more hold the operands
_TILE_FLOPS_A_CALL = 1 << 33  # a thread's, some 3 ms: starting the threads then takes no share that shows


@intrinsic
def _dots(typingctx, sums, a, b, trips):
    """A Numba intrinsic: `trips` x _UNROLL dot products of pairs on CHAINS vectors from 0, stored at `sums` (CHAINS * 16
    float32 values).

    a, b: arrays of 32 bfloat16 values as 16 words.
    """
    signature = types.void(sums, a, b, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the loop; Numba calls this with the LLVM values of the intrinsic's arguments."""
        _, _, _, trips = tuple(arguments)
        vector = ir.VectorType(ir.FloatType(), 16)
        words = ir.VectorType(ir.IntType(32), 16)
        target, *sources = emit.data_pointers(context, builder, signature, arguments, places=(0, 1, 2))
        operands = [builder.load(builder.bitcast(source, words.as_pointer()), align=4) for source in sources]
        multiply = emit.multiplier(builder, vector, words)
        slots = [cgutils.alloca_once_value(builder, ir.Constant(vector, None)) for _ in range(emit.CHAINS)]
        with cgutils.for_range(builder, trips):
            for _ in range(_UNROLL):
                for slot in slots:
                    builder.store(multiply(*operands, builder.load(slot)), slot)
        for i, slot in enumerate(slots):
            builder.store(builder.load(slot), emit.vector_pointer(builder, target, emit.INDEX(i * 16), vector), 4)
        return context.get_dummy_value()

    return signature, codegen


def _tile_code() -> str:
    """Assembly text that multiplies tiles `$0` times. Its operands: $0 the trips left, $1 where sums go, $2 A, $3 B, $4 the
    64 bytes of the tiles' shapes, $5 the bytes of a tile's row."""
    tiles = range(_TILES)
    lines = ["ldtilecfg ($4)"]
    lines += [f"tilezero %tmm{i}" for i in tiles]
    # Load: operands stay in the two tiles behind the sums.
    lines += [f"tileloadd ($2,$5,1), %tmm{_TILES}", f"tileloadd ($3,$5,1), %tmm{_TILES + 1}"]
    # Multiply.
    lines += ["1:"]
    lines += [f"tdpbf16ps %tmm{_TILES + 1}, %tmm{_TILES}, %tmm{i}" for i in tiles]
    lines += ["decq $0", "jnz 1b"]
    # Store.
    lines += [f"tilestored %tmm{i}, {i * ROWS * ROW_BYTES}($1,$5,1)" for i in tiles]
    lines += ["tilerelease"]
    return "\n".join(lines)


@intrinsic
def _tile_products(typingctx, sums, a, b, config, trips):
    """A Numba intrinsic: `trips` (at least 1) times 16 x 32 by 32 x 16 products into each of _TILES tiles from 0, stored at
    `sums`.

    a, b: a tile each, 1 KiB; config: the 64 bytes of LDTILECFG. All in one piece of assembly: the compiler, which knows
    nothing of tiles, can put nothing in between and needs no name of a chip to allow it.
    """
    signature = types.void(sums, a, b, config, types.intp)

    def codegen(context, builder: ir.IRBuilder, signature, arguments: list[ir.Value]) -> ir.Value:
        """Emits the assembly with its operands; Numba calls this with the LLVM values of the intrinsic's arguments."""
        *_, trips = tuple(arguments)
        pointers = emit.data_pointers(context, builder, signature, arguments, places=(0, 1, 2, 3))
        values = [*pointers, emit.INDEX(ROW_BYTES), trips]  # $1 to $5 of the code, and $0, which it counts down
        kind = ir.FunctionType(emit.INDEX, [value.type for value in values])
        constraints = "=&r,r,r,r,r,r,0,~{memory},~{flags}"
        builder.asm(kind, _tile_code(), constraints, values, side_effect=True)
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
def _tile_peak(
    total: np.ndarray,
    sums: np.ndarray,
    a: np.ndarray,
    b: np.ndarray,
    shapes: np.ndarray,
    passes: int,
    rounds: int,
    trips: int,
) -> None:
    """Each thread does `rounds` x `trips` products of tiles, `passes` times over, and adds them up in its row of `total`.
    Compiled by Numba.

    total, sums: threads x values of six tiles, float64 and float32. a, b: one tile each. shapes: the tiles' shapes for
    LDTILECFG.
    """
    for thread in numba.prange(total.shape[0]):
        for _ in range(passes):
            total[thread] = 0
            for _ in range(rounds):
                _tile_products(sums[thread], a, b, shapes, trips)
                total[thread] += sums[thread]


def _operands(constants: np.ndarray, size: int) -> np.ndarray:
    """`size` bfloat16 values as 32-bit words of two: the addend times the powers of the factor, so all ones of ones and no
    zero of others."""
    factor, addend = constants
    return (addend * factor ** np.arange(size)).astype(numpy_dtype("bfloat16")).view(np.uint32)


def _plan(problem: Peak, a_trip: int, counts: int) -> tuple[int, int]:
    """(rounds, trips of a round) that do at least the problem's FLOPs. After each round the float32 sums are carried over
    into float64, before they pass what float32 counts exactly.

    a_trip: FLOPs of all threads in a trip. counts: by how much a trip raises a sum of ones.
    Raises: ValueError where a whole number of trips would be more than 5 % too many FLOPs.
    """
    trips = -(-problem.flops // a_trip)
    rounds = -(-trips * counts // _EXACT)
    trips = -(-trips // rounds)
    if rounds * trips * a_trip > 1.05 * problem.flops:
        raise ValueError(f"{problem.flops} FLOPs are too few: a single trip of all threads' loops does {a_trip}")
    return rounds, trips


@kernel
def dot(problem: Peak, constants: np.ndarray) -> TimedCall:
    """AVX-512's vdpbf16ps, twelve independent sums a thread: each of 16 lanes adds two products of pairs.

    constants: the factor and the addend that the operands are made of. The result has a row for each thread, its lanes' sums.
    """
    require(problem, "avx512f", "avx512bf16")
    a = _operands(constants, 32)
    b = _operands(constants, 32)
    sums = empty((numba.get_num_threads(), emit.CHAINS * 16), np.dtype(np.float32))
    total = np.zeros(sums.shape)
    # A dot product of pairs is 4 FLOPs, and raises a sum of ones by 2.
    rounds, trips = _plan(problem, a_trip=4 * sums.size * _UNROLL, counts=2 * _UNROLL)

    return timed_call(_dot_peak, total, sums, a, b, rounds, trips, result=total)


@kernel
def tiles(problem: Peak, constants: np.ndarray) -> TimedCall:
    """AMX's tdpbf16ps on six independent tiles a thread: 16 x 32 by 32 x 16 in an instruction, 16 cycles each.

    constants: the factor and the addend that the operands are made of. The result has a row for each thread, its tiles' sums.
    """
    require(problem, "amx-tile", "amx-bf16")
    if not tiles_allowed():
        raise ValueError("the kernel of this system does not let a process use AMX's tiles")
    a = _operands(constants, ROWS * ROW_BYTES // 2)
    b = _operands(constants, ROWS * ROW_BYTES // 2)
    sums = empty((numba.get_num_threads(), _TILES * ROWS * ROW_BYTES // 4), np.dtype(np.float32))
    total = np.zeros(sums.shape)
    # A trip adds 32 products to each sum.
    rounds, trips = _plan(problem, a_trip=2 * 32 * sums.size, counts=32)
    passes = max(1, len(sums) * _TILE_FLOPS_A_CALL // problem.flops)

    run = timed_call(_tile_peak, total, sums, a, b, tile_shapes(), passes, rounds, trips, result=total)
    run.passes = passes
    return run
