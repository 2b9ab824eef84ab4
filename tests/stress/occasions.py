"""What `analysis.compare` says of runs of --rigorous that are alike and were taken at different moments: every pair of them."""

import argparse
import functools
import itertools
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path

import msgspec
from must_reach import REPORTS, Figure, exactly, table

from analysis import labels, noise, stats
from analysis.compare import comparison
from kernels.problems import Matmul, Peak, Stream
from workloads import matmul, records
from workloads.harness import sweep
from workloads.machine import facts
from workloads.records import Loaded, Measurement, Row, Samples, Settings

ONE, TWO = Settings(threads=1), Settings(threads=2)
ROWS = [
    *(Row(f"matmul/numpy/{v}", Matmul(n, n, n), ONE) for v in ("blas", "operator") for n in (64, 512)),
    Row("matmul/numba/parallel", Matmul(64, 64, 64), ONE),
    Row("stream/numba/loop", Stream("triad", 1 << 20), ONE),
    Row("stream/numba/loop", Stream("triad", 1 << 27), ONE),
    Row("peak/numba/fma", Peak("float32", 1 << 28), ONE),
    Row("matmul/numpy/blas", Matmul(512, 512, 512), TWO),
    Row("stream/numba/loop", Stream("triad", 1 << 27), TWO),
]
HOW = ["-q", "--rigorous", "--fast", "--max-time", "0.5"]
AGAIN = "make stress NAME=occasions ARGS=--take"
KEPT = 25  # samples of a process, evenly over its time: the files are small, and their median as sure as it need be
FEWEST = 2 + noise.ENOUGH  # runs: two that are compared, and the others
PLANTED = 0.10
ALLOWED = 0.02  # of the pairs
INTERVALS, TWO_RUNS, OTHERS = "the intervals alone", "the two runs alone known", "the other runs known"


class Pair(msgspec.Struct, frozen=True):
    """Two runs of a row: what was `known` when they were compared, the verdict, the ratio of their medians, the least effect
    claimed, whether the second, had it taken PLANTED longer, is called slower, and whether other load disturbed one of them."""

    name: str
    known: str
    word: str
    ratio: float
    least: float
    found: bool
    disturbed: bool

    @property
    def false(self) -> bool:
        return self.word in ("slower", "faster")


def main() -> int:
    flags = argparse.ArgumentParser(description=__doc__)
    flags.add_argument("--take", action="store_true", help="sweep now (100 s) and keep that too, before all are judged")
    flags.add_argument("--keep", nargs="+", metavar="RUN", default=[], help="keep these runs of --rigorous too")
    args = flags.parse_args()
    place = REPORTS / facts.describe().key / "occasions"
    for run in args.keep:
        keep(place, records.read(run))
    if args.take:
        with tempfile.TemporaryDirectory() as folder:
            sweep.sweep(ROWS, matmul.parser().parse_args([*HOW, "-o", folder]), "matmul", AGAIN)
            keep(place, records.read(folder))
    runs = sorted(map(records.read, place.glob("*.jsonl")), key=lambda run: run.runs[0].started_at)
    if len(runs) < FEWEST:
        flags.error(f"{len(runs)} runs of this machine are kept, {FEWEST} are needed: ARGS=--take, minutes apart")
    return told(runs)


def keep(place: Path, run: Loaded) -> None:
    """Writes the run with KEPT samples of each process."""
    lines = [*run.runs, *(msgspec.structs.replace(m, samples=(thin(m.samples[0]),)) for m in run.measurements)]
    place.mkdir(parents=True, exist_ok=True)
    name = run.runs[0].started_at.replace(":", "").replace("-", "")
    (place / f"{name}.jsonl").write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))


