"""Every TensorFlow kernel in the suite's one TensorFlow process: matmul and convolution, launches and passes.

A row is `ok` only when the worker found the answer equal to the reference's on whole numbers.
"""

import importlib.util
import sys
import types

import msgspec
import pytest

from kernels import networks, registry
from kernels.problems import Conv, Launch, Matmul, Stream, Transfer
from kernels.reference import stream as passes
from kernels.stream import tensorflow as stream_tensorflow
from kernels.tensorflow import calls
from workloads.harness.worker import environment
from workloads.records import Row, Settings

WAYS = ("eager", "function", "jit")
SEEDS = [network for network in networks.NETWORKS.values() if network.seed]


def right(m) -> bool:
    """Whether the row is exact and timed. A CPU without instructions for 16-bit numbers is refused, in these words."""
    if m.problem.dtype in ("float16", "bfloat16") and m.status == "skipped":
        expected = f"TensorFlow has only general {m.problem.dtype} kernels for this CPU, which round sums on the way"
        assert m.reason == expected
        return not m.kernel.endswith("jit")
    assert (m.status, m.reason, m.check) == ("ok", "", "exact"), m.problem
    return [s.clock for s in m.samples] == ["host-latency"]


def layer_problems(network: networks.Network) -> list:
    """Every product of a step's dense and convolution layers."""
    return [work.problem for work in networks.step(network, 2) if work.kind in ("conv", "dense")]


@pytest.mark.parametrize(
    "problem", dict.fromkeys(p for n in SEEDS if n.input[0] <= 75 for p in layer_problems(n)), ids=str
)
def test_keras_layers_operations_have_the_references_numbers(measured, problem):
    assert right(measured(f"{problem.op}/tensorflow/function", problem))


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_products_are_right_in_every_layout(measured, way, dtype):
    for layout in ("nn", "nt", "tn"):
        assert right(measured(f"matmul/tensorflow/{way}", Matmul(17, 33, 65, dtype, layout=layout)))


CONVS = [
    Conv(2, 9, 8, 3, 5, 3, 3, 1, "same"),
    Conv(2, 9, 8, 4, 6, 3, 2, 2, "same"),
    Conv(3, 6, 6, 4, 6, 3, 3, 2, "valid"),
    Conv(2, 6, 11, 1, 4, 5, 2, 1, 2),
    Conv(1, 5, 5, 4, 6, 1, 1, 3, 4),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("direction", Conv.DIRECTIONS)
def test_convolutions_are_right_in_every_direction_and_precision(measured, way, direction):
    others = (msgspec.structs.replace(CONVS[0], dtype=name, math=name) for name in ("float64", "float16", "bfloat16"))
    for problem in (*CONVS, *others):
        assert right(measured(f"conv/tensorflow/{way}", msgspec.structs.replace(problem, direction=direction)))


@pytest.mark.parametrize("direction", Conv.DIRECTIONS)
def test_groups_are_right_or_refused_in_tensorflows_words(measured, direction):
    """XLA has all of them; TensorFlow's own CPU kernels may have no gradients of groups, and say so."""
    problem = Conv(2, 9, 7, 6, 9, 3, 2, 2, "valid", 3, direction=direction)
    assert right(measured("conv/tensorflow/jit", problem))
    for way in ("eager", "function"):
        m = measured(f"conv/tensorflow/{way}", problem)
        assert m.status == "ok" or (m.status, m.reason[:27]) == ("skipped", "TensorFlow cannot do this: "), m.reason


@pytest.mark.parametrize(
    "problem",
    [
        Conv(2, 9, 8, 16, 32, 3, 3, 1, "same"),
        Conv(2, 9, 8, 3, 5, 3, 2, 2, "same"),
        Conv(2, 9, 8, 4, 6, 3, 2, 1, 1),
        Conv(2, 9, 8, 16, 32, 3, 3, 1, "same", direction="dgrad"),
        Conv(2, 9, 8, 4, 6, 3, 2, 1, "valid", direction="dgrad"),
        Conv(2, 9, 8, 4, 6, 4, 2, 1, "same", 2, direction="dgrad"),
        Conv(2, 9, 8, 8, 8, 3, 3, 1, "same", dtype="bfloat16"),
    ],
    ids=str,
)
def test_fifty_in_a_row_are_right_and_counted(measured, problem):
    m = measured("conv/tensorflow/held", problem)
    assert right(m) and all(samples.calls % 50 == 0 for samples in m.samples)


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(3, 5, 7),
        Matmul(8, 5, 4, layout="nt"),
        Matmul(4, 6, 9, layout="tn"),
        *(Conv(2, 9, 8, 4, 6, 3, 3, 1, "same", direction=d) for d in Conv.DIRECTIONS),
    ],
    ids=str,
)
def test_products_in_a_row_are_right_and_counted(measured, problem):
    m = measured(f"{problem.op}/tensorflow/graph", problem)
    assert right(m) and all(samples.calls % passes.IN_A_ROW == 0 for samples in m.samples)


