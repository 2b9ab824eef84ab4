"""Crossovers of training by step and by whole training, when a GPU pays its start back, the CPU's forms, the small-dataset study:
on rows that follow laws whose answers are worked out by hand."""

import math
from types import SimpleNamespace

import pytest
import stored_runs
from fake_measurements import page_of
from fake_trainings import FIT, batches, both, one, small_data, trained
from msgspec.structs import replace

from analysis.analysis import Analysis
from analysis.blocks import markdown
from analysis.report.sections import training as section
from analysis.stats import Estimate
from analysis.text import summary
from analysis.text import training as training_words
from analysis.training import break_even, costs
from analysis.training.break_even import BY_EPOCH, BY_STEP, BY_WHOLE_TRAINING, Trained
from kernels.problems import Training
from workloads.records import Measurement

JAX_LOOPS = ("training/jax/loop", "training/jax/keras_loop")  # of stored rows, and of new ones


def test_a_trainings_row_is_chosen_step_by_step():
    """Each of these is worse than the one before in one thing, and in the next ones better."""
    sure, loose = Estimate(1e-3, 0.9e-3, 1.1e-3), Estimate(1e-3, 0.5e-3, 1.5e-3)
    cost = costs.TrainingCost(dataset_setup=costs.NOTHING, epoch=costs.NOTHING, step=sure, compile=costs.NOTHING)

    def side(samples: int, epochs: int, dtype: str, **given) -> Trained:
        row = trained("cifar10-cnn", 32, samples, (0.0, 0.0, 1e-3), epochs=epochs, dtype=dtype)
        return Trained(row=row, cost=replace(cost, **given))

    ranked = [
        side(320, 10, "float32"),
        side(320, 10, "float32", step=loose),
        side(320, 1, "float32"),
        side(320, 10, "float64"),
        side(640, 10, "float32"),
        side(320, 10, "float32", compile=None),
    ]
    wanted = Training("cifar10-cnn", 32, 320, 5)
    mixed = ranked[::-1]
    assert sorted(mixed, key=lambda one: one.rank(wanted)) == ranked


def test_a_batch_crossover_lies_where_the_laws_meet():
    found = one(break_even.answers(batches(), ["batch"]), BY_STEP)
    assert (found.kind, found.low_n, found.high_n, found.family.varies) == ("gpu-from", 50, 800, "batch")
    assert [(crossing.below, crossing.above, crossing.to) for crossing in found.crossings] == [(100, 400, "gpu")]
    # 3/4 and 6/4 of the GPU's time: log(4/3) / log(2) of the way from 100 to 400 in the logarithm
    assert found.crossings[0].at.value == pytest.approx(100 * 4 ** (0.28768207 / 0.69314718), rel=1e-6)
    assert training_words.answer_sentence(found) == "CIFAR-10 CNN, by a step: the GPU wins from batch 178."
    # S0's job at batch 50: 10 x 1000 steps; CPU 5 + 25 s, GPU 8.5 + 40. At 400: 1250 steps, CPU 5 + 7.5, GPU 8.5 + 5:
    # the GPU, faster by the step, loses the job; at 800: 620 steps (62 whole batches, as the rows compiled no other), 5
    # + 6.2 against 8.5 + 2.48
    found = one(break_even.answers(batches(), ["batch"]), BY_WHOLE_TRAINING)
    expected = [(50, 30.0, 48.5), (100, 20.0, 28.5), (400, 12.5, 13.5), (800, 11.2, 10.98)]
    assert [(p.n, round(p.cpu.seconds.value, 6), round(p.gpu.seconds.value, 6)) for p in found.points] == expected
    said = "whole training of 50,000 samples, 10 epochs, from its parts: the GPU wins from batch "
    assert said in training_words.answer_sentence(found)


