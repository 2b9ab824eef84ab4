"""Training without model.fit: an epoch as one tf.function, a bare loop over one step, and what bare loops of all libraries
share."""

import abc
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np

from workloads.frameworks import tensors
from workloads.frameworks.trainers import Fitted, KerasTrainer, Task, accuracies, finite, placed

STRETCH_S = 0.05  # epochs that are stamped are waited for this often: shorter ones run on as they do unstamped
_READ_AT_ONCE = 1024  # numbers of a device that are copied to the host in one call


class LoopStamps:
    """Seconds of epochs without waiting for each. The first is waited for, and any that ends STRETCH_S after the last wait;
    those between two waits share the time evenly, so queued work never counts as done."""

    def __init__(self, wait: Callable[[], object]):
        self.seconds: list[float] = []
        self._wait = wait
        self._unstamped = 0
        self._last_wait = time.perf_counter()

    def epoch_ended(self, last: bool = False) -> None:
        self._unstamped += 1
        is_long_ago = time.perf_counter() - self._last_wait > STRETCH_S
        if not (last or not self.seconds or is_long_ago):
            return
        self._wait()
        now = time.perf_counter()
        self.seconds += [(now - self._last_wait) / self._unstamped] * self._unstamped
        self._unstamped = 0
        self._last_wait = now


def sizes(samples: int, batch: int) -> list[int]:
    """The sizes of an epoch's batches, in order; the last may be smaller."""
    return [min(batch, samples - begin) for begin in range(0, samples, batch)]


def cut(x: np.ndarray, y: np.ndarray, counts: list[int], rng: np.random.Generator | None) -> Iterator[tuple]:
    """Batches of that many samples out of arrays of the host, one after the other or, with `rng`, shuffled."""
    order = None if rng is None or len(counts) == 1 else rng.permutation(sum(counts))
    for begin, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
        part = slice(begin, end) if order is None else order[begin:end]
        yield x[part], y[part]


def require_residence(task: Task, residences: tuple[str, ...]) -> str:
    """The row's residence, the first of these where it names none.

    Raises: ValueError for switches that no loop has.
    """
    kernel = task.row.kernel
    switches = task.row.settings.switches
    chosen = task.row.keras
    experiment = task.row.experiment
    residence = switches.get("residence", residences[0])
    if residence not in residences:
        raise ValueError(f"{kernel} has its samples {' or '.join(residences)}, not {residence}")
    if chosen.steps_per_execution != 1:
        raise ValueError(f"steps_per_execution is model.fit's; {kernel} decides by itself how many steps a call does")
    if experiment.strategy != "none" or experiment.replicas > 1:
        raise ValueError(f"strategy and replicas are model.fit's; {kernel} trains on one device")
    backend = "jax" if task.row.backend == "jax" else "tensorflow"
    if switches.get("keras_backend", backend) != backend:
        raise ValueError(f"{kernel} runs on {backend}, not on {chosen.keras_backend}")
    return residence


# ---------------------------------------------------------------- TensorFlow


def _wait_for_device(task: Task) -> Callable[[], object]:
    """The call that waits for TensorFlow's work; on the CPU a call returns when it is done."""
    import tensorflow

    return tensorflow.test.experimental.sync_devices if task.row.on_gpu else lambda: None


def _on_device(task: Task, *arrays: np.ndarray) -> tuple:
    return tensors.place(arrays, f"/{task.row.side}:0")


def _samples_on_device(task: Task) -> tuple:
    """(x, y) on the row's device. Classes as int64: TensorFlow leaves int32 in the host's memory, and each step would copy."""
    y = task.y
    if np.issubdtype(y.dtype, np.integer):
        y = y.astype(np.int64)
    return _on_device(task, task.x, y)


def _permutation(samples: int):
    """The whole numbers below `samples` in random order, as a tensor made where the row's work is done."""
    import tensorflow

    return tensorflow.cast(tensorflow.argsort(tensorflow.random.uniform((samples,))), "int64")


def _read_tensors(scalars: list) -> np.ndarray:
    """Numbers of the device on the host, many in a copy."""
    import tensorflow

    parts = []
    for begin in range(0, len(scalars), _READ_AT_ONCE):
        parts.append(tensorflow.stack(scalars[begin : begin + _READ_AT_ONCE]).numpy())
    return np.concatenate(parts)


