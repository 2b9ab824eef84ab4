"""On a GPU: our CUDA C convolutions against cuDNN and, where a filter is 1x1, cuBLAS, at layers that nobody chose and at those of
models."""

import functools
import sys
from collections.abc import Iterable

import drawn
import msgspec
from drawn import CLASSES, EACH, Case, Row
from gpu_bench import on_gpu
from must_reach import Figure

from analysis.roofline.data_sheets import SHEETS
from kernels import networks, registry
from kernels.problems import Conv, Matmul
from workloads.machine import facts

OURS = {"float32": ("implicit_gemm",), "bfloat16": ("tensor_core", "wgmma")}
MODELS, BATCHES = ("cifar10-cnn", "mnist-cnn", "resnet-50"), (1, 32, 256)
FILTERS, STRIDES, CHANNELS, MOST_ITEMS = (1, 3, 3, 5, 7), (1, 1, 2), (3, 2048), 1 << 27  # drawn; items of an array
FEW = 4  # channels of an image, whose gradient no training wants
TRANSFORMS = "Winograd or FFT"
# In the name of a cuDNN side. Sides of before 2026-11-28 lack it: the fastest of the first five plans that build, with the time
# that the host takes to start a call in it. Their ratios are withdrawn.
ALL_PLANS = "all plans"
FLOAT32_FLOPS_PER_S = max(sheet.flops_per_s["float32"] for sheet in SHEETS.values())
TARGETS = {  # drawn layers: geometric mean and least of a direction
    "float32": {"fprop": (1.1, 0.8), "dgrad": (1.1, 0.8), "wgrad": (1.1, 0.9)},
    "bfloat16": {"fprop": (1.05, 0.85), "dgrad": (1.0, 0.85), "wgrad": (0.95, 0.85)},
}
OF_MODELS = 1.0


