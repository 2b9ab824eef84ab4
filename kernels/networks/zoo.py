"""The networks as tables of layers: the articles' models, well-known ones, and generators.

Keras models, data and budgets are all made from these tables; a new network is an entry of NETWORKS.
"""

import functools
import re
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from kernels.networks.layers import Layer, Network

_IMAGENET: dict[str, Any] = {"data": "", "samples": 1_281_167, "optimizer": "sgd", "epochs": 90}


def _layers(table: str) -> tuple[Layer, ...]:
    """The layers that a table describes, one a line: its name, its kind and its other fields as `field=value`."""
    rows = []
    for line in table.strip().splitlines():
        name, kind, *fields = line.split()
        rows.append({"name": name, "kind": kind} | dict(field.split("=") for field in fields))
    return msgspec.convert(rows, tuple[Layer, ...], strict=False)


_CLASSES = _layers("classes dense units=10 activation=softmax")
_PREDICTIONS = _layers("predictions dense units=1000 activation=softmax")
_FLATTEN = _layers("flatten flatten")


def _relu(name: str) -> Layer:
    return Layer(name, "activation", activation="relu")


MOST_HIDDEN_LAYERS = 1000  # of a generated network


def _hidden(width: int, depth: int) -> tuple[Layer, ...]:
    """`depth` dense layers of `width` outputs with ReLU.

    Raises: ValueError for more layers than MOST_HIDDEN_LAYERS, none of which is made.
    """
    if depth > MOST_HIDDEN_LAYERS:
        raise ValueError(
            f"{depth:,} hidden layers are more than the {MOST_HIDDEN_LAYERS:,} that a network may have here"
        )
    return tuple(Layer(f"dense{i + 1}", "dense", units=width, activation="relu") for i in range(depth))


def mlp(inputs: int, width: int, depth: int, outputs: int) -> Network:
    """A multilayer perceptron for vectors of `inputs` numbers, with `depth` hidden layers of `width` and `outputs` classes;
    `mlp-784-500x5-10` by name."""
    return Network(
        name=f"mlp-{inputs}-{width}x{depth}-{outputs}",
        seed="",
        input=(inputs,),
        classes=outputs,
        layers=(*_hidden(width, depth), Layer("classes", "dense", units=outputs, activation="softmax")),
        samples=60_000,
    )


def _fashion_mlp(hidden_layers: int, name: str = "") -> Network:
    """The perceptron for Fashion-MNIST of an article (S1b in the project's list); the number of its hidden layers is the
    article's parameter: `fashion-mlp-3` by name."""
    classes = Layer("classes", "dense", units=10, activation="sigmoid")
    return Network(
        name=name or f"fashion-mlp-{hidden_layers}",
        seed="S1b",
        input=(28, 28),
        classes=10,
        layers=(*_FLATTEN, *_hidden(500, hidden_layers), classes),
        data="fashion_mnist",
        samples=60_000,
        epochs=5,
    )


def _vgg(blocks: list[tuple[int, int]]) -> tuple[Layer, ...]:
    """VGG's layers: blocks of (number of convolutions, filters), each ended by a 2 x 2 pool."""
    layers = []
    for block, (convolutions, filters) in enumerate(blocks, 1):
        for i in range(1, convolutions + 1):
            name = f"block{block}_conv{i}"
            layers.append(Layer(name, "conv", units=filters, size=3, pad="same", activation="relu"))
        layers.append(Layer(f"block{block}_pool", "pool", size=2))
    return tuple(layers)


def _normalized(
    name: str,
    *,
    units: int,
    size: int | tuple[int, int],
    stride: int = 1,
    pad: str = "same",
    source: str = "",
    affine: bool = True,
) -> tuple[Layer, ...]:
    """A convolution of the layer `source` ("": the layer before) and batch normalization; `affine`: with a bias and a scale.

    units: filters. size: side of the filter, or its height and width.
    """
    convolution = Layer(
        name=f"{name}_conv",
        kind="conv",
        units=units,
        size=size,
        stride=stride,
        pad=pad,
        bias=affine,
        inputs=(source,) if source else (),
    )
    return (convolution, Layer(f"{name}_bn", "batchnorm", scale=affine))


