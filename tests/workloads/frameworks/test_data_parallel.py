"""Training on several GPUs: what is predicted and said, worked out by hand; which rows are asked for; and the real thing on parts
of a CPU: the losses of two devices are one's."""

import re

import msgspec
import pytest
from fake_data_parallel import FEED, SMALL, part
from fake_measurements import CPU_MACHINE, GPU_MACHINE, with_gpus

from kernels.problems import Training
from workloads import options, training
from workloads.frameworks import data_parallel as replicas
from workloads.frameworks import several_gpus as study
from workloads.frameworks import studies
from workloads.records import settings as switches

TWO = with_gpus("GPU-0", "GPU-1")


def rows_of(words, here=TWO):
    return training.parse(words.split()).rows(here)


def spread(row):
    return row.settings.switches.get("strategy"), row.settings.experiment.replicas


def test_the_study_has_all_that_predictions_take(monkeypatch):
    found = rows_of("--study data-parallel --keras-backend jax --model cifar10-cnn --batch 64")
    assert {(r.problem.model, r.problem.batch, *spread(r)) for r in found} == {
        ("cifar10-cnn", 64, None, 1),
        ("cifar10-cnn", 64, "DataParallel", 2),
        ("cifar10-cnn", 32, "DataParallel", 1),
        (FEED, 64, "DataParallel", 1),
        (FEED, 64, "DataParallel", 2),
    }
    alike = {
        (switches.checked_keras(r).jit_compile, switches.checked_keras(r).dropout, r.settings.device) for r in found
    }
    assert alike == {("on", "off", "gpu:0")}
    assert not [r for r in found if r.problem.samples % r.problem.batch]
    monkeypatch.setattr(studies, "available", lambda library: True)
    found = rows_of("--study data-parallel")
    several = [r.settings for r in found if r.settings.experiment.replicas > 1]
    expected = {(*chosen, jit) for chosen in replicas.STRATEGIES.items() for jit in ("on", "off")}
    assert {(s.keras.keras_backend, s.experiment.strategy, s.keras.jit_compile) for s in several} == expected
    monkeypatch.setattr(studies, "available", lambda library: library == "jax")
    assert {switches.checked_keras(r).keras_backend for r in rows_of("--study data-parallel")} == {"jax"}
    with pytest.raises(options.Missing, match="tensorflow is not installed"):
        rows_of("--study data-parallel --keras-backend tensorflow")
    monkeypatch.setattr(studies, "available", lambda library: True)
    assert not [r for r in rows_of("--study all", GPU_MACHINE) if r.settings.experiment.replicas > 1]
    assert [r for r in rows_of("--study all", TWO) if r.settings.experiment.replicas > 1]


def test_four_gpus_take_a_quarter_each():
    four = msgspec.structs.replace(TWO, gpus=TWO.gpus * 2)
    found = rows_of("--study data-parallel --model mnist-cnn --jit on", four)
    counts = {spread(r)[1]: r.problem.batch for r in found if r.problem.model == "mnist-cnn"}
    assert set(counts) == {1, 2, 4} and counts[2] == counts[4] == 32
    found = rows_of("--study data-parallel --model mnist-cnn --jit on --gpus 4", four)
    one = {(r.problem.model, r.problem.batch) for r in found if spread(r) == ("DataParallel", 1)}
    one |= {(r.problem.model, r.problem.batch) for r in found if spread(r) == ("MirroredStrategy", 1)}
    assert one == {("mnist-cnn", 8), ("mlp-784-1x1-10", 32)}
    found = rows_of("--gpus 1 2 --keras-backend jax --batch 64 --dropout off")
    assert [(*spread(r), r.settings.device) for r in found] == [(None, 1, "gpu:0"), ("DataParallel", 2, "gpu:0")]
    (mirrored,) = rows_of("--gpus 2 --batch 64")
    assert mirrored.settings.switches["strategy"] == "MirroredStrategy"


@pytest.mark.parametrize(
    ("words", "here", "code", "message"),
    [
        ("--gpus 2", GPU_MACHINE, 3, "no 2 GPUs here: there is 1"),
        ("--gpus 4", TWO, 3, "no 4 GPUs here: there are 2"),
        ("--gpus 2", CPU_MACHINE, 3, "no 2 GPUs here: "),
        ("--study data-parallel", GPU_MACHINE, 3, "no 2 GPUs here: there is 1"),
        ("--study data-parallel", CPU_MACHINE, 3, "no 2 GPUs here: "),
        ("--gpus 1", CPU_MACHINE, 3, "no GPU here: "),
        ("--gpus 2 --device cpu", TWO, 2, "--gpus counts GPUs from the first one: not on cpu"),
        ("--gpus 2 --keras-backend torch", TWO, 2, "Keras on torch has no strategy for several GPUs"),
        ("--study data-parallel --batch 33", TWO, 2, "a batch of 33 does not divide among 2 GPUs"),
        ("--study data-parallel --model lenet", TWO, 2, "unknown model of this study 'lenet'"),
        ("--study data-parallel --epochs 3", TWO, 2, "--study brings its own rows; leave --epochs out"),
        ("--study switches --gpus 2", TWO, 2, "--study brings its own rows; leave --gpus out"),
    ],
)
def test_what_cannot_be_spread_is_one_error(words, here, code, message):
    with pytest.raises(options.Stop, match=re.escape(message)) as stop:
        rows_of(words, here)
    assert stop.value.code == code


