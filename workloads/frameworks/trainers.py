"""Trainers, models with their samples that training rows time: their interface and Keras's fit. Runs in a worker."""

import abc
import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from msgspec.structs import replace

from kernels.networks import Network
from workloads.frameworks import data_parallel, description, input_pipeline, models, tensors, user_model
from workloads.frameworks.data_parallel import FurtherResults
from workloads.frameworks.tracing import user_files
from workloads.harness.dispatch import HANDLERS, Broken, handler
from workloads.machine import gpu
from workloads.records import Row, settings

if TYPE_CHECKING:
    import keras

STEP_LOSSES = 20  # first steps whose losses two devices are compared by


@dataclasses.dataclass(frozen=True, kw_only=True)
class Fitted:
    """The result of a fit."""

    #: Mean loss of each epoch; () where a user's own fit is timed.
    losses: tuple[float, ...]
    #: Accuracy of each epoch; () for a regression.
    accuracies: tuple[float, ...] = ()
    #: Seconds of each epoch; () where nobody asked for them.
    epochs_s: tuple[float, ...] = ()


class Trainer(abc.ABC):
    """A model with its samples, ready to train."""

    #: Values of the row's measurement.
    values: dict[str, float]
    #: Notes of the row's measurement.
    notes: dict[str, str]
    #: Why the model is not the one that the row names, so that nothing is timed; "" where it is.
    wrong: str = ""

    @abc.abstractmethod
    def fit(self, samples: int, epochs: int, stamped: bool = False) -> Fitted:
        """Trains on from the present weights, and returns when the device is done.

        samples: of an epoch, the first ones of the trainer's, in the batches of its row. stamped: whether the seconds of each
        epoch are wanted; those of a later one count from the end of the one before.
        """

    @abc.abstractmethod
    def restore(self) -> None:
        """Sets the variables of model and optimizer, and the seeds, to what they were when the model was built."""

    def step_losses(self, count: int) -> list[float]:
        """The loss of each of the next `count` steps; [] where a trainer gives no losses of single steps."""
        return []

    def further_results(self) -> FurtherResults:
        """Results that are measured after everything else, as they would disturb it; none where a subclass has none."""
        return FurtherResults()


@dataclasses.dataclass(frozen=True, kw_only=True)
class Task:
    """What a trainer is to train."""

    #: The training's row.
    row: Row
    #: The network; None for a user's model.
    network: Network | None
    #: At least the problem's samples.
    x: np.ndarray
    #: Their targets.
    y: np.ndarray
    #: Seed of the weights.
    seed: int
    #: Gets the seconds of `build`.
    phases: dict[str, float]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Built:
    """A compiled Keras model on its device."""

    #: The model.
    model: Any
    #: Its variables and the optimizer's, each with its first value.
    first_values: list[tuple[Any, np.ndarray]]
    #: Seed of the weights and of shuffling.
    seed: int
    #: Values of the row's measurement.
    values: dict[str, float]
    #: Notes of the row's measurement.
    notes: dict[str, str]
    #: How it differs from its table; "" where it does not.
    wrong: str = ""
    #: How it is spread over devices.
    strategy: data_parallel.Strategy = data_parallel.ALONE

    def restore(self) -> None:
        """Sets the variables of model and optimizer, and the seeds, to what they were when the model was built."""
        import keras

        for variable, value in self.first_values:
            variable.assign(value)
        keras.utils.set_random_seed(self.seed)


def on_row_device(row: Row) -> AbstractContextManager:
    """A `with` block that puts TensorFlow's work on the CPU where the row wants that in a process that sees a GPU.

    Any other row needs nothing: its process sees no device but its own.
    """
    if not row.on_gpu and row.keras.gpu == "visible":
        import tensorflow

        return tensorflow.device("/CPU:0")
    return contextlib.nullcontext()


