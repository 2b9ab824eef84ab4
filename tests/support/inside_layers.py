"""What is asserted of workloads.frameworks.layer_graphs in the suite's one TensorFlow process; see tests/support/inside.py."""

import unittest.mock

import keras
import msgspec
import numpy as np
import pytest
import tensorflow as tf

from kernels.problems import LayerCall
from kernels.tensorflow import calls
from tests.support.inside import made
from workloads.frameworks.layer_graphs import chain, inputs, layer_row, layer_use, step_parts
from workloads.frameworks.layer_graphs.direction_graph import NoGradient, direction_graph
from workloads.harness import cache_state
from workloads.harness.dispatch import Broken, CannotDo
from workloads.records import Row, Settings

BATCH = 8
DENSE = ("Dense", '{"units": 10, "activation": "relu"}', "784")
CONV = ("Conv2D", '{"filters": 8, "kernel_size": 3}', "16x16x3")
LSTM = ("LSTM", '{"units": 64}', "20x16")
NORM = ("LayerNormalization", "", "16")
DROPOUT = ("Dropout", '{"rate": 0.5}', "16")
EMBEDDING = ("Embedding", '{"input_dim": 100, "output_dim": 4}', "20:int32")


def alone(layer):
    name, arguments, shape = layer
    return layer_use.layer_by_itself(name, arguments, inputs.parsed_shapes(shape), BATCH)


def counted(layer, direction):
    """(FLOPs, of them those of products, bytes) of a layer's graph."""
    graph = direction_graph(alone(layer), direction, 1)
    return graph.flops, graph.product_flops, graph.bytes_moved


@made
def work_of_a_dense_layer():
    product = 2 * BATCH * 784 * 10
    x, y, weights = 4 * BATCH * 784, 4 * BATCH * 10, 4 * (784 * 10 + 10)
    kernel = 4 * 784 * 10
    assert counted(DENSE, "fprop") == (product + 80 + 80, product, x + weights + y)  # bias and ReLU
    assert counted(DENSE, "wgrad") == (product + 80 + 80, product, y + y + x + weights)  # dy, the ReLU's output, x
    assert counted(DENSE, "dgrad") == (product + 80, product, y + y + kernel + x)
    assert counted(DENSE, "backward") == (2 * product + 80 + 80, 2 * product, y + y + x + kernel + weights + x)


@made
def work_of_a_convolution():
    product = 2 * BATCH * 14 * 14 * 8 * 3 * 3 * 3
    outputs = BATCH * 14 * 14 * 8
    x, y, kernel = 4 * BATCH * 16 * 16 * 3, 4 * outputs, 4 * 3 * 3 * 3 * 8
    assert counted(CONV, "fprop") == (product + outputs, product, x + kernel + 32 + y)
    assert counted(CONV, "wgrad") == (product + outputs, product, y + x + kernel + 32)  # the bias's gradient sums dy
    assert counted(CONV, "dgrad") == (product, product, y + kernel + x)


@made
def work_of_a_recurrent_layer():
    """Each of 20 time steps multiplies by 16 + 64 rows of 4 x 64 columns; the way back by the 64 of the state once more."""
    row = 20 * 2 * BATCH * 256
    flops = {direction: counted(LSTM, direction)[1] for direction in ("fprop", "wgrad", "dgrad", "backward")}
    assert flops == {
        "fprop": row * (16 + 64),
        "wgrad": row * (16 + 64 + 64),
        "dgrad": row * (16 + 64),
        "backward": row * (16 + 64 + 64 + 16),
    }


@made
def work_of_a_normalization():
    """Nothing is multiplied; bytes are of x, y, and a scale and a shift for each of 16 numbers."""
    numbers = 4 * BATCH * 16
    _, products, nbytes = counted(NORM, "fprop")
    assert (products, nbytes) == (0, numbers + numbers + 4 * (16 + 16))


@made
def gradients_are_those_of_the_layer():
    for layer in (DENSE, CONV, LSTM, NORM):
        use = alone(layer)
        for direction in ("wgrad", "dgrad", "backward"):
            graph = direction_graph(use, direction, 1)
            results = chain.flat(graph.function(*graph.arguments))
            expected = chain.flat(graph.reference())
            assert len(results) == len(expected) > 0
            for result, reference in zip(results, expected, strict=True):
                np.testing.assert_allclose(result, reference, rtol=1e-4, atol=1e-4)


@made
def gradients_do_not_run_the_forward_pass():
    graph = direction_graph(alone(LSTM), "wgrad", 1)
    operations = calls.ran(tf.function(lambda: graph.function(*graph.arguments)))
    assert (operations["MatMul"], operations["Sigmoid"], operations["SigmoidGrad"]) == (3, 0, 3), operations


@made
def the_forward_pass_saves_what_the_gradients_take():
    """Of an LSTM lists, one element a time step; a layer norm saves arrays that it does not give; a dropout what it drops."""
    graph = direction_graph(alone(LSTM), "fprop", 1)
    pushed = calls.ran(tf.function(lambda: graph.function(*graph.arguments)))["TensorListPushBack"]
    assert pushed > 1  # one is that of the outputs
    for layer, least in ((NORM, 2), (DROPOUT, 2), (DENSE, 1), (CONV, 1)):
        graph = direction_graph(alone(layer), "fprop", 1)
        assert graph.results >= least and (graph.results > 1) == (least > 1), layer


