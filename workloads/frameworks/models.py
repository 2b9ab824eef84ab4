"""Keras models made from the layer tables. Keras is imported in the functions: they run in a worker only."""

from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from kernels import networks
from kernels.networks import layers
from kernels.networks.layers import INPUT, Layer, Network

if TYPE_CHECKING:
    import keras


def build(network: Network, jit_compile: bool | str = "auto") -> "keras.Model":
    """A new compiled Keras model of a network: Sequential, or functional where the network branches.

    jit_compile: as Keras takes it: True, False or "auto".
    """
    import keras

    name = "_".join(network.name.split("-"))
    start = keras.Input(network.input, name=INPUT)
    if any(layer.inputs for layer in network.layers):
        model = keras.Model(start, _output_of_branches(network, start), name=name)
    else:
        layers_in_order = [_layer(keras.layers, layer) for layer in network.layers]
        model = keras.Sequential([start, *layers_in_order], name=name)
    optimizer = keras.optimizers.get(network.optimizer)
    if network.learning_rate:
        optimizer.learning_rate = network.learning_rate
    metrics = [] if network.regression else ["accuracy"]
    model.compile(optimizer=optimizer, loss=network.loss, metrics=metrics, jit_compile=jit_compile)
    return model


def _output_of_branches(network: Network, start: "keras.KerasTensor") -> "keras.KerasTensor":
    """Calls the layers of a network that branches, and returns the output of the last one. start: the model's input."""
    import keras

    tensors = {INPUT: start}  # name of a layer -> its output
    for layer, sources in zip(network.layers, layers.sources(network), strict=True):
        inputs = [tensors[source] for source in sources]
        keras_layer = _layer(keras.layers, layer)
        tensors[layer.name] = keras_layer(inputs if len(inputs) > 1 else inputs[0])
    return tensors[network.layers[-1].name]


def _layer(keras_layers: ModuleType, layer: Layer) -> "keras.Layer":
    """A new Keras layer as a layer of a network describes it. keras_layers: the module keras.layers."""
    activation = layer.activation or None
    window = {"pool_size": layer.sides, "strides": layer.step, "padding": layer.pad}
    weighted = {"activation": activation, "use_bias": layer.bias}
    conv = {"kernel_size": layer.sides, "strides": layer.step, "padding": layer.pad, "groups": layer.groups}
    classes: dict[str, tuple[str, dict[str, Any]]] = {
        "conv": ("Conv2D", {"filters": layer.units, **conv, **weighted}),
        "dense": ("Dense", {"units": layer.units, **weighted}),
        "pool": ("MaxPooling2D", window),
        "avgpool": ("AveragePooling2D", window),
        "globalpool": ("GlobalAveragePooling2D", {}),
        "dropout": ("Dropout", {"rate": layer.rate}),
        "flatten": ("Flatten", {}),
        "activation": ("Activation", {"activation": activation}),
        "batchnorm": ("BatchNormalization", {"scale": layer.scale}),
        "zeropad": ("ZeroPadding2D", {"padding": layer.sides}),
        "add": ("Add", {}),
        "concat": ("Concatenate", {}),
    }
    name, arguments = classes[layer.kind]
    return getattr(keras_layers, name)(name=layer.name, **arguments)


class LayerFacts(NamedTuple):
    """What a Keras layer and the description of it are compared by."""

    #: Its name.
    name: str
    #: The shape of its output, without the batch.
    shape: tuple[int, ...]
    #: How many numbers its weights have.
    weights: int


def differences(model: "keras.Model", network: Network) -> str:
    """How a Keras model differs from the description of its network in output shapes and numbers of weights, as a sentence of at
    most 500 characters; "" where it does not."""
    outputs = networks.outputs(network)
    weights = networks.layer_weights(network)
    expected = []
    for layer, shape, count in zip(network.layers, outputs, weights, strict=True):
        expected.append(LayerFacts(name=layer.name, shape=shape, weights=count))
    order = {layer.name: number for number, layer in enumerate(network.layers)}
    keras_layers = [layer for layer in model.layers if layer.name != INPUT]
    keras_layers.sort(key=lambda layer: order.get(layer.name, len(order)))
    actual = []
    for layer in keras_layers:
        shape = tuple(layer.output.shape[1:])
        actual.append(LayerFacts(name=layer.name, shape=shape, weights=layer.count_params()))
    faults = []
    for built, wanted in zip(actual, expected, strict=False):
        if built != wanted:
            faults.append(
                f"{built.name} gives {built.shape} with {built.weights} weights, "
                f"not {wanted.name} {wanted.shape} with {wanted.weights}"
            )
    if len(actual) != len(expected):
        faults.append(f"{len(actual)} layers, not {len(expected)}")
    if model.count_params() != networks.parameters(network):
        faults.append(f"{model.count_params()} weights in all, not {networks.parameters(network)}")
    return "; ".join(faults)[:500]
