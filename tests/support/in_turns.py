"""Sides of a bench on the CPU in alternating blocks of one process, and the peak of its multiply-adds."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime

from drawn import Case, Row

from kernels import registry
from workloads.harness import plan, telemetry, timing
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Samples, Settings
from workloads.records.visits import joined

SHORT, BLOCKS = Limits(visit_s=0.004), 4  # of a row: a block, and how many a side
PEAK = "FMA peak"


def compare(takes: dict, limits: Limits, rounds: int) -> dict[str, Samples]:
    """Blocks of every side, in turns whose order alternates (A B B A); side -> its samples."""
    lengths = {name: timing.call_seconds(take, limits) for name, take in takes.items()}
    found: dict[str, list[Samples]] = {name: [] for name in takes}
    for turn in range(rounds):
        for name in list(takes)[:: 1 if turn % 2 else -1]:
            found[name].append(timing.visit(takes[name], limits, "host-latency", lengths[name]))
    return {name: joined(blocks, "in turns") for name, blocks in found.items()}


def peak(threads: int):
    """(FLOPs of a call, its take) of the machine's fused multiply-adds."""
    problem = plan.peak_problem("float32", Settings(threads=threads))
    run = registry.find("peak/numba/fma").bind(problem, *problem.inputs(1))
    run()
    return problem.flops, timing.host(run)


def row(case: Case, calls: dict[str, Callable], libraries: Iterable[str], turn: int, **told) -> Row:
    """The row of a case, ours the fastest of Numba's `calls`: all and the FMA peak in blocks whose order turns around; each
    side's best block, as what else runs on the machine only adds. told: the row's fields that are known before."""
    flops, ceiling = peak(case.threads)
    takes = {name: timing.host(call) for name, call in calls.items()} | {PEAK: ceiling}
    passes = {name: getattr(call, "passes", 1) for name, call in calls.items()} | {PEAK: flops / case.problem.flops}
    sides = dict.fromkeys(takes, float("inf"))
    for i in range(BLOCKS):
        for name in list(takes)[:: 1 if (i + turn) % 2 else -1]:
            if case.threads > 1:
                telemetry.settle()
            sides[name] = min(sides[name], timing.call_seconds(takes[name], SHORT) / passes[name])
    library = min((name for name in libraries if name in sides), key=sides.__getitem__)
    return Row(
        case.drawn,
        case.kind,
        case.problem.dtype,
        library=library,
        library_s=sides[library],
        ours_s=min(sides[name] for name in calls if "/numba/" in name),
        tiles="",
        commit=facts.commit()[:12],
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        sides=sides,
        flops=float(case.problem.flops),
        **told,
    )
