"""The parts of a training's budget beside where a trace of it says that the time went: an account that knows nothing of ours.

On the CPU operations that run at the same time take longer, as they share the cores. So their own seconds are those of a trace
with one operation at a time, and what that one's step is longer is what others run beside. On a GPU kernels and copies are on
its own clock, and what is left of the step is what it waits for the host.
"""

import re
import statistics
from collections.abc import Iterable
from typing import TYPE_CHECKING

import msgspec

from analysis import budget_words
from analysis.budget import Budget, budget
from analysis.calibration import calibration
from analysis.combine import DEVICE, HIDDEN, Calibration
from analysis.prediction import Lacking, predict
from analysis.units import count, join, percent, seconds
from kernels import networks
from workloads import switches, trace
from workloads.trace import Op, Trace

if TYPE_CHECKING:
    from analysis.profile import Profile
    from workloads.records import Measurement

MATMUL, CONV, ELEMENT_WISE, OPTIMIZER = DEVICE
HOST_PART, COPIES, WORK = "dispatch and launches", "copies", "work"
PART, STEP = 0.20, 0.05  # of the traced part, or of the step: so near counts as the same
# Traces that made the step longer than so say nothing: of the time between operations; of what these take themselves.
SLOWER, MUCH_SLOWER = 0.10, 0.25
ONE_AT_A_TIME = ("TF_NUM_INTEROP_THREADS", "1")
_ON_HOST = ("dispatch", "launches", "input pipeline")
_COPIES = ("transfer calls", "transfer bytes")
# In names of operations, of XLA's instructions and of libraries' kernels; the first that is found.
_NAMED = {
    CONV: re.compile(r"conv(?!ert)|fprop|wgrad|(?<!d)dgrad|winograd|cudnn(?!.*bn_)"),
    MATMUL: re.compile("matmul|gemm|dot|nvjet|cutlass|splitk|xmma"),
}


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

    @property
    def device(self) -> str:
        return self.made.device


def part_of(op: Op) -> str:
    """The part of a budget that an operation is of; "" for a GPU's kernel that cannot be told."""
    if op.where == trace.COPY:
        return COPIES if op.name.startswith(("MemcpyH2D", "MemcpyD2H")) else ELEMENT_WISE
    name = op.name.lower()
    for part, named in _NAMED.items():
        if named.search(name):
            return part
    if op.scope == trace.OPTIMIZER:
        return OPTIMIZER
    return ELEMENT_WISE if op.scope or op.where == trace.OP else ""


def by_part(of: Trace, wheres: Iterable[str]) -> dict[str, float]:
    """Seconds a step of each part, operations' own; those of the shortest operation are dispatch, in every one of them."""
    ops = [op for op in of.ops if op.where in set(wheres)]
    least = min((op.seconds / op.calls for op in ops if op.where == trace.OP and op.calls and op.seconds), default=0.0)
    found: dict[str, float] = {}
    for op in ops:
        found[part_of(op)] = (
            found.get(part_of(op), 0.0) + op.seconds - (least * op.calls if op.where == trace.OP else 0.0)
        )
    return found


def held(of: "Profile") -> list[Held]:
    """Every budget of the profile whose training was traced, held against its trace."""
    rows, apart = _told(of)
    return [_held(budget(m, of), made, apart.get(_setup(m)), _fed(m, of)) for m, made in rows if _tells(m, made, apart)]


def _step(made: Trace, device: str) -> float:
    """Seconds of the step that a trace is of; on a GPU of the untraced one, as tracing slows the host that issues the kernels."""
    return made.quickest_s if device == "cpu" else made.step_s


def _fed(m: "Measurement", of: "Profile") -> float:
    """Seconds a step, as predicted, of what a fit does with its samples before its first epoch: untraced steps are told by fits
    of more and of fewer samples, so that is in them. Of a CPU's step the quicker one counts, which may be without it."""
    if m.settings.device == "cpu":
        return 0.0
    try:
        made = predict(m.problem, m.settings, of, fitted=calibration(of, m.settings, leaving_out=m.problem.model))
    except Lacking:  # said where its budget is
        return 0.0
    return made.held_s.value / made.training.steps


def too_slow(of: "Profile") -> "list[Measurement]":
    """Trainings whose trace made the step so much longer that it says nothing."""
    rows, apart = _told(of)
    return [m for m, made in rows if not _tells(m, made, apart)]


