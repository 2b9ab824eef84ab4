"""A bare loop over one jitted step of a Keras model on JAX, whose state goes in and comes out: Keras's own way with JAX.

The article on small regressions (S4) trained so: TensorFlow's step is so much longer that it hides which device is faster on few
samples.
"""

import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from workloads.frameworks.tf_loop import BareLoop
from workloads.frameworks.trainers import Task

READ_AT_ONCE = 64


def read(scalars: list) -> np.ndarray:
    """Numbers of the device on the host, many in a copy: one by one each would cost a transfer call."""
    parts = []
    for begin in range(0, len(scalars), READ_AT_ONCE):
        part = scalars[begin : begin + READ_AT_ONCE]
        filling = [part[-1]] * (READ_AT_ONCE - len(part))  # always as many, so that it compiles once
        parts.append(np.asarray(_stack()(*part, *filling))[: len(part)])
    return np.concatenate(parts)


@functools.cache
def _stack():
    import jax

    return jax.jit(lambda *scalars: jax.numpy.stack(scalars))


class State(NamedTuple):
    """Everything that a step changes."""

    #: Arrays of the trainable variables.
    weights: list
    #: Arrays of the model's other variables.
    others: list
    #: Arrays of the optimizer's variables.
    slots: list


def _step_of(model, loss_function: Callable) -> Callable:
    """A training step as a function (state, x, y) -> (the state after it, the loss)."""
    import jax
    import keras

    def forward(weights, others, x, y):
        """(the loss, the other variables after it): `stateless_call`, the loss in its scope, as regularizers read weights."""
        weight_values = zip(model.trainable_variables, weights, strict=True)
        other_values = zip(model.non_trainable_variables, others, strict=True)
        with keras.StatelessScope([*weight_values, *other_values], collect_losses=True) as scope:
            loss = loss_function(x, y, model(x, training=True))
        return loss, [scope.get_current_value(variable) for variable in model.non_trainable_variables]

    def step(state: State, x, y):
        with_gradient = jax.value_and_grad(forward, has_aux=True)
        (loss, others), gradients = with_gradient(state.weights, state.others, x, y)
        weights, slots = model.optimizer.stateless_apply(state.slots, gradients, state.weights)
        return State(weights=weights, others=others, slots=slots), loss

    return step


def _arrays(variables: list) -> list:
    return [variable.value for variable in variables]


def _squared_error(x, y, predicted):
    """The loss of a regression against float64 targets: Keras on JAX would take its mean in float32."""
    return ((y - predicted.astype(y.dtype)) ** 2).mean()


class JaxLoop(BareLoop):
    """A bare Python loop over one jitted step that overwrites its state: weights, other variables, optimizer's.

    Source: keras.io, Writing a training loop from scratch in JAX.
    """

    def __init__(self, task: Task):
        chosen = task.row.keras
        if chosen.jit_compile == "off" or chosen.precision != "float32" or chosen.gpu == "visible":
            raise ValueError(f"{task.row.kernel} is always compiled, in float32, with the CPU chosen before JAX starts")
        super().__init__(task)
        import jax

        host = (task.x, task.y)
        jax.config.update("jax_enable_x64", "float64" in (str(task.x.dtype), str(task.y.dtype)))
        self._device = jax.devices()[0]
        loss_function = _squared_error if chosen.targets == "float64" else self.model.compute_loss
        step = _step_of(self.model, loss_function)
        self._step = jax.jit(step, donate_argnums=0)
        self._shuffled_step = _shuffled_step_of(step)
        self._shuffle_epoch = _shuffle_of(len(task.x))
        self.arrays = host if self.residence == "fed" else jax.device_put(host, self._device)
        self.restore()

    def restore(self) -> None:
        super().restore()
        import jax

        state = State(
            weights=_arrays(self.model.trainable_variables),
            others=_arrays(self.model.non_trainable_variables),
            slots=_arrays(self.model.optimizer.variables),
        )
        self._state = jax.tree.map(jax.numpy.copy, state)  # a step overwrites them
        # the key of the random numbers, the samples' order, how many of them are used
        order = {
            "key": jax.random.key(self.task.seed),
            "order": np.arange(len(self.task.x), dtype=np.int32),
            "at": np.int32(0),
        }
        self._order = jax.device_put(order, self._device)

    def step(self, x: Any, y: Any, *count: int) -> Any:
        if count:
            self._state, self._order, loss = self._shuffled_step(self._state, self._order, x, y, *count)
        else:
            self._state, loss = self._step(self._state, x, y)
        return loss

    def wait(self) -> None:
        import jax

        jax.block_until_ready(self._state)

    def read(self, losses: list) -> np.ndarray:
        return read(losses)

    def shuffled_batches(self, counts: list[int]) -> Iterator[tuple]:
        self._order = self._shuffle_epoch(self._order, sum(counts))
        x, y = self.arrays
        for count in counts:
            yield x, y, count


def _shuffle_of(every_sample: int) -> Callable:
    """A jitted function (order, samples) that begins an epoch: the whole numbers below `samples` in random order, then the
    rest."""
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, donate_argnums=0, static_argnums=1)
    def shuffle(order, samples: int):
        key, used = jax.random.split(order["key"])
        shuffled = jax.random.permutation(used, samples)
        numbers = jnp.concatenate([shuffled, jnp.arange(samples, every_sample)])
        return {"key": key, "order": numbers.astype(jnp.int32), "at": jnp.zeros((), jnp.int32)}

    return shuffle


def _shuffled_step_of(step: Callable) -> Callable:
    """A jitted function (state, order, x, y, count): a step over the next `count` of the shuffled samples."""
    import jax

    @functools.partial(jax.jit, donate_argnums=(0, 1), static_argnums=4)
    def shuffled_step(state, order, x, y, count: int):
        part = jax.lax.dynamic_slice(order["order"], (order["at"],), (count,))
        state, loss = step(state, x[part], y[part])
        return state, {**order, "at": order["at"] + count}, loss

    return shuffled_step
