"""Keras models made from the layer tables. Keras is imported in the functions: they run in a worker only."""

from typing import Any

from kernels import networks
from kernels.networks import layers
from kernels.networks.layers import INPUT, Layer, Network


def build(network: Network, jit_compile: bool | str = "auto"):
    """The compiled Keras model of a network: Sequential, or functional where the network branches. `jit_compile` is
    Keras's own: True, False or "auto"."""
    import keras

    name, start = network.name.replace("-", "_"), keras.Input(network.input, name=INPUT)
    if any(layer.inputs for layer in network.layers):
        made = {INPUT: start}
        for layer, taken in zip(network.layers, layers.sources(network), strict=True):
            values = [made[source] for source in taken]
            made[layer.name] = _layer(keras.layers, layer)(values if len(values) > 1 else values[0])
        model = keras.Model(start, made[network.layers[-1].name], name=name)
    else:
        model = keras.Sequential([start, *(_layer(keras.layers, layer) for layer in network.layers)], name=name)
    optimizer = keras.optimizers.get(network.optimizer)
    if network.learning_rate:
        optimizer.learning_rate = network.learning_rate
    metrics = [] if network.regression else ["accuracy"]
    model.compile(optimizer=optimizer, loss=network.loss, metrics=metrics, jit_compile=jit_compile)
    return model


def _layer(keras_layers, layer: Layer):
    activation, bias = layer.activation or None, layer.bias
    window = {"pool_size": layer.sides, "strides": layer.step, "padding": layer.pad}
    weighted = {"activation": activation, "use_bias": bias}
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
    table = zip(network.layers, networks.outputs(network), networks.layer_weights(network), strict=True)
    wanted = [(layer.name, shape, weights) for layer, shape, weights in table]
    place = {name: i for i, (name, _, _) in enumerate(wanted)}
    own = sorted((la for la in model.layers if la.name != INPUT), key=lambda la: place.get(la.name, len(place)))
    built = [(layer.name, tuple(layer.output.shape[1:]), layer.count_params()) for layer in own]
    found = [
        f"{k[0]} gives {k[1]} with {k[2]} weights, not {t[0]} {t[1]} with {t[2]}"
        for k, t in zip(built, wanted, strict=False)
        if k != t
    ]
    if len(built) != len(wanted):
        found.append(f"{len(built)} layers, not {len(wanted)}")
    if model.count_params() != networks.parameters(network):
        found.append(f"{model.count_params()} weights in all, not {networks.parameters(network)}")
    return "; ".join(found)[:500]
