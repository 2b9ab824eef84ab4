"""The kernels of traced steps and their problems, by hand on records: products, passes, fusion, loops, and what is rough."""

import made_profile
import msgspec
import pytest
from fake_measurements import GPU_MACHINE
from traced_steps import BATCH, CHAIN, HIDDEN, Rows, adam, array, operation, problems, product, samples, step

from analysis.predict import host_parts, step_work
from analysis.predict.critical_path import TimedKernel, longest_chain
from analysis.predict.network_kernels import step_kernels
from analysis.predict.prediction import predict
from analysis.predict.profile import COMPILED, OP_BY_OP, Profile
from analysis.predict.step_kernels import step_kernel, traced_fusion, traced_op_by_op
from analysis.predict.step_kernels.traced_kernel import StepPrecision
from analysis.stats import exact
from kernels import networks
from kernels.networks import Network
from kernels.networks.operations import Amount, Convolution, MatrixProduct
from kernels.problems import Conv, Matmul, Stream, Training
from workloads.records import Settings

PLAIN = StepPrecision()


# Two inputs of rectangular shapes: 6 numbers into 8, and 5 places of 3 numbers into 4 each.
ROWS = Amount(0, 5)
TWO_INPUTS = step(
    product(Amount(0, 1), 8, 6, layer="a"),
    product(ROWS, 4, 3, layer="b"),
    operation("Reshape", "view", [array(ROWS, 4)], [samples(20)], bytes_read=Amount(), bytes_written=Amount()),
    operation("ConcatV2", "movement", [samples(8), samples(20)], [samples(28)]),
    inputs=(samples(6), samples(5, 3)),
    weights=6 * 8 + 3 * 4,
    trainable_weights=6 * 8,
)
TWO = Network(name="mine.py:build", seed="", input=(6,), classes=1, layers=(), traced=TWO_INPUTS)


def test_two_inputs_by_hand():
    kernels = traced_op_by_op.op_by_op(TWO_INPUTS, BATCH, PLAIN, "cpu")
    copied = 2 * 28 * 4 * BATCH
    assert problems(kernels) == [
        Matmul(10, 8, 6, dtype="float32"),
        Matmul(50, 4, 3, dtype="float32"),
        None,
        Stream("copy", copied, "float32"),
    ]
    assert [kernel.operations for kernel in kernels] == [1, 1, 1, 1]
    # compiled, a view is no kernel
    assert problems(traced_fusion.compiled(TWO_INPUTS, BATCH, PLAIN, "gpu:0")) == [
        Matmul(10, 8, 6, dtype="float32"),
        Matmul(50, 4, 3, dtype="float32"),
        Stream("copy", copied, "float32"),
    ]
    flops = 2 * 8 * 6 + 2 * 5 * 4 * 3
    assert networks.training_flops(TWO) == networks.inference_flops(TWO) == flops
    assert networks.sample_bytes(TWO) == (6 + 15) * 4
    assert networks.sample_bytes(TWO, "uint8") == 6 + 15
    picture = msgspec.structs.replace(TWO_INPUTS, targets=(samples(2, 5), samples(1)))
    assert picture.sample_bytes("float32") == (6 + 15 + 10) * 4
    assert (networks.parameters(TWO), networks.trainable(TWO)) == (60, 48)


def test_products_take_the_arithmetic_that_is_allowed():
    (kernel,) = traced_op_by_op.op_by_op(step(product(4, 5, 6)), BATCH, StepPrecision(math="tf32"), "gpu:0")
    assert kernel.problem == Matmul(4, 5, 6, dtype="float32", math="tf32")
    (kernel,) = traced_op_by_op.op_by_op(step(product(4, 5, 6)), BATCH, StepPrecision(dtype="bfloat16"), "gpu:0")
    assert (kernel.problem.dtype, kernel.problem.math) == ("bfloat16", "bfloat16")
    relu = operation("Relu", "element-wise", [samples(32)], [samples(32)])
    (kernel,) = traced_op_by_op.op_by_op(step(relu), BATCH, StepPrecision(dtype="bfloat16"), "gpu:0")
    assert kernel.problem == Stream("relu", 2 * 32 * 2 * BATCH, "float32")


def test_float32_in_mixed_precision_may_use_tf32():
    traced = step(product(4, 5, 6), product(4, 5, 7, outputs=(array(4, 5, dtype="float16"),)))
    network = msgspec.structs.replace(TWO, traced=traced, precision="mixed_float16")
    chosen = Settings("gpu:0", switches={"precision": "mixed_float16"}).keras
    kernels, _ = step_kernels(network, BATCH, chosen, device="gpu:0", execution=COMPILED)
    assert [kernel.problem.math for kernel in kernels] == ["tf32", "float16"]
    kernels, _ = step_kernels(network, BATCH, chosen, device="cpu", execution=OP_BY_OP)
    assert [kernel.problem.math for kernel in kernels] == ["float32", "float16"]


def test_an_answer_takes_the_forward_products_alone():
    network = msgspec.structs.replace(TWO, traced=CHAIN)
    assert networks.inference_flops(network) == 2 * 8 * 6
    assert networks.training_flops(network) == 2 * (2 * 8 * 6)