def _make_metrics(model, x, y) -> None:
    """Makes the variables of the model's metrics, which Keras makes when it first sees what they take: none may be made in a
    tf.function."""
    predicted = model(x, training=False)
    model.compute_loss(x, y, predicted)
    model.compute_metrics(x, y, predicted)
    model.reset_metrics()


def _epoch_function(model, batch: int, shuffle: bool):
    """A tf.function (x, y, permutation, first, steps, last) that does the steps `first` ... `first + steps - 1` and, where
    `last` is not 0, one over so many samples after them. It returns the metrics."""
    import tensorflow as tf

    def part(values, permutation, step, count: int):
        """The samples of a step, `count` of them: a slice of known size, as XLA needs."""
        if shuffle:
            taken = tf.gather(values, tf.slice(permutation, (step * batch,), (count,)))
        else:
            begin = (step * batch, *(0 for _ in values.shape[1:]))
            taken = tf.slice(values, begin, (count, *values.shape[1:]))
        return tf.ensure_shape(taken, (count, *values.shape[1:]))

    @functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
    def epoch(x, y, permutation, first, steps, last: int):
        model.reset_metrics()

        def train(step, count: int):
            model.train_step((part(x, permutation, step, count), part(y, permutation, step, count)))
            return (step + 1,)

        (step,) = tf.while_loop(lambda step: step < first + steps, lambda step: train(step, batch), (first,))
        if last:
            train(step, last)
        return model.get_metrics_result()

    return epoch


