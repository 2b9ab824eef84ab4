"""Every network of the tables built by Keras, in the suite's one TensorFlow process: shapes and weights layer by layer."""

import pytest

from kernels import networks

BUILT = [
    *(name for name in networks.NETWORKS if name != "vgg-16"),
    "mlp-100-50x3-7",
]  # its 138 million weights take seconds


@pytest.mark.parametrize("name", [*BUILT, "fashion-mlp-2"])
def test_keras_builds_what_the_table_says(train, name):
    """`check` is weights only when models.differences finds none in output shapes, weights and their sum."""
    m = train(1, 1, model=name, kernel="keras/build")  # compared with its table, and not trained
    assert (m.status, m.reason, m.check) == ("ok", "", "weights")
    assert m.values["parameters"] == networks.parameters(networks.find(name)) and m.phases_s["build"] > 0
    assert not m.samples


@pytest.mark.parametrize(("model", "falls"), [("cifar10-mlp", False), ("peaks", True)])
def test_other_losses_train(train, model, falls):
    """One-hot classes under a sigmoid, and a regression whose loss falls."""
    m = train(8, 160 if falls else 16, model=model)
    assert (m.status, m.reason, m.check) == ("ok", "", "weights") and m.on("host-latency").calls == (20 if falls else 2)
    if falls:
        assert m.series["loss"][-1] < m.series["loss"][0]
