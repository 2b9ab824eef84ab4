"""How much a row's time differs from process to process: from rows of several fresh processes, kept beside a machine's runs.

What an interval over the blocks of one process cannot see (where arrays and code came to lie, what else the host did) is in
every comparison of two runs, so nothing smaller is claimed of them.
"""

import math
import pathlib
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from analysis.estimate import t_quantile
from analysis.roofs import clock_of, is_gpu
from workloads import results

if TYPE_CHECKING:
    from workloads.results import Measurement, Samples

REPORTS = pathlib.Path(__file__).parent.parent / "reports"
PROCESSES = " processes"  # how a row of --rigorous says why it stopped
FEWEST = 3
DISTURBED = {"other-load", "other-tenant", "quota"}  # what such a row's processes differ by is not its own
# With nothing stored: the largest difference between two processes that the A/A pairs of bench-verdicts-short-calls show.
UNKNOWN = 0.08


class Spread(msgspec.Struct, frozen=True):
    """`limit`: the relative difference that two single processes of a row stay within in 95 of 100 pairs; `source` says what
    it was taken from, `processes` how many there were."""

    limit: float
    source: str
    processes: int = 0


def over_processes(samples: "Samples") -> bool:
    """Whether the blocks of these samples are processes, so that their interval has the spread between processes in it."""
    return samples.stop_reason.endswith(PROCESSES) and len(set(samples.block)) >= FEWEST


def limit(samples: "Samples") -> float:
    """The difference of two single processes, from the medians of several: t s sqrt(2) in the logarithm.

    Source: ISO 5725-6, the reproducibility limit, with Student's t in place of 1.96, as the processes are few.
    """
    groups: dict[int, list[float]] = {}
    for second, block in zip(samples.seconds, samples.block, strict=True):
        groups.setdefault(block, []).append(second)
    logs = [math.log(statistics.median(group)) for group in groups.values()]
    return math.expm1(t_quantile(len(logs) - 1) * statistics.stdev(logs) * math.sqrt(2))


class Stored:
    """The spreads known of a machine's rows."""

    def __init__(self, measurements: "Iterable[Measurement]"):
        self._rows: dict[tuple[str, str], Samples] = {}
        self._like: dict[tuple, list[float]] = {}
        for m in measurements:
            samples = clock_of(m)
            if (
                m.status == "ok"
                and samples
                and over_processes(samples)
                and min(samples.seconds) > 0
                and not DISTURBED & {*m.flags}
            ):
                self._rows[m.key, samples.clock] = samples
        for (key, _), samples in self._rows.items():
            row = msgspec.json.decode(key, type=results.Row)
            if row.settings.process == "warm":  # what happens once in a process tells nothing of other rows
                for group in _like(row):
                    self._like.setdefault(group, []).append(limit(samples))

    def of(self, m: "Measurement") -> Spread:
        """The spread of a row: its own, else that of its kernel's other rows, else of its operation's: the largest of them, of
        ten or more the one that nine of ten stay below."""
        clock = clock_of(m)
        own = self._rows.get((m.key, clock.clock)) if clock else None
        if own:
            return Spread(limit(own), "this row", len(set(own.block)))
        for group in _like(m):
            if known := sorted(self._like.get(group, ())):
                return Spread(known[math.ceil(0.9 * len(known)) - 1], f"{len(known)} rows of {group[0]}")
        return Spread(UNKNOWN, "nothing stored")

    def __len__(self) -> int:
        return len(self._rows)


def _like(row: "Measurement | results.Row") -> tuple[tuple, ...]:
    """What a row's spread is taken from where its own is not known: rows of the same groups, the nearest first."""
    how = ("GPU" if is_gpu(row.settings.device) else "CPU", row.settings.mode, row.settings.threads == 1)
    return (row.kernel, *how), (row.kernel.partition("/")[0], *how)


def stored(key: str, more: "Iterable[Measurement]" = (), root: pathlib.Path | None = None) -> Stored:
    """What the runs kept under reports/ and reports/local/ say of the machine with this key, and `more` measurements."""
    root = root or REPORTS
    found: list[Measurement] = []
    for folder in (root / key, root / "local" / key):
        if folder.is_dir():
            found += [m for file in sorted(folder.glob("*/*.jsonl")) for m in _rigorous(file)]
    return Stored([*found, *more])


def _rigorous(file: pathlib.Path) -> "list[Measurement]":
    """A file's rows over processes; lines that cannot be such are not even decoded."""
    try:
        lines = [line for line in file.read_bytes().splitlines() if PROCESSES.encode() + b'"' in line]
    except OSError:
        return []
    return results.decode(lines)[1]
