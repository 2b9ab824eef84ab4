"""Seconds of a training on a device, predicted from a profile: the step by parts that add up, and the whole training.

Nothing is fitted to the model that is predicted; the few global numbers (analysis.predict.calibration) come from other models.
"""

import os
from collections.abc import Callable, Iterable

import msgspec

from analysis.predict.calibration import calibration
from analysis.predict.components import FIT, Components, components
from analysis.predict.profile import COMPILED, Profile, all_of, launches
from analysis.predict.step_parts import HIDDEN
from analysis.predict.step_time import UNFITTED, Calibration, calibrated_parts
from analysis.predict.step_work import RoughWork
from analysis.stats import NOTHING, Estimate, exact, independent_sum, within_factor
from analysis.training.costs import TrainingCost, whole_training
from analysis.units import count, join
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads import options, terminal
from workloads.records import Settings, regular_files, switches
from workloads.records.rows import is_moment

_WORTH_A_NAME = 0.01  # of a step: a smaller part is not named
#: Relative error for kinds of layers that no network of the tables has, on which no rule was checked.
UNTRIED = 1.0
LONGEST_S = 1e9  # of a time in a result file too
MOST_FIXED = (
    0.1  # share of a step's bytes that may not grow with the batch as a line, and is taken as it is at every batch
)
MAKES = "python -m analysis.predict --model cifar10-cnn --profile nvidia-h200 --save predicted.ndjson"


