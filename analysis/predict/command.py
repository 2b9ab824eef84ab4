"""Predicts a training's time from a profile; prints predictions, saves them, and compares saved ones with measurements."""

import pathlib

import msgspec
from msgspec.structs import replace

from analysis import table
from analysis.numbers import timed
from analysis.predict import described_model, prediction, profile
from analysis.predict.plan import CheckPlan, Plan, PredictPlan
from analysis.predict.prediction import Prediction
from analysis.predict.step_parts import WORDS
from analysis.text import checked_predictions
from analysis.units import count, seconds
from kernels.networks import Network
from kernels.problems import Training
from workloads import options, terminal
from workloads.machine.facts import now
from workloads.records import settings

_DESCRIBING_S = 60  # that building a user's own model may take


def run(plan: Plan) -> int:
    """Prints what a plan asks for; the exit code."""
    match plan:
        case CheckPlan():
            print_check(plan)
        case PredictPlan():
            print_predictions(plan)
    return options.OK


def print_predictions(plan: PredictPlan) -> None:
    """Prints a prediction for each training and device, and saves them.

    Raises: options.Usage for what cannot be predicted or saved; Missing for a model that cannot be built.
    """
    predictions = []
    try:
        for training, network in trainings(plan):
            for on_device in plan.settings:
                predictions.append(prediction.predict(training, on_device, plan.profile, network))
    except profile.Lacking as error:
        raise options.Usage(str(error), tip=error.commands[0]) from error
    except ValueError as error:
        raise options.Usage(str(error)) from error
    for one in predictions:
        print("\n".join(map(terminal.on_one_line, words(one))), end="\n\n")
    if plan.save:
        save(plan.save, predictions)


def trainings(plan: PredictPlan) -> list[tuple[Training, Network | None]]:
    """The trainings of a plan, each with its layers where it is of a user's own model.

    Raises: options.Usage for an unknown model; Missing for a model that cannot be built.
    """
    pairs: list[tuple[Training, Network | None]] = []
    for name in plan.models:
        user_model = _described(name, plan) if settings.is_user_model(name) else None
        network = user_model or settings.network(name, or_user_model=True)
        for samples in plan.samples or (network.samples,):
            for batch in plan.batches:
                training = Training(name, batch, samples, plan.epochs or network.epochs, plan.dtype)
                pairs.append((training, user_model))
    return pairs


def _described(name: str, plan: PredictPlan) -> Network:
    """A user's own model, traced at the first batch of the plan."""
    return described_model.described(described_model.ModelRequest(model=name, batch=plan.batches[0]), _DESCRIBING_S)


def words(p: Prediction) -> list[str]:
    """A prediction in a few lines: the step by parts, the epoch, the job."""
    t = p.training
    return [
        f"{t.model} at batch {t.batch} on {p.settings.device}, {p.execution}: {timed(p.step_s)} a step",
        *(f"  {WORDS.get(name, name):<19} {seconds(e.value):>10}" for name, e in p.parts.items() if e.value),
        f"  an epoch of {count(t.samples, 'sample')} {timed(p.epoch_total_s)}; "
        f"whole training, {count(t.epochs, 'epoch')}: {timed(p.job_s)}",
        *(f"  not known: {text}" for text in p.gaps),
    ]


def save(path: str, predictions: list[Prediction]) -> None:
    """Appends predictions to a file.

    Raises: options.Usage where it cannot be written.
    """
    try:
        if pathlib.Path(path).exists():
            prediction.end_last_line(path)
        with open(path, "ab") as file:
            file.writelines(msgspec.json.encode(replace(p, saved_at=now())) + b"\n" for p in predictions)
    except OSError as error:
        raise options.Usage(f"cannot write {path}: {error.strerror}", wrong="--save") from error


def print_check(plan: CheckPlan) -> None:
    """Prints predictions beside the steps that were measured."""
    lines = checked_predictions.lines(prediction.load(plan.file), profile.read(*plan.runs))
    print(*table.shown(lines), sep="\n")
