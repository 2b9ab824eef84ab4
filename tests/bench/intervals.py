"""How often nominal 95 % intervals hold the level of their own run and that of all runs. Simulated: the real scheduler and visits
on a virtual clock, under known noise, and crossovers under noise slower than their sweep. Stored: rows of sweeps against others.
"""

import argparse
import dataclasses
import functools
import itertools
import math
import statistics
import sys
import time
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from datetime import datetime
from unittest import mock

import numpy as np
import virtual_sweep
from msgspec.structs import replace
from must_reach import REPORTS, Figure, exactly, table

from analysis import noise, stats
from analysis.crossover import crossover
from analysis.crossover.forms import LATENCY
from analysis.noise import Between, Noise, NoiseShare
from analysis.stats import Estimate
from kernels.problems import Matmul
from workloads import records, shared_flags
from workloads.machine import facts
from workloads.records import Machine, Measurement, Row, Settings

SWEEPS = 400  # of a cell
ROWS = (10, 40)
#: Numbers of the noise between runs, each from so many other runs.
NUMBERS, OTHER_RUNS = 40, 5
LEAST, WIDEST = 0.90, 2.0
#: A crossover's noise, and the sizes of its sweeps: three rows a size, 35 and 112 s.
CROSSED_UNDER = ("OU, tau 20 s", "OU, tau 60 s")
SIZES = (12, 36)
TRUE_N, SMALLEST, LARGEST = 256, 64, 1024
EARLY, FAR_SURE = 0.05, 0.90
OTHER_SEEDS = 1_000_000  # of the runs that numbers are from
FEWEST_OTHERS = 5  # sweeps that have a stored row too, for their middle to count


@dataclasses.dataclass(frozen=True, kw_only=True)
class SimulatedRow:
    """A row of a virtual sweep; times are in units of the true time of a call."""

    #: The median with its interval within this run.
    seconds: Estimate
    #: The medians of its visits.
    visits: list[float]
    #: Seconds from its first to its last visit.
    span_s: float
    #: The mean level of the noise over that span.
    level: float


def simulated(name: str, rows: int, seed: int) -> list[SimulatedRow]:
    """The rows of a virtual sweep of so many rows."""
    measured, levels = virtual_sweep.slow_sweep(virtual_sweep.plan(rows), name, shared_flags.FINE, seed)
    return [_row(m, levels["cpu"]) for m in measured]


def _row(m: Measurement, level: virtual_sweep.Level) -> SimulatedRow:
    samples = m.samples[0]
    moments = m.series["visit_at_s"]
    within = np.linspace(moments[0], moments[-1] + shared_flags.FINE.visit_s, 400)
    return SimulatedRow(
        seconds=stats.median_of(samples) * (1 / virtual_sweep.CALL_S),
        visits=[seconds / virtual_sweep.CALL_S for seconds in stats.visit_medians(samples)],
        span_s=moments[-1] - moments[0],
        level=statistics.fmean(level(moment) for moment in within),
    )


def mean_by_run(values: list[list[float]]) -> Estimate:
    """The mean of numbers of rows with its 95 % interval over runs, as the rows of one run share their noise."""
    means = [statistics.fmean(run) for run in values]
    half = stats.Z * statistics.stdev(means) / math.sqrt(len(means))
    mean = statistics.fmean(means)
    return Estimate(mean, max(0.0, mean - half), min(1.0, mean + half))


def within_run(sweeps: list[list[SimulatedRow]]) -> Estimate:
    """The share of rows whose interval holds the level of their own run."""
    holds = [[float(row.seconds.low <= row.level <= row.seconds.high) for row in run] for run in sweeps]
    return mean_by_run(holds)


def between_runs(sweeps: list[list[SimulatedRow]], numbers: list[Between]) -> tuple[Estimate, float]:
    """(share of rows whose interval with the noise between runs holds the level of all runs; median half-width over that of an
    oracle, who knows the variance of the estimates). Each sweep takes one of the `numbers` in turn."""
    holds, halves, errors = [], [], []
    for run, between in zip(sweeps, itertools.cycle(numbers)):
        of_this_run = []
        for row in run:
            more = noise.half_width(between, row.visits, row.span_s)
            interval = stats.quotient(row.seconds, stats.exact(1.0), more)
            of_this_run.append(float(interval.low <= 1.0 <= interval.high))
            halves.append(math.log(interval.high / interval.low) / 2)
            errors.append(math.log(row.seconds.value))
        holds.append(of_this_run)
    oracle = stats.Z * math.sqrt(statistics.fmean(error**2 for error in errors))
    return mean_by_run(holds), statistics.median(halves) / oracle


@functools.cache
def other_share(name: str, number: int) -> NoiseShare:
    """The noise between runs, from OTHER_RUNS other runs; there are NUMBERS of them."""
    return virtual_sweep.shares(name, shared_flags.FINE, OTHER_SEEDS + 100 * number, OTHER_RUNS)


