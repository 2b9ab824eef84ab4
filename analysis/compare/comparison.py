"""Two runs row by row: faster, slower, same or can't tell, by their visits and the noise between two runs of the machine."""

import math
from collections.abc import Iterable

import msgspec
from msgspec.structs import asdict, astuple

from analysis import labels, noise
from analysis.metrics import COMPARED
from analysis.noise import Between
from analysis.stats import MIN_EFFECT, Verdict, clock_of, exact, middle, verdict
from workloads.records import Loaded, Machine, Measurement, Run

_BY_INTERVALS = Between(0.0, "in the rows' own intervals")
_BROKEN = ("failed", "wrong")
WORDS = ("slower", "faster", "same", "can't tell")
CHANGED = WORDS[:2]


class Compared(msgspec.Struct, frozen=True):
    """One row in both runs, on the clock it is judged by. between: noise between runs, contained in the verdict's interval."""

    name: str
    old: "Measurement"
    new: "Measurement"
    clock: str
    verdict: Verdict
    between: Between

    @property
    def word(self) -> str:
        return self.verdict.word

    @property
    def smallest_slowdown(self) -> float:
        """The smallest slowdown that this row would have been called slower for, as a share of its time: 0.2 is 20 %. Its
        interval would lie as it does, in the logarithm, around the larger ratio. Infinite where nothing is ever claimed: of
        a row that other programs disturbed, and of one visit.
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


class Comparison(msgspec.Struct, frozen=True):
    """Two runs compared row by row.

    differences: facts of machine, software and run that differ. broken: rows that were ok and now fail or are wrong. only_old,
    only_new: rows with a time in one run alone. unread: lines of the later run's files that cannot be read.
    """

    differences: tuple[str, ...]
    rows: tuple[Compared, ...]
    broken: "tuple[Measurement, ...]"
    only_old: "tuple[Measurement, ...]"
    only_new: "tuple[Measurement, ...]"
    unread: int = 0

    @property
    def lost(self) -> "tuple[Measurement, ...]":
        """Rows of the earlier run that a line of the later one may hold which cannot be read."""
        return self.only_old if self.unread else ()

    def of(self, word: str) -> tuple[Compared, ...]:
        """The rows with that verdict, the largest change first."""
        rows = [r for r in self.rows if r.word == word]
        return tuple(sorted(rows, key=lambda r: -abs(math.log(r.verdict.ratio.value))))

    def regressions(self, share: float) -> tuple[Compared, ...]:
        """The rows called slower whose time grew by more than that share."""
        return tuple(r for r in self.of("slower") if r.verdict.ratio.value > 1 + share)

    def too_noisy(self, share: float) -> tuple[Compared, ...]:
        """The rows that would not have been called slower if they had become slower by that share."""
        return tuple(r for r in self.rows if r.smallest_slowdown > share)


def comparison(old: Loaded, new: Loaded, clock: str = "") -> Comparison:
    """Compares the rows that both runs have, by the samples of that clock. "": the device clock on a GPU where both have it,
    else host latency."""
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
    return Comparison(
        differences=differences(old, new),
        rows=tuple(rows),
        broken=tuple(broken),
        only_old=tuple(m for m in before.values() if _timed(m) and m.key not in in_both),
        only_new=tuple(m for m in after.values() if _timed(m) and m.key not in in_both),
        unread=new.bad_lines,
    )


def _timed(m: Measurement) -> bool:
    return m.ok and any(s.seconds for s in m.samples)


def compared(a: Measurement, b: Measurement, machine: "Machine | None", clock: str = "") -> Compared | None:
    """The verdict on two rows of separate runs; None without a common clock. A row compared with itself is the same; a row that
    other programs disturbed gets no claim of a change."""
    x, y = (m.on(clock) if clock else clock_of(m) for m in (a, b))
    if not clock and x and y and x.clock != y.clock:
        x, y = (m.on("host-latency") for m in (a, b))
    if not (x and y and x.seconds and y.seconds):
        return None
    between = _BY_INTERVALS
    judged = Verdict("same", exact(1.0))
    if a != b:
        # Device times differ between processes, and rigorous runs have ten of them. Host times differ from hour to hour too.
        shows_noise = y.clock == "device" and x.is_by_process and y.is_by_process
        if not shows_noise:
            between = noise.between_runs(machine, noise.side(b, y.clock), middle(y))
        judged = verdict(x, y, between=between.share)
    if judged.word != "same" and (disturbed(a, y.clock) or disturbed(b, y.clock)):
        judged = Verdict("can't tell", judged.ratio)
    return Compared(name=labels.row(b), old=a, new=b, clock=x.clock, verdict=judged, between=between)


def disturbed(m: Measurement, clock: str) -> bool:
    """Whether other programs ran on what the clock times."""
    return "other-tenant" in m.flags or (clock != "device" and "other-load" in m.flags)


def differences(old: Loaded, new: Loaded) -> tuple[str, ...]:
    """`name: old -> new` for what differs in the last Run lines: facts of the machine, GPUs, versions, then the method."""
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
    facts = {"machine": machine.key}
    for name, value in asdict(machine).items():
        if name not in ("key", "gpus", "caches_bytes"):
            facts[name] = str(value)
    for name, size in machine.caches_bytes.items():
        facts[f"{name} cache"] = str(size)
    facts["GPUs"] = str(len(machine.gpus))
    for i, gpu in enumerate(machine.gpus):
        for name, value in asdict(gpu).items():
            if name != "uuid":  # another GPU of the same model makes no other machine
                facts[f"gpu:{i} {name}"] = str(value)
    return facts


def machine_keys(runs: "Iterable[Run]") -> tuple[str, ...]:
    """The machines that runs come from, each once."""
    return tuple(dict.fromkeys(r.machine.key for r in runs))


def records(made: Comparison) -> list[dict]:
    """The compared rows as plain records, in the columns of metrics.COMPARED, every verdict's largest change first."""

    def cells(r: Compared) -> tuple:
        times = (middle(m.on(r.clock)) for m in (r.old, r.new))
        slowdown = r.smallest_slowdown if math.isfinite(r.smallest_slowdown) else None
        ratio, between = astuple(r.verdict.ratio), (r.between.share, r.between.source)
        return r.name, r.clock, *times, *ratio, r.word, *between, slowdown, " ".join(r.flags)

    records = []
    for word in WORDS:
        for compared in made.of(word):
            records.append(dict(zip(COMPARED, cells(compared), strict=True)))
    return records
