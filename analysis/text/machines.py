"""Runs and machines beside each other in words: who is faster at what both did best and row by row; of a fleet's devices which
are below their baseline, in what and why."""

import statistics

import msgspec

from analysis.compare.comparison import Comparison, compared
from analysis.crossover.crossover import COPIES, LATENCY, Answer
from analysis.crossover.families import square_rows
from analysis.fleet.devices import LOST, Device
from analysis.fleet.judgment import Finding, Judged
from analysis.roofline.bounds import Roof, pick
from analysis.stats import Estimate, Verdict, best_by, group_by, middle, of
from analysis.text import sentences
from analysis.text.crossings import compare_sentence, form_name
from analysis.units import bytes_rate, count, flops_rate, join, seconds
from workloads.records import Machine, Measurement

_NAMED = 3  # rows of each verdict, in words
HEADS = "row | clock | before | after | after / before | verdict"
_THAN = {"slower": "{x} slower than", "faster": "{x} faster than", "same": "as fast as", "can't tell": "not told from"}
_BEST = "{precision}, n = {n:,}, the fastest on the {side}: {new} is {than} {old}. {times}."


def best(
    old: "list[Measurement]", new: "list[Measurement]", names: tuple[str, str], machine: "Machine | None" = None
) -> list[str]:
    """The fastest square product of each device at the largest n that both have, by precision: a verdict on their samples, with
    what two runs of the `machine` of the new rows differ by."""
    said = []
    sides = [square_rows(rows) for rows in (old, new)]
    for precision in (p for p in sides[0] if p in sides[1]):
        for gpu in (False, True):
            a, b = (_fastest(side[precision], gpu) for side in sides)
            if not (shared := a.keys() & b.keys()):
                continue
            pair = a[max(shared)], b[max(shared)]
            if told := compared(*pair, machine, "host-latency"):
                each = [f"{sentences.time(of(m.on('host-latency')))} in {n}" for m, n in zip(pair, names, strict=True)]
                words = {"than": _than(told.verdict), "times": join(each), "old": names[0], "new": names[1]}
                side = "GPU (resident)" if gpu else "CPU"
                said.append(_BEST.format(precision=precision, n=max(shared), side=side, **words))
    return said


def _than(told: "Verdict") -> str:
    """`9.4x slower than`, as far as the verdict claims it."""
    ratio = 1 / told.ratio if told.word == "faster" else told.ratio
    return _THAN[told.word].format(x=sentences.factor(ratio))


def crossing(answers: "list[tuple[str, tuple[Answer, ...]]]") -> list[str]:
    """From where the GPU wins in each run: (its name, its answers), the first precision, resident and copied."""
    said = []
    for name, found in answers:
        first = [a for a in found if a.points and a.precision == found[0].precision]
        told = [
            f"{name}, {a.precision}, {form_name(a.form)}: {sentences.crossing(a)}."
            for a in first
            if a.form in (LATENCY, COPIES[0])
        ]
        said += told or [f"{name}: no GPU was measured."]
    return said if any(a.points for _, found in answers for a in found) else []


def ceilings(old: "tuple[Roof, ...]", new: "tuple[Roof, ...]", names: tuple[str, str]) -> list[str]:
    """How the measured roofs of memory and of arithmetic compare, of the devices that both have."""
    told = []
    for device, where in (("cpu", "CPU"), ("gpu:0", "GPU")):
        for kind, name, words in (("memory", "", bytes_rate), ("compute", "float32", flops_rate)):
            a, b = (pick(roofs, device, kind, name) for roofs in (old, new))
            if a and b:
                what = "memory" if kind == "memory" else f"{name} arithmetic"
                rates = f"{words(b.rate.value)} in {names[1]}, {words(a.rate.value)} in {names[0]}"
                told.append(f"The {where}'s {what}: {rates} ({sentences.factor(b.rate.value / a.rate.value)}).")
    return told


def _fastest(sizes: "dict[int, list[Measurement]]", gpu: bool) -> "dict[int, Measurement]":
    """n -> the row whose call is shortest, its data on the device."""
    own = (m for rows in sizes.values() for m in rows if m.ok and m.on_gpu == gpu and m.mode == "resident")
    timed = (m for m in own if (s := m.on("host-latency")) and s.seconds)
    return best_by(timed, lambda m: m.problem.n, lambda m: middle(m.on("host-latency")))


def differences(made: "Comparison", old: str, new: str) -> list[str]:
    """How many shared rows are faster, slower, the same by device and operation, and which differ most."""
    if not made.rows:
        return [f"{old} and {new} share no row with a time in both."]
    said = []
    for (side, op), group in group_by(made.rows, lambda r: (r.new.side, r.new.problem.op)).items():
        counts = [(word, sum(r.word == word for r in group)) for word in ("faster", "slower", "same", "can't tell")]
        told = join(f"{n} {word}" for word, n in counts if n)
        typical = statistics.median(r.verdict.ratio.value for r in group)
        rows = count(len(group), f"{op} row")
        said.append(
            f"{rows} on the {side}, {new} beside {old}: {told}. The median ratio is {sentences.number(typical)}."
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
            f"{sentences.number(r.verdict.ratio)} {sentences.interval(r.verdict.ratio)}",
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


def below(f: Finding) -> str:
    """`6.1 % [5.8, 6.2]`."""
    e = Estimate(100 * f.below.value, 100 * f.below.low, 100 * f.below.high)
    return f"{sentences.number(e)} % {sentences.interval(e)}"


def finding(f: Finding) -> str:
    """`gpu-3 of node-7: 6.1 % [5.8, 6.2] below its baseline in HBM read, clock held at 1.4 GHz`."""
    what = "its baseline" if f.against == "baseline" else "the fleet's median"
    return f"{name(f.device)}: {below(f)} below {what} in {f.quantity}" + (f", {f.cause}" if f.cause else "")


def lines(judged: Judged) -> list[str]:
    """Everything to be said, the largest loss first."""
    told = [finding(f) for f in judged.flagged] + broken(judged)
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
        told += [f"{name(device)}: {count(len(lost), 'row')} {lost[0].reason}"] if lost else []
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
    rows: list[tuple[str, ...]] = [
        (name(f.device), f.quantity, f.against, str(f.rows), below(f), sentences.share(f.least), "yes" * f.flagged)
        for f in judged.findings
    ]
    return "device | quantity | against | rows | below, 95 % interval | least | flagged", rows
