"""How samples reach model.fit, seen in the suite's one TensorFlow process."""

import numpy as np
import pytest

from workloads.frameworks import input_pipeline

CHOSEN = {"residence": "numpy", "shuffle": "on", "keras_backend": "tensorflow", "gpu": "hidden"}
CHOSEN |= {"steps_per_execution": "1"}


@pytest.mark.parametrize("name", ["order_and_sizes", "fits_of_every_residence"])
def test_inside(inside, name):
    assert inside(name) == ("ok", "")


def test_numpy_is_kerass_own_way():
    x = np.arange(12)
    data, how = input_pipeline.feeder(CHOSEN, x, -x, 4, 1)(10)
    assert data.tolist() == list(range(10))
    assert how["y"].tolist() == [-i for i in range(10)]
    assert (how["batch_size"], how["shuffle"]) == (4, True)
    assert input_pipeline.feeder(CHOSEN | {"shuffle": "off"}, x, x, 4, 1)(10)[1]["shuffle"] is False


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"residence": "fed"}, "takes its samples from numpy, tf.data, prefetch, generator, not fed"),
        ({"residence": "tf.data", "keras_backend": "jax"}, "tf.data is TensorFlow's way, and Keras runs on jax"),
    ],
)
def test_what_model_fit_cannot_take_is_said(chosen, words):
    with pytest.raises(ValueError, match=words):
        input_pipeline.feeder(CHOSEN | chosen, np.zeros(4), np.zeros(4), 2, 1)
