"""Predicts a training's time from a profile; prints predictions, saves them, and compares saved ones with measurements."""

from analysis import table
from analysis.numbers import timed
from analysis.predict import described_model, profile, saved_predictions
from analysis.predict.plan import CheckPlan, Plan, PredictPlan
from analysis.predict.prediction import Prediction, predict
from analysis.predict.step_parts import WORDS
from analysis.text import checked_predictions
from analysis.units import count, seconds
from kernels.networks import Network
from kernels.problems import Training
from workloads import options, terminal
from workloads.records import settings

# Seconds that building a user's own model may take.
_DESCRIBING_S = 60


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
                predictions.append(predict(training, on_device, plan.profile, network))
    except profile.Lacking as error:
        raise options.Usage(str(error), tip=error.commands[0]) from error
    except ValueError as error:
        raise options.Usage(str(error)) from error
    for one in predictions:
        print("\n".join(map(terminal.on_one_line, words(one))), end="\n\n")
    if plan.save:
        saved_predictions.save(plan.save, predictions)


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
                training = Training(
                    model=name,
                    batch=batch,
                    samples=samples,
                    epochs=plan.epochs or network.epochs,
                    dtype=plan.dtype,
                )
                pairs.append((training, user_model))
    return pairs


def _described(name: str, plan: PredictPlan) -> Network:
    """A user's own model, traced at the first batch of the plan."""
    return described_model.described(described_model.ModelRequest(model=name, batch=plan.batches[0]), _DESCRIBING_S)


def words(prediction: Prediction) -> list[str]:
    """A prediction in a few lines: the step by parts, the epoch, the whole training."""
    training = prediction.training
    step = f"{timed(prediction.step_s)} a step"
    lines = [
        f"{training.model} at batch {training.batch} on {prediction.settings.device}, {prediction.execution}: {step}"
    ]
    for name, part in prediction.parts.items():
        if part.value:
            lines.append(f"  {WORDS.get(name, name):<19} {seconds(part.value):>10}")
    epoch = f"an epoch of {count(training.samples, 'sample')} {timed(prediction.epoch_total_s)}"
    whole = f"whole training, {count(training.epochs, 'epoch')}: {timed(prediction.job_s)}"
    lines.append(f"  {epoch}; {whole}")
    for gap in prediction.gaps:
        lines.append(f"  not known: {gap}")
    return lines


def print_check(plan: CheckPlan) -> None:
    """Prints predictions beside the steps that were measured."""
    lines = checked_predictions.lines(saved_predictions.load(plan.file), profile.read(*plan.runs))
    print(*table.shown(lines), sep="\n")
