"""Keras models as layers: every network of the tables is built as they say and described the same, strange layers are named,
frozen ones learn nothing, and a model that cannot be built ends in one line."""

import json

import msgspec
import pytest
from fake_measurements import answer

from kernels import networks
from kernels.networks import layers
from kernels.networks.layers import Layer, Network
from kernels.networks.training_step import step
from workloads import describe, options
from workloads.harness import worker


def built(train, model):
    """What a row that builds a function of tests/support gives, in the suite's TensorFlow process."""
    m = train(1, 1, model=f"tests.support.{model}", kernel="keras/build")
    assert (m.status, m.reason) == ("ok", "")
    return m


@pytest.mark.parametrize("name", ["tables", "joined", "in_time", "up_and_down"])
def test_what_is_built_is_described(train, name):
    built(train, f"inside_describing:{name}")


def test_strange_layers_are_named_and_frozen_ones_marked(train):
    m = built(train, "own_models:strange")
    found = msgspec.json.decode(m.notes["layers"], type=Network)
    named = {layer.name: layer for layer in found.layers}
    assert [la.name for la in layers.unknown(found)] == ["mine", "again (2)", "again (3)"]
    assert (named["lstm"].kind, named["mine"].kind) == ("recurrent", "Mine")
    assert named["lstm"].weights == 4 * 5 * (4 + 5 + 1) and named["mine"].weights == 5
    assert not named["base/conv"].trainable and not named["base/bn"].trainable and named["lstm"].trainable
    assert named["base/conv"].inputs == () and named["sum"].inputs == ("again", "again (3)")
    assert networks.parameters(found) == m.values["parameters"] and networks.trainable(found) == 200 + 5 + 30 + 18
    m = train(1, 1, model="tests.support.own_models:any_length", kernel="keras/build")
    assert m.status == "failed" and "the model takes (None, None, 4) and gives (None, 3): sizes" in m.reason


def works(*of, shape=(6, 4)):
    network = Network("own", "", shape, 3, tuple(of))
    return {(w.layer, w.direction): w for w in step(network, 2)}


def test_embeddings_frozen_and_unknown_layers_by_hand():
    found = works(Layer("odd", "Odd", shape=(5,), weights=80), Layer("out", "dense", 3))
    product = found["odd", "fprop"]
    # 80 weights of 4 inputs are 20 outputs, at each of 6 positions of 2 samples
    assert (product.kind, product.problem.m, product.problem.n, product.problem.k) == ("dense", 12, 20, 4)
    assert product.flops == 2 * 12 * 20 * 4 and "estimated" in product.why
    assert ("odd", "dgrad") not in found and ("odd", "wgrad") in found  # nothing below it learns
    assert found["odd", "odd"].problem.bytes_moved == 4 * 2 * (6 * 4 + 5)
    assert found["odd", "adam weights"].problem.elements == 80
    found = works(Layer("odd", "Odd", shape=(5,)), Layer("out", "dense", 3))
    assert [direction for layer, direction in found if layer == "odd"] == ["odd"]
    with pytest.raises(ValueError, match="unknown kind 'Odd'"):
        networks.outputs(Network("own", "", (4,), 3, (Layer("odd", "Odd"),)))
    frozen = Layer("a", "dense", 5, trainable=False)
    found = works(frozen, Layer("out", "dense", 3), shape=(4,))
    assert [d for layer, d in found if layer == "a"] == ["fprop", "bias"]
    assert ("out", "dgrad") not in found and ("out", "wgrad") in found
    between = works(Layer("first", "dense", 4), frozen, Layer("out", "dense", 3), shape=(4,))
    assert [d for layer, d in between if layer == "a"] == ["fprop", "dgrad", "bias"]
    network = Network("own", "", (4,), 3, (frozen,))
    assert (networks.parameters(network), networks.trainable(network)) == (25, 0)
    norm = Layer("bn", "batchnorm", trainable=False)
    found = works(norm, Layer("out", "dense", 3), shape=(4,))
    assert found["bn", "batchnorm"].problem.operation == "scale" and ("bn", "batchnorm_grad") not in found
    assert networks.parameters(Network("own", "", (4,), 4, (norm,))) == 16
    network = Network("own", "", (6,), 3, (Layer("words", "embedding", 4, weights=200), Layer("flat", "flatten")))
    found = {(w.layer, w.direction): w for w in step(network, 2)}
    assert networks.outputs(network)[0] == (6, 4) and networks.parameters(network) == 200
    assert found["words", "lookup"].problem.bytes_moved == 2 * 4 * (2 * 6 * 4)
    assert found["words", "lookup_grad"].problem.bytes_moved == 2 * 4 * (2 * 6 * 4 + 200)
    assert found["words", "adam embeddings"].problem.elements == 200
    network = Network("own", "", (4,), 3, (Layer("out", "dense", 3),), "nadam")
    update = next(w for w in step(network, 2) if w.direction == "nadam kernel")
    assert update.problem.operation == "adam" and update.why == "priced as adam: the same arrays"


