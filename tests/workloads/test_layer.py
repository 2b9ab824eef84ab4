"""Layers timed by themselves: their work by hand inside TensorFlow (tests/support/inside_layers.py), the slope of a known cost,
the command's rows and errors, and a model's layers beside its step."""

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, by_later_epochs, row

from analysis.text import layer_sums
from analysis.training import layer_sum
from kernels.problems import InputPipeline, Launch, LayerCall, Training
from workloads import options
from workloads.frameworks.layer_graphs import chain, description, inputs
from workloads.frameworks.layer_graphs.description import DescribedLayer, DescribedLayers, DirectionWork
from workloads.harness.dispatch import Broken
from workloads.harness.timing import Limits
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


def clock_of(count: int, fixed_s: float, call_s: float, noise=lambda: 0.0):
    """The clock of chains of so many calls, of a known cost."""
    return lambda chains: chains * (fixed_s + count * call_s + noise())


def test_the_slope_of_a_known_cost():
    short, long = clock_of(2, 1e-3, 5e-5), clock_of(10, 1e-3, 5e-5)
    samples = chain.slope_samples(short, long, longer=8, limits=Limits(), before=lambda: None)
    assert samples.seconds == pytest.approx([5e-5] * 5)
    assert samples.block_sizes == (1,) * 5 and samples.calls % 8 == 0


def test_a_call_lost_in_noise_has_no_time():
    short, long = clock_of(2, 1e-3, 0.0), clock_of(10, 1e-3, 0.0)
    with pytest.raises(Broken, match="8 more calls take no longer than the noise"):
        chain.slope_samples(short, long, longer=8, limits=Limits(), before=lambda: None)


@pytest.mark.parametrize(("call_s", "calls"), [(0.0, 64), (1e-6, 64), (1e-3, 4), (1.0, 2)])
def test_a_chain_is_longer_by_some_milliseconds(call_s, calls):
    assert chain.longer_by(call_s) == calls


@pytest.mark.parametrize(
    ("text", "sides", "dtype"),
    [("32,32,3", (32, 32, 3), "float32"), ("32x32x3", (32, 32, 3), "float32"), ("200:int32", (200,), "int32")],
)
def test_shapes_of_inputs(text, sides, dtype):
    shape = inputs.parsed(text)
    assert (shape.sides, shape.dtype) == (sides, dtype)


@pytest.mark.parametrize("text", ["32;32", "a", "32,,3", "0,3", "3:float31"])
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(options.Usage):
        inputs.parsed(text)


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


def call(name: str, direction: str, seconds: float, *, count: int = 1, jit: str = "off", **where):
    """A measured direction of a layer of lenet."""
    problem = LayerCall(layer=name, kind="Dense", direction=direction, batch=4, input="8", model="lenet", count=count)
    return row(description.KERNEL, problem, seconds, switches={"jit_compile": jit}, **where)


def test_layers_and_their_surroundings_sum_to_the_step():
    """Two equal layers of 1 + 3 ms, one of 2 + 1 ms without a gradient of its input, and 0.5 + 0.2 + 0.2 + 0.1 ms around them:
    12 ms of a step of 13."""
    training = row("training/keras/fit", Training("lenet", 4, 40), 13e-3, values={"jit_compile": 0.0})
    rows = [
        by_later_epochs(training, (0.0, 0.0, 13e-3)),
        call("first", "fprop", 2e-3),
        call("first", "wgrad", 1e-3),
        call("hidden", "fprop", 1e-3, count=2),
        call("hidden", "fprop", 5e-3, count=2, jit="on"),
        call("hidden", "wgrad", 2e-3, count=2),
        call("hidden", "dgrad", 2e-3, count=2),
        call("hidden", "backward", 3e-3, count=2),
        call(LayerCall.LOSS, "fprop", 0.4e-3),
        call(LayerCall.LOSS, "dgrad", 0.1e-3),
        call(LayerCall.OPTIMIZER, "fprop", 0.2e-3),
        row("launch/tensorflow/fit", Launch("step", 1), 1e-3),
        row("launch/tensorflow/fit", Launch("step", 11), 3e-3),
        row("feeding/keras/numpy", InputPipeline(4, 8, 16), 0.3e-3),
    ]
    (found,) = layer_sum.sums(rows)
    assert found.step.value == pytest.approx(13e-3)
    assert {one.layer: one.seconds.value for one in found.layers} == pytest.approx({"first": 3e-3, "hidden": 8e-3})
    parts = {name: part.value for name, part in found.parts.items()}
    assert parts == pytest.approx(
        {"loss and metrics": 0.5e-3, "optimizer": 0.2e-3, "dispatch": 0.2e-3, "input pipeline": 0.1e-3}
    )
    assert found.explained.value == pytest.approx(12e-3)
    assert found.remainder.value == pytest.approx(1e-3)
    assert (found.missing, found.otherwise) == ((), ())
    shown = {cells[0]: cells[-1] for cells in layer_sums.table(found).rows}
    assert (shown["all layers"], shown["in no part"]) == ("85 %", "7.7 %")
    assert found.explains_step


def test_a_sum_that_does_not_explain_the_step():
    """9.2 ms of 10 explain it, 8.8 and 11.2 do not."""
    for seconds, explains in ((9.2e-3, True), (8.8e-3, False), (11.2e-3, False)):
        training = row("training/keras/fit", Training("lenet", 4, 40), 10e-3, values={"jit_compile": 0.0})
        rows = [by_later_epochs(training, (0.0, 0.0, 10e-3)), call("first", "fprop", seconds)]
        (one,) = layer_sum.sums(rows)
        assert one.explains_step is explains
        assert ("do not explain" in layer_sums.sentences(one)[0]) is not explains


def test_a_layer_without_a_time_is_named():
    training = row("training/keras/fit", Training("lenet", 4, 40), 13e-3, values={"jit_compile": 1.0})
    failed = row(
        description.KERNEL,
        call("lost", "fprop", 1e-3).problem,
        None,
        status="failed",
        switches={"jit_compile": "on"},
    )
    rows = [by_later_epochs(training, (0.0, 0.0, 13e-3)), failed, call("other", "fprop", 1e-3)]
    (found,) = layer_sum.sums(rows)
    assert (found.missing, found.otherwise) == (("lost",), ("other",))


def test_the_batch_from_which_the_gpu_wins():
    """The CPU takes 1 ms a sample, the GPU 4 ms whatever the batch: they meet at 4."""
    rows = []
    for batch in (1, 2, 8, 16):
        problem = LayerCall(layer="Dense", kind="Dense", direction="fprop", batch=batch, input="8")
        rows.append(row(description.KERNEL, problem, batch * 1e-3))
        rows.append(row(description.KERNEL, problem, 4e-3, device="gpu:0"))
    (found,) = layer_sum.crossovers(rows, None)
    assert (found.answer.kind, found.answer.low_n, found.answer.high_n) == ("gpu-from", 1, 16)
    assert found.answer.crossings[0].at.value == pytest.approx(4, rel=0.05)
