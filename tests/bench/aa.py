"""False and missed alarms: rows of one run and runs of different minutes that are alike, slow-downs planted in real work, and
crossovers taken ten times. Reads the sweeps that `python -m workloads.doctor --noise` left."""

import argparse
import itertools
import json
import random
import statistics
import sys
import time
from collections import Counter, defaultdict
from datetime import datetime
from pathlib import Path
from unittest import mock

from must_reach import Figure, at_least, at_most, table

from analysis import noise, stats, units
from analysis.compare import comparison
from analysis.crossover import crossover
from kernels.problems import Matmul, Peak, Stream
from workloads import doctor, records
from workloads.harness import plan, rounds
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Loaded, Machine, Measurement, Row, Settings
from workloads.records.visits import together

PATIENCE_S = 120.0
VISIT_S = {"cpu": Limits().visit_s, "gpu:0": 0.03}  # on each of a GPU's three clocks
APART_S = 900.0
PLANTED = {"cpu": 0.20, "gpu:0": 0.05}
SETS_PLANTED = 4  # of ten rows: 40 slow-downs


def rows(here: Machine) -> list[Row]:
    """Ten rows of calls of many lengths: on a GPU where there is one, else on the CPU."""
    if here.gpus:
        on = Settings("gpu:0")
        made = [Row("matmul/cupy/cublas", Matmul(n, n, n), on) for n in (128, 256, 512, 1024, 2048, 4096)]
        return made + [Row("stream/cupy/wide", Stream("triad", 1 << p), on) for p in (20, 23, 26, 29)]
    one, all_ = Settings(threads=1), Settings(threads=here.cores)
    products = [("numpy/blas", 64, one), ("numpy/blas", 128, one), ("numpy/operator", 96, one)]
    products += [("numpy/blas", 512, one), ("numpy/blas", 512, all_), ("numba/reordered", 64, one)]
    products.append(("numba/simd", 256, one))
    made = [Row(f"matmul/{kernel}", Matmul(n, n, n), on) for kernel, n, on in products]
    made += [Row("stream/numba/loop", Stream("triad", 1 << p), one) for p in (20, 27)]
    return [*made, Row("peak/numba/fma", Peak("float32", 1 << 23), one)]


def visited(worker: Worker, of: list[Row], seed: int, handicaps: list[float]) -> list[list[Measurement]]:
    """Each row on as many sides as there are handicaps, in the rounds of a sweep: the sides of a visit are made one after the
    other, in random order."""
    dice, limits = random.Random(seed), Limits(visit_s=VISIT_S[of[0].device])
    around, taken = rounds.Rounds(of, limits, seed, {}), defaultdict(list)
    for visit in around.visits(lambda done: [], time.monotonic, time.sleep):
        row, number = visit.row, visit.round
        for side in dice.sample(range(len(handicaps)), len(handicaps)):
            made = worker.ask(Order("visit", row, limits, handicap=handicaps[side], visit=number), PATIENCE_S)
            if not made.ok:
                raise SystemExit(f"{row.kernel}: {made.reason}")
            taken[row.key, side].append(made)
        around.add(taken[row.key, 0][-1])
    return [[together(taken[row.key, side]) for side in range(len(handicaps))] for row in of]


