"""What an answer rests on, as data: numbers of the training that nobody gave, and warnings about its rows and parts."""

import msgspec

#: The numbers of a training that may be assumed, and the flags that give them.
FLAGS = {"batch": "--batch", "samples": "--samples", "epochs": "--epochs"}
NEAR = 10.0  # a winner that changes within this factor of an assumed number is asked about


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

    #: A flag of rows (other-load, steal, other-tenant, quota, thermal, power-cap), estimated-layers, or no-row.
    kind: str
    #: The device whose seconds it concerns: cpu or gpu:0; "" for both.
    device: str = ""
    #: How many of the rows that the answer uses have the flag.
    rows: int = 0
    #: How many rows of these operations the answer uses.
    rows_used: int = 0
    #: The share that tells how much: of the CPUs (other-load), of their time (steal), of a step's arithmetic (estimated-layers).
    share: float | None = None
    #: The operations of the flagged rows, the names of the layers, or the parts without a row.
    names: tuple[str, ...] = ()


def assumption(name: str, value: int, to: str, turns: dict[str, float]) -> Assumption:
    """An assumed number, with the count at which the winner changes to the device `to`, if that is near."""
    changes_at = turns.get(name)
    if changes_at is None or not value / NEAR <= changes_at <= value * NEAR:
        return Assumption(name=name, value=value, flag=FLAGS[name])
    return Assumption(name=name, value=value, flag=FLAGS[name], changes_at=changes_at, wins_above=to)
