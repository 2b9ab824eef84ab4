"""Training without model.fit: code shared by bare loops, an epoch as one tf.function, a loop over one. JAX's is in jax_loop."""

import dataclasses
import functools
import itertools
import time
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from workloads.frameworks import tensors
from workloads.frameworks.trainers import Built, Fitted, Task, Trainer, built, finite, placed

STRETCH_S = 0.05  # epochs that are stamped are waited for this often: shorter ones run on as they do unstamped


class Stamps:
    """Seconds of epochs without waiting for each. The first is waited for, and any that ends STRETCH_S after the last wait;
    those between two waits share the time evenly, so queued work never counts as done."""

    def __init__(self, wait: Callable[[], object]):
        self.seconds: list[float] = []
        self._wait, self._ended, self._since = wait, 0, time.perf_counter()

    def epoch_ended(self, last: bool = False) -> None:
        self._ended += 1
        if not (last or not self.seconds or time.perf_counter() - self._since > STRETCH_S):
            return
        self._wait()
        now = time.perf_counter()
        self.seconds += [(now - self._since) / self._ended] * self._ended
        self._ended, self._since = 0, now


def sizes(samples: int, batch: int) -> list[int]:
    """The sizes of an epoch's batches, in order; the last may be smaller."""
    return [min(batch, samples - begin) for begin in range(0, samples, batch)]


@dataclasses.dataclass(frozen=True)
class Steps:
    """A bare loop's work: `run(*batch)` does a step and gives its loss, still on the device; `wait` waits for all of them;
    `read` brings losses over."""

    run: Callable
    wait: Callable
    read: Callable

    def fit(self, batches: Callable[[], Iterable[tuple]], weights: list[int], epochs: int, stamped: bool) -> Fitted:
        """A fit as people write it: a step for each of `batches()`, epoch after epoch, no waiting in between.

        Keras's mean of an epoch is that of its losses, each weighted by its batch's samples. A bare loop keeps no accuracy.
        """
        losses, stamps = [], Stamps(self.wait)
        for epoch in range(epochs):
            losses += [self.run(*batch) for batch in batches()]
            if stamped:
                stamps.epoch_ended(epoch == epochs - 1)
        self.wait()
        means = np.average(np.reshape(self.read(losses), (epochs, len(weights))), axis=1, weights=weights)
        return Fitted(finite(means), (), tuple(stamps.seconds))


def cut(x: np.ndarray, y: np.ndarray, counts: list[int], rng: np.random.Generator | None) -> Iterator[tuple]:
    """Batches of that many samples out of arrays of the host, one after the other or, with `rng`, shuffled."""
    order = None if rng is None or len(counts) == 1 else rng.permutation(sum(counts))
    for begin, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
        part = slice(begin, end) if order is None else order[begin:end]
        yield x[part], y[part]


def cut_once(kept: dict[tuple[int, int], tuple], x, y, counts: list[int]) -> list[tuple]:
    """The batches of that many samples, cut out of arrays of the device when they are first asked for."""
    parts = list(itertools.pairwise([0, *itertools.accumulate(counts)]))
    kept |= {(begin, end): (x[begin:end], y[begin:end]) for begin, end in parts if (begin, end) not in kept}
    return [kept[part] for part in parts]


def residence_of(task: Task, residences: tuple[str, ...]) -> str:
    """The row's residence, the first of these where it names none.

    Raises: ValueError for switches that no loop has.
    """
    chosen, given, kernel = task.row.keras, task.row.settings.switches, task.row.kernel
    residence = given.get("residence", residences[0])
    if residence not in residences:
        raise ValueError(f"{kernel} has its samples {' or '.join(residences)}, not {residence}")
    if chosen.steps_per_execution != 1:
        raise ValueError(f"steps_per_execution is model.fit's; {kernel} decides by itself how many steps a call does")
    spread = task.row.experiment
    if spread.strategy != "none" or spread.replicas > 1:
        raise ValueError(f"strategy and replicas are model.fit's; {kernel} trains on one device")
    backend = "jax" if kernel.split("/")[1] == "jax" else "tensorflow"
    if given.get("keras_backend", backend) != backend:
        raise ValueError(f"{kernel} runs on {backend}, not on {chosen.keras_backend}")
    return residence


def _waiter(task: Task) -> Callable[[], object]:
    """The call that waits for TensorFlow's work; on the CPU a call returns when it is done."""
    import tensorflow

    return tensorflow.test.experimental.sync_devices if task.row.on_gpu else lambda: None


def _on_device(task: Task, *arrays: np.ndarray) -> tuple:
    return tensors.place(arrays, f"/{task.row.side}:0")


def _kept_on_device(task: Task) -> tuple:
    """(x, y) on the row's device. Classes as int64: TensorFlow leaves int32 in the host's memory, and each step would copy."""
    y = task.y
    return _on_device(task, task.x, y.astype(np.int64) if np.issubdtype(y.dtype, np.integer) else y)


def _permutation(samples: int):
    """The whole numbers below `samples` in random order, as a tensor made where the row's work is done."""
    import tensorflow

    return tensorflow.cast(tensorflow.argsort(tensorflow.random.uniform((samples,))), "int64")


def _read_tensors(scalars: list) -> np.ndarray:
    import tensorflow

    return np.concatenate([tensorflow.stack(scalars[i : i + 1024]).numpy() for i in range(0, len(scalars), 1024)])