def _activated(name: str, **convolution: Any) -> tuple[Layer, ...]:
    """A convolution with batch normalization, then ReLU."""
    return (*_normalized(name, **convolution), _relu(f"{name}_relu"))


# ---------------------------------------------------------------- residual networks


def _stacks(
    block: Callable[..., Iterator[Layer]], sizes: tuple[tuple[int, int], ...], source: str, first_projected: bool
) -> Iterator[Layer]:
    """The stacks of a residual network, each after the first at half the size. The first block of a stack has a convolution
    in its shortcut, where sizes change; that of the first stack only if `first_projected`.

    block: makes the layers of a block, as _basic_block or _bottleneck. sizes: (filters, blocks) of each stack. source: the
    layer before.
    """
    for stack, (units, blocks) in enumerate(sizes, 2):
        for i in range(1, blocks + 1):
            begins = i == 1
            halved = begins and stack > 2
            name = f"conv{stack}_block{i}"
            yield from block(
                name,
                units=units,
                stride=2 if halved else 1,
                projected=halved or (begins and first_projected),
                source=source,
            )
            source = f"{name}_out"


def _basic_block(name: str, *, units: int, stride: int, projected: bool, source: str) -> Iterator[Layer]:
    """The layers of ResNet's basic block: two 3 x 3 convolutions and their input added; if `projected`, a 1 x 1 convolution
    of the input where sizes change.

    units: filters. source: the layer before.
    """
    shortcut = source
    if projected:
        shortcut = f"{name}_0_conv"
        yield Layer(shortcut, "conv", units=units, size=1, stride=stride, pad="same", inputs=(source,))
    yield from _activated(f"{name}_1", units=units, size=3, stride=stride, source=source)
    yield from _normalized(f"{name}_2", units=units, size=3)
    yield Layer(f"{name}_add", "add", inputs=(shortcut, f"{name}_2_bn"))
    yield _relu(f"{name}_out")


def _resnet_small() -> Network:
    """ResNet-20 for 32 x 32 images as Keras's own example builds it, 1 x 1 projections among its shortcuts.

    Source: He et al., Deep Residual Learning, section 4.2; keras-io cifar10_resnet (274,442 weights).
    """
    layers = (
        *_activated("conv1", units=16, size=3),
        *_stacks(_basic_block, ((16, 3), (32, 3), (64, 3)), "conv1_relu", first_projected=False),
        Layer("pool", "avgpool", size=8),
        *_FLATTEN,
        *_CLASSES,
    )
    return Network(
        name="resnet-small",
        seed="",
        input=(32, 32, 3),
        classes=10,
        layers=layers,
        data="cifar10",
        epochs=200,
    )


def _bottleneck(name: str, *, units: int, stride: int, projected: bool, source: str) -> Iterator[Layer]:
    """The layers of ResNet's bottleneck block (version 1): 1 x 1, 3 x 3 and 1 x 1 convolutions to four times the filters, the
    stride in the first, and their input added.

    units: filters. projected: whether a convolution brings the input to the output's size. source: the layer before.
    """
    shortcut = source
    if projected:
        shortcut = f"{name}_0_bn"
        yield from _normalized(f"{name}_0", units=4 * units, size=1, stride=stride, pad="valid", source=source)
    yield from _activated(f"{name}_1", units=units, size=1, stride=stride, pad="valid", source=source)
    yield from _activated(f"{name}_2", units=units, size=3)
    yield from _normalized(f"{name}_3", units=4 * units, size=1, pad="valid")
    yield Layer(f"{name}_add", "add", inputs=(shortcut, f"{name}_3_bn"))
    yield _relu(f"{name}_out")


def _resnet50() -> Network:
    """ResNet-50 as keras.applications builds it: 25,636,712 weights, 53,120 of them running means and variances."""
    layers = (
        Layer("conv1_pad", "zeropad", size=3),
        *_activated("conv1", units=64, size=7, stride=2, pad="valid"),
        Layer("pool1_pad", "zeropad", size=1),
        Layer("pool1_pool", "pool", size=3, stride=2),
        *_stacks(_bottleneck, ((64, 3), (128, 4), (256, 6), (512, 3)), "pool1_pool", first_projected=True),
        Layer("avg_pool", "globalpool"),
        *_PREDICTIONS,
    )
    return Network(name="resnet-50", seed="", input=(224, 224, 3), classes=1000, layers=layers, **_IMAGENET)


