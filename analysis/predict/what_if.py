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
from kernels.problems import Training
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
    """Every change that makes sense for a training on its device; the batch never grows past the samples."""
    every = _larger_batches(training, settings)
    every += _call_changes(training, settings)
    whole = _whole_batches(training, settings)
    if whole is not None:
        every.append(whole)
    if settings.on_gpu:
        every += _residence_changes(training, settings)
        every += _precision_changes(training, settings)
    return every


def _larger_batches(training: Training, settings: Settings) -> list[Change]:
    every = []
    for times in _LARGER:
        batch = times * training.batch
        if batch <= training.samples:
            larger = msgspec.structs.replace(training, batch=batch)
            change = Change(words=f"batch {batch:,}", training=larger, settings=settings, note=_LEARNS, kind="batch")
            every.append(change)
    return every


def _call_changes(training: Training, settings: Settings) -> list[Change]:
    """More steps a call, and XLA or none."""
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
    """Without the smaller last batch; None where XLA compiles for none."""
    left_over = costs.left_over(training, settings)
    if not left_over:
        return None
    whole = msgspec.structs.replace(training, samples=training.samples - left_over)
    words = f"whole batches: {count(whole.samples, 'sample')}"
    return Change(words=words, training=whole, settings=settings, note="drop_remainder", kind="whole batches")


def _residence_changes(training: Training, settings: Settings) -> list[Change]:
    """Other places for the samples of a training on a GPU. One tf.function an epoch is priced as a bare loop's calls, whose
    samples are on the GPU."""
    every = []
    residence = settings.keras.residence
    if residence != "resident":
        bare_loop = Change(
            words="data on the GPU, own loop",
            training=training,
            settings=_with_options(settings, residence="resident"),
            note="no callbacks",
            kernel=TENSORFLOW_LOOP,
            kind="own loop",
        )
        every.append(bare_loop)
    if residence in ("numpy", "tf.data", "generator"):
        prefetch = Change(
            words="prefetch to the GPU",
            training=training,
            settings=_with_options(settings, residence="prefetch"),
            note="by tf.data",
            kind="prefetch",
        )
        every.append(prefetch)
    return every


def _precision_changes(training: Training, settings: Settings) -> list[Change]:
    """Less precise arithmetic on a GPU. A model from a file keeps the precision that it was saved with."""
    every = []
    if settings.keras.tf32 == "off":
        tf32 = Change(
            words="TF32 allowed",
            training=training,
            settings=_with_options(settings, tf32="on"),
            note="fewer bits",
            kind="tf32",
        )
        every.append(tf32)
    if settings.keras.precision == "float32" and not training.model.endswith(".keras"):
        bfloat16 = Change(
            words="mixed_bfloat16",
            training=training,
            settings=_with_options(settings, precision="mixed_bfloat16"),
            note="fewer bits",
            kind="mixed_bfloat16",
        )
        every.append(bfloat16)
    return every


def _with_options(settings: Settings, **options: str) -> Settings:
    """The settings with other Keras options."""
    return msgspec.structs.replace(settings, switches=without_defaults({**settings.switches, **options}))


def what_ifs(base: Prediction, predict: Predict) -> list[WhatIf]:
    """Every change of a training, the one that saves most of the whole training first; those that cannot be predicted last."""
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
    return -what_if.job_saved.value if what_if.job_saved else math.inf


def job_saved(base: Prediction, after: Prediction) -> Estimate:
    """Seconds of the whole training that a change saves. Errors that both predictions share cancel: a part that stays saves
    exactly nothing, and a changed part is wrong by no more than its own share."""
    correlated = base.execution == after.execution
    base_parts = costs.parts(base.cost, base.training.epochs, base.training.steps)
    parts_after = costs.parts(after.cost, after.training.epochs, after.training.steps)
    return total(_difference(base_parts[name], parts_after[name], correlated=correlated) for name in base_parts)


def step_saved(base: Prediction, after: Prediction) -> Estimate:
    """Seconds that a change saves of a step, for as many samples as a step had before."""
    share = base.training.batch / after.training.batch
    return _difference(base.step_s, after.step_s * share, correlated=base.execution == after.execution)


def _difference(a: Estimate, b: Estimate, *, correlated: bool) -> Estimate:
    """a - b. With correlated errors it has the relative error of `a`, and the error of `b` beyond that."""
    if a == b:
        return NOTHING
    if not correlated:
        return a - b
    error = a.noise if a.value > 0 else 0.0
    error_of_b = b.noise if b.value > 0 else 0.0
    value = a.value - b.value
    return plus_minus(value, abs(value) * error + b.value * max(0.0, error_of_b - error))


def command(change: Change, epochs: int | None = None, samples: int | None = None) -> list[str]:
    """The words that measure a change: `workloads.training --model ...`, to be run by python -m."""
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
