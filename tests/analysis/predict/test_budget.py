"""The budget's arithmetic and sentences, on made-up measurements whose sums are known."""

import made_profile
import msgspec
import pytest
from fake_measurements import GPU_MACHINE, row, transfer_rows
from made_profile import RATE

from analysis.blocks import markdown
from analysis.predict import budget, prediction, profile
from analysis.predict.step_time import Calibration
from analysis.report.sections import step_budgets
from analysis.stats import Estimate, exact
from analysis.text import budget as budget_words
from analysis.training.costs import TrainingCost
from kernels.problems import Training
from workloads.records import Settings

EMPTY, S0 = profile.Profile(()), Training("cifar10-cnn", 32, 9600)


def training(device="cpu", ms=21.0, problem=S0, **fields):
    return row("training/keras/fit", problem, ms / 1e3, device=device, **fields)


def part(made, name):
    return next(p for p in made.parts if p.name == name)


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
def test_parts_add_up_to_the_predicted_step(whole, device):
    made = budget.budget(training(device), whole)
    predicted = prediction.predict(S0, Settings(device), whole, fitted=Calibration())
    held = part(made, budget.SETUP).seconds  # the fit's work for a step's samples: what it takes beyond a fit of none
    assert held.value == pytest.approx((predicted.fit_s.value - made_profile.FIT) / S0.steps)
    expected = {n: e for n, e in predicted.parts.items() if e.value}
    assert {p.name: p.seconds for p in made.parts if p.seconds.value and p.name != budget.SETUP} == expected
    assert made.step.value - made.remainder.value == pytest.approx(predicted.step_s.value + held.value)
    assert made.step.value == pytest.approx(21e-3) and made.missing == []


def test_the_parts_of_the_host_and_the_link(whole):
    cpu = budget.budget(training(), whole)
    assert not {"transfer calls", "transfer bytes"} & {p.name for p in cpu.parts}
    assert part(cpu, "dispatch").why == "a Keras step of a model with almost no work"
    rows = [m for m in whole.measurements if m.problem.op != "transfer"]
    own, cupy = ([m for m in transfer_rows(0.0) if ("tensorflow" in m.kernel) is wanted] for wanted in (True, False))
    for copied, rate in (([*own, *cupy], 1.1e10), (own, 6e9)):
        made = budget.budget(training("gpu:0"), profile.Profile([*rows, *copied], GPU_MACHINE))
        assert part(made, "transfer bytes").seconds.value == pytest.approx((32 * 3072 * 4 + 32 * 8) / rate, rel=0.01)
    pinned = [m for m in cupy if m.problem.host_memory == "pinned"]
    assert part(budget.budget(training("gpu:0"), profile.Profile([*rows, *pinned])), "transfer calls").seconds is None
    loop = row("training/tensorflow/loop", Training("peaks", 100, 100), 1e-3)
    made = budget.budget(loop, whole)
    assert part(made, "dispatch").seconds.value == pytest.approx(made_profile.CALL, rel=0.05)
    jax = msgspec.structs.replace(loop, kernel="training/jax/loop")
    assert part(budget.budget(jax, whole), "dispatch").seconds is None


def test_a_products_part_sums_its_rows(whole):
    of = training(problem=Training("mlp-784-4000x1-10", 32, 9600))
    products = [row("matmul/numpy/blas", p, p.flops / RATE["cpu"], threads=2) for p in budget.gemms(of)]
    made = budget.budget(of, profile.Profile(products))
    flops = 2 * 32 * (2 * 784 * 4000 + 3 * 4000 * 10)
    assert part(made, "matmul").seconds.value == pytest.approx(flops / RATE["cpu"])
    assert part(made, "matmul").why == "libraries' rows"
    numba = profile.Profile(msgspec.structs.replace(m, kernel="matmul/numba/parallel") for m in products)
    assert part(budget.budget(of, numba), "matmul").seconds is None  # kernels of our own stand for no library
    own = training(ms=2.0, problem=Training("their.module:build", 32, 9600))
    (made,) = budget.budgets(profile.Profile([own]))
    assert made.remainder.value == pytest.approx(made.step.value)
    assert "not in kernels.networks" in part(made, "matmul").why
    assert budget.gemms(own) == ()
    assert budget_words.sentence(made).startswith("their.module:build, batch 32, on the CPU: a step takes 2.00 ms. ")


