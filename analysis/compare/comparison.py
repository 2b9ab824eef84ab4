"""Two runs row by row: faster, slower, same or can't tell, by their visits and the noise between two runs of the machine."""

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict, astuple

from analysis import labels, noise
from analysis.metrics import COMPARED
from analysis.noise import Between
from analysis.stats import MIN_EFFECT, Verdict, clock_of, exact, quick_median, verdict
from workloads.records import Loaded, Machine, Measurement, Run, Samples

_BY_INTERVALS = Between(share=0.0, source="in the rows' own intervals")
_BROKEN = ("failed", "wrong")
WORDS = ("slower", "faster", "same", "can't tell")
CHANGED = WORDS[:2]


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """One row in both runs."""

    #: The row in words.
    name: str
    #: The row in the earlier run.
    old: Measurement
    #: The row in the later run.
    new: Measurement
    #: The clock that the verdict is by.
    clock: str
    #: The later run's seconds over the earlier one's, and what that says.
    verdict: Verdict
    #: The noise between two runs, which the verdict's interval contains.
    between: Between

    @property
    def word(self) -> str:
        """slower, faster, same or can't tell."""
        return self.verdict.word

    @property
    def smallest_slowdown(self) -> float:
        """The smallest slowdown for which this row would have been called slower, as a share of its time: 0.2 is 20 %. It is
        the one at which the lower end of the interval, as wide in the logarithm as it is now, would reach MIN_EFFECT. Infinite
        for rows of which nothing is ever claimed: those that other programs disturbed, and those of a single visit.
        """
        ratio = self.verdict.ratio
        no_interval = self.word == "can't tell" and ratio.low == ratio.high
        if no_interval or disturbed(self.old, self.clock) or disturbed(self.new, self.clock):
            return math.inf
        return (1 + MIN_EFFECT) * ratio.value / ratio.low - 1

    @property
    def flags(self) -> tuple[str, ...]:
        """The flags of both rows, each once: doubts noted while they were measured."""
        return tuple(dict.fromkeys((*self.old.flags, *self.new.flags)))


class RunComparison(msgspec.Struct, frozen=True, kw_only=True):
    """Two runs compared row by row."""

    #: Facts of machine, software and run that differ: `name: old -> new`.
    differences: tuple[str, ...]
    #: The rows with a time in both runs.
    rows: tuple[Compared, ...]
    #: Rows of the later run that fail or are wrong now and were ok.
    broken: tuple[Measurement, ...]
    #: Rows with a time in the earlier run alone.
    only_old: tuple[Measurement, ...]
    #: Rows with a time in the later run alone.
    only_new: tuple[Measurement, ...]
    #: Lines of the later run's files that cannot be read.
    unread: int = 0

    @property
    def lost(self) -> tuple[Measurement, ...]:
        """Rows of the earlier run that a line of the later one may hold which cannot be read."""
        return self.only_old if self.unread else ()

    def with_verdict(self, word: str) -> tuple[Compared, ...]:
        """The rows with that verdict, the largest change first."""
        rows = [r for r in self.rows if r.word == word]
        return tuple(sorted(rows, key=lambda r: -abs(math.log(r.verdict.ratio.value))))

    def regressions(self, share: float) -> tuple[Compared, ...]:
        """The rows called slower whose time grew by more than that share."""
        return tuple(r for r in self.with_verdict("slower") if r.verdict.ratio.value > 1 + share)

    def too_noisy(self, share: float) -> tuple[Compared, ...]:
        """The rows that would not have been called slower if they had become slower by that share."""
        return tuple(r for r in self.rows if r.smallest_slowdown > share)


def comparison(old: Loaded, new: Loaded, clock: str = "") -> RunComparison:
    """Compares the rows that both runs have. clock: the one whose times are compared; "" for that of the device on a GPU where
    both rows have it, else the host's latency.
    """
    before = {m.key: m for m in old.measurements}
    after = {m.key: m for m in new.measurements}
    rows = []
    broken = []
    for key, earlier in before.items():
        later = after.get(key)
        if later is None or not _timed(earlier):
            continue
        if later.status in _BROKEN:
            broken.append(later)
            continue
        row = compared(earlier, later, new.machine, clock)
        if row:
            rows.append(row)
    in_both = {row.old.key for row in rows}
    in_both.update(later.key for later in broken)
    return RunComparison(
        differences=differences(old, new),
        rows=tuple(rows),
        broken=tuple(broken),
        only_old=tuple(m for m in before.values() if _timed(m) and m.key not in in_both),
        only_new=tuple(m for m in after.values() if _timed(m) and m.key not in in_both),
        unread=new.bad_lines,
    )


def _timed(m: Measurement) -> bool:
    """Whether a row is ok and has samples."""
    return m.ok and any(s.seconds for s in m.samples)


