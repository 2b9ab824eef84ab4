"""The training samples of a model: made up but learnable, or the real data set. Neither silently replaces the other."""

import concurrent.futures
import math

import numpy as np

from kernels.networks import Network
from workloads.harness.dispatch import Broken, one_line
from workloads.machine import cpu

DTYPES = ("float32", "float64", "uint8")
LEVELS = 255  # largest of a uint8 image: nothing scales these numbers but the weights
NOISE = 0.25  # of the pattern's range: enough that a class is not one image, little enough that it is learned
# How clearly a sample shows its class's pattern: a number from 0 to 1 to this power. Clear ones are learned in the first epochs
# and faint ones in later ones, so that accuracy rises from epoch to epoch about as it does on the articles' images; with all
# of them clear, the first epoch of 50,000 samples learned everything.
FAINTNESS = 2
# Of made-up samples: another one whenever the same seed gives others (1: all of them clear; 2: noise of one stream).
VERSION = "3"
_CHUNK_VALUES = 1 << 18  # numbers of samples made at a time by one thread, from one seed: they stay in a cache
PEAKS_SIDE = 200
_FINEST = 64  # a class's pattern has at most so many rows and columns; larger images repeat each value


class Unavailable(Broken):
    """Raised where the real data set cannot be had."""

    def __init__(self, message: str):
        super().__init__(message, "no-data")


def load(
    kind: str, network: Network, samples: int, seed: int, *, dtype: str = "float32", targets: str = ""
) -> tuple[np.ndarray, np.ndarray]:
    """Training samples of a network and their targets, (x, y), as arrays with a row for each sample.

    x: numbers in [0, 1], of the type uint8 whole numbers from 0 to 255, in the network's input shape. y: classes as int32;
    one-hot as float32 where the loss is categorical cross-entropy. Of a regression, x are points and y the numbers to learn,
    computed by a formula, in the type of `targets` ("": in that of the points).
    kind: `synthetic` (made up) or `real` (the network's own data set). dtype: of x.
    Raises: ValueError for an unknown dtype and for more samples than there are; Unavailable.
    """
    if dtype not in DTYPES:
        raise ValueError(f"inputs can be {', '.join(DTYPES)}, not {dtype}")
    if network.regression and dtype == "uint8":
        raise ValueError(f"{network.name} learns from points that are no whole numbers: not as uint8")
    if network.regression:
        x, y = peaks(samples, seed, dtype)
        return x, y.astype(targets or dtype, copy=False)
    if targets not in ("", "float32"):
        raise ValueError("only the targets of a regression can be float64; classes are whole numbers")
    if kind == "synthetic":
        return synthetic(network, samples, seed, dtype)
    return real(network, samples, dtype)


def synthetic(network: Network, samples: int, seed: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Made-up samples and targets (x, y) that a network can learn; every class about equally often, in random order.

    Each class has a random pattern. A sample is gray, plus its class's pattern, faint or clear, plus noise, cut to [0, 1]. A
    large image has a coarse pattern, whose values are repeated in cells of cell x cell pixels.
    """
    rng = np.random.default_rng(seed)
    sides: tuple[int, ...] = network.input[:2] if len(network.input) == 3 else ()
    cell = max((-(-side // _FINEST) for side in sides), default=1)
    coarse_sides = [-(-side // cell) for side in sides]
    coarse_shape = (*coarse_sides, *network.input[len(sides) :])
    patterns = rng.random((network.classes, *coarse_shape), dtype=np.float32) - 0.5
    y = rng.integers(0, network.classes, samples, dtype=np.int32)
    clearness = rng.random((samples, *(1,) * len(network.input)), dtype=np.float32) ** FAINTNESS
    x = np.empty((samples, *network.input), dtype)
    chunk = max(1, _CHUNK_VALUES // math.prod(network.input))

    def fill(begin: int) -> None:
        """Computes the samples from number `begin` on, a chunk of them; called in several threads."""
        part = slice(begin, begin + chunk)
        images: np.ndarray = patterns[y[part]]
        if cell > 1:
            images = images.repeat(cell, axis=1).repeat(cell, axis=2)[:, : sides[0], : sides[1]]
        images *= clearness[part]
        # The first chunk goes on with `rng`, so that its samples are those of version 2.
        generator = np.random.default_rng((seed, begin)) if begin else rng
        noise = generator.standard_normal(images.shape, dtype=np.float32)
        noise *= NOISE
        images += noise
        np.clip(images + 0.5, 0, 1, out=images)
        x[part] = np.rint(images * LEVELS) if dtype == "uint8" else images

    with concurrent.futures.ThreadPoolExecutor(len(cpu.affinity())) as pool:
        list(pool.map(fill, range(0, samples, chunk)))
    return x, _targets(network, y)


def _targets(network: Network, classes: np.ndarray) -> np.ndarray:
    """Numbers of classes in the form that the network's loss takes: as they are, or one-hot for categorical cross-entropy."""
    if network.loss == "categorical_crossentropy":
        return np.eye(network.classes, dtype=np.float32)[classes]
    return classes


def peaks(samples: int, seed: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """Points of the plane and the heights of MATLAB's function `peaks` there, as arrays of samples x 2 and samples x 1.

    The points are those of the article's grid of 200 x 200 over [-3, 3]^2, in random order; beyond 40,000, random points.
    """
    rng = np.random.default_rng(seed)
    axis = np.linspace(-3, 3, PEAKS_SIDE)
    grid = np.stack(np.meshgrid(axis, axis, indexing="ij"), axis=-1).reshape(-1, 2)
    points = rng.permutation(grid)[:samples]
    points = np.concatenate([points, rng.uniform(-3, 3, (samples - len(points), 2))])
    x, y = points.T
    heights = (
        3 * (1 - x) ** 2 * np.exp(-(x**2) - (y + 1) ** 2)
        - 10 * (x / 5 - x**3 - y**5) * np.exp(-(x**2) - y**2)
        - np.exp(-((x + 1) ** 2) - y**2) / 3
    )
    return points.astype(dtype), heights.astype(dtype)[:, np.newaxis]


def _download(name: str) -> tuple[np.ndarray, np.ndarray]:
    """The training images and labels of one of Keras's data sets, a module of keras.datasets: `mnist`. Keras downloads it
    once."""
    import keras

    training, _test = getattr(keras.datasets, name).load_data()
    return training


# Network.data -> the data set's name
REAL = {"cifar10": "CIFAR-10", "mnist": "MNIST", "fashion_mnist": "Fashion-MNIST"}


def real(network: Network, samples: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """The first training images of the network's own data set and their targets, (x, y).

    The images are scaled to [0, 1]; of the type uint8 they are as they are, 0 to 255.
    Raises: Unavailable where the data set cannot be downloaded; ValueError for a network without one, and for more samples than
    it has.
    """
    if network.data not in REAL:
        raise ValueError(f"{network.name} has no real data set here")
    name = REAL[network.data]
    try:
        x, y = _download(network.data)
    except Exception as error:  # Keras raises a bare Exception when a download fails
        raise Unavailable(f"{name} cannot be loaded: {one_line(error, 300)}") from error
    if samples > len(x):
        raise ValueError(f"{name} has {len(x)} training images, {samples} were asked for")
    images = x[:samples].astype(dtype).reshape(samples, *network.input)
    scaled = images if dtype == "uint8" else images / np.asarray(LEVELS, dtype)
    return scaled, _targets(network, y[:samples].reshape(-1).astype(np.int32))
