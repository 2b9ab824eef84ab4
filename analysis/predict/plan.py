"""What one `predict` command asks for: its flags, checked, as one of two records."""

import os
import pathlib
import shlex
from argparse import Namespace

import msgspec

from analysis.predict import described_model, profile, saved_predictions
from analysis.predict.profile import STORED_GPU, Profile
from workloads import options, records
from workloads.corrections.nearest import nearest
from workloads.records import Settings, command_lines, regular_files, settings
from workloads.records.run_files import NoRun


class CheckPlan(msgspec.Struct, frozen=True, kw_only=True):
    """`--check`: saved predictions beside what was measured later."""

    #: The file of predictions.
    file: str
    #: The runs in which their trainings were measured.
    runs: tuple[str, ...]


class PredictPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The trainings to predict from a profile."""

    #: Known names, file.py:function or file.keras.
    models: tuple[str, ...]
    #: Samples of a step, one after the other.
    batches: tuple[int, ...]
    #: Samples of an epoch, one after the other; empty for those of the model.
    samples: tuple[int, ...]
    #: Epochs; None for those of the model.
    epochs: int | None
    #: Type of the inputs: float32, float64, uint8.
    dtype: str
    #: The rows of the machine.
    profile: Profile
    #: The settings on the devices that are predicted, one after the other.
    settings: tuple[Settings, ...]
    #: The file that the predictions are appended to; "" for none.
    save: str


Plan = CheckPlan | PredictPlan


def plan_of(flags: Namespace) -> Plan:
    """The plan of a command's flags. No model is built yet.

    Raises: options.Usage for a file, run or name that is not there, and for flags that ask for nothing.
    """
    if flags.check:
        return _check(flags)
    return _predict(flags)


def _require_runs(runs: list[str]) -> None:
    """Raises FileNotFoundError, which is a Usage, for a run that is not there."""
    for run in runs:
        records.files_of(profile.file_of(run))


def _check(flags: Namespace) -> CheckPlan:
    """The plan of `--check FILE RUN ...`.

    Raises: options.Usage if FILE holds no predictions, or there is no RUN.
    """
    file, *runs = flags.check
    predicted = [run for run in runs if _has_predictions(run)]
    if predicted and not _has_predictions(file):
        others = [file, *[run for run in runs if run != predicted[0]]]
        message = f"--check: {predicted[0]} holds the predictions, which come before the run"
        raise options.Usage(message, wrong="--check", right=shlex.join(["--check", predicted[0], *others]))
    _require_runs(runs)
    if not runs:
        raise options.Usage(f"--check {file} needs the RUN in which the trainings were measured")
    saved_predictions.load(file)
    return CheckPlan(file=file, runs=tuple(runs))


def _has_predictions(path: str) -> bool:
    """Whether a path is a file of predictions."""
    try:
        return bool(saved_predictions.load(path))
    except options.Usage:
        return False


def _predict(flags: Namespace) -> PredictPlan:
    """The plan of `--model NAME ... --profile RUN ...`.

    Raises: options.Usage for a missing or wrong flag.
    """
    try:
        _require_runs(flags.profile or [])
    except NoRun as error:
        stored = f"{error}; stored GPUs: {', '.join(profile.stored_names())}"
        raise _as_profile(error, stored) from error
    if not flags.model:
        raise options.Usage("say what to predict with --model and --profile, or --check")
    models = options.words(flags.model)
    for name in models:
        described_model.require(name)
    if not flags.profile:
        example = f"--profile {STORED_GPU}"
        raise options.Usage("say with --profile what is measured of the machine", right=example)
    machine = profile.read(*flags.profile)
    on_devices = _settings(flags, machine)
    if flags.save:
        _require_predictions(flags.save)
    return PredictPlan(
        models=tuple(models),
        batches=tuple(options.sizes(flags.batch)),
        samples=tuple(options.sizes(flags.samples)) if flags.samples else (),
        epochs=flags.epochs,
        dtype=flags.dtype,
        profile=machine,
        settings=on_devices,
        save=flags.save or "",
    )


def _as_profile(error: NoRun, message: str) -> options.Usage:
    """The error of a run that is not there, as one about --profile: it suggests the run with a similar name, else a stored
    GPU."""
    example = error.right if error.similar else STORED_GPU
    mended = options.Usage(message, wrong=error.wrong, right=example, similar=error.similar)
    mended.is_example = not error.similar
    return mended


def _settings(flags: Namespace, machine: Profile) -> tuple[Settings, ...]:
    """The settings of the training on each device, with the options of `--switch NAME=TEXT`.

    Raises: options.Usage for a device without rows or an unknown option.
    """
    keras_options: dict[str, str] = {}
    for word in flags.switch:
        name, _, text = word.partition("=")
        _require_switch(word)
        keras_options[name] = text
    chosen = settings.without_defaults({"data": "synthetic", **keras_options})
    return tuple(Settings(device, switches=chosen) for device in _devices(flags, machine))


def _require_switch(word: str) -> None:
    """Raises Usage unless the word is NAME=TEXT of a known Keras option with a value that it takes; the message suggests the
    nearest."""
    name, equals, text = word.partition("=")
    if not equals:
        name, _, text = word.partition(":")
    values = settings.KNOWN.get(name, ())
    if equals and name in settings.KNOWN and (not values or text in values):
        return
    known = ", ".join(values) or ", ".join(settings.KNOWN)
    near = name if name in settings.KNOWN else nearest(name, settings.KNOWN)
    value = nearest(text, settings.KNOWN[near]) if near and settings.KNOWN[near] else text
    right = f"{near}={value}" if near and value else ""
    if not equals and right:
        raise options.Usage(f"{word!r} is no switch: it is written {right}", wrong=word, right=right)
    raise options.Usage(f"unknown switch {word}; known: {known}", wrong=word, right=right)


def _devices(flags: Namespace, machine: Profile) -> list[str]:
    """The devices that `--device` names, else the CPU and the first GPU, if the profile has rows of them."""
    words = options.words(flags.device)
    if not words:
        return [device for device in machine.devices if device in ("cpu", "gpu:0")]
    devices = ["gpu:0" if word == "gpu" else word for word in words]
    unknown = set(devices) - set(machine.devices)
    if unknown:
        first = min(unknown)
        message = f"the profile has no rows of {first}; it has {', '.join(machine.devices)}"
        right = nearest(first, machine.devices)
        raise options.Usage(message, wrong=first.removesuffix(":0"), right=right, similar="device" if right else "")
    return devices


def _require_predictions(path: str) -> None:
    """Raises Usage unless predictions can be appended to a file: it can be written, and is empty, new or holds predictions
    already."""
    file = pathlib.Path(path)
    if file.suffix == ".jsonl":
        raise options.Usage(
            f"{path}: a .jsonl file is read as rows wherever it lies, so predictions need another name",
            wrong=path,
            right=str(file.with_suffix(".ndjson")),
        )
    if file.suffix == ".gz":
        message = f"{path}: predictions are appended as text, which a compressed file does not take"
        raise options.Usage(message, wrong=path, right=str(file.with_suffix("")))
    reason = regular_files.unwritable(file)
    if reason:
        free = command_lines.unused("predictions.ndjson")
        raise options.Usage(f"cannot write {path}: {reason}", wrong="--save", right=f"--save {free}")
    if not os.path.exists(file) or not os.path.getsize(file):
        return
    try:
        saved_predictions.load(path)
    except options.Usage as error:
        message = f"{error}; choose another name for --save"
        raise options.Usage(message, wrong=path, right="predictions.ndjson") from error