def test_recurrent_and_attention_layers_by_hand():
    """7 time steps of 3 inputs for 5 units of 4 gates; 2 samples. Then 2 heads of 6 queries and 6 keys with 4 numbers each."""
    one = Layer("r", "recurrent", 5, groups=4, shape=(5,), weights=180)
    both = (msgspec.structs.replace(one, fused=fused) for fused in (False, True))
    loop, cudnn = ({(w.product, w.direction): w for w in step(Network("own", "", (7, 3), 3, (r,)), 2)} for r in both)
    state = "r/second"
    assert loop[state, "fprop"].layer == "r"
    # a sample: 2 products of 840, 3 of the state of 1,400, passes of 560, 560 and 1,120, updates of 720, 1,200 and 240
    layer = describe.lines(Network("own", "", (7, 3), 3, (one,)))[1]
    assert layer.endswith(" 10,280")
    sizes = {key: (w.problem.m, w.problem.n, w.problem.k, w.times) for key, w in loop.items() if w.kind == "dense"}
    assert sizes == {
        ("r", "fprop"): (2, 20, 3, 7),
        ("r", "wgrad"): (3, 20, 2, 7),
        (state, "fprop"): (2, 20, 5, 7),
        (state, "dgrad"): (2, 5, 20, 7),
        (state, "wgrad"): (5, 20, 2, 7),
    }
    assert loop["r", "fprop"].flops == cudnn["r", "fprop"].flops == 7 * 2 * 2 * 20 * 3
    # the weights' gradients of a step are added to those of the others: 20 x (3 + 5) numbers
    assert (loop["r", "gradient_sum"].problem.elements, loop["r", "gradient_sum"].times) == (160, 7)
    assert (loop["r", "loop_grad"].times, loop["r", "adam bias"].problem.elements) == (7, 20)
    at_once = {key: (w.problem.m, w.problem.k, w.times) for key, w in cudnn.items() if w.kind == "dense"}
    assert at_once["r", "fprop"] == (14, 3, 1) and at_once["r", "wgrad"] == (3, 14, 1)
    assert at_once[state, "fprop"] == (2, 5, 7) and at_once[state, "wgrad"] == (5, 14, 1)
    assert ("r", "gradient_sum") not in cudnn and cudnn["r", "cell"].times == 7
    of = (
        Layer("q", "dense", 8, bias=False),
        Layer("s", "scores", groups=2, inputs=("q", "q")),
        Layer("w", "weighted", groups=2, inputs=("s", "q")),
    )
    found = {(w.product, w.direction): w for w in step(Network("own", "", (6, 9), 8, of), 2)}
    assert networks.outputs(Network("own", "", (6, 9), 8, of)) == ((6, 8), (2, 6, 6), (6, 8))
    for name in ("s", "w"):
        parts = [found[key] for key in ((name, "fprop"), (name, "dgrad"), (f"{name}/second", "dgrad"))]
        assert [w.flops for w in parts] == [2 * 2 * 2 * 6 * 6 * 4] * 3
    assert (found["s", "fprop"].problem.m, found["s", "fprop"].problem.n) == (2 * 2 * 6, 6)


