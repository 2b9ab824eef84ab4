"""Times how a batch gets into Keras's training step: the step itself does next to no arithmetic. Runs in a worker."""

import numpy as np

from kernels.problems import InputPipeline, Training
from workloads.frameworks import input_pipeline, keras_fit, tensors, trainers
from workloads.harness import telemetry
from workloads.harness.dispatch import Broken
from workloads.harness.memory_needs import require_memory
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row
from workloads.records.switches import Keras

EPOCHS, FEW_OF = 5, 8  # epochs of a fit, whose constant is as long as its steps here; the share of few steps
_kept: dict[str, np.ndarray] = {}  # the values of the type of the row before


def measure(row: Row, limits: Limits, seed: int) -> Measurement:
    """The Measurement of a row: `host-latency` samples are seconds per step of later epochs. Variant: the batches' way.

    The samples are whole numbers and the targets what the model makes of them, so that the loss of every epoch is 0 exactly;
    any other is a batch that arrived wrong.
    Raises: ValueError for a way that is not known; registry.NotInstalled; DoesNotFit.
    """
    if row.variant not in InputPipeline.WAYS or not isinstance(row.problem, InputPipeline):
        raise ValueError(f"{row.kernel} feeds nothing; known: {', '.join(InputPipeline.WAYS)}")
    require_memory(row.problem, "cpu")  # a GPU's is TensorFlow's already
    phases = tensors.begin(row.device, row.threads)
    fields: dict = {"status": "ok", "check": "exact", "notes": tensors.about(row)}
    try:
        with tensors.timed(phases, "build"):
            fit = _fit(row, seed)
        fields |= _timed(row, fit, limits)
    except Broken as error:
        fields |= {"status": "wrong", "reason": str(error)}
    tensors.forget()
    return row.result(**fields, phases_s=phases)


def _timed(row: Row, fit, limits: Limits) -> dict:
    """The timed fields of the Measurement; fits before them compile the step, and find memory for all samples."""
    problem, watch = row.problem, telemetry.watch(row.device, framework=True)
    training = Training("", problem.batch, problem.samples, 1, problem.dtype)
    planned = keras_fit.Plan(EPOCHS, max(1, problem.steps // FEW_OF), EPOCHS)
    for samples in (planned.steps * problem.batch, problem.samples):
        fit(samples, 1)
    trainer = trainers.Trainer(fit, lambda: None, {}, {})
    _, taken, fits = keras_fit.long_fits(trainer, training, planned, limits, watch.before_block, EPOCHS)
    seen, flags = watch.readings()
    return {"samples": (taken,), "fits": fits, "values": seen, "flags": flags}


def _fit(row: Row, seed: int):
    """A Trainer's fit of the model that does next to nothing, its batches brought by the row's way."""
    problem = row.problem
    values = _values(problem.dtype, seed, problem.samples * problem.width)
    x = values[: problem.samples * problem.width].reshape(problem.samples, problem.width)
    y = _looked_at(x).astype(np.float32).mean(1, keepdims=True)
    if row.variant == InputPipeline.RESIDENT:
        model = _model(1, tensors.place((x,), f"/{row.side}:0")[0])
        x = np.arange(problem.samples)[:, np.newaxis]
    else:
        model = _model(problem.width)
    residence = "numpy" if row.variant == InputPipeline.RESIDENT else row.variant
    feed = input_pipeline.feeder(Keras(residence=residence), x, y, problem.batch, seed)  # type: ignore[arg-type]

    def fit(samples: int, epochs: int, stamped: bool = False) -> trainers.Fitted:
        data, how = feed(samples)
        fitted = trainers.fitted(model, epochs, stamped, data, **how)
        if any(fitted.losses):
            raise Broken(f"a batch arrived wrong: the loss is {max(fitted.losses):.3g}, not 0")
        return fitted

    return fit


def _looked_at(x):
    """The values of each sample that the model looks at, spread over it."""
    return x[:, :: x.shape[1] // InputPipeline.LEAST_WIDTH][:, : InputPipeline.LEAST_WIDTH]


def _model(width: int, held=None):
    """A model that multiplies the mean of some of a sample's values by one weight, compiled with SGD. Of `held` samples on the
    device it takes indices. XLA's and TensorFlow's arguments are whole tensors, so the whole batch is copied."""
    import keras

    class Look(keras.layers.Layer):
        def build(self, shape):
            self.weight = self.add_weight(shape=(), initializer="ones", name="weight")

        def call(self, x):
            if held is not None:
                x = keras.ops.take(held, x[:, 0], axis=0)
            return self.weight * keras.ops.mean(keras.ops.cast(_looked_at(x), "float32"), axis=1, keepdims=True)

    model = keras.Sequential([keras.Input((width,), dtype="int64" if held is not None else "float32"), Look()])
    model.compile("sgd", "mse")
    return model


def _values(dtype: str, seed: int, count: int) -> np.ndarray:
    """At least `count` whole numbers from 0 to 255, kept for the next row of that type."""
    if len(_kept.get(dtype, ())) < count:
        _kept.clear()
        _kept[dtype] = np.random.default_rng(seed).integers(0, 256, count, np.uint8).astype(dtype)
    return _kept[dtype]
