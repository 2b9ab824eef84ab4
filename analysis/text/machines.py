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
from analysis.stats import best_by, group_by, middle, of
from analysis.table import named
from analysis.text import sentences
from analysis.text.crossings import compare_sentence, form_name
from analysis.text.sentences import say
from analysis.units import bytes_rate, count, flops_rate, join, seconds
from workloads.records import Machine, Measurement

_NAMED = 3  # rows of each verdict, in words
HEADS = "row | clock | before | after | after / before | verdict"
_WORDS = ("slower", "faster", "can't tell", "same")
_SAID = {
    "best": "{precision}, n = {n:,}, the fastest on the {side}: {verdict} {times}.",
    "crossing": "{name}, {precision}, {form}: {wins}.",
    "no gpu": "{name}: no GPU was measured.",
    "roof": "The {side}'s {what}: {new} in {names[1]}, {old} in {names[0]} ({ratio:factor}).",
    "no row": "{old} and {new} share no row with a time in both.",
    "rows": "{rows} on the {side}, {new} beside {old}: {counts}. The median ratio is {ratio:number}.",
    "finding": "{device}: {below} below {against} in {quantity}{cause}",
    "fine": "{fine} of {judged} as fast as before or as the others",
    "unjudged": "not judged ({why}): {devices}",
    "lost": "{device}: {rows} {reason}",
}


def best(
    old: list[Measurement], new: list[Measurement], names: tuple[str, str], machine: Machine | None = None
) -> list[str]:
    """The fastest square product of each device at the largest n that both have, by precision: a verdict on their samples, with
    what two runs of the `machine` of the new rows differ by."""
    told, sides = [], [square_rows(rows) for rows in (old, new)]
    for precision in (p for p in sides[0] if p in sides[1]):
        for side in ("CPU", "GPU"):
            found = [_fastest(of_run[precision], side) for of_run in sides]
            if not (shared := found[0].keys() & found[1].keys()):
                continue
            before, after = (of_run[max(shared)] for of_run in found)
            if apart := compared(before, after, machine, "host-latency"):
                each = (
                    f"{sentences.time(of(m.on('host-latency')))} in {n}"
                    for m, n in zip((before, after), names, strict=True)
                )
                words = {"verdict": compare_sentence(apart.verdict, *names), "times": join(each), "n": max(shared)}
                side += " (resident)" * (side == "GPU")
                told.append(say(_SAID["best"], precision=precision, side=side, **words))
    return told


def _fastest(sizes: dict[int, list[Measurement]], side: str) -> dict[int, Measurement]:
    """n -> the row whose call is shortest, its data on the device."""
    own = (m for rows in sizes.values() for m in rows if m.ok and m.side == side and m.mode == "resident")
    timed = (m for m in own if (s := m.on("host-latency")) and s.seconds)
    return best_by(timed, lambda m: m.problem.n, lambda m: middle(m.on("host-latency")))


def crossing(answers: list[tuple[str, tuple[Answer, ...]]]) -> list[str]:
    """From where the GPU wins in each run: (its name, its answers), the first precision, resident and copied."""
    told = []
    for name, found in answers:
        first = [a for a in found if a.points and a.precision == found[0].precision and a.form in (LATENCY, COPIES[0])]
        words = [{"precision": a.precision, "form": form_name(a.form), "wins": sentences.crossing(a)} for a in first]
        told += [say(_SAID["crossing"], name=name, **each) for each in words] or [say(_SAID["no gpu"], name=name)]
    return told if any(a.points for _, found in answers for a in found) else []


def ceilings(old: tuple[Roof, ...], new: tuple[Roof, ...], names: tuple[str, str]) -> list[str]:
    """How the measured roofs of memory and of arithmetic compare, of the devices that both have."""
    told = []
    for device, side in (("cpu", "CPU"), ("gpu:0", "GPU")):
        for kind, name, what, words in (
            ("memory", "", "memory", bytes_rate),
            ("compute", "float32", "float32 arithmetic", flops_rate),
        ):
            a, b = (pick(roofs, device, kind, name) for roofs in (old, new))
            if a and b:
                rates = {"old": words(a.rate.value), "new": words(b.rate.value), "ratio": b.rate.value / a.rate.value}
                told.append(say(_SAID["roof"], side=side, what=what, names=names, **rates))
    return told


