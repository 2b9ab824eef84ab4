"""Training on several GPUs: what is predicted and said, worked out by hand; which rows are asked for; and the real thing on parts
of a CPU: the losses of two devices are one's."""

import math
import re

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, page_of, row, with_gpus

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.report.sections import several_gpus as page
from analysis.report.sections import training as trainings_page
from analysis.stats import Estimate
from analysis.text import several_gpus as words
from analysis.training import data_parallel
from kernels.problems import AllReduce, Training
from workloads import options, training
from workloads.frameworks import data_parallel as replicas
from workloads.frameworks import several_gpus as study
from workloads.frameworks import studies
from workloads.harness.worker import environment
from workloads.records import Fits, Row, Settings
from workloads.records import settings as switches

FIT = "training/keras/fit"
TWO = with_gpus("GPU-0", "GPU-1")
JAX = {"data": "synthetic", "keras_backend": "jax", "jit_compile": "on", "dropout": "off", "shuffle": "off"}
FEED = "mlp-3072-1x1-10"


def over(count, strategy):
    """Switches of a training on so many GPUs."""
    return ({"strategy": strategy} if strategy else {}) | ({"replicas": str(count)} if count > 1 else {})


def fit(
    seconds, batch=64, count=1, strategy="", model="cifar10-cnn", status="ok", given=None, device="gpu:0", **fields
):
    """A training row whose steps took so long."""
    own = {"switches": (given or JAX) | over(count, strategy), "device": device, "status": status}
    return row(FIT, Training(model, batch, 8 * batch), seconds, **own, **fields)


def two(seconds=2e-3, batch=64, summed=0.3e-3, **fields):
    """A training on two GPUs whose all-reduce of 6,670,376 bytes took `summed` seconds."""
    values = {"parameters": 1667594.0, "all_reduce_bytes": 6670376.0, "all_reduce_s": summed, "jit_compile": 1.0}
    series = {"all_reduce_s": (summed, summed, summed)} if summed else {}
    series |= fields.pop("series", {})
    return fit(seconds, batch, 2, "DataParallel", values=values | fields.pop("values", {}), series=series, **fields)


def only(*rows):
    (case,) = data_parallel.cases(rows)
    return case


def fed(seconds, count=2, model=FEED):
    """A model of one unit under the strategy: what feeding so many GPUs takes."""
    return fit(seconds, model=model, count=count, strategy="DataParallel")


USUAL = (two(), fit(4e-3), fit(2.2e-3, 32), fit(1.8e-3, 32, strategy="DataParallel"), fed(1e-4))


def test_gains_are_one_gpus_step_over_all():
    case = only(*USUAL)
    assert (case.count, case.gain.value, case.scaled.value) == (2, pytest.approx(2.0), pytest.approx(2.2))
    below = fit(2e-3)
    (own,) = below.samples
    more = Fits(steps=2 * own.calls, later_epoch_s=(own.calls * 1e-3,))  # more steps took less
    below = msgspec.structs.replace(below, fits=(more,))
    assert data_parallel.step(below).value == pytest.approx(2e-3)
    case = only(*USUAL)
    assert case.predicted_step.value == pytest.approx(2.1e-3)  # 1.8 + 0.3
    assert case.predicted_gain.value == pytest.approx(4 / 2.1) and case.off == pytest.approx(4 / 2.1 / 2 - 1)
    without = only(*USUAL[:3], USUAL[4])  # no row under the strategy on one GPU: the plain one stands for it
    assert without.predicted_step.value == pytest.approx(2.5e-3)
    assert only(two(summed=0), *USUAL[1:]).predicted_step is None
    assert only(*USUAL[:4]).predicted_step is None  # what feeding two GPUs takes is not known
    based = only(USUAL[0], USUAL[1], USUAL[3])  # no plain row of a part: the one under the strategy stands for it
    assert based.scaled.value == pytest.approx(2 * 1.8 / 2)
    other = fed(9e-3, model="mlp-784-1x1-10")  # fed with smaller samples: of another case
    assert only(*USUAL[:4], other, fed(3e-3)).predicted_step.value == pytest.approx(3e-3)
    waiting = (two(), fit(1.9e-3), fit(1.8e-3, 32), fit(1.8e-3, 32, strategy="DataParallel"))
    assert only(*waiting).waits
    assert only(*waiting).predicted_step is None and only(*waiting, fed(0.7e-3)).predicted_step is None
    feeding = (fed(0.5e-3, 1), fed(0.7e-3))
    # what the host does, for two
    assert only(*waiting, *feeding).predicted_step.value == pytest.approx(1.8e-3 * 0.7 / 0.5)
    quicker = (feeding[0], fed(0.4e-3))
    assert only(*waiting, *quicker).predicted_step.value == pytest.approx(1.8e-3)
    assert not only(*USUAL).waits
    off = {**JAX, "jit_compile": "off"}
    others = [fit(4e-3, given=off), fit(4e-3, given={**JAX, "dropout": "on"}), fit(4e-3, 64, device="gpu:1")]
    case = only(two(), *others, fit(4e-3, model="lenet"), fit(4e-3, status="skipped"))
    assert (case.one, case.part, case.gain, case.off) == (None, None, None, None)


