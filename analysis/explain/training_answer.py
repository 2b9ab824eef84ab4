"""The answer to a training's question as data: the winner, the seconds, and what they rest on.

`explain --format json` begins with it, and `crossover.explain` returns it.
"""

import html

import msgspec

from analysis.explain.doubts import Assumption
from analysis.explain.explanation import GPU, Explanation
from analysis.finding import Warning
from analysis.stats import Estimate, likely
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

    def __str__(self) -> str:
        return "\n".join(self.verdict)

    def _repr_html_(self) -> str:
        """The lines of the answer, as a notebook shows them."""
        return f"<pre>{html.escape(str(self))}</pre>"


def training_answer(e: Explanation, verdict: list[str]) -> TrainingAnswer:
    """The answer that an explanation gives; `verdict`: its lines."""
    seconds = {side.device: side.whole for side in e.sides}
    source = {side.device: side.cost.source for side in e.sides}
    training = e.asked.training
    return TrainingAnswer(
        winner=likely_winner(e),
        sure=e.winner != "neither",
        cpu_seconds=seconds.get("cpu"),
        gpu_seconds=seconds.get(GPU),
        assumed=e.assumed,
        warnings=e.warnings,
        cpu_source=source.get("cpu"),
        gpu_source=source.get(GPU),
        stored_gpu=e.borrowed,
        model=training.model,
        batch=min(training.batch, training.samples),
        samples=training.samples,
        epochs=training.epochs,
        script=e.asked.script,
        finishes_first_from=e.turns if e.both else None,
        verdict=tuple(verdict),
    )


def likely_winner(e: Explanation) -> str | None:
    """cpu, gpu, or neither where it cannot be told; None without the seconds of one side."""
    if not e.both:
        return None
    cpu, gpu = e.both
    predicted = "predicted" in (cpu.cost.source, gpu.cost.source)
    return likely(cpu.whole, gpu.whole, predicted=predicted)
