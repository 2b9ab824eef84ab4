"""Layers timed by themselves: their work by hand inside TensorFlow (tests/support/inside_layers.py), the slope of a known cost,
the command's rows and errors, and a model's layers beside its step."""

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE

from kernels.problems import LayerCall
from workloads import options
from workloads.frameworks.layer_graphs import description
from workloads.frameworks.layer_graphs.description import DescribedLayer, DescribedLayers, DirectionWork
from workloads.harness.worker import Order
from workloads.layer import __main__ as layer
from workloads.machine import facts
from workloads.records import Row, Settings

INSIDE = [
    "work_of_a_dense_layer",
    "work_of_a_convolution",
    "work_of_a_recurrent_layer",
    "work_of_a_normalization",
    "gradients_are_those_of_the_layer",
    "gradients_do_not_run_the_forward_pass",
    "the_forward_pass_saves_what_the_gradients_take",
    "the_gradient_of_a_pooling_has_what_the_pooling_notes",
    "layers_without_a_gradient",
    "every_call_of_a_chain_is_made",
    "copies_are_of_what_a_step_did_not_just_compute",
    "a_chain_takes_copies_where_the_caches_do_not_hold_a_step",
    "xla_takes_no_lists_of_a_loop",
    "equal_layers_of_a_model_count_once",
    "a_layer_that_fails_is_not_blamed_on_its_input",
]


@pytest.mark.parametrize("name", INSIDE)
def test_inside_tensorflow(train, name):
    measurement = train(1, 1, model=f"tests.support.inside_layers:{name}", kernel="keras/build")
    assert (measurement.status, measurement.reason) == ("ok", "")


DENSE = DescribedLayer(
    path="dense",
    kind="Dense",
    input="784",
    count=2,
    directions=(
        DirectionWork(direction="fprop", flops=200, bytes_moved=40, product_flops=100),
        DirectionWork(direction="wgrad", flops=200, bytes_moved=40, product_flops=100),
    ),
)
DROPOUT = DescribedLayer(
    path="dropout",
    kind="Dropout",
    input="784",
    count=1,
    directions=(DirectionWork(direction="fprop", flops=5, bytes_moved=40, product_flops=0),),
)


@pytest.fixture
def known_layers(monkeypatch):
    """Layers that need no process to be described."""
    layers = DescribedLayers(layers=(DENSE, DROPOUT), sample_values=784)
    monkeypatch.setattr(description, "described", lambda requests: [layers] * len(requests))
    monkeypatch.setattr(facts, "memory_available", lambda device="cpu": 1 << 33)


def test_the_rows_of_a_model(known_layers):
    rows = layer.parse(["--model", "lenet", "--batch", "4", "8", "--jit", "off"]).rows(GPU_MACHINE)
    calls = [row for row in rows if row.problem.op == "layer"]
    places = {(r.problem.layer, r.problem.direction, r.problem.batch, r.device) for r in calls}
    assert len(places) == len(calls) == 3 * 2 * 2  # directions of both layers, batches, devices
    assert {(r.problem.layer, r.device, r.problem.math) for r in calls} == {
        ("dense", "cpu", "float32"),
        ("dense", "gpu:0", "tf32"),
        ("dropout", "cpu", "float32"),
        ("dropout", "gpu:0", "float32"),
    }
    trained = [(r.problem.model, r.problem.batch, r.device) for r in rows if r.problem.op == "training"]
    assert trained == [("lenet", 4, "cpu"), ("lenet", 8, "cpu"), ("lenet", 4, "gpu:0"), ("lenet", 8, "gpu:0")]
    assert {r.problem.width for r in rows if r.problem.op == "feeding"} == {784}


def test_one_layer_alone_has_no_step(known_layers):
    rows = layer.parse(["--model", "lenet", "--layer", "dropout"]).rows(CPU_MACHINE)
    assert {row.problem.op for row in rows} == {"layer", "peak", "stream"}
    assert {row.problem.layer for row in rows if row.problem.op == "layer"} == {"dropout"}


def test_a_layer_that_the_model_does_not_have(known_layers):
    with pytest.raises(options.Usage, match="unknown layer 'dens'") as refused:
        layer.parse(["--model", "lenet", "--layer", "dens"]).rows(CPU_MACHINE)
    assert refused.value.right == "dense"


def test_a_direction_that_the_layer_does_not_have(known_layers):
    plan = layer.parse(["--model", "lenet", "--layer", "dropout", "--direction", "wgrad"])
    with pytest.raises(options.Usage, match="dropout has no weights, so it has no wgrad") as refused:
        plan.rows(CPU_MACHINE)
    assert refused.value.right == "--direction fprop"


def test_the_first_layer_has_no_input_gradient():
    plan = layer.parse(["--layer", "Dense", "--input", "784", "--units", "5", "--first-layer"])
    assert plan.directions == ("fprop", "wgrad")
    with pytest.raises(options.Usage):
        layer.parse(["--layer", "Dense", "--input", "784", "--first-layer", "--direction", "dgrad"])


def test_arguments_of_a_layer():
    words = ["--layer", "Conv2D", "--input", "32,32,3", "--filters", "32", "--kernel", "3x5", "--set", "strides=2"]
    (request,) = layer.parse([*words, "padding=same", "use_bias=False"]).requests
    assert request.arguments == (
        '{"filters": 32, "kernel_size": [3, 5], "padding": "same", "strides": 2, "use_bias": false}'
    )
    assert (request.input, request.batch, request.model) == ("32x32x3", 32, "")


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["--layer", "Dense"], "--input 32,32,3"),
        (["--layer", "Dense", "--input", "784", "--set", "units"], "name=layer"),
        (["--model", "lenet", "--first-layer"], ""),
        (["--model", "lenet", "--input", "3"], ""),
    ],
)
def test_flags_that_do_not_go_together(words, right):
    with pytest.raises(options.Usage) as refused:
        layer.parse(words)
    assert refused.value.right == right


REFUSED = [
    ("Conv2", '{"filters": 2}', "4x4x1", "Conv2", "Conv2D"),
    ("Conv2D", "", "4x4x1", "", "--filters 32 --kernel 3"),
    ("Dense", '{"units": 2, "filters": 3}', "4", "--filters", ""),
    ("Conv2D", '{"filters": 2, "kernel_size": 3}', "784", "--input", "--input 32,32,3"),
]


@pytest.mark.parametrize(("name", "arguments", "shape", "wrong", "right"), REFUSED)
def test_layers_that_cannot_be_made(train, name, arguments, shape, wrong, right):
    problem = LayerCall(layer=name, kind="", direction="fprop", batch=2, input=shape, arguments=arguments)
    answer = train.worker.ask(Order("layers", Row(description.KERNEL, problem, Settings())), 120)
    assert answer.status == "failed"
    assert (answer.notes[description.WRONG], answer.notes[description.RIGHT]) == (wrong, right)


# ---------------------------------------------------------------- a model's layers beside its step
