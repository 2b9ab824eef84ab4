"""Convolution in CUDA C, float32: plain loops, and implicit GEMM, which reads the images as a matrix that nobody writes."""

import functools
from collections.abc import Callable

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import autotuner, conv_tiles, loader
from kernels.cuda.conv_tiles import Gather, Warps
from kernels.problems import Conv
from kernels.registry import kernel

_THREADS = 256
_ROUND, _TEAMS = 64, 8  # of a `reduce`, as the .cu have them
# Products of a call, and of one output (one thread's loop), from which a call would take most of a second.
_MOST_DIRECT, _MOST_OF_ONE = 1 << 37, 1 << 20


def refuse(problem: Conv, maths: tuple[str, ...], name: str) -> None:
    """Raises ValueError for what no kernel here does, and for what an implicit GEMM does not."""
    if problem.math not in maths:
        raise ValueError(f"{name} convolves {' and '.join(maths)}, not {problem.math}")
    sizes = [int(np.prod(shape)) for shape in (problem.x_shape, problem.w_shape, problem.y_shape)]
    if max(sizes) >= conv_tiles.MOST_ITEMS // 8:  # channels may be padded, to 8 for 1
        raise ValueError(f"places are counted in 32 bits; an array here has {max(sizes)} items")
    if name != "direct" and (problem.layout != "NHWC" or problem.groups > 1):
        raise ValueError(f"{name} is for NHWC in one group, not for {problem.layout} in {problem.groups}")


