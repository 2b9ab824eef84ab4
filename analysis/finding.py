"""A finding: one thing that an analysis shows, as data. analysis.text turns each kind of finding into a sentence or a table."""

from typing import Any

import msgspec

#: The rank of a finding that is always shown.
ALWAYS = 0
#: The rank of a finding that only a full answer has.
IN_DETAIL = 1000

# Load, stolen time and throttling by a flag of a row. A GPU at its power limit is as it is in a training.
HOST_FLAGS = ("other-load", "steal", "quota")
GPU_FLAGS = ("other-tenant", "thermal")


class Warning(msgspec.Struct, frozen=True, kw_only=True):
    """A reason to believe a finding less."""

    #: A flag of disturbed rows (HOST_FLAGS, GPU_FLAGS), estimated-layers, rough-work, no-row, or not-compiled.
    kind: str
    #: The device whose seconds it concerns: cpu or gpu:0; "" for both.
    device: str = ""
    #: How many of the rows that the answer uses have the flag.
    rows: int = 0
    #: How many rows the answer uses for this device.
    rows_used: int = 0
    #: The share that tells how much: of the CPUs (other-load), of their time (steal), of a step's arithmetic (estimated-layers),
    #: of a step's work (rough-work).
    share: float | None = None
    #: The operations of the flagged rows, the names of the layers, what is priced roughly, the parts without a row, or the
    #: optimizer and the loss that were chosen for a model that came without.
    names: tuple[str, ...] = ()

    @property
    def disturbs(self) -> bool:
        """Whether rows were measured beside other work or throttled, so that the winner is at most probable."""
        return self.kind in (*HOST_FLAGS, *GPU_FLAGS)


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an analysis shows."""

    #: What it says, such as winner or change: analysis.text has words for each kind.
    kind: str
    #: What it is about: a device, a change, a case.
    subject: str = ""
    #: Its numbers by the names that its words call them: estimates with their intervals, counts, and records of these.
    numbers: dict[str, Any] = {}
    #: Reasons to believe it less.
    doubts: tuple[Warning, ...] = ()
    #: Which findings are shown where there is no room for all: those of the lowest rank, from ALWAYS up to below IN_DETAIL.
    rank: int = ALWAYS
