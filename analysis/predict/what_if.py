"""Time saved by other ways of training: every change that may help, predicted, ranked by the time that it saves."""

from collections.abc import Callable

import msgspec

from analysis.predict.host_parts import TENSORFLOW_LOOP
from analysis.predict.prediction import Prediction
from analysis.stats import NOTHING, Estimate, plus_minus, total
from analysis.training import costs
from analysis.training.costs import FIT, parts
from analysis.units import count as counted
from kernels.problems import Training
from workloads.records import Settings, script_files
from workloads.records import settings as switches

Predict = Callable[[Training, Settings, str], "Prediction"]
_GROWN = (4, 16)  # times the batch
_A_CALL = 16  # steps that Keras runs in one call, with steps_per_execution
_LEARNS = "changes learning"  # fewer, larger steps an epoch: the accuracy must be looked at again
# Switch -> the flag of python -m workloads.training.
_FLAGS = {
    "jit_compile": "--jit",
    "residence": "--residence",
    "steps_per_execution": "--steps-per-execution",
    "tf32": "--tf32",
    "precision": "--precision",
    "data": "--data",
    "length": "--length",
}


class Change(msgspec.Struct, frozen=True):
    """One change: its words, the training and settings after it, and a note on its side effect. `kernel`: the way of training
    that it is priced as. `kind`: which code analysis.text.advice has for it."""

    words: str
    training: Training
    settings: Settings
    note: str = ""
    kernel: str = FIT
    kind: str = ""

    @property
    def learns(self) -> bool:
        """Whether the change affects what the model learns."""
        return self.note == _LEARNS


class WhatIf(msgspec.Struct, frozen=True):
    """Savings of a change: seconds of the whole training and of a step of as many samples (negative: it costs). why: the
    reason if it could not be predicted; both are None then."""

    change: Change
    job_saved: Estimate | None
    step_saved: Estimate | None = None
    why: str = ""

    @property
    def surely_s(self) -> float:
        """Seconds of the whole training saved, by the lower end of the interval; 0 if it may save none."""
        return max(0.0, self.job_saved.low) if self.job_saved else 0.0


def changes(training: Training, settings: Settings) -> list[Change]:
    """Every change that makes sense for a training on its device; the batch never grows past the samples. A model from a file
    keeps the precision that it was saved with."""
    replace, keras, on_gpu = msgspec.structs.replace, settings.keras, settings.on_gpu
    sizes = [times * training.batch for times in _GROWN if times * training.batch <= training.samples]
    found = []
    for batch in sizes:
        larger = replace(training, batch=batch)
        found.append(Change(f"batch {batch:,}", larger, settings, note=_LEARNS, kind="batch"))

    def switched(words: str, note: str, kind: str, *, kernel: str = FIT, **more: str) -> None:
        changed = replace(settings, switches=switches.changed({**settings.switches, **more}))
        found.append(Change(words, training, changed, note=note, kernel=kernel, kind=kind))

    if keras.steps_per_execution == 1 and training.steps > 1:
        count = str(min(_A_CALL, training.steps))
        switched(f"steps_per_execution={count}", "fewer callbacks", "steps_per_execution", steps_per_execution=count)
    jit = keras.jit_compile
    if jit == "on" or (jit == "auto" and on_gpu):
        switched("without XLA", "more calls a step", "without XLA", jit_compile="off")
    else:
        switched("with XLA", "compiles each size", "with XLA", jit_compile="on")
    if rest := costs.left_over(training, settings):
        whole = replace(training, samples=training.samples - rest)
        words = f"whole batches: {counted(whole.samples, 'sample')}"
        found.append(Change(words, whole, settings, note="drop_remainder", kind="whole batches"))
    home = keras.residence
    if (
        on_gpu and home != "resident"
    ):  # one tf.function an epoch is priced as a bare loop's calls, its data there already
        switched("data on the GPU, own loop", "no callbacks", "own loop", kernel=TENSORFLOW_LOOP, residence="resident")
    if on_gpu and home in ("numpy", "tf.data", "generator"):
        switched("prefetch to the GPU", "by tf.data", "prefetch", residence="prefetch")
    if on_gpu and keras.tf32 == "off":
        switched("TF32 allowed", "fewer bits", "tf32", tf32="on")
    if on_gpu and keras.precision == "float32" and not training.model.endswith(".keras"):
        switched("mixed_bfloat16", "fewer bits", "mixed_bfloat16", precision="mixed_bfloat16")
    return found


def what_ifs(base: "Prediction", of: Predict) -> list[WhatIf]:
    """Every change of a training, the one that saves most of the whole training first; those that cannot be predicted last."""
    found = []
    for change in changes(base.training, base.settings):
        try:
            made = of(change.training, change.settings, change.kernel)
        except ValueError as error:
            found.append(WhatIf(change, None, why=str(error)))
            continue
        found.append(WhatIf(change, saved(base, made), step_saved(base, made)))
    return sorted(found, key=lambda w: -w.job_saved.value if w.job_saved else float("inf"))


def saved(base: "Prediction", made: "Prediction") -> Estimate:
    """Seconds of the whole training that a change saves. Errors that both predictions share cancel: a part that stays saves
    exactly nothing, and a changed part is wrong by no more than its own share."""
    each = (parts(p.cost, p.training.epochs, p.training.steps).values() for p in (base, made))
    return total(_less(a, b, base.execution == made.execution) for a, b in zip(*each, strict=True))


def step_saved(base: "Prediction", made: "Prediction") -> Estimate:
    """Seconds that a change saves of a step, for as many samples as a step had before."""
    share = base.training.batch / made.training.batch
    return _less(base.step_s, made.step_s * share, base.execution == made.execution)


def _less(a: Estimate, b: Estimate, alike: bool) -> Estimate:
    """a - b with correlated errors: the difference has the relative error of `a`, and the error of `b` beyond that."""
    if a == b:
        return NOTHING
    if not alike:
        return a - b
    value, shares = a.value - b.value, [e.noise if e.value > 0 else 0.0 for e in (a, b)]
    off = abs(value) * shares[0] + b.value * max(0.0, shares[1] - shares[0])
    return plus_minus(value, off)


def command(change: Change, epochs: int | None = None, samples: int | None = None) -> list[str]:
    """The words that measure a change: `workloads.training --model ...`, to be run by python -m."""
    t, given = change.training, change.settings.switches
    variant = "resident" if change.settings.keras.residence == "resident" else "fit"
    of_script = script_files.script_training(t.model)
    flags: dict[str, object] = {"--model": t.model}
    if of_script is not None:
        flags = {"--script": of_script.command, "--fit": of_script.fit}
        given = {name: text for name, text in given.items() if name != "data"}
    flags |= {
        "--batch": t.batch,
        "--samples": samples or t.samples,
        "--epochs": epochs or t.epochs,
        "--dtypes": t.dtype,
        "--device": change.settings.device,
        "--variants": variant,
    }
    flags |= {flag: given[name] for name, flag in _FLAGS.items() if name in given}
    return ["workloads.training", *(str(word) for pair in flags.items() for word in pair)]
