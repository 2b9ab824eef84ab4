"""The layer tables against numbers worked out by hand."""

import msgspec
import pytest

from kernels import networks
from kernels.networks import Layer, Network, layers
from kernels.problems import Conv, Matmul, Stream, Training

S0 = networks.find("cifar10-cnn")


def by_layer(values) -> dict:
    return dict(zip((layer.name for layer in S0.layers), values, strict=True))


def test_s0_weights_and_shapes_by_layer():
    weights = {name: count for name, count in by_layer(networks.layer_weights(S0)).items() if count}
    assert weights == {"conv1": 896, "conv2": 18496, "conv3": 36928, "dense1": 1606144, "dense2": 5130}
    assert networks.parameters(S0) == 1_667_594
    shapes = " ".join(f"{name}:{'x'.join(map(str, shape))}" for name, shape in by_layer(networks.outputs(S0)).items())
    assert shapes == (
        "conv1:32x32x32 pool1:16x16x32 dropout1:16x16x32 conv2:16x16x64 conv3:14x14x64 pool2:7x7x64 dropout2:7x7x64 "
        "flatten:3136 dense1:512 dropout3:512 dense2:10"
    )
    assert layers.inputs(S0)[0] == (32, 32, 3)


def test_a_steps_products_and_convolutions_at_batch_32():
    assert {w.name: w.problem for w in networks.step(S0, 32) if w.kind == "dense"} == {
        "dense1 fprop": Matmul(32, 512, 3136),
        "dense1 dgrad": Matmul(32, 3136, 512, layout="nt"),
        "dense1 wgrad": Matmul(3136, 512, 32, layout="tn"),
        "dense2 fprop": Matmul(32, 10, 512),
        "dense2 dgrad": Matmul(32, 512, 10, layout="nt"),
        "dense2 wgrad": Matmul(512, 10, 32, layout="tn"),
    }
    convs = {w.name: w for w in networks.step(S0, 32) if w.kind == "conv"}
    flops = {"conv1": 56_623_104, "conv2": 301_989_888, "conv3": 462_422_016}
    ways = [(name, way) for name in flops for way in ("fprop", "dgrad", "wgrad") if (name, way) != ("conv1", "dgrad")]
    assert {name: w.flops for name, w in convs.items()} == {f"{name} {way}": flops[name] for name, way in ways}
    assert convs["conv3 dgrad"].problem == Conv(32, 16, 16, 64, 64, 3, 3, 1, "valid", direction="dgrad")
    assert convs["conv1 wgrad"].problem == Conv(32, 32, 32, 3, 32, 3, 3, 1, "same", direction="wgrad")


def test_s0_passes_of_a_step_at_batch_32():
    """conv1 gives 32 x 32 x 32 x 32 = 1,048,576 numbers; the pool keeps a quarter."""
    step = {w.name: w for w in networks.step(S0, 32)}
    first = [name for name in step if name.startswith(("conv1 ", "pool1 ", "dropout1 ", "flatten "))]
    expected = ["conv1 fprop", "conv1 wgrad", "conv1 bias", "conv1 bias_grad", "conv1 relu", "conv1 relu_grad"]
    expected += ["pool1 maxpool", "pool1 maxpool_grad", "dropout1 dropout", "dropout1 dropout_grad"]
    assert first == [*expected, "conv1 adam kernel", "conv1 adam bias"]
    million = 1 << 20
    expected = {
        "conv1 relu": Stream("relu", 2 * 4 * million, "float32"),
        "conv1 bias_grad": Stream("read", 4 * million, "float32"),
        "pool1 maxpool_grad": Stream("maxpool_grad", 10 * million, "float32"),  # x, a quarter of dy, dx
        "dropout1 dropout": Stream("dropout", 2 * million, "float32"),
    }
    assert {name: step[name].problem for name in expected} == expected
    assert step["pool1 maxpool"].flops == 3 * million // 4  # three comparisons a window of four
    assert step["dense1 adam kernel"].problem == Stream("adam", 7 * 4 * 3136 * 512, "float32")
    assert sum(w.problem.elements for w in step.values() if w.kind == "optimizer") == 1_667_594
    expected = {f"sparse_categorical_crossentropy {d}" for d in ("loss", "loss_grad", "accuracy")}
    assert {w.name for w in step.values() if w.kind == "loss"} == expected
    assert {w.why for w in step.values() if w.name in ("conv1 relu", "pool1 maxpool")} == {""}
    assert step["dense2 softmax"].why == "priced as relu: the same arrays"


