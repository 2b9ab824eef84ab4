"""Time saved by other ways of training: every change that may help, predicted, ranked by the time that it saves."""

import math
from collections.abc import Callable

import msgspec

from analysis.predict.host_parts import TENSORFLOW_LOOP
from analysis.predict.prediction import Prediction
from analysis.stats import NOTHING, Estimate, plus_minus, total
from analysis.training import costs
from analysis.training.costs import FIT
from analysis.units import count
from kernels.problems import InputPipeline, Training
from workloads.records import Settings, script_files
from workloads.records.settings import without_defaults

#: The prediction of a training with settings, by the kernel that trains.
Predict = Callable[[Training, Settings, str], Prediction]
# Times the batch.
_LARGER = (4, 16)
# Steps that Keras runs in one call, with steps_per_execution.
_STEPS_A_CALL = 16
# Fewer, larger steps an epoch: the accuracy must be looked at again.
_LEARNS = "changes learning"
# Option -> the flag of python -m workloads.training.
_FLAGS = {
    "jit_compile": "--jit",
    "residence": "--residence",
    "steps_per_execution": "--steps-per-execution",
    "tf32": "--tf32",
    "precision": "--precision",
    "data": "--data",
    "length": "--length",
}


class _OptionChange(msgspec.Struct, frozen=True, kw_only=True):
    """A change of one Keras option of a training on a GPU."""

    option: str
    #: The option's value after the change.
    value: str
    #: The values that it may have before.
    instead_of: tuple[str, ...]
    words: str
    #: A side effect, in words.
    note: str
    #: Which code analysis.text.advice has for it.
    kind: str
    #: What trains after it.
    kernel: str = FIT