def one_run(here: Machine, sets: int, kept: Path | None, stop_after: float) -> tuple[list[Figure], list[str]]:
    """(a) and (c): pairs alike, and pairs of which one makes calls that are not counted. `kept`: a file of the counts of
    earlier sets, which is gone on with."""
    of, begin = rows(here), time.monotonic()
    told = Counter(json.loads(kept.read_text()) if kept and kept.exists() else {})
    planted = PLANTED[of[0].device]
    worker = Worker(environment(of[0], here.uuids))
    while told["sets"] < sets and time.monotonic() - begin < stop_after:
        for sides in visited(worker, of, told["sets"] + 1, [0.0, 0.0, *[planted] * (told["sets"] < SETS_PLANTED)]):
            alike, *slow = (stats.verdict(stats.clock_of(sides[0]), stats.clock_of(s), paired=True) for s in sides[1:])
            name = plan.name(sides[0].row)
            told["pairs"] += 1
            told[f"false: {name}"] += alike.word in ("slower", "faster")
            told["planted"] += len(slow)
            told[f"missed: {name}"] += bool(slow) and slow[0].word != "slower"
        told["sets"] += 1
        print(dict(+told), file=sys.stderr, flush=True)
        if kept:
            kept.write_text(json.dumps(told))
    worker.close()
    false, missed = (sum(n for name, n in told.items() if name.startswith(word)) for word in ("false", "missed"))
    pairs, slowed = told["pairs"], told["planted"]
    figures = [
        at_most(f"(a) pairs of one run called different, of {pairs}", 4 * pairs // 200, false),
        at_least(f"(c) planted {planted:.0%} called slower, of {slowed}", 38 * slowed // 40, slowed - missed),
    ]
    return figures, [f"- {name}: {units.count(n, 'time')}" for name, n in told.items() if ": " in name and n]


def two_runs(runs: list[Loaded], apart: float) -> tuple[list[Figure], list[str]]:
    """(b): every pair of sweeps far enough apart, by compare, with the number that the other sweeps would store."""
    begun = [datetime.fromisoformat(run.runs[0].started_at).timestamp() for run in runs]
    found = []
    for i, j in itertools.combinations(range(len(runs)), 2):
        if abs(begun[j] - begun[i]) >= apart:
            others = [(begun[k], runs[k]) for k in range(len(runs)) if k not in (i, j)]
            here = runs[i].runs[0].machine
            known = noise.Noise(
                machine=here,
                taken_at="",
                span_s=0.0,
                sweeps=tuple(str(start) for start, _ in others),
                shares=noise.shares(others),
            )
            with mock.patch.object(noise, "stored", lambda root, known=known: {known.machine.key: known}):
                found += comparison.comparison(runs[i], runs[j]).rows
    false = [row for row in found if row.word in ("slower", "faster")]
    holding = [row.verdict.ratio.low <= 1 <= row.verdict.ratio.high for row in found]
    most = 4 * len(found) // 200
    itself = Counter(row.word for run in runs for row in comparison.comparison(run, run).rows)
    figures = [
        at_most(f"(b) rows of two runs >= {apart:.0f} s apart called different, of {len(found)}", most, len(false)),
        at_least("(b) the difference's interval holds 0", 93, 100 * statistics.fmean(holding or [0]), "%"),
        at_most("(b) a run against itself, not the same", 0, itself.total() - itself["same"]),
    ]
    notes = []
    for side, group in stats.group_by(found, lambda row: noise.side(row.new, row.clock)).items():
        same = 100 * statistics.fmean(row.word == "same" for row in group)
        different = sum(row in false for row in group)
        notes.append(f"- {side}: {same:.0f} % of {len(group)} called the same, {different} different")
    notes += [f"- false: {row.name} {row.verdict.ratio.low:.4f} .. {row.verdict.ratio.high:.4f}" for row in false]
    return figures, notes


def ten_crossings(runs: list[Loaded], here: Machine) -> tuple[list[Figure], list[str]]:
    """(d): each sweep's crossings beside the middle of all of them, form by form."""
    crossings = defaultdict(list)
    for run in runs:
        for answer in crossover.crossovers(run.measurements, machine=here):
            if answer.kind == "gpu-from":
                crossings[answer.precision, answer.form].append(answer.crossings[0].at)
    held, notes = [], []
    for (precision, form), at in crossings.items():
        middle = statistics.median(e.value for e in at)
        own = [e.low <= middle <= e.high for e in at]
        held += own
        spans = ", ".join(f"{e.value:.0f} ({e.low:.0f}..{e.high:.0f})" for e in at)
        notes.append(f"- {precision}, {form.mode}, {form.clock}: {sum(own)} of {len(own)} hold {middle:.0f}: {spans}")
    if not held:
        return [], ["- no crossover: (d) needs sweeps of a machine with a GPU"]
    share = 100 * statistics.fmean(held)
    return [at_least(f"(d) of {len(held)} crossings that hold the middle one", 85, share, "%")], notes


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument(
        "sweeps", nargs="*", type=Path, help="folders of sweeps (default: the last that doctor --noise made here)"
    )
    flags.add_argument("--sets", type=int, default=20, help="of ten rows each, side by side; 0: only read the sweeps")
    flags.add_argument("--kept", type=Path, help="file of the counts of sets so far, to go on with and to add to")
    flags.add_argument("--stop-after", type=float, default=1e9, help="seconds from which on no set is begun")
    flags.add_argument("--apart", type=float, default=APART_S, help="seconds between two runs that are compared")
    args = flags.parse_args()
    here = facts.describe()
    kept = sorted((noise.REPORTS / "local" / here.key).glob("noise-*/[0-9]*[0-9]"))[-doctor.SWEEPS :]
    runs = [records.read(folder) for folder in args.sweeps or kept]
    parts = [one_run(here, args.sets, args.kept, args.stop_after)] if args.sets else []
    if runs:
        parts += [two_runs(runs, args.apart), ten_crossings(runs, runs[-1].runs[-1].machine)]
    else:
        parts.append(([], ["- no sweeps are kept: python -m workloads.doctor --noise"]))
    figures, notes = ([one for part in parts for one in part[i]] for i in (0, 1))
    return table("aa", "False and missed alarms", figures, notes)


if __name__ == "__main__":
    sys.exit(main())