def test_the_first_weighted_layer_has_no_dgrad():
    """No gradients, dropout, loss or optimizer: 3 convolutions, 2 dense layers, a bias and an activation each, 2 pools."""
    works = networks.inference(S0, 8)
    assert [w.direction for w in works if w.kind in ("conv", "dense")] == ["fprop"] * 5
    expected = sorted(["bias"] * 5 + ["relu"] * 4 + ["softmax"] + ["maxpool"] * 2)
    assert sorted(w.direction for w in works if w.kind == "pass") == expected
    assert {w.kind for w in works} == {"conv", "dense", "pass"}
    mlp = Network("m", "", (4, 4, 1), 3, (Layer("flatten", "flatten"), Layer("a", "dense", 5), Layer("b", "dense", 3)))
    products = [w.name for w in networks.step(mlp, 2) if w.kind == "dense"]
    assert products == ["a fprop", "a wgrad", "b fprop", "b dgrad", "b wgrad"]
    assert networks.parameters(mlp) == 16 * 5 + 5 + 5 * 3 + 3


# a, then b beside a's own output, joined: a feeds two, so its gradients are added
FORK = Network(
    "fork",
    "",
    (8, 8, 3),
    2,
    (
        Layer("pool", "pool", size=2),
        Layer("a", "conv", 4, 3, pad="same", activation="relu"),
        Layer("bn", "batchnorm"),
        Layer("b", "conv", 4, 1, inputs=("bn",)),
        Layer("sum", "add", inputs=("bn", "b")),
        Layer("c", "conv", 2, 1, inputs=("input",), stride=2, bias=False),
        Layer("both", "concat", inputs=("sum", "c")),
        Layer("mean", "globalpool"),
        Layer("out", "dense", 2),
    ),
    "sgd",
    "mean_squared_error",
)


def test_a_network_may_branch():
    assert layers.sources(FORK)[3:7] == (("bn",), ("bn", "b"), ("input",), ("sum", "c"))
    assert networks.outputs(FORK)[3:8] == ((4, 4, 4), (4, 4, 4), (4, 4, 2), (4, 4, 6), (6,))
    assert networks.layer_weights(FORK) == (0, 112, 16, 20, 0, 6, 0, 0, 14)
    assert (networks.parameters(FORK), networks.trainable(FORK)) == (168, 160)  # bn keeps 4 means and 4 variances
    names = [w.name for w in networks.step(FORK, 2)]
    expected = ["bn batchnorm", "bn batchnorm_grad", "bn gradient_sum 1", "bn sgd gamma", "bn sgd beta"]
    assert [n for n in names if n.split()[0] == "bn"] == expected
    assert not {"pool maxpool_grad", "a dgrad", "c dgrad"} & set(names), "nothing learns below"
    assert {"b dgrad", "sum add", "both concat_grad", "mean globalpool_grad", "mean_squared_error loss"} <= set(names)
    assert "mean_squared_error accuracy" not in names and not [n for n in names if n.startswith("input gradient")]
    # concat at batch 2: 4 x 4 of 4 and of 2 channels in, 6 out: 2 x 2 x 96 floats
    both = next(w for w in networks.step(FORK, 2) if w.name == "both concat")
    assert (both.problem, both.why) == (Stream("copy", 4 * 2 * 2 * 96, "float32"), "priced as a copy of the same bytes")
    work = next(w for w in networks.step(FORK, 1) if w.name == "bn batchnorm")
    assert work.problem.elements == 8 * 8 * 32 and work.flops == 8 * 64


