"""Runs and machines compared, in words: the fastest square product of each. Also a fleet's devices that are slower than their
baseline, by quantity and cause."""

from analysis import labels, numbers
from analysis.compare.comparison import compared
from analysis.crossover.families import best_resident
from analysis.fleet.devices import LOST, Device
from analysis.fleet.judgment import Deviation, Judged
from analysis.stats import group_by, median_of
from analysis.text.rates import device_name
from analysis.text.sentences import say
from analysis.units import count, join
from workloads.records import Machine, Measurements

_SAID = {
    "best": "{precision}, n = {n:,}, fastest on {device}: {new:time} in {names[1]}, {old:time} in {names[0]}; {said}.",
    "finding": "{device}: {below:number} % {below:interval} below {against} in {quantity}{cause}",
    "fine": "{fine} of {judged} as fast as before or as the others",
    "unjudged": "not judged ({why}): {devices}",
    "lost": "{device}: {rows} {reason}",
}
_AGAINST = {"baseline": "its baseline", "fleet": "the fleet's median"}


def best(old: Measurements, new: Measurements, names: tuple[str, str], machine: Machine | None = None) -> list[str]:
    """A sentence for each device and precision: the fastest square product at the largest n that both runs have, with a
    verdict. The verdict allows for the difference between two runs of `machine`, that of the new rows."""
    told, before, after = [], best_resident(old), best_resident(new)
    for device, precision in (key for key in before if key in after):
        a, b = before[device, precision], after[device, precision]
        for n in sorted(a.keys() & b.keys())[-1:]:
            if apart := compared(a[n], b[n], machine):
                then, now = (median_of(m.on(apart.clock)) for m in (a[n], b[n]))
                words = {"device": device_name(device), "said": f"{apart.word} ({numbers.gain(apart.verdict.ratio)})"}
                told.append(say(_SAID["best"], precision=precision, n=n, old=then, new=now, names=names, **words))
    return told


# ---------------------------------------------------------------- a fleet


def name(device: Device) -> str:
    """`gpu-3 of node-7`, `the CPU of node-7`; the device alone where rows lie in the run's own folder."""
    what = labels.numbered_gpu(device.device) if device.is_gpu else "the CPU"
    return f"{what} of {device.node}" if device.node else what


def finding(f: Deviation) -> str:
    """`gpu-3 of node-7: 6.1 % [5.8, 6.2] below its baseline in HBM read, clock held at 1.4 GHz`"""
    words = {"device": name(f.device), "below": f.below * 100, "against": _AGAINST[f.against], "quantity": f.quantity}
    return say(_SAID["finding"], cause=f", {f.cause}" if f.cause else "", **words)


def lines(judged: Judged, every: bool = False) -> list[str]:
    """All sentences on a fleet, the largest loss first. `every`: findings on healthy devices too."""
    told = [finding(f) for f in judged.flagged] + broken(judged)
    checked = {id(f.device) for f in judged.findings}
    fine = checked - {id(f.device) for f in judged.flagged}
    told += [say(_SAID["fine"], fine=len(fine), judged=count(len(checked), "judged device"))] * bool(checked)
    for why, own in group_by(judged.unjudged, lambda one: one[1]).items():
        told.append(say(_SAID["unjudged"], why=why, devices=join(name(device) for device, _ in own)))
    return told + [finding(f) for f in judged.findings if every and not f.flagged]


def broken(judged: Judged) -> list[str]:
    """A line for each device that lost rows or failed some."""
    told = []
    for device in judged.devices:
        for is_lost, own in sorted(group_by(device.broken, lambda m: LOST in m.flags).items(), reverse=True):
            reason = own[0].reason if is_lost else f"{own[0].status}: {own[0].reason}"
            told.append(say(_SAID["lost"], device=name(device), rows=count(len(own), "row"), reason=reason))
    return told