class ResidentEpochs(KerasTrainer):
    """The whole set on the device; one tf.function does an epoch: a loop over tf.range, in it the model's own train_step on
    a batch cut out of the set (gathered by a permutation when it is shuffled), and the smaller last batch after it."""

    def __init__(self, task: Task):
        require_residence(task, ("resident",))
        super().__init__(task)
        self._batch = task.row.problem.batch
        self._shuffle = task.row.keras.shuffle == "on"
        with placed(task.row):
            self._x, self._y = _samples_on_device(task)
            (self._in_order,) = _on_device(task, np.arange(len(task.x)))
            _make_metrics(self.model, self._x[:1], self._y[:1])
        self._wait = _wait_for_device(task)
        self._epoch = _epoch_function(self.model, self._batch, self._shuffle)

    def _run(self, samples: int, first: int, steps: int, last: int) -> dict:
        """The metrics of a part of an epoch."""
        import tensorflow as tf

        permutation = self._in_order
        if self._shuffle and samples > self._batch:  # the order within one batch changes nothing
            permutation = tf.concat([_permutation(samples), self._in_order[samples:]], 0)
        return self._epoch(self._x, self._y, permutation, tf.constant(first), tf.constant(steps), last)

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> Fitted:
        results = []
        stamps = LoopStamps(self._wait)
        steps, last = divmod(samples, self._batch)
        with placed(self.task.row):
            for epoch in range(epochs):
                results.append(self._run(samples, 0, steps, last))
                if stamped:
                    stamps.epoch_ended(epoch == epochs - 1)
            self._wait()
            metrics = {}
            for name in results[0]:
                metrics[name] = _read_tensors([result[name] for result in results])
        return Fitted(losses=finite(metrics["loss"]), accuracies=accuracies(metrics), epochs_s=tuple(stamps.seconds))

    def step_losses(self, count: int) -> list[float]:
        samples = len(self.task.x)
        losses = []
        with placed(self.task.row):
            for step in range(min(count, samples // self._batch)):
                losses.append(float(self._run(samples, step, 1, 0)["loss"]))
        return losses


# ---------------------------------------------------------------- bare loops


class BareLoop(KerasTrainer):
    """A bare Python loop over one compiled step, as people write it. `resident`: the batches lie on the device, or are gathered
    there in shuffled order; `fed`: each step takes arrays of the host. It keeps no accuracy."""

    #: (x, y): on the host where each step takes arrays of the host, else on the device.
    arrays: tuple

    def __init__(self, task: Task):
        self.residence = require_residence(task, ("resident", "fed"))
        super().__init__(task)
        self._batch = task.row.problem.batch
        self._shuffle = task.row.keras.shuffle == "on"
        self._rng = np.random.default_rng(task.seed) if self._shuffle else None
        self._parts: dict[tuple[int, int], tuple] = {}  # batches of the device, cut once

    @abc.abstractmethod
    def step(self, *batch: Any) -> Any:
        """Does a step and gives its loss, still on the device. `batch`: x, y, and which of the samples where they are
        shuffled on the device."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Waits for all steps."""

    @abc.abstractmethod
    def read(self, losses: list) -> np.ndarray:
        """The losses on the host."""

    @abc.abstractmethod
    def shuffled_batches(self, counts: list[int]) -> Iterable[tuple]:
        """Batches of that many samples out of samples of the device in shuffled order."""

    def batches(self, counts: list[int]) -> Iterable[tuple]:
        """An epoch's batches of that many samples."""
        x, y = self.arrays
        if self.residence == "fed":
            return cut(x, y, counts, self._rng)
        if self._shuffle and len(counts) > 1:
            return self.shuffled_batches(counts)
        return self._cut_once(counts)

    def _cut_once(self, counts: list[int]) -> list[tuple]:
        """Batches of samples of the device in their order, each cut out when it is first needed."""
        x, y = self.arrays
        batches = []
        for begin, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
            if (begin, end) not in self._parts:
                self._parts[begin, end] = (x[begin:end], y[begin:end])
            batches.append(self._parts[begin, end])
        return batches

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> Fitted:
        """A step for each batch, epoch after epoch, no waiting in between. An epoch's loss is Keras's mean: of its losses, each
        weighted by its batch's samples."""
        counts = sizes(samples, self._batch)
        with placed(self.task.row):
            losses: list = []
            stamps = LoopStamps(self.wait)
            for epoch in range(epochs):
                losses += [self.step(*batch) for batch in self.batches(counts)]
                if stamped:
                    stamps.epoch_ended(epoch == epochs - 1)
            self.wait()
            by_epoch = np.reshape(self.read(losses), (epochs, len(counts)))
        means = np.average(by_epoch, axis=1, weights=counts)
        return Fitted(losses=finite(means), epochs_s=tuple(stamps.seconds))

    def step_losses(self, count: int) -> list[float]:
        steps = min(count, len(self.task.x) // self._batch)
        with placed(self.task.row):
            return [float(self.step(*batch)) for batch in self.batches([self._batch] * steps)]


class TensorFlowLoop(BareLoop):
    """One tf.function a step: tape, gradients, the Keras optimizer."""

    def __init__(self, task: Task):
        super().__init__(task)
        import tensorflow as tf

        model = self.model
        loss_function = _loss_function(model, task)

        def body(x, y):
            with tf.GradientTape() as tape:
                loss = loss_function(x, y, model(x, training=True))
                scaled = model.optimizer.scale_loss(loss)
            model.optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
            return loss

        def shuffled_body(x, y, chosen):
            return body(tf.gather(x, chosen), tf.gather(y, chosen))

        compiled = functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
        self._step = compiled(body)
        self._shuffled_step = compiled(shuffled_body)
        self._wait = _wait_for_device(task)
        if self.residence == "fed":
            self.arrays = (task.x, task.y)
        else:
            with placed(task.row):
                self.arrays = _samples_on_device(task)

    def step(self, x: Any, y: Any, *chosen: Any) -> Any:
        if self.residence == "fed":
            return self._step(*_on_device(self.task, x, y))
        if chosen:
            return self._shuffled_step(x, y, *chosen)
        return self._step(x, y)

    def wait(self) -> None:
        self._wait()

    def read(self, losses: list) -> np.ndarray:
        return _read_tensors(losses)

    def shuffled_batches(self, counts: list[int]) -> Iterable[tuple]:
        import tensorflow as tf

        for chosen in tf.split(_permutation(sum(counts)), counts):
            yield (*self.arrays, chosen)


def _loss_function(model, task: Task) -> Callable:
    """loss(x, y, predicted): the model's own, or against float64 targets the same function in float64. Keras's own would
    take the targets to float32 first."""
    if task.row.keras.targets == "float32":
        return lambda x, y, predicted: model.compute_loss(x, y, predicted)
    import keras

    function = keras.losses.get(model.loss if task.network is None else task.network.loss)
    return lambda x, y, predicted: keras.ops.mean(function(y, keras.ops.cast(predicted, "float64")))
