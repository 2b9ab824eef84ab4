"""Two runs row by row: faster, slower, same or can't tell, from intervals and from the least effect that may be claimed."""

import math
from collections.abc import Iterable

import msgspec

from analysis import labels, noise
from analysis.noise import Spread, Stored
from analysis.stats import Verdict, clock_of, exact, verdict
from workloads.records import Loaded, Machine, Measurement, Run, Samples

MIN_EFFECT = 0.02  # of single processes; never below the spread between them
WIDEST = 0.25  # where processes differ by more, nothing is said to be the same
OVER_PROCESSES = 0.005  # of rows over several processes in turns, or where it is known what other occasions change
SIDE_BY_SIDE = (
    "side by side"  # the note of rows taken in alternating blocks, with a text that no other rows have: pairs
)
ONE_OCCASION = "single processes of "  # of rows over processes where it is not known what occasions differ by
_BROKEN = ("failed", "wrong")
WORDS = ("slower", "faster", "same", "can't tell")


class Compared(msgspec.Struct, frozen=True):
    """One row in both runs: seconds on the clock it is judged by, and the verdict, which claims nothing below `least`."""

    name: str
    old: "Measurement"
    new: "Measurement"
    clock: str
    verdict: Verdict
    least: Spread

    @property
    def word(self) -> str:
        return self.verdict.word

    @property
    def flags(self) -> tuple[str, ...]:
        """What made either side doubtful when it was measured."""
        return tuple(dict.fromkeys((*self.old.flags, *self.new.flags)))


class Comparison(msgspec.Struct, frozen=True):
    """Everything that two runs have to say to each other.

    differences: what the machines, the software and the runs have not in common. broken: rows that were ok and now fail or
    are wrong. only_old, only_new: rows with a time in one run alone.
    """

    differences: tuple[str, ...]
    rows: tuple[Compared, ...]
    broken: "tuple[Measurement, ...]"
    only_old: "tuple[Measurement, ...]"
    only_new: "tuple[Measurement, ...]"
    stored: int  # rows whose spread between processes is known

    def of(self, word: str) -> tuple[Compared, ...]:
        """The rows with that verdict, the largest change first."""
        rows = [r for r in self.rows if r.word == word]
        return tuple(sorted(rows, key=lambda r: -abs(math.log(r.verdict.ratio.value))))

    def regressions(self, share: float) -> tuple[Compared, ...]:
        """The rows called slower whose time grew by more than that share."""
        return tuple(r for r in self.of("slower") if r.verdict.ratio.value > 1 + share)


def comparison(
    old: "Loaded", new: "Loaded", *, clock: str = "", min_effect: float | None = None, stored: Stored | None = None
) -> Comparison:
    """Compares the rows that both have.

    Args:
        clock: which samples count; "" is the device clock on a GPU where both have it, else host latency.
        min_effect: the least effect instead of MIN_EFFECT; the spread between processes still counts where it is larger.
        stored: the spreads known of the machine; default those stored for it and those of the two runs themselves.
    """
    if stored is None:
        key = new.runs[-1].machine.key if new.runs else ""
        stored = noise.stored(key, (*old.measurements, *new.measurements))
    before, after = ({m.key: m for m in loaded.measurements} for loaded in (old, new))
    rows, broken = [], []
    for key, a in before.items():
        b = after.get(key)
        if b is None or not _timed(a):
            continue
        if b.status in _BROKEN:
            broken.append(b)
        elif made := _compared(a, b, clock, min_effect, stored):
            rows.append(made)
    both = {r.old.key for r in rows} | {b.key for b in broken}
    only_old, only_new = (
        tuple(m for m in side.values() if _timed(m) and m.key not in both) for side in (before, after)
    )
    return Comparison(differences(old, new), tuple(rows), tuple(broken), only_old, only_new, len(stored))


def _timed(m: "Measurement") -> bool:
    return m.ok and any(s.seconds and min(s.seconds) > 0 for s in m.samples)


