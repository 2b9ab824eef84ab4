"""Keras rows: in the one TensorFlow process of the suite, and everything around it without TensorFlow."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest
from fake_measurements import GPU_MACHINE

from kernels import networks
from kernels.problems import Training
from workloads.frameworks import data, models, tensors, trainers, training_row
from workloads.harness import announce, memory_needs, one_row
from workloads.harness.dispatch import Broken
from workloads.harness.timing import Limits
from workloads.records import SAMPLES, Row, Settings
from workloads.records.messages import Doing

S0 = networks.find("cifar10-cnn")


@pytest.fixture(scope="module")
def trained(train):
    """A first row of two steps: TensorFlow runs."""
    return train(4, 8)


def test_a_real_fit_has_its_whole_record(trained):
    """`check` is weights only when every layer's shape and weights are the table's (models.differences)."""
    m = trained
    assert (m.status, m.reason, m.kernel, m.check) == ("ok", "", "training/keras/fit", "weights")
    assert m.values["parameters"] == 1_667_594 and (m.values["jit_compile"], m.values["tf32"]) == (0.0, 0.0)
    assert {"build", "first_call"} <= set(m.phases_s)
    samples = m.on("host-latency")
    assert samples.calls == 2 and len(samples.seconds) >= 3
    own, other = m.fits
    assert own.steps == 2 and max(samples.block) + 1 == len(own.setup_s) == len(other.setup_s)
    assert samples.stop_reason.startswith("epochs of ")
    assert len(m.series["loss"]) == 3 and np.isfinite(m.series["loss"]).all()
    assert m.values["final_loss"] == m.series["loss"][-1]
    assert other.steps >= 4 and len(other.later_epoch_s) == len(samples.seconds)
    assert trained.phases_s["first_call"] > trained.phases_s["compile"] > 0
    assert len(trained.series["accuracy"]) == 3 and trained.values["peak_memory_bytes"] > 100e6
    assert trained.notes["backend"].startswith("tensorflow ") and trained.notes["gpu"] == "hidden"
    assert trained.notes[SAMPLES] == data.VERSION


def test_a_worker_announces_what_it_does(train, trained):
    announced: list[Doing] = []
    announce.send_to(announced.append)
    try:
        train(4, 8, model="mlp-6-8x1-3")
    finally:
        announce.send_to(None)
    words = [doing.words for doing in announced]
    assert words[:3] == ["building the model", "compiling", "timing a step"]
    assert words[3] == "timing 6 epochs of 2 steps"
    assert [doing.timing for doing in announced[:4]] == [False, False, True, True] and announced[3].seconds > 0


def test_only_a_process_first_row_has_start_up(train, trained):
    second = train(4, 8, epochs=2)
    assert not {"import", "device_start"} & set(second.phases_s)
    assert second.on("host-latency").calls == 2
    assert trained.series["loss"] == pytest.approx(second.series["loss"], rel=1e-4)


def test_a_smaller_last_batch_compiles_by_itself(train):
    m = train(4, 10, model="mlp-6-8x1-3")
    assert m.status == "ok" and m.on("host-latency").calls == 3
    assert 0 <= m.phases_s["compile_last"] <= m.phases_s["compile"] < m.phases_s["first_call"]
    m = train(16, 10, model="mlp-6-8x1-3", epochs=2)
    assert m.status == "ok" and m.problem.batch == 16 and m.on("host-latency").calls == 1
    assert "compile_last" not in m.phases_s and len(m.series["job_loss"]) == 2
    assert m.fits[1].later_epoch_s


def test_first_steps_report_losses_without_dropout_and_shuffling(train, trained):
    one = train(4, 8, dropout="off", shuffle="off")
    assert len(one.series["step_loss"]) == 20
    assert one.series["step_loss"][0] == pytest.approx(2.3, abs=0.4)  # ln 10, as ten classes are guessed at
    assert one.series["loss"] != pytest.approx(trained.series["loss"], rel=1e-5)


def test_missing_data_and_gpus_fail_clearly(train):
    m = train(4, 8, data="real")
    assert m.status == "failed" and m.cause == "no-data"
    m = train(4, 8, device="gpu:0")
    assert m.status == "failed" and m.reason.startswith("TensorFlow finds no GPU: ") and len(m.reason) > 30


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"model": "vgg"}, "unknown model 'vgg'"),
        ({"residence": "device"}, "residence can be numpy, tf.data, prefetch, generator, fed, resident, not 'device'"),
        ({"colour": "red"}, "unknown switch: colour"),
        ({"targets": "float64"}, "only the targets of a regression can be float64"),
        ({"gpu": "visible"}, "beside a GPU that TensorFlow sees; it sees none"),
        ({"gpu": "visible", "keras_backend": "jax"}, "TensorFlow's way of choosing the CPU; Keras runs on jax here"),
        ({"jit_compile": "maybe"}, "jit_compile can be auto, on, off"),
        ({"samples": 10**8}, "GiB of host memory"),
    ],
)
def test_impossible_rows_are_skipped_with_the_reason(train, trained, fields, words):
    m = train(**fields)
    assert m.status == "skipped" and words in m.reason


@pytest.mark.parametrize(
    ("way", "home", "fit"),
    [
        ("keras/fit", "numpy", "--residence tf.data"),
        ("keras/resident", "resident", "--residence tf.data"),
        ("tensorflow/loop", "resident", "--residence fed"),
        ("tensorflow/loop", "fed", ""),
        ("keras/fit", "tf.data", ""),
        ("keras/fit", "generator", ""),
    ],
)
def test_resident_samples_must_fit_on_the_gpu(monkeypatch, way, home, fit):
    """The GPU has 141 GiB. 1.23e12 B of samples, and of 12e6 samples 137 GiB as float32, which Keras makes of float64; 40e6 of
    one byte a value are 114 GiB."""
    monkeypatch.setattr(training_row, "require_bytes", lambda need, name, have: None)

    def refused(samples, dtype="float32", device="gpu:0", **given):
        problem = Training("cifar10-cnn", 32, samples, dtype=dtype)
        chosen = Settings(device, switches={"residence": home} | given)
        try:
            training_row.require_room(Row(f"training/{way}", problem, chosen), GPU_MACHINE)
        except memory_needs.DoesNotFit as error:
            return str(error)
        return ""

    said = refused(10**8)
    assert said.startswith("needs 1140 GiB of GPU memory, there are 141 GiB: ") == bool(fit) and fit in said
    assert not refused(10**8, device="cpu")
    assert not refused(12 * 10**6) and not refused(40 * 10**6, "uint8")
    assert bool(refused(12 * 10**6, "float64")) == (bool(fit) and way != "keras/fit")
    assert not (way == "keras/fit" and refused(10**8, keras_backend="jax"))


class FakeModel:
    """A Keras model as the table has it, with some layers changed."""

    def __init__(self, **changed):
        table = zip(S0.layers, networks.outputs(S0), networks.layer_weights(S0), strict=True)
        self.layers = [self._layer(la.name, *changed.get(la.name, (shape, weights))) for la, shape, weights in table]
        self.trainable_variables = [SimpleNamespace(value=SimpleNamespace(device="/device:CPU:0"))]
        self.variables = []
        self.optimizer = SimpleNamespace(build=lambda variables: None, variables=[])
        self.jit_compile = False

    @staticmethod
    def _layer(name, shape, weights):
        return SimpleNamespace(name=name, output=SimpleNamespace(shape=(None, *shape)), count_params=lambda: weights)

    def count_params(self):
        return sum(layer.count_params() for layer in self.layers)


def test_a_foreign_model_is_named_layer_by_layer():
    assert models.differences(FakeModel(), S0) == ""
    wrong = models.differences(FakeModel(conv3=((16, 16, 64), 36928), dense2=((10,), 5120)), S0)
    assert wrong.split("; ") == [
        "conv3 gives (16, 16, 64) with 36928 weights, not conv3 (14, 14, 64) with 36928",
        "dense2 gives (10,) with 5120 weights, not dense2 (10,) with 5130",
        "1667584 weights in all, not 1667594",
    ]
    short = FakeModel()
    del short.layers[-1]
    assert "10 layers, not 11" in models.differences(short, S0)


@pytest.fixture
def child(monkeypatch):
    """keras_child without TensorFlow; the model it builds is set by child.model."""
    fake = SimpleNamespace(model=FakeModel())
    keras = SimpleNamespace(
        utils=SimpleNamespace(set_random_seed=lambda seed: None),
        config=SimpleNamespace(set_dtype_policy=lambda name: None),
        backend=SimpleNamespace(clear_session=lambda: None),
    )
    monkeypatch.setitem(sys.modules, "keras", keras)
    monkeypatch.setattr(tensors, "begin", lambda device, threads, library: {"import": 1.0})
    monkeypatch.setattr(tensors, "software_notes", lambda row: {})
    monkeypatch.setattr(training_row, "_reset_peak_memory", lambda row: None)
    monkeypatch.setattr(trainers, "use_tf32", lambda row: None)
    monkeypatch.setattr(models, "build", lambda network, jit: fake.model)
    fake.measure = lambda device="cpu": training_row.measure(
        Row("training/keras/fit", Training("cifar10-cnn", 4, 8), Settings(device)), Limits(), 1
    )
    return fake


def test_wrong_devices_losses_and_weights_are_no_answer(child):
    m = child.measure("gpu:0")
    assert m.status == "failed" and "variables are on /device:CPU:0, not on a GPU" in m.reason
    child.model.fit = lambda *args, **keywords: SimpleNamespace(history={"loss": [2.3, float("nan")]})
    m = child.measure()
    assert (m.status, m.reason) == ("failed", "the loss is nan after epoch 2")
    with pytest.raises(Broken):
        trainers.finite([float("inf")])
    child.model = FakeModel(dense2=((10,), 5120))
    m = child.measure()
    assert (m.status, m.check) == ("wrong", "weights") and "1667584 weights in all" in m.reason
    assert m.phases_s["import"] == 1.0 and m.values["parameters"] == 1_667_584


@pytest.mark.parametrize(
    ("device", "lives", "reason"),
    [
        ("cpu", "CPU", "out of host memory"),
        ("gpu:0", "GPU", "out of GPU memory: RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes"),
    ],
)
def test_a_fit_beyond_memory_is_skipped(child, device, lives, reason):
    def fit(*args, **keywords):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes")

    child.model.fit = fit
    child.model.trainable_variables = [SimpleNamespace(value=SimpleNamespace(device=f"/device:{lives}:0"))]
    wanted = Row("training/keras/fit", Training("cifar10-cnn", 4, 8), Settings(device))
    m = one_row.guarded(wanted, lambda: child.measure(device))
    assert (m.status, m.reason) == ("skipped", reason)


def test_a_missing_library_names_its_install_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras", None)
    wanted = Row("training/keras/fit", Training("cifar10-cnn", 4, 8), Settings())
    m = one_row.guarded(wanted, lambda: training_row.measure(wanted, Limits(), 1))
    assert m.status == "skipped" and "pip install tensorflow" in m.reason
    monkeypatch.setitem(sys.modules, "keras", SimpleNamespace())
    monkeypatch.setitem(sys.modules, "torch", None)
    wanted = Row("training/keras/fit", Training("cifar10-cnn", 4, 8), Settings(switches={"keras_backend": "torch"}))
    m = one_row.guarded(wanted, lambda: one_row.measure(wanted, Limits(), 1))
    assert (m.status, "torch is not installed; install it with: " in m.reason) == ("skipped", True)
    assert m.reason.endswith(" -m pip install torch")


@pytest.mark.parametrize(
    ("model", "message"), [("saved.keras", "the precision that it was saved"), ("their:model", "read")]
)
def test_a_saved_model_alone_keeps_its_precision(monkeypatch, model, message):
    def load(name, dtype):
        raise ValueError("read")

    monkeypatch.setattr(training_row.user_model, "load", load)
    row_ = Row(
        "training/keras/fit",
        Training(model, 8, 16),
        Settings(switches={"data": "synthetic", "precision": "mixed_bfloat16"}),
    )
    with pytest.raises(ValueError, match=message):
        training_row._samples_of_user_model(row_, 1)
