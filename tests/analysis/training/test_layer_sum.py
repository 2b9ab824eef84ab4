"""Sums of layers beside a measured step."""

import pytest
from fake_measurements import by_later_epochs, row

from analysis.text import layer_sums
from analysis.training import layer_sum
from kernels.problems import InputPipeline, Launch, LayerCall, Training
from workloads.frameworks.layer_graphs import description


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
