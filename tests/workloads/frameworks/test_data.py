"""The samples that models are trained on, made up and learnable, or real and never swapped; and how they reach model.fit."""

import numpy as np
import pytest

from kernels import networks
from workloads.frameworks import data

S0 = networks.find("cifar10-cnn")


def test_synthetic_data_has_shape_type_and_classes():
    x, y = data.load("synthetic", S0, 2000, 1)
    assert (x.shape, x.dtype, y.shape, y.dtype) == ((2000, 32, 32, 3), np.float32, (2000,), np.int32)
    assert x.min() >= 0 and x.max() <= 1 and 0.1 < x.std() < 0.5
    assert (np.bincount(y, minlength=10) > 120).all() and y.max() == 9
    means = np.stack([x[:1000][y[:1000] == c].mean(0).ravel() for c in range(10)])
    told = (((x[1000:].reshape(1000, -1) - 0.5) @ (means - 0.5).T).argmax(1) == y[1000:]).mean()
    assert 0.6 < told < 0.95, "by a look at the class's mean: many can be told, and not all"
    assert np.abs(x[y == 0][0] - x[y == 0][1]).mean() > 0.05, "a class must not be one image"


def test_synthetic_data_follows_seed_type_and_version():
    (a, i), (b, _), (c, _) = (data.synthetic(S0, 5, seed) for seed in (1, 1, 2))
    assert (a == b).all() and not (a == c).all()
    wide, j = data.load("synthetic", S0, 5, 1, dtype="float64")
    assert wide.dtype == np.float64 and (i == j).all()
    with pytest.raises(ValueError, match="float32, float64, uint8, not int8"):
        data.load("synthetic", S0, 5, 1, dtype="int8")
    # what version 3 gives for seed 1, to rounding; who changes that counts VERSION up, so that no loss is compared
    # across it
    x, y = data.synthetic(S0, 2, 1)
    assert (data.VERSION, y.tolist()) == ("3", [5, 8])
    assert x[:, 0, 0] == pytest.approx(np.array([[0.890, 0.552, 0.783], [0.265, 0.242, 0.944]]), abs=1e-3)
    assert data.synthetic(S0, 86, 1)[0][85, 0, 0] == pytest.approx(
        [0.640, 0.325, 0.839], abs=1e-3
    )  # of the second chunk
    x, y = data.load("synthetic", networks.find("cifar10-mlp"), 5, 1)
    _, classes = data.load("synthetic", S0, 5, 1)
    assert (x.shape, y.shape, y.dtype) == ((5, 32, 32, 3), (5, 10), np.float32)
    assert (y.argmax(1) == classes).all() and (y.sum(1) == 1).all()


def test_uint8_inputs_are_the_same_images_unscaled(monkeypatch):
    x, y = data.load("synthetic", S0, 50, 1, dtype="uint8")
    scaled, same = data.load("synthetic", S0, 50, 1)
    assert (x.dtype, x.min(), x.max()) == (np.uint8, 0, 255) and np.abs(x / 255 - scaled).max() <= 0.5 / 255 + 1e-6
    assert (y == same).all()
    images = np.arange(6, dtype=np.uint8).reshape(6, 1, 1, 1) * np.ones((32, 32, 3), np.uint8)
    monkeypatch.setattr(data, "_download", lambda name: (images, np.zeros((6, 1), np.uint8)))
    assert (data.load("real", S0, 6, 1, dtype="uint8")[0] == images).all() and networks.sample_bytes(
        S0, "uint8"
    ) == 3072
    with pytest.raises(ValueError, match="no whole numbers"):
        data.load("synthetic", networks.find("peaks"), 5, 1, dtype="uint8")


def test_real_data_is_never_swapped_for_synthetic(monkeypatch):
    images, labels = np.full((6, 32, 32, 3), 255, np.uint8), np.arange(6, dtype=np.uint8).reshape(6, 1)
    monkeypatch.setattr(data, "_download", lambda name: (images, labels))
    x, y = data.load("real", S0, 4, 1)
    assert (x.shape, x.dtype, x.max(), y.tolist(), y.dtype) == ((4, 32, 32, 3), np.float32, 1.0, [0, 1, 2, 3], np.int32)
    with pytest.raises(ValueError, match="CIFAR-10 has 6 training images, 7 were asked for"):
        data.load("real", S0, 7, 1)

    def fail(name):
        raise Exception("URL fetch failure on https://data\n: no way")

    monkeypatch.setattr(data, "_download", fail)
    why = "CIFAR-10 cannot be loaded: URL fetch failure on https://data : no way"
    with pytest.raises(data.Unavailable, match=why):
        data.load("real", S0, 4, 1)
    images, labels = np.full((3, 28, 28), 51, np.uint8), np.arange(3, dtype=np.uint8)
    monkeypatch.setattr(data, "_download", lambda name: (images, labels))
    x, y = data.load("real", networks.find("mnist-cnn"), 3, 1)
    assert (x.shape, y.tolist()) == ((3, 28, 28, 1), [0, 1, 2]) and x.max() == pytest.approx(0.2)
    with pytest.raises(ValueError, match="vgg-16 has no real data set here"):
        data.load("real", networks.find("vgg-16"), 1, 1)


def test_peaks_is_the_articles_grid_and_formula():
    """At the origin 3/e - 1/(3e) = 0.98101; the whole grid once at 40,000; beyond it points between."""
    x, y = data.load("synthetic", networks.find("peaks"), 40_010, 1)
    assert (x.shape, y.shape, x.dtype, y.dtype) == ((40_010, 2), (40_010, 1), np.float32, np.float32)
    grid = x[:40_000]
    assert len(np.unique(grid, axis=0)) == 40_000 and len(np.unique(grid[:, 0])) == 200
    assert (x.min(), x.max()) == (-3, 3)
    assert y[(grid.astype(float) ** 2).sum(1).argmin(), 0] == pytest.approx(8 / 3 / np.e, abs=0.06)
    assert (y.min(), y.max()) == pytest.approx((-6.5466, 8.1059), abs=0.01)  # the surface's known extremes
    assert data.load("real", networks.find("peaks"), 7, 1, dtype="float64")[1].dtype == np.float64


def test_classes_of_large_images_stay_small_and_learnable(monkeypatch):
    monkeypatch.setattr(data, "_CHUNK_VALUES", 3 * 299 * 299 * 3)
    x, y = data.synthetic(networks.find("inception-v3"), 8, 1)
    assert (x.shape, y.max() < 1000, len(set(y.tolist())) > 4) == ((8, 299, 299, 3), True, True)
    again, _ = data.synthetic(networks.find("inception-v3"), 8, 1)
    assert (x == again).all()
    every = x[:, :295, :295].reshape(8, 59, 5, 59, 5, 3)
    cells = every[every.mean((2, 4)).std((1, 2, 3)).argmax()]  # the clearest
    assert cells.mean((1, 3)).std() > 0.15, "a pattern of 60 x 60 cells of 5 x 5"
    assert (cells - cells.mean((1, 3), keepdims=True)).std() < 0.25
