"""Shared by the implicit GEMMs in CUDA C: refusals, the products of a direction, split-k, and the choice of tiles."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels import registry
from kernels.cuda import autotuner, conv_tiles, loader
from kernels.cuda.conv_tiles import Gather
from kernels.cuda.rows import Placed, in_place, placed
from kernels.cuda.tiles import Plan, traffic
from kernels.problems import Conv, Matmul
from kernels.problems.arrays import ARITHMETIC

THREADS = 256
_ROUND, _TEAMS = 64, 8  # of a `reduce`, as the .cu have them
_FEW_FILTERS = 1 << 16  # whose 16 parts leave multiprocessors idle


def refuse(problem: Conv, maths: tuple[str, ...], name: str) -> None:
    """Raises ValueError for other arithmetic, for arrays too large to count in 32 bits, and for another layout or groups."""
    if problem.math not in maths:
        raise ValueError(f"{name} convolves {' and '.join(maths)}, not {problem.math}")
    sizes = [int(np.prod(shape)) for shape in (problem.x_shape, problem.w_shape, problem.y_shape)]
    if max(sizes) >= conv_tiles.MOST_ITEMS // 8:  # channels may be padded, to 8 for 1
        raise ValueError(f"places are counted in 32 bits; an array here has {max(sizes)} items")
    if name != "direct" and (problem.layout != "NHWC" or problem.groups > 1):
        raise ValueError(f"{name} is for NHWC in one group, not for {problem.layout} in {problem.groups}")


def whole(channels: int, item_bytes: int) -> int:
    """The number of channels, rounded up to a multiple of 16 bytes."""
    return -(-channels * item_bytes // 16) * 16 // item_bytes


def widened(images) -> Placed:
    """The images, or a copy padded with zero channels. Every pixel then begins at a multiple of 16 bytes."""
    channels, wide = images.shape[-1], whole(images.shape[-1], images.dtype.itemsize)
    if images.dtype.itemsize == 4:
        pixels = placed(images.reshape(-1, channels))
        return pixels._replace(array=pixels.array.reshape(*images.shape[:-1], wide))
    if wide == channels and images.data.ptr % 16 == 0:
        return in_place(images)
    to = cupy.empty((*images.shape[:-1], wide), images.dtype)
    pieces = to.size // 8
    compiled, arguments = loader.load("conv/cuda_sums", "widen"), (images, to, np.int32(pieces), np.int32(channels))
    return Placed(to, wide, lambda: compiled((-(-pieces // THREADS),), (THREADS,), arguments))


def wide_filters(filters, channels: int):
    """Filters r x s x c_in x c_out, padded with zeros: as many input channels as the images have, output channels up to a
    multiple of 16 bytes."""
    *taps, c, k = filters.shape
    shape = (*taps, channels, whole(k, filters.dtype.itemsize))
    if shape == filters.shape and filters.data.ptr % 16 == 0:
        return filters
    wide = cupy.zeros(shape, filters.dtype)
    wide[:, :, :c, :k] = filters
    return wide


def product(problem: Conv, name: str, a, b) -> Callable | None:
    """1x1 filters at every pixel are a product of matrices as they lie, by the kernel of that name, which is asked for as any
    caller would: operations share no code. None for others, and a gradient of few: products split a sum in few parts."""
    few = problem.direction == "wgrad" and problem.c_in * problem.c_out < _FEW_FILTERS
    if few or (problem.r, problem.s, problem.stride, problem.pads) != (1, 1, 1, ((0, 0), (0, 0))):
        return None
    layout = {"fprop": "nn", "dgrad": "nt", "wgrad": "tn"}[problem.direction]
    of = Matmul(*problem.gemm, problem.dtype, problem.math, layout=layout)
    call = registry.find(f"matmul/cuda/{name}").bind(of, *(x.reshape(-1, x.shape[-1]) for x in (a, b)))
    run = registry.into(call().reshape(problem.out_shape), call)
    run.notes = call.notes
    return run


class Product(NamedTuple):
    """One implicit GEMM of a problem: the convolution, the two arrays that it reads, and the one that it writes. early: its
    blocks may start while those of the phase before it end."""

    problem: Conv
    of: Gather
    a: cupy.ndarray
    b: cupy.ndarray
    out: cupy.ndarray
    early: bool = False

    @property
    def wgrad(self) -> int:
        return int(self.problem.direction == "wgrad")

    @property
    def macros(self) -> dict[str, str | int]:
        """Macros of the .cu: the arithmetic of the tensor cores, and whether the direction is wgrad."""
        return {"WGRAD": self.wgrad, "TYPE": f'"{ARITHMETIC[self.problem.math].ptx}"'}

    def sides(self, whole: int = 1) -> tuple[int, int, int]:
        """Rows, columns and depth, the channels of a tap counted in multiples of `whole`."""
        taps = self.of.taps * -(-self.of.c // whole) * whole
        return (taps, self.of.k, self.of.pixels) if self.wgrad else (self.of.pixels, self.of.k, taps)


def products(
    problem: Conv, a, b, out, widen: Callable = widened, filters: Callable = wide_filters
) -> tuple[list[Product], list[Callable]]:
    """(the implicit GEMMs of a problem, the calls that must run before them). dgrad has one GEMM per phase, others have one.

    widen: gives images as the kernel reads them; filters: its filters for images of so many channels, made once here, as a
    library would hold them.
    """
    x = widen(a)
    c, before = x.array.shape[-1], [x.copy] if x.copy else []
    if problem.direction != "dgrad":
        y = widen(b) if problem.direction == "wgrad" else in_place(filters(b, c))
        before += [y.copy] if y.copy else []
        return [Product(problem, conv_tiles.gather(problem, c), x.array, y.array, out)], before
    phases = sorted(conv_tiles.phases(problem, c), key=lambda phase: -phase.of.taps)
    if len(phases) < min(problem.stride, problem.h) * min(problem.stride, problem.w):  # pixels that no tap reaches
        before.append(lambda: runtime.memsetAsync(out.data.ptr, 0, out.nbytes, cupy.cuda.get_current_stream().ptr))
    turned = [filters(cupy.ascontiguousarray(b[p.rows, p.columns].transpose(0, 1, 3, 2)), c) for p in phases]
    return [Product(problem, p.of, x.array, turned[i], out, i > 0) for i, p in enumerate(phases)], before


def _early() -> bool:
    """Whether programmatic dependent launch works: a kernel's blocks start while those of the one before end (Hopper on)."""
    return int(cupy.cuda.Device().compute_capability) >= 90