def test_memory_is_the_newest_step_programs():
    jax = pytest.importorskip("jax")

    @jax.jit
    def train_step(x):
        return x + 1

    for count in (100, 300, 200):  # a program for each shape, all alive
        train_step(jax.numpy.zeros(count, "float32")).block_until_ready()
        assert replicas.program_memory("cpu")["step_state_bytes"] == 4 * count


def test_an_all_reduce_is_a_call_without_scaling(monkeypatch):
    """Calls of 1.7 s and 0.1 s are 0.1 s for each of the 16 sums between; a call that is no longer is 0 s."""
    calls = {True: lambda: "sums", False: lambda: "scales"}
    monkeypatch.setattr(replicas, "JaxSums", lambda spread, numbers, summing: calls[summing])
    pairs = iter([(1.7, 0.1), (3.3, 0.1), (0.1, 0.2)])
    taken: list[float] = []

    def seconds(call):
        if call() == "sums":
            taken[:] = next(pairs)
        return taken[call() == "scales"]

    monkeypatch.setattr(replicas.timing, "seconds", seconds)
    monkeypatch.setattr(replicas.timing, "rounds", lambda limits: range(3))
    found = replicas.all_reduce("jax", replicas.Strategy(devices=("gpu:0", "gpu:1")), parameters=250)
    assert found.series["all_reduce_s"] == pytest.approx((0.1, 0.2, 0.0))
    assert found.values == {"all_reduce_bytes": 1000.0, "all_reduce_s": pytest.approx(0.1)}
    assert replicas.all_reduce("jax", replicas.ALONE, parameters=250) == replicas.FurtherResults()


MIRRORED = part(2, strategy="MirroredStrategy")


@pytest.mark.parametrize(
    ("of", "status", "reason"),
    [
        (part(2, 9), "skipped", "27 samples in batches of 9 do not divide among 2 devices"),
        (part(2, strategy=""), "skipped", "2 replicas need a strategy: DataParallel, MirroredStrategy"),
        (MIRRORED, "skipped", "MirroredStrategy is not of Keras on jax; it has DataParallel"),
        (part(4), "failed", "JAX finds 2 of 4 devices: cpu:0, cpu:1"),
    ],
)
def test_what_cannot_be_spread_says_why(jax_worker, of, status, reason):
    m = jax_worker(of)
    assert (m.status, reason in m.reason) == (status, True), m.reason


def test_a_smaller_last_batch_cannot_be_spread():
    """20 samples in batches of 8 leave 4, though 8 and 20 are multiples of the 2 devices."""
    of = part(2, strategy="MirroredStrategy", library="tensorflow")
    with pytest.raises(ValueError, match="20 samples in batches of 8 do not divide among 2 devices"):
        replicas.strategy(msgspec.structs.replace(of, problem=Training(SMALL, 8, 20)))


@pytest.mark.parametrize(
    "name",
    [
        "mirrored_replicas_learn_what_one_learns",
        "xla_compiles_no_mirrored_step",
        "a_second_mirrored_model_of_other_shapes_trains_in_the_same_process",
    ],
)
def test_mirrored_strategy_inside(inside, name):
    assert inside(name) == ("ok", "")


def test_no_bare_loop_is_spread(train):
    m = train(8, 24, model=SMALL, kernel="tensorflow/loop", strategy="MirroredStrategy", replicas="2")
    assert (m.status, "strategy and replicas are model.fit's" in m.reason) == ("skipped", True)


@pytest.mark.parametrize(
    ("library", "usual", "other"), [("jax", "on", ("mnist-cnn", 32)), ("tensorflow", "off", ("cifar10-cnn", 32))]
)
def test_one_case_alone_has_the_other_jit_setting(library, usual, other):
    """And it has neither the part of a batch nor the model of one unit, which a prediction takes."""
    rows = study.data_parallel([1, 2], library)
    unusual = [row for row in rows if row.settings.switches["jit_compile"] != usual]
    assert rows[0].settings.switches["jit_compile"] == usual
    assert [(row.problem.model, row.problem.batch, row.experiment.replicas) for row in unusual] == [
        (*other, 1),
        (*other, 2),
    ]