def test_a_planned_training_has_its_smaller_last_batch():
    assert (
        break_even.planned_steps(
            break_even.Setup(kernel=FIT, model="cifar10-cnn", batch=32, samples=320, dtype="float32"), 50_000
        )
        == 1562
    )
    uneven = break_even.Setup(kernel=FIT, model="cifar10-cnn", batch=32, samples=330, dtype="float32")
    assert (
        break_even.planned_steps(uneven, 50_000) == 1563
        and break_even.Pair(setup=uneven, gpu=None, cpus=()).steps == 11
    )
    assert (
        break_even.planned_steps(
            break_even.Setup(kernel=FIT, model="peaks", batch=100, samples=100, dtype="float32"), 40
        )
        == 1
    )
    # Keras compiles once a batch shape: 5 of 5 + 3.5 + 5 + 0.04 s (10 epochs of 4 steps) for the last 4 samples of 100
    rows = both("cifar10-cnn", 32, 100, 1e-3, 1e-3, once=(5.0, 0.0, 3.5))
    assert training_words.last_batch_sentence(break_even.pairs(rows)) == []  # no such phase
    rows[1].phases_s["compile_last"] = 5.0
    (said,) = training_words.last_batch_sentence(break_even.pairs(rows))
    assert "the last batch has 4 samples, so the GPU compiles twice: 5.00 s, 37 % of the whole training." in said
    assert said in training_words.lines(rows)
    rows[1].phases_s["compile_last"] = 0.2
    assert training_words.last_batch_sentence(break_even.pairs(rows)) == []


def test_samples_move_the_crossover_by_epoch_and_training():
    found = break_even.answers(small_data(), ["samples"])
    by_epoch, by_job = (one(found, by) for by in (BY_EPOCH, BY_WHOLE_TRAINING))
    # 10 steps: 0.10 against 0.08, and more steps are more so
    assert [round(p.ratio.value, 3) for p in by_epoch.points] == [1.25, 3.154, 3.893, 3.989]
    # 5 epochs and 0.1 s of a fit: 6.1 + 5 x 0.1 against 16.1 + 5 x 0.08, ...
    expected = [(6.6, 16.5), (10.2, 17.4), (46.2, 26.4), (406.2, 116.4)]
    assert [(round(p.cpu.seconds.value, 6), round(p.gpu.seconds.value, 6)) for p in by_job.points] == expected
    assert (by_job.kind, by_job.crossings[0].below, by_job.crossings[0].above) == ("gpu-from", 3200, 32_000)


def test_a_slower_gpu_never_breaks_even():
    slow = both("fashion-mlp", 32, 320, 1e-3, 2e-3)
    (pair,) = break_even.pairs(slow)
    assert pair.break_even is None and training_words.break_even_sentence(pair).endswith(" The GPU never catches up.")
    likely = replace(pair.gpu.cost, step=Estimate(2e-3, 0.5e-3, 3.5e-3), whole_epoch=None)
    unsure = replace(pair, gpu=replace(pair.gpu, cost=likely))
    paid = unsure.break_even  # an epoch of 10 steps may be 5 ms shorter, and likely is 10 ms longer
    assert (paid.value, paid.high) == (math.inf, math.inf) and paid.low == 0
    assert training_words.break_even_sentence(unsure).endswith(" Break-even after 1 epoch at the earliest.")
    begun = trained("fashion-mlp", 32, 320, (0.0, 0.0, 1e-3), once=(1.0, 0.0, 0.0))
    (pair,) = break_even.pairs([begun, slow[1]])  # a second sooner, and 10 ms an epoch longer
    # 3 epochs of 2 ms a step against 1: a further step gains 3 ms
    steps = costs.break_even(pair.gpu.cost, pair.opponent.cost, epochs=3)  # the CPU, a second later, in the GPU's place
    assert steps.value == pytest.approx(1 / 3e-3)
    assert training_words.break_even_sentence(pair).endswith("which begins sooner, is overtaken after 100 epochs.")
    begun = trained("fashion-mlp", 32, 320, (0.0, 0.0, 2e-3), once=(1.0, 0.0, 0.0))
    (pair,) = break_even.pairs([begun, both("fashion-mlp", 32, 320, 2e-3, 1e-3)[1]])
    said = training_words.break_even_sentence(pair)
    assert said.endswith("ahead from the first epoch.") and not pair.break_even.value


def test_a_shorter_import_makes_no_form_better():
    """The same step; 9 and 5 s of import are 7 for both, and a device that is seen starts 0.2 s later."""
    every = [
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-3)),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-3), gpu="visible"),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 2e-3), device="gpu:0"),
    ]
    for m, imported, begun in zip(every, (9.0, 5.0, 7.0), (0.05, 0.25, 0.25), strict=True):
        m.phases_s.update({"import": imported, "device_start": begun})
    (pair,) = break_even.pairs(every)
    assert pair.cpu(BY_WHOLE_TRAINING).form == "GPU hidden"
    # the very first process took longest: 6 s of the other two; the import's interval moves neither side ahead
    assert pair.cpu(BY_WHOLE_TRAINING).cost.start.value == pytest.approx(6.05)
    assert (pair.gpu.cost.start.low, pair.gpu.cost.start.high) == (pytest.approx(6 + 0.2), pytest.approx(6 + 0.3))
    assert costs.measured(every[2], every).start.low == pytest.approx(4.8 + 0.2)  # by itself: below both


