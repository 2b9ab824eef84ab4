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
    """Layers, one a line: its name, its kind and its other fields as `field=value`."""
    rows = (line.split() for line in table.strip().splitlines())
    found = [{"name": name, "kind": kind} | dict(field.split("=") for field in fields) for name, kind, *fields in rows]
    return msgspec.convert(found, tuple[Layer, ...], strict=False)


_CLASSES = _layers("classes dense units=10 activation=softmax")
_PREDICTIONS = _layers("predictions dense units=1000 activation=softmax")
_FLATTEN = _layers("flatten flatten")


def _relu(name: str) -> Layer:
    return Layer(name, "activation", activation="relu")


MOST_HIDDEN_LAYERS = 1000  # of a generated network


def _hidden(width: int, depth: int) -> tuple[Layer, ...]:
    """Raises: ValueError for more layers than MOST_HIDDEN_LAYERS, none of which is made."""
    if depth > MOST_HIDDEN_LAYERS:
        raise ValueError(
            f"{depth:,} hidden layers are more than the {MOST_HIDDEN_LAYERS:,} that a network may have here"
        )
    return _layers("\n".join(f"dense{i + 1} dense units={width} activation=relu" for i in range(depth)))


def mlp(inputs: int, width: int, depth: int, outputs: int) -> Network:
    """A multilayer perceptron of `depth` hidden layers of `width`: `mlp-784-500x5-10` by name."""
    return Network(
        f"mlp-{inputs}-{width}x{depth}-{outputs}",
        "",
        (inputs,),
        outputs,
        _hidden(width, depth) + _layers(f"classes dense units={outputs} activation=softmax"),
        samples=60_000,
    )


def _fashion_mlp(hidden_layers: int, name: str = "") -> Network:
    """S1b; the number of its hidden layers is the article's parameter: `fashion-mlp-3` by name."""
    return Network(
        name or f"fashion-mlp-{hidden_layers}",
        "S1b",
        (28, 28),
        10,
        _FLATTEN + _hidden(500, hidden_layers) + _layers("classes dense units=10 activation=sigmoid"),
        data="fashion_mnist",
        samples=60_000,
        epochs=5,
    )


def _vgg(*blocks: tuple[int, int]) -> tuple[Layer, ...]:
    """Blocks of (convolutions, filters), each ended by a 2 x 2 pool."""
    rows = []
    for b, (convolutions, filters) in enumerate(blocks, 1):
        made = f"conv units={filters} size=3 pad=same activation=relu"
        rows += [f"block{b}_conv{i + 1} {made}" for i in range(convolutions)] + [f"block{b}_pool pool size=2"]
    return _layers("\n".join(rows))


def _normal(
    name: str, units: int, size, stride: int, pad: str, taken: str = "", affine: bool = True
) -> tuple[Layer, ...]:
    """Convolution of `taken` (empty: the layer before) and batch normalization; `affine`: with a bias and a scale."""
    return (
        Layer(f"{name}_conv", "conv", units, size, stride, pad, bias=affine, inputs=(taken,) if taken else ()),
        Layer(f"{name}_bn", "batchnorm", scale=affine),
    )


def _activated(name: str, *how) -> tuple[Layer, ...]:
    """A convolution with batch normalization, then ReLU."""
    return (*_normal(name, *how), _relu(f"{name}_relu"))


def _stacks(block: Callable, sizes: tuple[tuple[int, int], ...], last: str, projected: bool) -> Iterator[Layer]:
    """Stacks of (filters, blocks), each after the first at half the size; `projected`: the first one's shortcut too."""
    for stack, (units, blocks) in enumerate(sizes, 2):
        for i in range(1, blocks + 1):
            name, halved = f"conv{stack}_block{i}", i == 1 and stack > 2
            yield from block(name, units, 1 + halved, halved or (projected and i == 1), last)
            last = f"{name}_out"


def _basic_block(name: str, units: int, stride: int, project: bool, taken: str) -> tuple[Layer, ...]:
    """Two 3 x 3 convolutions and their input added; a 1 x 1 convolution projects it where sizes change."""
    shortcut = (Layer(f"{name}_0_conv", "conv", units, 1, stride, "same", inputs=(taken,)),) if project else ()
    return (
        *shortcut,
        *_activated(f"{name}_1", units, 3, stride, "same", taken),
        *_normal(f"{name}_2", units, 3, 1, "same"),
        Layer(f"{name}_add", "add", inputs=(f"{name}_0_conv" if project else taken, f"{name}_2_bn")),
        _relu(f"{name}_out"),
    )