def test_each_part_is_in_the_whole_training_once():
    """Three epochs of ten steps of 100 ms: each millisecond of a step is 0.03 s of the training."""
    cost = TrainingCost(
        dataset_setup=exact(1.0),
        epoch=exact(0.5),
        step=exact(0.1),
        start=exact(4.0),
        build=exact(1.0),
        compile=exact(2.0),
        steps=10,
    )
    parts_ms = {
        "dispatch": 20.0,
        "launches": 5.0,
        "input pipeline": 10.0,
        "transfer calls": 3.0,
        "transfer bytes": 7.0,
        "matmul": 30.0,
        "optimizer": 4.0,
    }
    parts = tuple(budget.BudgetPart(name=name, seconds=exact(ms / 1e3), why="") for name, ms in parts_ms.items())
    of_step = budget.Budget(training=training("gpu:0", 100.0), step=cost.step, parts=parts, remainder=exact(0.021))
    expected = {
        "start-up": 4.0,
        "build and compile": 3.0,
        "fit and epochs beside their steps": 1.0 + 3 * 0.5,
        "dispatch": 1.05,
        "copy calls": 0.09,
        "copied bytes": 0.21,
        "arithmetic": 1.02,
        "not explained": 0.63,
    }
    assert budget.job_parts(cost, 3, 10, of_step) == pytest.approx(expected)


def test_a_missing_part_names_its_command():
    made = budget.budget(training("gpu:0"), EMPTY)
    seen = "dispatch", "copy calls", "dense layers", "convolutions", "element-wise passes", "optimizer"
    assert made.missing == list(seen)
    for name, command in (
        ("dispatch", "launch"),
        ("transfer calls", "transfer"),
        ("conv", "conv"),
        ("optimizer", "stream"),
    ):
        assert part(made, name).why.startswith(f"not measured: python -m workloads.{command} ")
    assert made.remainder == made.step and "not measured yet" in budget_words.sentence(made)


def test_the_remainder_has_sign_interval_and_largest_part(whole):
    made = budget.budget(training(ms=1.0), whole)
    over = sum(p.seconds.value for p in made.parts if p.seconds) - 1e-3
    assert made.remainder.value == pytest.approx(-over)
    said = budget_words.sentence(made)
    assert f"The parts come to {1e3 * over:.1f} ms more than the step" in said
    wide = msgspec.structs.replace(made, remainder=Estimate(-over, -2 * over, 1e-3))
    assert "within their noise" in budget_words.sentence(wide)
    sure = msgspec.structs.replace(made, remainder=Estimate(-over, -over, -over))
    assert "so they are counted too high" in budget_words.sentence(sure)
    assert budget.budget(training(), whole).largest[0][1] == "convolutions"
    tiny = training("gpu:0", problem=Training("mlp-784-100x2-10", 32, 9600))
    assert budget.budget(tiny, whole).largest[0][1] == "dispatch"
    assert budget.budget(training(), EMPTY).largest == [] and not budget.budget(training(), EMPTY).sound
    sound, flagged = (budget.budget(training(flags=flags), whole).sound for flags in ((), ("other-load",)))
    assert sound and not flagged
    rows = [m for m in whole.measurements if m.problem.op != "conv" or m.problem.direction != "wgrad"]
    made = budget.budget(training(), profile.Profile(rows, GPU_MACHINE))
    conv = part(made, "conv")
    assert conv.partial and 0 < conv.seconds.value < part(budget.budget(training(), whole), "conv").seconds.value


def test_a_failed_row_names_its_unusual_settings():
    several = {"data": "synthetic", "jit_compile": "on", "replicas": "4", "strategy": "MirroredStrategy"}
    refused = row("training/keras/fit", S0, None, device="gpu:0", status="skipped", reason="XLA compiles none")
    refused = msgspec.structs.replace(refused, settings=Settings("gpu:0", switches=several))
    lost = row("training/keras/fit", S0, None, device="gpu:1", status="failed", reason="TensorFlow finds no GPU")
    assert markdown(step_budgets.section([], [training("gpu:0"), lost, refused]))[:2] == [
        "- CIFAR-10 CNN, batch 32: failed on GPU 1, TensorFlow finds no GPU",
        "- CIFAR-10 CNN, batch 32 (jit on and MirroredStrategy): skipped on 4 GPUs, XLA compiles none",
    ]