def test_hand_picked_and_studied_rows_stand_for_nothing():
    gpu = trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-3), device="gpu:0")
    aside = [
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-4), threads=2),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-4), jit_compile="off"),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-4), beside="fits"),
        trained("cifar10-cnn", 32, 320, (0.0, 0.0, 1e-4), dtype="float64"),
    ]
    assert break_even.pairs([gpu, *aside]) == [] and break_even.trainings(aside) == [aside[0], aside[1], aside[3]]
    slow = trained("cifar10-cnn", 32, 320, (0.0, 0.0, 5e-3), device="gpu:0", jit_compile="off")
    (pair,) = break_even.pairs([slow, gpu, trained("cifar10-cnn", 32, 320, (0.0, 0.0, 2e-3))])
    assert pair.gpu.cost.step.value == pytest.approx(1e-3)


def test_depth_is_read_off_the_generators_names():
    made = []
    for layers in (2, 4):
        model = f"mlp-784-100x{layers}-10"
        made += both(model, 128, 1280, 1e-3 * layers / 2, 3e-3 * layers / 2)
    depth = one(break_even.answers(made, ["depth"]), BY_STEP)
    assert ([p.n for p in depth.points], depth.kind) == ([2, 4], "cpu-throughout")


@pytest.mark.parametrize("kernel", JAX_LOOPS)
def test_a_full_batch_varies_in_samples(kernel):
    loop = {"kernel": kernel, "residence": "resident"}
    made = [m for n in (100, 1000, 10_000) for m in both("peaks", n, n, 1e-7 * n, 1e-4, **loop)]
    assert break_even.answers(made, ["batch"]) == []
    found = one(break_even.answers(made, ["samples"]), BY_STEP)
    assert (found.kind, found.crossings[0].at.value) == ("gpu-from", pytest.approx(1000, rel=1e-6))
    expected = "all samples in one batch, jax loop, resident, by a step: the GPU wins from 1,000 samples."
    assert expected in training_words.answer_sentence(found)


def test_each_change_compares_with_the_plain_row():
    """Epochs cost 50 ms beside 10 steps of 1 ms, which are no part of a step."""

    def one(step: float, epoch: float = 0.05, device: str = "gpu:0", **given) -> Measurement:
        return trained("cifar10-cnn", 32, 320, (0.0, epoch, step), device=device, **given)

    resident = {"kernel": "training/keras/resident", "residence": "resident"}
    made = [one(1e-3), one(5e-3, jit_compile="off"), one(2e-3, dtype="float64"), one(0.5e-3, 0.0, **resident)]
    steps = {
        change.options: (round(change.step.value, 6), round(change.plain_step.value, 6))
        for change in training_words.changes(made)
    }
    assert steps == {"jit off": (5e-3, 1e-3), "float64 inputs": (2e-3, 1e-3), "resident": (0.5e-3, 1e-3)}
    name = "CIFAR-10 CNN, batch 32, 320 samples, on the GPU"
    slower = f"{name}, jit off: a step takes 5.00 ms instead of 1.00 ms, 5.0x slower."
    assert training_words.change_sentences(made)[-1] == slower
    # 10 ms a step as Keras does it; resident 2 ms: 5 times as fast; and a page of switches alone answers with them
    made = [one(10e-3, 0.0, "cpu"), one(2e-3, 0.0, "cpu", **resident), one(40e-3, 0.0, "cpu", steps_per_execution="16")]
    name = "CIFAR-10 CNN, batch 32, 320 samples, on the CPU"
    said = [
        f"{name}, resident: a step takes 2.00 ms instead of 10.0 ms, 5.0x faster.",
        f"{name}, 16 steps an execution: a step takes 40.0 ms instead of 10.0 ms, 4.0x slower.",
    ]
    assert training_words.change_sentences(made) == said
    first, *changes = summary.answer(Analysis.from_rows(made))
    assert first.startswith("CIFAR-10 CNN, batch 32, 320 samples, 1 epoch, on the CPU: 100 ms. ") and changes == said


