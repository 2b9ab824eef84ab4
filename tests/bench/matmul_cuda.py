"""On a GPU: our CUDA C matmuls against cuBLAS and the best of cuBLASLt, device time in alternating rounds, and NVRTC's seconds.

wgmma needs compute capability 9.0; elsewhere float32 alone is compared.
"""

import functools
import sys

import numpy as np
from gpu_bench import geometric_mean, longest_compilation, on_gpu, same, take
from must_reach import Figure, table

from analysis import stats
from kernels import registry
from kernels.cuda import loader, matmul_tiles
from kernels.problems import Matmul
from workloads.harness import copy_modes

SQUARES = (1024, 2048, 4096, 8192)
SHAPES = (
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (2048, 2048, 13312),
    (8192, 1024, 4096),
    (512, 8192, 8192),
    (4096, 16384, 1024),
)
ROUNDS, SAMPLE_S = 15, 8e-3
FLOAT32, BFLOAT16 = 0.95, 1.0


def main() -> int:
    import cupy

    hopper = cupy.cuda.Device().compute_capability == "90"
    try:
        library = registry.find("matmul/cublaslt/best") if hopper else None
    except registry.NotInstalled as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    stream, figures = copy_modes.gpu_stream(), [compile_seconds(hopper)]
    own = registry.find("matmul/cuda/warp_tiled")
    figures += compared(
        "float32", own, registry.find("matmul/cupy/cublas"), [Matmul(n, n, n) for n in SQUARES], FLOAT32, stream
    )
    for layout in ("nt", "nn") if hopper else ():
        problems = [Matmul(*shape, "bfloat16", layout=layout) for shape in SHAPES]
        figures += compared(
            f"bfloat16 {layout}", registry.find("matmul/cuda/wgmma"), library, problems, BFLOAT16, stream
        )
    about = (
        f"N(0,1) operands, the same on both sides; {ROUNDS} rounds that alternate, samples of about {SAMPLE_S * 1e3:.0f} ms of "
        "device time each, short calls behind a held stream. The ratio is the library's time over ours, so above 1 ours is "
        "faster; before it is taken, both give equal results on whole numbers, whose products are exact. nt: B stored n x k; "
        "nn: k x n."
    )
    return table("matmul_cuda", "Our CUDA C matmuls against cuBLAS and cuBLASLt", figures, [about])


def compile_seconds(hopper: bool) -> Figure:
    """The longest of all compilations: every rung and every tile that is tried."""
    loads = [
        functools.partial(loader.load, "matmul/cuda", name)
        for name in ("naive", "coalesced", "tiled", "register_tiled")
    ]
    loads += [
        functools.partial(loader.load, "matmul/cuda_warp", "matmul", **of.macros(), VECTOR=1)
        for of in matmul_tiles.WARPS
    ]
    loads += [
        functools.partial(loader.load, "matmul/cuda_tensor", "matmul", **of.macros(), VECTOR=1, TF32=0, TYPE='"bf16"')
        for of in matmul_tiles.TENSORS
    ]
    hoppers = [of for of in matmul_tiles.GROUPS if hopper]
    bf16 = {"_arch": "sm_90a", "TYPE": '"bf16"', "A_STORED_KM": 0}
    loads += [
        functools.partial(loader.load, "matmul/cuda_wgmma", "matmul", **bf16, B_STORED_KN=across, **of.macros())
        for across, layout in enumerate(("nt", "nn"))
        for of in hoppers
        if of.fits(layout)
    ]
    return longest_compilation(loads)


def compared(name: str, own, library, problems: list[Matmul], target: float, stream) -> list[Figure]:
    """A ratio for each problem, our TFLOP/s beside it, and the geometric mean, which has the target."""
    figures, ratios = [], []
    for problem in problems:
        what = f"{name} {problem.m} x {problem.n} x {problem.k}"
        equal, inputs = same([own], library, problem), problem.inputs(1)
        sides = [take(k, problem, inputs, stream, SAMPLE_S, 0.02) for k in (own, library)]
        turns = [sides if r % 2 else sides[::-1] for r in range(ROUNDS)]
        rounds = [[sample() for sample in turn] for turn in turns]
        taken = np.array([one if r % 2 else one[::-1] for r, one in enumerate(rounds)])
        ratio = stats.median(taken[:, 1] / taken[:, 0])
        ratios.append(ratio)
        figures.append(Figure(f"{what}: {library.name} / ours", "printed, results equal", ratio, equal))
        rate = problem.flops / 1e12 / stats.median(taken[:, 0])
        figures.append(Figure(f"{what}: ours", "printed", rate, True, "TFLOP/s"))
    mean = geometric_mean(ratios)
    return [*figures, Figure(f"{name}: geometric mean", f"at least {target:.2f}", mean, mean.value >= target)]


if __name__ == "__main__":
    sys.exit(on_gpu(main, compiles=True))
