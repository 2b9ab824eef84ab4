"""What is asserted of workloads.frameworks.tracing inside the suite's one TensorFlow process; see tests/support/inside.py."""

import types
from collections import Counter

import keras
import numpy as np
import pytest
import tensorflow as tf

from kernels import networks
from kernels.networks.operations import Amount, Array
from kernels.networks.training_step import step as table_step
from kernels.problems import Matmul
from tests.support.inside import made
from workloads.frameworks import models
from workloads.frameworks.tracing import graph_calls, step, step_inputs
from workloads.frameworks.tracing.fit_data import fit_data
from workloads.frameworks.tracing.refusal import Refusal
from workloads.harness.dispatch import Broken

BATCH = 8
#: A dense layer's direction by the operand that its product has transposed.
DIRECTIONS = {"nn": "fprop", "nt": "dgrad", "tn": "wgrad"}
layers = keras.layers


def traced(model, batch=BATCH, length=0):
    """The traced step of a model with inputs and targets that are made up."""
    if not model.compiled:
        model.compile("adam", "mse")
    return step.traced_model(model, model.name, step_inputs.synthetic(model, model.name, batch, length))


def traced_with(model, *specs, batch=BATCH):
    """The traced step of a model that takes tensors of these specs."""
    return step.traced_model(model, model.name, [step_inputs.StepInputs(specs=specs, batch=batch)])


def direction(operation) -> str:
    product = operation.product
    return DIRECTIONS[product.layout] if operation.kind == "matmul" else product.direction


def products(operations) -> Counter:
    """(layer, direction, FLOPs of a step) of every product and convolution."""
    counted: Counter = Counter()
    for operation in operations:
        if operation.product is not None:
            counted[operation.layer, direction(operation), operation.step_flops(BATCH)] += 1
    return counted


def flops_of(operations, layer: str) -> dict[str, int]:
    """TensorFlow's name -> FLOPs, of a layer's products and convolutions."""
    chosen = [operation for operation in operations if operation.layer == layer and operation.product is not None]
    return {f"{operation.phase} {operation.type}": operation.step_flops(BATCH) for operation in chosen}


def same_as_table(name: str) -> None:
    """The trace of a network has the products and convolutions of its table, in each direction."""
    table = networks.find(name)
    expected: Counter = Counter()
    for work in table_step(table, BATCH):
        if work.kind in ("dense", "conv"):
            expected[work.layer, work.direction, work.flops] += 1
    operations = traced(models.build(table)).operations
    assert products(operations) == expected, name
    assert all(operation.scales and not operation.doubt for operation in operations), name


@made
def light_networks():
    for name in ("cifar10-cnn", "peaks", "mlp-100-50x3-7", "lenet"):
        same_as_table(name)


def network_test(position: int):
    """The comparison of the network at that place in the order of names."""
    name = sorted(networks.NETWORKS)[position]
    return made(lambda: same_as_table(name))


for place in range(len(networks.NETWORKS)):
    globals()[f"network_{place}"] = network_test(place)


def gradient_of(layer, shape, targets):
    """FLOPs of a layer that stands behind another, which learns, so that the gradient of its input is needed."""
    start = keras.Input(shape)
    scaled = layers.Dense(shape[-1], name="below")(start)
    model = keras.Model(start, layer(scaled))
    assert model.output_shape[1:] == targets
    return flops_of(traced(model).operations, layer.name)


