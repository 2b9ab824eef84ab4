"""On a GPU: cuDNN's plans through our timing against cudnn-frontend's own loop around the same plan, on the articles' layers.

Medians over alternating pairs. cudnn-frontend times a plan (its autotuning does) by two CUDA events around executions.
"""

import sys

import numpy as np
from bench_cublas import ROUNDS, ratios
from must_reach import Figure, table

from analysis.estimate import Estimate
from kernels import networks, registry
from kernels.problems import Matmul
from workloads import copies, machine, timing
from workloads.results import Settings
from workloads.timing import Limits

MODELS, BATCH = ("cifar10-cnn", "mnist-cnn"), 32
WITHIN = 0.02
TICK_S = 0.5e-6  # the resolution that CUDA promises of an event's time; it is shared by the calls between two events


def main() -> int:
    if problem := machine.gpu_problem():
        print(f"error: this bench needs an NVIDIA GPU and CuPy: {problem}", file=sys.stderr)
        return 3
    figures, stream = [], copies.gpu_stream()
    try:
        kernels = [registry.find(f"conv/cudnn/{variant}") for variant in ("plan", "transformed")]
    except registry.NotInstalled as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    # A product that keeps the device busy while the plain loop's calls are issued.
    ahead = bound(registry.find("matmul/cupy/cublas"), Matmul(4096, 4096, 4096), stream).run
    for model in MODELS:
        for work in (w for w in networks.step(networks.find(model), BATCH) if w.kind == "conv"):
            for kernel in kernels:
                try:
                    prepared = bound(kernel, work.problem, stream)
                except ValueError as refusal:
                    print(f"{model} {work.name}, {kernel.variant}: {refusal}", file=sys.stderr)
                    continue
                figures.append(figure(f"{model} {work.name}, {kernel.variant}", prepared, stream, ahead))
    about = (
        f"float32, batch {BATCH}, NHWC; {ROUNDS} alternating pairs each. Ours: calls wait in the queue behind a held stream (or, "
        "beyond 1 ms, follow each other). Theirs: graph.execute of the same plan between two events, as cudnn-frontend's own "
        "autotuning does, behind a 4096 product so that the queue never runs dry. An event's time is good to 0.5 us, which the "
        "calls between two events share."
    )
    return table("cudnn", "cuDNN through our timing and through cudnn-frontend's own loop", figures, [about])


def bound(kernel, problem, stream) -> copies.Prepared:
    prepared = copies.prepare(kernel, problem, Settings(device="gpu:0"), problem.inputs(1))
    for _ in range(3):
        prepared.run()
    stream.synchronize()
    return prepared


def figure(what: str, prepared: copies.Prepared, stream, ahead) -> Figure:
    """Ours over theirs for one plan, both on the device's clock."""
    limits, run = Limits(min_time=0.05), prepared.run
    long = timing.call_seconds(timing.device(run, stream), limits) >= timing.HELD_BELOW_S
    take, calls = (timing.device if long else timing.held)(run, stream), 3 if long else 100
    theirs = lambda: executed(run, stream, calls, ahead)  # noqa: E731
    call = float(np.median([theirs() for _ in range(5)]))
    ratio = ratios(lambda: take(calls) / calls, theirs)
    return Figure(f"{what} ({prepared.notes.get('plan', '')}, {call * 1e6:.3g} us)", "within max(2 %, one tick)", ratio,
                  reached(ratio, call * calls))  # fmt: skip


def reached(ratio: Estimate, between_s: float) -> bool:
    """Whether the whole interval lies within 2 %, or within an event's tick of `between_s` seconds between two, of 1."""
    return max(abs(ratio.low - 1), abs(ratio.high - 1)) <= max(WITHIN, TICK_S / between_s)


def executed(run, stream, calls: int, ahead) -> float:
    """Seconds a call between two events on the stream, a loop around graph.execute."""
    from cupy.cuda import Event, get_elapsed_time

    begin, end = Event(), Event()
    ahead()
    begin.record(stream)
    for _ in range(calls):
        run()
    end.record(stream)
    end.synchronize()
    return get_elapsed_time(begin, end) * 1e-3 / calls


if __name__ == "__main__":
    sys.exit(main())
