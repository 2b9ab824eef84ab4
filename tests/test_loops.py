"""Loops beside model.fit: the same losses from the same weights, and the mathematics of a JAX step by hand."""

import msgspec
import numpy as np
import pytest

from kernels import networks
from kernels.problems import Training
from workloads import dense, loops, switches, trainers
from workloads.records import Row, Settings
from workloads.timing import Limits
from workloads.worker import Order

jax = pytest.importorskip("jax")
LINE = networks.Network("line", "", (2,), 1, (networks.Layer("out", "dense", 1),), "sgd", "mean_squared_error")
PAIR = networks.Network("pair", "", (2,), 2, (networks.Layer("out", "dense", 2, activation="softmax"),))


@pytest.mark.parametrize(
    "name",
    [
        "resident_is_keras",
        "tensorflow_loop_is_keras",
        "compiled_loops_are_keras",
        "jax_loop_is_keras",
        "jax_loop_has_keras_cross_entropy_after_a_sigmoid",
        "float64_targets",
        "shuffled_epochs_use_every_sample_once",
    ],
)
def test_inside(inside, name):
    assert inside(name) == ("ok", "")


def row(kernel, model="mlp-6-8x1-3", batch=4, samples=10, **chosen):
    return Row(kernel, Training(model, batch, samples), Settings(switches={"data": "synthetic", **chosen}))


@pytest.mark.parametrize(
    ("kernel", "check", "jit"), [("training/jax/loop", "first loss", 1.0), ("training/keras/resident", "weights", 0.0)]
)
def test_a_row_of_a_loop_has_its_whole_record(train, kernel, check, jit):
    m = train.worker.ask(Order("measure", row(kernel, "peaks", residence="resident"), Limits(max_time=0.01)), 120)
    assert (m.status, m.reason, m.check) == ("ok", "", check)
    assert (m.values["parameters"], m.values["jit_compile"]) == (171, jit)  # 2 x 20 + 20, 20 x 5 + 5, 5 + 1
    assert m.on("host-latency").calls == 3
    assert {"build", "compile", "compile_last", "first_call"} <= set(m.phases_s)
    assert len([name for name in m.series if name.startswith("fit_s ")]) == 3
    assert m.notes["backend"].startswith(kernel.split("/")[1].replace("keras", "tensorflow"))


def order(kernel, network=LINE, y=None, **chosen):
    of, targets = row(kernel, **chosen), np.zeros((10, 1)) if y is None else y
    return trainers.Order(of, switches.of(of), network, np.zeros((10, 2), np.float32), targets, 1, {})


@pytest.mark.parametrize(
    ("kernel", "fields", "words"),
    [
        ("training/keras/resident", {"residence": "fed"}, "has its samples resident, not fed"),
        ("training/tensorflow/loop", {"residence": "tf.data"}, "has its samples resident or fed, not tf.data"),
        ("training/jax/loop", {"residence": "numpy"}, "has its samples resident or fed, not numpy"),
        ("training/tensorflow/loop", {"steps_per_execution": "2"}, "steps_per_execution is model.fit's"),
        ("training/tensorflow/loop", {"keras_backend": "jax"}, "runs on tensorflow, not on jax"),
        ("training/jax/loop", {"keras_backend": "tensorflow"}, "runs on jax, not on tensorflow"),
        ("training/jax/loop", {"jit_compile": "off"}, "is always compiled"),
        ("training/jax/loop", {"precision": "mixed_float16"}, "in float32"),
        ("training/jax/loop", {"network": None}, "from the tables, not of a model of your own"),
        ("training/jax/loop", {"network": networks.find("cifar10-cnn")}, "cifar10-cnn has conv, dropout, pool"),
        ("training/jax/loop", {"targets": "float64", "y": np.zeros(10, np.int32)}, "classes are whole numbers"),
        (
            "training/jax/loop",
            {"network": msgspec.structs.replace(PAIR, optimizer="rmsprop")},
            "has adam and sgd, not rmsprop",
        ),
        (
            "training/jax/loop",
            {"network": msgspec.structs.replace(LINE, loss="categorical_crossentropy")},
            "not of linear",
        ),
    ],
)
def test_what_a_loop_cannot_do_is_said(kernel, fields, words):
    with pytest.raises(ValueError, match=words):
        trainers.way(kernel)(order(kernel, **fields))


def test_dropout_that_is_switched_off_is_no_layer():
    dropped = msgspec.structs.replace(PAIR, layers=(networks.Layer("drop", "dropout", rate=0.5), *PAIR.layers))
    assert dense.require(dropped, True) == PAIR
    with pytest.raises(ValueError, match="has dropout"):
        dense.require(dropped, False)


