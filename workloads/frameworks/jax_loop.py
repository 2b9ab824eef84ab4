"""A bare loop over one jitted step of a Keras model on JAX, whose state goes in and comes out: Keras's own way with JAX.

The article on small regressions (S4) trained so: TensorFlow's step is so much longer that it hides which device is faster on few
samples.
"""

import functools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from workloads.frameworks.tf_loop import BareLoop
from workloads.frameworks.trainers import Task

if TYPE_CHECKING:
    import jax
    import keras

READ_AT_ONCE = 64  # numbers of the device that are copied to the host in one call


def read(scalars: "list[jax.Array]") -> np.ndarray:
    """The values of numbers on the device, copied to the host READ_AT_ONCE at a time: one by one each would cost a transfer."""
    parts = []
    for begin in range(0, len(scalars), READ_AT_ONCE):
        part = scalars[begin : begin + READ_AT_ONCE]
        filling = [part[-1]] * (READ_AT_ONCE - len(part))  # always as many arguments, so that it is compiled once
        stacked = _stack_function()(*part, *filling)
        parts.append(np.asarray(stacked)[: len(part)])
    return np.concatenate(parts)


@functools.cache
def _stack_function() -> "Callable[..., jax.Array]":
    """A compiled function of numbers on the device that gives one array of them; compiled once for each number of arguments."""
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


class SampleOrder(NamedTuple):
    """In which order an epoch takes the samples, and how far it is. All on the device."""

    #: The key of JAX's random numbers, from which the next epoch's order is drawn.
    key: Any
    #: Indices of all samples.
    indices: Any
    #: How many of these have been taken.
    taken: Any


def _step_function(model: "keras.Model", loss_function: Callable) -> Callable:
    """A training step as a function of JAX: (state, x, y) -> (the State after it, the loss).

    It changes nothing: all variables go in and come out. loss_function(x, y, predicted): the loss of a batch.
    """
    import jax
    import keras

    def forward(weights: list, others: list, x: "jax.Array", y: "jax.Array") -> "tuple[jax.Array, list]":
        """The loss of a batch, and the values of the model's untrained variables after it.

        The loss is computed inside Keras's scope too, since regularizers read the weights.
        """
        weight_values = zip(model.trainable_variables, weights, strict=True)
        other_values = zip(model.non_trainable_variables, others, strict=True)
        with keras.StatelessScope([*weight_values, *other_values], collect_losses=True) as scope:
            loss = loss_function(x, y, model(x, training=True))
        return loss, [scope.get_current_value(variable) for variable in model.non_trainable_variables]

    def step(state: State, x: "jax.Array", y: "jax.Array") -> "tuple[State, jax.Array]":
        with_gradient = jax.value_and_grad(forward, has_aux=True)
        (loss, others), gradients = with_gradient(state.weights, state.others, x, y)
        weights, slots = model.optimizer.stateless_apply(state.slots, gradients, state.weights)
        return State(weights=weights, others=others, slots=slots), loss

    return step


def _arrays(variables: "list[keras.Variable]") -> "list[jax.Array]":
    return [variable.value for variable in variables]


def _squared_error(x: "jax.Array", y: "jax.Array", predicted: "jax.Array") -> "jax.Array":
    """The mean squared error of a regression in the type of its targets y: Keras on JAX would compute it in float32. x:
    unused."""
    return ((y - predicted.astype(y.dtype)) ** 2).mean()


class JaxLoop(BareLoop):
    """A bare Python loop over one jitted step that overwrites its state: weights, other variables, optimizer's.

    Source: keras.io, Writing a training loop from scratch in JAX.
    """

    def __init__(self, task: Task):
        """Raises ValueError for options of the row that JAX does not have."""
        options = task.row.keras
        if options.jit_compile == "off" or options.precision != "float32" or options.gpu == "visible":
            raise ValueError(f"{task.row.kernel} is always compiled, in float32, with the CPU chosen before JAX starts")
        super().__init__(task)
        import jax

        arrays_on_host = (task.x, task.y)
        jax.config.update("jax_enable_x64", "float64" in (str(task.x.dtype), str(task.y.dtype)))
        self._device = jax.devices()[0]
        loss_function = _squared_error if options.targets == "float64" else self.model.compute_loss
        step = _step_function(self.model, loss_function)
        self._step = jax.jit(step, donate_argnums=0)  # it may overwrite the state that it takes
        self._step_on_shuffled = _step_function_on_shuffled(step)
        self._shuffle_epoch = _shuffle_function(all_samples=len(task.x))
        self.arrays = arrays_on_host if self.residence == "fed" else jax.device_put(arrays_on_host, self._device)
        self.restore()

    def restore(self) -> None:
        """Sets the model, the order of the samples and their seed to what they were first, and copies the variables that steps
        overwrite."""
        super().restore()
        import jax

        state = State(
            weights=_arrays(self.model.trainable_variables),
            others=_arrays(self.model.non_trainable_variables),
            slots=_arrays(self.model.optimizer.variables),
        )
        self._state = jax.tree.map(jax.numpy.copy, state)  # a step overwrites them
        order = SampleOrder(
            key=jax.random.key(self.task.seed),
            indices=np.arange(len(self.task.x), dtype=np.int32),
            taken=np.int32(0),
        )
        self._order = jax.device_put(order, self._device)

    def step(self, x: "jax.Array", y: "jax.Array", *shuffled_count: int) -> "jax.Array":
        """Does a training step and returns its loss, on the device.

        x, y: the batch; or all samples where a number follows: then the batch is so many of them, the next in shuffled order.
        """
        if shuffled_count:
            self._state, self._order, loss = self._step_on_shuffled(self._state, self._order, x, y, *shuffled_count)
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


def _shuffle_function(all_samples: int) -> Callable:
    """A compiled function (order, samples) -> the SampleOrder of a new epoch over the first `samples` samples.

    These are in random order; those behind them, up to all_samples, are in their own and no epoch gets there.
    """
    import jax
    import jax.numpy as jnp

    @functools.partial(jax.jit, donate_argnums=0, static_argnums=1)
    def shuffle(order: SampleOrder, samples: int) -> SampleOrder:
        next_key, epoch_key = jax.random.split(order.key)
        shuffled = jax.random.permutation(epoch_key, samples)
        indices = jnp.concatenate([shuffled, jnp.arange(samples, all_samples)])
        return SampleOrder(key=next_key, indices=indices.astype(jnp.int32), taken=jnp.zeros((), jnp.int32))

    return shuffle


def _step_function_on_shuffled(step: Callable) -> Callable:
    """A compiled training step over the next `count` samples in an epoch's order, which it takes out of all samples x and y:
    (state, order, x, y, count) -> (the State after it, the SampleOrder after it, the loss).

    step: a training step over one batch, (state, x, y) -> (the State after it, the loss).
    """
    import jax

    @functools.partial(jax.jit, donate_argnums=(0, 1), static_argnums=4)
    def step_on_shuffled(
        state: State, order: SampleOrder, x: "jax.Array", y: "jax.Array", count: int
    ) -> "tuple[State, SampleOrder, jax.Array]":
        """A step over the next `count` samples of the order; x and y have all samples."""
        batch = jax.lax.dynamic_slice(order.indices, (order.taken,), (count,))
        state, loss = step(state, x[batch], y[batch])
        return state, order._replace(taken=order.taken + count), loss

    return step_on_shuffled