# ---------------------------------------------------------------- Inception V3


class _InceptionLayers:
    """The layers as they are added. Every method adds some and returns the name of the last, which others take as `source`."""

    def __init__(self) -> None:
        self.layers: list[Layer] = []

    def conv(
        self,
        name: str,
        filters: int,
        size: int | tuple[int, int],
        source: str = "",
        *,
        stride: int = 1,
        pad: str = "same",
    ) -> str:
        """Adds a convolution of the layer `source` ("": the layer before) without a bias, its batch normalization without a
        scale, and ReLU."""
        self.layers += _activated(name, units=filters, size=size, stride=stride, pad=pad, source=source, affine=False)
        return f"{name}_relu"

    def chain(self, name: str, source: str, convolutions: list[tuple]) -> str:
        """Convolutions of (filters, size), one after the other."""
        for i, (filters, size) in enumerate(convolutions, 1):
            source = self.conv(f"{name}_{i}", filters=filters, size=size, source=source)
        return source

    def average(self, name: str, source: str, filters: int) -> str:
        """A 3 x 3 average, then a 1 x 1 convolution."""
        self.layers.append(Layer(f"{name}_pool", "avgpool", size=3, stride=1, pad="same", inputs=(source,)))
        return self.conv(name, filters=filters, size=1, source=f"{name}_pool")

    def halve(self, name: str, source: str) -> str:
        """A 3 x 3 pool of maxima, at every second position."""
        self.layers.append(Layer(name, "pool", size=3, stride=2, inputs=(source,)))
        return name

    def join(self, name: str, branches: list[str]) -> str:
        self.layers.append(Layer(name, "concat", inputs=tuple(branches)))
        return name


def _inception_35(net: _InceptionLayers, name: str, source: str, averaged: int) -> str:
    """A block at 35 x 35: a 1 x 1, a 5 x 5, a double 3 x 3 and an averaging branch. `source`: the layer before; `averaged`:
    filters of the averaging branch. Gives the name of its last layer."""
    # The convolutions of a chain are (filters, size).
    branches = [
        net.conv(f"{name}_1x1", filters=64, size=1, source=source),
        net.chain(f"{name}_5x5", source, [(48, 1), (64, 5)]),
        net.chain(f"{name}_3x3", source, [(64, 1), (96, 3), (96, 3)]),
        net.average(f"{name}_pooled", source, averaged),
    ]
    return net.join(name, branches)


def _inception_17(net: _InceptionLayers, name: str, source: str, inner: int) -> str:
    """A block at 17 x 17: 7 x 7 convolutions as 1 x 7 and 7 x 1 ones, `inner` filters between them. `source`: the layer
    before. Gives the name of its last layer."""
    row = (1, 7)
    column = (7, 1)
    # The convolutions of a chain are (filters, size).
    branches = [
        net.conv(f"{name}_1x1", filters=192, size=1, source=source),
        net.chain(f"{name}_7x7", source, [(inner, 1), (inner, row), (192, column)]),
        net.chain(f"{name}_double", source, [(inner, 1), (inner, column), (inner, row), (inner, column), (192, row)]),
        net.average(f"{name}_pooled", source, 192),
    ]
    return net.join(name, branches)


def _inception_8(net: _InceptionLayers, name: str, source: str) -> str:
    """A block at 8 x 8: two branches end in a 1 x 3 and a 3 x 1 convolution side by side. `source`: the layer before. Gives
    the name of its last layer."""
    row = (1, 3)
    column = (3, 1)
    narrow = net.conv(f"{name}_1x1", filters=320, size=1, source=source)
    wide = net.conv(f"{name}_3x3", filters=384, size=1, source=source)
    wide_pair = [
        net.conv(f"{name}_3x3_1", filters=384, size=row, source=wide),
        net.conv(f"{name}_3x3_2", filters=384, size=column, source=wide),
    ]
    wide_joined = net.join(f"{name}_a", wide_pair)
    deep = net.chain(f"{name}_double", source, [(448, 1), (384, 3)])
    deep_pair = [
        net.conv(f"{name}_double_3", filters=384, size=row, source=deep),
        net.conv(f"{name}_double_4", filters=384, size=column, source=deep),
    ]
    deep_joined = net.join(f"{name}_b", deep_pair)
    averaged = net.average(f"{name}_pooled", source, 192)
    return net.join(name, [narrow, wide_joined, deep_joined, averaged])