LOSSES = (2.0, 1.0, 0.5)


@pytest.mark.parametrize(
    ("losses", "apart", "flagged"),
    [(LOSSES, 0.0, False), ((2.0, 1.0, 0.5004), 0.0008, False), ((2.0, 1.02, 0.5), 0.02, True)],
)
def test_losses_of_several_compare_with_one(losses, apart, flagged):
    one, several = fit(4e-3, series={"step_loss": LOSSES}), two(series={"step_loss": losses})
    assert data_parallel.loss_difference(only(one, several)) == pytest.approx(apart, abs=1e-12)
    assert [one.check for one in Analysis.from_rows([one, several]).doubts] == ["other-losses"] * flagged
    said = " ".join(words.training_lines([one, several]))
    assert ("the losses are NOT those of one GPU. Within 3 steps they differ by 2.0 %." in said) is flagged


def test_rounding_losses_and_bus_bandwidth_follow_their_formulas():
    one, several = (fit(4e-3, series={"step_loss": (2.0,) * 6}), two(series={"step_loss": (2.0,) * 5 + (2.1,)}))
    assert data_parallel.loss_difference(only(one, several)) == 0
    assert data_parallel.loss_difference(only(one, several), None) == pytest.approx(0.05)
    assert Analysis.from_rows([one, several]).doubts == []
    assert cells([one, several])["losses differ by"] == "0 %" and cells([one, several])["at the end by"] == "5.00 %"
    assert data_parallel.bus_bytes_per_s(only(*USUAL)) == pytest.approx(6670376 / 0.3e-3)  # 2 (n - 1) / n is 1 for two
    four = fit(2e-3, 64, 4, "DataParallel", values={"all_reduce_bytes": 8e6}, series={"all_reduce_s": (1e-3,) * 3})
    assert data_parallel.bus_bytes_per_s(only(four)) == pytest.approx(12e9)
    stored = [
        row("collective/cupy/nccl", AllReduce(nbytes, "0,1"), seconds, device="gpu:0")
        for nbytes, seconds in ((4, 1e-5), (5000000, 1e-4), (10000000, 2e-4), (20000000, 5e-4))
    ]
    told = data_parallel.all_reduce(only(two(summed=0), *stored))
    assert told.value == pytest.approx(1e-4 * (1 + 1670376 / 5000000))
    assert data_parallel.all_reduce(only(two(summed=0), *stored[:2])) is None  # larger than any that was measured


def cells(rows):
    """Head -> cell of the only training in the table."""
    found = page.trainings(rows)
    ((*row_,),) = found.rows
    return dict(zip(found.heads, row_, strict=True))


def test_table_page_and_sentence_show_the_gains():
    seen = cells(USUAL)
    assert (seen["training"], seen["Keras on"], seen["a GPU"]) == ("CIFAR-10 CNN", "JAX, jit on", "32")
    assert (seen["speedup"], seen["predicted"], seen["off"]) == ("2.0x [2.0, 2.0]", "1.90", "-4.8 %")
    assert (seen["all-reduce"], seen["bus bandwidth"]) == ("300 µs", "22.2 GB/s")
    assert seen["samples a second at the same batch a GPU"] == "2.20x" and "peak memory, each" not in seen
    assert words.training_lines(USUAL) == words.training_lines([fit(4e-3), fit(4e-3, 32)]) == []
    four = fit(2e-3, 64, 4, "DataParallel", values={"jit_compile": 1.0})
    less = fit(5e-3, 32, 4, "DataParallel", values={"jit_compile": 1.0})
    # one training on two GPUs has no most and least
    (said,) = words.training_lines([two(), fit(4e-3), fit(4e-3, 32), less, four])
    assert said == (
        "4 GPUs instead of one (Keras on JAX, jit on), 2 trainings: CIFAR-10 CNN at batch 32 becomes 1.2x slower, "
        "CIFAR-10 CNN at batch 64 2.0x faster."
    )
    assert words.between(Estimate(2.0, 1.0, math.inf)) == "at least 1.0x"
    lines = markdown(page.training_section([*USUAL[:4], fed(3e-3)]))
    assert "| 4.00 ms | 2.00 ms | 2.0x [2.0, 2.0] | 2.0x [2.0, 2.0] | 1.33 | -33.3 % |" in "".join(lines)
    assert lines == markdown(trainings_page.section(page_of([*USUAL[:4], fed(3e-3)])))[-len(lines) :]
    parts = [msgspec.structs.replace(m, settings=msgspec.structs.replace(m.settings, device="cpu")) for m in USUAL]
    assert page.training_section(parts) == [] and page.training_section([fit(4e-3)]) == []
    assert [switches.ordinary(m) for m in USUAL] == [False, True, True, False, False]