def test_an_operation_with_unsure_runs_is_rough():
    sure, unsure = product(4, 5, 6), product(4, 5, 6, doubt="a loop ends by the data")
    kernels = traced_op_by_op.op_by_op(step(sure, unsure), BATCH, PLAIN, "cpu")
    assert [kernel.rough for kernel in kernels] == ["", "a loop ends by the data"]


def test_a_cpu_product_includes_bias_and_activation():
    kernels = traced_op_by_op.op_by_op(CHAIN, BATCH, PLAIN, "cpu")
    names = ["MatMul", "Mul", "Sum", "Neg", "ReluGrad", "BiasAddGrad", "MatMul"]
    assert [kernel.name.split()[1] for kernel in kernels] == names
    assert len(traced_op_by_op.op_by_op(CHAIN, BATCH, PLAIN, "gpu:0")) == len(CHAIN.operations)


STEPS = Amount(7)
GATES = samples(4 * 2)


def lstm(**changes):
    """An LSTM of 2 units over 7 steps of 3 numbers, forward and back, without its cheaper half."""
    loop = {"runs": STEPS, **changes}
    back = {**loop, "phase": "gradient"}
    return step(
        product(Amount(0, 1), 8, 3, **loop),
        product(Amount(0, 1), 8, 2, **loop),
        operation("Tanh", "element-wise", [GATES], [GATES], **loop),
        operation("TensorListSetItem", "movement", [GATES], [GATES], **loop),
        operation("TanhGrad", "element-wise", [GATES, GATES], [GATES], **back),
        product(3, 8, Amount(0, 1), "tn", **back),
        product(Amount(0, 1), 3, 8, "nt", **back),
        product(2, 8, Amount(0, 1), "tn", **back),
        product(Amount(0, 1), 2, 8, "nt", **back),
    )


def test_a_loop_repeats_its_operations_each_time_step():
    kernels = traced_op_by_op.op_by_op(lstm(), BATCH, PLAIN, "cpu")
    assert {kernel.times for kernel in kernels} == {7}
    assert len(kernels) == 9
    compiled = traced_fusion.compiled(lstm(), BATCH, PLAIN, "gpu:0")
    assert [kernel.times for kernel in compiled] == [7] * 8  # the two passes between products are one


def test_cudnn_computes_stateless_products_at_once():
    kernels = traced_op_by_op.op_by_op(lstm(in_cudnn=True), BATCH, PLAIN, "gpu:0")
    assert [(kernel.problem, kernel.times) for kernel in kernels] == [
        (Stream("scale", 2 * 8 * 4 * BATCH, "float32"), 7),
        (None, 1),
        (Matmul(70, 8, 3, dtype="float32"), 1),
        (Matmul(10, 8, 2, dtype="float32"), 7),
        (Stream("add", 3 * 8 * 4 * BATCH, "float32"), 7),
        (None, 1),
        (Matmul(3, 8, 70, dtype="float32", layout="tn"), 1),
        (Matmul(70, 3, 8, dtype="float32", layout="nt"), 1),
        (Matmul(2, 8, 70, dtype="float32", layout="tn"), 1),
        (Matmul(10, 2, 8, dtype="float32", layout="nt"), 7),
    ]
    # four gates: 8 transpositions, 3 splits, 2 concatenations; back 16 slices, 8 transpositions, 3 concatenations
    weights = [kernel for kernel in kernels if kernel.problem is None]
    assert [(kernel.operations, kernel.launches) for kernel in weights] == [(13, 13), (27, 27)]
    assert len(traced_op_by_op.op_by_op(lstm(in_cudnn=True), BATCH, PLAIN, "cpu")) == 9  # which has no cuDNN


def test_views_and_sizes_launch_nothing_on_a_gpu(monkeypatch):
    view = operation("Reshape", "view", [HIDDEN], [HIDDEN], bytes_read=Amount(), bytes_written=Amount())
    size = operation("Prod", "reduction", [array(2, dtype="int32")], [array(1, dtype="int32")])
    tanh = operation("Tanh", "element-wise", [HIDDEN], [HIDDEN])
    looped = msgspec.structs.replace(tanh, runs=STEPS)  # 7 times
    kernels = traced_op_by_op.op_by_op(step(view, size, looped, *[tanh] * 100), BATCH, PLAIN, "gpu:0")
    assert [kernel.launches for kernel in kernels] == [0, 0] + [1] * 101
    monkeypatch.setattr(
        host_parts, "operation_overhead", lambda profile, device: exact(1e-6 if device == "cpu" else 1e-5)
    )
    small = host_parts.small_step_kernels(OP_BY_OP, "gpu:0")
    expected = 2 * 1e-6 + (100 + 7 - step_kernel.operations_outside_loops(small)) * 1e-5
    profile = Profile([])
    constants = {"kernel-launch": exact(2e-6), "tf-op-in-function": exact(1e-5)}
    monkeypatch.setattr(profile, "constant", lambda name, device, clock: constants[name])
    assert host_parts.issued_beyond_small_step(kernels, profile, "gpu:0", OP_BY_OP).seconds.value == pytest.approx(
        expected
    )