def _compared(
    a: "Measurement", b: "Measurement", clock: str, min_effect: float | None, stored: Stored
) -> Compared | None:
    x, y = (m.on(clock) if clock else clock_of(m) for m in (a, b))
    if not clock and x and y and x.clock != y.clock:
        x, y = (m.on("host-latency") for m in (a, b))
    if not (x and y and x.seconds and y.seconds and min(x.seconds + y.seconds) > 0):
        return None
    paired = bool(a.notes.get(SIDE_BY_SIDE)) and a.notes.get(SIDE_BY_SIDE) == b.notes.get(SIDE_BY_SIDE)
    paired = paired and len(set(x.block)) == len(set(y.block))
    least = least_effect(a, x, y, min_effect, stored, paired)
    told = _verdict(x, y, paired, least.limit)
    if told.word == "same" and least.limit > WIDEST:
        told = msgspec.structs.replace(told, word="can't tell")
    return Compared(labels.row(b), a, b, x.clock, told, least)


def _verdict(x: "Samples", y: "Samples", paired: bool, least: float) -> Verdict:
    """Of a single sample a side nothing is known but its value."""
    if min(len(x.seconds), len(y.seconds)) < 2:
        ratio = y.seconds[0] / x.seconds[0]
        return Verdict("can't tell", exact(ratio))
    return verdict(x, y, paired=paired, min_effect=least)


def least_effect(
    row: "Measurement", x: "Samples", y: "Samples", asked: float | None, stored: Stored, paired: bool = False
) -> Spread:
    """The smallest difference that may be claimed of a row, and what says so. `paired`: the processes took turns, so that only
    what such processes differ by counts, where that is known, and of rows over processes nothing beyond their intervals. Two runs
    over processes that did not take turns differ by what occasions do; where that is not known they are as single processes."""
    over = noise.over_processes(x) and noise.over_processes(y)
    if over and paired:
        return Spread(OVER_PROCESSES if asked is None else asked, "intervals over processes in turns")
    floor, known, of = MIN_EFFECT, stored.of(row), ONE_OCCASION if over else ""
    if over and (nearer := stored.of(row, noise.OCCASIONS)).source != noise.NOTHING:
        floor, known, of = OVER_PROCESSES, nearer, f"{nearer.processes} occasions of "
    elif paired and (nearer := stored.of(row, noise.TURNS)).source != noise.NOTHING:
        known = nearer
    floor = floor if asked is None else asked
    if known.limit <= floor:
        return Spread(floor, "the least effect asked for" if asked else "the least effect")
    return known if known.source == noise.NOTHING else msgspec.structs.replace(known, source=of + known.source)


def differences(old: "Loaded", new: "Loaded") -> tuple[str, ...]:
    """What differs between the last Run lines: facts of the machine, GPUs, versions, then how it was measured."""
    if not (old.runs and new.runs):
        return ("a file has no line that says what machine it came from",)
    a, b = old.runs[-1], new.runs[-1]
    told = [*_facts(a.machine, b.machine), *_changed({}, a.software, b.software)]
    told += _changed({}, *({"sources": r.sources, "commit": r.commit, "seed": str(r.seed)} for r in (a, b)))
    return tuple(told)


def _facts(a: "Machine", b: "Machine") -> list[str]:
    def flat(machine: "Machine") -> dict[str, str]:
        told = {f: str(getattr(machine, f)) for f in machine.__struct_fields__ if f not in ("gpus", "caches_bytes")}
        told |= {f"{name} cache": str(size) for name, size in machine.caches_bytes.items()} | {
            "GPUs": str(len(machine.gpus))
        }
        for i, gpu in enumerate(machine.gpus):  # which of several like it is no difference of the machine
            told |= {f"gpu:{i} {f}": str(getattr(gpu, f)) for f in gpu.__struct_fields__ if f != "uuid"}
        return told

    return _changed({"key": "machine"}, flat(a), flat(b))


def _changed(titles: dict[str, str], a: dict[str, str], b: dict[str, str]) -> list[str]:
    return [
        f"{titles.get(name, name)}: {a.get(name, 'none')} -> {b.get(name, 'none')}"
        for name in dict.fromkeys([*a, *b])
        if a.get(name) != b.get(name)
    ]


def machine_keys(runs: "Iterable[Run]") -> tuple[str, ...]:
    """The machines that runs come from, each once."""
    return tuple(dict.fromkeys(r.machine.key for r in runs))