def test_depthwise_and_transposed_convolutions_by_hand():
    """2 samples of 8 x 6 with 4 channels: 3 x 3 taps every 2 give 4 x 3 with 8 channels, then 2 x 2 up to 8 x 6 with 3."""
    up = Layer("up", "transposed", 3, 2, 2, "same", shape=(8, 6, 3))
    of = Layer("a", "conv", 4), Layer("deep", "depthwise", 8, 3, 2, "same", 4, bias=False), up
    found = {w.name: w for w in networks.step(Network("m", "", (8, 6, 1), 3, of), 2) if w.layer != "a"}
    convs = {name: (w.flops, w.problem.direction) for name, w in found.items() if w.kind == "conv"}
    deep, wide = 2 * (2 * 12) * 8 * 9, 2 * (2 * 12) * 8 * 3 * 4
    forth, back = {"fprop": "dgrad", "dgrad": "fprop", "wgrad": "wgrad"}, ("fprop", "dgrad", "wgrad")
    assert convs == {f"deep {way}": (deep, way) for way in back} | {f"up {way}": (wide, forth[way]) for way in back}
    # the input or its gradient, the filters, the output or its gradient
    assert {found[f"deep {way}"].problem.bytes_moved for way in back} == {4 * (2 * 48 * 4 + 8 * 9 + 2 * 12 * 8)}
    assert {found[f"up {way}"].problem.bytes_moved for way in back} == {4 * (2 * 12 * 8 + 4 * 8 * 3 + 2 * 48 * 3)}
    assert networks.layer_weights(Network("m", "", (8, 6, 1), 3, of)) == (8, 72, 4 * 8 * 3 + 3)


def test_unmeasured_work_names_its_price():
    layers = Layer("p", "pool", size=3, stride=2), Layer("f", "flatten"), Layer("d", "dense", 2)
    wide = Network("m", "", (9, 9, 2), 2, layers)
    assert networks.step(wide, 1)[0].why == "a window of 3 x 3 every 2, priced as 2 x 2 every 2"
    assert networks.outputs(wide)[0] == (4, 4, 2)
    work = networks.step(Network("m", "", (4,), 2, (Layer("d", "dense", 2),), "lamb"), 1)[-1]
    assert (work.problem, work.why) == (None, "no stream problem is a step of lamb")


def test_every_work_has_a_problem_and_a_name():
    for network in networks.NETWORKS.values():
        for works in (networks.step(network, 4), networks.inference(network, 4)):
            assert len({w.name for w in works}) == len(works), network.name
            assert all(w.problem for w in works), network.name
        updated = [w.problem.elements for w in networks.step(network, 4) if w.kind == "optimizer"]
        assert sum(updated) == networks.trainable(network), network.name


@pytest.mark.parametrize(
    ("name", "weights", "fixed"),
    [
        ("cifar10-mlp", 12_230_010, 0),
        ("fashion-mlp", 1_399_510, 0),
        ("mnist-cnn", 34_826, 0),
        ("peaks", 171, 0),
        ("lenet", 61_706, 0),
        ("strided-cnn", 95_434, 448),
        ("vgg-small", 3_248_202, 0),
        ("resnet-small", 274_442, 1_376),
        ("vgg-16", 138_357_544, 0),
        ("resnet-50", 25_636_712, 53_120),
        ("inception-v3", 23_851_784, 34_432),
        ("fashion-mlp-1", 397_510, 0),
        ("mlp-784-50x2-10", 42_310, 0),
    ],
)
def test_weights_as_published(name, weights, fixed):
    """The articles', LeCun's LeNet-5 with a full second convolution, and keras.applications' own counts; `fixed` are the
    running means and variances. By hand: peaks 3 x 20 + 21 x 5 + 6; strided-cnn 28 x 32, 289 x 64 and 577 x 128, four a
    filter in its normalizations, 129 x 10; vgg-small 1,145,408 in its convolutions, 4096 x 512 + 512 and 513 x 10; a
    fashion-mlp of one layer 785 x 500 + 501 x 10; the last 785 x 50 + 51 x 50 + 51 x 10."""
    network = networks.find(name)
    expected = (weights, fixed)
    assert (networks.parameters(network), networks.parameters(network) - networks.trainable(network)) == expected


