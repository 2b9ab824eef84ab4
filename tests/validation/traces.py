"""The parts of trainings' budgets beside where TensorFlow's profiler saw the time go: an account that knows nothing of ours.

python -m tests.validation.traces [MACHINE ...]         the stored rows: reports/*/training-trace

On the CPU operations that run at the same time take longer, as they share the cores. So their own seconds are those of a trace
with one operation at a time, and what that one's step is longer is what others run beside. On a GPU kernels and copies are on
its own clock, and what is left of the step is what it waits for the host.
"""

import argparse
import pathlib
import re
import sys
from collections.abc import Iterable

import msgspec

from analysis.predict import profile
from analysis.predict.budget import Budget, budget
from analysis.predict.calibration import calibration
from analysis.predict.prediction import predict
from analysis.predict.profile import Lacking
from analysis.predict.step_parts import DEVICE, HIDDEN
from analysis.text.budget import subject, where
from analysis.units import join, percent, seconds
from workloads.records import Measurement

REPORTS, FOLDER = pathlib.Path(__file__).parents[2] / "reports", "training-trace"
NOTE = "trace"  # the note of a row that holds its trace
SWITCH = {"trace": "on"}  # what tells such a row from an ordinary one
ONE_AT_A_TIME = ("TF_NUM_INTEROP_THREADS", "1")
OP, KERNEL, COPY = "op", "kernel", "copy"

MATMUL, CONV, ELEMENT_WISE, OPTIMIZER = DEVICE
HOST_PART, COPIES, WORK = "dispatch and launches", "copies", "work"
PART, STEP = 0.20, 0.05  # of the traced part, or of the step: so near counts as the same
# Traces that made the step longer than so say nothing: of the time between operations; of what these take themselves.
SLOWER, MUCH_SLOWER = 0.10, 0.25
_ON_HOST = ("dispatch", "launches", "input pipeline")
_COPIES = ("transfer calls", "transfer bytes")
# In names of operations, of XLA's instructions and of libraries' kernels; the first that is found.
_NAMED = {
    CONV: re.compile(r"conv(?!ert)|fprop|wgrad|(?<!d)dgrad|winograd|cudnn(?!.*bn_)"),
    MATMUL: re.compile("matmul|gemm|dot|nvjet|cutlass|splitk|xmma"),
}


class Op(msgspec.Struct, frozen=True, array_like=True):
    """Operations of one kind that take about as long each, added up over a step.

    where: op (on the host), kernel or copy (on a GPU). scope: forward, backward, optimizer, "" where it cannot be told. name:
    TensorFlow's type of the operation; of XLA's its opcode or what it calls, a fusion's followed by the products or reductions
    in it; else the kernel's. calls, seconds: a step, each operation's own.
    """

    where: str
    scope: str
    name: str
    calls: float
    seconds: float


class Trace(msgspec.Struct, frozen=True):
    """The traced steps of a fit. steps: how many; step_s: seconds of an untraced step, fits of both kinds taking turns;
    traced_s: of a traced one; of both the quickest fit. busy_s: op or device -> seconds a step in which at least one operation
    of the host, or one kernel or copy, ran."""

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


class Beside(msgspec.Struct, frozen=True):
    """A part of a step, both seconds: as the budget has it and as traced."""

    name: str
    told: float
    traced: float
    step: float

    @property
    def near(self) -> bool:
        """Whether the two are the same within what is asked."""
        return abs(self.told - self.traced) <= max(PART * abs(self.traced), STEP * self.step)


class Held(msgspec.Struct, frozen=True):
    """A budget held against traces: the parts that these tell, and in words what they do not."""

    made: Budget
    trace: Trace
    parts: tuple[Beside, ...]
    untold: tuple[str, ...] = ()


def trace_of(m: Measurement) -> Trace | None:
    """The trace among a row's notes; None where there is none."""
    return msgspec.json.decode(m.notes[NOTE], type=Trace) if NOTE in m.notes else None