def added(on: Product, sums) -> Callable:
    """The call that adds the sums of split-k, parts x rows x columns: four neighbors per thread where rows divide by four,
    teams of 64 that divide the parts. Its blocks start while those that write the sums end."""
    split, rows, columns = sums.shape
    reduce = loader.load("conv/cuda_sums", "reduce", HALVES=int(on.out.dtype.itemsize == 2), **on.macros)
    blocks = -(-rows * columns // (4 if columns % 4 == 0 else 1) // _ROUND)
    arguments = (sums, on.out, on.of.passed, *map(np.int32, (rows, split, on.problem.c_in)))
    return loader.overlapping(reduce, blocks, _ROUND * max(1, min(split, _TEAMS)), arguments, early=_early())


def called(compiled, on: Product, plan: Plan, grid: tuple, shared: int, arguments: tuple, after) -> Callable:
    """The call of a kernel, followed by the call `after` it, if any. A phase that is not split starts early."""
    compiled.max_dynamic_shared_size_bytes, block = shared, (plan.of.threads,)
    launch = functools.partial(compiled, grid, block, arguments, shared_mem=shared)
    if on.early and plan.parts == 1:
        launch = loader.overlapping(compiled, grid[0], *block, arguments, shared, early=_early())

    def run():
        launch()
        if after:
            after()

    loads = traffic(on.a.dtype.itemsize, *((m + n, m * n) for m, n in (plan.of.tile, plan.of.unit)))
    run.notes = {"tiles": str(plan), "traffic": loads}
    return run


def call_of(file: str, on: Product, plan: Plan, macros: dict, *more) -> Callable:
    """The call of the file's `implicit_gemm` with those tiles, its sum split over so many blocks."""
    of, (m, n, _), sums, add = plan.of, on.sides(), on.out, None
    compiled = loader.load(file, "implicit_gemm", **of.macros(), **macros)
    if plan.parts > 1:
        sums = cupy.empty((plan.parts, m, n), np.float32)
        add = added(on, sums)
    counts = map(np.int32, (on.b.shape[-1], on.problem.c_in, of.group()))
    arguments = (on.a, on.b, on.out, sums, on.of.passed, *counts, *more)
    return called(compiled, on, plan, (of.count(m, n), plan.parts), of.shared_bytes(on.wgrad), arguments, add)


def fitting(tiles: Sequence, wgrad: int) -> list:
    """Those of the tiles that fit the shared memory of a thread block on this GPU."""
    limit = loader.attribute("MaxSharedMemoryPerBlockOptin")
    return [tile for tile in tiles if tile.shared_bytes(wgrad) <= limit]


def tuned(
    file: str, found: list[Product], before: list[Callable], forms: Sequence, call: Callable, out, whole: int = 1
) -> Callable:
    """What goes before, then each product by the fastest of its plans, as one call. Of the phases of a stride, which differ in
    their taps alone, the first, which has most, chooses the form of all."""
    calls, multiprocessors = list(before), loader.attribute("MultiProcessorCount")
    for on in found:
        plans = conv_tiles.plans(forms, *on.sides(whole), on.wgrad, multiprocessors)
        problem = f"{on.problem.math} {on.problem.direction} {'x'.join(map(str, on.of))}"
        calls.append(autotuner.tuned(file, problem, {str(plan): functools.partial(call, on, plan) for plan in plans}))
        forms = [of for of in forms if calls[-1].notes["tiles"].startswith(str(of))]

    def run():
        for call in calls:
            call()
        return out

    run.notes = calls[len(before)].notes if found else {}
    return run