def _inception_to_17(net: _InceptionLayers, source: str) -> str:
    """The layers that lead from 35 x 35 to 17 x 17. `source`: the layer before. Gives the name of the last."""
    single = net.conv("mixed3_3x3", filters=384, size=3, source=source, stride=2, pad="valid")
    double = net.chain("mixed3_double", source, [(64, 1), (96, 3)])
    double = net.conv("mixed3_double_3", filters=96, size=3, source=double, stride=2, pad="valid")
    return net.join("mixed3", [single, double, net.halve("mixed3_pool", source)])


def _inception_to_8(net: _InceptionLayers, source: str) -> str:
    """The layers that lead from 17 x 17 to 8 x 8. `source`: the layer before. Gives the name of the last."""
    single = net.chain("mixed8_3x3", source, [(192, 1)])
    single = net.conv("mixed8_3x3_2", filters=320, size=3, source=single, stride=2, pad="valid")
    double = net.chain("mixed8_7x7", source, [(192, 1), (192, (1, 7)), (192, (7, 1))])
    double = net.conv("mixed8_7x7_4", filters=192, size=3, source=double, stride=2, pad="valid")
    return net.join("mixed8", [single, double, net.halve("mixed8_pool", source)])


def _inception() -> Network:
    """Inception V3 as keras.applications builds it: 23,851,784 weights, 34,432 of them running means and variances."""
    net = _InceptionLayers()
    net.conv("stem1", filters=32, size=3, stride=2, pad="valid")
    net.conv("stem2", filters=32, size=3, pad="valid")
    source = net.halve("pool1", net.conv("stem3", filters=64, size=3))
    net.conv("stem4", filters=80, size=1, source=source, pad="valid")
    source = net.halve("pool2", net.conv("stem5", filters=192, size=3, pad="valid"))
    for i, averaged in enumerate((32, 64, 64)):
        source = _inception_35(net, f"mixed{i}", source, averaged)
    source = _inception_to_17(net, source)
    for i, inner in enumerate((128, 160, 160, 192), 4):
        source = _inception_17(net, f"mixed{i}", source, inner)
    source = _inception_to_8(net, source)
    for name in ("mixed9", "mixed10"):
        source = _inception_8(net, name, source)
    layers = (*net.layers, Layer("avg_pool", "globalpool"), *_PREDICTIONS)
    return Network(name="inception-v3", seed="S3b", input=(299, 299, 3), classes=1000, layers=layers, **_IMAGENET)


def _strided_cnn() -> Network:
    """Three convolutions with stride 2, each with batch normalization and ReLU."""
    return Network(
        name="strided-cnn",
        seed="",
        input=(64, 64, 3),
        classes=10,
        layers=(
            *_activated("conv1", units=32, size=3, stride=2),
            *_activated("conv2", units=64, size=3, stride=2),
            *_activated("conv3", units=128, size=3, stride=2),
            Layer("pool", "globalpool"),
            *_CLASSES,
        ),
    )


# ---------------------------------------------------------------- all


