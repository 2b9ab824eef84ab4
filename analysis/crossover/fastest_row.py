"""The fastest measurement of one side, CPU or GPU, at a size."""

from collections.abc import Iterable

import msgspec

from analysis import noise
from analysis.crossover.families import SQUARES, rows_of
from analysis.stats import Estimate, median_of, quickest
from workloads.records import Machine, Measurement, Measurements


class FastestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest row of one side at a size."""

    #: Name of its kernel; "predicted" where the seconds are.
    kernel: str
    #: cpu, gpu:0, ...
    device: str
    #: Threads of the CPU; None on a GPU and where the library chooses.
    threads: int | None
    #: The arithmetic that it computes in.
    math: str
    #: Seconds per call.
    seconds: Estimate


def fastest(rows: Iterable[Measurement], clock: str, machine: "Machine | None" = None) -> FastestRow | None:
    """The fastest row on that clock; None without a time. With the machine, its interval has the noise between runs."""
    row_and_samples = quickest(rows, clock)
    if row_and_samples is None:
        return None
    row, samples = row_and_samples
    return FastestRow(
        kernel=row.kernel,
        device=row.device,
        threads=row.threads,
        math=row.problem.math,
        seconds=noise.with_noise_between_runs(machine, row, samples, median_of(samples)),
    )


def best_of_cpu(measurements: Measurements) -> dict[str, dict[int, FastestRow]]:
    """precision -> rising n -> the CPU's fastest square product."""
    best: dict[str, dict[int, FastestRow]] = {}
    for precision, sizes in rows_of(measurements, SQUARES).items():
        for n in sorted(sizes):
            row = fastest((m for m in sizes[n] if not m.on_gpu), "host-latency")
            if row is not None:
                best.setdefault(precision, {})[n] = row
    return best
