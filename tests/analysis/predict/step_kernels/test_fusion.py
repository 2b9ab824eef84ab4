"""Which kernels a step's operations come to, counted by hand, beside what XLA itself lists."""

import pytest
from msgspec.structs import replace

from analysis.predict.step_kernels import fusion, operation_counts, step_kernel
from kernels import networks


def counted(model, optimizer, device="cpu"):
    import msgspec

    network = msgspec.structs.replace(networks.find(model), optimizer=optimizer)
    return fusion.compiled(networks.step(network, 32), device)


def test_networks_by_hand_passes_between_products_are_one():
    """Two layers: products forward 2, backward 3; a kernel forward and one backward for each activation; loss 12."""
    sides = (("sgd",), ("adam",), ("adam", "gpu:0"))
    sgd, adam, gpu = (counted("mlp-20-16x1-5", *side) for side in sides)
    fixed = 2 + 3 + 2 + 2 + 12
    assert step_kernel.launches(sgd) == fixed + 4  # a kernel a variable, the bias's own sum in it
    assert step_kernel.launches(adam) == fixed + 2 + 4 * 3  # the two sums, and weights and two moments of each variable
    assert step_kernel.launches(gpu) == fixed + 2 + 4
    names = [k.name for k in sgd]
    assert "dense1 bias to relu" in names and "dense1 bias_grad to sgd bias" in names
    assert "dense1 bias_grad" in [k.name for k in adam]
    kernels = {k.name: k for k in counted("cifar10-cnn", "adam")}
    assert {"conv1 bias to relu", "pool1 maxpool", "dropout1 dropout", "dense1 bias to dropout"} <= set(kernels)
    assert kernels["dense1 bias to dropout"].problem.operation == "dropout"
    assert {"dropout3 dropout_grad to relu_grad", "dropout1 dropout_grad"} <= set(kernels)
    assert {"pool1 maxpool_grad", "conv1 relu_grad"} <= set(kernels)
    assert "conv1 dgrad" not in kernels


def test_op_by_op_fuses_nothing():
    works = networks.step(networks.find("cifar10-cnn"), 32)
    kernels = fusion.op_by_op(works)
    assert [k.name for k in kernels] == [w.name for w in works] and step_kernel.launches(kernels) == len(works)
    # 401: 14 products, 8 biases with their gradients... of which dropout's 3 have 12 operations each and their gradients 2,
    # Adam's 10 variables 28, the loss, its gradient and the accuracy 41
    simple = sum(w.kind in ("dense", "conv", "pass") and w.direction != "dropout" for w in works)
    assert step_kernel.operations_outside_loops(kernels) == simple + 3 * 12 + 3 + 10 * 28 + 41
    works = networks.step(networks.find("cifar10-cnn"), 32)
    assert step_kernel.operations_outside_loops(fusion.compiled(works)) == step_kernel.operations_outside_loops(
        fusion.op_by_op(works)
    )
    assert sum(
        k.problem.flops for k in fusion.compiled(works) if k.part in ("matmul", "conv")
    ) == 32 * networks.training_flops(networks.find("cifar10-cnn"))


def test_a_cpu_product_includes_bias_and_activation():
    def names(model):
        works = networks.step(networks.find(model), 32)
        left_out = {w.name for w in works} - {k.name for k in fusion.op_by_op(works, "cpu")}
        assert fusion.op_by_op(works, "cpu") == [k for k in fusion.op_by_op(works) if k.name not in left_out]
        return left_out

    cnn = {f"conv{i} {what}" for i in (1, 2, 3) for what in ("bias", "bias_grad", "relu")}
    assert names("cifar10-cnn") == cnn | {"dense1 bias", "dense1 relu", "dense2 bias"}  # softmax stands alone
    dense = {f"dense{i} {what}" for i in (1, 2) for what in ("bias", "tanh")}
    convs = {f"conv{i} {what}" for i in (1, 2) for what in ("bias", "bias_grad")}  # a tanh does after a convolution
    assert names("lenet") == convs | dense | {"classes bias"}
    assert not any("relu" in name for name in names("resnet-small"))  # behind a normalization
    up = networks.Layer("a", "conv", 2), networks.Layer("up", "transposed", 3, 2, 2, shape=(8, 8, 3))
    works = networks.step(networks.Network("own", "", (4, 4, 2), 3, up), 2)
    assert {w.name for w in works} - {k.name for k in fusion.op_by_op(works, "cpu")} == {"a bias", "a bias_grad"}


@pytest.mark.parametrize(
    "name",
    [
        "fusion_of_dense_layers",
        "fusion_of_convolutions",
        "operations_as_tensorflow_runs_them",
        "loops_and_attention_as_tensorflow_runs_them",
    ],
)
def test_what_xla_and_tensorflow_list_is_as_many(inside, name):
    assert inside(name) == ("ok", "")


@pytest.mark.parametrize(
    ("operation", "times"),
    [("read", 1), ("relu", 1), ("add", 1), ("dropout", 9 / 2), ("batchnorm_grad", 8), ("sgd", 5 / 3)],
)
def test_bytes_step_by_step_over_one_pass(operation, times):
    assert operation_counts.unfused_traffic(operation) == pytest.approx(times)


def test_passes_of_a_loop_stand_alone():
    """The third of five passes runs eight times in a step: two kernels around it."""
    passes = [w for w in networks.step(networks.find("mlp-20-16x5-5"), 32) if w.direction == "relu"]
    looped = [replace(w, times=8) if i == 2 else w for i, w in enumerate(passes)]
    assert [(k.operations, k.times) for k in fusion._fused(looped)] == [(2, 1), (1, 8), (2, 1)]
    assert [k.operations for k in fusion._fused(passes)] == [5]


def test_mean_pools_cost_what_maximum_pools_cost():
    (pool, back) = [
        fusion.kernel_of([w]) for w in networks.step(networks.find("lenet"), 32) if w.name.startswith("pool1 ")
    ]
    made = [k.problem for k in (pool, back)]
    assert [p.operation for p in made] == ["maxpool", "maxpool_grad"]
    images = 74 * 2048 * 4  # 32 images of 28 x 28 x 6 values are 73.5 of those that passes are measured on
    # with a quarter of them pooled; with that one's gradient and their own
    assert [p.nbytes for p in made] == [images * 5 // 4, images * 5 // 2]
    small = [fusion.kernel_of([w]) for w in networks.step(networks.find("lenet"), 1) if "pool2 " in w.name]
    assert [k.problem.nbytes for k in small] == [2048 * 5, 2048 * 10]