@pytest.mark.parametrize(
    ("name", "multiply_adds"),
    [
        ("mnist-cnn", 26 * 26 * 32 * 9 + 11 * 11 * 64 * 288 + 1600 * 10),
        ("lenet", 28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10),
        ("strided-cnn", 32 * 32 * 32 * 27 + 16 * 16 * 64 * 288 + 8 * 8 * 128 * 576 + 128 * 10),
        ("peaks", 2 * 20 + 20 * 5 + 5),
        ("cifar10-mlp", 3072 * 3000 + 3000 * 1000 + 1000 * 10),
    ],
)
def test_multiply_adds_of_an_answer_by_hand(name, multiply_adds):
    assert networks.inference_flops(networks.find(name)) == 2 * multiply_adds


@pytest.mark.parametrize(("name", "billions"), [("vgg-16", 15.47), ("resnet-50", 3.86), ("inception-v3", 5.71)])
def test_multiply_adds_of_an_image_as_published(name, billions):
    """VGG-16 15.5, ResNet-50 3.8 (the stride in the 1 x 1), Inception V3 5.7 billion multiply-adds an image."""
    flops = sum(w.flops for w in networks.inference(networks.find(name), 1) if w.kind in ("conv", "dense"))
    assert flops / 2e9 == pytest.approx(billions, rel=2e-3)


def test_generators_by_name_and_unknown_models():
    assert networks.find("mlp-3072-500x3-10") == networks.mlp(3072, 500, 3, 10)
    assert [layer.units for layer in networks.mlp(8, 5, 2, 3).layers] == [5, 5, 3]
    assert networks.find("fashion-mlp-5").layers == networks.find("fashion-mlp").layers
    assert networks.known("mlp-3072-500-10") is None
    with pytest.raises(ValueError, match="mlp-0-500x3-10: its numbers must be at least 1, as in mlp-784-500x2-10"):
        networks.find("mlp-0-500x3-10")
    for name in ("mlp-784-100x999999999-10", "fashion-mlp-1001"):
        with pytest.raises(ValueError, match=r"hidden layers are more than the 1,000 that"):
            networks.find(name)
    with pytest.raises(ValueError, match=r"unknown model 'vgg'; known: cifar10-cnn, .*, inception-v3, mlp-784-500"):
        networks.find("vgg")


def test_how_the_articles_train():
    of = ["optimizer", "loss", "learning_rate", "data", "samples", "batch", "epochs"]
    seeds = [n for n in networks.NETWORKS.values() if n.seed in ("S0", "S1a", "S1b", "S2", "S4")]
    assert {n.seed: tuple(getattr(n, name) for name in of) for n in seeds} == {
        "S0": ("adam", "sparse_categorical_crossentropy", 0.0, "cifar10", 50_000, 32, 10),
        "S1a": ("sgd", "categorical_crossentropy", 0.0, "cifar10", 50_000, 32, 10),
        "S1b": ("adam", "sparse_categorical_crossentropy", 0.0, "fashion_mnist", 60_000, 32, 5),
        "S2": ("adam", "sparse_categorical_crossentropy", 0.0, "mnist", 60_000, 32, 5),
        "S4": ("adam", "mean_squared_error", 0.08, "peaks", 40_000, 40_000, 2000),
    }


def test_odd_sizes_lose_a_row_in_pools():
    works = networks.step(S0, 8, math="tf32")
    assert {w.problem.math for w in works if w.kind in ("conv", "dense")} == {"tf32"}
    half = networks.step(S0, 8, "bfloat16")
    assert {w.problem.dtype for w in half if w.kind != "optimizer"} == {"bfloat16"}
    assert {w.problem.dtype for w in half if w.kind == "optimizer"} == {"float32"}, "weights are kept in float32"
    assert layers.output(Layer("p", "pool", size=2), (7, 5, 3)) == (3, 2, 3)
    assert layers.output(Layer("p", "pool", size=2, pad="same"), (7, 5, 3)) == (4, 3, 3)
    assert layers.output(Layer("p", "avgpool", size=3, stride=1, pad="same"), (7, 5, 3)) == (7, 5, 3)
    assert layers.output(Layer("z", "zeropad", size=(1, 3)), (5, 8, 2)) == (7, 14, 2)


