"""What an answer rests on, as data: numbers of the training that nobody gave, and warnings about its rows and parts."""

import statistics
from collections.abc import Iterable

import msgspec

from analysis.finding import GPU_FLAGS, HOST_FLAGS, Warning
from workloads.records import Measurement

#: The numbers of a training that may be assumed, and the flags that give them.
FLAGS = {"batch": "--batch", "samples": "--samples", "epochs": "--epochs"}
NEAR = 10.0  # a winner that changes within this factor of an assumed number is asked about

SHARES = {
    "other-load": "other_load_fraction",
    "steal": "steal_fraction",
}  # flag -> the row's value that tells how much


class Assumption(msgspec.Struct, frozen=True, kw_only=True):
    """A number of the training that nobody gave, so that a usual one was taken."""

    #: batch, samples or epochs.
    name: str
    #: The number that was taken.
    value: int
    #: The flag that gives it.
    flag: str
    #: The number at which the winner changes, if that is within NEAR times the value; else None.
    changes_at: float | None = None
    #: The device (cpu, gpu) that finishes first from `changes_at` on; "" without it.
    wins_above: str = ""


def disturbances(device: str, used: Iterable[Measurement]) -> list[Warning]:
    """A warning for each flag of load, stolen time or throttling among the rows that an answer uses for a device."""
    rows = list(used)
    warnings = []
    for flag in (*HOST_FLAGS, *GPU_FLAGS):
        flagged = [m for m in rows if flag in m.flags and not (flag in HOST_FLAGS and m.on("device"))]
        if not flagged:
            continue
        shares = [m.values[SHARES[flag]] for m in flagged if SHARES.get(flag) in m.values]
        operations = tuple(sorted({m.problem.op for m in flagged}))
        share = statistics.median(shares) if shares else None
        warnings.append(
            Warning(kind=flag, device=device, rows=len(flagged), rows_used=len(rows), share=share, names=operations)
        )
    return warnings


def assumption(name: str, value: int, to: str, turns: dict[str, float]) -> Assumption:
    """An assumed number, with the count at which the winner changes to the device `to`, if that is near."""
    changes_at = turns.get(name)
    if changes_at is None or not value / NEAR <= changes_at <= value * NEAR:
        return Assumption(name=name, value=value, flag=FLAGS[name])
    return Assumption(name=name, value=value, flag=FLAGS[name], changes_at=changes_at, wins_above=to)
