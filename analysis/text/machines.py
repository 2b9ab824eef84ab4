"""Runs and machines beside each other in words, for a page that shows several: who is faster at what both did best, and what
analysis.compare.comparison found row by row; and of a fleet's devices who is below, in what and why, and who was lost."""

import statistics

import msgspec

from analysis.compare.comparison import Comparison, compared
from analysis.crossover.crossover import COPIES, LATENCY, Answer
from analysis.crossover.families import square_rows
from analysis.fleet.devices import LOST, Device
from analysis.fleet.judgment import Finding, Judged
from analysis.roofline.bounds import Roof, pick
from analysis.stats import Verdict, best_by, group_by, middle
from analysis.text.crossings import compare_sentence, form_name, verdict_words
from analysis.units import bytes_rate, count, digits, flops_rate, join, percent, seconds, times
from workloads.records import Machine, Measurement

_NAMED = 3  # rows of each verdict, in words
HEADS = "row | clock | before | after | times as long | verdict"


def best(
    old: "list[Measurement]", new: "list[Measurement]", names: tuple[str, str], machine: "Machine | None" = None
) -> list[str]:
    """The fastest square product of each device at the largest n that both have, by precision: a verdict on their samples, with
    what two runs of the `machine` of the new rows differ by."""
    said = []
    sides = [square_rows(rows) for rows in (old, new)]
    for precision in (p for p in sides[0] if p in sides[1]):
        for gpu, where in ((False, "CPU"), (True, "GPU, data already there")):
            a, b = (_fastest(side[precision], gpu) for side in sides)
            if not (shared := a.keys() & b.keys()):
                continue
            x, y = a[max(shared)], b[max(shared)]
            told = compared(x, y, machine, "host-latency")
            if told is None:
                continue
            one, other = (m.on("host-latency") for m in (x, y))
            said.append(
                f"{precision}, n = {max(shared)}, the fastest on the {where}: {names[1]} ({_how(y)}, {seconds(middle(other))}) "
                f"{_than(told.verdict)} {names[0]} ({_how(x)}, {seconds(middle(one))})."
            )
    return said


def _than(told: "Verdict") -> str:
    """`takes 9.41 times as long as`, `is 2.10 times as fast as` and the interval, as far as the verdict claims it."""
    r = told.ratio
    if told.word == "slower":
        return f"takes {times(r.value)} ({digits(r.low)}..{digits(r.high)}) as long as"
    if told.word == "faster":
        return f"is {times(1 / r.value)} ({digits(1 / r.high)}..{digits(1 / r.low)}) as fast as"
    return "takes as long as" if told.word == "same" else "cannot be told from"


def crossing(answers: "list[tuple[str, tuple[Answer, ...]]]") -> list[str]:
    """From where the GPU wins in each run: (its name, its answers), the first precision, with the data there and copied."""
    said = []
    for name, found in answers:
        first = [a for a in found if a.points and a.precision == found[0].precision]
        told = [f"{form_name(a.form)}, {verdict_words(a)}" for a in first if a.form in (LATENCY, COPIES[0])]
        said.append(f"{name}: {found[0].precision}, {'; '.join(told)}." if told else f"{name}: no GPU was measured.")
    return [f"Where the GPU wins. {' '.join(said)}"] if any(a.points for _, found in answers for a in found) else []


def ceilings(old: "tuple[Roof, ...]", new: "tuple[Roof, ...]", names: tuple[str, str]) -> list[str]:
    """How many times as much the measured roofs of memory and of arithmetic are, of the devices that both have."""
    told = []
    for device, where in (("cpu", "CPU"), ("gpu:0", "GPU")):
        for kind, name, words in (("memory", "", bytes_rate), ("compute", "float32", flops_rate)):
            a, b = (pick(roofs, device, kind, name) for roofs in (old, new))
            if a and b:
                what = f"the {where}'s {'memory' if kind == 'memory' else f'{name} arithmetic'}"
                rates = f"{words(b.rate.value)} against {words(a.rate.value)}"
                told.append(f"{what} gives {times(b.rate.value / a.rate.value)} as much ({rates})")
    return [f"Measured ceilings of {names[1]} beside {names[0]}: {'; '.join(told)}."] if told else []


def _fastest(sizes: "dict[int, list[Measurement]]", gpu: bool) -> "dict[int, Measurement]":
    """n -> the row whose call is shortest, its data on the device."""
    own = (m for rows in sizes.values() for m in rows if m.ok and m.on_gpu == gpu and m.mode == "resident")
    timed = (m for m in own if (s := m.on("host-latency")) and s.seconds)
    return best_by(timed, lambda m: m.problem.n, lambda m: middle(m.on("host-latency")))


