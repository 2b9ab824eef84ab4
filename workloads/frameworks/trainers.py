"""Ways to train a model behind one interface, a Trainer, which training rows time. Runs in a worker."""

import contextlib
import dataclasses
import itertools
import time
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from kernels.networks import Network
from workloads.frameworks import data_parallel, description, input_pipeline, models, tensors, user_model
from workloads.frameworks.tracing import user_files
from workloads.harness.dispatch import HANDLERS, Broken, handler
from workloads.machine import gpu
from workloads.records import Row, settings

STEP_LOSSES = 20  # first steps whose losses two devices are compared by


@dataclasses.dataclass(frozen=True)
class Fitted:
    """The result of a fit: each epoch's mean loss, accuracy (none for a regression), and seconds if they were stamped."""

    losses: tuple[float, ...]
    accuracies: tuple[float, ...] = ()
    epochs_s: tuple[float, ...] = ()


@dataclasses.dataclass(frozen=True)
class Trainer:
    """A model with its samples, ready to train.

    fit(samples, epochs, stamped=False): trains from the weights as they are over the first `samples` samples in the
    problem's batches, and returns when the device is done; `stamped` asks for the seconds of each epoch, a later one's from the
    end of the one before.
    restore(): weights, optimizer and seeds as they were first. step_losses(n): the losses of the first n steps from there
    (None where nothing can say them one by one). wrong: why the model is not the one that was asked for; then nothing is timed.
    also(): further values, series and notes, taken when all else has been timed.
    """

    fit: Callable[..., Fitted]
    restore: Callable[[], None]
    values: dict[str, float]
    notes: dict[str, str]
    step_losses: Callable[[int], list[float]] | None = None
    wrong: str = ""
    also: Callable[[], dict[str, dict]] | None = None


@dataclasses.dataclass(frozen=True)
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


@dataclasses.dataclass(frozen=True)
class Built:
    """A compiled Keras model on its device, its first state kept. `wrong`: how it differs from its table."""

    model: Any
    restore: Callable[[], None]
    values: dict[str, float]
    notes: dict[str, str]
    wrong: str = ""
    spread: data_parallel.Strategy = data_parallel.ALONE

    def trainer(
        self, fit: Callable[..., Fitted], step_losses: Callable | None, also: Callable | None = None
    ) -> Trainer:
        return Trainer(fit, self.restore, self.values, self.notes, step_losses, self.wrong, also)


def placed(row: Row):
    """The context in which a CPU row runs whose process sees a GPU: everything is put on the CPU by hand."""
    if not row.on_gpu and row.keras.gpu == "visible":
        import tensorflow

        return tensorflow.device("/CPU:0")
    return contextlib.nullcontext()


def built(task: Task) -> Built:
    """The model of a task: built under its precision, compared with its table, and looked up where its variables are.

    Raises: Broken when it is on another device; ValueError for a model that the row's switches do not fit.
    """
    import keras

    row, network, chosen = task.row, task.network, task.row.keras
    keras.utils.set_random_seed(task.seed)
    keras.config.set_dtype_policy(chosen.precision)
    use_tf32(row)
    spread = data_parallel.strategy(row)
    try:
        with tensors.timed(task.phases, "build"), placed(row), spread.scope():
            if network is None:
                model, about = user_model.load(row.problem.model, settings.JIT[chosen.jit_compile])
                layers = description.network(model, row.problem.model)
                layers = msgspec.structs.replace(layers, compiled_for_user="compiled" in about)
                about[user_files.SOURCE] = user_files.hash_of_modules(row.problem.model, "")
                about["layers"] = msgspec.json.encode(layers).decode()
            else:
                own = network if chosen.dropout == "on" else without_dropout(network)
                model, about = models.build(own, settings.JIT[chosen.jit_compile]), {}
            model.steps_per_execution = chosen.steps_per_execution
            if model.optimizer:
                model.optimizer.build(model.trainable_variables)
    finally:
        keras.config.set_dtype_policy("float32")
    wrong = models.differences(model, network) if network else ""
    tensors.require_device(model, row.device, row.library)
    data_parallel.require(model, spread)
    # each once, with the optimizer's; seeds of dropout are among them
    every = {id(v): v for v in (*model.variables, *(model.optimizer.variables if model.optimizer else ()))}.values()
    snapshot = [(v, v.numpy().copy() if hasattr(v, "numpy") else np.array(v)) for v in every]

    def restore() -> None:
        for variable, value in snapshot:
            variable.assign(value)
        keras.utils.set_random_seed(task.seed)

    values = {
        "parameters": float(model.count_params()),
        "jit_compile": float(model.jit_compile is True),
        "tf32": float(row.on_gpu and chosen.tf32 == "on" and not gpu.lacks(row.device, "tf32")),
    }
    notes = {**about, **tensors.about(row), **spread.notes}
    return Built(model, restore, values | spread.values, notes, wrong, spread)