def _resnet_small() -> Network:
    """ResNet-20 for 32 x 32 images as Keras's own example builds it, 1 x 1 projections among its shortcuts.

    Source: He et al., Deep Residual Learning, section 4.2; keras-io cifar10_resnet (274,442 weights).
    """
    found = (
        *_activated("conv1", 16, 3, 1, "same"),
        *_stacks(_basic_block, ((16, 3), (32, 3), (64, 3)), "conv1_relu", False),
        Layer("pool", "avgpool", size=8),
        *_FLATTEN,
        *_CLASSES,
    )
    return Network("resnet-small", "", (32, 32, 3), 10, found, data="cifar10", epochs=200)


def _bottleneck(name: str, units: int, stride: int, project: bool, taken: str) -> tuple[Layer, ...]:
    """1 x 1, 3 x 3 and 1 x 1 to four times the filters, the stride in the first (ResNet version 1)."""
    shortcut = _normal(f"{name}_0", 4 * units, 1, stride, "valid", taken) if project else ()
    return (
        *shortcut,
        *_activated(f"{name}_1", units, 1, stride, "valid", taken),
        *_activated(f"{name}_2", units, 3, 1, "same"),
        *_normal(f"{name}_3", 4 * units, 1, 1, "valid"),
        Layer(f"{name}_add", "add", inputs=(f"{name}_0_bn" if project else taken, f"{name}_3_bn")),
        _relu(f"{name}_out"),
    )


def _resnet50() -> Network:
    """ResNet-50 as keras.applications builds it: 25,636,712 weights, 53,120 of them running means and variances."""
    found = (
        Layer("conv1_pad", "zeropad", size=3),
        *_activated("conv1", 64, 7, 2, "valid"),
        Layer("pool1_pad", "zeropad", size=1),
        Layer("pool1_pool", "pool", size=3, stride=2),
        *_stacks(_bottleneck, ((64, 3), (128, 4), (256, 6), (512, 3)), "pool1_pool", True),
        Layer("avg_pool", "globalpool"),
        *_PREDICTIONS,
    )
    return Network("resnet-50", "", (224, 224, 3), 1000, found, **_IMAGENET)


def _inception() -> Network:
    """Inception V3 as keras.applications builds it: 23,851,784 weights, 34,432 of them running means and variances."""
    found: list[Layer] = []

    def unit(name: str, filters: int, size, taken: str = "", stride: int = 1, pad: str = "same") -> str:
        found.extend(_activated(name, filters, size, stride, pad, taken, False))
        return f"{name}_relu"

    def chain(name: str, taken: str, *steps: tuple) -> str:
        """Units one after the other; each is (filters, size) and perhaps stride and pad."""
        for i, (filters, size, *rest) in enumerate(steps, 1):
            taken = unit(f"{name}_{i}", filters, size, taken, *rest)
        return taken

    def pooled(name: str, taken: str, filters: int) -> str:
        found.append(Layer(f"{name}_pool", "avgpool", size=3, stride=1, pad="same", inputs=(taken,)))
        return unit(name, filters, 1, f"{name}_pool")

    def joined(name: str, *taken: str) -> str:
        found.append(Layer(name, "concat", inputs=taken))
        return name

    def shrunk(name: str, taken: str) -> str:
        found.append(Layer(name, "pool", size=3, stride=2, inputs=(taken,)))
        return name

    unit("stem1", 32, 3, stride=2, pad="valid")
    unit("stem2", 32, 3, pad="valid")
    x = shrunk("pool1", unit("stem3", 64, 3))
    unit("stem4", 80, 1, x, pad="valid")
    x = shrunk("pool2", unit("stem5", 192, 3, pad="valid"))
    for i, filters in enumerate((32, 64, 64)):
        n = f"mixed{i}"
        x = joined(
            n,
            unit(f"{n}_1x1", 64, 1, x),
            chain(f"{n}_5x5", x, (48, 1), (64, 5)),
            chain(f"{n}_3x3", x, (64, 1), (96, 3), (96, 3)),
            pooled(f"{n}_pooled", x, filters),
        )
    x = joined(
        "mixed3",
        unit("mixed3_3x3", 384, 3, x, 2, "valid"),
        chain("mixed3_double", x, (64, 1), (96, 3), (96, 3, 2, "valid")),
        shrunk("mixed3_pool", x),
    )
    for i, f in enumerate((128, 160, 160, 192), 4):
        n = f"mixed{i}"
        x = joined(
            n,
            unit(f"{n}_1x1", 192, 1, x),
            chain(f"{n}_7x7", x, (f, 1), (f, (1, 7)), (192, (7, 1))),
            chain(f"{n}_double", x, (f, 1), (f, (7, 1)), (f, (1, 7)), (f, (7, 1)), (192, (1, 7))),
            pooled(f"{n}_pooled", x, 192),
        )
    x = joined(
        "mixed8",
        chain("mixed8_3x3", x, (192, 1), (320, 3, 2, "valid")),
        chain("mixed8_7x7", x, (192, 1), (192, (1, 7)), (192, (7, 1)), (192, 3, 2, "valid")),
        shrunk("mixed8_pool", x),
    )
    for n in ("mixed9", "mixed10"):
        one = unit(f"{n}_1x1", 320, 1, x)
        wide = unit(f"{n}_3x3", 384, 1, x)
        first = joined(f"{n}_a", unit(f"{n}_3x3_1", 384, (1, 3), wide), unit(f"{n}_3x3_2", 384, (3, 1), wide))
        deep = chain(f"{n}_double", x, (448, 1), (384, 3))
        second = joined(f"{n}_b", unit(f"{n}_double_3", 384, (1, 3), deep), unit(f"{n}_double_4", 384, (3, 1), deep))
        x = joined(n, one, first, second, pooled(f"{n}_pooled", x, 192))
    found += [Layer("avg_pool", "globalpool"), *_PREDICTIONS]
    return Network("inception-v3", "S3b", (299, 299, 3), 1000, tuple(found), **_IMAGENET)


