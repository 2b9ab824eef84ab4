"""Dense networks in pure JAX, as Keras defines their layers, losses and optimizers, and a bare loop that trains them."""

import functools
from collections.abc import Callable

import msgspec
import numpy as np

from kernels import networks
from kernels.networks import Network
from workloads import loops
from workloads.tensors import timed
from workloads.trainers import Fitted, Order, Trainer

# Keras's own numbers where a network names no learning rate; Adam's decays and epsilon.
LEARNING_RATE = {"adam": 1e-3, "sgd": 1e-2}
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7
CHECKED = 64  # samples that the first loss and gradient are checked with
WITHIN = 0.05  # of them: products in TF32 keep eleven bits
READ_AT_ONCE = 64

Weights = tuple[tuple, ...]  # a dense layer's kernel (inputs, units) and, if it has one, its bias (units,)


def activations(xp) -> dict[str, Callable]:
    """Activations on arrays of `xp`, numpy or jax.numpy."""
    return {
        "": lambda z: z,
        "linear": lambda z: z,
        "relu": lambda z: xp.maximum(z, 0),
        "sigmoid": lambda z: 1 / (1 + xp.exp(-z)),
        "softmax": lambda z: xp.exp(z - _log_sum(xp, z)),
    }


def _log_sum(xp, z):
    """log(sum(exp(z))) of each row, kept as a column, without overflow."""
    top = z.max(axis=-1, keepdims=True)
    return top + xp.log(xp.exp(z - top).sum(axis=-1, keepdims=True))


def require(network: Network | None, dropout_off: bool) -> Network:
    """The network without its dropout, which the row has switched off.

    Raises: ValueError for one that is more than dense layers, or whose loss or optimizer is not written here.
    """
    if network is None:
        raise ValueError(
            "the JAX loop makes its networks from the tables, not of a model of your own: --model mlp-784-500x2-10"
        )
    kept = tuple(la for la in network.layers if la.kind != "dropout" or (la.rate and not dropout_off))
    other = {la.kind for la in kept} - {"dense", "flatten"} | {"branches" for la in kept if la.inputs}
    if other:
        raise ValueError(f"the JAX loop trains dense networks, and {network.name} has {', '.join(sorted(other))}")
    if unknown := {la.activation for la in kept} - set(activations(np)):
        raise ValueError(f"the JAX loop has no {', '.join(sorted(unknown))}")
    if network.optimizer not in LEARNING_RATE:
        raise ValueError(f"the JAX loop has {' and '.join(LEARNING_RATE)}, not {network.optimizer}")
    if network.loss != "mean_squared_error" and kept[-1].activation not in ("softmax", "sigmoid"):
        raise ValueError(
            f"the JAX loop takes the cross-entropy of softmax or sigmoid, not of {kept[-1].activation or 'linear'}"
        )
    return msgspec.structs.replace(network, layers=kept)


def weights(network: Network, seed: int) -> Weights:
    """First weights as Keras draws them: Glorot's uniform distribution, biases 0; float32, of the host.

    Source: Glorot and Bengio, Understanding the difficulty of training deep feedforward neural networks, eq. 16.
    """
    rng, made = np.random.default_rng(seed), []
    for layer, taken in zip(network.layers, networks.inputs(network), strict=True):
        if layer.kind == "dense":
            limit = np.sqrt(6 / (taken[-1] + layer.units))
            kernel = rng.uniform(-limit, limit, (taken[-1], layer.units)).astype(np.float32)
            made.append((kernel, np.zeros(layer.units, np.float32)) if layer.bias else (kernel,))
    return tuple(made)


