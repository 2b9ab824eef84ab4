"""Runs and machines compared, in words: the fastest square product of each. Also a fleet's devices that are slower than their
baseline, by quantity and cause."""

from analysis import labels, numbers
from analysis.compare.comparison import compared
from analysis.crossover.families import best_resident
from analysis.fleet.devices import LOST, Device
from analysis.fleet.judgment import Deviation, FleetJudgment
from analysis.stats import group_by, median_of
from analysis.text.rates import device_name
from analysis.text.sentences import say
from analysis.units import count, join
from workloads.records import Machine, Measurements

_SENTENCES = {
    "best": "{precision}, n = {n:,}, fastest on {device}: {new:time} in {names[1]}, {old:time} in {names[0]}; {verdict}.",
    "finding": "{device}: {below:number} % {below:interval} below {against} in {quantity}{cause}",
    "fine": "{fine} of {judged} as fast as before or as the others",
    "unjudged": "not judged ({why}): {devices}",
    "lost": "{device}: {rows} {reason}",
}
_AGAINST = {"baseline": "its baseline", "fleet": "the fleet's median"}


def best(old: Measurements, new: Measurements, names: tuple[str, str], machine: Machine | None = None) -> list[str]:
    """A sentence for each device and precision on the fastest square product at the largest n that both runs have: faster,
    slower or the same.

    Args:
        names: of the old and of the new run, for the sentence.
        machine: of the new run; the verdict allows for what two runs of it differ by.
    """
    sentences = []
    before, after = best_resident(old), best_resident(new)
    for device, precision in before:
        if (device, precision) not in after:
            continue
        old_rows, new_rows = before[device, precision], after[device, precision]
        common = old_rows.keys() & new_rows.keys()
        if not common:
            continue
        n = max(common)
        row = compared(old_rows[n], new_rows[n], machine)
        if row is None:
            continue
        sentence = say(
            _SENTENCES["best"],
            precision=precision,
            n=n,
            device=device_name(device),
            old=median_of(row.old.on(row.clock)),
            new=median_of(row.new.on(row.clock)),
            names=names,
            verdict=f"{row.word} ({numbers.gain(row.verdict.ratio)})",
        )
        sentences.append(sentence)
    return sentences


# ---------------------------------------------------------------- a fleet


def name(device: Device) -> str:
    """`gpu-3 of node-7`, `the CPU of node-7`; the device alone where rows lie in the run's own folder."""
    what = labels.numbered_gpu(device.device) if device.is_gpu else "the CPU"
    return f"{what} of {device.node}" if device.node else what


def finding(deviation: Deviation) -> str:
    """A device's loss in words: `gpu-3 of node-7: 6.1 % [5.8, 6.2] below its baseline in HBM read, clock held at 1.4 GHz`."""
    return say(
        _SENTENCES["finding"],
        device=name(deviation.device),
        below=deviation.below * 100,
        against=_AGAINST[deviation.against],
        quantity=deviation.quantity,
        cause=f", {deviation.cause}" if deviation.cause else "",
    )


def lines(judgment: FleetJudgment, verbose: bool = False) -> list[str]:
    """The sentences on a fleet: slow devices, the largest loss first, devices that lost rows, how many devices are fine, and
    those that could not be judged. verbose: also what was found of healthy devices.
    """
    sentences = [finding(deviation) for deviation in judgment.flagged]
    sentences += broken(judgment)
    judged = {id(deviation.device) for deviation in judgment.findings}
    slow = {id(deviation.device) for deviation in judgment.flagged}
    if judged:
        devices = count(len(judged), "judged device")
        sentences.append(say(_SENTENCES["fine"], fine=len(judged - slow), judged=devices))
    for why, unjudged in group_by(judgment.unjudged, lambda pair: pair[1]).items():
        names = join(name(device) for device, _ in unjudged)
        sentences.append(say(_SENTENCES["unjudged"], why=why, devices=names))
    if verbose:
        sentences += [finding(deviation) for deviation in judgment.findings if not deviation.flagged]
    return sentences


def broken(judgment: FleetJudgment) -> list[str]:
    """A line for each device that lost rows, as its node died, and for each on which rows failed."""
    sentences = []
    for device in judgment.devices:
        lost = [m for m in device.broken if LOST in m.flags]
        failed = [m for m in device.broken if LOST not in m.flags]
        if lost:
            sentences.append(_broken_sentence(device, lost, lost[0].reason))
        if failed:
            sentences.append(_broken_sentence(device, failed, f"{failed[0].status}: {failed[0].reason}"))
    return sentences


def _broken_sentence(device: Device, rows: Measurements, reason: str) -> str:
    return say(_SENTENCES["lost"], device=name(device), rows=count(len(rows), "row"), reason=reason)