def test_only_whole_fits_have_the_setup(whole):
    """Steps of 2 ms, whatever an epoch and a fit take beside them; of a row without fits that tell the step it is whole fits."""
    by_epochs = made_profile.training("fashion-mlp", 32, 2e-3, epochs=2)
    made = budget.budget(by_epochs, whole)
    assert made.step.value == pytest.approx(2e-3) and budget.SETUP not in {p.name for p in made.parts}
    of_fits = msgspec.structs.replace(by_epochs, fits=())
    made = budget.budget(of_fits, whole)
    assert made.step.value == pytest.approx(2e-3 + made_profile.EPOCH / 64)
    assert part(made, budget.SETUP).seconds.value > 0
    loop = msgspec.structs.replace(of_fits, kernel="training/tensorflow/loop")
    assert budget.SETUP not in {p.name for p in budget.budget(loop, whole).parts}


def test_a_batch_above_the_samples_is_their_size():
    large, whole = (training(problem=Training("mlp-784-100x2-10", batch, 128)) for batch in (4096, 128))
    assert budget.gemms(large) == budget.gemms(whole)
    assert max(max(p.m, p.n, p.k) for p in budget.gemms(large)) == 784


def test_the_largest_parts_go_by_their_seconds():
    seconds = {"a": Estimate(2.0, 1.0, 9.0), "b": Estimate(3.0, 2.9, 3.1), "c": None, "d": exact(-1.0), "e": exact(0.0)}
    parts = tuple(budget.BudgetPart(name=name, seconds=e, why=name) for name, e in seconds.items())
    made = budget.Budget(training=training("cpu", 10.0), step=exact(5.0), parts=parts, remainder=exact(1.0))
    assert [value for value, _ in made.largest] == [3.0, 2.0]


@pytest.mark.parametrize(
    ("remainder", "flags", "ends"),
    [
        (Estimate(2e-3, 1e-3, 3e-3), (), "20 % is not explained."),
        (Estimate(-2e-3, -5e-3, 1e-3), (), "The parts come to 2.00 ms more than the step, within their noise."),
        (Estimate(-2e-3, -5e-3, -1e-3), (), "more than the step, so they are counted too high."),
        (Estimate(-2e-3, -5e-3, -1e-3), ("steal",), "the machine was busy, so measure again."),
    ],
)
def test_the_rest_of_a_step_has_a_sign(remainder, flags, ends):
    """A step of 10 ms: 5, 3, 2 and 1 ms, of which the three largest are named; a part below 0 is an overlap."""
    seconds = {"b": 3e-3, "a": 5e-3, "d": 1e-3, "c": 2e-3, "e": -1e-3}
    parts = tuple(budget.BudgetPart(name=name, seconds=exact(s), why=name) for name, s in seconds.items())
    taken = msgspec.structs.replace(training("gpu:0", 10.0), flags=flags)
    said = budget_words.sentence(budget.Budget(training=taken, step=exact(10e-3), parts=parts, remainder=remainder))
    assert "Its largest parts: 50 % a, 30 % b and 20 % c (they overlap)." in said and said.endswith(ends)
    assert ("(doubtful: steal)" in said) is bool(flags)
    plain = budget_words.sentence(
        budget.Budget(training=taken, step=exact(10e-3), parts=parts[:2], remainder=remainder)
    )
    assert "50 % a and 30 % b." in plain


def test_a_row_without_time_names_type_and_reason():
    lost = training("cpu", 1.0, problem=Training("lenet", 32, 64, 1, "float64"))
    chosen = Settings("cpu", 4, switches={"jit_compile": "on"})
    lost = msgspec.structs.replace(lost, settings=chosen, status="failed", reason="out of memory: 3 GiB")
    said = budget_words.lost(lost)
    assert said == "lenet, batch 32 (float64 inputs and jit on): failed on the CPU (4 threads), out of memory: 3 GiB"
