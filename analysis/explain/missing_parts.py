"""What an answer lacks is measured on this machine before it is given (`--measure`), or the seconds that would take are told."""

import functools
import pathlib
import sys
import time

import msgspec
from msgspec.structs import replace

from analysis.explain import explanation, measure, profiles
from analysis.explain.explanation import Explanation
from analysis.explain.measure import KnownCosts, MeasurablePart
from analysis.explain.measuring import Failure, TimeBudget
from analysis.explain.profiles import RowNames
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


class MeasureOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How what an answer lacks is measured."""

    #: The rows that the answer is from; those that are measured join them.
    rows: RowNames
    #: The command as it was typed, without the flags that ask for more than the answer.
    command: str
    #: Whether it is measured before the answer is given; else the answer says how long that would take.
    first: bool
    #: Whether that is all that can be known, or what the answer needs.
    everything: bool
    #: Seconds that the clocks may run.
    budget_s: float
    #: Whether to wait until other programs are quiet.
    wait_quiet: bool


class MissingParts(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What an answer lacks and this machine can measure."""

    request: Request
    sources: Sources
    #: What the answer has already.
    known: KnownCosts
    #: Whether that is all that can be known, or what the answer needs.
    everything: bool

    @property
    def devices(self) -> list[str]:
        """The devices of this machine that the answer is about. A GPU whose rows are another machine's is none of them."""
        has_gpu = not self.sources.borrowed and not facts.gpu_problem()
        return ["cpu", GPU] if has_gpu else ["cpu"]

    @functools.cached_property
    def parts(self) -> list[MeasurablePart]:
        """The parts to measure, the most needed first."""
        return measure.parts(self.known, self.request, self.sources, self.devices, everything=self.everything)

    @property
    def seconds(self) -> float:
        """Seconds that measuring the parts takes."""
        return measure.seconds(self.parts, self.request)

    @property
    def seconds_of_a_side(self) -> float:
        """Seconds that measuring the parts takes; 0 where the training itself is measured on all devices already."""
        measured = [side for side in self.known.sides.values() if side.cost.source == "measured"]
        return self.seconds if self.parts and len(measured) < len(self.devices) else 0.0


def explained(request: Request, sources: Sources, measuring: MeasureOptions) -> Explained:
    """The explanation of a training. Where the CPU's rows are this machine's, what the explanation lacks is measured before it
    with --measure; without --measure it comes with the seconds that measuring would take.

    Raises: Lacking where the rows tell neither device's seconds; Missing where nothing could be measured.
    """
    is_here = sources.cpu.key == facts.describe().key
    if is_here and measuring.first:
        return Explained(explanation=_with_measurements(request, sources, measuring))
    explanation_ = explanation.explain(request, sources)
    if not is_here:
        return Explained(explanation=explanation_)
    missing = MissingParts(
        request=request,
        sources=sources,
        known=KnownCosts.from_explanation(explanation_, without=explanation_.disturbed_devices),
        everything=measuring.everything,
    )
    return Explained(explanation=explanation_, measuring_s=missing.seconds_of_a_side)


def _with_measurements(request: Request, sources: Sources, measuring: MeasureOptions) -> Explanation:
    """The explanation by the known rows and by those that are measured now. Prints on stderr what could not be measured.

    Raises: Missing where the seconds are still unknown because a measurement failed; Lacking where they are for another reason.
    """
    before = _explanation_or_none(request, sources)
    missing = MissingParts(
        request=request,
        sources=sources,
        known=KnownCosts.from_explanation(before, without=before.disturbed_devices) if before else KnownCosts(),
        everything=measuring.everything,
    )
    if before and not missing.parts:
        print("Nothing is missing: this machine's rows have it all.", file=sys.stderr)
        return before
    if request.untraced:
        print(f"{request.untraced}: its step is measured, not predicted.", file=sys.stderr)
    if measuring.wait_quiet:
        load.wait_until_quiet()
    folders, failures = _measure(missing, measuring.budget_s)
    sources = measuring.rows.with_folders(folders).sources()
    try:
        after = explanation.explain(request, sources)
    except Lacking as lacking:
        if not failures:
            raise
        again = _with_more_time(measuring.command, failures) or measuring.command
        first = ""
        if request.untraced:  # the model fails in Keras's own fit too, so its file must be mended first
            file, _, _ = request.training.model.partition(":")
            first = f"mend {file}"
            again = f"{measuring.command} --measure"
        raise options.Missing(_reason(failures[0]), again, first=first) from lacking
    still_missing = replace(missing, sources=sources, known=KnownCosts.from_explanation(after))
    _report_gaps(measuring.command, failures, _unclear(missing.parts, still_missing.parts))
    return after


def _explanation_or_none(request: Request, sources: Sources) -> Explanation | None:
    """The explanation; None where the rows tell neither device."""
    try:
        return explanation.explain(request, sources)
    except Lacking:
        return None


def _measure(missing: MissingParts, budget_s: float) -> tuple[list[pathlib.Path], list[Failure]]:
    """Measures the parts within a budget, into folders whose names begin with explain- and the time. Returns these folders, and
    what was not measured.

    Raises: KeyboardInterrupt on Ctrl-C, with the files that have rows already as its message.
    """
    folder = profiles.local_folder() / time.strftime("explain-%Y%m%d-%H%M%S")
    print(f"Measuring here for about {missing.seconds:.0f} s; rows go to {options.near(folder)}-*", file=sys.stderr)
    try:
        with terminal.doing("measuring"):
            failures = measure.run(missing.parts, folder, TimeBudget(seconds=budget_s), _Progress().show)
    except KeyboardInterrupt as stop:
        files = _files_with_rows(folder)
        if files:
            stop.args = (f"with rows that the next answer takes: {', '.join(files)}",)
        raise
    return list(folder.parent.glob(f"{folder.name}-*")), failures


def _files_with_rows(folder: pathlib.Path) -> list[str]:
    """The result files that have rows among those of folders `folder`-1, `folder`-2 ..., as paths for people."""
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
        """Shows what is being done and the seconds since it began; without a terminal only when it is something new."""
        on_terminal = terminal.now(f"{doing}, {taken_s:.0f} s")
        if not on_terminal and doing != self._last:
            print(doing, file=sys.stderr, flush=True)
        self._last = doing


def _report_gaps(command: str, failures: list[Failure], unclear: list[Failure]) -> None:
    """Prints on stderr what was not measured and why, and the command that measures it. unclear: parts that were measured, but
    too noisily for the answer. A part may be unclear because another failed, so they are shown only without failures.
    """
    if failures:
        gaps = failures
        again = _with_more_time(command, failures)
    else:
        gaps = unclear
        again = f"{command} --measure --wait-quiet" if gaps else ""
    for gap in gaps:
        print(_reason(gap), file=sys.stderr)
    if again:
        terminal.note(terminal.Line(label="  try: ", command=again))


def _reason(failure: Failure) -> str:
    return f"not measured: {failure.part}: {failure.reason}"


def _with_more_time(command: str, failures: list[Failure]) -> str:
    """The command with --measure and a budget that is enough for the parts that failed; "" where none failed for lack of time."""
    budget_s = max((failure.budget_s for failure in failures), default=0)
    return f"{command} --measure --budget {budget_s}" if budget_s else ""


def _unclear(parts: list[MeasurablePart], missing: list[MeasurablePart]) -> list[Failure]:
    """The measured parts that the answer still lacks, by their names in both lists, with the reason."""
    names = {part.name for part in parts} & {part.name for part in missing}
    reason = "too noisy to tell"
    return [Failure(part=name, reason=reason) for name in sorted(names)]
