"""Three ways of training without model.fit: an epoch as one tf.function, a bare loop over a tf.function, one over a JAX step."""

import functools
import itertools
import time
from collections.abc import Callable, Iterable

import numpy as np

from workloads import dense
from workloads.tensors import timed
from workloads.trainers import Built, Fitted, Order, Trainer, built, finite, placed

STRETCH_S = 0.05  # epochs that are stamped are waited for this often: shorter ones run on as they do unstamped


class Stamps:
    """Seconds of epochs whose end nobody need wait for. The first is waited for, and any that ends STRETCH_S after the last
    wait; those in between share the time, so that work that is still queued is never taken for work done."""

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


def looped(order: Order, batches: Callable[[int], Iterable[tuple]], step: Callable, wait: Callable, read: Callable,
           samples: int, epochs: int, stamped: bool = False) -> Fitted:  # fmt: skip
    """A fit as people write it: `step(*batch)` for each of `batches(samples)`, epoch after epoch, no waiting in between.

    A step gives its loss, still on the device; `read` brings them over at the end, and Keras's mean of an epoch is theirs,
    each weighted by its batch's samples. A bare loop keeps no accuracy.
    """
    losses, stamps = [], Stamps(wait)
    for epoch in range(epochs):
        for batch in batches(samples):
            losses.append(step(*batch))
        if stamped:
            stamps.epoch_ended(epoch == epochs - 1)
    wait()
    weights = sizes(samples, order.row.problem.batch)
    means = np.average(np.reshape(read(losses), (epochs, len(weights))), axis=1, weights=weights)
    return Fitted(finite(means), (), tuple(stamps.seconds))


def _cut_once(kept: dict[tuple[int, int], tuple], x, y, counts: list[int]) -> list[tuple]:
    """The batches of that many samples, cut out of arrays of the device when they are first asked for."""
    parts = list(itertools.pairwise([0, *itertools.accumulate(counts)]))
    kept |= {(begin, end): (x[begin:end], y[begin:end]) for begin, end in parts if (begin, end) not in kept}
    return [kept[part] for part in parts]


def _require(order: Order, residences: tuple[str, ...]) -> str:
    """The row's residence, the first of these where it names none.

    Raises: ValueError for switches that no loop has.
    """
    chosen, given, kernel = order.switches, order.row.settings.switches, order.row.kernel
    residence = given.get("residence", residences[0])
    if residence not in residences:
        raise ValueError(f"{kernel} has its samples {' or '.join(residences)}, not {residence}")
    if chosen["steps_per_execution"] != "1":
        raise ValueError(f"steps_per_execution is model.fit's; {kernel} decides by itself how many steps a call does")
    backend = "jax" if kernel.split("/")[1] == "jax" else "tensorflow"
    if given.get("keras_backend", backend) != backend:
        raise ValueError(f"{kernel} runs on {backend}, not on {chosen['keras_backend']}")
    return residence


def _numbers(order: Order) -> tuple[np.ndarray, np.ndarray]:
    """The samples; a regression's targets in the type that the row says.

    Raises: ValueError for classes in another type.
    """
    x, y, wanted = order.x, order.y, order.switches["targets"]
    if np.issubdtype(y.dtype, np.floating) and y.shape[-1] == 1:
        return x, y.astype(wanted, copy=False)
    if wanted != "float32":
        raise ValueError("only the targets of a regression can be float64; classes are whole numbers")
    return x, y


# ---------------------------------------------------------------- TensorFlow


def _waiter(order: Order) -> Callable[[], object]:
    """What waits for TensorFlow's work: on the CPU a call returns when it is done."""
    import tensorflow

    return tensorflow.test.experimental.sync_devices if order.row.settings.device != "cpu" else lambda: None


def _on_device(order: Order, *arrays: np.ndarray) -> tuple:
    """The arrays as tensors on the row's device."""
    import tensorflow

    with tensorflow.device("/CPU:0" if order.row.settings.device == "cpu" else "/GPU:0"):
        return tuple(tensorflow.identity(tensorflow.constant(array)) for array in arrays)


def _mixed(samples: int):
    """The whole numbers below `samples` in random order, as a tensor made where the row's work is done."""
    import tensorflow

    return tensorflow.argsort(tensorflow.random.uniform((samples,)))


def _read_tensors(scalars: list) -> np.ndarray:
    import tensorflow

    return np.concatenate([tensorflow.stack(scalars[i : i + 1024]).numpy() for i in range(0, len(scalars), 1024)])


