"""What an answer lacks is measured on this machine before it is given (`--measure`), or the seconds that would take are told."""

import pathlib
import sys
import time

import msgspec

from analysis.explain import explanation, measure, profiles
from analysis.explain.explanation import Explanation
from analysis.explain.measure import KnownCosts, Part
from analysis.explain.measuring import Failure, TimeBudget
from analysis.explain.plan import ExplainPlan
from analysis.explain.request import GPU, Request
from analysis.explain.sources import Sources
from analysis.predict.profile import Lacking
from workloads import options, terminal
from workloads.machine import facts, load


class Explained(msgspec.Struct, frozen=True, kw_only=True):
    """An explanation, and how long it would take to measure what it lacks."""

    #: The training on both devices.
    explanation: Explanation
    #: Seconds in which this machine would measure a side that is only predicted or lacks; 0 where it would not.
    measuring_s: float = 0.0


def explained(plan: ExplainPlan, request: Request, sources: Sources) -> Explained:
    """The explanation of a training; with --measure what it lacks is measured first, if the CPU's rows are, or would be, those of
    this machine.

    Raises: Lacking; Missing where nothing could be measured.
    """
    is_here = sources.cpu.key == facts.describe().key
    if is_here and plan.measure:
        return _with_measurements(plan, request, sources)
    explanation_ = explanation.explain(request, sources)
    can_measure = is_here and not plan.script  # a worker builds a model by its name
    measuring_s = _measuring_s(plan, explanation_, sources) if can_measure else 0.0
    return Explained(explanation=explanation_, measuring_s=measuring_s)


def _measuring_s(plan: ExplainPlan, explanation_: Explanation, sources: Sources) -> float:
    """Seconds in which this machine would measure a side that is only predicted or lacks; 0 where all sides are measured."""
    known = KnownCosts.from_explanation(explanation_, without=explanation_.disturbed_devices)
    parts = _parts(plan, known, explanation_.request, sources)
    measured = [side for side in known.sides.values() if side.cost.source == "measured"]
    if not parts or len(measured) >= len(_devices(sources)):
        return 0.0
    return measure.seconds(parts, explanation_.request)


def _with_measurements(plan: ExplainPlan, request: Request, sources: Sources) -> Explained:
    """The explanation by the rows there are and those that are measured now. What could not be measured is said."""
    before = _explanation_or_none(request, sources)
    known = KnownCosts.from_explanation(before, without=before.disturbed_devices) if before else KnownCosts()
    parts = _parts(plan, known, request, sources)
    if before and not parts:
        print("Nothing is missing: this machine's rows have it all.", file=sys.stderr)
        return Explained(explanation=before)
    if plan.wait_quiet:
        load.wait_until_quiet()
    folders, failures = _measure(parts, request, plan.budget_s)
    runs = [*plan.runs, *map(str, folders)] if plan.runs else []
    sources = profiles.sources(runs, plan.gpu_profile)
    try:
        after = explanation.explain(request, sources)
    except Lacking as lacking:
        if not failures:
            raise
        raise options.Missing(_reason(failures[0]), _with_more_time(plan, failures) or plan.command) from lacking
    _report_gaps(plan, parts, failures, _parts(plan, KnownCosts.from_explanation(after), request, sources))
    return Explained(explanation=after)


def _explanation_or_none(request: Request, sources: Sources) -> Explanation | None:
    """The explanation; None where the rows tell neither device."""
    try:
        return explanation.explain(request, sources)
    except Lacking:
        return None


def _devices(sources: Sources) -> list[str]:
    """The devices of this machine that an answer is about: a stored GPU is none of them."""
    has_gpu = not sources.borrowed and not facts.gpu_problem()
    return ["cpu", GPU] if has_gpu else ["cpu"]


def _parts(plan: ExplainPlan, known: KnownCosts, request: Request, sources: Sources) -> list[Part]:
    """The parts that an answer lacks and this machine can measure."""
    return measure.parts(known, request, sources, _devices(sources), everything=plan.all_details)


def _measure(parts: list[Part], request: Request, budget_s: float) -> tuple[list[pathlib.Path], list[Failure]]:
    """Measures the parts within a budget: the folders with their rows, and what was not measured.

    Raises: KeyboardInterrupt with the files that have rows already.
    """
    folder = profiles.local_folder() / time.strftime("explain-%Y%m%d-%H%M%S")
    expected_s = measure.seconds(parts, request)
    print(f"Measuring here for about {expected_s:.0f} s; rows go to {options.near(folder)}-*", file=sys.stderr)
    try:
        with terminal.doing("measuring"):
            failures = measure.run(parts, folder, TimeBudget(seconds=budget_s), _Progress().show)
    except KeyboardInterrupt as stop:
        files = _files_with_rows(folder)
        if files:
            stop.args = (f"with rows that the next answer takes: {', '.join(files)}",)
        raise
    return list(folder.parent.glob(f"{folder.name}-*")), failures


def _files_with_rows(folder: pathlib.Path) -> list[str]:
    """The result files of the parts that were measured, as they are shown."""
    files = []
    for file in sorted(folder.parent.glob(f"{folder.name}-*/*.jsonl")):
        lines = file.read_bytes().count(b"\n")
        if lines > 1:  # the first line is of the run
            files.append(options.near(file))
    return files


class _Progress:
    """Shows what is being measured: on a terminal a line that is overwritten, else a line when something new begins."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, doing: str, taken_s: float) -> None:
        on_terminal = terminal.now(f"{doing}, {taken_s:.0f} s")
        if not on_terminal and doing != self._last:
            print(doing, file=sys.stderr, flush=True)
        self._last = doing


def _report_gaps(plan: ExplainPlan, parts: list[Part], failures: list[Failure], missing: list[Part]) -> None:
    """Says on stderr what was not measured and why, and the command that measures it."""
    if failures:  # a part that is missing may be one that did not run
        gaps = failures
        retry = _with_more_time(plan, failures)
    else:
        gaps = _unclear(parts, missing)
        retry = f"{plan.command} --measure --wait-quiet" if gaps else ""
    for gap in gaps:
        print(_reason(gap), file=sys.stderr)
    if retry:
        print(f"  try: {retry}", file=sys.stderr)


def _reason(failure: Failure) -> str:
    return f"not measured: {failure.part}: {failure.reason}"


def _with_more_time(plan: ExplainPlan, failures: list[Failure]) -> str:
    """The command with a budget that is enough for what failed; "" where more time measures nothing more."""
    budget_s = max((failure.budget_s for failure in failures), default=0)
    return f"{plan.command} --measure --budget {budget_s}" if budget_s else ""


def _unclear(parts: list[Part], missing: list[Part]) -> list[Failure]:
    """The parts that were measured and are missing still."""
    names = {part.name for part in parts} & {part.name for part in missing}
    reason = "too noisy to tell"
    return [Failure(part=name, reason=reason) for name in sorted(names)]
