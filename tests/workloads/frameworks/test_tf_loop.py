"""Loops beside model.fit: the same losses from the same weights."""

import numpy as np
import pytest
import slow_cases

from kernels import networks
from kernels.problems import Training
from workloads.frameworks import jax_loop, tf_loop, trainers
from workloads.harness.timing import Limits
from workloads.harness.worker import Order
from workloads.records import Row, Settings

jax = pytest.importorskip("jax")
LINE = networks.Network("line", "", (2,), 1, (networks.Layer("out", "dense", 1),), "sgd", "mean_squared_error")
JAX_LOOP, ON_JAX = "training/jax/keras_loop", {"data": "synthetic", "keras_backend": "jax"}


ON_TENSORFLOW = "resident_is_keras tensorflow_loop_is_keras float64_targets"


SLOW_ON_TENSORFLOW = pytest.param("compiled_loops_are_keras", marks=pytest.mark.slow)


@pytest.mark.parametrize("name", [*ON_TENSORFLOW.split(), "shuffled_epochs_use_every_sample_once", SLOW_ON_TENSORFLOW])
def test_inside(inside, name):
    assert inside(name) == ("ok", "")


IN_JAX = "uses_every_sample_once is_keras_and_what_it_was with_float64_targets trains_whatever_keras_does"


@pytest.mark.parametrize("name", slow_cases.every(4, [f"jax_loop_{name}" for name in IN_JAX.split()]))
def test_inside_jax(jax_worker, name):
    problem = Training(f"tests.support.inside:{name}", 1, 1)
    m = jax_worker(Row("training/keras/build", problem, Settings(switches=ON_JAX)))
    assert (m.status, m.reason) == ("ok", "")


def row(kernel, model="mlp-6-8x1-3", batch=4, samples=10, **chosen):
    return Row(kernel, Training(model, batch, samples), Settings(switches={"data": "synthetic", **chosen}))


@pytest.mark.parametrize(("kernel", "jit"), [(JAX_LOOP, 1.0), ("training/keras/resident", 0.0)])
def test_a_loops_row_has_its_whole_record(train, jax_worker, kernel, jit):
    of = row(kernel, "peaks", residence="resident")
    m = jax_worker(of) if jit else train.worker.ask(Order("measure", of, Limits(max_time=0.01)), 120)
    assert (m.status, m.reason, m.check) == ("ok", "", "weights")
    assert (m.values["parameters"], m.values["jit_compile"]) == (171, jit)  # 2 x 20 + 20, 20 x 5 + 5, 5 + 1
    assert m.on("host-latency").calls == 3
    assert {"build", "compile", "compile_last", "first_call"} <= set(m.phases_s)
    assert len([fits for fits in m.fits if fits.later_epoch_s]) == 1
    assert m.notes["backend"].startswith(kernel.split("/")[1].replace("keras", "tensorflow"))


def order(kernel, network=LINE, **chosen):
    of = row(kernel, **chosen)
    x, y = np.zeros((10, 2), np.float32), np.zeros((10, 1))
    return trainers.Task(row=of, network=network, x=x, y=y, seed=1, phases={})


@pytest.mark.parametrize(
    ("kernel", "fields", "words"),
    [
        ("training/keras/resident", {"residence": "fed"}, "has its samples resident, not fed"),
        ("training/tensorflow/loop", {"residence": "tf.data"}, "has its samples resident or fed, not tf.data"),
        (JAX_LOOP, {"residence": "numpy"}, "has its samples resident or fed, not numpy"),
        ("training/tensorflow/loop", {"steps_per_execution": "2"}, "steps_per_execution is model.fit's"),
        ("training/tensorflow/loop", {"keras_backend": "jax"}, "runs on tensorflow, not on jax"),
        (JAX_LOOP, {"keras_backend": "tensorflow"}, "runs on jax, not on tensorflow"),
        (JAX_LOOP, {"jit_compile": "off"}, "is always compiled"),
        (JAX_LOOP, {"precision": "mixed_float16"}, "in float32"),
    ],
)
def test_what_a_loop_cannot_do_is_said(kernel, fields, words):
    with pytest.raises(ValueError, match=words):
        trainers.make_trainer(order(kernel, **fields))


class RecordedLoop(tf_loop.BareLoop):
    """A bare loop in batches of 4 whose epochs have losses of 1, 2 and 3, and which records what it does."""

    def __init__(self):
        self.task = order("training/tensorflow/loop")
        self._batch = 4
        self.done = []

    def batches(self, counts):
        assert counts == [4, 4, 2]
        return [(1.0,), (2.0,), (3.0,)]

    def step(self, loss):
        self.done.append(loss)
        return loss

    def wait(self):
        self.done.append("wait")

    def read(self, losses):
        self.done.append("read")
        return np.array(losses)

    def shuffled_batches(self, counts):
        raise AssertionError("not called")


def test_bare_loops_weight_and_read_their_batches():
    assert tf_loop.batch_sizes(10, 4) == [4, 4, 2] and tf_loop.batch_sizes(8, 4) == [4, 4]
    assert tf_loop.batch_sizes(3, 4) == [3]
    x = np.arange(10)
    assert [a.tolist() for a, b in tf_loop.cut(x, -x, [4, 4, 2], None)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    mixed = [(a, b) for a, b in tf_loop.cut(x, -x, [4, 4, 2], np.random.default_rng(1))]
    assert [len(a) for a, _ in mixed] == [4, 4, 2]
    assert all((a == -b).all() for a, b in mixed)
    assert sorted(np.concatenate([a for a, _ in mixed])) == list(range(10))
    assert np.concatenate([a for a, _ in mixed]).tolist() != list(range(10))
    loop = RecordedLoop()
    fitted = loop.fit(10, 2)
    assert loop.done == [1.0, 2.0, 3.0] * 2 + ["wait", "read"]
    assert fitted == trainers.Fitted(losses=(1.8, 1.8))  # (4 x 1 + 4 x 2 + 2 x 3) / 10
    losses = [jax.numpy.float32(i) for i in range(70)]
    assert jax_loop.read(losses).tolist() == list(range(70))


def test_epochs_between_two_waits_share_their_time(monkeypatch):
    now, waits = 100.0, []
    monkeypatch.setattr(tf_loop.time, "perf_counter", lambda: now)
    stamps = tf_loop.LoopStamps(lambda: waits.append(now))
    # the fourth ends 90 ms after the first, the last is the last
    for now in (100.5, 100.51, 100.52, 100.59, 100.6, 100.61):
        stamps.epoch_ended(now == 100.61)
    assert waits == [100.5, 100.59, 100.61]
    assert stamps.seconds == pytest.approx([0.5, 0.03, 0.03, 0.03, 0.01, 0.01])