def test_a_merge_is_a_pass_per_further_input():
    """Three branches of 2 x 5 numbers, of which each learns; the smallest problem of an add has 10 elements."""
    branches = tuple(Layer(name, "dense", 5, inputs=("input",)) for name in "abc")
    product = Layer("m", "merge", inputs=("a", "b", "c"), shape=(5,))
    works = [w for w in networks.step(Network("m", "", (7,), 5, (*branches, product)), 2) if w.layer == "m"]
    names = ["m merge 1", "m merge 2", "m merge_grad 0", "m merge_grad 1", "m merge_grad 2"]
    assert [w.name for w in works] == names
    assert {w.problem for w in works} == {Stream("add", 3 * 10 * 4, "float32")}


POOL = Layer("p", "pool", size=2)


@pytest.mark.parametrize(
    ("layers", "words"),
    [
        ([Layer("wide", "conv", 8, 5)], "wide cannot be on a 4x4x1 input: a filter of 5 x 5 is larger"),
        ([Layer("deep", "conv", 8, 3, groups=2)], "deep cannot be on a 4x4x1 input: 2 groups do not divide c_in = 1"),
        ([Layer("p", "pool", size=5)], "p leaves nothing of a 4x4x1 input"),
        ([Layer("x", "attention")], "unknown kind 'attention'; known: conv, depthwise"),
        ([Layer("a", "flatten", inputs=("b",))], "a takes 'b', which is no layer before it"),
        ([Layer("a", "dropout"), Layer("a", "dropout")], "two layers of m are called 'a'"),
        ([POOL, Layer("s", "add", inputs=("p", "input"))], "s adds inputs of different shapes: 2x2x1, 4x4x1"),
        ([POOL, Layer("s", "concat", inputs=("p", "input"))], "s joins inputs of different sizes"),
        ([POOL, Layer("s", "flatten", inputs=("p", "input"))], "s is of the kind flatten and has 2 inputs"),
        ([Layer("s", "add")], "s is of the kind add and has 1 inputs"),
    ],
)
def test_layers_that_cannot_be(layers, words):
    with pytest.raises(ValueError, match=words):
        networks.outputs(Network("m", "", (4, 4, 1), 3, tuple(layers)))


def test_a_trainings_patience_footprint_and_json():
    """VGG-16: 3 x 15.47 G multiply-adds less the first layer's dgrad, 92.65 GFLOP a sample."""
    assert Training("cifar10-cnn", 32, 320).patience_s == pytest.approx(5 * (320 * 8.4867e-3 + 10 * 20e-3), rel=1e-4)
    assert Training("vgg-16", 1, 1).patience_s == pytest.approx(5 * (9.2648 + 0.02), rel=1e-4)
    assert Training("their.module:build", 1, 1).patience_s == pytest.approx(5 * 24e-3)
    assert Training("cifar10-cnn", 32, 100).footprint_bytes == 100 * 3072 * 4 + 4 * 1_667_594 * 4
    assert Training("cifar10-cnn", 32, 100, dtype="float64").footprint_bytes == 100 * 3072 * 8 + 4 * 1_667_594 * 4
    problem = Training("cifar10-cnn", 32, 9600, 2)
    assert problem.steps == 300 and msgspec.json.decode(msgspec.json.encode(problem), type=Training) == problem
    assert "footprint_bytes" not in msgspec.json.encode(problem).decode()


def recurrent(gates: int, weights: int, fused: bool) -> Network:
    """7 time steps of 3 numbers into 5 units."""
    layer = Layer("r", "recurrent", 5, groups=gates, shape=(5,), weights=weights, fused=fused)
    return Network("m", "", (7, 3), 5, (layer,), "sgd")


