"""Times how a batch gets into Keras's training step: the step itself does next to no arithmetic. Runs in a worker."""

from typing import TYPE_CHECKING

import numpy as np

from kernels.problems import InputPipeline, Training
from workloads.frameworks import fit_timing, input_pipeline, tensors, trainers
from workloads.harness import telemetry
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row
from workloads.records.switches import Keras

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

EPOCHS = 5  # of a fit, whose constant is as long as its steps here
FEW_OF = 8  # the short fits have this share of the steps
_values_of_type: dict[str, np.ndarray] = {}  # the values of the type of the row before


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """Times how batches reach Keras's fit in the way that the row's variant names: numpy, tf.data, prefetch, generator, resident.

    The samples of the clock `host-latency` are seconds a step of the epochs after the first. The model's samples are whole
    numbers and its targets what it computes from them, so that the loss of every epoch is 0 exactly: with any other loss a batch
    arrived wrong, and so is the result.
    Raises: ValueError for an unknown variant; registry.NotInstalled; DoesNotFit.
    """
    if row.variant not in InputPipeline.WAYS or not isinstance(row.problem, InputPipeline):
        raise ValueError(f"{row.kernel} feeds nothing; known: {', '.join(InputPipeline.WAYS)}")
    require_memory(row.problem, "cpu")  # a GPU's is TensorFlow's already
    phases = tensors.begin(row.device, row.threads)
    fields: dict = {"status": "ok", "check": "exact", "notes": tensors.software_notes(row)}
    try:
        with tensors.timed(phases, "build"):
            trainer = PipelineTrainer(row, seed)
        fields |= _timed(row, trainer, limits)
    except Broken as error:
        fields |= {"status": "wrong", "reason": str(error)}
    tensors.forget()
    return row.result(**fields, phases_s=phases)


def _timed(row: Row, trainer: trainers.Trainer, limits: Limits) -> dict:
    """The fields samples, fits, values and flags of the row's Measurement.

    Two fits that are not timed come first: they compile the step, and allocate the memory of all samples.
    """
    problem = row.problem
    watch = telemetry.watch(row.device, framework=True)
    training = Training(model="", batch=problem.batch, samples=problem.samples, epochs=1, dtype=problem.dtype)
    plan = fit_timing.FitPlan(epochs=EPOCHS, steps=max(1, problem.steps // FEW_OF), further_epochs=EPOCHS)
    for samples in (plan.steps * problem.batch, problem.samples):
        trainer.fit(samples, epochs=1)
    timed = fit_timing.long_fits(
        trainer, training, plan, limits, before_pair=watch.before_block, further_other_epochs=EPOCHS
    )
    readings, flags = watch.readings()
    return {"samples": (timed.samples,), "fits": timed.fits, "values": readings, "flags": flags}


class PipelineTrainer(trainers.Trainer):
    """A model that does next to nothing, so that a step is the time in which a batch reaches it."""

    def __init__(self, row: Row, seed: int):
        """row: its variant says how batches reach the model. seed: of the samples and of shuffling."""
        self.values = {}
        self.notes = {}
        problem = row.problem
        x = _whole_numbers(problem.dtype, seed, problem.samples * problem.width)
        x = x[: problem.samples * problem.width].reshape(problem.samples, problem.width)
        y = _values_used(x).astype(np.float32).mean(1, keepdims=True)
        if row.variant == InputPipeline.RESIDENT:
            (on_device,) = tensors.place((x,), f"/{row.side}:0")
            self._model = _model(1, on_device)
            x = np.arange(problem.samples)[:, np.newaxis]
            residence = "numpy"
        else:
            self._model = _model(problem.width)
            residence = row.variant
        options = Keras(residence=residence)  # type: ignore[arg-type]
        self._pipeline = input_pipeline.pipeline(options, x, y, problem.batch, seed=seed)

    def restore(self) -> None:
        """Nothing: its one weight stays 1."""

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> trainers.Fitted:
        """Calls model.fit with samples from the row's pipeline.

        Raises: Broken for a loss that is not 0: then a batch arrived that is not what was sent.
        """
        fitted = trainers.run_fit(self._model, self._pipeline.fit_arguments(samples), epochs, stamped=stamped)
        if any(fitted.losses):
            raise Broken(f"a batch arrived wrong: the loss is {max(fitted.losses):.3g}, not 0")
        return fitted


def _values_used(x: "np.ndarray | tf.Tensor") -> "np.ndarray | tf.Tensor":
    """The LEAST_WIDTH values of each sample that the model uses, at equal distances over its width. x: samples x width."""
    distance = x.shape[1] // InputPipeline.LEAST_WIDTH
    return x[:, ::distance][:, : InputPipeline.LEAST_WIDTH]


def _model(width: int, on_device: "tf.Tensor | None" = None) -> "keras.Model":
    """A compiled model with one weight, by which it multiplies the mean of some of a sample's values.

    It takes samples of `width` values. All of a batch is copied to the device although few values are used, as TensorFlow copies
    whole tensors. on_device: all samples, where they lie on the device already; then the model takes indices of samples.
    """
    import keras

    class ScaledMean(keras.layers.Layer):
        def build(self, shape: tuple[int | None, ...]) -> None:
            self.weight = self.add_weight(shape=(), initializer="ones", name="weight")

        def call(self, x: "tf.Tensor") -> "tf.Tensor":
            if on_device is not None:
                x = keras.ops.take(on_device, x[:, 0], axis=0)
            used = keras.ops.cast(_values_used(x), "float32")
            return self.weight * keras.ops.mean(used, axis=1, keepdims=True)

    dtype = "float32" if on_device is None else "int64"
    model = keras.Sequential([keras.Input((width,), dtype=dtype), ScaledMean()])
    model.compile("sgd", "mse")
    return model


def _whole_numbers(dtype: str, seed: int, count: int) -> np.ndarray:
    """At least `count` random whole numbers from 0 to 255 as an array of this type. They are kept in this process for the next
    row of the type."""
    if len(_values_of_type.get(dtype, ())) < count:
        _values_of_type.clear()
        numbers = np.random.default_rng(seed).integers(0, 256, count, np.uint8)
        _values_of_type[dtype] = numbers.astype(dtype)
    return _values_of_type[dtype]