@made
def gradients_of_convolutions():
    """Each of three directions is 2 x images x positions x window x channels of a group x filters."""
    strided = layers.Conv2D(6, 3, strides=2, name="strided")
    expected = 2 * 8 * (4 * 4) * (3 * 3) * 5 * 6
    assert gradient_of(strided, (9, 9, 5), (4, 4, 6)) == {
        "forward Conv2D": expected,
        "gradient Conv2DBackpropInput": expected,
        "gradient Conv2DBackpropFilter": expected,
    }
    grouped = layers.Conv2D(12, 3, strides=2, groups=4, padding="same", name="grouped")
    expected = 2 * 8 * (5 * 5) * (3 * 3) * (8 // 4) * 12
    assert set(gradient_of(grouped, (9, 9, 8), (5, 5, 12)).values()) == {expected}
    transposed = layers.Conv2DTranspose(6, 3, strides=2, name="transposed")  # positions are those of its input
    expected = 2 * 8 * (4 * 4) * (3 * 3) * 6 * 5
    assert gradient_of(transposed, (4, 4, 5), (9, 9, 6)) == {
        "forward Conv2DBackpropInput": expected,
        "gradient Conv2D": expected,
        "gradient Conv2DBackpropFilter": expected,
    }
    depthwise = layers.DepthwiseConv2D(3, depth_multiplier=2, name="depthwise")
    assert set(gradient_of(depthwise, (9, 9, 5), (7, 7, 10)).values()) == {2 * 8 * (7 * 7) * (3 * 3) * 10}
    dilated = layers.Conv2D(6, 3, dilation_rate=2, name="dilated")
    # TensorFlow takes it apart: every second pixel makes 4 images of 5 x 5, of 3 x 3 positions
    assert set(gradient_of(dilated, (9, 9, 5), (5, 5, 6)).values()) == {2 * (4 * 8) * (3 * 3) * (3 * 3) * 5 * 6}
    line = layers.Conv1D(6, 3, strides=2, padding="causal", name="line")
    assert set(gradient_of(line, (9, 5), (5, 6)).values()) == {2 * 8 * 5 * 3 * 5 * 6}
    volume = layers.Conv3D(6, (2, 3, 3), name="volume")
    assert gradient_of(volume, (5, 6, 7, 4), (4, 4, 5, 6)) == {
        "forward Conv3D": 2 * 8 * (4 * 4 * 5) * 18 * 4 * 6,
        "gradient Conv3DBackpropInputV2": 2 * 8 * (4 * 4 * 5) * 18 * 4 * 6,
        "gradient Conv3DBackpropFilterV2": 2 * 8 * (4 * 4 * 5) * 18 * 4 * 6,
    }


@made
def batched_attention():
    """2 heads of 4 numbers, 6 places of 10 features: four projections, and two products for each sample and head."""
    start = keras.Input((6, 10))
    scaled = layers.Dense(10, name="below")(start)
    model = keras.Model(start, layers.MultiHeadAttention(2, 4, name="attention")(scaled, scaled))
    operations = traced(model).operations
    counted: Counter = Counter()
    for operation in operations:
        if operation.product is not None and operation.layer.startswith("attention"):
            counted[operation.phase, operation.step_flops(BATCH)] += 1
    projection, product = 2 * (8 * 6) * 10 * (2 * 4), 2 * (8 * 2) * 6 * 6 * 4
    # each projection and each product has two gradients
    assert counted == {
        ("forward", projection): 4,
        ("forward", product): 2,
        ("gradient", projection): 8,
        ("gradient", product): 4,
    }
    scores = [operation.problem(BATCH) for operation in operations if operation.layer == "attention"]
    assert Matmul(6, 6, 4, batch=16) in scores


@made
def loops():
    """An LSTM of 7 steps runs 7 times in both directions, and so does one with a mask, whatever its mask is."""
    start = keras.Input((7, 3))
    masked = layers.Masking(name="masking")(layers.Dense(3, name="below")(start))
    for source in (start, masked):
        operations = traced(keras.Model(start, layers.LSTM(5, name="lstm")(source))).operations
        runs: Counter = Counter()
        for operation in operations:
            if operation.product is not None and operation.layer.startswith("lstm"):
                assert not operation.doubt
                runs[operation.phase, operation.runs] += 1
        gradients = 4 if source is masked else 3  # of the first layer no gradient of the input is needed
        assert runs == {("forward", Amount(7)): 2, ("gradient", Amount(7)): gradients}
    state = [o for o in operations if o.layer.startswith("lstm") and o.problem(BATCH) == Matmul(8, 20, 5)]
    assert [o.step_flops(BATCH) for o in state] == [7 * 2 * 8 * 20 * 5]


class Repeated(layers.Layer):
    """Squares its input until its largest number says so, and each row by itself."""

    def call(self, x):
        largest = tf.cast(tf.reduce_max(x), tf.int32)
        x = tf.while_loop(lambda i, x: i < largest, lambda i, x: (i + 1, x * x), (0, x), maximum_iterations=9)[1]
        x = tf.while_loop(lambda x: tf.reduce_any(x > 1), lambda x: (tf.tanh(x),), (x,))[0]
        return tf.map_fn(tf.sin, x)


@made
def loops_that_end_by_the_data():
    start = keras.Input((4,))
    operations = traced(keras.Model(start, Repeated(name="repeated")(layers.Dense(4)(start)))).operations
    by_type = {o.type: o for o in operations if o.layer == "repeated" and o.type in ("Mul", "Tanh", "Sin")}
    assert (by_type["Tanh"].runs, by_type["Tanh"].doubt) == (Amount(1), graph_calls.UNKNOWN_LENGTH)
    assert (by_type["Sin"].runs, by_type["Sin"].doubt) == (Amount(0, 1), "")  # once for each sample
    squares = [o for o in operations if o.type == "Mul" and o.runs == Amount(9) and o.phase == "forward"]
    assert [o.doubt for o in squares] == [graph_calls.UNKNOWN_END]
    backward = [o for o in operations if o.phase == "gradient" and o.runs == Amount(9) and o.type == "Mul"]
    assert backward


class Gan(keras.Model):
    """Two networks, two optimizers and a step of its own."""

    def __init__(self):
        super().__init__()
        self.generator = keras.Sequential([keras.Input((6,)), layers.Dense(12, name="make")])
        self.discriminator = keras.Sequential([keras.Input((12,)), layers.Dense(1, name="judge")])

    def compile(self, generator_optimizer, discriminator_optimizer):
        super().compile()
        self.generator_optimizer = generator_optimizer
        self.discriminator_optimizer = discriminator_optimizer

    def train_step(self, data):
        noise = tf.random.normal((tf.shape(data)[0], 6))
        with tf.GradientTape(persistent=True) as tape:
            fake = self.generator(noise)
            loss = tf.reduce_mean(self.discriminator(data)) - tf.reduce_mean(self.discriminator(fake))
        parts = ((self.generator, self.generator_optimizer), (self.discriminator, self.discriminator_optimizer))
        for part, optimizer in parts:
            optimizer.apply_gradients(
                zip(tape.gradient(loss, part.trainable_weights), part.trainable_weights, strict=True)
            )
        return {"loss": loss}


@made
def a_step_of_its_own():
    model = Gan()
    model.compile(keras.optimizers.Adam(), keras.optimizers.SGD())
    specs = tf.TensorSpec((BATCH, 12), "float32")
    inputs = step_inputs.StepInputs(specs=specs, batch=BATCH)
    operations = step.traced_model(model, "gan", [inputs]).operations
    counted = products(operations)
    make, judge = 2 * 8 * 6 * 12, 2 * 8 * 12 * 1
    by_direction: Counter = Counter()
    for (layer, toward, flops), count in counted.items():
        by_direction[layer.rpartition("/")[2], toward, flops] += count
    # two forward passes through the second network; of its three gradients one is of the first network's output
    assert by_direction == {
        ("make", "fprop", make): 1,
        ("make", "wgrad", make): 1,
        ("judge", "fprop", judge): 2,
        ("judge", "wgrad", judge): 2,
        ("judge", "dgrad", judge): 1,
    }
    assert {o.phase for o in operations} == {"forward", "gradient", "update"}
    assert all(o.scales for o in operations)


class ReadsItsLoss(keras.Model):
    """Its step takes a tensor as a number, as only Python's execution has."""

    def train_step(self, data):
        x, y = data
        loss = tf.reduce_mean(tf.square(self(x, training=True) - y))
        return {"loss": float(loss)}


def untraced(model, *sides: int) -> str:
    """Why a step on arrays of so many numbers a sample is not traced."""
    specs = tuple(tf.TensorSpec((BATCH, side), "float32") for side in sides)
    described = step.traced_model(model, "untraced", [step_inputs.StepInputs(specs=specs, batch=BATCH)])
    assert (described.operations, described.batch, described.weights) == ((), BATCH, 4 * 2 + 2)
    return described.untraced


@made
def steps_that_do_not_trace():
    """They have no operations, but a reason; data of another shape are the user's error."""
    start = keras.Input((4,))
    eager = keras.Model(start, layers.Dense(2)(start))
    eager.compile("sgd", "mse", run_eagerly=True)
    assert untraced(eager, 4, 2) == step.RUNS_EAGERLY
    reading = ReadsItsLoss(start, layers.Dense(2)(start))
    reading.compile("sgd", "mse")
    assert untraced(reading, 4, 2).startswith("its train_step does not trace: TypeError")
    with pytest.raises(Refusal, match=r"its data give \(8, 5\), and it takes \(None, 4\)"):
        untraced(reading, 5, 2)


@made
def layers_without_a_vocabulary_are_refused():
    start = keras.Input((1,), dtype="string")
    lookup = layers.StringLookup(output_mode="one_hot", name="lookup")
    for layer, refused in ((lookup, True), (layers.StringLookup(vocabulary=["a"], output_mode="one_hot"), False)):
        model = keras.Model(start, layer(start))
        if refused:
            with pytest.raises(Refusal, match="its StringLookup 'lookup' has no vocabulary"):
                step.require_vocabularies(model)
        else:
            step.require_vocabularies(model)


@made
def sparse_arrays_are_refused():
    sparse = tf.sparse.from_dense(np.eye(8, dtype="float32"))
    with pytest.raises(Refusal, match="its data are sparse tensors") as refused:
        fit_data((sparse, np.zeros((8, 1), "float32")), 4)
    assert refused.value.change.startswith("give batches")


@made
def ragged_inputs_are_refused():
    """Before their open sizes are: a length would not help."""
    tensor = types.SimpleNamespace(name="words", shape=(None, None), dtype="int32", ragged=True)
    with pytest.raises(Broken, match="takes ragged tensors in input 'words', which cannot be made up: name a function"):
        step_inputs._spec(tensor, BATCH, 0, "m")


@made
def several_inputs_and_outputs():
    inputs = {"a": keras.Input((4,), name="a"), "b": keras.Input((None, 3), name="b", dtype="int32")}
    words = layers.GlobalAveragePooling1D()(layers.Flatten()(inputs["b"])[..., None])
    both = layers.Concatenate()([inputs["a"], words])
    model = keras.Model(
        inputs, {"one": layers.Dense(3, "softmax", name="one")(both), "two": layers.Dense(1, name="two")(both)}
    )
    model.compile("sgd", {"one": "sparse_categorical_crossentropy", "two": "mse"}, metrics={"two": ["mae"]})
    traced_step = traced(model, length=5)
    assert traced_step.doubts == ("targets are made up: int32 (8,), float32 (8, 1)",)
    assert flops_of(traced_step.operations, "one")["forward MatMul"] == 2 * 8 * 5 * 3
    assert traced_step.keras == keras.__version__
    label = Array(shape=(Amount(0, 1),), dtype="int32")
    assert traced_step.targets == (label, Array(shape=(Amount(0, 1), Amount(1)), dtype="float32"))
    assert traced_step.sample_bytes("float32") == (4 + 5 * 3) * 4  # single labels count nothing


@made
def text_and_augmentation():
    """A lookup of words runs on the host; augmentation is part of the step, with each sample's own numbers."""
    start = keras.Input((), dtype="string")
    lookup = layers.StringLookup(vocabulary=["a", "b", "c"], name="lookup")
    out = layers.Dense(2)(layers.Embedding(5, 4, name="embedding")(lookup(start)))
    operations = traced(keras.Model(start, out)).operations
    assert {o.layer for o in operations if o.kind == "host"} == {"lookup"}
    gather = next(o for o in operations if o.kind == "gather" and o.layer == "embedding")
    assert gather.bytes_written == Amount(0, 4 * 4)
    start = keras.Input((8, 8, 3))
    flipped = layers.RandomFlip(name="flip")(layers.Rescaling(1 / 255, name="scale")(start))
    rotated = layers.RandomRotation(0.1, name="rotation")(flipped)
    step_traced = traced(keras.Model(start, layers.Dense(2)(layers.Flatten()(rotated))))
    assert not step_traced.xla
    assert traced(keras.Model(start, layers.Dense(2)(layers.Flatten()(flipped)))).xla
    operations = step_traced.operations
    assert {"flip", "scale", "rotation"} <= {o.layer for o in operations}
    assert "ImageProjectiveTransformV3" in {o.type for o in operations}


class MakesALayer(layers.Layer):
    """Makes a layer whenever it is called, which has another name each time."""

    def call(self, x):
        return layers.Add()([x, tf.nn.relu(x)])


@made
def layers_that_a_call_makes():
    start = keras.Input((6,))
    operations = traced(keras.Model(start, MakesALayer(name="residual")(layers.Dense(6)(start)))).operations
    sums = [o for o in operations if o.layer == "residual" and o.type == "AddV2" and o.phase == "forward"]
    assert [(o.scales, o.flops) for o in sums] == [(True, Amount(0, 6))]


class Similarity(keras.Model):
    """Compares every sample of a batch with every other."""

    def __init__(self):
        super().__init__()
        self.dense = layers.Dense(4)

    def call(self, x):
        return self.dense(x)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        return tf.reduce_mean(tf.matmul(y_pred, y_pred, transpose_b=True))


@made
def what_does_not_grow_evenly():
    model = Similarity()
    model.compile("sgd")
    spec = tf.TensorSpec((BATCH, 6), "float32")
    operations = traced_with(model, spec).operations
    pairs = [o for o in operations if o.type == "MatMul" and o.layer == "" and o.phase == "forward"]
    assert [(o.scales, o.step_flops(BATCH)) for o in pairs] == [(False, 2 * 8 * 8 * 4)]
    assert pairs[0].problem(BATCH) == Matmul(8, 8, 4, layout="nt")
    assert all(o.scales for o in operations if o.layer == "dense")


@made
def a_batch_that_cannot_change():
    start = keras.Input((6,))
    model = keras.Model(
        start, layers.Lambda(lambda x: tf.reshape(x, (BATCH, 3, 2)))(layers.Dense(6, name="dense")(start))
    )
    traced_step = traced(model)
    assert step.FIXED_BATCH in traced_step.doubts
    assert not any(operation.scales for operation in traced_step.operations)
    assert flops_of(traced_step.operations, "dense") == {
        "forward MatMul": 2 * 8 * 6 * 6,
        "gradient MatMul": 2 * 8 * 6 * 6,
    }


@made
def data_of_a_user():
    model = Similarity()
    model.compile("sgd", "mse")
    pairs = np.zeros((20, 6), "float32"), np.zeros((20, 4), "float32")
    for data in (pairs, tf.data.Dataset.from_tensor_slices(pairs).batch(5), [*pairs, np.ones(20, "float32")]):
        numbers = fit_data(tuple(data) if isinstance(data, tuple | list) else (data,), BATCH)
        inputs = step_inputs.StepInputs(specs=numbers.specs, batch=numbers.batch)
        assert numbers.samples == 20
        assert inputs.batch == (5 if isinstance(data, tf.data.Dataset) else BATCH)
        larger = inputs.resized(3)
        assert [tuple(spec.shape) for spec in larger.specs][:2] == [(3, 6), (3, 4)]


@made
def arrays_without_a_size():
    """Made up from a model's inputs, and of a user's data, in any part of it."""
    empty, full = keras.Input((0,)), keras.Input((4,))
    joined = keras.Model([full, empty], layers.Dense(3)(layers.Concatenate()([full, empty])), name="joined")
    for model in (keras.Sequential([empty, layers.Dense(3)], name="empty"), joined):
        with pytest.raises(
            Broken, match=rf"^{model.name} takes an array of shape \(8, 0\): a size of 0 leaves nothing"
        ):
            traced(model)
    plain = keras.Sequential([full, layers.Dense(3)])
    plain.compile("adam", "mse")
    with pytest.raises(Broken, match="a size of 0 leaves nothing"):
        traced_with(plain, tf.TensorSpec((BATCH, 4)), tf.TensorSpec((BATCH, 0)))


@made
def samples_of_a_pipeline():
    """20 samples in batches of 6: an incomplete last batch counts as it is, and is dropped where the pipeline drops it."""
    pairs = tf.data.Dataset.from_tensor_slices((np.zeros((20, 6), "float32"), np.zeros((20, 4), "float32")))
    batches = pairs.batch(6)
    counted = [
        (batches, 20),
        (batches.map(lambda x, y: (x, y)).prefetch(2), 20),
        (pairs.batch(6, drop_remainder=True), 18),
        (batches.take(2), 12),
        (batches.repeat(), None),
    ]
    for data, samples in counted:
        numbers = fit_data((data,), None)
        assert (numbers.batch, numbers.samples, numbers.residence) == (6, samples, "tf.data")
    rows = np.zeros((20, 6), "float64"), np.zeros(20)
    numbers = fit_data(rows, 32)
    assert (numbers.batch, numbers.rows, numbers.samples, numbers.dtype) == (20, 20, 20, "float64")
    with pytest.raises(Refusal) as refused:
        fit_data((None,), 32)
    assert refused.value.change == "end the function of --data with `return x, y`"


@made
def layers_of_cudnn():
    """Of two LSTMs, the one with recurrent dropout is not cuDNN's."""
    start = keras.Input((7, 3))
    for dropout, expected in ((0.0, True), (0.5, False)):
        out = layers.LSTM(2, name="lstm", recurrent_dropout=dropout)(start)
        step_traced = traced(keras.Model(start, layers.Dense(1, name="dense")(out)))
        assert any(o.in_cudnn for o in step_traced.operations) == expected, dropout
        assert not step_traced.xla  # Keras looks at the activations alone
        assert not any(o.in_cudnn for o in step_traced.operations if o.layer == "dense")
    products = Counter()
    for o in traced(keras.Model(start, layers.LSTM(2, name="lstm")(start))).operations:
        if o.kind == "matmul" and o.runs.at(BATCH) == 7:
            assert o.in_cudnn
            products[o.flops.at(BATCH)] += 1
    # in each of 7 steps the gates of the inputs and of the state, the gradients of both weights, and that of the state
    assert products == {2 * BATCH * 8 * 3: 2, 2 * BATCH * 8 * 2: 3}


@made
def two_inputs_as_a_network():
    """6 numbers into 8, 5 places of 3 flattened; two outputs and two losses."""
    inputs = {"a": keras.Input((6,), name="a"), "b": keras.Input((5, 3), name="b")}
    joined = layers.Concatenate()([layers.Dense(8, name="wide")(inputs["a"]), layers.Flatten()(inputs["b"])])
    outputs = {"y": layers.Dense(1, name="y")(joined), "z": layers.Dense(2, name="z")(joined)}
    model = keras.Model(inputs, outputs)
    model.compile("sgd", {"y": "mse", "z": "mae"})
    network = step.network_of(model, "two", traced(model))
    assert (network.optimizer, network.loss, network.batch, network.layers) == ("sgd", "several losses", BATCH, ())
    assert networks.sample_bytes(network) == (6 + 15 + 2) * 4  # of the targets z alone: y has one number, as a label
    assert networks.parameters(network) == 6 * 8 + 8 + 23 * 3 + 3
    # forward 6 x 8 and 23 x 3, the gradients of three filters, and of what is joined
    assert networks.inference_flops(network) == 2 * (48 + 69)
    assert networks.training_flops(network) == 2 * (48 + 69) + 2 * (48 + 69) + 2 * 69
