"""Seconds of a training on a device, predicted from a profile: the step by parts that add up, and the whole training.

Nothing is fitted to the model that is predicted; the few global numbers (analysis.predict.calibration) come from other models.
"""

import msgspec

from analysis.predict.calibration import calibration
from analysis.predict.components import FIT, Components, components
from analysis.predict.profile import COMPILED, Profile, all_of, constants_command
from analysis.predict.step_time import UNFITTED, Calibration, calibrated_parts
from analysis.predict.step_work import RoughWork
from analysis.stats import NOTHING, Estimate, exact, independent_sum, within_factor
from analysis.training.costs import TrainingCost, whole_training
from analysis.units import join
from kernels import networks
from kernels.networks import Network
from kernels.problems import Training
from workloads.records import Settings

# Share of a step: a smaller part is not named.
_WORTH_A_NAME = 0.01
# Relative error for kinds of layers that no network of the tables has, on which no rule was checked.
_UNTRIED = 1.0
# Share of a traced step's bytes that does not grow evenly with the batch; of more, the step is known at its batch alone.
_MOST_FIXED = 0.1


class Prediction(msgspec.Struct, frozen=True, kw_only=True, tag="prediction"):
    """The predicted times of a training. Those that are Estimates are seconds."""

    training: Training
    settings: Settings
    #: Part -> seconds of one step; they add up to step_s.
    parts: dict[str, Estimate]
    #: A step.
    step_s: Estimate
    #: An epoch beyond its steps.
    epoch_s: Estimate
    #: A fit beyond its epochs.
    fit_s: Estimate
    #: All compilations of the training.
    compile_s: Estimate
    #: Importing the library, starting the device and building the model.
    start_s: Estimate
    #: How the step runs: compiled or op by op.
    execution: str
    #: What is not known of a step, in words; empty: it is known as a whole.
    partial: tuple[str, ...]
    #: The key of the machine whose rows were read.
    profile: str
    #: The share of fit_s that grows with the samples.
    setup_s: Estimate = NOTHING
    #: By how much an epoch's incomplete last batch is quicker than a whole one.
    last_step_saves_s: Estimate = NOTHING
    #: The work of a step that no row is of.
    rough: RoughWork | None = None
    #: When it was saved, as the `at` of rows; "" where it was not.
    saved_at: str = ""

    @property
    def cost(self) -> TrainingCost:
        """The predicted seconds as the costs of a training. Building the model is in its start-up."""
        steps = self.training.steps
        return TrainingCost(
            dataset_setup=self.fit_s,
            epoch=self.epoch_s,
            step=self.step_s,
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
        return sum(seconds.value for seconds in self.parts.values() if seconds.value > 0)

    @property
    def largest_shares(self) -> dict[str, float]:
        """Part -> its share of a step's parts, for the two largest that are worth a name."""
        shares = {name: seconds.value / self.parts_s for name, seconds in self.parts.items()}
        largest = sorted(shares, key=lambda name: -shares[name])[:2]
        return {name: shares[name] for name in largest if shares[name] > _WORTH_A_NAME}

    @property
    def unmeasured(self) -> tuple[str, ...]:
        """Parts of the whole training without a measurement; they count as 0 seconds."""
        terms = {"start-up": self.start_s, "compilation": self.compile_s, "an epoch beyond its steps": self.epoch_s}
        return tuple(name for name, seconds in terms.items() if seconds.high <= 0)

    @property
    def gaps(self) -> tuple[str, ...]:
        """What is not known, in words: `partial`, and the parts of the whole training that were not measured, with the command
        line that measures them."""
        if not self.unmeasured:
            return self.partial
        return (
            *self.partial,
            f"of the whole training {join(self.unmeasured)}: {constants_command(self.settings.device)}",
        )

    @property
    def epoch_total_s(self) -> Estimate:
        """Seconds of a warm epoch."""
        return self.cost.epoch_seconds(self.training.steps)

    @property
    def job_s(self) -> Estimate:
        """Seconds of the whole training in a process of its own."""
        return whole_training(self.cost, self.training.epochs, self.training.steps)


def predict(
    training: Training,
    settings: Settings,
    profile: Profile,
    network: Network | None = None,
    *,
    fitted: Calibration | None = None,
    kernel: str = FIT,
) -> Prediction:
    """The seconds of a training on the device of its settings.

    Args:
        network: of a user's own model; None: the one of kernels.networks with the training's name.
        fitted: the calibration; None: from the profile's trainings of other models.
        kernel: what trains: Keras's fit, or a bare loop (training/tensorflow/loop), whose step no calibration is for.

    Raises: Lacking for a profile without the rows that this needs, all of them named; ValueError for a model that is not known,
    and for a batch that a model cannot have.
    """
    network = network or networks.find(training.model)
    _require_batch(network, training)
    as_run = _as_run(settings, network)
    step = components(training, as_run, profile, network, kernel=kernel)
    if step.lacking:
        raise all_of(step.lacking.values())
    if fitted is None:
        fitted = _fitted(training.model, as_run, profile, kernel)
    parts = calibrated_parts(step, fitted)
    step_s = _widened(independent_sum(parts.values()), max(fitted.spread(parts), _untried(network)))
    start_s = step.start_s
    if start_s.high > 0:
        start_s = _widened(start_s + fitted.build_s, UNFITTED)
    last_step_saves_s = NOTHING
    last = _last_batch(training)
    if last is not None:
        last_parts = calibrated_parts(components(last, as_run, profile, network, kernel=kernel), fitted)
        last_step_s = sum(part.value for part in last_parts.values())
        last_step_saves_s = exact(max(0.0, step_s.value - last_step_s))
    return Prediction(
        training=training,
        settings=settings,
        parts=parts,
        step_s=step_s,
        epoch_s=step.epoch_s,
        fit_s=step.fit_s + step.setup_s,
        compile_s=compilation_s(step, fitted),
        start_s=start_s,
        execution=step.execution,
        partial=step.partial,
        profile=profile.key,
        setup_s=step.setup_s,
        last_step_saves_s=last_step_saves_s,
        rough=step.rough,
    )


def _as_run(settings: Settings, network: Network) -> Settings:
    """The settings that Keras really runs with: on a GPU it switches jit_compile off for a model that XLA does not support."""
    if not settings.on_gpu or _supports_xla(network):
        return settings
    return msgspec.structs.replace(settings, switches={**settings.switches, "jit_compile": "off"})


def _fitted(model: str, settings: Settings, profile: Profile, kernel: str) -> Calibration:
    """The calibration from the profile's trainings of other models. A bare loop builds and compiles the same model as fit, but
    its step takes none of the factors, which are fitted to fit's steps."""
    fitted = calibration(profile, settings, leaving_out={model})
    if kernel == FIT:
        return fitted
    return Calibration(compile_s=fitted.compile_s, build_s=fitted.build_s)


def _last_batch(training: Training) -> Training | None:
    """A training of the samples in an epoch's smaller last batch, as one batch; None if all batches are whole, or the only one is
    not."""
    left_over = training.samples % training.batch
    if training.samples < training.batch or not left_over:
        return None
    return msgspec.structs.replace(training, batch=left_over, samples=left_over)


def _widened(seconds: Estimate, spread: float) -> Estimate:
    """Seconds whose interval reaches at least from value / (1 + spread) to value * (1 + spread), and not below 0."""
    low = min(seconds.low, seconds.value / (1 + spread))
    high = max(seconds.high, seconds.value * (1 + spread))
    return Estimate(seconds.value, max(0.0, low), high)


def compilation_s(step: Components, fitted: Calibration) -> Estimate:
    """Seconds of all compilations of a training: XLA compiles once for each batch size, so twice with a smaller last batch; a
    graph that is not compiled is traced and optimized once. Without a fitted number, they are of a model with almost no work,
    times up to the number of kernels."""
    training = step.training
    has_smaller_last_batch = training.samples > training.batch and training.samples % training.batch > 0
    compilations = 2 if step.execution == COMPILED and has_smaller_last_batch else 1
    if fitted.compile_s:
        return within_factor(compilations * fitted.compile_s * step.traced, 2)
    small = step.compile_s * compilations
    return Estimate(small.value, small.low, small.value * max(2.0, step.kernels))


def _require_batch(network: Network, training: Training) -> None:
    """Raises ValueError for a batch at which the step is not known: a traced step whose bytes do not grow evenly with the batch
    is known at the batch of its trace alone."""
    step = network.traced
    if step is not None and step.fixed_share > _MOST_FIXED and training.batch != step.batch:
        raise ValueError(f"the step of {training.model} is known at a batch of {step.batch} alone")


def _supports_xla(network: Network) -> bool:
    """Whether XLA can compile the step on a GPU: it cannot with a layer that cuDNN runs as a whole."""
    if network.traced is not None:
        return network.traced.xla
    return not any(layer.fused for layer in network.layers)


def _untried(network: Network) -> float:
    """The relative error added for layers of a kind that none of the known networks has, so that predictions of it were never
    checked; 0 for others, and for traced steps, whose operations have errors of their own."""
    tried = {"reshape"}
    for known in networks.NETWORKS.values():
        tried.update(layer.kind for layer in known.layers)
    untried = [layer for layer in network.layers if layer.kind not in tried]
    return _UNTRIED if untried else 0.0
