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
from analysis.explain.sources import TrainingPredictor
from analysis.predict import what_if
from analysis.predict.prediction import Prediction
from analysis.training import break_even
from analysis.training.break_even import BY_STEP, BY_WHOLE_TRAINING, Length, Trained
from kernels.problems import Training
from workloads.records import Measurements, Row

#: Batches at which a step is predicted first: powers of _BATCH_GROWTH, up to _LARGEST_BATCH and _MOST_BATCH_GROWTH times its own.
_LARGEST_BATCH = 4096
_BATCH_GROWTH = 4
_MOST_BATCH_GROWTH = 64
#: Numbers of samples are predicted up to so many times that of the training.
_MOST_SAMPLES_GROWTH = 10
#: How often the space between two sizes with different winners is halved: from a factor of 10 between them to 1.07.
_HALVINGS = 5


def crossovers(request: Request, predictor: TrainingPredictor, swept: Mapping[str, Answer]) -> tuple[Answer, ...]:
    """Where the winner changes along each size (batch, samples, width, depth).

    Sizes along which it was measured are taken from `swept`, which goes from a size's name to the answer. The others are
    predicted by the step: the batch, the samples if all of them are one batch, and `request.varies`.
    """
    answers = []
    for varies, sizes in _sizes(request).items():
        if varies not in swept:
            answers.append(predicted_crossover(request, varies, sizes, predictor))
    answers += swept.values()
    return tuple(answer for answer in answers if answer)


def _sizes(request: Request) -> dict[str, Iterable[int]]:
    """Name of a size (batch, samples, width, depth) -> its values at which the step is predicted first."""
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
    """Name of a size -> the measured crossover along it, where this training was measured at several values of it. Of several
    types of inputs it is the one that was measured at the most.

    Along samples the winner is by the whole training, so it counts only for a training with the epochs that were measured and
    without validation. Along other sizes it is by the step. measured: device -> the row of this training.
    """
    if len(measured) < 2:
        return {}
    setup = break_even.setup_of(measured[GPU].row)
    fixed_by_size = {}
    for varies in break_even.VARIES:
        split = break_even.split_size(setup, varies)
        if split:
            fixed_by_size[varies] = split.fixed
    answers = {}
    for answer in sorted(break_even.answers(rows, fixed_by_size), key=lambda one: len(one.points)):
        varies = answer.family.varies
        whole = varies == "samples" and setup.batch < setup.samples
        planned_epochs = break_even.planned(setup, varies).epochs
        if whole and (request.validation or request.training.epochs != planned_epochs):
            continue
        same_setup = replace(break_even.setup_in(answer.family), dtype=setup.dtype) == fixed_by_size[varies]
        if same_setup and answer.form.mode == (BY_WHOLE_TRAINING if whole else BY_STEP):
            answers[varies] = answer  # answers with more points come later and replace it
    return answers


def predicted_crossover(
    request: Request, varies: str, sizes: Iterable[int], predictor: TrainingPredictor
) -> Answer | None:
    """Where the faster device of a step changes along the size `varies`. It is predicted at `sizes`, then between neighbors with
    different winners until these lie close. None if fewer than two sizes are possible for the model.
    """
    sweep = _PredictedSweep(request, varies, predictor)
    for size in sizes:
        sweep.add(size)
    if len(sweep.both_by_size) < 2:
        return None
    for _ in range(_HALVINGS):
        for a, b in itertools.pairwise(sweep.answer().points):
            winner_changes = (a.ratio.value > 1) != (b.ratio.value > 1)
            if winner_changes and b.n > FINE * a.n:
                sweep.add(round(math.sqrt(a.n * b.n)))
    return sweep.answer()


class _PredictedSweep:
    """Predicted steps of a training at several values of one size."""

    def __init__(self, request: Request, varies: str, predictor: TrainingPredictor) -> None:
        """varies: the name of the size: batch, samples, width or depth."""
        self.request = request
        self.varies = varies
        self.predictor = predictor
        #: Value of the size -> the training on the CPU and on the GPU.
        self.both_by_size: dict[int, tuple[Trained, Trained]] = {}

    def add(self, size: int) -> None:
        """Predicts the training at a size on both devices; nothing for a size that the model or the rows do not allow."""
        with contextlib.suppress(ValueError):
            training = _with_size(self.request.training, self.varies, size)
            cpu = self.predictor.predict(training, settings_of(self.request, "cpu"))
            gpu = self.predictor.predict(training, settings_of(self.request, GPU))
            self.both_by_size[size] = (_trained(cpu), _trained(gpu))

    def answer(self) -> Answer:
        """Where the faster device of a step changes, by the sizes so far."""
        family = Family("training", self.varies, (self.varies,))
        lengths = dict.fromkeys(self.both_by_size, Length(epochs=1, steps=1))
        return break_even.crossing(family, BY_STEP, self.both_by_size, lengths)


def _with_size(training: Training, varies: str, size: int) -> Training:
    """The training with another batch, number of samples, width or depth: `varies` names which. A batch larger than all samples
    is one step of so many.

    Raises: ValueError for a model without that size.
    """
    if varies == "batch":
        return replace(training, batch=size, samples=max(training.samples, size))
    fixed = break_even.split_training(training, varies).fixed
    setup = break_even.with_size(fixed, varies, size)
    return replace(training, model=setup.model, batch=setup.batch, samples=setup.samples or training.samples)


def _trained(prediction: Prediction) -> Trained:
    """A prediction in the place of a measured training, as break_even compares these. Its row has no times."""
    row = Row(what_if.FIT, prediction.training, prediction.settings)
    return Trained(row=row.result("skipped", "predicted"), cost=prediction.cost)