@pytest.mark.parametrize("fused", [True, False], ids=["fused", "loop"])
@pytest.mark.parametrize(("gates", "bias"), [(4, 20), (3, 30), (1, 5)], ids=["LSTM", "GRU", "SimpleRNN"])
def test_flops_of_a_recurrent_cell_by_hand(gates, bias, fused):
    """2 samples. In each of 7 steps a product of 3 inputs and one of 5 state values with 5 columns a gate; a GRU has two biases.
    The passes count 4 numbers for each sample and gate's unit."""
    columns = 5 * gates
    network = recurrent(gates, (3 + 5) * columns + bias, fused)
    works = {w.name: w for w in networks.step(network, 2)}
    inputs, state = 2 * 2 * 7 * 3 * columns, 2 * 2 * 7 * 5 * columns
    products = {name: w.flops for name, w in works.items() if w.kind == "dense"}
    assert products == {
        "r fprop": inputs,
        "r wgrad": inputs,
        "r/second fprop": state,
        "r/second dgrad": state,
        "r/second wgrad": state,
    }
    assert networks.training_flops(network) == (2 * inputs + 3 * state) // 2
    assert networks.inference_flops(network) == (inputs + state) // 2
    cell = "cell" if fused else "loop"
    passes = {name: (w.flops, w.times) for name, w in works.items() if w.kind == "pass"}
    expected = {f"r {name}": (7 * 4 * 2 * columns, 7) for name in (cell, f"{cell}_grad")}
    if not fused:
        expected["r gradient_sum"] = (7 * 8 * columns, 7)
    assert passes == expected
    assert layers.variables(network.layers[0], (7, 3)) == {
        "kernel": 3 * columns,
        "recurrent": 5 * columns,
        "bias": bias,
    }
    assert networks.trainable(network) == networks.parameters(network) == 8 * columns + bias


def test_recurrent_products_that_wait_for_the_state():
    """cuDNN multiplies the inputs of all 7 steps at once, and adds up the state's weights at the end; a loop does nothing so."""
    step_by_step = {
        "r fprop": (Matmul(2, 15, 3), 7),
        "r wgrad": (Matmul(3, 15, 2, layout="tn"), 7),
        "r/second fprop": (Matmul(2, 15, 5), 7),
        "r/second dgrad": (Matmul(2, 5, 15, layout="nt"), 7),
        "r/second wgrad": (Matmul(5, 15, 2, layout="tn"), 7),
    }
    at_once = step_by_step | {
        "r fprop": (Matmul(14, 15, 3), 1),
        "r wgrad": (Matmul(3, 15, 14, layout="tn"), 1),
        "r/second wgrad": (Matmul(5, 15, 14, layout="tn"), 1),
    }
    for fused, expected in ((True, at_once), (False, step_by_step)):
        works = networks.step(recurrent(3, 150, fused), 2)
        assert {w.name: (w.problem, w.times) for w in works if w.kind == "dense"} == expected


@pytest.mark.parametrize(
    ("dtype", "weight_bytes", "stored"),
    [("float64", 8, "float64"), ("float32", 4, "float32"), ("bfloat16", 4, "float32"), ("float16", 4, "float32")],
)
@pytest.mark.parametrize(
    ("optimizer", "operation", "arrays", "flops"),
    [
        ("sgd", "sgd", 3, 2),
        ("adam", "adam", 7, 12),
        ("nadam", "adam", 7, 12),
        ("adamw", "adam", 7, 12),
        ("adamax", "adam", 7, 12),
    ],
)
def test_an_update_moves_the_weights_type(dtype, weight_bytes, stored, optimizer, operation, arrays, flops):
    """4 inputs and 2 units: 8 weights and 2 biases. SGD reads a weight and its gradient and writes it; Adam has two moments too.
    Only float64 trains weights that are not float32."""
    network = Network("m", "", (4,), 2, (Layer("d", "dense", 2),), optimizer)
    updates = {w.direction: w for w in networks.step(network, 3, dtype) if w.kind == "optimizer"}
    assert {name: w.problem for name, w in updates.items()} == {
        f"{optimizer} kernel": Stream(operation, arrays * 8 * weight_bytes, stored),
        f"{optimizer} bias": Stream(operation, arrays * 2 * weight_bytes, stored),
    }
    assert [w.flops for w in updates.values()] == [8 * flops, 2 * flops]
    assert [w.problem.bytes_moved for w in updates.values()] == [8 * arrays * weight_bytes, 2 * arrays * weight_bytes]