def part_of(op: Op) -> str:
    """The part of a budget that an operation is of; "" for a GPU's kernel that cannot be told."""
    if op.where == COPY:
        return COPIES if op.name.startswith(("MemcpyH2D", "MemcpyD2H")) else ELEMENT_WISE
    name = op.name.lower()
    for part, named in _NAMED.items():
        if named.search(name):
            return part
    if op.scope == OPTIMIZER:
        return OPTIMIZER
    return ELEMENT_WISE if op.scope or op.where == OP else ""


def by_part(of: Trace, wheres: Iterable[str]) -> dict[str, float]:
    """Seconds a step of each part, operations' own; those of the shortest operation are dispatch, in every one of them."""
    ops = [op for op in of.ops if op.where in set(wheres)]
    least = min((op.seconds / op.calls for op in ops if op.where == OP and op.calls and op.seconds), default=0.0)
    found: dict[str, float] = {}
    for op in ops:
        dispatch = least * op.calls if op.where == OP else 0.0
        found[part_of(op)] = found.get(part_of(op), 0.0) + op.seconds - dispatch
    return found


def held(of: profile.Profile) -> tuple[list[Held], list[Measurement]]:
    """(every budget of the profile whose training was traced, held against its trace; the trainings that tracing made so much
    slower that it says nothing)."""
    rows = [(m, made) for m in of.trainings if (made := trace_of(m))]
    alone = {_setup(m): made for m, made in rows if _one_at_a_time(m) and made.slower <= MUCH_SLOWER}
    found, useless = [], []
    for m, made in ((m, made) for m, made in rows if not _one_at_a_time(m)):
        if m.settings.device == "cpu" and _setup(m) not in alone and made.slower > SLOWER:
            useless.append(m)
            continue
        plain = _switched(m, {n: t for n, t in m.settings.switches.items() if n not in SWITCH})
        found.append(_held(budget(plain, of), made, alone.get(_setup(m)), _fed(plain, of)))
    return found, useless


def _switched(m, switches: dict[str, str]):
    return msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, switches=switches))


def _one_at_a_time(m: Measurement) -> bool:
    return ONE_AT_A_TIME in m.settings.switches.items()


def _setup(m: Measurement) -> tuple:
    """What a row and the one with one operation at a time have in common."""
    return m.kernel, m.problem, m.settings.device, *sorted(set(m.settings.switches.items()) - {ONE_AT_A_TIME})


def _step(made: Trace, device: str) -> float:
    """Seconds of the step that a trace is of; on a GPU of the untraced one, as tracing slows the host that issues the kernels."""
    return made.quickest_s if device == "cpu" else made.step_s


def _fed(m: Measurement, of: profile.Profile) -> float:
    """Seconds a step, as predicted, of what a fit does with its samples before its first epoch: untraced steps are told by fits
    of more and of fewer samples, so that is in them. Of a CPU's step the quicker one counts, which may be without it."""
    if m.settings.device == "cpu":
        return 0.0
    try:
        made = predict(m.problem, m.settings, of, fitted=calibration(of, m.settings, leaving_out={m.problem.model}))
    except Lacking:  # said where its budget is
        return 0.0
    return made.cost.setup_step.value


def _held(made: Budget, own: Trace, apart: Trace | None, fed: float) -> Held:
    told = {p.name: p.seconds.value for p in made.parts if p.seconds}
    traced, untold = _on_cpu(own, apart) if made.device == "cpu" else _on_gpu(own)
    sums = {name: told.get(name, 0.0) for name in DEVICE}
    sums[WORK] = sum(sums.values()) + told.get(HIDDEN, 0.0)
    sums[HOST_PART] = fed + sum(told.get(name, 0.0) for name in _ON_HOST)
    if made.device == "cpu":
        sums[HIDDEN] = told.get(HIDDEN, 0.0)
    else:
        sums[HOST_PART] += told.get(HIDDEN, 0.0)
        sums[COPIES] = sum(told.get(name, 0.0) for name in _COPIES)
    missing = [p.name for p in made.parts if p.seconds is None or p.partial]
    untold += (f"the budget lacks rows of {join(missing)}",) * bool(missing)
    whole = _step(own, made.device)
    parts = (Beside(name, sums[name], at, whole) for name, at in traced.items() if name not in missing)
    return Held(made, own, tuple(p for p in parts if p.told or p.traced), untold)