def without_dropout(network: Network) -> Network:
    """The network with every dropout layer letting everything through."""
    layers = tuple(replace(la, rate=0.0) if la.kind == "dropout" else la for la in network.layers)
    return replace(network, layers=layers)


def use_tf32(row: Row) -> None:
    """Allows TF32 on a GPU or not, in the words of Keras's backend, whatever a row before left behind in this process."""
    allowed = row.keras.tf32 == "on"
    match row.library:
        case "tensorflow":
            import tensorflow

            tensorflow.config.experimental.enable_tensor_float_32_execution(allowed)
        case "jax":
            import jax

            jax.config.update("jax_enable_x64", False)
            precision = ("tensorfloat32" if allowed else "highest") if row.on_gpu else None
            jax.config.update("jax_default_matmul_precision", precision)
        case "torch":
            import torch

            torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed


def finite(losses) -> tuple[float, ...]:
    """The losses of a fit; raises Broken when one is not a finite number."""
    for epoch, loss in enumerate(losses, 1):
        if not np.isfinite(loss):
            raise Broken(f"the loss is {loss} after epoch {epoch}")
    return tuple(float(loss) for loss in losses)


def fitted(model, epochs: int, stamped: bool, data, **how) -> Fitted:
    """The Fitted of a model.fit, its epochs stamped if that is asked for."""
    # the begin of the first epoch and the end of each, never batches: those would wait for each step
    stamps: list[float] = []

    def stamp(epoch, logs=None):
        stamps.append(time.perf_counter())

    own = {"on_epoch_begin": lambda epoch, logs: epoch or stamp(epoch), "on_epoch_end": stamp}
    callbacks = [keras_callback(**own)] if stamped else None
    history = model.fit(data, epochs=epochs, verbose=0, callbacks=callbacks, **how).history
    seconds = tuple(end - begin for begin, end in itertools.pairwise(stamps))
    accuracies = next((history[name] for name in history if name.endswith("accuracy")), ())
    return Fitted(finite(history["loss"]), tuple(map(float, accuracies)), seconds)


def keras_fit(task: Task) -> Trainer:
    """model.fit as people call it, with samples brought as the residence says."""
    made, problem = built(task), task.row.problem
    model, feed = made.model, input_pipeline.feeder(task.row.keras, task.x, task.y, problem.batch, task.seed)

    def fit(samples: int, epochs: int, stamped: bool = False) -> Fitted:
        data, how = feed(samples)
        with placed(task.row):
            return fitted(model, epochs, stamped, data, **how)

    def step_losses(count: int) -> list[float]:
        found = []
        for i in range(min(count, len(task.x) // problem.batch)):
            part = slice(i * problem.batch, (i + 1) * problem.batch)
            model.reset_metrics()
            with placed(task.row):
                found.append(float(model.train_on_batch(task.x[part], task.y[part], return_dict=True)["loss"]))
        return found

    def fit_losses(count: int) -> list[float]:
        """The same where train_on_batch would give each replica the whole batch: out of a fit's running means."""
        means: list[float] = []
        stamp = keras_callback(on_train_batch_end=lambda step, logs: means.append(logs["loss"]))
        held = min(count, len(task.x) // problem.batch) * problem.batch
        model.fit(task.x[:held], task.y[:held], problem.batch, shuffle=False, verbose=0, callbacks=[stamp])
        sums = [count * mean for count, mean in enumerate(means, 1)]
        return [float(sum_ - before) for before, sum_ in itertools.pairwise([0.0, *sums])]

    def also() -> dict[str, dict]:
        return data_parallel.also(task.row, made.spread, model)

    if task.row.experiment.strategy != "MirroredStrategy":
        return made.trainer(fit, step_losses, also)
    step_by_step = task.row.keras.steps_per_execution == 1  # else Keras gives one loss for several steps
    return made.trainer(fit, fit_losses if step_by_step else None, also)


def keras_callback(**events: Callable):
    import keras

    return keras.callbacks.LambdaCallback(**events)


def way(kernel: str) -> Callable[[Task], Trainer]:
    """The function that makes the Trainer of a kernel.

    Raises: ValueError for a kernel that trains nothing.
    """
    known = [name for name in HANDLERS if name.startswith("training/")]
    if kernel not in known:
        raise ValueError(f"{kernel} trains nothing; known: {', '.join(known)}")
    return handler(kernel)