def loss(network: Network, xp) -> Callable:
    """loss(weights, x, y): the mean over the batch, in the type of the targets where they are no classes.

    The cross-entropy is that of the values before the last activation, as Keras on TensorFlow takes it: also before a sigmoid.
    """
    acts = activations(xp)

    def of(layers: Weights, x, y):
        z, left, last = x.astype(layers[0][0].dtype), iter(layers), network.layers[-1]
        for layer in network.layers:
            if layer.kind == "flatten":
                z = z.reshape(len(z), -1)
                continue
            kernel, *bias = next(left)
            z = z @ kernel + bias[0] if bias else z @ kernel
            if layer is not last or network.regression:
                z = acts[layer.activation](z)
        if network.regression:
            return ((y - z.astype(y.dtype)) ** 2).mean()
        logs = z - _log_sum(xp, z)
        if network.loss == "categorical_crossentropy":
            return -(y * logs).sum(axis=-1).mean()
        return -xp.take_along_axis(logs, y[:, None], axis=-1).mean()

    return of


def start(first: Weights, network: Network) -> dict:
    """The state that a step is given and gives back: weights, Adam's moments, steps done. Copies of the host's arrays."""
    copied = tuple(tuple(np.array(w) for w in pair) for pair in first)
    zeros = tuple(tuple(np.zeros_like(w) for w in pair) for pair in first)
    moments = {"m": zeros, "v": tuple(tuple(np.zeros_like(w) for w in pair) for pair in first)}
    return {"weights": copied, "steps": np.int32(0), **(moments if network.optimizer == "adam" else {})}


def optimizer(network: Network) -> Callable:
    """update(state, gradients) gives the state after one more step of the network's optimizer, as Keras defines it.

    Source: keras.optimizers.Adam and SGD; Kingma and Ba, Adam, before section 2.1.
    """
    import jax

    rate = network.learning_rate or LEARNING_RATE[network.optimizer]

    def sgd(state: dict, gradients: Weights) -> dict:
        moved = jax.tree.map(lambda w, g: w - rate * g, state["weights"], gradients)
        return {**state, "weights": moved, "steps": state["steps"] + 1}

    def adam(state: dict, gradients: Weights) -> dict:
        done = (state["steps"] + 1).astype(np.float32)
        alpha = rate * jax.numpy.sqrt(1 - BETA_2**done) / (1 - BETA_1**done)
        m = jax.tree.map(lambda m, g: m + (g - m) * (1 - BETA_1), state["m"], gradients)
        v = jax.tree.map(lambda v, g: v + (g * g - v) * (1 - BETA_2), state["v"], gradients)
        moved = jax.tree.map(lambda w, m, v: w - m * alpha / (jax.numpy.sqrt(v) + EPSILON), state["weights"], m, v)
        return {**state, "weights": moved, "m": m, "v": v, "steps": state["steps"] + 1}

    return {"adam": adam, "sgd": sgd}[network.optimizer]


@functools.cache
def _stack() -> Callable:
    import jax

    return jax.jit(lambda *scalars: jax.numpy.stack(scalars))


def read(scalars: list) -> np.ndarray:
    """Numbers of the device on the host, many in a copy: one by one each would cost a transfer call."""
    parts = []
    for i in range(0, len(scalars), READ_AT_ONCE):
        some = scalars[i : i + READ_AT_ONCE]
        parts.append(np.asarray(_stack()(*some, *[some[-1]] * (READ_AT_ONCE - len(some))))[: len(some)])
    return np.concatenate(parts)


def wrong(network: Network, first: Weights, of: Callable, x: np.ndarray, y: np.ndarray) -> str:
    """Why the first loss or its gradient, computed by JAX, is not NumPy's in float64; "" when they agree within WITHIN.

    The gradient's length is compared with how fast NumPy's loss grows in its direction.
    """
    import jax

    x, y = x[:CHECKED], y[:CHECKED]
    value, gradients = jax.jit(jax.value_and_grad(of))(first, x, y)
    exact, step = loss(network, np), 1e-5
    steps = [np.asarray(g, np.float64) for g in jax.tree.leaves(gradients)]
    length = np.sqrt(sum((g**2).sum() for g in steps)) or 1.0

    def moved(by: float) -> float:
        ways = iter(steps)
        return exact(tuple(tuple(w + by / length * next(ways) for w in pair) for pair in first), x, y)

    if not abs(value - moved(0)) <= WITHIN * abs(moved(0)):
        return f"the first loss is {float(value):.6g}, by NumPy {moved(0):.6g}"
    slope = (moved(step) - moved(-step)) / (2 * step)
    if not abs(length - slope) <= WITHIN * slope:
        return f"the first gradient is {length:.6g} long, by NumPy {slope:.6g}"
    return ""


