"""What a trace of a training says, as a row keeps it: where the seconds of a warm step went, operation by operation.

It is JSON in the notes of a training row that has the switch trace=on, beside what every training row has.
"""

import msgspec

NOTE = "trace"  # the note that holds it
UNTOLD = "untraced"  # the note that says why there is none
OP, PIPELINE, KERNEL, COPY, CALL, HOST = "op", "pipeline", "kernel", "copy", "call", "host"
OPTIMIZER, FORWARD, BACKWARD = "optimizer", "forward", "backward"


class Op(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one kind that take about as long each, added up over a step.

    where: op (on the host), pipeline (on tf.data's threads), kernel or copy (on a GPU), call (of CUDA's driver, on the host),
    host (an enclosing span of the host). scope: forward, backward, optimizer, "" where it cannot be told. name: TensorFlow's
    type of the operation; of XLA's its opcode or what it calls, a fusion's followed by the products or reductions in it; else
    the kernel's. calls, seconds: a step, each operation's own. wall_s: its share of the time in which anything ran there, what
    ran at the same time sharing that equally.
    """

    where: str
    scope: str
    name: str
    calls: float
    seconds: float
    wall_s: float


class Trace(msgspec.Struct, frozen=True):
    """The traced steps of a fit. steps: how many; step_s: seconds of an untraced step, fits of both kinds taking turns;
    traced_s: of a traced one; of both the quickest fit. busy_s: where -> seconds a step in which at least one operation ran
    there (device: a kernel or copy)."""

    steps: int
    step_s: float
    traced_s: float
    busy_s: dict[str, float]
    ops: tuple[Op, ...]

    @property
    def quickest_s(self) -> float:
        """Seconds of a step, traced or not: what disturbs either only adds to it."""
        return min(self.step_s, self.traced_s)

    @property
    def slower(self) -> float:
        """What tracing adds to a step, relative to it."""
        return self.traced_s / self.step_s - 1


def kept(trace: Trace) -> str:
    """As a note."""
    return msgspec.json.encode(trace).decode()


def of(notes: dict[str, str]) -> Trace | None:
    """The trace among a row's notes; None where there is none."""
    return msgspec.json.decode(notes[NOTE], type=Trace) if NOTE in notes else None
