"""What an answer rests on, as data: numbers of the training that nobody gave, and warnings about its rows and parts."""

import statistics
from collections.abc import Iterable

import msgspec

from analysis.explain.sides import TurningPoint
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
    """A warning for each flag of load, stolen time or throttling that some of the rows have which an answer uses for a device. A
    flag of the host (HOST_FLAGS) does not disturb a time that the GPU's own clock took.
    """
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


def assumption(name: str, value: int, turning_point: TurningPoint | None) -> Assumption:
    """An assumed number of the training, with the count at which the winner changes if that is near.

    Args:
        name: batch, samples or epochs.
        turning_point: where the winner changes; None where the seconds of a device are unknown.
    """
    changes_at = turning_point.counts.get(name) if turning_point else None
    if turning_point is None or changes_at is None or not value / NEAR <= changes_at <= value * NEAR:
        return Assumption(name=name, value=value, flag=FLAGS[name])
    return Assumption(name=name, value=value, flag=FLAGS[name], changes_at=changes_at, wins_above=turning_point.device)