NETWORKS = {
    network.name: network
    for network in (
        Network(
            name="cifar10-cnn",
            seed="S0",
            input=(32, 32, 3),
            classes=10,
            layers=_layers("""
                conv1 conv units=32 size=3 pad=same activation=relu
                pool1 pool size=2
                dropout1 dropout rate=0.25
                conv2 conv units=64 size=3 pad=same activation=relu
                conv3 conv units=64 size=3 activation=relu
                pool2 pool size=2
                dropout2 dropout rate=0.25
                flatten flatten
                dense1 dense units=512 activation=relu
                dropout3 dropout rate=0.2
                dense2 dense units=10 activation=softmax
            """),
            data="cifar10",
        ),
        Network(
            name="cifar10-mlp",
            seed="S1a",
            input=(32, 32, 3),
            classes=10,
            layers=_layers("""
                flatten flatten
                dense1 dense units=3000 activation=relu
                dense2 dense units=1000 activation=relu
                classes dense units=10 activation=sigmoid
            """),
            optimizer="sgd",
            loss="categorical_crossentropy",
            data="cifar10",
        ),
        _fashion_mlp(5, "fashion-mlp"),
        Network(
            name="mnist-cnn",
            seed="S2",
            input=(28, 28, 1),
            classes=10,
            layers=_layers("""
                conv1 conv units=32 size=3 activation=relu
                pool1 pool size=2
                conv2 conv units=64 size=3 activation=relu
                pool2 pool size=2
                flatten flatten
                dropout dropout rate=0.5
                classes dense units=10 activation=softmax
            """),
            data="mnist",
            samples=60_000,
            epochs=5,
        ),
        Network(
            name="peaks",
            seed="S4",
            input=(2,),
            classes=1,
            layers=_layers("""
                dense1 dense units=20 activation=relu
                dense2 dense units=5 activation=relu
                height dense units=1
            """),
            loss="mean_squared_error",
            learning_rate=0.08,
            data="peaks",
            samples=40_000,
            batch=40_000,
            epochs=2000,
        ),
        Network(
            name="lenet",
            seed="",
            input=(28, 28, 1),
            classes=10,
            layers=_layers("""
                conv1 conv units=6 size=5 pad=same activation=tanh
                pool1 avgpool size=2
                conv2 conv units=16 size=5 activation=tanh
                pool2 avgpool size=2
                flatten flatten
                dense1 dense units=120 activation=tanh
                dense2 dense units=84 activation=tanh
                classes dense units=10 activation=softmax
            """),
            optimizer="sgd",
            data="mnist",
            samples=60_000,
            epochs=20,
        ),
        _strided_cnn(),
        Network(
            name="vgg-small",
            seed="",
            input=(32, 32, 3),
            classes=10,
            layers=_vgg([(2, 64), (2, 128), (2, 256)])
            + _layers("""
                flatten flatten
                dense1 dense units=512 activation=relu
                dropout dropout rate=0.5
                classes dense units=10 activation=softmax
            """),
            data="cifar10",
            epochs=50,
        ),
        _resnet_small(),
        Network(
            name="vgg-16",
            seed="",
            input=(224, 224, 3),
            classes=1000,
            layers=_vgg([(2, 64), (2, 128), (3, 256), (3, 512), (3, 512)])
            + _layers("""
                flatten flatten
                fc1 dense units=4096 activation=relu
                fc2 dense units=4096 activation=relu
                predictions dense units=1000 activation=softmax
            """),
            **_IMAGENET,
        ),
        _resnet50(),
        _inception(),
    )
}
#: (example of a name, pattern of such names, function): the numbers in a name are the function's arguments.
GENERATED: tuple[tuple[str, re.Pattern, Callable[..., Network]], ...] = (
    ("mlp-784-500x2-10", re.compile(r"mlp-(\d+)-(\d+)x(\d+)-(\d+)"), mlp),
    ("fashion-mlp-3", re.compile(r"fashion-mlp-(\d+)"), _fashion_mlp),
)


@functools.lru_cache(maxsize=1024)
def known(name: str) -> Network | None:
    """The network of that name, from the tables or generated (`mlp-784-500x2-10`); None if there is none.

    Raises: ValueError for a generator's numbers that make no network.
    """
    if name in NETWORKS:
        return NETWORKS[name]
    for form, pattern, make in GENERATED:
        match = pattern.fullmatch(name)
        if match:
            numbers = [int(digits) for digits in match.groups()]
            if min(numbers) < 1:
                raise ValueError(f"{name}: its numbers must be at least 1, as in {form}")
            return make(*numbers)
    return None


def find(name: str) -> Network:
    """The network of that name.

    Raises: ValueError naming those that there are.
    """
    network = known(name)
    if network is None:
        raise ValueError(f"unknown model {name!r}; known: {', '.join(names())}")
    return network


def names() -> list[str]:
    """Every network's name, and one of each kind that is generated."""
    return [*NETWORKS, *(form for form, *_ in GENERATED)]
