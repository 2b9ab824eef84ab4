"""Where the winner of a training changes along its batch, samples, width or depth: measured where that was swept, else
predicted."""

import contextlib
import itertools
import math
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from analysis.crossover.answer import FINE, Answer
from analysis.crossover.families import Family
from analysis.explain.request import GPU, Request, settings_of
from analysis.explain.sources import Predict
from analysis.predict import what_if
from analysis.predict.prediction import Prediction
from analysis.training import break_even
from analysis.training.break_even import BY_JOB, BY_STEP, Trained
from kernels.problems import Training
from workloads.records import Measurements, Row

_LARGEST_BATCH = 4096
_BATCH_GROWTH = 4
_MOST_BATCH_GROWTH = 64
_MOST_SAMPLES_GROWTH = 10
_HALVINGS = 5  # of the space between two sizes where the winner changes: from a factor of 10 to 1.07


def crossovers(request: Request, predict: Predict, swept: Mapping[str, Answer]) -> tuple[Answer, ...]:
    """The crossovers along each size: measured where it was swept; else predicted by the step, along the batch, along samples
    if all are one batch, and along `request.varies`."""
    answers = []
    for varies, sizes in _sizes(request).items():
        if varies not in swept:
            answers.append(predicted_crossover(request, varies, sizes, predict))
    answers += swept.values()
    return tuple(answer for answer in answers if answer)


def _sizes(request: Request) -> dict[str, Iterable[int]]:
    """What varies -> the sizes at which the step is predicted first."""
    training = request.training
    largest = min(_LARGEST_BATCH, _MOST_BATCH_GROWTH * training.batch)
    batches = {training.batch}
    batch = 1
    while batch <= largest:
        batches.add(batch)
        batch *= _BATCH_GROWTH
    sizes: dict[str, Iterable[int]] = {"batch": batches}
    if request.varies:
        sizes[request.varies] = request.sizes
    if training.batch >= training.samples:
        powers = [10**i for i in range(2, 8) if 10**i <= _MOST_SAMPLES_GROWTH * training.samples]
        sizes["samples"] = {training.samples, *powers}
    return sizes


def swept(request: Request, measured: Mapping[str, Trained], rows: Measurements) -> dict[str, Answer]:
    """Varied size -> the measured crossover along it, in the type with the most sizes. Along samples it is by the whole
    training, if that has the model's epochs and no validation; along other sizes by the step."""
    if len(measured) < 2:
        return {}
    setup = break_even.setup_of(measured[GPU].row)
    fixed_by_size = {}
    for varies in break_even.VARIES:
        size = break_even.size_of(setup, varies)
        if size:
            fixed_by_size[varies] = size[1]
    answers = {}
    for answer in sorted(break_even.answers(rows, fixed_by_size), key=lambda one: len(one.points)):
        varies = answer.family.varies
        whole = varies == "samples" and setup.batch < setup.samples
        planned_epochs = break_even.planned(setup, varies)[1]
        if whole and (request.validation or request.training.epochs != planned_epochs):
            continue
        same_setup = replace(break_even.setup_in(answer.family), dtype=setup.dtype) == fixed_by_size[varies]
        if same_setup and answer.form.mode == (BY_JOB if whole else BY_STEP):
            answers[varies] = answer
    return answers


def predicted_crossover(request: Request, varies: str, sizes: Iterable[int], predict: Predict) -> Answer | None:
    """The crossover of a step along a size: predicted at the sizes, then between neighbors with different likely winners until
    they lie close; None with fewer than two possible sizes."""
    family = Family("training", varies, (varies,))
    both_by_size: dict[int, tuple[Trained, Trained]] = {}

    def add(size: int) -> None:
        with contextlib.suppress(ValueError):
            training = _with_size(request.training, varies, size)
            cpu = predict(training, settings_of(request, "cpu"))
            gpu = predict(training, settings_of(request, GPU))
            both_by_size[size] = (_trained(cpu), _trained(gpu))

    def answer() -> Answer:
        return break_even.crossing(family, BY_STEP, both_by_size, lambda size: (1, 1))

    for size in sizes:
        add(size)
    if len(both_by_size) < 2:
        return None
    for _ in range(_HALVINGS):
        for a, b in itertools.pairwise(answer().points):
            if (a.ratio.value > 1) != (b.ratio.value > 1) and b.n > FINE * a.n:
                add(round(math.sqrt(a.n * b.n)))
    return answer()


def _with_size(training: Training, varies: str, size: int) -> Training:
    """The training at a size along what varies.

    Raises: ValueError for a model that has no such size.
    """
    if varies == "batch":
        return replace(training, batch=size, samples=max(training.samples, size))
    fixed = break_even.sized(training, varies)[1]
    setup = break_even.at(fixed, varies, size)
    return replace(training, model=setup.model, batch=setup.batch, samples=setup.samples or training.samples)


def _trained(prediction: Prediction) -> Trained:
    """A prediction as a training that ran: its row has no samples."""
    row = Row(what_if.FIT, prediction.training, prediction.settings)
    return Trained(row=row.result("skipped", "predicted"), cost=prediction.cost)
