"""How samples reach model.fit."""

import numpy as np
import pytest

from workloads.frameworks import input_pipeline
from workloads.records.switches import Keras, typed


def chosen(**given):
    return typed(Keras, {"keras_backend": "tensorflow", **given})


@pytest.mark.parametrize(
    "name", ["order_and_sizes", "fits_of_every_residence", "batches_of_the_feeding_study_arrive_whole"]
)
def test_samples_reach_model_fit(inside, name):
    assert inside(name) == ("ok", "")


def test_numpy_is_kerass_own_way():
    x = np.arange(12)

    def arguments(samples, **options):
        return input_pipeline.pipeline(chosen(**options), x, -x, 4, seed=1).fit_arguments(samples)

    shuffled = arguments(10)
    assert shuffled["x"].tolist() == list(range(10)) and shuffled["y"].tolist() == [-i for i in range(10)]
    assert (shuffled["batch_size"], shuffled["shuffle"]) == (4, True)
    assert arguments(10, shuffle="off")["shuffle"] is False
    assert arguments(3, keras_backend="jax")["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"residence": "fed"}, "takes its samples from numpy, tf.data, prefetch, generator, not fed"),
        ({"residence": "tf.data", "keras_backend": "jax"}, "tf.data is TensorFlow's way, and Keras runs on jax"),
        ({"residence": "prefetch", "keras_backend": "torch"}, "prefetch is TensorFlow's way, and Keras runs on torch"),
    ],
)
def test_what_model_fit_cannot_take_is_said(given, words):
    with pytest.raises(ValueError, match=words):
        input_pipeline.pipeline(chosen(**given), np.zeros(4), np.zeros(4), 2, seed=1)
