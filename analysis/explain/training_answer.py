"""The answer to a training's question as data: the winner, the seconds, and what they rest on.

`explain --format json` begins with it, and `crossover.explain` returns it.
"""

import html

import msgspec

from analysis.explain.doubts import Assumption
from analysis.explain.explanation import Explanation
from analysis.explain.findings import findings
from analysis.explain.request import GPU
from analysis.finding import IN_DETAIL, Finding, Warning
from analysis.stats import Estimate
from workloads.records.script_fit import ScriptFit

SCHEMA = 1  # it rises when a field is renamed, goes, or means something else; docs/answer.md lists them


class TrainingAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """Which device finishes a training first, and how sure that is."""

    #: The version of these fields.
    schema: int = SCHEMA
    #: cpu or gpu; neither where it cannot be told; None where a side has no seconds.
    winner: str | None = None
    #: Whether the intervals lie apart and no row was disturbed; else the winner is only probable.
    sure: bool = False
    #: Seconds of the whole training on the CPU, start-up and compilation included; None where no row tells them.
    cpu_seconds: Estimate | None = None
    #: The same on the GPU.
    gpu_seconds: Estimate | None = None
    #: Numbers of the training that nobody gave.
    assumed: tuple[Assumption, ...] = ()
    #: Reasons to believe the answer less.
    warnings: tuple[Warning, ...] = ()
    #: measured or predicted; None without seconds.
    cpu_source: str | None = None
    gpu_source: str | None = None
    #: The machine of a stored GPU; "" where the GPU is the one of the rows.
    stored_gpu: str = ""
    #: A name, file.py:function or file.keras.
    model: str = ""
    #: Samples of a step.
    batch: int = 0
    #: Samples of an epoch.
    samples: int = 0
    epochs: int = 0
    #: The first fit of the script, with the script's own numbers; None of a model or a case.
    script: ScriptFit | None = None
    #: (device that wins with more samples or epochs, the count of each from which it wins); None where a side has no seconds.
    finishes_first_from: tuple[str, dict[str, float]] | None = None
    #: The lines of the answer as the terminal has them.
    verdict: tuple[str, ...] = ()
    #: What these lines say, as data; those of a higher rank are left out where there is no room.
    findings: tuple[Finding, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.verdict)

    def _repr_html_(self) -> str:
        """The lines of the answer, as a notebook shows them."""
        return f"<pre>{html.escape(str(self))}</pre>"


def training_answer(explanation: Explanation, verdict: list[str]) -> TrainingAnswer:
    """The answer of an explanation as data. verdict: the lines of the same answer, as a terminal has them."""
    seconds = {side.device: side.whole for side in explanation.sides}
    source = {side.device: side.cost.source for side in explanation.sides}
    training = explanation.request.training
    turning_point = explanation.turning_point if explanation.both else None
    return TrainingAnswer(
        winner=explanation.likely_winner,
        sure=explanation.winner != "neither",
        cpu_seconds=seconds.get("cpu"),
        gpu_seconds=seconds.get(GPU),
        assumed=explanation.assumed,
        warnings=explanation.warnings,
        cpu_source=source.get("cpu"),
        gpu_source=source.get(GPU),
        stored_gpu=explanation.borrowed,
        model=training.model,
        batch=min(training.batch, training.samples),
        samples=training.samples,
        epochs=training.epochs,
        script=explanation.request.script,
        finishes_first_from=(turning_point.device, turning_point.counts) if turning_point else None,
        verdict=tuple(verdict),
        findings=tuple(one for one in findings(explanation) if one.rank < IN_DETAIL),
    )