def _told(of: "Profile") -> "tuple[list[tuple[Measurement, Trace]], dict[tuple, Trace]]":
    """(the traced trainings, the traces with one operation at a time by what they have in common with those)."""
    rows = [(m, made) for m in of.trainings if (made := trace.of(m.notes))]
    apart = {_setup(m): made for m, made in rows if _one_at_a_time(m) and made.slower <= MUCH_SLOWER}
    return [(m, made) for m, made in rows if not _one_at_a_time(m)], apart


def _tells(m: "Measurement", made: Trace, apart: dict[tuple, Trace]) -> bool:
    """Whether the step is known apart from what tracing added: of a CPU's with a trace of one operation at a time it is. A GPU's
    kernels are on its own clock, however slowly they are issued, and what the host takes is told by steps that are not traced."""
    return m.settings.device != "cpu" or _setup(m) in apart or made.slower <= SLOWER


def _one_at_a_time(m: "Measurement") -> bool:
    return ONE_AT_A_TIME in m.settings.switches.items()


def _setup(m: "Measurement") -> tuple:
    """What a row and the one with one operation at a time have in common."""
    return m.kernel, m.problem, m.settings.device, *sorted(set(m.settings.switches.items()) - {ONE_AT_A_TIME})


def _held(made: Budget, own: Trace, apart: Trace | None, fed: float) -> Held:
    told = {p.name: p.seconds.value for p in made.parts if p.seconds}
    if made.device == "cpu":
        traced, untold = _on_cpu(own, apart)
    else:
        traced, untold = _on_gpu(own)
    sums = {name: told.get(name, 0.0) for name in DEVICE}
    sums[WORK] = sum(sums.values()) + told.get(HIDDEN, 0.0)
    sums[HOST_PART] = fed + sum(told.get(name, 0.0) for name in _ON_HOST)
    if made.device == "cpu":
        sums[HIDDEN] = told.get(HIDDEN, 0.0)
    else:
        sums |= {
            HOST_PART: sums[HOST_PART] + told.get(HIDDEN, 0.0),
            COPIES: sum(told.get(name, 0.0) for name in _COPIES),
        }
    missing = [p.name for p in made.parts if p.seconds is None or p.partial]
    untold += (f"the budget lacks rows of {join(missing)}",) * bool(missing)
    whole = _step(own, made.device)
    parts = (Beside(name, sums[name], at, whole) for name, at in traced.items() if name not in missing)
    return Held(made, own, tuple(p for p in parts if p.told or p.traced), untold)


def _on_cpu(own: Trace, apart: Trace | None) -> tuple[dict[str, float], tuple[str, ...]]:
    """(part -> seconds, what is not told): operations' own seconds are those of one at a time."""
    if apart is None:
        busy = sum(by_part(own, (trace.OP,)).values())
        busy = min(busy, own.busy_s.get(trace.OP, 0.0))
        why = "which operation takes how long by itself: that takes a trace with TF_NUM_INTEROP_THREADS=1 that is hardly slower"
        return {WORK: busy, HOST_PART: own.traced_s - busy}, (why,)
    parts = by_part(apart, (trace.OP,))
    found, ran = {name: parts.get(name, 0.0) for name in DEVICE}, sum(parts.values())
    whole = max(ran, apart.quickest_s)  # tracing adds a little, and whatever disturbs either
    return found | {HOST_PART: whole - ran, HIDDEN: own.quickest_s - whole}, ()


def _on_gpu(own: Trace) -> tuple[dict[str, float], tuple[str, ...]]:
    """(part -> seconds, what is not told): kernels and copies on the GPU's clock, and what of an untraced step it has neither."""
    parts = by_part(own, (trace.KERNEL, trace.COPY))
    unknown = parts.pop("", 0.0)
    found = {name: parts.get(name, 0.0) for name in (*DEVICE, COPIES)}
    said = f"{percent(unknown / own.step_s)} of the step in kernels whose names say nothing" if unknown else ""
    return found | {HOST_PART: own.step_s - own.busy_s.get("device", 0.0)}, (said,) if said else ()


def table(of: Held) -> list[str]:
    """The parts side by side as a Markdown table."""
    lines = ["| a step | budget | trace | of the step | |", "| --- | ---: | ---: | ---: | --- |"]
    for p in of.parts:
        lines.append(
            f"| {p.name} | {_signed(p.told)} | {_signed(p.traced)} | {percent((p.told - p.traced) / p.step)} | "
            f"{'the same' if p.near else 'apart'} |"
        )
    return lines