NETWORKS = {
    network.name: network
    for network in (
        Network(
            "cifar10-cnn",
            "S0",
            (32, 32, 3),
            10,
            _layers("""
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
            "cifar10-mlp",
            "S1a",
            (32, 32, 3),
            10,
            _layers("""
                flatten flatten
                dense1 dense units=3000 activation=relu
                dense2 dense units=1000 activation=relu
                classes dense units=10 activation=sigmoid
            """),
            "sgd",
            "categorical_crossentropy",
            data="cifar10",
        ),
        _fashion_mlp(5, "fashion-mlp"),
        Network(
            "mnist-cnn",
            "S2",
            (28, 28, 1),
            10,
            _layers("""
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
            "peaks",
            "S4",
            (2,),
            1,
            _layers("""
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
            "lenet",
            "",
            (28, 28, 1),
            10,
            _layers("""
                conv1 conv units=6 size=5 pad=same activation=tanh
                pool1 avgpool size=2
                conv2 conv units=16 size=5 activation=tanh
                pool2 avgpool size=2
                flatten flatten
                dense1 dense units=120 activation=tanh
                dense2 dense units=84 activation=tanh
                classes dense units=10 activation=softmax
            """),
            "sgd",
            data="mnist",
            samples=60_000,
            epochs=20,
        ),
        Network(
            "strided-cnn",
            "",
            (64, 64, 3),
            10,
            tuple(layer for i in (1, 2, 3) for layer in _activated(f"conv{i}", 16 * 2**i, 3, 2, "same"))
            + _layers("pool globalpool")
            + _CLASSES,
        ),
        Network(
            "vgg-small",
            "",
            (32, 32, 3),
            10,
            _vgg((2, 64), (2, 128), (2, 256))
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
            "vgg-16",
            "",
            (224, 224, 3),
            1000,
            _vgg((2, 64), (2, 128), (3, 256), (3, 512), (3, 512))
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
# Generators by a name of theirs: the numbers in a name are the function's arguments (inputs, width, depth, outputs; layers).
GENERATED: tuple[tuple[str, re.Pattern, Callable[..., Network]], ...] = (
    ("mlp-784-500x2-10", re.compile(r"mlp-(\d+)-(\d+)x(\d+)-(\d+)"), mlp),
    ("fashion-mlp-3", re.compile(r"fashion-mlp-(\d+)"), _fashion_mlp),
)


@functools.lru_cache(maxsize=1024)
def known(name: str) -> Network | None:
    """The network of that name from the tables or a generator, or None.

    Raises: ValueError for a generator's numbers that make no network.
    """
    if name in NETWORKS:
        return NETWORKS[name]
    for form, pattern, make in GENERATED:
        if found := pattern.fullmatch(name):
            numbers = tuple(map(int, found.groups()))
            if min(numbers) < 1:
                raise ValueError(f"{name}: its numbers must be at least 1, as in {form}")
            return make(*numbers)
    return None


def find(name: str) -> Network:
    """The network of that name.

    Raises: ValueError naming those that there are.
    """
    if found := known(name):
        return found
    raise ValueError(f"unknown model {name!r}; known: {', '.join(names())}")


def names() -> list[str]:
    """Every network's name, and one of each kind that is generated."""
    return [*NETWORKS, *(form for form, *_ in GENERATED)]