def test_where_steps_tell_nothing_epochs_speak(monkeypatch):
    """Epochs of 3 ms a step on two GPUs, of 2 ms on one; a step of 1 ms on two that may be none at all."""
    rows, noisy = (two(3e-3), fit(2e-3)), Estimate(1e-3, -0.5e-3, 2.5e-3)
    known = {"2": noisy, "1": Estimate(2e-3, 1.9e-3, 2.1e-3)}
    monkeypatch.setattr(data_parallel, "step", lambda m: known[m.settings.switches.get("replicas", "1")])
    case = only(*rows)
    assert case.gain is None and case.off is None and case.by_epoch.value == pytest.approx(2 / 3)
    seen = cells(rows)
    assert "speedup" not in seen and "predicted" not in seen and seen["by short epochs"] == "0.67x [0.67, 0.67]"


def held(state, temporary):
    return {"step_state_bytes": float(state << 20), "step_temporary_bytes": float(temporary << 20), "jit_compile": 1.0}


def test_memory_halves_for_activations_alone():
    rows = [fit(4e-3, values=held(100, 64)), two(values=held(99, 32))]
    seen = cells(rows)
    memory = [seen[f"{what}, {of}"] for what in ("weights and optimizer", "activations") for of in ("one GPU", "each")]
    assert memory == ["100 MiB", "99.0 MiB", "64.0 MiB", "32.0 MiB"]
    peaks = [fit(4e-3, values={"peak_memory_bytes": 3 * 2**30}), two(values={"peak_memory_bytes": 2 * 2**30})]
    assert (cells(peaks)["peak memory, one GPU"], cells(peaks)["peak memory, each"]) == ("3.00 GiB", "2.00 GiB")


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


SMALL = "mlp-12-16x1-3"


def part(count, batch=8, strategy="DataParallel", library="jax", model=SMALL, device="cpu", **given):
    chosen = {"data": "synthetic", "dropout": "off", "shuffle": "off", **given}
    chosen |= {"keras_backend": library} if library != "tensorflow" else {}
    return Row(FIT, Training(model, batch, 3 * batch), Settings(device, switches=chosen | over(count, strategy)))


def test_a_process_sees_the_gpus_of_its_rows():
    uuids = {"gpu:0": "GPU-a", "gpu:1": "GPU-b", "gpu:2": "GPU-c"}
    both = environment(part(2, device="gpu:0"), uuids)
    assert (both["CUDA_VISIBLE_DEVICES"], both["NCCL_NVLS_ENABLE"]) == ("GPU-a,GPU-b", "0")
    assert both["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert environment(part(1, device="gpu:0"), uuids)["CUDA_VISIBLE_DEVICES"] == "GPU-a"
    assert environment(part(2), uuids)["CUDA_VISIBLE_DEVICES"] == ""
    assert environment(part(2), uuids)["XLA_FLAGS"] == "--xla_force_host_platform_device_count=2"
    assert environment(part(2, library="tensorflow"), uuids)[switches.PARTS] == "2"
    assert not {"XLA_FLAGS", switches.PARTS} & set(environment(part(1), uuids))


def test_memory_is_the_newest_step_programs():
    jax = pytest.importorskip("jax")

    @jax.jit
    def train_step(x):
        return x + 1

    for count in (100, 300, 200):  # a program for each shape, all alive
        train_step(jax.numpy.zeros(count, "float32")).block_until_ready()
        assert replicas.program_memory("cpu")["step_state_bytes"] == 4 * count


@pytest.mark.slow
def test_two_devices_learn_what_one_learns(jax_worker):
    one, several = jax_worker(part(1, strategy="")), jax_worker(part(2))
    assert (one.status, several.status) == ("ok", "ok"), (one.reason, several.reason)
    case = only(msgspec.structs.replace(one), several)
    assert case.one.key == one.key
    assert len(several.series["step_loss"]) == 20  # more samples are held than the row's own
    assert 0 <= data_parallel.loss_difference(case) < 1e-5
    assert (several.values["replicas"], several.values["replica_batch"]) == (2.0, 4.0)
    assert several.values["all_reduce_bytes"] == 4 * (12 * 16 + 16 + 16 * 3 + 3)
    assert several.values["all_reduce_s"] >= 0 and len(several.series["all_reduce_s"]) >= 3
    assert several.notes["strategy"] == "keras.distribution.DataParallel"
    state, _ = data_parallel.memory(several)
    # half of the batch: float32 inputs, int32 classes
    assert data_parallel.memory(one)[0] - state == 4 * (8 - 4) * (12 + 1)


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