def test_the_batches_of_an_epoch():
    assert loops.sizes(10, 4) == [4, 4, 2]
    assert loops.sizes(8, 4) == [4, 4]
    assert loops.sizes(3, 4) == [3]
    x = np.arange(10)
    assert [a.tolist() for a, b in loops.cut(x, -x, [4, 4, 2], None)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    mixed = [(a, b) for a, b in loops.cut(x, -x, [4, 4, 2], np.random.default_rng(1))]
    assert [len(a) for a, _ in mixed] == [4, 4, 2]
    assert all((a == -b).all() for a, b in mixed)
    assert sorted(np.concatenate([a for a, _ in mixed])) == list(range(10))
    assert np.concatenate([a for a, _ in mixed]).tolist() != list(range(10))


def test_a_bare_loop_weights_its_batches_and_waits_once_at_the_end():
    done = []

    def read(losses):
        done.append("read")
        return np.array(losses)

    def step(loss):
        done.append(loss)
        return loss

    fitted = loops.looped(
        order("training/jax/loop"),
        lambda samples: [(1.0,), (2.0,), (3.0,)],
        step,
        lambda: done.append("wait"),
        read,
        10,
        2,
    )
    assert done == [1.0, 2.0, 3.0] * 2 + ["wait", "read"]
    assert fitted == trainers.Fitted((1.8, 1.8))  # (4 x 1 + 4 x 2 + 2 x 3) / 10


def test_epochs_between_two_waits_share_their_time(monkeypatch):
    now, waits = 100.0, []
    monkeypatch.setattr(loops.time, "perf_counter", lambda: now)
    stamps = loops.Stamps(lambda: waits.append(now))
    for now in (
        100.5,
        100.51,
        100.52,
        100.59,
        100.6,
        100.61,
    ):  # the fourth ends 90 ms after the first, the last is the last
        stamps.epoch_ended(now == 100.61)
    assert waits == [100.5, 100.59, 100.61]
    assert stamps.seconds == pytest.approx([0.5, 0.03, 0.03, 0.03, 0.01, 0.01])


def test_a_step_of_one_dense_layer_by_hand():
    weights = ((np.float32([[1], [-1]]), np.float32([0.5])),)
    x, y = np.float32([[1, 2]]), np.float32([[3]])
    loss, gradients = jax.value_and_grad(dense.loss(LINE, jax.numpy))(weights, x, y)
    assert float(loss) == 12.25  # 1 - 2 + 0.5 = -0.5, 3.5 from 3
    assert np.ravel(gradients[0][0]).tolist() == [-7, -14]  # 2 (-0.5 - 3) x
    state = dense.optimizer(LINE)({"weights": weights, "steps": np.int32(0)}, gradients)
    assert np.ravel(state["weights"][0][0]) == pytest.approx([1.07, -0.86])  # Keras's rate for SGD is 0.01
    assert np.ravel(state["weights"][0][1]) == pytest.approx([0.57])
    assert state["steps"] == 1


def test_two_steps_of_adam_by_hand():
    """m = 0.05, v = 0.00025 after the gradient 0.5; m = 0.02, v = 0.00031225 after -0.25. The first step is the rate, but
    for epsilon; the second is 0.1 sqrt(1 - 0.998001) / (1 - 0.81) x 0.02 / sqrt(0.00031225)."""
    adam = msgspec.structs.replace(LINE, optimizer="adam", learning_rate=0.1)
    update, state = dense.optimizer(adam), dense.start(((np.float32([1]),),), adam)
    state = update(state, ((np.float32([0.5]),),))
    assert float(state["weights"][0][0][0]) == pytest.approx(0.9, abs=2e-6)
    state = update(state, ((np.float32([-0.25]),),))
    assert float(state["m"][0][0][0]) == pytest.approx(0.02)
    assert float(state["v"][0][0][0]) == pytest.approx(0.00031225)
    assert float(state["weights"][0][0][0]) == pytest.approx(0.9 - 0.0266336, abs=3e-6)


def test_cross_entropy_by_hand():
    weights = ((np.zeros((2, 2), np.float32), np.float32([0, np.log(3)])),)  # both samples: a quarter and three
    x = np.ones((2, 2), np.float32)
    sparse = dense.loss(PAIR, jax.numpy)(weights, x, np.int32([0, 1]))
    assert float(sparse) == pytest.approx((np.log(4) + np.log(4 / 3)) / 2)
    one_hot = dense.loss(msgspec.structs.replace(PAIR, loss="categorical_crossentropy"), jax.numpy)
    assert float(one_hot(weights, x, np.float32([[1, 0], [0, 1]]))) == pytest.approx(float(sparse))


def test_first_weights_are_glorots():
    (kernel, bias), _ = dense.weights(networks.find("mlp-784-500x1-10"), 1)
    limit = np.sqrt(6 / (784 + 500))
    assert kernel.shape == (784, 500)
    assert (kernel.dtype, bias.tolist()) == ("float32", [0] * 500)
    assert abs(kernel).max() == pytest.approx(limit, rel=1e-3)
    assert kernel.std() == pytest.approx(limit / np.sqrt(3), rel=1e-2)


def test_a_wrong_first_loss_or_gradient_is_said():
    weights, right = dense.weights(PAIR, 1), dense.loss(PAIR, jax.numpy)
    x, y = np.float32([[1, 2], [3, 1]]), np.int32([0, 1])
    assert dense.wrong(PAIR, weights, right, x, y) == ""
    assert "the first loss is" in dense.wrong(PAIR, weights, lambda *given: 1.1 * right(*given), x, y)

    def flatter(*given):
        return 0.9 * jax.lax.stop_gradient(right(*given)) + 0.1 * right(*given)

    assert "the first gradient is" in dense.wrong(PAIR, weights, flatter, x, y)


def test_losses_are_read_many_at_a_time():
    losses = [jax.numpy.float32(i) for i in range(70)]
    assert dense.read(losses).tolist() == list(range(70))