def between(share: NoiseShare, source: str) -> Between:
    """A stored number as `noise.between_runs` gives it, of this machine or of its class by the source."""
    return Between(
        share=share.share, source=source, visit_share=share.visit_share, runs=OTHER_RUNS, span_s=share.span_s
    )


def simulated_figures(pool: ProcessPoolExecutor, count: int) -> list[Figure]:
    """Coverage and width for each noise and number of rows."""
    shares: dict[str, list[NoiseShare]] = {}
    for name in virtual_sweep.SLOW:
        shares[name] = list(pool.map(functools.partial(other_share, name), range(NUMBERS), chunksize=5))
    figures = []
    for name, rows in itertools.product(virtual_sweep.SLOW, ROWS):
        sweeps = list(pool.map(functools.partial(simulated, name, rows), range(count), chunksize=10))
        cell = f"{name}, {rows} rows"
        held = within_run(sweeps)
        figures.append(Figure(f"{cell}: within this run", f">= {LEAST}", held, held.value >= LEAST))
        held, width = between_runs(sweeps, [between(share, noise.THIS_MACHINE) for share in shares[name]])
        figures.append(Figure(f"{cell}: between runs, by five others", f">= {LEAST}", held, held.value >= LEAST))
        figures.append(Figure(f"{cell}: its width over an oracle's", f"<= {WIDEST}", exactly(width), width <= WIDEST))
        others = {
            other: between_runs(sweeps, [between(share, "class") for share in shares[other]])
            for other in virtual_sweep.SLOW
            if other != name
        }
        worst, (held, _) = min(others.items(), key=lambda item: item[1][0].value)
        what = f"{cell}: between runs, by a class of another noise ({worst}, the worst)"
        figures.append(Figure(what, f">= {LEAST}", held, held.value >= LEAST))
        widest, (_, width) = max(others.items(), key=lambda item: item[1][1])
        what = f"{cell}: its width over an oracle's ({widest}, the widest)"
        figures.append(Figure(what, f"<= {WIDEST}", exactly(width), width <= WIDEST))
        print(cell, f"{time.process_time():.0f} s", file=sys.stderr, flush=True)
    return figures


def stored_figures() -> list[Figure]:
    """For each machine with the sweeps of doctor --noise under reports/local, and each clock: in how many rows the printed
    interval of one sweep, by the number of the others, holds the middle of the others."""
    figures = []
    for known in noise.stored(REPORTS).values():
        folders = sorted((REPORTS / "local" / known.machine.key).glob("noise-*/[0-9]*[0-9]"))[-len(known.sweeps) :]
        if not folders:
            continue
        runs = [records.read(folder) for folder in folders]
        starts = [datetime.fromisoformat(run.runs[0].started_at).timestamp() for run in runs]
        holds: dict[str, list[bool]] = {}
        for i, run in enumerate(runs):
            others = [(starts[j], runs[j]) for j in range(len(runs)) if j != i]
            number = Noise(
                machine=known.machine,
                taken_at="",
                span_s=0.0,
                sweeps=tuple(known.sweeps[:-1]),
                shares=noise.shares(others),
            )
            rows = [{m.key: m for m in other.measurements if m.ok} for _, other in others]
            with mock.patch.object(noise, "stored", return_value={known.machine.key: number}):
                for clock, hit in _stored_rows(run.measurements, rows, known.machine):
                    holds.setdefault(clock, []).append(hit)
        for clock, hits in sorted(holds.items()):
            share = statistics.fmean(hits)
            what = f"stored sweeps of {known.machine.key}, {clock}: {len(hits)} rows against the middle of the other sweeps"
            figures.append(Figure(what, f">= {LEAST}", exactly(share), share >= LEAST))
    return figures


def _stored_rows(
    measurements: Iterable[Measurement], others: list[dict], machine: Machine
) -> Iterable[tuple[str, bool]]:
    """Yields (clock, whether the interval holds the middle of the others) of each row of a sweep."""
    for m in measurements:
        for samples in m.samples if m.ok else ():
            same = [rows[m.key].on(samples.clock) for rows in others if m.key in rows]
            middles = [stats.quick_median(one) for one in same if one]
            if len(middles) < FEWEST_OTHERS:
                continue
            interval = noise.with_noise_between_runs(machine, m, samples, stats.median_of(samples))
            yield noise.side(m, samples.clock), interval.low <= statistics.median(middles) <= interval.high


def crossing_rows(sizes: int) -> list[Row]:
    """Two CPU rows and a GPU row at each of so many sizes."""
    made = []
    for n in np.unique(np.geomspace(SMALLEST, LARGEST, sizes).round().astype(int)).tolist():
        problem = Matmul(n, n, n)
        made += [Row("matmul/numpy/blas", problem, Settings(threads=threads)) for threads in (1, 2)]
        made.append(Row("matmul/cupy/cublas", problem, Settings("gpu:0")))
    return made


