"""What is said of a fleet's devices: who is below, in what and why; who was lost; who could not be judged."""

from analysis.fleet.devices import LOST, Device
from analysis.fleet.judgment import Finding, Judged
from analysis.stats import group_by
from analysis.units import count, join, percent

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
    return [
        dict(
            zip(
                HEAD,
                (
                    f.device.node,
                    f.device.device,
                    f.device.model,
                    f.quantity,
                    f.against,
                    f.rows,
                    f.below.value,
                    f.below.low,
                    f.below.high,
                    f.least,
                    f.beyond if f.beyond < 1e300 else None,
                    f.flagged,
                    f.cause,
                ),
                strict=True,
            )
        )
        for f in judged.findings
    ]


def table(judged: Judged) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """(head, rows) for reading: a line a finding."""
    head = ("device", "quantity", "against", "rows", "below", "95 % interval", "least", "flagged")
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
