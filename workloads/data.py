"""The samples a model is trained on: made up but learnable, or the real data set; never the one for the other."""

import numpy as np

from kernels.networks import Network

KINDS = ("synthetic", "real")
NOISE = 0.25  # of the pattern's range: enough that a class is not one image, little enough that it is learned
_CHUNK = 1024


class Unavailable(Exception):
    """The real data set cannot be had here; the message begins with `no data:`."""

    def __init__(self, message: str):
        super().__init__(f"no data: {message}")


def load(kind: str, network: Network, samples: int, seed: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """(x, y): `samples` inputs in [0, 1] of the network's shape, and their classes as int32.

    Raises: ValueError for an unknown kind or dtype and for more samples than there are; Unavailable.
    """
    if dtype not in ("float32", "float64"):
        raise ValueError(f"inputs can be float32 or float64, not {dtype}")
    if kind not in KINDS:
        raise ValueError(f"unknown data {kind!r}; known: {', '.join(KINDS)}")
    return synthetic(network, samples, seed, dtype) if kind == "synthetic" else real(network, samples, dtype)


def synthetic(network: Network, samples: int, seed: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """A pattern for each class plus noise, cut to [0, 1]; every class about equally often, in random order."""
    rng = np.random.default_rng(seed)
    patterns = rng.random((network.classes, *network.input), dtype=np.float32)
    y = rng.integers(0, network.classes, samples, dtype=np.int32)
    x = np.empty((samples, *network.input), dtype)
    for begin in range(0, samples, _CHUNK):  # in pieces: no temporary as large as the data set
        labels = y[begin : begin + _CHUNK]
        noise = NOISE * rng.standard_normal((len(labels), *network.input), dtype=np.float32)
        np.clip(patterns[labels] + noise, 0, 1, out=x[begin : begin + _CHUNK], casting="same_kind")
    return x, y


def _cifar10():
    import keras

    return keras.datasets.cifar10.load_data()[0]


REAL = {"cifar10-cnn": ("CIFAR-10", _cifar10)}


def real(network: Network, samples: int, dtype: str = "float32") -> tuple[np.ndarray, np.ndarray]:
    """The first training images of the network's own data set, scaled to [0, 1]; Keras downloads and keeps them.

    Raises: Unavailable when they cannot be had; ValueError for more samples than there are.
    """
    if network.name not in REAL:
        raise ValueError(f"{network.name} has no real data set here")
    name, download = REAL[network.name]
    try:
        x, y = download()
    except Exception as error:  # Keras raises a bare Exception when a download fails
        raise Unavailable(f"{name} cannot be loaded: {' '.join(str(error).split())[:300]}") from error
    if samples > len(x):
        raise ValueError(f"{name} has {len(x)} training images, {samples} were asked for")
    return x[:samples].astype(dtype) / np.asarray(255, dtype), y[:samples].reshape(-1).astype(np.int32)