def test_steps_of_two_runs_have_their_noise():
    """10 ms as Keras does it may be 8.33 to 12 ms in a run a week before: 8 ms are surely less, 9 ms are not."""
    for day, told, form in ((28, ["1.3x", "1.1x"], "1.1x slower"), (21, ["1.3x"], "can't tell")):
        given = [(10, 28, {}), (1, 28, {"device": "gpu:0"}), (9, day, {"gpu": "visible"}), (8, day, {"shuffle": "off"})]
        made = [replace(trained("lenet", 32, 320, (0.0, 0.0, ms / 1e3), **own), at=f"11-{at}") for ms, at, own in given]
        assert [s.split(", ")[-1] for s in training_words.change_sentences(made)] == [f"{n} faster." for n in told]
        assert f"| 10.0 ms ({form}) | 9.00 ms (the best) |" in "".join(markdown(section.section(page_of(made))))


def test_a_step_below_nothing_is_doubted_most():
    m = trained("fashion-mlp", 32, 320, (0.0, 0.0, 1e-3))
    cost = costs.measured(m)
    steps = [Estimate(1e-3, 0.9e-3, 1.1e-3), Estimate(1e-3, 0.0, 2e-3), Estimate(-1e-3, -2e-3, 1e-4)]
    ranked = [replace(cost, step=step) for step in steps]
    assert sorted([ranked[2], ranked[0], ranked[1]], key=lambda one: Trained(row=m, cost=one).rank(m.problem)) == ranked


@pytest.mark.parametrize("kernel", JAX_LOOPS)
def test_a_bare_loops_samples_are_its_steps(kernel):
    """An epoch of Keras's fit takes 50 ms beside its one step of 1 ms; a loop has none."""
    loop = replace(trained("peaks", 100, 100, (0.0, 0.0, 1.1e-3), kernel=kernel, residence="resident"), fits=())
    found = costs.measured(loop)
    assert (found.dataset_setup.value, found.epoch.value) == (0.0, 0.0) and found.step.value == pytest.approx(1.1e-3)
    assert costs.measured(replace(loop, kernel=FIT)) is None
    assert costs.measured(trained("peaks", 100, 100, (0.2, 0.05, 1e-3), epochs=2000)).epoch.value == pytest.approx(0.05)


@pytest.mark.parametrize(
    ("mode", "varies", "points", "wide", "shown"),
    [
        (BY_WHOLE_TRAINING, "width", 2, [False], True),
        (BY_EPOCH, "samples", 3, [False], False),
        (BY_STEP, "samples", 3, [False, True], False),  # one crossing is only somewhere
        (BY_STEP, "batch", 3, [], True),
        (BY_STEP, "batch", 2, [], False),
        (BY_STEP, "samples", 3, [], False),
        (BY_WHOLE_TRAINING, "batch", 3, [], False),
    ],
)
def test_which_crossovers_of_trainings_are_shown(monkeypatch, mode, varies, points, wide, shown):
    family = SimpleNamespace(varies=varies)
    crossings = [SimpleNamespace(wide=one) for one in wide]
    answer = SimpleNamespace(form=SimpleNamespace(mode=mode), family=family, points=[0] * points, crossings=crossings)
    monkeypatch.setattr(break_even, "answers", lambda rows: [answer])
    monkeypatch.setattr(break_even, "setup_in", lambda family: SimpleNamespace(kernel=FIT))
    assert (break_even.main_answers([]) == [answer]) is shown


@pytest.mark.parametrize(
    ("model", "samples", "epochs"),
    [
        ("cifar10-cnn", 1000, (86.45, 70.15, 168.9)),
        ("cifar10-cnn", 50000, (1.953, 1.785, 2.454)),
        ("fashion-mlp", 100, (math.inf, 1620.0, math.inf)),
        ("fashion-mlp", 10000, (9.688, 7.593, 12.43)),
    ],
)
def test_break_evens_of_a_stored_run_are_known(model, samples, epochs):
    pairs = stored_runs.analysis("gpu").pairs
    (pair,) = [pair for pair in pairs if (pair.setup.model, pair.setup.samples) == (model, samples)]
    assert stored_runs.numbers(pair.break_even) == stored_runs.near(*epochs)


def test_sample_counts_where_stored_trainings_cross_are_known():
    answers = stored_runs.analysis("gpu").training_crossovers
    crossings = [answer.crossings[0].at for answer in answers if answer.crossings]
    assert [stored_runs.numbers(at) for at in crossings] == [
        stored_runs.near(7543, 6132, 8333),
        stored_runs.near(17250, 14230, 20460),
    ]
