"""How samples reach model.fit, seen in the suite's one TensorFlow process."""

import numpy as np
import pytest

from workloads.frameworks import input_pipeline
from workloads.records.switches import Keras, typed


def chosen(**given):
    return typed(Keras, {"keras_backend": "tensorflow", **given})


@pytest.mark.parametrize(
    "name", ["order_and_sizes", "fits_of_every_residence", "batches_of_the_feeding_study_arrive_whole"]
)
def test_inside(inside, name):
    assert inside(name) == ("ok", "")


def test_numpy_is_kerass_own_way():
    x = np.arange(12)
    data, how = input_pipeline.feeder(chosen(), x, -x, 4, 1)(10)
    assert data.tolist() == list(range(10)) and how["y"].tolist() == [-i for i in range(10)]
    assert (how["batch_size"], how["shuffle"]) == (4, True)
    assert input_pipeline.feeder(chosen(shuffle="off"), x, x, 4, 1)(10)[1]["shuffle"] is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"residence": "fed"}, "takes its samples from numpy, tf.data, prefetch, generator, not fed"),
        ({"residence": "tf.data", "keras_backend": "jax"}, "tf.data is TensorFlow's way, and Keras runs on jax"),
    ],
)
def test_what_model_fit_cannot_take_is_said(given, words):
    with pytest.raises(ValueError, match=words):
        input_pipeline.feeder(chosen(**given), np.zeros(4), np.zeros(4), 2, 1)
