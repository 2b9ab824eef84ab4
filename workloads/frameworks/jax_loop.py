"""A bare loop over one jitted step of a Keras model on JAX, whose state goes in and comes out: Keras's own way with JAX."""

import dataclasses
import functools
from collections.abc import Callable

import numpy as np

from workloads.frameworks import tf_loop
from workloads.frameworks.trainers import Task, Trainer, built

READ_AT_ONCE = 64


def read(scalars: list) -> np.ndarray:
    """Numbers of the device on the host, many in a copy: one by one each would cost a transfer call."""
    parts = []
    for i in range(0, len(scalars), READ_AT_ONCE):
        some = scalars[i : i + READ_AT_ONCE]
        parts.append(np.asarray(_stack()(*some, *[some[-1]] * (READ_AT_ONCE - len(some))))[: len(some)])
    return np.concatenate(parts)


@functools.cache
def _stack():
    import jax

    return jax.jit(lambda *scalars: jax.numpy.stack(scalars))


def _step_of(model, loss_of: Callable) -> Callable:
    """A training step as a function (state, x, y) -> (the state after it, the loss); the state: weights, other variables, the
    optimizer's."""
    import jax
    import keras

    def forward(weights, others, x, y):
        """(the loss, the other variables after it): `stateless_call`, the loss in its scope, as regularizers read weights."""
        variables = zip(model.trainable_variables, weights, strict=True)
        values = [*variables, *zip(model.non_trainable_variables, others, strict=True)]
        with keras.StatelessScope(values, collect_losses=True) as scope:
            loss = loss_of(x, y, model(x, training=True))
        return loss, [scope.get_current_value(v) for v in model.non_trainable_variables]

    def step(state, x, y):
        weights, others, kept = state
        (loss, others), gradients = jax.value_and_grad(forward, has_aux=True)(weights, others, x, y)
        weights, kept = model.optimizer.stateless_apply(kept, gradients, weights)
        return (weights, others, kept), loss

    return step


def jax_loop(task: Task) -> Trainer:
    """A bare Python loop over one jitted step that is given its state to overwrite: weights, other variables, optimizer's.
    `resident`: the batches lie on the device, or are gathered there in shuffled order; `fed`: each step is given arrays of the
    host.

    Source: keras.io, Writing a training loop from scratch in JAX.
    """
    residence, chosen = tf_loop.residence_of(task, ("resident", "fed")), task.row.keras
    if chosen.jit_compile == "off" or chosen.precision != "float32" or chosen.gpu == "visible":
        raise ValueError(f"{task.row.kernel} is always compiled, in float32, with the CPU chosen before JAX starts")
    host_x, host_y = task.x, task.y
    import jax
    import jax.numpy as jnp

    made = built(task)
    jax.config.update("jax_enable_x64", "float64" in (str(host_x.dtype), str(host_y.dtype)))
    model, device = made.model, jax.devices()[0]

    def squared(x, y, predicted):
        """The loss of a regression against float64 targets: Keras on JAX would take its mean in float32."""
        return ((y - predicted.astype(y.dtype)) ** 2).mean()

    body = _step_of(model, squared if chosen.targets == "float64" else model.compute_loss)
    step = jax.jit(body, donate_argnums=0)

    @functools.partial(jax.jit, donate_argnums=0, static_argnums=1)
    def shuffle(shuffled, samples: int):
        """Begins an epoch: the whole numbers below `samples` in random order, then the rest."""
        key, used = jax.random.split(shuffled["key"])
        numbers = jnp.concatenate([jax.random.permutation(used, samples), jnp.arange(samples, len(host_x))])
        return {"key": key, "order": numbers.astype(jnp.int32), "at": jnp.zeros((), jnp.int32)}

    @functools.partial(jax.jit, donate_argnums=(0, 1), static_argnums=4)
    def shuffled_step(state, shuffled, x, y, count: int):
        """A step over the next `count` of the shuffled samples."""
        part = jax.lax.dynamic_slice(shuffled["order"], (shuffled["at"],), (count,))
        state, loss = body(state, x[part], y[part])
        return state, {**shuffled, "at": shuffled["at"] + count}, loss

    state: tuple = ()
    shuffled: dict = {}

    def restore() -> None:
        nonlocal state, shuffled
        made.restore()
        groups = model.trainable_variables, model.non_trainable_variables, model.optimizer.variables
        state = jax.tree.map(jnp.copy, tuple([v.value for v in group] for group in groups))  # a step overwrites them
        numbers = {"order": np.arange(len(host_x), dtype=np.int32), "at": np.int32(0)}
        shuffled = jax.device_put({"key": jax.random.key(task.seed), **numbers}, device)

    def run(x, y, *count):
        nonlocal state, shuffled
        if count:
            state, shuffled, loss = shuffled_step(state, shuffled, x, y, *count)
        else:
            state, loss = step(state, x, y)
        return loss

    def shuffled_batches(counts: list[int]):
        nonlocal shuffled
        shuffled = shuffle(shuffled, sum(counts))
        return ((*arrays, count) for count in counts)

    arrays = (host_x, host_y) if residence == "fed" else jax.device_put((host_x, host_y), device)
    restore()
    own = dataclasses.replace(made, restore=restore)
    return tf_loop.bare(
        task, own, arrays, shuffled_batches, tf_loop.Steps(run, lambda: jax.block_until_ready(state), read)
    )
