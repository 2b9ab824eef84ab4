"""The arithmetic ceilings of the GPU's tensor cores: products of tiles from registers or shared memory, nothing else."""

import cupy
import msgspec
import numpy as np

from kernels.cuda import loader
from kernels.problems import Peak
from kernels.problems.arrays import ARITHMETIC, HALVES, ITEM_BYTES, precision
from kernels.registry import TimedCall, kernel, timed_call

_MMA = ("float16", "bfloat16", "tf32", "float64")
_CHAINS = 8  # independent tiles of sums a warp, as peak/cupy_tensor.cu has them
_UNROLL = 4  # products of a tile in a trip of the loop
_THREADS = 256  # a block
_BLOCKS_A_MULTIPROCESSOR = 4
_LEAST_TRIPS = 20  # fewer would understate the rate by more than 5 %, as trips are rounded up
_MOST_TRIPS = 1 << 18  # so that a launch ends soon

_WGMMA = ("float16", "bfloat16", "tf32", "float8_e4m3")
_WGMMA_THREADS = 256  # a block: two warpgroups
_WGMMA_UNROLL = 4  # products in a trip of the loop


class _Mma(msgspec.Struct, frozen=True, kw_only=True):
    """A form of mma.sync: D (rows x 8) += A (rows x depth) B (depth x 8)."""

    #: Rows of A and of the sums.
    rows: int
    #: Steps of the sum in an instruction.
    depth: int
    #: PTX's type of the operands, and of the sums.
    operand: str
    total: str
    #: C's types of a register of operands and of a sum, and their letters in inline assembly.
    word: str
    sum: str
    word_letter: str
    sum_letter: str
    #: Registers of A, and sums, a lane.
    a_words: int
    sums: int

    @property
    def macros(self) -> dict[str, str | int]:
        """The compile-time constants of peak/cupy_tensor.cu for this form: types, register counts, and the instruction's
        name."""
        types = f"{self.total}.{self.operand}.{self.operand}.{self.total}"
        return {
            "WORD": self.word,
            "SUM": self.sum,
            "AS": f'"{self.word_letter}"',
            "TO": f'"{self.sum_letter}"',
            "A_WORDS": self.a_words,
            "SUMS": self.sums,
            "PACK": f"packed_{self.operand}",
            "MMA": f'"mma.sync.aligned.m{self.rows}n8k{self.depth}.row.col.{types}"',
        }


def _mma(math: str, capability: int) -> _Mma:
    """The largest form of mma.sync for the arithmetic `math` on a GPU of that compute capability (80 is 8.0). Sums are
    float32, or float64 of float64; operands are 32 bytes deep, of float64 128, which before Hopper has only a small form."""
    if math != "float64":
        return _Mma(
            rows=16,
            depth=_depth(math),
            operand=ARITHMETIC[math].ptx,
            total="f32",
            word="unsigned",
            sum="float",
            word_letter="r",
            sum_letter="f",
            a_words=4,
            sums=4,
        )
    large = _Mma(
        rows=16,
        depth=16,
        operand="f64",
        total="f64",
        word="double",
        sum="double",
        word_letter="d",
        sum_letter="d",
        a_words=8,
        sums=4,
    )
    if capability < 90:
        return msgspec.structs.replace(large, rows=8, depth=4, a_words=1, sums=2)
    return large


def _trips(problem: Peak, a_trip: int) -> int:
    """Loop trips that do at least the problem's FLOPs, if the whole grid does `a_trip` FLOPs in a trip.

    Raises: ValueError where those are too few for an exact rate or too many for a short launch.
    """
    trips = -(-problem.flops // a_trip)
    if not _LEAST_TRIPS <= trips <= _MOST_TRIPS:
        raise ValueError(
            f"{problem.flops} FLOPs are too few or too many for one launch; from {_LEAST_TRIPS * a_trip} to "
            f"{_MOST_TRIPS * a_trip} here"
        )
    return trips


def _depth(math: str) -> int:
    """Steps of the sum in an instruction."""
    return 32 // ITEM_BYTES[precision(math)[0]]


def _bound(
    compiled: "cupy.RawKernel", out: cupy.ndarray, constants: cupy.ndarray, *, trips: int, blocks: int, threads: int
) -> TimedCall:
    """The timed call that launches a compiled kernel of tensor-core products, which writes its sums to `out`.

    constants: the first, the factor, is what the operands are made of.
    """
    arguments = (out, float(cupy.asnumpy(constants)[0]), np.int32(trips))
    return timed_call(compiled, (blocks,), (threads,), arguments, result=out)


@kernel
def tensor(problem: Peak, constants: cupy.ndarray) -> TimedCall:
    """mma.sync on every warp, eight independent tiles each, operands in registers: the form that all GPUs since Ampere have.

    constants: the factor, of which the operands are made, and an addend that is not used. The result has each tile's sums.
    """
    if problem.math not in _MMA:
        raise ValueError(f"mma.sync has no {problem.math}; this kernel has {', '.join(_MMA)}")
    loader.require_capability(80)
    form = _mma(problem.math, int(cupy.cuda.Device().compute_capability))
    compiled = loader.compile_kernel("peak/cupy_tensor", "mma_chains", **form.macros)
    blocks = loader.attribute("MultiProcessorCount") * _BLOCKS_A_MULTIPROCESSOR
    warps = blocks * _THREADS // 32
    instruction_flops = 2 * form.rows * 8 * form.depth
    trips = _trips(problem, a_trip=instruction_flops * warps * _CHAINS * _UNROLL)
    dtype = np.float64 if problem.math == "float64" else np.float32
    out = cupy.empty((_CHAINS * form.sums, blocks * _THREADS), dtype)
    return _bound(compiled, out, constants, trips=trips, blocks=blocks, threads=_THREADS)


@kernel
def wgmma(problem: Peak, constants: cupy.ndarray) -> TimedCall:
    """wgmma on two warpgroups a multiprocessor, 64 x 256 tiles from shared memory: the only form at Hopper's full rate.

    constants: the factor, of which the operands are made, and an addend that is not used. The result has each thread's 128
    sums.
    """
    if problem.math not in _WGMMA:
        raise ValueError(f"wgmma has no {problem.math}; this kernel has {', '.join(_WGMMA)}")
    loader.require_capability(90, only=True)  # wgmma is Hopper's alone
    kind = ARITHMETIC[problem.math].ptx
    depth = _depth(problem.math)
    compiled = loader.compile_kernel(
        "peak/cupy_wgmma",
        "wgmma_chain",
        _arch="sm_90a",
        FLAGS=f'"p, 1, 1{", 0, 0" if problem.math in HALVES else ""}"',
        PACK=f"packed_{kind}",
        WGMMA=f'"wgmma.mma_async.sync.aligned.m64n256k{depth}.f32.{kind}.{kind}"',
    )
    blocks = loader.attribute("MultiProcessorCount")
    groups = blocks * _WGMMA_THREADS // 128  # warpgroups
    instruction_flops = 2 * 64 * 256 * depth
    trips = _trips(problem, a_trip=instruction_flops * groups * _WGMMA_UNROLL)
    sums_of_a_thread = 128
    out = cupy.empty((sums_of_a_thread, blocks * _WGMMA_THREADS), np.float32)
    return _bound(compiled, out, constants, trips=trips, blocks=blocks, threads=_WGMMA_THREADS)