@kernel
def direct(problem: Conv, a, b):
    refuse(problem, ("float32",), "direct")
    depth = problem.gemm[2]
    if problem.flops // 2 > _MOST_DIRECT or depth > _MOST_OF_ONE:
        raise ValueError(f"{problem.flops // 2:.3g} products, {depth} an output: this kernel would take seconds a call")
    (top, _), (left, _) = problem.pads
    loops = np.array(
        [
            problem.n,
            problem.h,
            problem.w,
            problem.c_in,
            problem.p,
            problem.q,
            problem.c_out,
            problem.r,
            problem.s,
            problem.stride,
            top,
            left,
            problem.groups,
            problem.layout == "NHWC",
        ],
        np.int32,
    )
    out = cupy.empty(problem.out_shape, np.float32)
    compiled, grid = loader.load("conv/cuda", "direct"), (-(-out.size // _THREADS),)
    way = problem.DIRECTIONS.index(problem.direction)
    arguments = (a, b, out, loops.view(f"V{loops.nbytes}"), np.int32(way), np.int32(out.size))

    def run():
        compiled(grid, (_THREADS,), arguments)
        return out

    return run


def filters_of(phase: conv_tiles.Phase, b):
    """The filter of a phase of dgrad as the product wants it: its taps as they are met, c_out x c_in each."""
    return cupy.ascontiguousarray(b[phase.rows, phase.columns].transpose(0, 1, 3, 2))


def cleared(problem: Conv, phases: list[conv_tiles.Phase], out) -> list[Callable]:
    """The call that goes before those phases of dgrad where there are pixels that no tap reaches: all becomes zero."""
    if len(phases) == min(problem.stride, problem.h) * min(problem.stride, problem.w):
        return []
    return [lambda: runtime.memsetAsync(out.data.ptr, 0, out.nbytes, cupy.cuda.get_current_stream().ptr)]


def products(problem: Conv, b, out) -> tuple[list[tuple[Gather, object]], list[Callable]]:
    """The products that the problem comes to, one or dgrad's phases, with the second operand of each; and what goes before them.
    Filters are turned here, once: a library holds them as it wants them too."""
    if problem.direction != "dgrad":
        return [(conv_tiles.gather(problem), b)], []
    phases = conv_tiles.phases(problem)
    return [(phase.of, filters_of(phase, b)) for phase in phases], cleared(problem, phases, out)


def one_after_another(calls: list[Callable], out) -> Callable:
    """The calls as one, which gives `out`; its notes are those of the first that has some."""

    def run():
        for call in calls:
            call()
        return out

    run.notes = next((call.notes for call in calls if hasattr(call, "notes")), {})
    return run


def adding(rows: int, columns: int, parts: int) -> tuple[tuple[int], tuple[int]]:
    """Blocks and threads of a `reduce`: four neighbors a thread where rows have fours, teams of 64 that share the parts out."""
    return (-(-rows * columns // (4 if columns % 4 == 0 else 1) // _ROUND),), (_ROUND * max(1, min(parts, _TEAMS)),)


def reducer(of: Gather, rows: int, parts: int, sums, out) -> Callable:
    """The call that adds `parts` partial sums of rows x of.k items. wgrad's rows follow each other as fprop's do."""
    compiled, (grid, block) = loader.load("conv/cuda", "reduce"), adding(rows, of.k, parts)
    arguments = (sums, out, of.passed, np.int32(rows), np.int32(parts))
    return lambda: compiled(grid, block, arguments)


def workspace(rows: int, columns: int, parts: int):
    """Room for partial sums, or for none."""
    return cupy.empty((parts, rows, columns), np.float32) if parts > 1 else None


def sides(of: Gather, wgrad: bool) -> tuple[int, int, int]:
    """Rows, columns and depth of the product."""
    taps = of.taps * of.c
    return (taps, of.k, of.pixels) if wgrad else (of.pixels, of.k, taps)


def in_fours(channels: int, images) -> bool:
    """Whether implicit_gemm copies them 16 bytes at a time: every piece lies in one pixel and begins on 16 bytes."""
    return channels % 4 == 0 and images.data.ptr % 16 == 0


def call(of: Gather, wgrad: bool, tile: Warps, parts: int, a, b, out) -> Callable:
    """The call of implicit_gemm with those tiles, its sum in so many parts."""
    m, n, _ = sides(of, wgrad)
    vectors = {"VECTOR_A": int(in_fours(of.c, a)), "VECTOR_B": int(in_fours(n, b))}
    macros = conv_tiles.macros(tile) | {"WGRAD": int(wgrad), **vectors}
    compiled, shared = loader.load("conv/cuda", "implicit_gemm", **macros), tile.shared_bytes(wgrad)
    compiled.max_dynamic_shared_size_bytes = shared
    grid = (-(-m // tile.tile_m) * -(-n // tile.tile_n), parts)
    sums, group = workspace(m, n, parts), max(1, conv_tiles.GROUP_ROWS // tile.tile_m)
    arguments = (a, b, out if sums is None else sums, of.passed, np.int32(group), np.float32(1))
    add = None if sums is None else reducer(of, m, parts, sums, out)

    def run():
        compiled(grid, (tile.threads,), arguments, shared_mem=shared)
        if add:
            add()
        return out

    run.notes = {"tiles": f"{tile} parts={parts}"}
    return run


def candidates(of: Gather, wgrad: bool, a, b, out) -> dict[str, Callable[[], Callable]]:
    """The tiles and parts that are worth a try, by name."""
    attributes = cupy.cuda.Device().attributes
    m, n, k = sides(of, wgrad)
    limit, multiprocessors = attributes["MaxSharedMemoryPerBlockOptin"], attributes["MultiProcessorCount"]
    fitting = [t for t in conv_tiles.WARPS if t.shared_bytes(wgrad) <= limit]
    if wgrad and not in_fours(of.c, a):  # a thread fetches single rows of the tile, at least one of every line
        fitting = [t for t in fitting if t.tile_m <= t.threads]
    found: dict[str, Callable[[], Callable]] = {}
    for tile in [t for t in fitting if t.tile_n <= 2 * max(16, n)] or fitting:  # little of it lies beyond the product
        tiles = -(-m // tile.tile_m) * -(-n // tile.tile_n)
        for parts in conv_tiles.splits(tiles, -(-k // tile.deep), tile.blocks * multiprocessors, m * n):
            found[f"{tile} parts={parts}"] = functools.partial(call, of, wgrad, tile, parts, a, b, out)
    return found


def gpu_name() -> str:
    """The GPU at hand, as its driver calls it."""
    return runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()


def fastest(source: str, problem: Conv, of: Gather, calls: dict[str, Callable[[], Callable]]) -> Callable:
    """The fastest of the calls on this GPU, timed when the product is first met here."""
    if not calls:
        raise ValueError("a block of this GPU has too little shared memory for the smallest tiles")
    name = f"{problem.math} {problem.direction} {'x'.join(map(str, of))}"
    return calls[autotuner.fastest(gpu_name(), source, name, calls)]()


@kernel
def implicit_gemm(problem: Conv, a, b):
    refuse(problem, ("float32",), "implicit_gemm")
    out = cupy.empty(problem.out_shape, np.float32)
    found, before = products(problem, b, out)
    wgrad = problem.direction == "wgrad"
    calls = [fastest("conv/cuda", problem, of, candidates(of, wgrad, a, second, out)) for of, second in found]
    return one_after_another([*before, *calls], out)