class Prediction(msgspec.Struct, frozen=True, tag="prediction"):
    """The predicted times of a training; Estimates are seconds with an interval.

    parts: seconds of one step by part, they add up to step_s. epoch_s: beyond an epoch's steps; fit_s: beyond a fit's epochs;
    compile_s: all compilations of the job; start_s: import, start of the device and build. execution: how the step runs.
    partial: what is not known of a step, in words; empty: whole. profile: the machine's key. setup_s: of fit_s what grows
    with the samples. last_step_saves_s: by how much an epoch's incomplete last batch is quicker than a whole one. rough: the
    work of a step that no row is of. saved_at: when it was saved, as rows' `at`.
    """

    training: Training
    settings: Settings
    parts: dict[str, Estimate]
    step_s: Estimate
    epoch_s: Estimate
    fit_s: Estimate
    compile_s: Estimate
    start_s: Estimate
    execution: str
    partial: tuple[str, ...]
    profile: str
    setup_s: Estimate = NOTHING
    last_step_saves_s: Estimate = NOTHING
    rough: RoughWork | None = None
    saved_at: str = ""

    @property
    def cost(self) -> TrainingCost:
        """The predicted seconds as a TrainingCost; its start-up includes building the model."""
        steps = self.training.steps
        return TrainingCost(
            self.fit_s,
            self.epoch_s,
            self.step_s,
            start=self.start_s,
            compile=self.compile_s,
            setup_step=self.setup_s / steps,
            steps=steps,
            last_step_saves=self.last_step_saves_s,
            source="predicted",
        )

    @property
    def parts_s(self) -> float:
        """Seconds of a step's parts, one after the other: without what overlaps."""
        return sum(e.value for e in self.parts.values() if e.value > 0)

    @property
    def largest_shares(self) -> dict[str, float]:
        """Part -> its share of a step's parts, for the two largest that are worth a name."""
        shares = {name: seconds.value / self.parts_s for name, seconds in self.parts.items()}
        largest = sorted(shares, key=lambda name: -shares[name])[:2]
        return {name: shares[name] for name in largest if shares[name] > _WORTH_A_NAME}

    @property
    def untold(self) -> tuple[str, ...]:
        """Parts of the whole training without a measurement; they count as 0 seconds."""
        terms = {"start-up": self.start_s, "compilation": self.compile_s, "an epoch beyond its steps": self.epoch_s}
        return tuple(name for name, e in terms.items() if e.high <= 0)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is not known, in words: `partial`, and the parts of the whole training without a measurement, with the command
        that measures them."""
        if not self.untold:
            return self.partial
        return (*self.partial, f"of the whole training {join(self.untold)}: {launches(self.settings.device)}")

    @property
    def epoch_total_s(self) -> Estimate:
        """Seconds of a warm epoch."""
        return self.cost.epoch_seconds(self.training.steps)

    @property
    def job_s(self) -> Estimate:
        """Seconds of the whole training in a process of its own."""
        return whole_training(self.cost, self.training.epochs, self.training.steps)


def impossible(prediction: Prediction) -> str:
    """The first switch of a prediction that no training has, the first time that none takes, or when it cannot have been saved,
    in words; "" without one."""
    wrong_switch = switches.fault(prediction.settings.switches)
    if wrong_switch:
        return wrong_switch
    if prediction.saved_at and not is_moment(prediction.saved_at):
        return f"saved_at is {prediction.saved_at!r}, no time such as 2026-11-21T17:46:40Z"
    named = [(name, getattr(prediction, name)) for name in prediction.__struct_fields__]
    times = [(name, value) for name, value in named if isinstance(value, Estimate)]
    for name, time in [*times, *prediction.parts.items()]:
        if not -LONGEST_S < time.low <= time.high < LONGEST_S:
            return f"{name} of {time.low:.3g} to {time.high:.3g} s"
        if time.value < 0 and name != HIDDEN:
            return f"{name} of {time.value:.3g} s"
    return ""


def _decoded(line: bytes) -> Prediction:
    """Raises: msgspec.DecodeError, ValueError and RecursionError for a line of something else."""
    return msgspec.json.decode(regular_files.without_mark(line), type=Prediction)


def is_cut(line: bytes) -> bool:
    """Whether the last line of a file is the beginning of a prediction."""
    if line.endswith(b"\n") or not line.strip():
        return False
    try:
        _decoded(line)
    except (msgspec.DecodeError, ValueError, RecursionError):
        return True
    return False


def end_last_line(path: str) -> None:
    """Ends the last line of a file of predictions, so that others can be appended: one that is cut off goes."""
    lines = regular_files.lines(path)
    if not lines or lines[-1].endswith(b"\n"):
        return
    if is_cut(lines[-1]):
        os.truncate(path, sum(map(len, lines[:-1])))
        return
    with open(path, "ab") as file:
        file.write(b"\n")


def load(path: str) -> list[Prediction]:
    """The predictions of a file that `python -m analysis.predict --save` wrote.

    A last line that is cut off, as after a kill, is left out, which stderr says.

    Raises: options.Usage for a file that is not there, is empty or holds something else, with a command that makes one.
    """
    try:
        lines = regular_files.lines(path)
    except options.Usage as error:
        raise _no_predictions(path, str(error)) from error
    is_last_cut = len(lines) > 1 and is_cut(lines[-1])
    if is_last_cut:
        lines = lines[:-1]
    predictions = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            predictions.append(_on_line(line, path, number))
    if not predictions:
        raise _no_predictions(path, "it is empty")
    if is_last_cut:
        terminal.note(f"warning: the last line of {path} is cut off; {count(len(predictions), 'prediction')} read")
    return predictions


def _on_line(line: bytes, path: str, number: int) -> Prediction:
    """The prediction on a line of a file. Raises: options.Usage for any other line, which names its number."""
    try:
        prediction = _decoded(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise _no_predictions(path, f"line {number}: {error}") from error
    wrong = impossible(prediction)
    if wrong:
        raise _no_predictions(path, f"line {number}: {wrong}")
    return prediction


def _no_predictions(path: str, why: str) -> options.Usage:
    """The error for a file that holds something else than predictions."""
    return options.Usage(f"{path or repr(path)} holds no predictions: {why}", MAKES)


def distinct(predictions: Iterable[Prediction]) -> list[Prediction]:
    """The predictions, each once: of those that differ in nothing but when they were saved, the first that was."""
    first_saved: dict[bytes, Prediction] = {}
    for prediction in predictions:
        key = msgspec.json.encode(msgspec.structs.replace(prediction, saved_at=""))
        before = first_saved.get(key)
        if before is None or prediction.saved_at < before.saved_at:
            first_saved[key] = prediction
    return list(first_saved.values())


def predict(
    training: Training,
    settings: Settings,
    of: Profile,
    network: "Network | None" = None,
    *,
    fitted: Calibration | None = None,
    kernel: str = FIT,
) -> Prediction:
    """The seconds of a training on the device of its settings.

    Args:
        network: of a user's own model; None: that of kernels.networks by the training's name.
        fitted: the calibration; None: from the profile's trainings of other models.
        kernel: what trains: Keras's fit, or a bare loop (training/tensorflow/loop), of whose step no calibration is; building
            and compiling are those of fits.

    Raises: Lacking for a profile without the rows that this needs, all of them named; ValueError for a model that is not known,
    and for a batch that a model cannot have.
    """
    network = network or networks.find(training.model)
    _require_batch(network, training)
    ran = settings
    if settings.on_gpu and not _supports_xla(network):
        ran = msgspec.structs.replace(settings, switches={**settings.switches, "jit_compile": "off"})

    def parts_of(trained: Training) -> Components:
        return components(trained, ran, of, network, kernel)

    made = parts_of(training)
    if made.lacking:
        raise all_of(made.lacking.values())
    if fitted is None:
        fitted = calibration(of, ran, leaving_out={training.model})
        if kernel != FIT:  # a loop builds and compiles the same model
            fitted = Calibration(compile_s=fitted.compile_s, build_s=fitted.build_s)
    parts = calibrated_parts(made, fitted)
    step = _widened(independent_sum(parts.values()), max(fitted.spread(parts), _untried(network)))
    start = _widened(made.start_s + fitted.build_s, UNFITTED) if made.start_s.high > 0 else made.start_s
    return Prediction(
        training,
        settings,
        parts,
        step,
        made.epoch_s,
        made.fit_s + made.setup_s,
        compilation_s(made, fitted),
        start,
        made.execution,
        made.partial,
        of.key,
        made.setup_s,
        last_step_saves_s=_last_step_saves(training, step, lambda last: calibrated_parts(parts_of(last), fitted)),
        rough=made.rough,
    )


def _widened(seconds: Estimate, spread: float) -> Estimate:
    """Seconds whose interval is widened to at least a relative error; no end is below 0."""
    low = min(seconds.low, seconds.value / (1 + spread))
    high = max(seconds.high, seconds.value * (1 + spread))
    return Estimate(seconds.value, max(0.0, low), high)


def compilation_s(step: Components, fitted: Calibration) -> Estimate:
    """Seconds of all compilations of a training. XLA compiles once for each distinct batch size; a graph that is not compiled is
    traced and optimized once for all."""
    training = step.training
    has_smaller_last_batch = training.samples > training.batch and training.samples % training.batch > 0
    compilations = 2 if step.execution == COMPILED and has_smaller_last_batch else 1
    if fitted.compile_s:
        return within_factor(compilations * fitted.compile_s * step.traced, 2)
    small = step.compile_s * compilations
    return Estimate(small.value, small.low, small.value * max(2.0, step.kernels))


def _last_step_saves(
    training: Training, step: Estimate, parts_of_step: Callable[[Training], dict[str, Estimate]]
) -> Estimate:
    """By how much an epoch's incomplete last batch is quicker than a whole one, at least nothing.

    parts_of_step: the parts of a training's step.
    """
    left_over = training.samples % training.batch
    if training.samples < training.batch or not left_over:
        return NOTHING
    last = msgspec.structs.replace(training, batch=left_over, samples=left_over)
    last_s = sum(part.value for part in parts_of_step(last).values())
    return exact(max(0.0, step.value - last_s))


def _require_batch(network: Network, training: Training) -> None:
    """Raises ValueError for a batch at which nothing is known of a traced step whose sizes do not grow evenly with it."""
    step = network.traced
    if step is not None and step.fixed_share > MOST_FIXED and training.batch != step.batch:
        raise ValueError(f"the step of {training.model} is known at a batch of {step.batch} alone")


def _supports_xla(network: Network) -> bool:
    """Whether Keras has XLA compile the step on a GPU: not with a layer in cuDNN, nor with others that XLA lacks."""
    if network.traced is not None:
        return network.traced.xla
    return not any(layer.fused for layer in network.layers)


def _untried(network: Network) -> float:
    """The relative error for kinds of layers that no network of the tables has; 0 of others, and of traced steps:
    their operations without rows have wide intervals of their own."""
    tried = {"reshape"}
    for known in networks.NETWORKS.values():
        tried.update(layer.kind for layer in known.layers)
    untried = [layer for layer in network.layers if layer.kind not in tried]
    return UNTRIED if untried else 0.0