def built(task: Task) -> Built:
    """The model of a task, built and compiled as its row says, and compared with the description of its network.

    Raises: Broken where its variables are on another device than the row's; ValueError for options of the row that the model does
    not take.
    """
    import keras

    row = task.row
    options = row.keras
    keras.utils.set_random_seed(task.seed)
    keras.config.set_dtype_policy(options.precision)
    use_tf32(row)
    strategy = data_parallel.strategy(row)
    notes: dict[str, str] = {}
    try:
        with tensors.timed(task.phases, "build"), on_row_device(row), strategy.scope():
            if task.network is None:
                model, notes = _user_model(row)
            else:
                model = _network_model(row, task.network)
            model.steps_per_execution = options.steps_per_execution
            if model.optimizer:
                model.optimizer.build(model.trainable_variables)
    finally:
        keras.config.set_dtype_policy("float32")
    wrong = models.differences(model, task.network) if task.network else ""
    tensors.require_device(model, row.device, row.library)
    data_parallel.require(model, strategy)
    values = {
        "parameters": float(model.count_params()),
        "jit_compile": float(model.jit_compile is True),
        "tf32": float(row.on_gpu and options.tf32 == "on" and not gpu.lacks(row.device, "tf32")),
    }
    return Built(
        model=model,
        first_values=values_of_variables(model),
        seed=task.seed,
        values={**values, **strategy.values},
        notes={**notes, **tensors.software_notes(row), **strategy.notes},
        wrong=wrong,
        strategy=strategy,
    )


def _network_model(row: Row, network: Network) -> "keras.Model":
    """A compiled Keras model of a network of kernels.networks; without its dropout where the row says so."""
    built_network = network if row.keras.dropout == "on" else without_dropout(network)
    return models.build(built_network, settings.JIT[row.keras.jit_compile])


def _user_model(row: Row) -> "tuple[keras.Model, dict[str, str]]":
    """The user's model that the row names, compiled, and the notes of its measurement.

    The notes are its layers as JSON, the hash of its source, and what was decided where the user left it open.
    """
    name = row.problem.model
    model, notes = user_model.load(name, settings.JIT[row.keras.jit_compile])
    layers = description.network(model, name)
    layers = replace(layers, compiled_for_user="compiled" in notes)
    data_function = ""  # the samples are made up
    notes[user_files.SOURCE] = user_files.hash_of_modules(name, data_function)
    notes["layers"] = msgspec.json.encode(layers).decode()
    return model, notes


def values_of_variables(model: "keras.Model") -> "list[tuple[keras.Variable, np.ndarray]]":
    """Each variable of a model and of its optimizer once, with a copy of its value. Seeds of dropout are among them."""
    variables = [*model.variables, *getattr(model.optimizer, "variables", ())]  # a model may have no optimizer
    distinct = {id(variable): variable for variable in variables}
    pairs = []
    for variable in distinct.values():
        value = variable.numpy().copy() if hasattr(variable, "numpy") else np.array(variable)
        pairs.append((variable, value))
    return pairs


def without_dropout(network: Network) -> Network:
    """The same network, but with a rate of 0 in every dropout layer, so that these let everything through."""
    layers = []
    for layer in network.layers:
        layers.append(replace(layer, rate=0.0) if layer.kind == "dropout" else layer)
    return replace(network, layers=tuple(layers))


def use_tf32(row: Row) -> None:
    """Allows or forbids TF32 arithmetic on a GPU in this process, as the row's option tf32 says, in the library that the row
    names.

    Without TF32, products and convolutions of float32 are computed in float32. An earlier row may have set it otherwise.
    """
    allowed = row.keras.tf32 == "on"
    match row.library:
        case "tensorflow":
            import tensorflow

            tensorflow.config.experimental.enable_tensor_float_32_execution(allowed)
        case "jax":
            import jax

            jax.config.update("jax_enable_x64", False)
            precision = None  # JAX's own choice, which on a CPU is float32
            if row.on_gpu:
                precision = "tensorfloat32" if allowed else "highest"
            jax.config.update("jax_default_matmul_precision", precision)
        case "torch":
            import torch

            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def finite(losses: Sequence[float] | np.ndarray) -> tuple[float, ...]:
    """The same losses, one for each epoch. Raises Broken where one is infinite or no number."""
    for epoch, loss in enumerate(losses, 1):
        if not np.isfinite(loss):
            raise Broken(f"the loss is {loss} after epoch {epoch}")
    return tuple(float(loss) for loss in losses)


def keras_callback(**events: Callable) -> "keras.callbacks.Callback":
    """A callback of Keras. events: name of a method, as on_epoch_end -> the function that `fit` calls then."""
    import keras

    return keras.callbacks.LambdaCallback(**events)