@made
def the_gradient_of_a_pooling_has_what_the_pooling_notes():
    graph = direction_graph(alone(("MaxPooling2D", "", "8x8x2")), "dgrad", 1)
    assert len(graph.arguments) == 2  # the output's gradient, and x; the output is computed
    operations = calls.ran(tf.function(lambda: graph.function(*graph.arguments)))
    assert (operations["MaxPool"], operations["MaxPoolGrad"]) == (1, 1), operations


@made
def layers_without_a_gradient():
    for layer, direction in ((DROPOUT, "wgrad"), (DROPOUT, "backward"), (EMBEDDING, "dgrad")):
        with pytest.raises(NoGradient):
            direction_graph(alone(layer), direction, 1)
    assert direction_graph(alone(DROPOUT), "fprop", 1).is_random


@made
def every_call_of_a_chain_is_made():
    graph = direction_graph(alone(DENSE), "backward", 1)
    chain.require_all_calls(graph.function, graph.arguments, 5)
    copies = chain.copied(graph.arguments, fresh=graph.fresh, copies=2)
    row = calls.ran(chain.chained(graph.function, copies, 5, jit=False))
    assert (row["MatMul"], row["ReluGrad"]) == (10, 5), row
    compiled = chain.chained(graph.function, copies, 3, jit=True)
    kernel = compiled()[0]
    np.testing.assert_allclose(kernel, graph.function(*graph.arguments)[0], rtol=1e-4, atol=1e-4)


@made
def copies_are_of_what_a_step_did_not_just_compute():
    """Of a gradient the output's gradient is fresh, all the rest is copied: x, the output (of the ReLU) and the weights, in
    memory of their own."""
    x, y, kernel, bias = 4 * BATCH * 784, 4 * BATCH * 10, 4 * 784 * 10, 40
    forward = direction_graph(alone(DENSE), "fprop", 1)
    assert (forward.fresh, forward.copied_bytes) == (1, kernel + bias + y)
    graph = direction_graph(alone(DENSE), "backward", 1)
    assert (graph.fresh, graph.copied_bytes) == (1, y + x + kernel + kernel + bias + x)
    copies = chain.copied(graph.arguments, fresh=graph.fresh, copies=3)
    fresh = {tensors[0]._numpy().ctypes.data for tensors in copies}
    others = {tensor._numpy().ctypes.data for tensors in copies for tensor in tensors[1:]}
    assert (len(fresh), len(others)) == (1, 3 * (len(graph.arguments) - 1))


@made
def a_chain_takes_copies_where_the_caches_do_not_hold_a_step():
    """A call with 2 kB of weights and results, on caches of 10 kB: of a step of 15 kB 8 copies, of one of 1 MB 10 (twice the
    caches), of one of 10 kB none."""
    graph = msgspec.structs.replace(direction_graph(alone(NORM), "fprop", 1), copied_bytes=2_000)
    copies = {}
    with unittest.mock.patch.object(cache_state, "last_cache_bytes", return_value=10_000):
        for step_bytes in (0, 10_000, 15_000, 1_000_000):
            copies[step_bytes] = layer_row.copies(_row(step_bytes), graph)
        assert layer_row.copies(_row(15_000, jit_compile="on"), graph) == 1
    assert copies == {0: 1, 10_000: 1, 15_000: 8, 1_000_000: 10}


def _row(step_bytes, jit_compile="off"):
    problem = LayerCall(layer="norm", kind="", direction="fprop", batch=1, input="16", step_bytes=step_bytes)
    return Row("layer/keras/chain", problem, Settings(switches={"jit_compile": jit_compile}))


@made
def xla_takes_no_lists_of_a_loop():
    graph = direction_graph(alone(LSTM), "wgrad", 1)
    with pytest.raises(CannotDo, match="no lists that a loop saved"):
        chain.chained(graph.function, [graph.arguments], 2, jit=True)


def own_model():
    block = keras.Sequential([keras.Input((6,)), keras.layers.Dense(6, name="inner")], name="block")
    start = keras.Input((6,))
    first = keras.layers.Dense(6, name="first")(start)
    second = keras.layers.Dense(6, name="second")(block(first))
    model = keras.Model(start, keras.layers.Dense(1, name="last")(second))
    model.compile("adam", "mse")
    return model


@made
def equal_layers_of_a_model_count_once():
    """The first layer has another use: nothing needs the gradient of its input. The last is of another shape."""
    opened = layer_use.open_model("tests.support.inside_layers:own_model", None, BATCH)
    uses = {use.path: (use.count, use.differentiable) for use in layer_use.uses_of_model(opened)}
    assert uses == {"first": (1, (False,)), "block/inner": (2, (True,)), "last": (1, (True,))}
    loss, optimizer = step_parts.loss_and_optimizer(opened)
    assert (loss.input, loss.differentiable) == ("1 1", (True, False))
    assert (optimizer.kind, len(optimizer.specs)) == ("Adam", 8)  # four layers' weights and biases
    adam = direction_graph(optimizer, "fprop", 1)
    weights = 3 * (36 + 6) + 6 + 1
    assert adam.bytes_moved >= 4 * 6 * weights  # reads gradients, weights and two slots, writes the last three


class Failing(keras.layers.Layer):
    def call(self, x):
        raise RuntimeError("it fails")


@made
def a_layer_that_fails_is_not_blamed_on_its_input():
    with pytest.raises(Broken, match="takes no input of 784, nor a usual one: RuntimeError") as refused:
        alone(("tests.support.inside_layers:Failing", "", "784"))
    assert not isinstance(refused.value, layer_use.WrongLayer)