def test_attention_by_hand():
    """2 samples of 6 rows of 8 numbers in 4 heads: scores 6 x 6 of 2 numbers a head, and as much work to weigh the values."""
    scores = Layer("s", "scores", groups=4, inputs=("q", "k"))
    weighted = Layer("w", "weighted", groups=4, inputs=("s", "k"))
    network = Network(
        "m", "", (6, 8), 8, (Layer("q", "dense", 8), Layer("k", "dense", 8, inputs=("input",)), scores, weighted)
    )
    flops = {w.name: w.flops for w in networks.step(network, 2) if w.kind == "dense" and w.layer[0] in "sw"}
    one = 2 * (2 * 4) * 6 * 6 * 2
    names = [f"{layer} {direction}" for layer in ("s", "w") for direction in ("fprop", "dgrad")]
    assert flops == dict.fromkeys([*names, "s/second dgrad", "w/second dgrad"], one)
    assert networks.outputs(network)[2:] == ((4, 6, 6), (6, 8))
    products = {w.name: w.problem for w in networks.step(network, 2) if w.kind == "dense"}
    rows = 2 * 4 * 6
    assert {name: (products[name].m, products[name].n, products[name].k) for name in flops} == {
        "s fprop": (rows, 6, 2),
        "s dgrad": (rows, 2, 6),
        "s/second dgrad": (2 * 4 * 2, 6, 6),
        "w fprop": (rows, 2, 6),
        "w dgrad": (rows, 6, 2),
        "w/second dgrad": (rows, 2, 6),
    }


@pytest.mark.parametrize(
    ("dtype", "nbytes"), [("float64", 8), ("float32", 4), ("bfloat16", 2), ("float16", 2), ("uint8", 1)]
)
def test_bytes_of_a_sample_by_its_type(dtype, nbytes):
    assert networks.sample_bytes(S0, dtype) == 32 * 32 * 3 * nbytes


ADAM, SGD, SPARSE = "adam", "sgd", "sparse_categorical_crossentropy"


@pytest.mark.parametrize(
    ("name", "shape", "outputs", "data", "samples", "batch", "epochs", "optimizer", "loss"),
    [
        ("cifar10-cnn", (32, 32, 3), 10, "cifar10", 50_000, 32, 10, ADAM, SPARSE),
        ("cifar10-mlp", (32, 32, 3), 10, "cifar10", 50_000, 32, 10, SGD, "categorical_crossentropy"),
        ("fashion-mlp", (28, 28), 10, "fashion_mnist", 60_000, 32, 5, ADAM, SPARSE),
        ("fashion-mlp-2", (28, 28), 10, "fashion_mnist", 60_000, 32, 5, ADAM, SPARSE),
        ("mnist-cnn", (28, 28, 1), 10, "mnist", 60_000, 32, 5, ADAM, SPARSE),
        ("peaks", (2,), 1, "peaks", 40_000, 40_000, 2000, ADAM, "mean_squared_error"),
        ("lenet", (28, 28, 1), 10, "mnist", 60_000, 32, 20, SGD, SPARSE),
        ("strided-cnn", (64, 64, 3), 10, "", 50_000, 32, 10, ADAM, SPARSE),
        ("vgg-small", (32, 32, 3), 10, "cifar10", 50_000, 32, 50, ADAM, SPARSE),
        ("resnet-small", (32, 32, 3), 10, "cifar10", 50_000, 32, 200, ADAM, SPARSE),
        ("vgg-16", (224, 224, 3), 1000, "", 1_281_167, 32, 90, SGD, SPARSE),
        ("resnet-50", (224, 224, 3), 1000, "", 1_281_167, 32, 90, SGD, SPARSE),
        ("inception-v3", (299, 299, 3), 1000, "", 1_281_167, 32, 90, SGD, SPARSE),
        ("mlp-20-7x2-3", (20,), 3, "", 60_000, 32, 10, ADAM, SPARSE),
    ],
)
def test_a_network_is_trained_as_in_its_article(name, shape, outputs, data, samples, batch, epochs, optimizer, loss):
    network = networks.find(name)
    assert (network.input, network.classes, networks.outputs(network)[-1]) == (shape, outputs, (outputs,))
    trained = (network.data, network.samples, network.batch, network.epochs, network.optimizer, network.loss)
    assert trained == (data, samples, batch, epochs, optimizer, loss)
    assert network.learning_rate == {"peaks": 0.08}.get(name, 0.0)
