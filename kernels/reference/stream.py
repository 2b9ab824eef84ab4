"""The answers of a training step's element-wise passes, and how near a kernel must come to them."""

from collections.abc import Callable

import numpy as np

from kernels.problems import Stream
from kernels.reference.exact import OutputCheck, equal

EPSILON = 1e-3  # batch normalization's, as Keras has it
DROPPED = 0.25  # share that dropout sets to 0
#: How many times over a framework does a problem in one graph, where its threads are to stay awake.
IN_A_ROW = 32
UPDATES = 8  # variables of an optimizer in one graph
RATE = 0.25  # the optimizers' learning rate, a power of two so that w - RATE * g is exact
#: Adam's, as Keras has them.
BETA1 = 0.9
BETA2 = 0.999
ADAM_EPSILON = 1e-7
#: Largest error allowed of a float32 answer, where means, roots and chance are in it; the other operations are exact.
BOUNDS = {"batchnorm": 1e-4, "adam": 1e-5}
_SIGMAS = 6  # standard deviations that the share of zeros may be off


def images(problem: Stream, flat: np.ndarray) -> np.ndarray:
    """The array as (n, height, width, channels)."""
    return flat.reshape(-1, *problem.IMAGE)


def _windows(x: np.ndarray) -> np.ndarray:
    """The four values of every 2 x 2 window, (n, p, q, channels, 4), of images (n, h, w, channels)."""
    rows = x.shape[1] // 2
    columns = x.shape[2] // 2
    channels = x.shape[3]
    windows = x.reshape(-1, rows, 2, columns, 2, channels).transpose(0, 1, 3, 5, 2, 4)
    return windows.reshape(-1, rows, columns, channels, 4)


def _maxpool(problem: Stream, x: np.ndarray) -> np.ndarray:
    return _windows(images(problem, x)).max(axis=-1).ravel()


def _batchnorm(problem: Stream, x: np.ndarray) -> np.ndarray:
    """Over n, height and width, with scale 1 and shift 0."""
    x = images(problem, x).astype(np.float64)
    return ((x - x.mean((0, 1, 2))) / np.sqrt(x.var((0, 1, 2)) + EPSILON)).ravel()


def _adam(problem: Stream, w: np.ndarray, g: np.ndarray, m: np.ndarray, v: np.ndarray) -> np.ndarray:
    """The weights after one step of Adam without bias correction, which is a scalar that is the same for all weights.

    w, g, m, v: weights, gradient, first and second moment.
    """
    weights = w.astype(np.float64)
    g = g.astype(np.float64)
    m = m.astype(np.float64)
    v = v.astype(np.float64)
    m = m + (g - m) * (1 - BETA1)
    v = v + (g * g - v) * (1 - BETA2)
    return weights - RATE * m / (np.sqrt(v) + ADAM_EPSILON)


ANSWERS: dict[str, Callable[..., np.ndarray]] = {
    "read": lambda problem, x: np.array([x.astype(np.float64).sum()]).astype(x.dtype),
    "copy": lambda problem, x: x.copy(),
    "scale": lambda problem, x: x * x.dtype.type(3),
    "add": lambda problem, x, y: x + y,
    "triad": lambda problem, x, y: x + x.dtype.type(3) * y,
    "relu": lambda problem, x: np.maximum(x, 0),
    "relu_grad": lambda problem, x, dy: np.where(x > 0, dy, x.dtype.type(0)),
    "maxpool": _maxpool,
    "batchnorm": _batchnorm,
    "sgd": lambda problem, w, g: w - w.dtype.type(RATE) * g,
    "adam": _adam,
}


def dropped(x: np.ndarray, output: np.ndarray) -> bool:
    """Whether an output is x after dropout: every value is 0 or scaled up, and the share of zeros is within six standard
    deviations of DROPPED."""
    if output.shape != x.shape or output.dtype != x.dtype:
        return False
    zero = output == 0
    scaled = np.abs(output - x / x.dtype.type(1 - DROPPED)) <= 1e-5 * np.abs(x)
    share_off = abs(zero.mean() - DROPPED)
    deviation = np.sqrt(DROPPED * (1 - DROPPED) / x.size)
    return bool((zero | scaled).all()) and share_off <= _SIGMAS * deviation


def pooled_back(problem: Stream, x: np.ndarray, dy: np.ndarray, output: np.ndarray) -> bool:
    """Whether an output is the gradient of a 2 x 2 max-pool: each window's gradient lies, in all, on its largest values;
    among equal ones any share is right.

    x: the images, flat; dy: the gradient of the pooled images.
    """
    if output.shape != x.shape or output.dtype != x.dtype:
        return False
    values = _windows(images(problem, x))
    gradients = _windows(images(problem, output))
    largest = values == values.max(axis=-1, keepdims=True)
    whole = np.array_equal(gradients.sum(axis=-1).ravel(), dy)
    return whole and not np.any(gradients[~largest])


def check(problem: Stream, inputs: tuple[np.ndarray, ...], output: np.ndarray) -> OutputCheck:
    """Whether a kernel's output is right: equality where every element is rounded once; a bound where means and roots are in
    it; a rule where chance is.

    inputs: as problem.inputs gives them.
    """
    if problem.operation == "dropout":
        return OutputCheck("each value dropped or scaled", dropped(inputs[0], output))
    if problem.operation == "maxpool_grad":
        return OutputCheck("each window's gradient on its largest", pooled_back(problem, inputs[0], inputs[1], output))
    answer, bound = stream_answer(problem, inputs), BOUNDS.get(problem.operation)
    if bound is None:
        return equal(answer, output)
    if output.shape != answer.shape or output.dtype != inputs[0].dtype or not np.isfinite(output).all():
        return OutputCheck("bound", False, float("inf"))
    error = float(np.max(np.abs(output.astype(np.float64) - answer)))
    return OutputCheck("bound", error <= bound, error)


def stream_answer(problem: Stream, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """The output array of one element-wise pass (a one-element sum for `read`); the scalar is 3."""
    return ANSWERS[problem.operation](problem, *inputs)
