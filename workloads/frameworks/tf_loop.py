"""Training without model.fit: an epoch as one tf.function, a bare loop over one step, and what bare loops of all libraries
share."""

import abc
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from workloads.frameworks import tensors
from workloads.frameworks.trainers import Fitted, KerasTrainer, Task, accuracies, finite, on_row_device

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

STRETCH_S = 0.05  # epochs that are stamped are waited for this often: shorter ones run on as they do unstamped
_READ_AT_ONCE = 1024  # numbers of a device that are copied to the host in one call


class LoopStamps:
    """Seconds of epochs, without waiting for the device after each of them, which would slow short ones down.

    The device is waited for after the first epoch, after the last, and after any that ends STRETCH_S after the wait before. The
    epochs between two waits get equal shares of that time, so that queued work never counts as done.
    """

    def __init__(self, wait: Callable[[], object]):
        """wait: a call that returns when the device has done all work."""
        #: Seconds of each epoch up to the last wait.
        self.seconds: list[float] = []
        self._wait = wait
        self._epochs_since_wait = 0
        self._last_wait = time.perf_counter()

    def epoch_ended(self, last: bool = False) -> None:
        """To be called when the steps of an epoch have been started. last: whether no epoch follows."""
        self._epochs_since_wait += 1
        is_long_ago = time.perf_counter() - self._last_wait > STRETCH_S
        is_first = not self.seconds
        if not (last or is_first or is_long_ago):
            return
        self._wait()
        now = time.perf_counter()
        epoch_s = (now - self._last_wait) / self._epochs_since_wait
        self.seconds += [epoch_s] * self._epochs_since_wait
        self._epochs_since_wait = 0
        self._last_wait = now


def batch_sizes(samples: int, batch: int) -> list[int]:
    """The numbers of samples of an epoch's batches, in order: `batch` each, the last one may be smaller."""
    return [min(batch, samples - begin) for begin in range(0, samples, batch)]


