"""What a fit, an epoch, a step and a start cost, from seconds whose law is worked out by hand."""

import msgspec
import pytest
import stored_runs
from fake_measurements import by_later_epochs
from msgspec.structs import replace

from analysis.stats import NOTHING, Estimate, exact
from analysis.training import break_even, costs
from kernels.problems import Training
from workloads.records import Fits, Measurement, Samples, Settings, visits

LAW = (0.1, 0.02, 0.005)  # seconds of data-set setup, of an epoch beyond its steps, of a step
FIT = "training/keras/fit"


def row(phases=None, *, series=None, device="cpu", status="ok", process="warm", samples=1312, kernel=FIT, **switches):
    """A training of batch 32 without fits."""
    settings = Settings(device, process=process, switches={"data": "synthetic", **switches})
    problem = Training("cifar10-cnn", 32, samples)
    return Measurement(kernel, problem, settings, status, series=series or {}, phases_s=phases or {})


def trained(phases=None, **how):
    """A row whose fits follow LAW."""
    return by_later_epochs(row(phases, **how), LAW)


def warm(c: costs.TrainingCost, epochs: int, steps: int) -> Estimate:
    """Seconds of a warm fit."""
    return costs.whole_training(msgspec.structs.replace(c, start=None, build=None, compile=None), epochs, steps)


def about(e: Estimate) -> tuple[float, float, float]:
    return (round(e.value, 9), round(e.low, 9), round(e.high, 9))


def test_fits_of_two_lengths_tell_each_part():
    c = costs.measured(trained({"build": 0.5, "compile": 3.0, "first_call": 9.0}, series={"loss": (1.0,)}))
    assert [about(e) for e in (c.dataset_setup, c.epoch, c.step)] == [(0.1,) * 3, (0.02,) * 3, (0.005,) * 3]
    assert (about(c.build), about(c.compile), c.start) == ((0.5,) * 3, (3.0,) * 3, None)
    assert about(warm(c, 3, 10)) == (0.31,) * 3  # 0.1 + 3 x (0.02 + 10 x 0.005)
    assert costs.measured(trained(status="failed")) is None
    assert costs.measured(row()) is None
    one_form = trained()
    assert costs.measured(replace(one_form, fits=one_form.fits[:1])) is None  # steps were never varied


def test_a_training_is_start_builds_compilations_and_fit():
    phases = {"import": 5.0, "device_start": 2.0, "build": 0.5, "compile": 3.0, "compile_last": 1.0}
    c = costs.measured(trained(phases))
    assert about(c.start) == (7.0, 5.6, 8.4)  # of one process: 20 % about it
    assert about(costs.whole_training(c, 3, 10)) == (11.81, 10.41, 13.21)
    assert costs.whole_training(costs.measured(trained()), 3, 10).value == pytest.approx(0.31)


def begun(seconds: float, device_start: float = 1.0, at: str = "", **fields) -> Measurement:
    """A row whose process took so long to begin, its device's start in that."""
    made = row({"import": seconds - device_start, "device_start": device_start}, samples=int(seconds), **fields)
    return msgspec.structs.replace(made, at=at)


