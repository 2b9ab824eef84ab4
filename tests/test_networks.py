"""The layer tables against numbers worked out by hand."""

import msgspec
import pytest

from kernels import networks
from kernels.networks import Layer, Network
from kernels.problems import Matmul, Training

S0 = networks.find("cifar10-cnn")


def by_layer(values) -> dict:
    return dict(zip((layer.name for layer in S0.layers), values, strict=True))


def test_s0_weights_by_layer_and_in_all():
    weights = {name: count for name, count in by_layer(networks.layer_weights(S0)).items() if count}
    assert weights == {"conv1": 896, "conv2": 18496, "conv3": 36928, "dense1": 1606144, "dense2": 5130}
    assert networks.parameters(S0) == 1_667_594


def test_s0_shapes():
    assert list(by_layer(networks.outputs(S0)).items()) == [
        ("conv1", (32, 32, 32)), ("pool1", (16, 16, 32)), ("dropout1", (16, 16, 32)), ("conv2", (16, 16, 64)),
        ("conv3", (14, 14, 64)), ("pool2", (7, 7, 64)), ("dropout2", (7, 7, 64)), ("flatten", (3136,)),
        ("dense1", (512,)), ("dropout3", (512,)), ("dense2", (10,))]  # fmt: skip
    assert networks.inputs(S0)[0] == (32, 32, 3)


def test_s0_products_of_a_step_at_batch_32():
    products = {w.name: w.problem for w in networks.step(S0, 32) if w.kind == "dense"}
    assert products == {
        "dense1 fprop": Matmul(32, 512, 3136), "dense1 dgrad": Matmul(32, 3136, 512, layout="nt"),
        "dense1 wgrad": Matmul(3136, 512, 32, layout="tn"),
        "dense2 fprop": Matmul(32, 10, 512), "dense2 dgrad": Matmul(32, 512, 10, layout="nt"),
        "dense2 wgrad": Matmul(512, 10, 32, layout="tn")}  # fmt: skip
    flops = {w.name: w.flops for w in networks.step(S0, 32)}
    assert {flops[f"dense1 {d}"] for d in ("fprop", "dgrad", "wgrad")} == {102_760_448}
    assert {flops[f"dense2 {d}"] for d in ("fprop", "dgrad", "wgrad")} == {327_680}


def test_the_operands_of_the_products_are_stored_as_the_layer_has_them():
    """X is 32 x 3136, W 3136 x 512 and dY 32 x 512 wherever they appear."""
    shapes = {w.direction: [a.shape for a in w.problem.inputs(1)] for w in networks.step(S0, 32) if w.layer == "dense1"}
    assert shapes == {
        "fprop": [(32, 3136), (3136, 512)],
        "dgrad": [(32, 512), (3136, 512)],
        "wgrad": [(32, 3136), (32, 512)],
    }


def test_s0_convolutions_are_named_with_their_flops():
    convs = {w.name: w for w in networks.step(S0, 32) if w.kind == "conv"}
    assert {name: w.flops for name, w in convs.items()} == {
        "conv1 fprop": 56_623_104, "conv1 wgrad": 56_623_104,
        "conv2 fprop": 301_989_888, "conv2 dgrad": 301_989_888, "conv2 wgrad": 301_989_888,
        "conv3 fprop": 462_422_016, "conv3 dgrad": 462_422_016, "conv3 wgrad": 462_422_016}  # fmt: skip
    assert all(w.problem is None and "not measured yet" in w.why for w in convs.values())


def test_the_first_layer_with_weights_has_no_dgrad_also_behind_a_flatten():
    mlp = Network("m", "", (4, 4, 1), 3, (Layer("flatten", "flatten"), Layer("a", "dense", 5), Layer("b", "dense", 3)))
    assert [w.name for w in networks.step(mlp, 2)] == ["a fprop", "a wgrad", "b fprop", "b dgrad", "b wgrad"]
    assert networks.parameters(mlp) == 16 * 5 + 5 + 5 * 3 + 3


def test_arithmetic_is_the_one_asked_for():
    assert {w.problem.math for w in networks.step(S0, 8, math="tf32") if w.problem} == {"tf32"}


def test_odd_sizes_lose_their_last_row_in_a_pool():
    assert networks.output(Layer("p", "pool", size=2), (7, 5, 3)) == (3, 2, 3)


@pytest.mark.parametrize(("layer", "words"), [
    (Layer("wide", "conv", 8, 5), "wide leaves nothing of a 4x4x1 input"),
    (Layer("x", "attention"), "unknown kind 'attention'; known: conv, pool")])  # fmt: skip
def test_layers_that_cannot_be(layer, words):
    with pytest.raises(ValueError, match=words):
        networks.outputs(Network("m", "", (4, 4, 1), 3, (layer,)))


def test_unknown_models_are_named_with_those_known():
    with pytest.raises(ValueError, match="unknown model 'vgg'; known: cifar10-cnn"):
        networks.find("vgg")


def test_footprint_is_the_data_and_four_times_the_weights():
    assert Training("cifar10-cnn", 32, 100).footprint_bytes == 100 * 3072 * 4 + 4 * 1_667_594 * 4
    assert Training("cifar10-cnn", 32, 100, dtype="float64").footprint_bytes == 100 * 3072 * 8 + 4 * 1_667_594 * 4


def test_a_training_row_keeps_its_fields_in_json():
    problem = Training("cifar10-cnn", 32, 9600, 2)
    assert problem.steps == 300
    assert msgspec.json.decode(msgspec.json.encode(problem), type=Training) == problem
    assert "footprint_bytes" not in msgspec.json.encode(problem).decode()