def _signed(value: float) -> str:
    return ("-" if value < 0 else "") + seconds(abs(value))


def sentence(of: Held) -> str:
    """How many parts agree, and which do not."""
    apart = [f"{p.name} ({_signed(p.told)} instead of {_signed(p.traced)})" for p in of.parts if not p.near]
    near = len(of.parts) - len(apart)
    what = f"{near} of {len(of.parts)} parts of the budget are as traced" + (f"; apart: {join(apart)}" if apart else "")
    slower = f"tracing made the step {percent(max(0.0, of.trace.slower))} longer" if of.trace.slower > 0.01 else ""
    more = join([*of.untold, *([slower] if slower else [])])
    return (
        f"{_subject(of.made.training)}, {seconds(_step(of.trace, of.device))} a step: {what}"
        f"{'; ' + more if more else ''}."
    )


def errors(of: "Profile") -> list[str]:
    """How far the steps of traced trainings are predicted off, a line a device: by the profile's microbenchmarks alone, and with
    the few numbers that are fitted on the ordinary trainings of other models, where there are some."""
    from analysis.held_out import off

    found: dict[tuple[str, bool], list[float]] = {}
    for m in of.trainings:
        made = trace.of(m.notes)
        if made is None or _one_at_a_time(m) or networks.known(m.problem.model) is None:
            continue
        fitted = calibration(of, m.settings, leaving_out=m.problem.model)
        for by in (Calibration(), fitted) if fitted.models else (Calibration(),):
            try:
                p = predict(m.problem, m.settings, of, fitted=by)
            except Lacking:  # said where its budget is
                continue
            told = p.told_by(m.settings.device != "cpu")  # an untraced GPU step has its share of the samples in it
            found.setdefault((m.settings.device, bool(by.models)), []).append(off(told, _step(made, m.settings.device)))
    words = {False: "microbenchmarks alone", True: "numbers fitted on the other models' too"}
    return [
        f"steps of {count(len(errors_), 'traced training')} on {device} predicted from {words[fitted]}: {_middles(errors_)}"
        for (device, fitted), errors_ in found.items()
    ]


def _middles(errors_: list[float]) -> str:
    return f"median error {percent(statistics.median(errors_))}, mean {percent(statistics.fmean(errors_))}"


def budget_lines(of: "Profile") -> list[str]:
    """A sentence and a table for each budget that is held against a trace; nothing without traces."""
    found = [line for h in held(of) for line in (sentence(h), "", *table(h), "")]
    return [
        *found,
        *(
            f"{_subject(m)}: tracing made the step {percent(seen.slower)} longer: no use."
            for m in too_slow(of)
            if (seen := trace.of(m.notes))
        ),
    ]


def spent(of: Trace, device: str) -> dict[str, float]:
    """Part -> seconds of the step, what ran at the same time sharing them; then what of the step nothing ran in. They add up."""
    wheres = (trace.OP,) if device == "cpu" else (trace.KERNEL, trace.COPY)
    found: dict[str, float] = {}
    for op in (op for op in of.ops if op.where in wheres):
        name = part_of(op) or "unknown kernels"
        found[name] = found.get(name, 0.0) + op.wall_s
    return {
        **dict(sorted(found.items(), key=lambda item: -item[1])),
        HOST_PART: _step(of, device) - sum(found.values()),
    }


def lines(rows: "Iterable[Measurement]") -> list[str]:
    """Where the steps of the traced trainings among some rows went, a sentence each, those as they usually run first; why there
    is no trace."""
    said = []
    for m in sorted(rows, key=lambda m: m.problem.op == "training" and _one_at_a_time(m)):
        if m.problem.op != "training" or not switches.traced(m) or m.status != "ok":
            continue
        made, one = trace.of(m.notes), ", one operation at a time" * _one_at_a_time(m)
        if made is None:
            said.append(f"{_subject(m)} was not traced: {m.notes.get(trace.UNTOLD, 'its row has no trace')}.")
            continue
        whole, parts = _step(made, m.settings.device), spent(made, m.settings.device)
        shares = [f"{name} {percent(max(0.0, s) / whole)}" for name, s in parts.items()]
        slower = f"; tracing made it {percent(made.slower)} longer" if made.slower > 0 else ""
        said.append(f"{_subject(m)}{one}, as traced: {seconds(whole)} a step, of it {join(shares)}{slower}.")
    return said


def _subject(m: "Measurement") -> str:
    return f"{budget_words.subject(m)} on {budget_words.where(m)}"