def test_imports_are_pooled_device_starts_are_not():
    """Of TensorFlow 4, 5 and 9 s of import; JAX's 29 in its loop and in Keras alike."""
    m, visible, jax = trained(), trained(gpu="visible"), trained(kernel="training/jax/loop")
    others = [
        begun(5.0, 1.0),
        begun(7.0, 2.0, kernel="training/tensorflow/loop", TF_ENABLE_ONEDNN_OPTS="0"),
        begun(19.0, 10.0, device="gpu:0"),
        begun(30.0, keras_backend="jax"),
        begun(9.0, keras_backend="torch"),
    ]
    assert costs.start_parts(m, others) == (costs._over_processes([4.0, 5.0, 9.0]), costs._over_processes([1.0, 2.0]))
    assert costs.measured(trained(device="gpu:0"), others).start.value == 5.0 + 10.0
    assert costs.measured(jax, others).start.value == 29.0 + 1.0
    seen = begun(10.0, 3.0, gpu="visible")  # 7 s of import: the middle of 4, 5, 7, 9 is 6
    assert costs.measured(visible, [*others, seen]).start.value == 6.0 + 3.0
    own = trained({"import": 7.0, "device_start": 1.5})
    assert costs.measured(own, [own, *others]).start.value == 6.0 + 1.5  # counted once
    assert costs.measured(trained(device="gpu:1"), others).start is None
    # it read the library from the disk: 10 of 10, 8 and 6 s; and it is the first by its date, not by its place
    taken = {"08": 10.0, "09": 8.0, "10": 6.0}
    rows = [begun(1.0 + s, at=f"2026-11-21T{hour}:00:00Z") for hour, s in taken.items()]
    assert costs.start_parts(trained(), rows)[0].value == costs.start_parts(trained(), rows[::-1])[0].value == 7.0
    late = [msgspec.structs.replace(row, at=f"2026-11-21T2{i}:00:00Z") for i, row in enumerate(rows[::-1])]
    assert costs.start_parts(trained(), late)[0].value == 8.0  # the longest one was not the first
    five = {"import_s": (9.0, 4.1, 4.2, 4.3, 4.4), "device_start_s": (1.0,) * 5}
    assert costs.start_parts(trained(), [row(series=five)])[0].value == pytest.approx(4.25)


def test_few_processes_are_spread_like_whole_models():
    assert about(costs._over_processes([10.0])) == (10.0, 8.0, 12.0) and about(costs._over_processes([9.0, 11.0])) == (
        10.0,
        8.0,
        12.0,
    )
    assert about(costs._over_processes([7.0, 13.0])) == (10.0, 7.0, 13.0)
    assert about(costs._over_processes([9.5, 10.0, 30.0])) == (10.0, 8.0, 12.0)
    assert about(costs._over_processes([10.0] * 5)) == (10.0,) * 3  # five tell their own
    each = {"import_s": (4.0, 4.1, 4.2, 4.3, 4.4), "device_start_s": (1.0,) * 5, "compile_s": (2.0, 2.2, 2.1, 2.3, 2.4)}
    phases = {"import": 4.4, "device_start": 1.0, "compile": 2.4}
    c = costs.measured(trained(phases, series=each, process="fresh"))
    assert c.start.value == pytest.approx(5.2) and c.start.low < 5.2 < c.start.high
    assert (c.compile.value, c.compile.low < 2.2 < c.compile.high) == (2.2, True)


def later(steps: int, epochs, few: int, short, setups=((), ())) -> Measurement:
    """A row of batch 32 whose later epochs of `steps` and of `few` steps took those seconds, and their data-set setups."""
    samples = Samples("host-latency", tuple(s / steps for s in epochs), steps, (len(epochs),), "epochs of 1 fit")
    own, other = setups
    fits = Fits(steps=steps, setup_s=own), Fits(steps=few, setup_s=other, later_epoch_s=short)
    return replace(row({"compile": 3.0, "compile_last": 1.0}, samples=32 * steps), samples=(samples,), fits=fits)