def test_a_model_xla_refuses_runs_op_by_op():
    profile = Profile(made_profile.everything(), GPU_MACHINE)
    training = Training("mine.py:build", 32, 320)
    rotated = msgspec.structs.replace(TWO, traced=msgspec.structs.replace(TWO_INPUTS, xla=False))
    executions = [predict(training, Settings("gpu:0"), profile, network).execution for network in (TWO, rotated)]
    assert executions == [COMPILED, OP_BY_OP]


def test_updates_of_one_variable_wait_in_order():
    """Two variables of an Adam: each one's operations are a chain, and the longer chain is the critical path."""
    kernels = traced_op_by_op.op_by_op(step(*adam(3, 5), *adam(40, 50)[:4]), BATCH, PLAIN, "cpu")
    assert [kernel.direction for kernel in kernels] == ["update 1"] * 7 + ["update 2"] * 4
    line = longest_chain([TimedKernel(kernel=kernel, seconds=exact(1e-6)) for kernel in kernels], 0.0)
    assert [one.kernel.direction for one in line] == ["update 1"] * 7


def test_an_update_waits_for_its_gradient():
    """The gradients come from the last layer; of two weights as large, the first is the one of the layer that is first."""
    back = {"phase": "gradient"}
    kernels = traced_op_by_op.op_by_op(
        step(
            product(Amount(0, 1), 5, 3, layer="one"),
            product(3, 5, Amount(0, 1), "tn", layer="two", **back),
            operation("BiasAddGrad", "reduction", [samples(5)], [array(5)], layer="one", **back),
            product(3, 5, Amount(0, 1), "tn", layer="one", **back),
            *adam(3, 5),
            *adam(5),
            *adam(7),
        ),
        BATCH,
        PLAIN,
        "cpu",
    )
    updates = [(kernel.layer, kernel.direction) for kernel in kernels[4:]]
    assert updates == [("one", "update kernel")] * 7 + [("one", "update bias")] * 7 + [("", "update 3")] * 7
    timed = [
        TimedKernel(kernel=kernel, seconds=exact(2e-6 if kernel.direction == "wgrad" else 1e-6)) for kernel in kernels
    ]
    line = longest_chain(timed, 0.0)
    assert [one.kernel.direction for one in line] == ["fprop", "wgrad", *["update kernel"] * 7]


def volumes(**changes):
    fields = {
        "direction": "fprop",
        "images": Amount(0, 1),
        "image": (Amount(9), Amount(7), Amount(5)),
        "positions": (Amount(4), Amount(7), Amount(5)),
        "channels": 2,
        "filters": 6,
        "window": (3, 3, 1),
        "strides": (2, 1, 1),
        "dilations": (1, 1, 1),
        "padding": "explicit",
        "layout": "NDHWC",
    }
    return Convolution(**{**fields, **changes})


def test_a_product_without_a_problem_borrows_equal_flops():
    sides = volumes()
    convolution = operation("Conv3D", "conv", [], [samples(4, 7, 5, 6)], product=sides)
    (kernel,) = traced_op_by_op.op_by_op(step(convolution), BATCH, PLAIN, "cpu")
    assert kernel.problem == Conv(40, 7, 5, 6, 6, 3, 1, pad="same", dtype="float32")
    # 10 samples of 4 x 7 x 5 places, 3 x 3 x 1 windows of 2 channels, 6 filters
    assert kernel.problem.flops == sides.flops(BATCH) == 2 * 1400 * 9 * 2 * 6
    assert kernel.rough
    heads = MatrixProduct(m=Amount(6), n=Amount(5), k=Amount(8), count=Amount(0, 4))
    attention = operation("BatchMatMulV2", "matmul", [], [samples(4, 6, 5)], product=heads)
    (kernel,) = traced_op_by_op.op_by_op(step(attention), BATCH, PLAIN, "cpu")
    assert kernel.problem == Matmul(240, 5, 8, dtype="float32")
    assert kernel.problem.flops == heads.flops(BATCH)


def test_a_view_takes_no_time_beside_its_call(monkeypatch):
    view = operation("Reshape", "view", [HIDDEN], [HIDDEN], bytes_read=Amount(), bytes_written=Amount())
    kernels = traced_op_by_op.op_by_op(step(view), BATCH, PLAIN, "gpu:0")
    assert [(kernel.problem, kernel.operations) for kernel in kernels] == [(None, 1)]
    parts = step_work.work_parts(kernels, Rows(monkeypatch), "gpu:0", OP_BY_OP)
    assert (parts.parts, parts.partial) == ({}, [])
    assert traced_fusion.compiled(step(view), BATCH, PLAIN, "gpu:0") == []


def test_an_uneven_step_holds_at_its_batch_alone():
    fixed = msgspec.structs.replace(
        TWO, traced=step(product(4, 5, 6, scales=False), operation("Relu", "element-wise", [HIDDEN], [HIDDEN]))
    )
    with pytest.raises(ValueError, match="known at a batch of 10 alone"):
        predict(Training("mine.py:build", 20, 100), Settings("cpu"), Profile([]), fixed)