def cut(
    x: np.ndarray, y: np.ndarray, counts: list[int], rng: np.random.Generator | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Batches (x, y) of arrays on the host. counts: samples of each batch. rng: where given, they are drawn in random order.

    The order within a single batch changes nothing, so that one is not shuffled.
    """
    order = None if rng is None or len(counts) == 1 else rng.permutation(sum(counts))
    for begin, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
        part = slice(begin, end) if order is None else order[begin:end]
        yield x[part], y[part]


def require_residence(task: Task, residences: tuple[str, ...]) -> str:
    """Where the samples are that the row's loop trains on: what its option `residence` says, else the first of `residences`.

    Raises: ValueError for a residence that is not among these, and for other options of the row that only model.fit has.
    """
    kernel = task.row.kernel
    switches = task.row.settings.switches
    options = task.row.keras
    experiment = task.row.experiment
    residence = switches.get("residence", residences[0])
    if residence not in residences:
        raise ValueError(f"{kernel} has its samples {' or '.join(residences)}, not {residence}")
    if options.steps_per_execution != 1:
        raise ValueError(f"steps_per_execution is model.fit's; {kernel} decides by itself how many steps a call does")
    if experiment.strategy != "none" or experiment.replicas > 1:
        raise ValueError(f"strategy and replicas are model.fit's; {kernel} trains on one device")
    backend = "jax" if task.row.backend == "jax" else "tensorflow"
    if switches.get("keras_backend", backend) != backend:
        raise ValueError(f"{kernel} runs on {backend}, not on {options.keras_backend}")
    return residence


# ---------------------------------------------------------------- TensorFlow


def _wait_function(task: Task) -> Callable[[], object]:
    """A function that returns when TensorFlow's device has done all work; on the CPU each call has waited already."""
    import tensorflow

    return tensorflow.test.experimental.sync_devices if task.row.on_gpu else lambda: None


def _on_device(task: Task, *arrays: np.ndarray) -> "tuple[tf.Tensor, ...]":
    """The arrays as tensors in the memory of the row's device."""
    return tensors.place(arrays, f"/{task.row.side}:0")


def _samples_on_device(task: Task) -> "tuple[tf.Tensor, ...]":
    """All samples and targets, (x, y), in the memory of the row's device.

    Classes become int64: TensorFlow leaves int32 in the host's memory, and each step would copy them.
    """
    y = task.y
    if np.issubdtype(y.dtype, np.integer):
        y = y.astype(np.int64)
    return _on_device(task, task.x, y)


def _permutation(samples: int) -> "tf.Tensor":
    """The whole numbers below `samples` in random order, as an int64 tensor on the device whose scope this is called in."""
    import tensorflow

    return tensorflow.cast(tensorflow.argsort(tensorflow.random.uniform((samples,))), "int64")


def _read_tensors(scalars: "list[tf.Tensor]") -> np.ndarray:
    """The values of numbers on the device, copied to the host _READ_AT_ONCE at a time."""
    import tensorflow

    parts = []
    for begin in range(0, len(scalars), _READ_AT_ONCE):
        parts.append(tensorflow.stack(scalars[begin : begin + _READ_AT_ONCE]).numpy())
    return np.concatenate(parts)


def _create_metrics(model: "keras.Model", x: "tf.Tensor", y: "tf.Tensor") -> None:
    """Has Keras create the variables of the model's metrics, which it does when it first computes them. x, y: any samples.

    It is done before the epoch's tf.function is traced, in which no variable may be created.
    """
    predicted = model(x, training=False)
    model.compute_loss(x, y, predicted)
    model.compute_metrics(x, y, predicted)
    model.reset_metrics()


def _epoch_function(model: "keras.Model", batch: int, *, shuffle: bool) -> Callable:
    """A tf.function (x, y, permutation, first, steps, last) that trains a part of an epoch and returns the model's metrics.

    x, y: all samples. permutation: their order where `shuffle`. It does the steps number `first` to `first + steps - 1` of
    `batch` samples each and, where `last` is not 0, a step over the `last` samples behind them.
    """
    import tensorflow as tf

    def batch_of(values: "tf.Tensor", permutation: "tf.Tensor", step: "tf.Tensor", count: int) -> "tf.Tensor":
        """The `count` samples of a step: a slice of known size, as XLA needs."""
        if shuffle:
            taken = tf.gather(values, tf.slice(permutation, (step * batch,), (count,)))
        else:
            begin = (step * batch, *(0 for _ in values.shape[1:]))
            taken = tf.slice(values, begin, (count, *values.shape[1:]))
        return tf.ensure_shape(taken, (count, *values.shape[1:]))

    @functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
    def epoch(
        x: "tf.Tensor", y: "tf.Tensor", permutation: "tf.Tensor", first: "tf.Tensor", steps: "tf.Tensor", last: int
    ) -> "dict[str, tf.Tensor]":
        """Trains whole batches from step `first` on, then a batch of `last` samples if that is not 0; the model's metrics."""
        model.reset_metrics()

        def train(step: "tf.Tensor", count: int) -> "tuple[tf.Tensor]":
            """Trains step number `step` on `count` samples; the number of the next step, as a loop's body returns it."""
            model.train_step((batch_of(x, permutation, step, count), batch_of(y, permutation, step, count)))
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
        with on_row_device(task.row):
            self._x, self._y = _samples_on_device(task)
            (self._in_order,) = _on_device(task, np.arange(len(task.x)))
            _create_metrics(self.model, self._x[:1], self._y[:1])
        self._wait = _wait_function(task)
        self._epoch = _epoch_function(self.model, self._batch, shuffle=self._shuffle)

    def _run(self, samples: int, *, first: int, steps: int, last: int) -> "dict[str, tf.Tensor]":
        """Trains a part of an epoch over the first `samples` samples; the model's metrics after it, on the device.

        first: the number of its first step. steps: how many whole batches. last: samples of a smaller batch behind them; 0 for
        none.
        """
        import tensorflow as tf

        permutation = self._in_order
        if self._shuffle and samples > self._batch:  # the order within one batch changes nothing
            permutation = tf.concat([_permutation(samples), self._in_order[samples:]], 0)
        return self._epoch(self._x, self._y, permutation, tf.constant(first), tf.constant(steps), last)

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> Fitted:
        """Runs epoch after epoch without waiting in between, then reads the metrics of all of them from the device."""
        results = []
        stamps = LoopStamps(self._wait)
        steps, last_batch = divmod(samples, self._batch)
        with on_row_device(self.task.row):
            for epoch in range(epochs):
                results.append(self._run(samples, first=0, steps=steps, last=last_batch))
                if stamped:
                    stamps.epoch_ended(last=epoch == epochs - 1)
            self._wait()
            metrics = {}
            for name in results[0]:
                metrics[name] = _read_tensors([result[name] for result in results])
        return Fitted(losses=finite(metrics["loss"]), accuracies=accuracies(metrics), epochs_s=tuple(stamps.seconds))

    def step_losses(self, count: int) -> list[float]:
        """The loss of each of the next steps, at most `count` and not more than whole batches in an epoch."""
        samples = len(self.task.x)
        losses = []
        with on_row_device(self.task.row):
            for step in range(min(count, samples // self._batch)):
                metrics = self._run(samples, first=step, steps=1, last=0)  # no smaller batch behind the step
                losses.append(float(metrics["loss"]))
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
        #: (index of a batch's first sample, index behind its last) -> the batch (x, y) on the device.
        self._batches_on_device: dict[tuple[int, int], tuple] = {}

    @abc.abstractmethod
    def step(self, *batch: Any) -> Any:
        """Does a training step and returns its loss, still on the device. batch: one of what `batches` gives."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Returns when the device has done all steps."""

    @abc.abstractmethod
    def read(self, losses: list) -> np.ndarray:
        """The values of losses on the device, copied to the host."""

    @abc.abstractmethod
    def shuffled_batches(self, counts: list[int]) -> Iterable[tuple]:
        """What `step` takes for each batch of an epoch over samples on the device in random order: all samples x and y, and which
        of them. counts: samples of each batch."""

    def batches(self, counts: list[int]) -> Iterable[tuple]:
        """What `step` takes for each batch of an epoch: (x, y), or (all x, all y, which of them) where samples on the device are
        shuffled. counts: samples of each batch."""
        x, y = self.arrays
        if self.residence == "fed":  # each step takes arrays of the host
            return cut(x, y, counts, self._rng)
        if self._shuffle and len(counts) > 1:
            return self.shuffled_batches(counts)
        return self._ordered_batches(counts)

    def _ordered_batches(self, counts: list[int]) -> list[tuple]:
        """Batches (x, y) of samples on the device in their order. Each is cut out once and stays on the device for later epochs.
        counts: samples of each batch."""
        x, y = self.arrays
        batches = []
        for begin, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
            if (begin, end) not in self._batches_on_device:
                self._batches_on_device[begin, end] = (x[begin:end], y[begin:end])
            batches.append(self._batches_on_device[begin, end])
        return batches

    def fit(self, samples: int, epochs: int, stamped: bool = False) -> Fitted:
        """Does a step for each batch, epoch after epoch, without waiting in between. An epoch's loss is computed as Keras does:
        the mean of its batches' losses, weighted by their samples."""
        counts = batch_sizes(samples, self._batch)
        with on_row_device(self.task.row):
            losses: list = []
            stamps = LoopStamps(self.wait)
            for epoch in range(epochs):
                losses += [self.step(*batch) for batch in self.batches(counts)]
                if stamped:
                    stamps.epoch_ended(last=epoch == epochs - 1)
            self.wait()
            by_epoch = np.reshape(self.read(losses), (epochs, len(counts)))
        means = np.average(by_epoch, axis=1, weights=counts)
        return Fitted(losses=finite(means), epochs_s=tuple(stamps.seconds))

    def step_losses(self, count: int) -> list[float]:
        steps = min(count, len(self.task.x) // self._batch)
        with on_row_device(self.task.row):
            return [float(self.step(*batch)) for batch in self.batches([self._batch] * steps)]


class TensorFlowLoop(BareLoop):
    """One tf.function a step: tape, gradients, the Keras optimizer."""

    def __init__(self, task: Task):
        super().__init__(task)
        import tensorflow as tf

        model = self.model
        loss_function = _loss_function(model, task)

        def step(x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
            """Trains on a batch and returns its loss."""
            with tf.GradientTape() as tape:
                loss = loss_function(x, y, model(x, training=True))
                scaled = model.optimizer.scale_loss(loss)  # mixed_float16 scales it, so that no gradient underflows
            model.optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
            return loss

        def step_on_chosen(x: tf.Tensor, y: tf.Tensor, chosen: tf.Tensor) -> tf.Tensor:
            return step(tf.gather(x, chosen), tf.gather(y, chosen))

        compiled = functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
        self._step = compiled(step)
        self._step_on_chosen = compiled(step_on_chosen)
        self._wait = _wait_function(task)
        if self.residence == "fed":  # each step takes arrays of the host
            self.arrays = (task.x, task.y)
        else:
            with on_row_device(task.row):
                self.arrays = _samples_on_device(task)

    def step(self, x: Any, y: Any, *chosen: "tf.Tensor") -> "tf.Tensor":
        """Does a training step and returns its loss, on the device.

        x, y: the batch; or all samples where the indices of the batch's follow. Arrays of the host are copied to the device
        first.
        """
        if self.residence == "fed":  # the arrays are on the host
            return self._step(*_on_device(self.task, x, y))
        if chosen:
            return self._step_on_chosen(x, y, *chosen)
        return self._step(x, y)

    def wait(self) -> None:
        self._wait()

    def read(self, losses: list) -> np.ndarray:
        return _read_tensors(losses)

    def shuffled_batches(self, counts: list[int]) -> Iterable[tuple]:
        import tensorflow as tf

        for chosen in tf.split(_permutation(sum(counts)), counts):
            yield (*self.arrays, chosen)


def _loss_function(model: "keras.Model", task: Task) -> Callable:
    """The model's loss as a function of (x, y, predicted).

    Where the row wants float64 targets the loss is computed in float64; Keras's own would convert the targets to float32 first.
    """
    if task.row.keras.targets == "float32":
        return lambda x, y, predicted: model.compute_loss(x, y, predicted)
    import keras

    function = keras.losses.get(model.loss if task.network is None else task.network.loss)
    return lambda x, y, predicted: keras.ops.mean(function(y, keras.ops.cast(predicted, "float64")))