def test_later_epochs_tell_step_epoch_and_setup():
    """300 steps of 2 ms and 40 ms are 640 ms, 8 of them 56; 10 ms of a fit's own and 0.64 ms a batch are 202 ms and 15.12."""
    setups = (0.202,), (0.01512, 0.01512)
    c = costs.measured(later(300, (0.64,) * 5, 8, (0.056,) * 10, setups))
    assert [about(e) for e in (c.step, c.epoch, c.setup_step)] == [(0.002,) * 3, (0.04,) * 3, (0.00064,) * 3]
    assert (about(c.dataset_setup), c.steps, about(c.compile)) == ((0.202,) * 3, 300, (4.0,) * 3)
    # planned: 3 epochs of 1000 steps: 0.01 + 0.64, and 3 x 2.04
    assert about(warm(c, 3, 1000)) == (6.77,) * 3 and about(c.step + c.setup_step) == (0.00264,) * 3
    # of one fit the first epoch is as uncertain as those after it: 2.7764 times their deviation of 15.81 ms either way
    c = costs.measured(later(300, (0.62, 0.63, 0.64, 0.65, 0.66), 8, (0.056,) * 10, setups))
    assert about(c.dataset_setup) == (0.202, 0.158101262, 0.245898738)
    c = costs.measured(later(300, (0.64,) * 5, 8, (0.056,) * 10, ((0.602, 0.202, 0.202), setups[1])))
    assert (c.dataset_setup.value, round(c.setup_step.value, 9)) == (0.602, 0.00064)  # of several, the first fit's
    # as many steps as were measured take what they took, whatever of that is the step; 100 more are as uncertain as steps are
    own, more = c.epoch_seconds(300), c.epoch_seconds(400)
    assert own == c.whole_epoch and own.value == pytest.approx(0.64) and own.high - own.low < 2 * 0.04
    assert more.high - own.high == pytest.approx(100 * c.step.high)
    # one step of its own, 42 ms, and 8 of more samples, 56; the lower number's epoch is the better known one
    c = costs.measured(later(1, (0.041, 0.042, 0.043), 8, (0.056,) * 3))
    assert (round(c.step.value, 9), round(c.epoch.value, 9), about(c.setup_step)) == (0.002, 0.04, (0.0,) * 3)
    assert c.step.low > 0.0015 and c.dataset_setup.value == 0  # nor do more samples take less, or any less than nothing
    noisy = ((0.01,), (0.02,)), ((0.6,), (-0.1,))
    none = [costs.measured(later(300, (0.64,) * 5, 8, (0.056,) * 5, n)).setup_step for n in noisy]
    assert all(e.value == e.low == 0 <= e.high for e in none)
    unsure = costs.measured(later(300, (0.5, 0.64, 0.8), 8, (0.056,) * 5, setups)).setup_step
    assert unsure.value == unsure.low == 0 < unsure.high  # 0.187 s with one fit's noise of 0.65 s
    assert costs.measured(later(300, (0.64,) * 5, 8, (0.056,) * 5, ((-0.1,), ()))).dataset_setup == NOTHING
    # processes whose steps take 2 and 4 ms, epochs 40 ms beside: each is told by its own short epochs
    each = [later(300, (0.04 + 300 * s,) * 3, 8, (0.04 + 8 * s,) * 3, ((s,), ())) for s in (0.002, 0.004)]
    c = costs.measured(visits.merged(each))
    assert [round(e.value, 9) for e in (c.step, c.epoch, c.dataset_setup)] == [0.003, 0.04, 0.003]


def of_processes(*steps: float) -> Measurement:
    """A row of a process for each step's seconds."""
    return visits.merged([by_later_epochs(row(), (0.1, 0.02, step)) for step in steps])


def test_of_several_processes_each_tells_its_own_costs():
    """Steps of 4, 5 and 9 ms; a fit takes 0.1 s and an epoch 20 ms in each process."""
    of_three = of_processes(0.004, 0.005, 0.009)
    c = costs.measured(of_three)
    assert [round(e.value, 9) for e in (c.step, c.epoch, c.dataset_setup)] == [0.005, 0.02, 0.1]
    assert c.step.low < 0.004 < 0.009 < c.step.high  # over processes, and widened as of three
    assert [round(costs.measured(part).step.value, 9) for part in costs.processes(of_three)] == [0.004, 0.005, 0.009]
    own = [part.on("host-latency").seconds for part in costs.processes(of_three)][1]
    assert own == pytest.approx((0.005 + 0.02 / 41,) * 5)  # 1,312 samples are 41 steps


@pytest.mark.parametrize(
    ("batch", "samples", "rest"), [(32, 100, 4), (32, 96, 0), (32, 33, 1), (32, 32, 0), (32, 16, 0), (1, 100, 0)]
)
def test_samples_left_over_for_a_smaller_last_batch(batch, samples, rest):
    """XLA compiles it once more, if there is a whole batch before it and XLA compiles at all."""
    training = Training("lenet", batch, samples)
    compiled = [Settings("gpu:0"), Settings("cpu", switches={"jit_compile": "on"})]
    not_compiled = [Settings("cpu"), Settings("gpu:0", switches={"jit_compile": "off"})]
    assert [costs.left_over(training, side) for side in compiled] == [rest, rest]
    assert [costs.left_over(training, side) for side in not_compiled] == [0, 0]