def resident(order: Order) -> Trainer:
    """The whole set on the device; one tf.function does an epoch: a loop over tf.range, in it the model's own train_step on
    a batch cut out of the set (gathered in mixed order when it is shuffled), and the smaller last batch after it."""
    _require(order, ("resident",))
    import tensorflow as tf

    made = built(order)
    model, batch, shuffle = made.model, order.row.problem.batch, order.switches["shuffle"] == "on"
    held = len(order.x)
    with placed(order.row):
        x, y = _on_device(order, *_numbers(order))
        (in_order,) = _on_device(order, np.arange(held, dtype=np.int32))
        _make_metrics(model, x[:1], y[:1])
    wait = _waiter(order)

    @functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
    def epoch(x, y, mixed, first, steps, last: int):
        """Steps first ... first + steps - 1 and, where `last` is not 0, one over so many samples behind them."""
        model.reset_metrics()

        def train(step, count: int):
            def cut(values):
                if shuffle:
                    return tf.gather(values, mixed[step * batch : step * batch + count])
                return tf.slice(values, (step * batch, *(0 for _ in values.shape[1:])), (count, *values.shape[1:]))

            model.train_step((tf.ensure_shape(cut(x), (count, *x.shape[1:])), tf.ensure_shape(cut(y), (count, *y.shape[1:]))))
            return (step + 1,)

        (step,) = tf.while_loop(lambda step: step < first + steps, lambda step: train(step, batch), (first,))
        if last:
            train(step, last)
        return model.get_metrics_result()

    def one_epoch(samples: int, first: int = 0, steps: int | None = None) -> dict:
        steps, last = (samples // batch, samples % batch) if steps is None else (steps, 0)
        mixed = in_order
        if shuffle and samples > batch:  # the order within one batch changes nothing
            mixed = tf.concat([_mixed(samples), in_order[samples:]], 0)
        return epoch(x, y, mixed, tf.constant(first), tf.constant(steps), last)

    def fit(samples: int, epochs: int, stamped: bool = False) -> Fitted:
        results, stamps = [], Stamps(wait)
        with placed(order.row):
            for i in range(epochs):
                results.append(one_epoch(samples))
                if stamped:
                    stamps.epoch_ended(i == epochs - 1)
            wait()
            columns = {name: _read_tensors([result[name] for result in results]) for name in results[0]}
        accuracies = next((columns[name] for name in columns if name.endswith("accuracy")), ())
        return Fitted(finite(columns["loss"]), tuple(map(float, accuracies)), tuple(stamps.seconds))

    def step_losses(count: int) -> list[float]:
        with placed(order.row):
            return [float(one_epoch(held, i, 1)["loss"]) for i in range(min(count, held // batch))]

    return _trainer(made, fit, step_losses)


def _make_metrics(model, x, y) -> None:
    """Makes the variables of the model's metrics, which Keras makes when it first sees what they take: none may be made in a
    tf.function."""
    predicted = model(x, training=False)
    model.compute_loss(x, y, predicted)
    model.compute_metrics(x, y, predicted)
    model.reset_metrics()


def _trainer(made: Built, fit: Callable, step_losses: Callable) -> Trainer:
    return Trainer(fit, made.restore, made.values, made.notes, "weights", step_losses, made.wrong)


def tensorflow_loop(order: Order) -> Trainer:
    """A bare Python loop over one tf.function: tape, gradients, the Keras optimizer. `resident`: the batches lie on the
    device, or are gathered there in mixed order; `fed`: each step is given arrays of the host."""
    residence = _require(order, ("resident", "fed"))
    import tensorflow as tf

    made = built(order)
    model, problem, shuffle = made.model, order.row.problem, order.switches["shuffle"] == "on"
    optimizer, wait = model.optimizer, _waiter(order)
    host_x, host_y = _numbers(order)
    loss_of = _loss(model, order)

    def body(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(x, y, model(x, training=True))
            scaled = optimizer.scale_loss(loss)
        optimizer.apply(tape.gradient(scaled, model.trainable_variables), model.trainable_variables)
        return loss

    compiled = functools.partial(tf.function, autograph=False, jit_compile=model.jit_compile is True)
    step = compiled(body)
    gathering = compiled(lambda x, y, chosen: body(tf.gather(x, chosen), tf.gather(y, chosen)))

    if residence == "fed":
        rng = np.random.default_rng(order.seed)

        def batches(samples: int):
            return dense.cut(host_x, host_y, sizes(samples, problem.batch), rng if shuffle else None)

        def run(x, y):
            return step(*_on_device(order, x, y))
    else:
        with placed(order.row):
            x, y = _on_device(order, host_x, host_y)
        kept: dict[tuple[int, int], tuple] = {}

        def batches(samples: int):
            counts = sizes(samples, problem.batch)
            if shuffle and len(counts) > 1:
                return ((x, y, chosen) for chosen in tf.split(_mixed(samples), counts))
            return _cut_once(kept, x, y, counts)

        def run(x, y, *chosen):
            return gathering(x, y, *chosen) if chosen else step(x, y)

    def fit(samples: int, epochs: int, stamped: bool = False) -> Fitted:
        with placed(order.row):
            return looped(order, batches, run, wait, _read_tensors, samples, epochs, stamped)

    def step_losses(count: int) -> list[float]:
        samples = min(count * problem.batch, len(host_x) // problem.batch * problem.batch)
        with placed(order.row):
            return [float(run(*batch)) for batch in batches(samples)]

    return _trainer(made, fit, step_losses)


def _loss(model, order: Order) -> Callable:
    """loss(x, y, predicted): the model's own, or against float64 targets the same function in float64. Keras's own would
    take the targets to float32 first."""
    if order.switches["targets"] == "float32":
        return lambda x, y, predicted: model.compute_loss(x, y, predicted)
    import keras

    function = keras.losses.get(model.loss if order.network is None else order.network.loss)
    return lambda x, y, predicted: keras.ops.mean(function(y, keras.ops.cast(predicted, "float64")))


# ---------------------------------------------------------------- JAX


def jax_loop(order: Order) -> Trainer:
    """A bare Python loop over one jitted JAX step that is given its own state to overwrite. `resident`: the batches lie on
    the device, or are gathered there in mixed order; `fed`: each step is given arrays of the host."""
    residence, problem, chosen = _require(order, ("resident", "fed")), order.row.problem, order.switches
    if chosen["jit_compile"] == "off" or chosen["precision"] != "float32" or chosen["gpu"] == "visible":
        raise ValueError(f"{order.row.kernel} is always compiled, in float32, with the CPU chosen before JAX starts")
    network = dense.require(order.network, chosen["dropout"] == "off")
    import jax
    import jax.numpy as jnp

    host_x, host_y = _numbers(order)
    on_gpu, shuffle = order.row.settings.device != "cpu", chosen["shuffle"] == "on"
    jax.config.update("jax_enable_x64", "float64" in (str(host_x.dtype), str(host_y.dtype)))
    tf32 = on_gpu and chosen["tf32"] == "on"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest")
    device = jax.devices()[0]
    with timed(order.phases, "build"):
        weights = dense.weights(network, order.seed)
        update, step_of = dense.optimizer(network), dense.loss(network, jnp)

    def body(state, x, y):
        loss, gradients = jax.value_and_grad(step_of)(state["weights"], x, y)
        return update(state, gradients), loss

    step = jax.jit(body, donate_argnums=0)

    @functools.partial(jax.jit, donate_argnums=0)
    def mix(mixed, samples):
        """Begins an epoch: the whole numbers below `samples` in random order, then the rest."""
        key, used = jax.random.split(mixed["key"])
        draw = jax.random.uniform(used, (len(host_x),), jnp.float32)
        order = jnp.argsort(jnp.where(jnp.arange(len(host_x)) < samples, draw, jnp.float32(2))).astype(jnp.int32)
        return {"key": key, "order": order, "at": jnp.zeros((), jnp.int32)}

    @functools.partial(jax.jit, donate_argnums=(0, 1), static_argnums=4)
    def gathering(state, mixed, x, y, count: int):
        """A step over the next `count` of the mixed samples."""
        part = jax.lax.dynamic_slice(mixed["order"], (mixed["at"],), (count,))
        state, loss = body(state, x[part], y[part])
        return state, {**mixed, "at": mixed["at"] + count}, loss

    state: dict = {}
    mixed: dict = {}

    def restore() -> None:
        state.update(jax.device_put(dense.start(weights, network), device))
        mixed.update(jax.device_put({"key": jax.random.key(order.seed), "order": np.arange(len(host_x), dtype=np.int32),
                                     "at": np.int32(0)}, device))  # fmt: skip

    def stepped(x, y):
        fresh, loss = step(dict(state), x, y)
        state.update(fresh)
        return loss

    if residence == "fed":
        rng = np.random.default_rng(order.seed)

        def batches(samples: int):
            return dense.cut(host_x, host_y, sizes(samples, problem.batch), rng if shuffle else None)

        run = stepped
    else:
        x, y = jax.device_put((host_x, host_y), device)
        kept: dict[tuple[int, int], tuple] = {}
        counted: dict[int, jax.Array] = {}

        def batches(samples: int):
            counts = sizes(samples, problem.batch)
            if not shuffle or len(counts) == 1:
                return _cut_once(kept, x, y, counts)
            if samples not in counted:
                counted[samples] = jax.device_put(np.int32(samples), device)
            mixed.update(mix(dict(mixed), counted[samples]))
            return ((x, y, count) for count in counts)

        def run(x, y, *count):
            if not count:
                return stepped(x, y)
            fresh, moved, loss = gathering(dict(state), dict(mixed), x, y, *count)
            state.update(fresh)
            mixed.update(moved)
            return loss

    def wait() -> None:
        jax.block_until_ready(dict(state))

    def step_losses(count: int) -> list[float]:
        samples = min(count * problem.batch, len(host_x) // problem.batch * problem.batch)
        return [float(run(*batch)) for batch in batches(samples)]

    def fit(samples: int, epochs: int, stamped: bool = False) -> Fitted:
        return looped(order, batches, run, wait, dense.read, samples, epochs, stamped)

    restore()
    values = {"parameters": float(sum(w.size for pair in weights for w in pair)), "jit_compile": 1.0,
              "tf32": float(tf32)}  # fmt: skip
    notes = {"backend": f"jax {jax.__version__}"}
    return Trainer(fit, restore, values, notes, "first loss", step_losses, dense.wrong(network, weights, step_of, host_x, host_y))
