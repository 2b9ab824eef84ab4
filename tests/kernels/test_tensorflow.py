"""Every TensorFlow kernel in the suite's one TensorFlow process: right, or refused with a reason."""

import importlib.util

import pytest

from kernels import registry
from kernels.problems import Launch, Stream, Transfer
from kernels.reference import stream as passes

ADDS = ("copy", "scale", "add", "triad", "read")
STEPS = ("relu", "relu_grad", "dropout", "maxpool", "maxpool_grad", "batchnorm", "sgd", "adam")
CALLS = {
    "eager": ("elementwise", "matmul", "copy"),
    "function": ("elementwise", "matmul"),
    "jit": ("elementwise", "matmul"),
    "fit": ("step", "epoch", "predict", "train_on_batch"),
    "fit_jit": ("step",),
    "fit_op_by_op": ("epoch",),
}


@pytest.mark.parametrize(("variant", "call"), [(v, c) for v, calls in CALLS.items() for c in calls])
def test_launches_are_right_and_timed(measured, variant, call):
    m = measured(f"launch/tensorflow/{variant}", Launch(call, 1 if call in ("matmul", "copy") else 3))
    assert (m.status, m.reason, m.check) == ("ok", "", "exact")
    assert [s.clock for s in m.samples] == ["host-latency"]


def test_all_launch_kernels_are_in_that_list_with_their_calls():
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    kernels = registry.load("launch", "tensorflow")
    assert {k.variant for k in kernels} == set(CALLS)
    assert all(set(CALLS[k.variant]) <= set(k.bind.calls) for k in kernels)


@pytest.mark.parametrize("variant", ["function", "jit"])
@pytest.mark.parametrize("operation", [*ADDS, *STEPS])
def test_passes_are_right(measured, variant, operation):
    m = measured(f"stream/tensorflow/{variant}", Stream(operation, 1 << 18, "float32"))
    assert (m.status, m.reason) == ("ok", "")


@pytest.mark.parametrize(
    "operation", ["copy", "read", "relu_grad", "dropout", "maxpool_grad", "batchnorm", "sgd", "adam"]
)
def test_passes_in_a_row_are_right_and_counted(measured, operation):
    m = measured("stream/tensorflow/graph", Stream(operation, 1 << 18, "float32"))
    assert (m.status, m.reason) == ("ok", "")
    assert all(s.calls % (passes.UPDATES if operation in ("sgd", "adam") else passes.IN_A_ROW) == 0 for s in m.samples)


def test_a_pools_gradient_behind_it_and_held_samples_are_right(measured):
    m = measured("stream/tensorflow/pooled", Stream("maxpool_grad", 1 << 18, "float32"))
    assert (m.status, m.reason, m.check) == ("ok", "", "each window's gradient on its largest")
    m = measured("stream/tensorflow/dataset", Stream("copy", 1 << 18, "float32"))
    assert (m.status, m.reason, m.check) == ("ok", "", "exact")


@pytest.mark.parametrize(
    ("kernel", "problem", "words"),
    [
        ("stream/tensorflow/jit", Stream("batchnorm_grad", 1 << 18, "float32"), "together with its forward pass"),
        ("stream/tensorflow/function", Stream("relu", 1 << 10, "bfloat16"), "float32 and float64, not bfloat16"),
        ("stream/tensorflow/graph", Stream("batchnorm_grad", 1 << 18, "float32"), "together with its forward pass"),
        ("stream/tensorflow/dataset", Stream("add", 1 << 18, "float32"), "it is a copy"),
        ("stream/tensorflow/pooled", Stream("maxpool", 1 << 18, "float32"), "is maxpool_grad's"),
        ("launch/tensorflow/function", Launch("matmul", 2), "computed once"),
        ("launch/tensorflow/jit", Launch("empty"), "has no empty"),
        ("launch/tensorflow/fit", Launch("copy"), "fit has no copy"),
        ("transfer/tensorflow/constant", Transfer("h2d", 1 << 10), "there is no link"),
        ("transfer/tensorflow/constant", Transfer("d2h", 1 << 10), "plain h2d copy"),
        ("transfer/tensorflow/dataset", Transfer("h2d", 1 << 10, "pinned"), "pageable memory"),
    ],
)
def test_what_it_cannot_do_is_skipped_with_the_reason(measured, kernel, problem, words):
    m = measured(kernel, problem)
    assert m.status == "skipped" and words in m.reason
