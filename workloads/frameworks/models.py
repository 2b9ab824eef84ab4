"""Keras models made from the layer tables. Keras is imported in the functions: they run in a worker only."""

from typing import Any

from kernels import networks
from kernels.networks import layers
from kernels.networks.layers import INPUT, Layer, Network


def build(network: Network, jit_compile: bool | str = "auto"):
    """The compiled Keras model of a network: Sequential, or functional where the network branches. `jit_compile` is
    Keras's own: True, False or "auto"."""
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


def _output_of_branches(network: Network, start: Any) -> Any:
    """The tensor that the last layer of a network gives, from its input on."""
    import keras

    tensors = {INPUT: start}
    for layer, sources in zip(network.layers, layers.sources(network), strict=True):
        taken = [tensors[source] for source in sources]
        keras_layer = _layer(keras.layers, layer)
        tensors[layer.name] = keras_layer(taken if len(taken) > 1 else taken[0])
    return tensors[network.layers[-1].name]


def _layer(keras_layers, layer: Layer):
    """The Keras layer of a layer of a table. keras_layers: the module keras.layers."""
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


def differences(model, network: Network) -> str:
    """How the Keras model differs from its table: output shapes and weights, layer by layer and in all; "" if it does not."""
    outputs = networks.outputs(network)
    weights = networks.layer_weights(network)
    expected = []
    for layer, shape, count in zip(network.layers, outputs, weights, strict=True):
        expected.append((layer.name, shape, count))
    places = {layer.name: place for place, layer in enumerate(network.layers)}
    keras_layers = [layer for layer in model.layers if layer.name != INPUT]
    keras_layers.sort(key=lambda layer: places.get(layer.name, len(places)))
    actual = [(layer.name, tuple(layer.output.shape[1:]), layer.count_params()) for layer in keras_layers]
    faults = []
    for got, wanted in zip(actual, expected, strict=False):
        if got != wanted:
            faults.append(
                f"{got[0]} gives {got[1]} with {got[2]} weights, not {wanted[0]} {wanted[1]} with {wanted[2]}"
            )
    if len(actual) != len(expected):
        faults.append(f"{len(actual)} layers, not {len(expected)}")
    if model.count_params() != networks.parameters(network):
        faults.append(f"{model.count_params()} weights in all, not {networks.parameters(network)}")
    return "; ".join(faults)[:500]