class EpochStamps:
    """When the epochs of a model.fit begin and end. Batches are not stamped: that would wait for each step."""

    def __init__(self) -> None:
        self._stamps: list[float] = []

    def callback(self) -> Any:
        """The Keras callback that stamps."""
        return keras_callback(on_epoch_begin=self._epoch_begins, on_epoch_end=self._epoch_ended)

    def _epoch_begins(self, epoch: int, logs: Any = None) -> None:
        if not self._stamps:
            self._stamps.append(time.perf_counter())

    def _epoch_ended(self, epoch: int, logs: Any = None) -> None:
        self._stamps.append(time.perf_counter())

    @property
    def seconds(self) -> tuple[float, ...]:
        """Seconds of each epoch."""
        return tuple(end - begin for begin, end in itertools.pairwise(self._stamps))


def run_fit(model: "keras.Model", arguments: dict[str, Any], epochs: int, *, stamped: bool) -> Fitted:
    """Calls model.fit with these arguments; its losses, accuracies and, where `stamped`, the seconds of each epoch.

    Raises: Broken for a loss that is not finite.
    """
    stamps = EpochStamps()
    callbacks = [stamps.callback()] if stamped else None
    history = model.fit(**arguments, epochs=epochs, verbose=0, callbacks=callbacks).history
    return Fitted(losses=finite(history["loss"]), accuracies=accuracies(history), epochs_s=stamps.seconds)


def accuracies(metrics: Mapping[str, Iterable[float]]) -> tuple[float, ...]:
    """The accuracy of each epoch; () where a fit computed none. metrics: Keras's name of a metric -> its value in each epoch."""
    for name, numbers in metrics.items():
        if name.endswith("accuracy"):
            return tuple(float(number) for number in numbers)
    return ()


class KerasTrainer(Trainer):
    """A trainer of a Keras model that is built for it."""

    def __init__(self, task: Task):
        self.task = task
        self.built = built(task)
        self.model = self.built.model
        self.values = self.built.values
        self.notes = self.built.notes
        self.wrong = self.built.wrong

    def restore(self) -> None:
        self.built.restore()


class KerasFit(KerasTrainer):
    """model.fit as people call it, with samples brought as the residence says."""

    def __init__(self, task: Task):
        super().__init__(task)
        self._batch = task.row.problem.batch
        self._pipeline = input_pipeline.pipeline(task.row.keras, task.x, task.y, self._batch, seed=task.seed)

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> Fitted:
        arguments = self._pipeline.fit_arguments(samples)
        with on_row_device(self.task.row):
            return run_fit(self.model, arguments, epochs, stamped=stamped)

    def step_losses(self, count: int) -> list[float]:
        """The loss of each of the next steps, at most `count` and not more than an epoch has; [] where Keras gives one loss for
        several steps."""
        steps = min(count, len(self.task.x) // self._batch)
        if self.task.row.experiment.strategy == "MirroredStrategy":
            return self._losses_from_means(steps)
        losses = []
        for step in range(steps):
            batch = slice(step * self._batch, (step + 1) * self._batch)
            self.model.reset_metrics()
            with on_row_device(self.task.row):
                metrics = self.model.train_on_batch(self.task.x[batch], self.task.y[batch], return_dict=True)
            losses.append(float(metrics["loss"]))
        return losses

    def _losses_from_means(self, steps: int) -> list[float]:
        """The losses of the next steps on several GPUs, where train_on_batch would give each GPU the whole batch.

        They are computed from what Keras hands to callbacks, the mean loss of all steps so far. [] where Keras runs several steps
        between two callbacks.
        """
        if self.task.row.keras.steps_per_execution > 1:
            return []
        means: list[float] = []
        callback = keras_callback(on_train_batch_end=lambda step, logs: means.append(logs["loss"]))
        samples = steps * self._batch
        x = self.task.x[:samples]
        y = self.task.y[:samples]
        self.model.fit(x, y, self._batch, shuffle=False, verbose=0, callbacks=[callback])
        losses = []
        sum_before = 0.0
        for count, mean in enumerate(means, 1):
            losses.append(float(count * mean - sum_before))
            sum_before = count * mean
        return losses

    def further_results(self) -> FurtherResults:
        return data_parallel.further_results(self.task.row, self.built.strategy, self.model)


def make_trainer(task: Task) -> Trainer:
    """The trainer of a task, of the class that its row's kernel names.

    Raises: ValueError for a kernel that trains nothing, and for switches that its trainer does not obey.
    """
    kernel = task.row.kernel
    training_kernels = [name for name in HANDLERS if "/" in name]  # the other handlers are verbs without a slash
    if kernel not in training_kernels:
        raise ValueError(f"{kernel} trains nothing; known: {', '.join(training_kernels)}")
    return handler(kernel)(task)
