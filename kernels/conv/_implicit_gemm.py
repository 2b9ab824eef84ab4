"""Shared by the implicit GEMMs in CUDA C: refusals, the products of a direction, split-k, and the choice of tiles."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels import registry
from kernels.cuda import autotuner, conv_tiles, loader
from kernels.cuda.conv_tiles import ConvTensors, ConvWarps, Gather
from kernels.cuda.rows import Placed, aligned, in_place
from kernels.cuda.tiles import TilePlan, lines_and_results, traffic
from kernels.problems import Conv, Matmul
from kernels.problems.arrays import ARITHMETIC
from kernels.registry import TimedCall

#: Threads of a block of `widen` and of `direct`, as the .cu have them.
THREADS = 256
#: Threads that add neighbors in a block of `reduce`, as implicit_gemm.cuh has them.
_ROUND = 64
#: Most teams of so many threads in a block of `reduce`; they share the parts.
_TEAMS = 8
#: Filters of a gradient that are few: a sum in 16 parts leaves multiprocessors idle.
_FEW_FILTERS = 1 << 16


def refuse(problem: Conv, maths: tuple[str, ...], name: str) -> None:
    """Raises ValueError for arithmetic that is not in `maths`, for arrays too large to count in 32 bits, and (but for the
    kernel `direct`) for another layout than NHWC or several groups.

    name: the kernel's, for the message.
    """
    if problem.math not in maths:
        raise ValueError(f"{name} convolves {' and '.join(maths)}, not {problem.math}")
    most_items = max(math.prod(shape) for shape in (problem.x_shape, problem.w_shape, problem.y_shape))
    if most_items >= conv_tiles.MOST_ITEMS // 8:  # channels may be padded, to 8 for 1
        raise ValueError(f"places are counted in 32 bits; an array here has {most_items} items")
    if name != "direct" and (problem.layout != "NHWC" or problem.groups > 1):
        raise ValueError(f"{name} is for NHWC in one group, not for {problem.layout} in {problem.groups}")


def padded_channels(channels: int, item_bytes: int) -> int:
    """The number of channels rounded up so that a pixel's channels, of `item_bytes` each, fill a multiple of 16 bytes."""
    return -(-channels * item_bytes // 16) * 16 // item_bytes


def widened(images: cupy.ndarray) -> Placed:
    """The images (n x h x w x channels), or a copy padded with zero channels, filled anew in each call: every pixel begins at
    a multiple of 16 bytes."""
    channels = images.shape[-1]
    wide = padded_channels(channels, images.dtype.itemsize)
    if images.dtype.itemsize == 4:
        pixels = aligned(images.reshape(-1, channels))
        return pixels._replace(array=pixels.array.reshape(*images.shape[:-1], wide))
    if wide == channels and images.data.ptr % 16 == 0:
        return in_place(images)
    wide_images = cupy.empty((*images.shape[:-1], wide), images.dtype)
    pieces = wide_images.size // 8
    compiled = loader.compile_kernel("conv/cuda_sums", "widen")
    arguments = (images, wide_images, np.int32(pieces), np.int32(channels))
    grid = (-(-pieces // THREADS),)
    return Placed(array=wide_images, pitch=wide, copy=lambda: compiled(grid, (THREADS,), arguments))


def wide_filters(filters: cupy.ndarray, channels: int) -> cupy.ndarray:
    """Filters of r x s x c_in x c_out padded with zeros: to `channels` input channels, as many as the images have, and to
    output channels that fill a multiple of 16 bytes."""
    c_in, c_out = filters.shape[2:]
    shape = (*filters.shape[:2], channels, padded_channels(c_out, filters.dtype.itemsize))
    if shape == filters.shape and filters.data.ptr % 16 == 0:
        return filters
    wide = cupy.zeros(shape, filters.dtype)
    wide[:, :, :c_in, :c_out] = filters
    return wide


def matrix_product(problem: Conv, name: str, a: cupy.ndarray, b: cupy.ndarray) -> TimedCall | None:
    """The convolution as one matrix product by the matmul kernel `name`, if its filters are 1 x 1 at every pixel; else None.

    Such images and filters are matrices as they lie. The kernel is bound through the registry, as operations share no code.
    Also None for a gradient of few filters: the matmul kernel splits a long sum into too few parts.
    """
    is_pointwise = (problem.r, problem.s, problem.stride, problem.pads) == (1, 1, 1, ((0, 0), (0, 0)))
    has_few_filters = problem.direction == "wgrad" and problem.c_in * problem.c_out < _FEW_FILTERS
    if has_few_filters or not is_pointwise:
        return None
    layout = {"fprop": "nn", "dgrad": "nt", "wgrad": "tn"}[problem.direction]
    product = Matmul(*problem.gemm, dtype=problem.dtype, math=problem.math, layout=layout)
    left = a.reshape(-1, a.shape[-1])
    right = b.reshape(-1, b.shape[-1])
    call = registry.find(f"matmul/cuda/{name}").bind(product, left, right)
    run = registry.timed_call(call, result=call().reshape(problem.out_shape))
    run.notes = call.notes
    return run


class Product(NamedTuple):
    """One implicit GEMM of a problem."""

    #: The convolution.
    problem: Conv
    #: Its sizes as the kernel reads them.
    gather: Gather
    #: The images that are read.
    a: cupy.ndarray
    #: The filters, of wgrad the gradients of the output.
    b: cupy.ndarray
    #: What is written.
    out: cupy.ndarray
    #: Whether its blocks may start while those of the phase before it end.
    early: bool = False

    @property
    def wgrad(self) -> int:
        return int(self.problem.direction == "wgrad")

    @property
    def macros(self) -> dict[str, str | int]:
        """Macros of the .cu: the arithmetic of the tensor cores, and whether the direction is wgrad."""
        return {"WGRAD": self.wgrad, "TYPE": f'"{ARITHMETIC[self.problem.math].ptx}"'}

    def sides(self, channel_multiple: int = 1) -> tuple[int, int, int]:
        """(rows, columns, depth of the sum) of the matrix product, with the channels of a tap rounded up to a multiple of
        `channel_multiple`."""
        channels = -(-self.gather.c // channel_multiple) * channel_multiple
        taps = self.gather.taps * channels
        if self.wgrad:
            return taps, self.gather.k, self.gather.pixels
        return self.gather.pixels, self.gather.k, taps


class ImplicitGemms(NamedTuple):
    """What computes a convolution."""

    #: The products: of dgrad one for each phase of the stride, the one with most taps first; else a single one.
    products: list[Product]
    #: The calls that must run before them, in every timed call: copies of operands, or zeros for pixels in no phase.
    before: list[Callable[[], None]]


def implicit_products(
    problem: Conv,
    a: cupy.ndarray,
    b: cupy.ndarray,
    *,
    out: cupy.ndarray,
    widen: Callable[[cupy.ndarray], Placed] = widened,
    filters: Callable[[cupy.ndarray, int], cupy.ndarray] = wide_filters,
) -> ImplicitGemms:
    """The implicit GEMMs of a problem, and the copies that must run before them.

    a, b: the operands, shaped as problem.operand_shapes says.
    out: where the result goes.
    widen: images -> the images as the kernel reads them.
    filters: (filters, channels of the images) -> filters as the kernel reads them; called once here, as a library would keep
    them.
    """
    images = widen(a)
    before = [images.copy] if images.copy else []
    channels = images.array.shape[-1]
    if problem.direction == "dgrad":
        return _phase_products(problem, images.array, b, out=out, filters=filters, before=before)
    if problem.direction == "wgrad":
        gradients = widen(b)
        if gradients.copy:
            before.append(gradients.copy)
        factor = gradients.array
    else:
        factor = filters(b, channels)
    product = Product(problem=problem, gather=conv_tiles.gather(problem, channels), a=images.array, b=factor, out=out)
    return ImplicitGemms(products=[product], before=before)


def _phase_products(
    problem: Conv,
    gradients: cupy.ndarray,
    w: cupy.ndarray,
    *,
    out: cupy.ndarray,
    filters: Callable[[cupy.ndarray, int], cupy.ndarray],
    before: list[Callable],
) -> ImplicitGemms:
    """The implicit GEMMs of dgrad, one for each phase: the pixels of dx at one position within a stride, which meet the same
    taps.

    gradients: dy as the kernel reads it.
    filters: (filters, channels of dy) -> filters as the kernel reads them.
    before: calls that must run first; one that zeroes `out` is added if some pixels are in no phase.
    """
    channels = gradients.shape[-1]
    phases = sorted(conv_tiles.phases(problem, channels), key=lambda phase: -phase.gather.taps)
    if len(phases) < min(problem.stride, problem.h) * min(problem.stride, problem.w):  # pixels that no tap reaches
        before.append(lambda: runtime.memsetAsync(out.data.ptr, 0, out.nbytes, cupy.cuda.get_current_stream().ptr))
    products = []
    for number, phase in enumerate(phases):
        taps = w[phase.rows, phase.columns].transpose(0, 1, 3, 2)
        product = Product(
            problem=problem,
            gather=phase.gather,
            a=gradients,
            b=filters(cupy.ascontiguousarray(taps), channels),
            out=out,
            early=number > 0,
        )
        products.append(product)
    return ImplicitGemms(products=products, before=before)


def _can_start_early() -> bool:
    """Whether programmatic dependent launch works: a kernel's blocks start while those of the one before end (Hopper on)."""
    return int(cupy.cuda.Device().compute_capability) >= 90


def adding_parts(product: Product, sums: cupy.ndarray) -> Callable[[], None]:
    """The call that adds the partial sums of split-k and writes the product's result.

    sums: parts x rows x columns. A thread adds four neighbors if columns divide by four, else one; up to eight teams of 64
    threads share the parts. Its blocks start while those that write the sums end.
    """
    parts = len(sums)
    rows, columns = sums.shape[1:]
    reduce = loader.compile_kernel(
        "conv/cuda_sums", "reduce", HALVES=int(product.out.dtype.itemsize == 2), **product.macros
    )
    sums_of_a_thread = 4 if columns % 4 == 0 else 1
    blocks = -(-rows * columns // sums_of_a_thread // _ROUND)
    threads = _ROUND * max(1, min(parts, _TEAMS))
    sizes = (rows, parts, product.problem.c_in)
    arguments = (sums, product.out, product.gather.passed, *map(np.int32, sizes))
    return loader.overlapping(reduce, blocks, threads, arguments, early=_can_start_early())


def launch_of(
    compiled: "cupy.RawKernel",
    product: Product,
    plan: TilePlan,
    *,
    grid: tuple[int, ...],
    shared_bytes: int,
    arguments: tuple,
    after: Callable[[], None] | None = None,
) -> Callable[[], None]:
    """The call that launches a compiled kernel and then calls `after`, if there is one. A phase of dgrad that is not split
    starts while the phase before it ends."""
    compiled.max_dynamic_shared_size_bytes = shared_bytes
    threads = plan.tiles.threads
    if product.early and plan.parts == 1:
        launch = loader.overlapping(
            compiled, grid[0], threads, arguments, shared_bytes=shared_bytes, early=_can_start_early()
        )
    else:
        launch = functools.partial(compiled, grid, (threads,), arguments, shared_mem=shared_bytes)

    def run():
        launch()
        if after:
            after()

    block_loads = lines_and_results(*plan.tiles.tile)
    unit_loads = lines_and_results(*plan.tiles.unit)
    run.notes = {"tiles": str(plan), "traffic": traffic(product.a.dtype.itemsize, block_loads, unit_loads)}
    return run


def implicit_gemm_call(
    file: str, product: Product, plan: TilePlan, *more: np.generic, macros: Mapping[str, str | int]
) -> Callable[[], None]:
    """The call of the kernel `implicit_gemm` in kernels/<file>.cu by that plan; with split-k the partial sums are then added.

    more: the kernel's last arguments. macros: compile-time constants beside the tiles' own.
    """
    tiles = plan.tiles
    rows, columns, _ = product.sides()
    compiled = loader.compile_kernel(file, "implicit_gemm", **tiles.macros(), **macros)
    sums = product.out
    after = None
    if plan.parts > 1:
        sums = cupy.empty((plan.parts, rows, columns), np.float32)
        after = adding_parts(product, sums)
    sizes = (product.b.shape[-1], product.problem.c_in, tiles.group())
    arguments = (
        product.a,
        product.b,
        product.out,
        sums,
        product.gather.passed,
        *map(np.int32, sizes),
        *more,
    )
    grid = (tiles.count(rows, columns), plan.parts)
    shared_bytes = tiles.shared_bytes(product.wgrad)
    return launch_of(compiled, product, plan, grid=grid, shared_bytes=shared_bytes, arguments=arguments, after=after)


def fitting(tiles: Sequence[ConvWarps | ConvTensors], wgrad: bool) -> list:
    """The tiles that fit the shared memory of a thread block on this GPU, for wgrad or for the other directions."""
    limit = loader.attribute("MaxSharedMemoryPerBlockOptin")
    return [tile for tile in tiles if tile.shared_bytes(wgrad) <= limit]


def tuned(
    file: str,
    gemms: ImplicitGemms,
    forms: Sequence,
    call: Callable[[Product, TilePlan], Callable],
    *,
    out: cupy.ndarray,
    channel_multiple: int = 1,
) -> TimedCall:
    """The timed call: what must run before, then each product by the fastest of its plans, timed here. It returns `out`.

    Of dgrad's phases, which differ in their taps alone, the first, which has most taps, chooses the tiles of all.
    file: the kernel's source, for the key under which the choice is stored.
    forms: the tiles to choose from.
    call: makes the call of a product by a plan.
    channel_multiple: channels of a tap are rounded up to a multiple of it.
    """
    products, before = gemms
    multiprocessors = loader.attribute("MultiProcessorCount")
    product_calls: list[Callable] = []
    for product in products:
        m, n, k = product.sides(channel_multiple)
        sizes = "x".join(map(str, product.gather))
        problem = f"{product.problem.math} {product.problem.direction} {sizes}"
        ranked = conv_tiles.plans(forms, m, n, k, wgrad=product.wgrad, multiprocessors=multiprocessors)
        plans = {str(plan): plan for plan in ranked}
        candidates = {name: functools.partial(call, product, plan) for name, plan in plans.items()}
        fastest = autotuner.tuned(file, problem, candidates)
        product_calls.append(fastest)
        forms = [plans[fastest.notes["tiles"]].tiles]
    calls = [*before, *product_calls]

    def run():
        for step in calls:
            step()
        return out

    run.notes = product_calls[0].notes if product_calls else {}
    return run
