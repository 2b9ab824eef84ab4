"""Keras models made from the layer tables. Keras is imported in the functions: they run in a worker only."""

from kernels import networks
from kernels.networks import Layer, Network


def build(network: Network, jit_compile: bool | str = "auto"):
    """The compiled Keras model of a network. `jit_compile` is Keras's own: True, False or "auto"."""
    import keras

    layers = [_layer(keras.layers, layer) for layer in network.layers]
    model = keras.Sequential([keras.Input(network.input), *layers], name=network.name.replace("-", "_"))
    model.compile(optimizer=network.optimizer, loss=network.loss, metrics=["accuracy"], jit_compile=jit_compile)
    return model


def _layer(of, layer: Layer):
    """One layer; `of` is keras.layers."""
    activation = layer.activation or None
    make = {
        "conv": lambda: of.Conv2D(layer.units, layer.size, padding=layer.pad, activation=activation, name=layer.name),
        "pool": lambda: of.MaxPooling2D(layer.size, name=layer.name),
        "dropout": lambda: of.Dropout(layer.rate, name=layer.name),
        "flatten": lambda: of.Flatten(name=layer.name),
        "dense": lambda: of.Dense(layer.units, activation=activation, name=layer.name),
    }
    return make[layer.kind]()


def differences(model, network: Network) -> list[str]:
    """What the Keras model has otherwise than the table says: output shapes and weights, layer by layer, and in all."""
    table = zip(network.layers, networks.outputs(network), networks.layer_weights(network), strict=True)
    wanted = [(layer.name, shape, weights) for layer, shape, weights in table]
    built = [(layer.name, tuple(layer.output.shape[1:]), layer.count_params()) for layer in model.layers]
    found = [f"{k[0]} gives {k[1]} with {k[2]} weights, not {t[0]} {t[1]} with {t[2]}"
             for k, t in zip(built, wanted, strict=False) if k != t]  # fmt: skip
    if len(built) != len(wanted):
        found.append(f"{len(built)} layers, not {len(wanted)}")
    if model.count_params() != networks.parameters(network):
        found.append(f"{model.count_params()} weights in all, not {networks.parameters(network)}")
    return found
