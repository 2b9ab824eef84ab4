"""On a GPU: our CUDA C convolutions against the best of all cuDNN plans, device time in alternating rounds, and NVRTC's seconds.

`make bench NAME=conv_cuda ARGS="float32"` or `"bfloat16"` runs one half. bfloat16 is the faster of tensor_core and wgmma, layer
by layer; without compute capability 9.0 tensor_core alone.
"""

import functools
import sys

import numpy as np
from gpu_bench import geometric_mean, longest_compilation, on_gpu, same, take
from must_reach import Figure, exactly, table

from analysis import stats
from analysis.units import percent
from kernels import networks, registry
from kernels.cuda import conv_tiles, loader
from kernels.problems import Conv, Peak
from workloads.harness import copy_modes, timing
from workloads.records import Settings

BATCH = 32
ROUNDS, SAMPLE_S = 9, 4e-3
TARGETS = {"float32": 0.8, "bfloat16": 0.7}
RUNGS = {"float32": ("implicit_gemm",), "bfloat16": ("tensor_core", "wgmma")}
BACKWARD = 2  # layers whose dgrad and wgrad are printed too: ResNet-50's first 3x3 and the last of its 1x1


def layers(dtype: str) -> dict[Conv, str]:
    """fprop of ResNet-50's 1x1 and 3x3 layers and of the articles' models, each distinct one once, with a name."""
    found = {}
    for name in ("resnet-50", "cifar10-cnn", "mnist-cnn"):
        for work in networks.step(networks.find(name), BATCH, dtype, dtype):
            if work.kind == "conv" and work.direction == "fprop" and (name != "resnet-50" or work.problem.r in (1, 3)):
                p = work.problem
                stride = f" / {p.stride}" if p.stride > 1 else ""
                about = f"{p.h} x {p.w} x {p.c_in}, {p.r}x{p.s}{stride} to {p.c_out}"
                found.setdefault(p, f"{name} {about}")
    return found


def main() -> int:
    wanted = [dtype for dtype in TARGETS if dtype in sys.argv[1:]] or list(TARGETS)
    try:
        library = registry.find("conv/cudnn/plan")
    except registry.NotInstalled as error:
        print(f"error: this bench needs cuDNN: {error}", file=sys.stderr)
        return 3
    import cupy

    hopper = cupy.cuda.Device().compute_capability == "90"
    stream, figures = copy_modes.gpu_stream(), [compile_seconds(hopper)]
    for dtype in wanted:
        own = [registry.find(f"conv/cuda/{rung}") for rung in RUNGS[dtype] if hopper or rung != "wgmma"]
        figures += compared(dtype, own, library, stream)
    about = (
        f"Batch {BATCH}, NHWC, N(0,1) operands, the same on both sides; {ROUNDS} rounds that alternate, samples of about "
        f"{SAMPLE_S * 1e3:.0f} ms of device time each, short calls behind a held stream. The ratio is the time of the fastest of "
        "all plans that cuDNN offers (without TF32) over ours, so above 1 ours is faster; before it is taken, ours gives on "
        "whole numbers what cuDNN gives, in float32 cuDNN's rounded to the nearest whole ones. Percents are of the peak measured "
        "here."
    )
    return table("conv_cuda", "Our CUDA C convolutions against cuDNN's best plans", figures, [about])


def compile_seconds(hopper: bool) -> Figure:
    """The longest of all compilations: every tile that is tried, both ways of summing."""
    loads = [functools.partial(loader.load, "conv/cuda", "direct")]
    for wgrad in (0, 1):
        for of in conv_tiles.WARPS:
            macros = of.macros() | {"WGRAD": wgrad, "VECTOR_A": 1, "VECTOR_B": 1}
            loads.append(functools.partial(loader.load, "conv/cuda", "implicit_gemm", **macros))
        for of in conv_tiles.TENSORS:
            macros = of.macros() | {"WGRAD": wgrad, "TYPE": '"bf16"'}
            loads.append(functools.partial(loader.load, "conv/cuda_tensor", "implicit_gemm", **macros))
        for of in conv_tiles.GROUPS if hopper else ():
            macros = of.macros() | {"WGRAD": wgrad, "OUT": wgrad, "TYPE": '"bf16"'}
            loads.append(functools.partial(loader.load, "conv/cuda_wgmma", "convolve", _arch="sm_90a", **macros))
    return longest_compilation(loads)


def peak(dtype: str, stream) -> float:
    """FLOP/s of the GPU's arithmetic ceiling."""
    problem = Peak(dtype, 1 << 37 if dtype == "float32" else 1 << 40)
    rates = []
    for kernel in registry.load("peak", "cupy"):
        try:
            take = timing.device(
                copy_modes.prepare(kernel, problem, Settings(device="gpu:0"), problem.inputs(1)).run, stream
            )
        except ValueError:
            continue  # it has no such arithmetic
        take(1)
        rates.append(problem.flops / min(take(1) for _ in range(5)))
    return max(rates)


def compared(dtype: str, own: list, library, stream) -> list[Figure]:
    """A ratio for each layer, our TFLOP/s beside it, and the geometric mean, which has the target."""
    figures, ratios, ceiling = [], [], peak(dtype, stream)
    figures.append(Figure(f"{dtype}: peak", "printed", exactly(ceiling / 1e12), True, "TFLOP/s"))
    every = layers(dtype)
    for problem, name in every.items():
        rows, ratio = one(f"{dtype} {name}", own, library, problem, ceiling, stream)
        figures += rows
        ratios.append(ratio)
    mean = geometric_mean(ratios)
    what = f"{dtype}: geometric mean of {len(ratios)} layers"
    figures.append(Figure(what, f"at least {TARGETS[dtype]:.2f}", mean, mean.value >= TARGETS[dtype]))
    for problem, name in backward(every):
        figures += one(f"{dtype} {name}, {problem.direction}", own, library, problem, ceiling, stream)[0]
    return figures


def backward(every: dict[Conv, str]) -> list[tuple[Conv, str]]:
    """dgrad and wgrad of ResNet-50's first 3x3 layer and of its last 1x1."""
    import msgspec

    first = next(p for p in every if p.r == 3)
    last = [p for p, name in every.items() if p.r == 1][-1]
    return [(msgspec.structs.replace(p, direction=way), every[p]) for p in (first, last) for way in ("dgrad", "wgrad")]


def one(name: str, own: list, library, problem: Conv, ceiling: float, stream) -> tuple[list[Figure], stats.Estimate]:
    """(rows of a layer, its ratio): of ours the fastest."""
    # A Winograd or FFT plan of cuDNN's rounds, and not each can be told by its notes.
    equal = same(own, library, problem, problem.dtype == "float32")
    sides = {k.variant: take(k, problem, problem.inputs(1), stream, SAMPLE_S, 0.005) for k in (library, *own)}
    taken: dict[str, list[float]] = {side: [] for side in sides}
    for round_ in range(ROUNDS):
        for side in list(sides)[:: 1 if round_ % 2 else -1]:
            taken[side].append(sides[side]())
    times = {side: np.array(t) for side, t in taken.items()}
    best = min((k.variant for k in own), key=lambda side: float(np.median(times[side])))
    ratio = stats.median(times[library.variant] / times[best])
    rate = stats.median(problem.flops / times[best])
    what = f"{best}, {percent(rate.value / ceiling)} of the peak"
    return [
        Figure(f"{name}: cuDNN / ours", "printed, results equal", ratio, equal),
        Figure(f"{name}: {what}", "printed", rate * 1e-12, True, "TFLOP/s"),
    ], ratio


if __name__ == "__main__":
    sys.exit(on_gpu(main, compiles=True))