def thin(samples: Samples) -> Samples:
    kept = []
    for block in dict.fromkeys(samples.block):
        own = [(s, b) for s, b in zip(samples.seconds, samples.block, strict=True) if b == block]
        kept += [own[i * len(own) // KEPT] for i in range(KEPT)] if len(own) > KEPT else own
    seconds, blocks = zip(*kept, strict=True)
    return msgspec.structs.replace(samples, seconds=seconds, block=blocks)


def judged(runs: list[Loaded]) -> list[Pair]:
    """Every pair of runs of every row: by the intervals alone, by what the two runs show, and by what the others do."""
    rows, found = [{m.key: m for m in run.measurements} for run in runs], []
    for i, j in itertools.combinations(range(len(runs)), 2):
        others = [run for k, run in enumerate(rows) if k not in (i, j)]
        known = {
            INTERVALS: None,
            TWO_RUNS: noise.Stored([*rows[i].values(), *rows[j].values()]),
            OTHERS: together(others),
        }
        for key in (key for key in rows[i] if key in rows[j]):
            found += [pair(rows[i][key], rows[j][key], what, stored) for what, stored in known.items()]
    return found


def together(runs: list[dict[str, Measurement]]) -> noise.Stored:
    """What several runs show of their rows, those left out that other load disturbed: as if one row had been added to."""
    quiet: dict[str, list[Measurement]] = {}
    for m in (m for run in runs for m in run.values() if not noise.DISTURBED & {*m.flags}):
        quiet.setdefault(m.key, []).append(m)
    return noise.Stored([functools.reduce(_grown, some) for some in quiet.values()])


def _grown(old: Measurement, more: Measurement) -> Measurement:
    """A row over processes with those of a later run added to it."""
    one, two = old.samples[0], more.samples[0]
    block = (*one.block, *(max(one.block) + 1 + b for b in two.block))
    both = msgspec.structs.replace(one, seconds=(*one.seconds, *two.seconds), block=block)
    series = {noise.TAKEN: (*_taken(old), *_taken(more))}
    reason = f"{len(set(block))}{noise.PROCESSES}"
    return msgspec.structs.replace(old, samples=(msgspec.structs.replace(both, stop_reason=reason),), series=series)


def _taken(m: Measurement) -> tuple[float, ...]:
    """When each process was taken, in Unix seconds."""
    return m.series.get(noise.TAKEN) or (datetime.fromisoformat(m.at).timestamp(),) * len(set(m.samples[0].block))


def pair(old: Measurement, new: Measurement, known: str, stored: noise.Stored | None) -> Pair:
    x, y = old.samples[0], new.samples[0]
    slow = msgspec.structs.replace(y, seconds=tuple((1 + PLANTED) * s for s in y.seconds))
    least = comparison.least_effect(new, x, y, None, stored).limit if stored else comparison.OVER_PROCESSES
    alike, planted = (stats.verdict(x, side, min_effect=least) for side in (y, slow))
    disturbed = bool(noise.DISTURBED & {*old.flags, *new.flags})
    return Pair(labels.row(new), known, alike.word, alike.ratio.value, least, planted.word == "slower", disturbed)


def told(runs: list[Loaded]) -> int:
    """Prints and writes the table; the exit code."""
    pairs = judged(runs)
    quiet, spoiled = ([p for p in pairs if p.disturbed == disturbed] for disturbed in (False, True))
    total, most = len(quiet) // 3, int(ALLOWED * len(quiet) / 3)
    figures = []
    for known in (TWO_RUNS, OTHERS):
        false = sum(p.false for p in quiet if p.known == known)
        what = f"false verdicts over {total} pairs, {known}"
        figures.append(Figure(what, f"<= {most}", exactly(false), false <= most))
    starts = [datetime.fromisoformat(run.runs[0].started_at) for run in runs]
    minutes = (starts[-1] - starts[0]).total_seconds() / 60
    about = [
        f"{len(runs)} runs of `{' '.join(HOW)}` over {minutes:.0f} minutes; every pair of them is compared, so a row's "
        f"pairs are not independent of one another. A cell's three numbers: by {INTERVALS}, from "
        f"{comparison.OVER_PROCESSES:.1%} on; with {TWO_RUNS}, so by what single processes differ by; with {OTHERS}, so by "
        f"what the middles of these differ by where {noise.ENOUGH} were left alone by other load, else by what their "
        f"single processes do. Found: of the same pairs, had the second run taken {PLANTED:.0%} longer."
    ]
    apart = "Pairs with a side that other load disturbed, as its flag says beside the verdict; they are not in the figures above:"
    notes = [*about, "", *lines(quiet), "", apart, "", *lines(spoiled)]
    title = "False alarms between two runs at different moments"
    return table("occasions", title, figures, notes, "stress", runs[-1].runs[-1].machine)


def lines(pairs: list[Pair]) -> list[str]:
    """A line a row, then all of them."""
    rows = [
        "| row | pairs | largest difference of two medians | least effect claimed, median | called different | found |",
        f"|{' --- |' * 6}",
    ]
    for name in (*dict.fromkeys(p.name for p in pairs), ""):
        own = [
            [p for p in pairs if p.known == known and name in ("", p.name)] for known in (INTERVALS, TWO_RUNS, OTHERS)
        ]
        largest = max((max(p.ratio, 1 / p.ratio) - 1 for p in own[0]), default=0.0)
        cells = [
            ", ".join(f"{statistics.median(p.least for p in some):.1%}" for some in own if some),
            *(", ".join(str(sum(map(what, some))) for some in own) for what in (_false, _found)),
        ]
        rows.append(f"| {name or 'all'} | {len(own[0])} | {largest:.1%} | {' | '.join(cells)} |")
    return rows


def _false(p: Pair) -> bool:
    return p.false


def _found(p: Pair) -> bool:
    return p.found


if __name__ == "__main__":
    sys.exit(main())