def test_epochs_and_whole_trainings_by_hand():
    """An epoch of 10 steps took 5 s; 12 steps of 0.1 s take 0.2 s more, 8 take 0.2 s less. Three such epochs after 2 + 1 + 4 s
    and a data set of 0.5 s, whose setup takes 0.01 s more for each step beyond 10."""
    parts = {
        "dataset_setup": 0.5,
        "epoch": 4.0,
        "step": 0.1,
        "start": 2.0,
        "build": 1.0,
        "compile": 4.0,
        "setup_step": 0.01,
    }
    cost = costs.TrainingCost(**{name: exact(s) for name, s in parts.items()}, whole_epoch=exact(5.0), steps=10)
    assert [cost.epoch_seconds(steps).value for steps in (8, 10, 12)] == pytest.approx([4.8, 5.0, 5.2])
    assert costs.whole_training(cost, 3, 12).value == pytest.approx(2 + 1 + 4 + 0.5 + 0.02 + 3 * 5.2)
    assert costs.whole_training(cost, 0, 12).value == pytest.approx(7.52)
    separate = replace(cost, whole_epoch=None)
    assert separate.epoch_seconds(12).value == pytest.approx(4.0 + 1.2)
    named = {name: e.value for name, e in costs.parts(separate, 3, 12).items()}
    assert named == pytest.approx(
        {"start-up": 2, "build and compile": 5, "data-set setup": 0.52, "between epochs": 12, "steps": 3.6}
    )
    with_rest = replace(separate, last_step_saves=exact(0.03))  # in each of the three epochs
    assert with_rest.epoch_seconds(12).value == pytest.approx(4.0 + 1.2 - 0.03)
    assert costs.parts(with_rest, 3, 12)["steps"].value == pytest.approx(3.6 - 0.09)
    assert costs.whole_training(with_rest, 3, 12).value == pytest.approx(2 + 5 + 0.52 + 3 * 5.17)
    slower = replace(separate, start=exact(17.0), step=exact(0.05))
    assert costs.break_even(separate, slower, steps=100).value == pytest.approx(15 / 5)
    assert costs.break_even(slower, separate, steps=100) is None


def test_a_further_step_costs_its_setup_once():
    """The GPU starts 3 s later; of two epochs each further step saves 60 - 20 ms, less 4 ms of setup."""
    cpu = costs.TrainingCost(dataset_setup=exact(0.0), epoch=exact(0.0), step=exact(0.03), start=exact(5.0))
    gpu = costs.TrainingCost(
        dataset_setup=exact(0.004), epoch=exact(0.0), step=exact(0.01), start=exact(8.0), setup_step=exact(0.004)
    )
    assert costs.break_even(cpu, gpu, epochs=2).value == pytest.approx(3 / 0.036)


def test_a_row_never_waited_for_has_no_costs():
    taken = Samples("device", (1e-3,), 1, (1,), "1 visit")
    queued = Measurement("training/keras/fit", Training("lenet", 32, 2048), Settings("gpu:0"), "ok", samples=(taken,))
    assert costs.measured(queued) is None and costs.measured(replace(queued, status="failed")) is None


@pytest.mark.parametrize(
    ("model", "device", "samples", "step", "training"),
    [
        ("cifar10-cnn", "cpu", 50000, (7.728e-3, 7.105e-3, 7.766e-3), (59.48, 54.80, 62.14)),
        ("cifar10-cnn", "gpu:0", 50000, (2.245e-3, 2.146e-3, 2.545e-3), (42.04, 40.59, 45.94)),
        ("fashion-mlp", "cpu", 100, (4.184e-3, 3.592e-3, 4.744e-3), (9.301, 8.726, 11.17)),
        ("fashion-mlp", "gpu:0", 100, (1.860e-3, 1.400e-3, 2.340e-3), (21.52, 20.90, 23.43)),
    ],
)
def test_costs_of_stored_trainings_are_known(model, device, samples, step, training):
    rows = stored_runs.analysis("gpu").rows
    (row,) = [
        row
        for row in break_even.trainings(rows)
        if (row.problem.model, row.settings.device, row.problem.samples) == (model, device, samples)
    ]
    cost = costs.measured(row, rows)
    whole = costs.whole_training(cost, row.problem.epochs, row.problem.steps)
    assert stored_runs.numbers(cost.step) == stored_runs.near(*step)
    assert stored_runs.numbers(whole) == stored_runs.near(*training)
