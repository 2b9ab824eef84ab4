"""Every network of the tables built by Keras, in the suite's one TensorFlow process: shapes and weights layer by layer."""

import msgspec
import pytest

from kernels import networks
from workloads.harness.timing import Limits
from workloads.harness.worker import Order


@pytest.fixture
def build(train):
    """build(model): the Measurement of a row that builds a network, compares it with its table and trains nothing."""
    row = train.row

    def ask(model):
        wanted = msgspec.structs.replace(row(1, 1, model=model), kernel="training/keras/build")
        return train.worker.ask(Order("measure", wanted, Limits()), 120)

    return ask


@pytest.mark.parametrize("name", [*networks.NETWORKS, "mlp-100-50x3-7", "fashion-mlp-2"])
def test_keras_builds_what_the_table_says(build, name):
    """`check` is weights only when models.differences finds none in output shapes, weights and their sum."""
    m = build(name)
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
