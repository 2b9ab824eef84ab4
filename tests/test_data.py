"""The samples that models are trained on: made up and learnable, or real and never swapped."""

import numpy as np
import pytest

from kernels import networks
from workloads import data

S0 = networks.find("cifar10-cnn")


def test_synthetic_data_has_shape_type_classes_and_can_be_learned():
    x, y = data.load("synthetic", S0, 2000, 1)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((2000, 32, 32, 3), np.float32, (2000,), np.int32)
    assert x.min() >= 0
    assert x.max() <= 1
    assert 0.1 < x.std() < 0.5
    assert (np.bincount(y, minlength=10) > 120).all()
    assert y.max() == 9
    means = np.stack([x[:1000][y[:1000] == c].mean(0).ravel() for c in range(10)])
    nearest = (x[1000:].reshape(1000, -1) @ means.T - (means**2).sum(1) / 2).argmax(1)
    assert (nearest == y[1000:]).mean() > 0.95
    assert np.abs(x[y == 0][0] - x[y == 0][1]).mean() > 0.05, "a class must not be one image"


def test_synthetic_data_follows_the_seed_and_the_type():
    (a, i), (b, _), (c, _) = (data.synthetic(S0, 5, seed) for seed in (1, 1, 2))
    assert (a == b).all()
    assert not (a == c).all()
    wide, j = data.load("synthetic", S0, 5, 1, "float64")
    assert wide.dtype == np.float64
    assert (i == j).all()
    with pytest.raises(ValueError, match="float32 or float64, not int8"):
        data.load("synthetic", S0, 5, 1, "int8")
    with pytest.raises(ValueError, match="unknown data 'imaginary'"):
        data.load("imaginary", S0, 5, 1)


def test_real_data_is_scaled_and_never_swapped_for_made_up_data(monkeypatch):
    images, labels = np.full((6, 32, 32, 3), 255, np.uint8), np.arange(6, dtype=np.uint8).reshape(6, 1)
    monkeypatch.setitem(data.REAL, "cifar10-cnn", ("CIFAR-10", lambda: (images, labels)))
    x, y = data.load("real", S0, 4, 1)
    assert (x.shape, x.dtype, x.max(), y.tolist(), y.dtype) == ((4, 32, 32, 3), np.float32, 1.0, [0, 1, 2, 3], np.int32)
    with pytest.raises(ValueError, match="CIFAR-10 has 6 training images, 7 were asked for"):
        data.load("real", S0, 7, 1)

    def fail():
        raise Exception("URL fetch failure on https://data\n: no way")

    monkeypatch.setitem(data.REAL, "cifar10-cnn", ("CIFAR-10", fail))
    with pytest.raises(
        data.Unavailable, match="no data: CIFAR-10 cannot be loaded: URL fetch failure on https://data : no way"
    ):
        data.load("real", S0, 4, 1)
