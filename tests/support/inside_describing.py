"""What is asserted of workloads.frameworks.description inside the suite's one TensorFlow process; see tests/support/inside.py."""

import keras

from kernels import networks
from kernels.networks import layers
from kernels.networks.training_step import step
from tests.support.inside import made
from workloads.frameworks import description, models

of = keras.layers
TABLES = ("cifar10-cnn", "cifar10-mlp", "fashion-mlp", "mnist-cnn", "peaks", "lenet", "resnet-small", "mlp-784-50x1-10")


def facts(network):
    """The work of a step, and each layer's output and weights, in an order of their own: branches may run in any."""
    each = zip(network.layers, networks.outputs(network), networks.layer_weights(network), strict=True)
    return sorted(map(str, step(network, 4))), sorted((layer.name, shape, weights) for layer, shape, weights in each)


@made
def tables():
    """A model built from a table is described as that table: the same work of a step, shapes, weights, optimizer and loss."""
    for name in TABLES:
        table = networks.find(name)
        found = description.network(models.build(table), name)
        assert facts(found) == facts(table), name
        expected = (table.input, table.classes, table.optimizer, table.loss)
        assert (found.input, found.classes, found.optimizer, found.loss) == expected
        if not any(layer.inputs for layer in table.layers):
            assert not any(layer.inputs for layer in found.layers), name


@made
def joined():
    """Branches that are joined and padded, operations that are no layers, and a mixed precision with its scaled loss."""
    start = keras.Input((8, 8, 2))
    one = of.Conv2D(3, (1, 3), padding="same", use_bias=False, name="one")(start)
    two = of.AveragePooling2D(3, 1, "same", name="two")(start)
    x = of.ZeroPadding2D(1, name="pad")(of.Concatenate(name="both")([one, two]))
    x = keras.ops.relu(of.GlobalAveragePooling2D(name="mean")(x) * 2.0)
    model = keras.Model(start, of.Dense(2, name="out", dtype="mixed_float16")(x))
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.RMSprop()), "mse")
    found = description.network(model, "joined")
    by_name = {layer.name: layer for layer in found.layers}
    named = ("one", "two", "both", "pad", "mean", "out")
    expected = ["conv", "avgpool", "concat", "rearrange", "globalpool", "dense"]
    assert [by_name[name].kind for name in named] == expected
    assert by_name["both"].inputs == ("one", "two") and by_name["two"].inputs == ("input",)
    assert (by_name["one"].size, by_name["one"].bias, by_name["two"].step) == ((1, 3), False, 1)
    assert [layer.kind for layer in found.layers if layer.name not in named] == ["activation", "activation"]
    assert (found.optimizer, found.loss, found.precision) == ("rmsprop", "mean_squared_error", "mixed_float16")
    assert networks.outputs(found)[-1] == (2,) and networks.parameters(found) == model.count_params()


def as_keras_has_them(model):
    """Name -> a layer and its output, of a model whose layers are all known, with Keras's shapes and weights."""
    model.compile("adam", "mse")
    found = description.network(model, "own")
    by_name = {layer.name: (layer, shape) for layer, shape in zip(found.layers, networks.outputs(found), strict=True)}
    assert not layers.unknown(found) and networks.parameters(found) == model.count_params()
    assert networks.trainable(found) == sum(weight.numpy().size for weight in model.trainable_weights)
    for layer in model.layers[1:]:
        assert by_name[layer.name][1] == tuple(layer.output.shape[1:]), layer.name
    return by_name, found


@made
def up_and_down():
    """The layers of U-Nets and MobileNets. Howard et al., MobileNets, table 4: 569 million multiply-adds an image."""
    start = x = keras.Input((8, 6, 4))
    down = of.DepthwiseConv2D(3, 2, "same", 2), of.UpSampling2D(3), of.Cropping2D(1), of.ZeroPadding2D(((0, 1), (2, 0)))
    up = of.Conv2DTranspose(3, 3, 2), of.SeparableConv2D(5, 3, activation="relu"), of.SpatialDropout2D(0.1)
    for layer in (*down, *up):
        x = layer(x)
    x = of.Multiply()([x, of.GlobalMaxPooling2D(keepdims=True)(x)])
    x = of.SimpleRNN(3)(of.Conv1D(2, 3, padding="causal")(of.Reshape((-1, 5))(x)))
    by_name, _ = as_keras_has_them(keras.Model(start, x))
    both = (by_name[f"separable_conv2d{end}"][0] for end in ("/depthwise", ""))
    assert [(own.kind, own.bias, own.activation) for own in both] == [("depthwise", False, ""), ("conv", True, "relu")]
    _, mobile = as_keras_has_them(keras.applications.MobileNet(weights=None))
    assert round(networks.inference_flops(mobile) / 2e6) == 569


@made
def in_time():
    """Rows, recurrent layers both ways and attention are layers that are known, with Keras's shapes and weights."""
    start = keras.Input((12, 6))
    x = of.MaxPooling1D(name="pool")(of.Conv1D(8, 3, 2, name="conv")(start))
    x = of.Bidirectional(of.LSTM(5, return_sequences=True), name="both")(x)
    x = of.LayerNormalization(name="norm")(of.MultiHeadAttention(2, 4, 3, name="heads")(x, x))
    model = keras.Model(start, of.Dense(2, name="out")(of.GRU(3, name="gru", activation="relu")(x)))
    by_name, _ = as_keras_has_them(model)
    assert [by_name[n][0].fused for n in ("both/forward", "gru")] == [True, False]
    assert by_name["both"][0].inputs == ("both/forward", "both/backward")
    assert (by_name["heads/scores"][1], by_name["heads/weighted"][1]) == ((2, 2, 2), (2, 6))
    assert by_name["heads/weighted"][0].inputs == ("heads/dropout", "heads/value")