def _on_cpu(own: Trace, apart: Trace | None) -> tuple[dict[str, float], tuple[str, ...]]:
    """(part -> seconds, what is not told): operations' own seconds are those of one at a time."""
    if apart is None:
        busy = min(sum(by_part(own, (OP,)).values()), own.busy_s.get(OP, 0.0))
        why = "which operation takes how long by itself: that takes a trace with TF_NUM_INTEROP_THREADS=1 that is hardly slower"
        return {WORK: busy, HOST_PART: own.traced_s - busy}, (why,)
    parts = by_part(apart, (OP,))
    found, ran = {name: parts.get(name, 0.0) for name in DEVICE}, sum(parts.values())
    whole = max(ran, apart.quickest_s)  # tracing adds a little, and whatever disturbs either
    return found | {HOST_PART: whole - ran, HIDDEN: own.quickest_s - whole}, ()


def _on_gpu(own: Trace) -> tuple[dict[str, float], tuple[str, ...]]:
    """(part -> seconds, what is not told): kernels and copies on the GPU's clock, and what of an untraced step it has neither."""
    parts = by_part(own, (KERNEL, COPY))
    unknown = parts.pop("", 0.0)
    found = {name: parts.get(name, 0.0) for name in (*DEVICE, COPIES)}
    said = f"{percent(unknown / own.step_s)} of the step in kernels whose names say nothing" if unknown else ""
    return found | {HOST_PART: own.step_s - own.busy_s.get("device", 0.0)}, (said,) if said else ()


def lines(of: profile.Profile) -> list[str]:
    """A table for each budget that is held against a trace, and how many parts agree in all."""
    found, useless = held(of)
    told = [f"{subject(m)} on {where(m)}: tracing made the step much longer: no use." for m in useless]
    for h in found:
        m, step = h.made.training, seconds(_step(h.trace, h.made.device))
        slower = percent(max(0.0, h.trace.slower))
        head = [f"{subject(m)} on {where(m)}, {step} a step (tracing adds {slower})", *h.untold]
        told += ["", "; ".join(head), ""]
        told += ["| a step | budget | trace | of the step | |", "| --- | ---: | ---: | ---: | --- |"]
        for p in h.parts:
            cells = [p.name, _signed(p.told), _signed(p.traced), percent((p.told - p.traced) / p.step)]
            told.append(f"| {' | '.join(cells)} | {'the same' if p.near else 'apart'} |")
    for device in dict.fromkeys(h.made.device for h in found):
        parts = [p for h in found if h.made.device == device for p in h.parts]
        alone = sum(abs(p.told - p.traced) <= PART * abs(p.traced) for p in parts)
        count = f"{of.key}, {device}: {sum(p.near for p in parts)} of {len(parts)} parts are within {percent(PART)} of the part"
        told += ["", f"{count} or {percent(STEP)} of the step, {alone} within {percent(PART)} of the part."]
    return told


def _signed(value: float) -> str:
    return ("-" if value < 0 else "") + seconds(abs(value))


def main(argv: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("machines", nargs="*", type=pathlib.Path)
    args = parser.parse_args(argv)
    stored = sorted(f.parent for f in REPORTS.glob(f"*/{FOLDER}") if f.parent.name != "local")
    for machine in args.machines or stored:
        print("\n".join([*lines(profile.read(str(machine))), ""]))


if __name__ == "__main__":
    main(sys.argv[1:])
