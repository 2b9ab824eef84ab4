"""What the implicit GEMMs in CUDA C share: what they refuse, the products of a direction, split-k, and the choice of tiles."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import autotuner, conv_tiles, loader
from kernels.cuda.conv_tiles import Gather
from kernels.cuda.tiles import Tiles, splits
from kernels.problems import Conv
from kernels.problems.arrays import ARITHMETIC

THREADS = 256
_ROUND, _TEAMS = 64, 8  # of a `reduce`, as the .cu have them


def refuse(problem: Conv, maths: tuple[str, ...], name: str) -> None:
    """Raises: ValueError for other arithmetic, arrays too large to count in 32 bits, and another layout or groups."""
    if problem.math not in maths:
        raise ValueError(f"{name} convolves {' and '.join(maths)}, not {problem.math}")
    sizes = [int(np.prod(shape)) for shape in (problem.x_shape, problem.w_shape, problem.y_shape)]
    if max(sizes) >= conv_tiles.MOST_ITEMS // 8:  # channels may be padded, to 8 for 1
        raise ValueError(f"places are counted in 32 bits; an array here has {max(sizes)} items")
    if name != "direct" and (problem.layout != "NHWC" or problem.groups > 1):
        raise ValueError(f"{name} is for NHWC in one group, not for {problem.layout} in {problem.groups}")


class Widened(NamedTuple):
    """Images as a kernel reads them, and the call that copies them there each time (None: they lie so already)."""

    array: cupy.ndarray
    copy: Callable | None = None


def eights(channels: int) -> int:
    """The number of channels rounded up to a multiple of 8: 16 bytes of bfloat16."""
    return -(-channels // 8) * 8


def widened(images) -> Widened:
    """The images themselves, or a copy with channels of zeros beside theirs, so that they come in eights."""
    channels, wide = images.shape[-1], eights(images.shape[-1])
    if wide == channels and images.data.ptr % 16 == 0:
        return Widened(images)
    to = cupy.empty((*images.shape[:-1], wide), images.dtype)
    pieces = to.size // 8
    compiled, arguments = loader.load("conv/cuda_tensor", "widen"), (images, to, np.int32(pieces), np.int32(channels))
    return Widened(to, lambda: compiled((-(-pieces // THREADS),), (THREADS,), arguments))


class Product(NamedTuple):
    """One implicit GEMM of a problem: the convolution, the arrays that it reads and the one that it writes."""

    problem: Conv
    of: Gather
    a: cupy.ndarray
    b: cupy.ndarray
    out: cupy.ndarray

    @property
    def wgrad(self) -> int:
        return int(self.problem.direction == "wgrad")

    @property
    def macros(self) -> dict[str, str | int]:
        """The arithmetic of tensor cores, and whether it is wgrad."""
        return {"WGRAD": self.wgrad, "TYPE": f'"{ARITHMETIC[self.problem.math].ptx}"'}

    def sides(self, whole: int = 1) -> tuple[int, int, int]:
        """Rows, columns and depth, the channels of a tap counted in multiples of `whole`."""
        taps = self.of.taps * -(-self.of.c // whole) * whole
        return (taps, self.of.k, self.of.pixels) if self.wgrad else (self.of.pixels, self.of.k, taps)


def products(
    problem: Conv, a, b, out, widen: Callable = Widened, filters: Callable = lambda b: b
) -> tuple[list[Product], list[Callable]]:
    """The implicit GEMMs of a problem (one, or a phase each of dgrad), and the calls that go before them.

    widen: gives images as the kernel reads them; filters: its filters, made once here, as a library would hold them.
    """
    x = widen(a)
    c, before = x.array.shape[-1], [x.copy] if x.copy else []
    if problem.direction == "wgrad":
        y = widen(b)
        return [Product(problem, conv_tiles.gather(problem, c), x.array, y.array, out)], before + [y.copy] * bool(
            y.copy
        )
    if problem.direction == "fprop":
        return [Product(problem, conv_tiles.gather(problem, c), x.array, filters(b), out)], before
    phases = conv_tiles.phases(problem, c)
    if len(phases) < min(problem.stride, problem.h) * min(problem.stride, problem.w):  # pixels that no tap reaches
        before.append(lambda: runtime.memsetAsync(out.data.ptr, 0, out.nbytes, cupy.cuda.get_current_stream().ptr))
    turned = [filters(cupy.ascontiguousarray(b[p.rows, p.columns].transpose(0, 1, 3, 2))) for p in phases]
    return [Product(problem, p.of, x.array, w, out) for p, w in zip(phases, turned, strict=True)], before


def workspace(rows: int, columns: int, split: int):
    """A float32 array, split x rows x columns, for the partial sums of split-k; None where k is not split."""
    return cupy.empty((split, rows, columns), np.float32) if split > 1 else None


def adder(compiled, rows: int, columns: int, split: int, arguments: tuple) -> Callable:
    """The call of a `reduce`: four neighbors a thread where rows have fours, teams of 64 that share the partial sums out."""
    grid = (-(-rows * columns // (4 if columns % 4 == 0 else 1) // _ROUND),)
    block = (_ROUND * max(1, min(split, _TEAMS)),)
    return lambda: compiled(grid, block, arguments)


def name(tile: Tiles, split: int) -> str:
    return f"{tile} split-k={split}"


def called(compiled, grid: tuple, tile, shared: int, arguments: tuple, after: Callable | None, notes: str) -> Callable:
    """The call of a kernel, then what comes after it."""
    compiled.max_dynamic_shared_size_bytes = shared

    def run():
        compiled(grid, (tile.threads,), arguments, shared_mem=shared)
        if after:
            after()

    run.notes = {"tiles": notes}
    return run


def candidates(
    on: Product, sides: tuple[int, int, int], tiles: Sequence, narrowest: int, call: Callable
) -> dict[str, Callable[[], Callable]]:
    """The tiles and splits of the sum that are worth a try, by name; of tiles wider than `narrowest` those that lie for the most
    part in the product."""
    m, n, k = sides
    multiprocessors = loader.attribute("MultiProcessorCount")
    found: dict[str, Callable[[], Callable]] = {}
    for tile in [t for t in tiles if t.tile[1] <= max(narrowest, 2 * n)] or tiles:
        for split in splits(tile.count(m, n), -(-k // tile.deep), tile.blocks * multiprocessors, m * n):
            found[name(tile, split)] = functools.partial(call, on, tile, split)
    return found


def fitting(tiles: Sequence, wgrad: int) -> list:
    """Those of the tiles that fit the shared memory of a thread block on this GPU."""
    limit = loader.attribute("MaxSharedMemoryPerBlockOptin")
    return [tile for tile in tiles if tile.shared_bytes(wgrad) <= limit]


def tuned(file: str, found: list[Product], before: list[Callable], offered: Callable, out) -> Callable:
    """What goes before, then each product by the fastest of the calls offered for it, as one call; its notes are the first's."""
    calls = list(before)
    for on in found:
        problem = f"{on.problem.math} {on.problem.direction} {'x'.join(map(str, on.of))}"
        calls.append(autotuner.tuned(file, problem, offered(on)))

    def run():
        for call in calls:
            call()
        return out

    run.notes = next((call.notes for call in calls if hasattr(call, "notes")), {})
    return run