def resident(task: Task) -> Trainer:
    """The whole set on the device; one tf.function does an epoch: a loop over tf.range, in it the model's own train_step on
    a batch cut out of the set (gathered by a permutation when it is shuffled), and the smaller last batch after it."""
    residence_of(task, ("resident",))
    import tensorflow as tf

    made = built(task)
    model, batch, shuffle = made.model, task.row.problem.batch, task.row.keras.shuffle == "on"
    held = len(task.x)
    with placed(task.row):
        x, y = _kept_on_device(task)
        (in_order,) = _on_device(task, np.arange(held))
        _make_metrics(model, x[:1], y[:1])
    wait = _waiter(task)

    @functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
    def epoch(x, y, permutation, first, steps, last: int):
        """Steps first ... first + steps - 1 and, where `last` is not 0, one over so many samples behind them."""
        model.reset_metrics()

        def train(step, count: int):
            def cut(values):
                if shuffle:
                    # a slice of known size, as XLA needs
                    return tf.gather(values, tf.slice(permutation, (step * batch,), (count,)))
                return tf.slice(values, (step * batch, *(0 for _ in values.shape[1:])), (count, *values.shape[1:]))

            model.train_step(
                (tf.ensure_shape(cut(x), (count, *x.shape[1:])), tf.ensure_shape(cut(y), (count, *y.shape[1:])))
            )
            return (step + 1,)

        (step,) = tf.while_loop(lambda step: step < first + steps, lambda step: train(step, batch), (first,))
        if last:
            train(step, last)
        return model.get_metrics_result()

    def one_epoch(samples: int, first: int = 0, steps: int | None = None) -> dict:
        steps, last = (samples // batch, samples % batch) if steps is None else (steps, 0)
        permutation = in_order
        if shuffle and samples > batch:  # the order within one batch changes nothing
            permutation = tf.concat([_permutation(samples), in_order[samples:]], 0)
        return epoch(x, y, permutation, tf.constant(first), tf.constant(steps), last)

    def fit(samples: int, epochs: int, stamped: bool = False) -> Fitted:
        results, stamps = [], Stamps(wait)
        with placed(task.row):
            for i in range(epochs):
                results.append(one_epoch(samples))
                if stamped:
                    stamps.epoch_ended(i == epochs - 1)
            wait()
            columns = {name: _read_tensors([result[name] for result in results]) for name in results[0]}
        accuracies = next((columns[name] for name in columns if name.endswith("accuracy")), ())
        return Fitted(finite(columns["loss"]), tuple(map(float, accuracies)), tuple(stamps.seconds))

    def step_losses(count: int) -> list[float]:
        with placed(task.row):
            return [float(one_epoch(held, i, 1)["loss"]) for i in range(min(count, held // batch))]

    return made.trainer(fit, step_losses)


def _make_metrics(model, x, y) -> None:
    """Makes the variables of the model's metrics, which Keras makes when it first sees what they take: none may be made in a
    tf.function."""
    predicted = model(x, training=False)
    model.compute_loss(x, y, predicted)
    model.compute_metrics(x, y, predicted)
    model.reset_metrics()


def tensorflow_loop(task: Task) -> Trainer:
    """A bare Python loop over one tf.function: tape, gradients, the Keras optimizer. `resident`: the batches lie on the
    device, or are gathered there in shuffled order; `fed`: each step is given arrays of the host."""
    residence = residence_of(task, ("resident", "fed"))
    import tensorflow as tf

    made = built(task)
    model, optimizer, loss_of = made.model, made.model.optimizer, _loss(made.model, task)

    def body(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y, model(x, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    compiled = functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
    step = compiled(body)
    shuffled_step = compiled(lambda x, y, chosen: body(tf.gather(x, chosen), tf.gather(y, chosen)))

    if residence == "fed":
        arrays = task.x, task.y

        def run(x, y, *chosen):
            return step(*_on_device(task, x, y))
    else:
        with placed(task.row):
            arrays = _kept_on_device(task)

        def run(x, y, *chosen):
            return shuffled_step(x, y, *chosen) if chosen else step(x, y)

    def shuffled(counts: list[int]):
        return ((*arrays, chosen) for chosen in tf.split(_permutation(sum(counts)), counts))

    return bare(task, made, arrays, shuffled, Steps(run, _waiter(task), _read_tensors))


def bare(task: Task, made: Built, arrays: tuple, shuffled: Callable, steps: Steps) -> Trainer:
    """The Trainer of a bare loop.

    Args:
        arrays: the samples, on the host where each step is fed. shuffled(counts): batches of that many samples out of samples of
        the device in shuffled order.
    """
    batch, shuffle = task.row.problem.batch, task.row.keras.shuffle == "on"
    rng = np.random.default_rng(task.seed) if shuffle else None
    kept: dict[tuple[int, int], tuple] = {}
    x, y = arrays

    def batches(samples: int) -> Iterable[tuple]:
        counts = sizes(samples, batch)
        if isinstance(x, np.ndarray):
            return cut(x, y, counts, rng)
        return shuffled(counts) if shuffle and len(counts) > 1 else cut_once(kept, x, y, counts)

    def fit(samples: int, epochs: int, stamped: bool = False) -> Fitted:
        with placed(task.row):
            return steps.fit(lambda: batches(samples), sizes(samples, batch), epochs, stamped)

    def step_losses(count: int) -> list[float]:
        with placed(task.row):
            return [float(steps.run(*part)) for part in batches(min(count, len(task.x) // batch) * batch)]

    return made.trainer(fit, step_losses)


def _loss(model, task: Task) -> Callable:
    """loss(x, y, predicted): the model's own, or against float64 targets the same function in float64. Keras's own would
    take the targets to float32 first."""
    if task.row.keras.targets == "float32":
        return lambda x, y, predicted: model.compute_loss(x, y, predicted)
    import keras

    function = keras.losses.get(model.loss if task.network is None else task.network.loss)
    return lambda x, y, predicted: keras.ops.mean(function(y, keras.ops.cast(predicted, "float64")))