_GPU_CHANGES = (
    # One tf.function an epoch is priced as a bare loop's calls, whose samples are on the GPU.
    _OptionChange(
        option="residence",
        value="resident",
        instead_of=tuple(place for place in InputPipeline.WAYS if place != InputPipeline.RESIDENT),
        words="data on the GPU, own loop",
        note="no callbacks",
        kind="own loop",
        kernel=TENSORFLOW_LOOP,
    ),
    _OptionChange(
        option="residence",
        value="prefetch",
        instead_of=("numpy", "tf.data", "generator"),
        words="prefetch to the GPU",
        note="by tf.data",
        kind="prefetch",
    ),
    _OptionChange(option="tf32", value="on", instead_of=("off",), words="TF32 allowed", note="fewer bits", kind="tf32"),
    _OptionChange(
        option="precision",
        value="mixed_bfloat16",
        instead_of=("float32",),
        words="mixed_bfloat16",
        note="fewer bits",
        kind="mixed_bfloat16",
    ),
)


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a training."""

    words: str
    #: The training after it.
    training: Training
    #: The settings after it.
    settings: Settings
    #: A side effect, in words; "" for none.
    note: str = ""
    #: What trains after it, as it is priced.
    kernel: str = FIT
    #: Which code analysis.text.advice has for it.
    kind: str = ""

    @property
    def learns(self) -> bool:
        """Whether the change affects what the model learns."""
        return self.note == _LEARNS


class WhatIf(msgspec.Struct, frozen=True, kw_only=True):
    """The predicted savings of a change; negative where it costs."""

    change: Change
    #: Seconds of the whole training; None where it could not be predicted.
    job_saved: Estimate | None
    #: Seconds of a step, for as many samples; None where it could not be predicted.
    step_saved: Estimate | None = None
    #: Why it could not be predicted.
    why: str = ""

    @property
    def surely_s(self) -> float:
        """Seconds of the whole training saved, by the lower end of the interval; 0 if it may save none."""
        return max(0.0, self.job_saved.low) if self.job_saved else 0.0


def changes(training: Training, settings: Settings) -> list[Change]:
    """Every change of a training that may save time on its device: larger batches, more steps a call, with or without XLA, whole
    batches, and on a GPU other places of the samples and less precise arithmetic. No batch is larger than the samples."""
    every = _larger_batches(training, settings)
    every += _call_changes(training, settings)
    whole = _whole_batches(training, settings)
    if whole is not None:
        every.append(whole)
    if settings.on_gpu:
        every += _gpu_changes(training, settings)
    return every


def _larger_batches(training: Training, settings: Settings) -> list[Change]:
    """The training with _LARGER times the batch, as far as there are samples."""
    every = []
    for times in _LARGER:
        batch = times * training.batch
        if batch <= training.samples:
            larger = msgspec.structs.replace(training, batch=batch)
            change = Change(words=f"batch {batch:,}", training=larger, settings=settings, note=_LEARNS, kind="batch")
            every.append(change)
    return every


def _call_changes(training: Training, settings: Settings) -> list[Change]:
    """The training with several steps in one call of Keras's function, if that has one; and with XLA, or without it if that is
    on."""
    every = []
    if settings.keras.steps_per_execution == 1 and training.steps > 1:
        steps = str(min(_STEPS_A_CALL, training.steps))
        fewer_calls = Change(
            words=f"steps_per_execution={steps}",
            training=training,
            settings=_with_options(settings, steps_per_execution=steps),
            note="fewer callbacks",
            kind="steps_per_execution",
        )
        every.append(fewer_calls)
    jit = settings.keras.jit_compile
    is_compiled = jit == "on" or (jit == "auto" and settings.on_gpu)
    words = "without XLA" if is_compiled else "with XLA"
    other_execution = Change(
        words=words,
        training=training,
        settings=_with_options(settings, jit_compile="off" if is_compiled else "on"),
        note="more calls a step" if is_compiled else "compiles each size",
        kind=words,
    )
    return [*every, other_execution]


def _whole_batches(training: Training, settings: Settings) -> Change | None:
    """The training without the samples of its smaller last batch, for which XLA compiles a second time; None if there is no such
    batch, or no XLA."""
    left_over = costs.left_over(training, settings)
    if not left_over:
        return None
    whole = msgspec.structs.replace(training, samples=training.samples - left_over)
    words = f"whole batches: {count(whole.samples, 'sample')}"
    return Change(words=words, training=whole, settings=settings, note="drop_remainder", kind="whole batches")


def _gpu_changes(training: Training, settings: Settings) -> list[Change]:
    """The changes of the table _GPU_CHANGES that the training's settings leave room for. A model from a .keras file has the
    precision that it was saved with."""
    every = []
    for change in _GPU_CHANGES:
        if getattr(settings.keras, change.option) not in change.instead_of:
            continue
        if change.option == "precision" and training.model.endswith(".keras"):
            continue
        every.append(
            Change(
                words=change.words,
                training=training,
                settings=_with_options(settings, **{change.option: change.value}),
                note=change.note,
                kernel=change.kernel,
                kind=change.kind,
            )
        )
    return every


def _with_options(settings: Settings, **options: str) -> Settings:
    """The settings with other Keras options."""
    return msgspec.structs.replace(settings, switches=without_defaults({**settings.switches, **options}))


def what_ifs(base: Prediction, predict: Predict) -> list[WhatIf]:
    """The predicted savings of every change of a training, the one that saves most of the whole training first; those that cannot
    be predicted last. base: the prediction of the training as it is. predict: predicts one (a training, its settings, its
    kernel)."""
    every = []
    for change in changes(base.training, base.settings):
        try:
            after = predict(change.training, change.settings, change.kernel)
        except ValueError as error:
            every.append(WhatIf(change=change, job_saved=None, why=str(error)))
            continue
        every.append(WhatIf(change=change, job_saved=job_saved(base, after), step_saved=step_saved(base, after)))
    return sorted(every, key=_most_saved_first)


def _most_saved_first(what_if: WhatIf) -> float:
    """Sort key: by the seconds of the whole training that a change saves; unknown ones last."""
    return -what_if.job_saved.value if what_if.job_saved else math.inf


def job_saved(base: Prediction, after: Prediction) -> Estimate:
    """Seconds of the whole training that a change saves, from the predictions before and after it. Errors that both share cancel:
    a part that stays as it is saves exactly nothing, and a part that changes is wrong by no more than its own relative error."""
    correlated = base.execution == after.execution
    base_parts = costs.parts(base.cost, base.training.epochs, base.training.steps)
    parts_after = costs.parts(after.cost, after.training.epochs, after.training.steps)
    return total(_difference(base_parts[name], parts_after[name], correlated=correlated) for name in base_parts)


def step_saved(base: Prediction, after: Prediction) -> Estimate:
    """Seconds that a change saves of a step, or if the batch changes, of the share of a step for as many samples as before."""
    share = base.training.batch / after.training.batch
    return _difference(base.step_s, after.step_s * share, correlated=base.execution == after.execution)


def _difference(a: Estimate, b: Estimate, *, correlated: bool) -> Estimate:
    """The difference a - b of two predicted times. If their errors are correlated, it has the relative error of `a`, and so much
    of the error of `b` as is beyond that; else both errors add."""
    if a == b:
        return NOTHING
    if not correlated:
        return a - b
    error = a.noise if a.value > 0 else 0.0
    error_of_b = b.noise if b.value > 0 else 0.0
    value = a.value - b.value
    return plus_minus(value, abs(value) * error + b.value * max(0.0, error_of_b - error))


def command(change: Change, epochs: int | None = None, samples: int | None = None) -> list[str]:
    """The words of the command that measures a training after a change: `workloads.training --model ...`, to be run by `python
    -m`. epochs, samples: other numbers than the training's, to be quicker."""
    training = change.training
    options = dict(change.settings.switches)
    flags: dict[str, object] = {"--model": training.model}
    script = script_files.script_training(training.model)
    if script is not None:
        flags = {"--script": script.command, "--fit": script.fit}
        options.pop("data", None)
    flags["--batch"] = training.batch
    flags["--samples"] = samples or training.samples
    flags["--epochs"] = epochs or training.epochs
    flags["--dtypes"] = training.dtype
    flags["--device"] = change.settings.device
    flags["--variants"] = "resident" if change.settings.keras.residence == "resident" else "fit"
    for name, flag in _FLAGS.items():
        if name in options:
            flags[flag] = options[name]
    words = ["workloads.training"]
    for flag, value in flags.items():
        words += [flag, str(value)]
    return words
