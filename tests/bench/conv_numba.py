"""Our convolution in Numba against oneDNN as TensorFlow runs it, and the FMA peak: one thread, batch 32, float32, same arrays, in
alternating blocks of one process.

`make bench NAME=conv_numba ARGS="--only 3x3 --directions fprop"` runs some layers, a minute at a time; what the others gave
before is kept beside the table and printed with it.
"""

import argparse
import contextlib
import json
import os
import subprocess
import sys

import msgspec
import numba
import numpy as np
from in_turns import FEWER, LIMITS, ROUNDS, compare, peak
from must_reach import REPORTS, Figure, at_least, printed, table

from analysis import stats
from analysis.stats import Estimate
from kernels import networks, registry
from kernels.problems import Conv
from kernels.reference import conv as reference_conv
from workloads.harness import timing
from workloads.machine import facts

BATCH = 32
MODELS = ("resnet-50", "cifar10-cnn", "mnist-cnn")
AT_LEAST = 0.8
HELD_S, HELD_AT_MOST = 0.1, 50  # of a call of TensorFlow's `held`: as many convolutions as come to that
ONE_THREAD = {"TF_CPP_MIN_LOG_LEVEL": "3", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
SIDES = ("eager", "held")


def layers() -> dict[str, Conv]:
    """Name -> convolution forward: all of the seeds' models; of ResNet-50 those of 3 x 3 and of 1 x 1."""
    found = {}
    for model in MODELS:
        for work in networks.step(networks.find(model), BATCH):
            p = work.problem
            if work.kind == "conv" and p.direction == "fprop" and p.r < 7:
                stride = f" / {p.stride}" if p.stride > 1 else ""
                name = f"{model} {p.r}x{p.s}{stride}, {p.h} x {p.w} x {p.c_in} to {p.c_out}"
                found.setdefault(p, name)
    return {name: p for p, name in found.items()}


def measured(name: str, problem: Conv) -> dict:
    """The rate of `blocked` over that of oneDNN's faster form, and as a share of the FMA peak; GFLOP/s of all sides."""
    import tensorflow

    from kernels.conv import tensorflow as conv_tensorflow

    kernel = registry.find("conv/numba/blocked")
    whole = problem.inputs(3, True)
    if not reference_conv.check(problem, whole, kernel.bind(problem, *whole)()).passed:
        raise SystemExit(f"{kernel.name} is wrong at {problem}")
    inputs = problem.inputs(1)
    runs = {"blocked": kernel.bind(problem, *inputs)}
    once = timing.call_seconds(timing.host(runs["blocked"]), LIMITS)
    conv_tensorflow.HELD = max(2, min(HELD_AT_MOST, round(HELD_S / once)))
    tensors = [tensorflow.constant(array) for array in inputs]
    for side in SIDES:
        with contextlib.suppress(ValueError):  # no layout can be held for wgrad and for dgrad with a stride
            runs[side] = registry.find(f"conv/tensorflow/{side}").bind(problem, *tensors)
    flops, ceiling = peak(1)
    samples = compare({side: timing.host(run) for side, run in runs.items()} | {"peak": ceiling})
    for side, run in runs.items():
        passes = getattr(run, "passes", 1)
        samples[side] = msgspec.structs.replace(samples[side], seconds=tuple(s / passes for s in samples[side].seconds))
    rates = {side: problem.flops / stats.of(samples[side]).value / 1e9 for side in runs}
    best = max((side for side in SIDES if side in runs), key=rates.__getitem__)
    ratio = stats.verdict(samples["blocked"], samples[best], paired=True).ratio
    share = stats.verdict(samples["blocked"], samples["peak"], paired=True).ratio
    share = share * (100 * problem.flops / flops)
    top = flops / stats.of(samples["peak"]).value / 1e9
    note = ", ".join(f"{side} {rate:.4g}" for side, rate in rates.items())
    figures = {"ratio": msgspec.to_builtins(ratio), "share": msgspec.to_builtins(share)}
    note = f"{note}; FMA peak {top:.4g}"
    return {"name": name, "direction": problem.direction, "best": best, **figures, "note": note}


def inside(direction: str, names: list[str]) -> None:
    """In a process of its own, of one thread: a line of JSON for each layer."""
    import tensorflow

    tensorflow.config.threading.set_intra_op_parallelism_threads(1)
    tensorflow.config.threading.set_inter_op_parallelism_threads(1)
    numba.set_num_threads(1)
    known = layers()
    for name in names:
        print(json.dumps(measured(name, msgspec.structs.replace(known[name], direction=direction))), flush=True)


def geometric_mean(ratios: list[Estimate]) -> Estimate:
    """The geometric mean of ratios of several layers, its interval from those of all of them taken as independent."""
    logs = np.log([[r.value, r.low, r.high] for r in ratios])
    middle = logs[:, 0].mean()
    down, up = (np.sqrt(((logs[:, 0] - logs[:, i]) ** 2).sum()) / len(ratios) for i in (1, 2))
    return Estimate(*(float(np.exp(x)) for x in (middle, middle - down, middle + up)))


def figures(found: dict[str, dict]) -> tuple[list[Figure], list[str]]:
    """The rows of the table and the rates, direction by direction; the mean where all layers are there."""
    rows, notes = [], []
    for direction in Conv.DIRECTIONS:
        here = [of for name in layers() if (of := found.get(f"{direction} {name}"))]
        for of in here:
            ratio, share = (msgspec.convert(of[key], Estimate) for key in ("ratio", "share"))
            rows.append(printed(f"{direction}, {of['name']}: blocked / oneDNN ({of['best']})", ratio))
            rows.append(printed(f"{direction}, {of['name']}: of the FMA peak", share, "%"))
            notes.append(f"- {direction}, {of['name']}, GFLOP/s: {of['note']}")
        if here:
            mean = geometric_mean([msgspec.convert(of["ratio"], Estimate) for of in here])
            what = f"{direction}, blocked / oneDNN: geometric mean of {len(here)} of {len(layers())} layers"
            rows.append(at_least(what, AT_LEAST if direction == "fprop" else None, mean))
    return rows, notes


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--only", nargs="+", default=[""], help="layers whose name has one of these words in it")
    flags.add_argument("--directions", nargs="+", choices=Conv.DIRECTIONS, default=list(Conv.DIRECTIONS))
    flags.add_argument("--inside", nargs="+", help=argparse.SUPPRESS)
    args = flags.parse_args()
    if args.inside:
        inside(args.inside[0], args.inside[1:])
        return 0
    names = [name for name in layers() if any(word in name for word in args.only)]
    if not names:
        flags.error(f"no layer has {' or '.join(args.only)} in its name; one that does: --only 3x3")
    path = REPORTS / facts.describe().key / "bench-conv_numba.json"
    found = json.loads(path.read_text()) if path.exists() else {}
    for direction in args.directions:
        env = os.environ | ONE_THREAD
        done = subprocess.run(
            [sys.executable, __file__, "--inside", direction, *names], env=env, stdout=subprocess.PIPE, check=False
        )
        for line in done.stdout.splitlines():
            of = json.loads(line)
            found[f"{direction} {of['name']}"] = of
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1) + "\n")
        if done.returncode:
            raise SystemExit(f"the process that measures {direction} failed")
    rows, notes = figures(found)
    about = (
        f"Rates of our `blocked` over those of oneDNN in TensorFlow {facts.version('tensorflow')}, the faster of two ways "
        f"(eager: an operation at a time; held: layouts held across calls), batch {BATCH}, float32, NHWC, one thread, N(0,1) "
        f"data; {ROUNDS} alternating blocks a side in one process ({FEWER} where a call is long), each begun when the threads of "
        "the side before it have stopped spinning. Ours lays the filters out in every call, into a result that is there."
    )
    return table("conv_numba", "Our convolution in Numba beside oneDNN", rows, [about, "", *notes])


if __name__ == "__main__":
    sys.exit(main())
