"""Sides of a bench on the CPU in alternating blocks of one process, and the peak of its multiply-adds."""

from kernels import registry
from workloads.harness import plan, telemetry, timing
from workloads.harness.timing import Limits
from workloads.records import Samples, Settings
from workloads.records.visits import joined

LIMITS = Limits(visit_s=0.03)
ROUNDS, FEWER, LONG_S = 8, 5, 0.3  # blocks a side, and for calls longer than so


def compare(
    takes: dict, limits: Limits = LIMITS, rounds: int = ROUNDS, fewer: int = FEWER, settle=telemetry.settle
) -> dict[str, Samples]:
    """Blocks of every side, in turns whose order alternates (A B B A), each begun when the other's threads have stopped
    spinning; side -> its samples. `fewer`: rounds where a call takes more than 0.3 s."""
    lengths = {name: timing.call_seconds(take, limits) for name, take in takes.items()}
    found: dict[str, list[Samples]] = {name: [] for name in takes}
    for turn in range(fewer if max(lengths.values()) > LONG_S else rounds):
        for name in list(takes)[:: 1 if turn % 2 else -1]:
            settle()
            found[name].append(timing.visit(takes[name], limits, "host-latency", lengths[name]))
    return {name: joined(blocks, "in turns") for name, blocks in found.items()}


def peak(threads: int):
    """(FLOPs of a call, its take) of the machine's fused multiply-adds."""
    problem = plan.peak_problem("float32", Settings(threads=threads))
    run = registry.find("peak/numba/fma").bind(problem, *problem.inputs(1))
    run()
    return problem.flops, timing.host(run)