def differences(made: Comparison, old: str, new: str) -> list[str]:
    """How many shared rows are faster, slower, the same by device and operation, and which differ most."""
    if not made.rows:
        return [say(_SAID["no row"], old=old, new=new)]
    told = []
    for (side, op), group in group_by(made.rows, lambda r: (r.new.side, r.new.problem.op)).items():
        counts = {word: sum(r.word == word for r in group) for word in ("faster", "slower", "same", "can't tell")}
        words = {"rows": count(len(group), f"{op} row"), "side": side, "old": old, "new": new}
        words["counts"] = join(f"{n} {word}" for word, n in counts.items() if n)
        told.append(say(_SAID["rows"], ratio=statistics.median(r.verdict.ratio.value for r in group), **words))
    worst = [r for word in ("slower", "faster") for r in made.of(word)[:_NAMED]]
    return told + [f"{r.name}: {compare_sentence(r.verdict, old, new)}" for r in worst]


def rows(made: Comparison) -> list[tuple]:
    """A line a shared row, those that differ most first."""
    cells = []
    for r in (r for word in _WORDS for r in made.of(word)):
        times = (seconds(statistics.median(s.seconds)) for m in (r.old, r.new) if (s := m.on(r.clock)))
        ratio = f"{sentences.number(r.verdict.ratio)} {sentences.interval(r.verdict.ratio)}"
        cells.append((r.name, r.clock, *times, ratio, r.word))
    return cells


# ---------------------------------------------------------------- a fleet

HEAD = named(
    "node | device | model | quantity | against | rows | below | low | high | least | beyond | flagged | cause"
)


def name(device: Device) -> str:
    """`gpu-3 of node-7`, `the CPU of node-7`; of a run's own folder without its node."""
    what = device.device.replace(":", "-") if device.is_gpu else "the CPU"
    return f"{what} of {device.node}" if device.node else what


def below(f: Finding) -> str:
    """`6.1 % [5.8, 6.2]`."""
    e = f.below * 100
    return f"{sentences.number(e)} % {sentences.interval(e)}"


def finding(f: Finding) -> str:
    """`gpu-3 of node-7: 6.1 % [5.8, 6.2] below its baseline in HBM read, clock held at 1.4 GHz`"""
    against = "its baseline" if f.against == "baseline" else "the fleet's median"
    words = {"device": name(f.device), "below": below(f), "against": against, "quantity": f.quantity}
    return say(_SAID["finding"], cause=f", {f.cause}" if f.cause else "", **words)


def lines(judged: Judged) -> list[str]:
    """Everything to be said, the largest loss first."""
    told = [finding(f) for f in judged.flagged] + broken(judged)
    checked = {id(f.device) for f in judged.findings}
    fine = checked - {id(f.device) for f in judged.flagged}
    told += [say(_SAID["fine"], fine=len(fine), judged=count(len(checked), "judged device"))] * bool(checked)
    for why, own in group_by(judged.unjudged, lambda one: one[1]).items():
        told.append(say(_SAID["unjudged"], why=why, devices=join(name(device) for device, _ in own)))
    return told


def broken(judged: Judged) -> list[str]:
    """A line for each device that lost rows or failed some."""
    told = []
    for device in judged.devices:
        for is_lost, own in sorted(group_by(device.broken, lambda m: LOST in m.flags).items(), reverse=True):
            reason = own[0].reason if is_lost else f"{own[0].status}: {own[0].reason}"
            told.append(say(_SAID["lost"], device=name(device), rows=count(len(own), "row"), reason=reason))
    return told


def records(judged: Judged) -> list[dict]:
    """The findings as plain records in the columns of HEAD, by device."""
    made = []
    for f in judged.findings:
        d, beyond = f.device, f.beyond if f.beyond < 1e300 else None
        found = (f.quantity, f.against, f.rows, *msgspec.structs.astuple(f.below), f.least, beyond, f.flagged, f.cause)
        made.append(dict(zip(HEAD, (d.node, d.device, d.model, *found), strict=True)))
    return made


def table(judged: Judged) -> tuple[str, list[tuple[str, ...]]]:
    """(head, rows) for reading: a line a finding."""
    rows: list[tuple[str, ...]] = [
        (name(f.device), f.quantity, f.against, str(f.rows), below(f), sentences.share(f.least), "yes" * f.flagged)
        for f in judged.findings
    ]
    return "device | quantity | against | rows | below, 95 % interval | least | flagged", rows
