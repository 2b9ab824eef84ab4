"""Dense networks in pure JAX, as Keras defines their layers, losses and optimizers. JAX is imported in a worker only."""

import functools
import itertools
from collections.abc import Callable, Iterator

import msgspec
import numpy as np

from kernels import networks
from kernels.networks import Network

# Keras's own numbers where a network names no learning rate; Adam's decays and epsilon.
LEARNING_RATE = {"adam": 1e-3, "sgd": 1e-2}
BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-7
CHECKED = 64  # samples that the first loss and gradient are checked with
WITHIN = 0.05  # of them: products in TF32 keep eleven bits
READ_AT_ONCE = 64

Weights = tuple[tuple, ...]  # a dense layer's kernel (inputs, units) and, if it has one, its bias (units,)


def activations(xp) -> dict[str, Callable]:
    """Activations on arrays of `xp`, numpy or jax.numpy."""
    return {"": lambda z: z, "linear": lambda z: z, "relu": lambda z: xp.maximum(z, 0), "sigmoid": lambda z: 1 / (1 + xp.exp(-z)),
            "softmax": lambda z: xp.exp(z - _log_sum(xp, z))}  # fmt: skip


def _log_sum(xp, z):
    """log(sum(exp(z))) of each row, kept as a column, without overflow."""
    top = z.max(axis=-1, keepdims=True)
    return top + xp.log(xp.exp(z - top).sum(axis=-1, keepdims=True))


def require(network: Network | None, dropout_off: bool) -> Network:
    """The network without its dropout, which the row has switched off.

    Raises: ValueError for one that is more than dense layers, or whose loss or optimizer is not written here.
    """
    if network is None:
        raise ValueError("the JAX loop makes its networks from the tables, not of a model of your own: --model mlp-784-500x2-10")
    kept = tuple(la for la in network.layers if la.kind != "dropout" or (la.rate and not dropout_off))
    other = {la.kind for la in kept} - {"dense", "flatten"} | {"branches" for la in kept if la.inputs}
    if other:
        raise ValueError(f"the JAX loop trains dense networks, and {network.name} has {', '.join(sorted(other))}")
    if unknown := {la.activation for la in kept} - set(activations(np)):
        raise ValueError(f"the JAX loop has no {', '.join(sorted(unknown))}")
    if network.optimizer not in LEARNING_RATE:
        raise ValueError(f"the JAX loop has {' and '.join(LEARNING_RATE)}, not {network.optimizer}")
    if network.loss != "mean_squared_error" and kept[-1].activation not in ("softmax", "sigmoid"):
        raise ValueError(f"the JAX loop takes the cross-entropy of softmax or sigmoid, not of {kept[-1].activation or 'linear'}")
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


def cut(x: np.ndarray, y: np.ndarray, counts: list[int], rng: np.random.Generator | None) -> Iterator[tuple]:
    """Batches of that many samples out of arrays of the host, one after the other or, with `rng`, mixed."""
    order = None if rng is None or len(counts) == 1 else rng.permutation(sum(counts))
    for begin, end in itertools.pairwise([0, *itertools.accumulate(counts)]):
        part = slice(begin, end) if order is None else order[begin:end]
        yield x[part], y[part]


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