def _how(m: "Measurement") -> str:
    return m.label + (f", {count(m.threads, 'thread')}" if m.threads else "")


def sentences(made: "Comparison", old: str, new: str) -> list[str]:
    """How many shared rows are faster, slower, the same by device and operation, and which differ most."""
    if not made.rows:
        return [f"{old} and {new} share no row with a time in both."]
    said = []
    for (side, op), group in group_by(made.rows, lambda r: (r.new.side, r.new.problem.op)).items():
        counts = [(word, sum(r.word == word for r in group)) for word in ("faster", "slower", "same", "can't tell")]
        middle = statistics.median(r.verdict.ratio.value for r in group)
        said.append(
            f"Of {count(len(group), f'{op} row')} on the {side} that both have, in {new} "
            f"{join(f'{n} {word}' for word, n in counts if n)}; in the middle they take {digits(middle)} times as long as in "
            f"{old}."
        )
    for word in ("slower", "faster"):
        said += [f"{r.name}: {compare_sentence(r.verdict, old, new)}" for r in made.of(word)[:_NAMED]]
    return said


def rows(made: "Comparison") -> list[tuple]:
    """A line a shared row, those that differ most first."""
    ranked = [r for word in ("slower", "faster", "can't tell", "same") for r in made.of(word)]
    return [
        (
            r.name,
            r.clock,
            *(seconds(statistics.median(s.seconds)) for m in (r.old, r.new) if (s := m.on(r.clock))),
            f"{digits(r.verdict.ratio.value)} ({digits(r.verdict.ratio.low)}..{digits(r.verdict.ratio.high)})",
            r.word,
        )
        for r in ranked
    ]


HEAD = (
    "node",
    "device",
    "model",
    "quantity",
    "against",
    "rows",
    "below",
    "low",
    "high",
    "least",
    "beyond",
    "flagged",
    "cause",
)


def name(device: Device) -> str:
    """`gpu-3 of node-7`, `the CPU of node-7`; of a run's own folder without its node."""
    what = device.device.replace(":", "-") if device.is_gpu else "the CPU"
    return f"{what} of {device.node}" if device.node else what


def finding(f: Finding) -> str:
    """`gpu-3 of node-7: 6 % below its baseline in HBM read (5.8 % .. 6.2 %), clock held at 1.4 GHz`."""
    what = "its baseline" if f.against == "baseline" else "the fleet's median"
    interval = f" ({percent(f.below.low)} .. {percent(f.below.high)})"
    cause = f", {f.cause}" if f.cause else ""
    return f"{name(f.device)}: {percent(f.below.value)} below {what} in {f.quantity}{interval}{cause}"


def lines(judged: Judged) -> list[str]:
    """Everything to be said, the largest loss first."""
    told = [finding(f) for f in judged.flagged]
    told += broken(judged)
    checked = {id(f.device) for f in judged.findings}
    fine = checked - {id(f.device) for f in judged.flagged}
    if checked:
        told.append(f"{len(fine)} of {count(len(checked), 'judged device')} as fast as before or as the others")
    reasons = group_by(judged.unjudged, lambda one: one[1])
    return told + [f"not judged ({why}): {join(name(d) for d, _ in own)}" for why, own in reasons.items()]


def broken(judged: Judged) -> list[str]:
    """A line for each device that lost rows or failed some."""
    told = []
    for device in judged.devices:
        lost = [m for m in device.broken if LOST in m.flags]
        failed = [m for m in device.broken if LOST not in m.flags]
        if lost:
            told.append(f"{name(device)}: {count(len(lost), 'row')} {lost[0].reason}")
        if failed:
            told.append(f"{name(device)}: {count(len(failed), 'row')} {failed[0].status}: {failed[0].reason}")
    return told


def records(judged: Judged) -> list[dict]:
    """The findings as plain records in the columns of HEAD, by device."""

    def cells(f: Finding) -> tuple:
        d, beyond = f.device, f.beyond if f.beyond < 1e300 else None
        found = (f.quantity, f.against, f.rows, *msgspec.structs.astuple(f.below), f.least, beyond, f.flagged, f.cause)
        return d.node, d.device, d.model, *found

    return [dict(zip(HEAD, cells(f), strict=True)) for f in judged.findings]


def table(judged: Judged) -> tuple[str, list[tuple[str, ...]]]:
    """(head, rows) for reading: a line a finding."""
    head = "device | quantity | against | rows | below | 95 % interval | least | flagged"
    rows: list[tuple[str, ...]] = [
        (
            name(f.device),
            f.quantity,
            f.against,
            str(f.rows),
            percent(f.below.value),
            f"{percent(f.below.low)} .. {percent(f.below.high)}",
            percent(f.least),
            "yes" if f.flagged else "",
        )
        for f in judged.findings
    ]
    return head, rows
