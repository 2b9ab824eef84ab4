"""The fastest measurement of one side, CPU or GPU, at a size."""

from collections.abc import Iterable

import msgspec

from analysis import noise
from analysis.crossover.families import SQUARES, rows_of
from analysis.stats import Estimate, median_of, quickest
from workloads.records import Machine, Measurement, Measurements


class FastestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest measurement on CPU or GPU at a size."""

    #: Name of its kernel; "predicted" where the seconds were predicted.
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
    """The measurement with the least median on a clock (host-latency, host-throughput or device); None if none has a time. If the
    machine is known, the interval includes the noise between its runs."""
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
    """precision -> n -> the CPU's fastest product of n x n matrices, n rising."""
    best: dict[str, dict[int, FastestRow]] = {}
    for precision, sizes in rows_of(measurements, SQUARES).items():
        for n in sorted(sizes):
            row = fastest((m for m in sizes[n] if not m.on_gpu), "host-latency")
            if row is not None:
                best.setdefault(precision, {})[n] = row
    return best
