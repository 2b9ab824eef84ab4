"""What an answer rests on, as data: numbers of the training that nobody gave, and warnings about its rows and parts."""

import statistics
from collections.abc import Iterable

import msgspec

from workloads.records import Measurement

#: The numbers of a training that may be assumed, and the flags that give them.
FLAGS = {"batch": "--batch", "samples": "--samples", "epochs": "--epochs"}
NEAR = 10.0  # a winner that changes within this factor of an assumed number is asked about

# Load, stolen time and throttling by a flag of a row. A GPU at its power limit is as it is in a training.
HOST_FLAGS = ("other-load", "steal", "quota")
GPU_FLAGS = ("other-tenant", "thermal")
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


class Warning(msgspec.Struct, frozen=True, kw_only=True):
    """A reason to believe an answer less."""

    #: A flag of disturbed rows (HOST_FLAGS, GPU_FLAGS), estimated-layers, no-row, or not-compiled.
    kind: str
    #: The device whose seconds it concerns: cpu or gpu:0; "" for both.
    device: str = ""
    #: How many of the rows that the answer uses have the flag.
    rows: int = 0
    #: How many rows the answer uses for this device.
    rows_used: int = 0
    #: The share that tells how much: of the CPUs (other-load), of their time (steal), of a step's arithmetic (estimated-layers).
    share: float | None = None
    #: The operations of the flagged rows, the names of the layers, the parts without a row, or the optimizer and
    #: the loss that were chosen for a model that came without.
    names: tuple[str, ...] = ()

    @property
    def disturbs(self) -> bool:
        """Whether rows were measured beside other work or throttled, so that the winner is at most probable."""
        return self.kind in (*HOST_FLAGS, *GPU_FLAGS)


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