def layers(salt: int, classes=CLASSES, batches: tuple[int, ...] = ()) -> dict[str, list[Conv]]:
    """Class -> drawn layers, forward: images of 7 to 224 pixels a side, half of them with channels in multiples of 8; of these
    batches in turns, else of any up to 256."""
    rng = drawn.draw(salt)[1]
    found: dict[str, list[Conv]] = {}
    for kind, powers in classes.items():
        found[kind] = []
        while len(found[kind]) < EACH:
            taps, stride = int(rng.choice(FILTERS)), int(rng.choice(STRIDES))
            side, n = round(2 ** rng.uniform(2.8, 7.8)), round(2 ** rng.uniform(0, 8))
            unit = 8 if len(found[kind]) % 2 else 1
            n = batches[len(found[kind]) % len(batches)] if batches else n
            channels = (10 ** rng.uniform(*powers) / (2 * n * (taps * -(-side // stride)) ** 2)) ** 0.5
            apart = 2 ** rng.uniform(-1, 1)
            c_in, c_out = (round(c / unit) * unit for c in (channels * apart, channels / apart))
            items = n * side**2 * max(c_in, c_out)
            if CHANNELS[0] <= min(c_in, c_out) and max(c_in, c_out) <= CHANNELS[1] and items <= MOST_ITEMS:
                found[kind].append(Conv(n, side, side, c_in, c_out, taps, taps, stride, "same"))
    return found


def cases(salt: int, dtypes: list[str]) -> list[Case]:
    """What is drawn, in every direction, and the convolutions of the models' training steps."""
    found = []
    for dtype in dtypes:
        for kind, every in layers(salt).items():
            for layer in every:
                ways = [way for way in Conv.DIRECTIONS if way != "dgrad" or layer.c_in > FEW]
                of = [msgspec.structs.replace(layer, direction=way, dtype=dtype, math=dtype) for way in ways]
                found += [Case(drawn.draw(salt)[0], kind, problem) for problem in of]
        found += of_models(BATCHES, dtype) if salt == 0 else []
    return found


def of_models(batches: Iterable[int], dtype: str = "float32") -> list[Case]:
    """The convolutions of the models' training steps, each once."""
    steps = [networks.step(networks.find(name), n, dtype, dtype) for name in MODELS for n in batches]
    products = dict.fromkeys(work.problem for step in steps for work in step if work.kind == "conv")
    return [Case("layers", "layers", problem) for problem in products]


def libraries(problem: Conv, inputs: list) -> dict:
    """cuDNN's best of all plans in either layout (channels first in float32 alone), transforms beside, cuBLAS for 1x1."""
    plan, found = registry.find("conv/cudnn/plan"), {}
    for layout in ("NHWC", "NCHW") if problem.dtype == "float32" else ("NHWC",):
        of = msgspec.structs.replace(problem, layout=layout)
        given = inputs if layout == "NHWC" else drawn.operands(of)
        ways = {layout: True} | ({f"{layout} {TRANSFORMS}": False} if problem.r > 1 == problem.stride else {})
        for name, direct in ways.items():
            try:
                found[f"conv/cudnn/plan {name}, {ALL_PLANS}"] = plan.bind(of, *given, direct=direct)
            except ValueError as error:
                print(f"{name}: {error}", file=sys.stderr)
    if (problem.r, problem.s, problem.stride) == (1, 1, 1) and problem.pads == ((0, 0), (0, 0)):
        layout = {"fprop": "nn", "dgrad": "nt", "wgrad": "tn"}[problem.direction]
        product = Matmul(*problem.gemm, problem.dtype, problem.math, layout=layout)
        flat = [x.reshape(-1, x.shape[-1]) for x in inputs]
        found["matmul/cupy/cublas"] = registry.find("matmul/cupy/cublas").bind(product, *flat)
    return found


def measure(case: Case, turn: int) -> Row:
    """Both sides of a convolution; ours in bfloat16 is the faster of two."""
    problem, inputs = case.problem, drawn.operands(case.problem)
    hopper = facts.describe().gpus[0].compute_capability == "9.0"
    own = [f"conv/cuda/{name}" for name in OURS[problem.dtype] if hopper or name != "wgmma"]
    return drawn.compared(case, inputs, own, functools.partial(libraries, problem, inputs), turn, TRANSFORMS)


def is_withdrawn(row: Row) -> bool:
    """Whether cuDNN's time in the row contains the host's time, and is of a few plans."""
    return not any(ALL_PLANS in side for side in row.sides)


def direct(row: Row) -> Row:
    """The row against the fastest plan that can be direct.

    A plan with more FLOP/s than the GPU's float32 units have multiplies less or elsewhere, though cuDNN's notes do not say so.
    """
    theirs = {name: s for name, s in row.sides.items() if not name.startswith("conv/cuda/") and TRANSFORMS not in name}
    if row.dtype == "float32":
        theirs = {name: s for name, s in theirs.items() if row.flops / s <= FLOAT32_FLOPS_PER_S}
    library = min(theirs, key=theirs.__getitem__)
    return msgspec.structs.replace(row, library=library, library_s=theirs[library])


def figures(rows: list[Row]) -> list[Figure]:
    """The claim's rows by direction, the models' layers, cuDNN's transforms; then every layer."""
    found = []
    compared = [direct(row) for row in rows if not is_withdrawn(row)]
    withdrawn = [row for row in rows if is_withdrawn(row)]
    for dtype, targets in TARGETS.items():
        own = [r for r in compared if r.dtype == dtype]
        for way, target in targets.items():
            those = [r.ratio for r in own if drawn.is_drawn(r) and r.layout.startswith(way)]
            found += drawn.claim(f"{dtype} {way}, drawn", those, *target)
        found += drawn.claim(f"{dtype}, layers of models", [r.ratio for r in own if not drawn.is_drawn(r)], OF_MODELS)
        beside = [s / r.ours_s for r in own for name, s in r.sides.items() if TRANSFORMS in name]
        found += drawn.claim(f"{dtype}, cuDNN by {TRANSFORMS} beside", beside, None)
    return found + drawn.checks(rows) + drawn.ratios(compared) + drawn.rates(withdrawn)


BENCH = drawn.Bench(
    "conv_cuda",
    "Our CUDA C convolutions against cuDNN and cuBLAS",
    tuple(OURS),
    cases,
    measure,
    figures,
    "Ratios of rows with a rate alone are withdrawn: cuDNN's time contained the time that the host takes to start its calls. "
    "Library: the fastest of all direct plans of cuDNN, channels last and in float32 channels first too (without "
    f"TF32), and of cuBLAS where a filter is 1x1. A float32 plan of more than the data sheet's "
    f"{FLOAT32_FLOPS_PER_S * 1e-12:.0f} TFLOP/s is not direct. "
    f"Layers of {', '.join(MODELS)} at batch {', '.join(map(str, BATCHES))}.",
)


if __name__ == "__main__":
    sys.exit(drawn.main(BENCH) if "--print" in sys.argv else on_gpu(lambda: drawn.main(BENCH), compiles=True))