def crossing(name: str, sizes: int, machine: Machine, seed: int) -> tuple[bool, bool, float]:
    """(whether the GPU is told to win surely before TRUE_N, whether it surely wins at twice that, seconds) of one sweep. The
    CPU's time grows as n, the GPU's stands; each has noise of its own, with a number from five other runs."""
    measured, _ = virtual_sweep.slow_sweep(crossing_rows(sizes), name, shared_flags.FINE, seed)
    rows = []
    for m in measured:
        factor = 1.0 if m.on_gpu else m.problem.n / TRUE_N
        samples = tuple(replace(s, seconds=tuple(x * factor for x in s.seconds)) for s in m.samples)
        rows.append(replace(m, samples=samples))
    share = other_share(name, seed % NUMBERS)
    shares = tuple(replace(share, side=side) for side in (noise.CPU, noise.CALLS))
    number = Noise(machine=machine, taken_at="", span_s=0.0, sweeps=("",) * OTHER_RUNS, shares=shares)
    with mock.patch.object(noise, "stored", return_value={machine.key: number}):
        (answer,) = crossover.crossovers(rows, [LATENCY], machine=machine)
    early = answer.kind == "gpu-at-smallest"
    if answer.crossings:
        early = answer.crossings[-1].to == "gpu" and answer.crossings[-1].at.high < TRUE_N
    far = min(answer.points, key=lambda p: abs(p.n - 2 * TRUE_N))
    moments = [at for m in rows for at in m.series["visit_at_s"]]
    return early, far.sign == 1, max(moments) - min(moments)


def proportion(hits: int, count: int) -> Estimate:
    """A share with its 95 % interval.

    Source: E. B. Wilson, Probable Inference, the Law of Succession, and Statistical Inference (1927).
    """
    z = stats.Z
    share = hits / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * math.sqrt(share * (1 - share) / count + z**2 / (4 * count**2))
    return Estimate(share, max(0.0, middle - half), min(1.0, middle + half))


def crossing_figures(pool: ProcessPoolExecutor, count: int) -> list[Figure]:
    """Crossovers told too early, and far ones told surely."""
    machine = facts.describe()
    figures = []
    for name, sizes in itertools.product(CROSSED_UNDER, SIZES):
        take = functools.partial(crossing, name, sizes, machine)
        sweeps = list(pool.map(take, range(count), chunksize=10))
        cell = f"crossovers, {name}, sweeps of {statistics.fmean(seconds for _, _, seconds in sweeps):.0f} s"
        early = proportion(sum(one[0] for one in sweeps), count)
        far = proportion(sum(one[1] for one in sweeps), count)
        what = f"{cell}: told surely too early"
        figures.append(Figure(what, f"upper end <= {EARLY}", early, early.high <= EARLY))
        figures.append(Figure(f"{cell}: at twice the size told surely", f">= {FAR_SURE}", far, far.value >= FAR_SURE))
        print(cell, f"{time.process_time():.0f} s", file=sys.stderr, flush=True)
    return figures


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--sweeps", type=int, default=SWEEPS, help="sweeps of a cell")
    args = flags.parse_args()
    figures = stored_figures()
    with ProcessPoolExecutor() as pool:
        figures += crossing_figures(pool, args.sweeps)
        figures += simulated_figures(pool, args.sweeps)
    notes = [
        f"{args.sweeps} sweeps a cell. Calls of {virtual_sweep.CALL_S * 1e3:g} ms, one a sample; a visit takes "
        f"{virtual_sweep.BESIDE_S:g} s beside its {shared_flags.FINE.visit_s:g} s of samples. OU: an Ornstein-Uhlenbeck process "
        "of 3 % and that correlation time. Two modes: 3 % above and 3 % below, each for that long on average. Every sample has "
        "0.3 % of independent noise too.",
        "",
        "Within this run: a row's own interval against the mean level from its first to its last visit. Between runs: with the "
        f"noise between runs, against the level of all runs, by numbers from {OTHER_RUNS} other runs of ten rows; of a class, by "
        "those of another noise. An oracle's half-width: 1.96 standard deviations of the estimates. Intervals of shares are over "
        "runs.",
        "",
        f"Crossovers: the CPU's time grows as n and meets the GPU's at {TRUE_N}; {SMALLEST} to {LARGEST} in {SIZES[0]} and "
        f"{SIZES[1]} sizes, two CPU rows and a GPU row at each. Too early: the interval's upper end lies below {TRUE_N}.",
    ]
    return table("intervals", "How often intervals hold", figures, notes, of=facts.describe())


if __name__ == "__main__":
    sys.exit(main())