def jax_loop(order: Order) -> Trainer:
    """A bare Python loop over one jitted JAX step that is given its own state to overwrite. `resident`: the batches lie on
    the device, or are gathered there in mixed order; `fed`: each step is given arrays of the host."""
    residence, problem, chosen = loops.residence_of(order, ("resident", "fed")), order.row.problem, order.switches
    if chosen["jit_compile"] == "off" or chosen["precision"] != "float32" or chosen["gpu"] == "visible":
        raise ValueError(f"{order.row.kernel} is always compiled, in float32, with the CPU chosen before JAX starts")
    network = require(order.network, chosen["dropout"] == "off")
    import jax
    import jax.numpy as jnp

    host_x, host_y = loops.typed_samples(order)
    on_gpu, shuffle = order.row.settings.device != "cpu", chosen["shuffle"] == "on"
    jax.config.update("jax_enable_x64", "float64" in (str(host_x.dtype), str(host_y.dtype)))
    tf32 = on_gpu and chosen["tf32"] == "on"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest" if on_gpu else None)
    device = jax.devices()[0]
    with timed(order.phases, "build"):
        first = weights(network, order.seed)
        update, step_of = optimizer(network), loss(network, jnp)

    def body(state, x, y):
        loss, gradients = jax.value_and_grad(step_of)(state["weights"], x, y)
        return update(state, gradients), loss

    step = jax.jit(body, donate_argnums=0)

    @functools.partial(jax.jit, donate_argnums=0, static_argnums=1)
    def mix(mixed, samples: int):
        """Begins an epoch: the whole numbers below `samples` in random order, then the rest."""
        key, used = jax.random.split(mixed["key"])
        numbers = jnp.concatenate([jax.random.permutation(used, samples), jnp.arange(samples, len(host_x))])
        return {"key": key, "order": numbers.astype(jnp.int32), "at": jnp.zeros((), jnp.int32)}

    @functools.partial(jax.jit, donate_argnums=(0, 1), static_argnums=4)
    def gathering(state, mixed, x, y, count: int):
        """A step over the next `count` of the mixed samples."""
        part = jax.lax.dynamic_slice(mixed["order"], (mixed["at"],), (count,))
        state, loss = body(state, x[part], y[part])
        return state, {**mixed, "at": mixed["at"] + count}, loss

    state: dict = {}
    mixed: dict = {}

    def restore() -> None:
        state.update(jax.device_put(start(first, network), device))
        mixed.update(
            jax.device_put(
                {"key": jax.random.key(order.seed), "order": np.arange(len(host_x), dtype=np.int32), "at": np.int32(0)},
                device,
            )
        )

    def stepped(x, y):
        fresh, loss = step(dict(state), x, y)
        state.update(fresh)
        return loss

    if residence == "fed":
        rng = np.random.default_rng(order.seed)

        def batches(samples: int):
            return loops.cut(host_x, host_y, loops.sizes(samples, problem.batch), rng if shuffle else None)

        run = stepped
    else:
        x, y = jax.device_put((host_x, host_y), device)
        kept: dict[tuple[int, int], tuple] = {}

        def batches(samples: int):
            counts = loops.sizes(samples, problem.batch)
            if not shuffle or len(counts) == 1:
                return loops.cut_once(kept, x, y, counts)
            mixed.update(mix(dict(mixed), samples))
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
        return loops.looped(order, batches, run, wait, read, samples, epochs, stamped)

    restore()
    values = {"parameters": float(sum(w.size for pair in first for w in pair)), "jit_compile": 1.0, "tf32": float(tf32)}
    notes = {"backend": f"jax {jax.__version__}"}
    return Trainer(
        fit, restore, values, notes, "first loss", step_losses, wrong(network, first, step_of, host_x, host_y)
    )