def compared(old: Measurement, new: Measurement, machine: Machine | None, clock: str = "") -> Compared | None:
    """Compares a row of two separate runs; None without samples on a common clock. A row compared with itself is the same. Of a
    row that other programs disturbed no change is claimed.

    machine: of the later run, for the noise between two of its runs. clock: as in `comparison`.
    """
    old_samples, new_samples = _common_samples(old, new, clock)
    if old_samples is None or new_samples is None or not old_samples.seconds or not new_samples.seconds:
        return None
    between = _BY_INTERVALS
    judged = Verdict(word="same", ratio=exact(1.0))
    if old != new:
        # Device times differ between processes, and rigorous runs have ten of them. Host times differ from hour to hour too.
        both_by_process = old_samples.is_by_process and new_samples.is_by_process
        shows_noise = new_samples.clock == "device" and both_by_process
        if not shows_noise:
            between = noise.between_runs(machine, noise.side(new, new_samples.clock), quick_median(new_samples))
        judged = verdict(old_samples, new_samples, between=between.share)
    was_disturbed = disturbed(old, new_samples.clock) or disturbed(new, new_samples.clock)
    if judged.word != "same" and was_disturbed:
        judged = Verdict(word="can't tell", ratio=judged.ratio)
    return Compared(
        name=labels.row(new),
        old=old,
        new=new,
        clock=old_samples.clock,
        verdict=judged,
        between=between,
    )


def _common_samples(old: Measurement, new: Measurement, clock: str) -> tuple[Samples | None, Samples | None]:
    """The samples of two rows on one clock; None for a row without samples on it. clock: its name; "" for the clock by which
    rows are judged (on a GPU the device's), or the host's latency where only one of the rows has that.
    """
    if clock:
        return old.on(clock), new.on(clock)
    old_samples, new_samples = clock_of(old), clock_of(new)
    if old_samples and new_samples and old_samples.clock != new_samples.clock:
        return old.on("host-latency"), new.on("host-latency")
    return old_samples, new_samples


def disturbed(m: Measurement, clock: str) -> bool:
    """Whether other programs ran on what the clock times."""
    return "other-tenant" in m.flags or (clock != "device" and "other-load" in m.flags)


def differences(old: Loaded, new: Loaded) -> tuple[str, ...]:
    """The facts that differ between two runs, as `name: old -> new`: of the machine and its GPUs, then versions of software, then
    the program's sources and seed. Of several runs in a file the last counts.
    """
    if not (old.last and new.last):
        return ("a file has no line that says what machine it came from",)
    differing = []
    for before, after in zip(_facts(old.last), _facts(new.last), strict=True):
        for name in dict.fromkeys([*before, *after]):
            if before.get(name) != after.get(name):
                differing.append(f"{name}: {before.get(name, 'none')} -> {after.get(name, 'none')}")
    return tuple(differing)


def _facts(run: Run) -> tuple[dict[str, str], dict[str, str], dict[str, str]]:
    """(facts of the machine, versions of the software, the method) of a run, each by its name."""
    method = {"sources": run.sources, "commit": run.commit, "seed": str(run.seed)}
    return _machine_facts(run.machine), run.software, method


def _machine_facts(machine: Machine) -> dict[str, str]:
    """The facts of a machine by name, as text. GPUs of one model are the same, so their UUIDs are left out."""
    facts = {"machine": machine.key}
    for name, value in asdict(machine).items():
        if name not in ("key", "gpus", "caches_bytes"):
            facts[name] = str(value)
    for name, size in machine.caches_bytes.items():
        facts[f"{name} cache"] = str(size)
    facts["GPUs"] = str(len(machine.gpus))
    for i, gpu in enumerate(machine.gpus):
        for name, value in asdict(gpu).items():
            if name != "uuid":
                facts[f"gpu:{i} {name}"] = str(value)
    return facts


def machine_keys(runs: Iterable[Run]) -> tuple[str, ...]:
    """The machines that runs come from, each once."""
    return tuple(dict.fromkeys(r.machine.key for r in runs))


def records(comparison: RunComparison) -> list[dict[str, object]]:
    """The compared rows for csv and json, by the columns of metrics.COMPARED. They are sorted by verdict, then the largest change
    first.
    """
    records = []
    for word in WORDS:
        for row in comparison.with_verdict(word):
            records.append(dict(zip(COMPARED, _cells(row), strict=True)))
    return records


def _cells(row: Compared) -> tuple[object, ...]:
    """The values of a compared row, in the order of metrics.COMPARED."""
    slowdown = row.smallest_slowdown if math.isfinite(row.smallest_slowdown) else None
    return (
        row.name,
        row.clock,
        quick_median(row.old.on(row.clock)),
        quick_median(row.new.on(row.clock)),
        *astuple(row.verdict.ratio),
        row.word,
        row.between.share,
        row.between.source,
        slowdown,
        " ".join(row.flags),
    )