class Answering:
    """A worker that gives one answer and keeps what it was asked for."""

    def __init__(self, status, reason="", notes=None, cause=""):
        self.status, self.reason, self.notes, self.cause = status, reason, notes or {}, cause

    def __call__(self, variables):
        return self

    def ask(self, order, timeout_s):
        self.timeout_s = timeout_s
        return answer(order.row, status=self.status, reason=self.reason, notes=self.notes, cause=self.cause)

    def close(self):
        self.closed = True


def test_a_model_is_printed_layer_by_layer(monkeypatch, capsys):
    made = (Layer("odd", "Odd", shape=(5,), weights=20), Layer("out", "dense", 3))
    own = Network("tests.support.own_models:classes", "", (4,), 3, made)
    answering = Answering("ok", notes={"layers": msgspec.json.encode(own).decode()})
    monkeypatch.setattr(worker, "Worker", answering)
    assert describe.main(["--model", "tests.support.own_models:classes"]) == options.OK and answering.closed
    said = capsys.readouterr().out
    assert "Odd (not known)" in said and "38 weights, 38 of them learned" in said
    assert said.splitlines()[-1].startswith("not known: odd (Odd); what they take is estimated")
    assert describe.main(["--model", "tests.support.own_models:classes", "--format", "json"]) == options.OK
    assert msgspec.json.decode(capsys.readouterr().out, type=Network) == own
    monkeypatch.setattr(worker, "Worker", None)
    assert describe.main(["--model", "peaks", "--format", "json"]) == options.OK
    assert json.loads(capsys.readouterr().out)["name"] == "peaks"


def test_a_hanging_or_failing_model_is_one_line(monkeypatch, capsys):
    answering = Answering("failed", "stopped after its time limit of 7 s", cause="time-limit")
    monkeypatch.setattr(worker, "Worker", answering)
    assert describe.main(["--model", "tests.support.own_models:classes", "--time-limit", "7"]) == options.MISSING
    said = capsys.readouterr().err.splitlines()
    why = "cannot be described: building it has stopped after its time limit of 7 s"
    assert said[0] == f"error: tests.support.own_models:classes {why}"
    assert said[1].endswith("--model tests.support.own_models:classes --time-limit 35")
    assert len(said) == 2 and answering.timeout_s == 7
    monkeypatch.setattr(
        worker, "Worker", Answering("failed", "its process ended with exit code 0", cause="process-ended")
    )
    assert describe.main(["--model", "tests.support.own_models:classes"]) == options.USAGE
    error, tried = capsys.readouterr().err.splitlines()
    assert error == "error: --model: building tests.support.own_models:classes: its process ended with exit code 0"
    assert (
        tried
        == f"  mend the file, then: {options.python()} -m workloads.describe --model tests.support.own_models:classes"
    )


# without vgg-16, whose 138 million weights take seconds
@pytest.mark.parametrize("name", [*sorted(networks.NETWORKS.keys() - {"vgg-16"}), "mlp-100-50x3-7", "fashion-mlp-2"])
def test_keras_builds_what_the_table_says(train, name):
    """`check` is weights only when models.differences finds none in output shapes, weights and their sum."""
    m = train(1, 1, model=name, kernel="keras/build")  # compared with its table, and not trained
    assert (m.status, m.reason, m.check) == ("ok", "", "weights")
    assert m.values["parameters"] == networks.parameters(networks.find(name)) and m.phases_s["build"] > 0
    assert not m.samples


@pytest.mark.parametrize(
    ("model", "falls"), [pytest.param("cifar10-mlp", False, marks=pytest.mark.slow), ("peaks", True)]
)
def test_other_losses_train(train, model, falls):
    """One-hot classes under a sigmoid, and a regression whose loss falls."""
    m = train(8, 160 if falls else 16, model=model)
    assert (m.status, m.reason, m.check) == ("ok", "", "weights") and m.on("host-latency").calls == (20 if falls else 2)
    if falls:
        assert m.series["loss"][-1] < m.series["loss"][0]