SMALL = Conv(2, 5, 5, 4, 4, 3, 3)


def small_conv(**fields) -> Conv:
    return msgspec.structs.replace(SMALL, **fields)


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
        ("matmul/tensorflow/function", Matmul(4, 4, 4, math="tf32"), "TF32 is an arithmetic of GPUs"),
        ("matmul/tensorflow/jit", Matmul(4, 4, 4, "bfloat16", out="float32"), "in its operands' dtype"),
        ("conv/tensorflow/eager", small_conv(math="tf32"), "TF32 is an arithmetic of GPUs"),
        ("conv/tensorflow/jit", small_conv(layout="NCHW"), "CPU convolutions are NHWC"),
        ("conv/tensorflow/graph", small_conv(layout="NCHW"), "CPU convolutions are NHWC"),
        ("conv/tensorflow/held", small_conv(direction="wgrad"), "filters whose layout can be held"),
        ("conv/tensorflow/held", small_conv(direction="dgrad", stride=2), "filters whose layout can be held"),
        ("conv/tensorflow/held", small_conv(direction="dgrad", pad=3), "padded by less than the filter"),
    ],
    ids=str,
)
def test_impossible_calls_are_skipped_with_the_reason(measured, kernel, problem, words):
    m = measured(kernel, problem)
    assert m.status == "skipped" and words in m.reason


def test_tf32_rows_have_processes_of_their_own(monkeypatch):
    """On a GPU only: TensorFlow keeps the plan of a product by its shape."""

    def override(problem, device="gpu:0", backend="tensorflow"):
        return environment(Row(f"{problem.op}/{backend}/x", problem, Settings(device)), {}).get("NVIDIA_TF32_OVERRIDE")

    assert [override(p) for p in (Matmul(2, 2, 2), SMALL)] == ["0", "0"]
    others = Matmul(2, 2, 2, math="tf32"), small_conv(math="tf32"), Matmul(2, 2, 2, "bfloat16"), Launch("matmul")
    assert {override(p) for p in others} == {override(SMALL, "cpu")} == {override(SMALL, backend="cupy")} == {None}
    asked = []
    config = types.SimpleNamespace(experimental=types.SimpleNamespace(enable_tensor_float_32_execution=asked.append))
    monkeypatch.setitem(sys.modules, "tensorflow", types.SimpleNamespace(config=config))
    tensor = types.SimpleNamespace(device="/job:localhost/replica:0/task:0/device:GPU:0")
    for math in ("tf32", "float32"):
        calls.allow_arithmetic(Matmul(2, 2, 2, math=math), tensor, "jit")
    assert asked == [True, False]
    monkeypatch.setenv("NVIDIA_TF32_OVERRIDE", "0")
    with pytest.raises(ValueError, match="forbids TF32"):
        calls.allow_arithmetic(Matmul(2, 2, 2, math="tf32"), tensor, "jit")
    with pytest.raises(ValueError, match="no float8_e4m3"):
        calls.allow_arithmetic(Matmul(2, 2, 2, "float8_e4m3", out="bfloat16"), tensor, "jit")


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


def test_all_launch_kernels_are_listed_with_their_calls():
    if importlib.util.find_spec("tensorflow") is None:
        pytest.skip("TensorFlow is not installed")
    kernels = registry.load("launch", "tensorflow")
    assert {k.variant for k in kernels} == set(CALLS)
    assert all(set(CALLS[k.variant]) <= set(k.bind.calls) for k in kernels)


def test_an_uncompiled_copy_is_a_memory_pass():
    """tf.identity copies nothing, but a compiled function gives an output of its own."""
    tf = types.SimpleNamespace(
        identity=lambda x: "the same",
        raw_ops=types.SimpleNamespace(DeepCopy=lambda x: "copied"),
        nn=types.SimpleNamespace(relu=None),
    )
    copy = Stream("copy", 64, "float32")
    assert stream_tensorflow.formula(tf, copy)(1) == "copied"
    assert stream_tensorflow.formula(tf, copy, jit_compile=True)(1) == "the same"


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


def test_a_pools_gradient_and_bound_samples_are_right(measured):
    m = measured("stream/tensorflow/pooled", Stream("maxpool_grad", 1 << 18, "float32"))
    assert (m.status, m.reason, m.check) == ("ok", "", "each window's gradient on its largest")
    m = measured("stream/tensorflow/dataset", Stream("copy", 1 << 18, "float32"))
    assert (m.status, m.reason, m.check) == ("ok", "", "exact")
