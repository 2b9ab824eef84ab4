"""An explanation's numbers and words on a predictor whose laws are known (fake_predictions): every number worked out by hand."""

import math

import msgspec
import pytest
from fake_measurements import GPU_MACHINE, row
from fake_predictions import MS, FunctionPredictor, borrowed, predict, sources
from fake_trainings import both, trained
from msgspec.structs import replace

from analysis.explain import doubts, explanation, findings, framework, measure, published, sides, verify
from analysis.explain.doubts import Assumption
from analysis.explain.request import GPU, Request
from analysis.explain.sides import TurningPoint
from analysis.explain.sources import Sources
from analysis.finding import Finding, Warning
from analysis.predict import borrowed_gpu as stored
from analysis.predict import profile
from analysis.predict.memory import Memory
from analysis.predict.profile import Lacking
from analysis.predict.step_parts import HIDDEN
from analysis.predict.step_work import RoughWork
from analysis.stats import Estimate, exact, group_by
from analysis.text import sentences
from analysis.text.explanation import answer, changes, details
from analysis.text.explanation.sentence import sentence
from analysis.training import break_even, costs
from analysis.training.break_even import BY_WHOLE_TRAINING
from kernels import networks
from kernels.networks.layers import Layer, Network
from kernels.networks.operations import TracedStep
from kernels.problems import Launch, Stream, Training
from workloads.records import Settings
from workloads.records.published_cases import Reported

T = Training("cifar10-cnn", 32, 3200, 10)


def explained(training=T, of=None, **asked):
    return explanation.explain(Request(training, **asked), of or sources())


def findings_by_kind(e) -> dict[str, list[Finding]]:
    return group_by(findings.findings(e), lambda one: one.kind)


def only(e, kind: str) -> Finding:
    (finding,) = findings_by_kind(e)[kind]
    return finding


def said(e, kind: str) -> list[str]:
    return [sentence(finding) for finding in findings_by_kind(e).get(kind, [])]


def test_parts_of_both_sides_add_up():
    e = explained()
    assert (e.cpu.step_s.value, e.gpu.step_s.value) == pytest.approx((1.64 * MS, 2.164 * MS))
    cpu, gpu = e.both
    assert (cpu.cost.source, cpu.name, gpu.name) == ("predicted", "CPU", "GPU")
    assert cpu.whole.value == pytest.approx(5 + 0.1 + 10 * (0.05 + 100 * 1.64 * MS))
    assert sum(part.value for part in gpu.parts.values()) == pytest.approx(gpu.whole.value) == pytest.approx(11.764)
    e = explained(Training("cifar10-cnn", 64, 640))
    for p in e.predictions:
        assert sum(part.value for part in p.parts.values()) == pytest.approx(p.step_s.value)
    assert sentences.shares(e.gpu) == "90 % dispatch and 4.5 % copy calls"  # 2 and 0.1 of 2 + 0.164 + 0.064 ms


def test_the_samples_or_epochs_where_the_winner_changes():
    """GPU: 6 + 3 s against 5; an epoch of 10 steps of 3.38 ms against 13.8: 38.4 epochs of them are 4 s, or 10 of 24,600."""
    e = explained(Training("cifar10-cnn", 640, 6400, 10))
    apart = 4.0 / (10 * (13.8 - 3.38) * MS)
    counts = {"samples": pytest.approx(640 * apart), "epochs": pytest.approx(apart)}
    assert (e.turning_point.device, e.turning_point.counts) == ("gpu", counts)
    turning_point = only(e, "turning-point")
    assert (turning_point.subject, turning_point.numbers) == ("gpu", {"counts": e.turning_point.counts, "sure": True})
    assert sentence(turning_point) == "about 24,600 samples or 39 epochs on, the GPU finishes first."
    unsure = replace(turning_point, numbers=turning_point.numbers | {"sure": False})
    assert sentence(unsure) == "about 24,600 samples or 39 epochs on, the GPU probably finishes first."
    assert explained().turning_point == TurningPoint(
        device="cpu", counts={}
    )  # the CPU begins sooner and its steps are shorter
    assert said(explained(), "turning-point") == ["the first epoch on, the CPU finishes first, and it stays so."]
    assert sides.turning_point(*reversed(e.both)) == replace(e.turning_point, device="cpu")  # the other way round
    assert answer.answer(e, "again", can_check=True)[-1].endswith("again --verify 1")


def test_a_step_within_noise_bounds_the_speedup():
    """Steps of 13.8 and 3.38 ms: 4.1 times. One between -1 and 6.9 ms: at least twice. The GPU starts 4 s later: 1 s, and 3 s of
    compilation; where it may take 1 s less or more, only compilation is later."""
    cpu, gpu = explained(Training("cifar10-cnn", 640, 6400, 10)).both
    why = findings.steps(cpu, gpu).numbers
    assert (why["is_bound"], why["mostly"]) == (False, "build and compile")
    assert why["speedup"].value == pytest.approx(13.8 / 3.38) and why["later_s"] == pytest.approx(4.0)
    noisy = replace(gpu, cost=replace(gpu.cost, step=Estimate(3.38 * MS, -MS, 6.9 * MS)))
    bound = findings.steps(cpu, noisy).numbers
    assert bound["is_bound"] and bound["speedup"].low == pytest.approx(2.0)
    assert sentence(findings.steps(cpu, noisy)).startswith(
        "The GPU's steps are at least 2.0x faster; it starts 4.00 s later"
    )
    start = gpu.cost.start.value
    unsure_start = replace(gpu, cost=replace(gpu.cost, start=Estimate(start, start - 2, start + 2)))
    assert findings.steps(cpu, unsure_start).numbers["later_s"] == pytest.approx(3.0)


def test_an_assumed_number_names_its_nearby_turning_point():
    """By the test above the GPU finishes first from 24,566 samples, or from 38.4 epochs of 6,400 samples."""
    e = explained(Training("cifar10-cnn", 640, 6400, 10), assumed=("batch", "samples", "epochs"))
    batch, samples, epochs = e.assumed
    assert batch == Assumption(name="batch", value=640, flag="--batch")
    assert (samples.value, samples.flag, samples.wins_above) == (6400, "--samples", "gpu")
    assert samples.changes_at == pytest.approx(640 * 4.0 / (10 * (13.8 - 3.38) * MS))
    assert epochs.changes_at == pytest.approx(4.0 / (10 * (13.8 - 3.38) * MS))
    question = only(e, "question")
    assert (question.subject, question.numbers["below"], [*question.numbers["counts"]]) == (
        "gpu",
        False,
        ["samples", "epochs"],
    )
    # with `or 39 epochs` above 80 columns
    assert sentence(question) == "From about 24,600 samples the GPU probably wins: how many have you?"
    (few,) = explained(Training("cifar10-cnn", 640, 6400, 3), assumed=("epochs",)).assumed
    assert few == Assumption(name="epochs", value=3, flag="--epochs")  # 38.4 are more than ten times 3
    assert explained().assumed == () and not said(explained(), "question")


def test_the_first_line_names_assumptions_and_turning_point():
    """GPU: 4 s later and 4 ms a step sooner: ahead from 1,000 steps on, so from 3,200 samples in 10 epochs."""
    rows = swept(6400)
    e = explained(Training("cifar10-cnn", 32, 6400, 10), sources(*rows), assumed=("samples",))
    lines = answer.answer(e, "again")
    assert lines[0] == "CIFAR-10 CNN, batch 32, 10 epochs, assumed: 6,400 samples"
    assert lines[1].split() == ["(--samples)", "from", "measured", "parts"] and len(lines[1]) == 80
    (point,) = [line for line in lines if line.startswith("But")]
    assert point == "But   Below about 3,200 samples the CPU probably wins: how many have you?"
    e = explained(Training("cifar10-cnn", 32, 6400, 10), sources(*rows), assumed=("batch", "samples", "epochs"))
    assert answer.answer(e, "again")[0] == "CIFAR-10 CNN, assumed: batch 32, 6,400 samples, 10 epochs"


def test_disturbed_rows_make_an_answer_at_most_probable():
    """Measured: the flags of the training's own row. Predicted: those of any row that the prediction reads."""
    rows = swept(6400)
    training = Training("cifar10-cnn", 32, 6400, 10)
    quiet = explained(training, sources(*rows))
    assert quiet.winner == "gpu" and answer.answer(quiet, "again")[1].startswith("The GPU: 7.00 s against 11.0 s")
    loud = replace(rows[0], flags=("cpu-clock", "other-load"), values={"other_load_fraction": 0.4})
    e = explained(training, sources(loud, rows[1]))
    expected = Warning(kind="other-load", device="cpu", rows=1, rows_used=1, share=0.4, names=("training",))
    assert (e.disturbances, e.winner) == ((expected,), "neither")
    assert e.disturbed_devices == {"cpu"}
    known = measure.KnownCosts.from_explanation(e, without=e.disturbed_devices)
    assert ([*known.sides], known.predicted) == ([GPU], (GPU,))
    winner = only(e, "winner")
    assert (winner.subject, winner.numbers["sure"], winner.doubts) == ("gpu", False, (expected,))
    lines = answer.answer(e, "again")
    assert lines[1].startswith("Probably the GPU: 7.00 s against 11.0 s on the CPU")
    assert "Note  Other programs used 40 % of the CPU: measure again (--wait-quiet)." in lines


@pytest.mark.parametrize(
    ("batch", "samples", "counts"),
    [(50, 100, {"samples": 5000.0, "epochs": 500.0}), (100, 100, {"epochs": 1000.0}), (200, 100, {"epochs": 1000.0})],
)
def test_samples_within_one_batch_change_no_winner(batch, samples, counts):
    """9 s of start against 9 ms a step: 1,000 steps, 100 in each of 10 epochs. More samples in one batch are no more steps."""
    cpu = costs.TrainingCost(dataset_setup=exact(0.0), epoch=exact(0.0), step=exact(10 * MS))
    gpu = replace(cpu, step=exact(1 * MS), start=exact(9.0))
    training = Training("cifar10-cnn", batch, samples, 10)
    both_sides = (
        sides.Side(device=device, training=training, cost=cost) for device, cost in (("cpu", cpu), (GPU, gpu))
    )
    point = sides.turning_point(*both_sides)
    assert (point.device, point.counts) == ("gpu", pytest.approx(counts))


@pytest.mark.parametrize(
    ("flag", "clock", "disturbs"),
    [
        *((flag, "host-latency", True) for flag in ("other-load", "steal", "quota", "other-tenant", "thermal")),
        *((flag, "device", False) for flag in ("other-load", "steal", "quota")),
        *((flag, "device", True) for flag in ("other-tenant", "thermal")),
        ("power-cap", "device", False),
    ],
)
def test_host_load_disturbs_what_the_host_times(flag, clock, disturbs):
    """A GPU's kernel on the device's clock takes as long beside a busy CPU."""
    timed = row("stream/cupy/wide", Stream("copy", 1 << 20), {clock: 1e-3}, flags=(flag,))
    quiet = row("stream/cupy/wide", Stream("copy", 1 << 22), {clock: 1e-3})
    expected = Warning(kind=flag, device=GPU, rows=1, rows_used=2, names=("stream",))
    assert doubts.disturbances(GPU, [timed, quiet]) == ([expected] if disturbs else [])


def test_only_rows_a_prediction_reads_disturb_it():
    step = row("launch/tensorflow/fit_op_by_op", Launch("step", 64), 1e-3, flags=("steal",))
    other = row("launch/numpy/ufunc", Launch("elementwise", 1), 1e-6, flags=("steal",))
    near = [Stream("relu", n, "float32") for n in (2**i for i in range(10, 20))]
    passes = [row("stream/tensorflow/function", p, 1e-3) for p in near]
    far = row("stream/tensorflow/function", Stream("relu", 2**33, "float32"), 1.0, flags=("other-load",))
    on_device = row("stream/cupy/wide", near[0], {"device": 1e-6}, device=GPU, flags=("other-load",))
    e = explained(of=sources(step, other, *passes, far, on_device))
    assert [(w.kind, w.device, w.rows, w.names) for w in e.warnings] == [("steal", "cpu", 1, ("launch",))]
    close = replace(passes[5], flags=("other-load",), values={"other_load_fraction": 0.25})
    e = explained(of=sources(*passes[:5], close, *passes[6:], far))
    (warning,) = e.warnings
    assert (warning.kind, warning.rows, warning.share, warning.names) == ("other-load", 1, 0.25, ("stream",))
    (note,) = said(e, "disturbed")
    assert note.startswith("Other programs used 25 % of the CPU in 1 of ")


def test_findings_of_the_lowest_rank_fill_the_lines():
    """Ranks: changes 1, 3 and 5, the shares of a step 2. From two lines on one is kept for what is said under the changes."""
    e = explained(Training("cifar10-cnn", 640, 64_000, 50))
    every = findings.findings(e)
    assert len(e.actions) > 2
    assert sorted(one.rank for one in every if 0 < one.rank < 6) == [1, 2, 3, 5]
    shown = []
    for room in (0, 1, 2, 3, 4, 9):
        lines = answer._shown(every, room, complete=False)
        shares = [one for one in lines.others if one.kind == "step-shares"]
        shown.append((len(lines.changes), len(shares), len(lines.footer)))
    assert shown == [(0, 0, 0), (1, 0, 0), (1, 0, 1), (1, 1, 1), (2, 1, 1), (3, 1, 1)]
    (best,) = answer._shown(every, 1, complete=False).changes
    assert best.subject == e.actions[0].change.words
    without = [one for one in every if one.kind != "change"] + [Finding(kind="no-savings", rank=1)]
    assert answer._shown(without, 1, complete=False).point("Do") == ["No change is sure to save 1 % of the time."]


def test_every_change_that_is_not_shown_is_counted():
    """Larger batches too: the table of --all has them."""
    e = explained(Training("cifar10-cnn", 32, 3200, 10))
    shown = answer._shown(findings.findings(e), 3, complete=False)
    assert len(shown.changes) == 1
    assert f" {len(e.what_ifs) - 1} more (--all)." in " ".join(["", *shown.footer])
    assert len(changes.all_changes(findings_by_kind(e)["change"]).rows) == len(e.what_ifs)


def test_warnings_name_device_rows_and_layers():
    rows = swept(3200)
    rows[1] = replace(rows[1], flags=("other-load",))
    (warning,) = explained(of=sources(*rows)).warnings
    assert warning == Warning(kind="other-load", device=GPU, rows=1, rows_used=1, names=("training",))
    (estimated,) = explained(Training("own:build", 2, 8), network=odd(16)).warnings
    # 320 FLOP of `odd` beside 354
    assert (estimated.kind, estimated.names) == ("estimated-layers", ("odd",))
    assert estimated.share == pytest.approx(320 / 674)


def test_a_change_names_its_winner_and_its_risk():
    both_sides = explained().both
    behind = both_sides[1].whole - both_sides[0].whole
    saved = [behind.low - 1, behind.high + 1]  # GPU still behind; GPU surely ahead
    assert [findings.gpu_wins_with(exact(s), both_sides) for s in saved] == [False, True]
    assert not findings.gpu_wins_with(exact(saved[1]), both_sides[::-1])  # it wins without
    ends = (-2, -3, -1), (-2, -3, 1), (2, -1, 3)
    assert [changes.saved(Estimate(*each)) for each in ends] == [
        "costs 2.00 s",
        "perhaps costs 2.00 s",
        "perhaps 2.00 s",
    ]


def swept(*sizes: int, **given) -> list:
    """GPU: 4 s before the first step, steps of 1 ms against 5: of 10 epochs at batch 32 it is ahead from 3,200 samples on."""
    laws = (("cpu", 5e-3, (1.0, 0.0, 0.0)), ("gpu:0", 1e-3, (5.0, 0.0, 0.0)))
    rows = [trained("cifar10-cnn", 32, n, (0.0, 0.0, s), device=d, once=once) for n in sizes for d, s, once in laws]
    return rows


def test_a_swept_turning_point_is_said_everywhere():
    """A turn at 3,200 samples, or after 10 epochs of them; of another number of epochs the costs alone tell."""
    rows = swept(3072, 3328)
    e = explained(of=sources(*rows))
    (whole,) = [a for a in e.crossovers if a.family.varies == "samples"]
    assert whole == next(a for a in break_even.answers(rows, ["samples"]) if a.form.mode == BY_WHOLE_TRAINING)
    counts = {"samples": whole.crossings[0].at.value, "epochs": pytest.approx(10.0)}
    assert (e.turning_point.device, e.turning_point.counts) == ("gpu", counts)
    assert e.turning_point.counts["samples"] == pytest.approx(3200, rel=2e-3)
    assert not explained(validation=1, of=sources(*rows)).swept_turning_points
    assert said(e, "turning-point") == ["about 3,200 samples or 10 epochs on, the GPU finishes first."]
    other = explained(msgspec.structs.replace(T, epochs=20), sources(*rows))
    assert said(other, "turning-point") == ["about 1,600 samples or 10 epochs on, the GPU finishes first."]


def test_the_nearest_samples_answer_before_the_type():
    rows = [*swept(640, 3200, 6400), trained("cifar10-cnn", 32, 3200, (0.0, 0.0, 9e-3), dtype="float64")]
    steps = [s.row.problem.samples for s in sides.measured_rows(Request(T), sources(*rows)).values()]
    assert steps == [3200, 3200] and explained(of=sources(*rows)).measured["cpu"].step.value == pytest.approx(5e-3)
    # the GPU's 3,210 samples compiled 3 s for the first batch and 2 s for the last of 10; the whole training is in parts
    rows = [msgspec.structs.replace(m, phases_s=m.phases_s | {"compile": 3.0}) for m in swept(3200, 3210)]
    rows[3].phases_s["compile_last"] = 2.0
    for samples, once in ((3230, 5.0), (3199, 5.0), (3264, 3.0)):
        found = sides.measured_rows(Request(Training("cifar10-cnn", 32, samples, 10)), sources(*rows))
        assert found["gpu:0"].cost.compile.value == once
    # 3,200 samples alone compiled 3 s for whole batches: 3,230 take up to as much once more
    found = sides.measured_rows(Request(Training("cifar10-cnn", 32, 3230, 10)), sources(*rows[:2]))
    assert found["gpu:0"].cost.compile == Estimate(6.0, 3.0, 6.0)


def test_the_width_batch_and_samples_of_turning_points():
    e = explained()
    (batch,) = [a for a in e.crossovers if a.family.varies == "batch"]
    # 1 + 0.02 b = 2.1 + 0.002 b at 61.1
    assert (batch.kind, batch.crossings[0].below, batch.crossings[0].above) == ("gpu-from", 61, 64)
    assert batch.crossings[0].at.value == pytest.approx(61.1, rel=0.002)
    assert sentences.crossing(batch) == "the GPU wins from about batch 62 (predicted)"
    e = explained(Training("mlp-784-100x2-10", 128, 60_000, 10), varies="width", sizes=(10, 30, 50, 100))
    (width,) = [a for a in e.crossovers if a.family.varies == "width"]
    # 1 + 2.56 w = 2.228 + 0.128 w at w = 0.505 hundred
    assert width.crossings[0].at.value == pytest.approx(50.5, rel=0.002)
    with pytest.raises(ValueError, match="has no width"):
        break_even.split_training(T, "width")
    e = explained(Training("peaks", 1000, 1000, 5))
    assert {a.family.varies: a.form.mode for a in e.crossovers} == {"batch": "a step", "samples": "a step"}


def test_break_even_in_epochs():
    late = explained(Training("cifar10-cnn", 640, 6400, 10))
    # GPU: 6 + 3 against 5 s; an epoch 10 steps of 3.38 ms against 13.8 ms
    paid = costs.break_even(late.cpu.cost, late.gpu.cost, steps=10)
    assert paid.value == pytest.approx(4.0 / (10 * (13.8 - 3.38) * MS))
    # A CPU's step of 1.64 ms that may take 6.164: an epoch of 100 steps is 0.4 s shorter at most: 10 of them are 4 s
    e = explained()
    assert costs.break_even(e.cpu.cost, e.gpu.cost, steps=100) is None
    slow = msgspec.structs.replace(e.cpu, step_s=Estimate(1.64 * MS, 1.5 * MS, 6.164 * MS))
    paid = costs.break_even(slow.cost, e.gpu.cost, steps=100)
    assert (paid.value, paid.low, paid.high) == (math.inf, pytest.approx(10.0), math.inf)


def test_a_measured_step_does_not_move_its_prediction():
    own = ("cifar10-cnn", 32, 3200)
    rows = [
        *both(*own, 2e-3, 1e-3),
        trained("cifar10-cnn", 64, 3200, (0.0, 0.0, 9e-3)),
        trained(*own, (0.0, 0.0, 9e-3), steps_per_execution="4"),
        trained(*own, (0.0, 0.0, 9e-3), threads=4),
        trained(*own, (0.0, 0.0, 9e-3), dtype="float64"),
    ]
    e = explained(of=sources(*rows))
    assert (e.measured["cpu"].step.value, e.measured["gpu:0"].step.value) == pytest.approx((2e-3, 1e-3))
    assert e.gpu.step_s == explained().gpu.step_s
    assert details.step_table(e).rows[-1][1:] == ["360 µs (22 %)", "-1.16 ms (-54 %)"]  # 2 - 1.64, of 1.64: signed


def test_the_nearest_samples_then_the_least_noise_win():
    """The nearest number of samples first, whatever their type; then the least noisy; never the last one read."""
    few = [m for s, n in ((3e-3, 0.01), (4e-3, 0.1)) for m in both("cifar10-cnn", 32, 640, s, s, noise=n)]
    more = both("cifar10-cnn", 32, 3200, 2e-3, 1e-3, noise=0.05, dtype="float64")
    reported = Reported(T, "gpu", "faster")
    for rows, steps in ((few, (3e-3, 3e-3)), ([*more, *few], (2e-3, 1e-3)), ([*few, *more], (2e-3, 1e-3))):
        e, found = explained(of=sources(*rows)), published.measured(reported, rows)
        assert (e.measured["cpu"].step.value, e.measured["gpu:0"].step.value) == pytest.approx(steps)
        assert (found.cpu, found.gpu) == (e.measured["cpu"].step, e.measured["gpu:0"].step)


def test_validation_money_and_joules():
    plain, more = explained(), explained(validation=300)
    cnn = networks.find("cifar10-cnn")
    share = networks.inference_flops(cnn) / networks.training_flops(cnn)
    # ten batches, the last of 12, each the forward share of a step, but at least half of what the host does (2.132 ms on the GPU)
    each = sides.validating(more.request, more.gpu).value
    assert each == pytest.approx(10 * max(1.066 * MS, share * 2.164 * MS))
    expected = pytest.approx(plain.gpu.job_s.value + 10 * each)
    assert more.both[1].whole.value == expected
    gpu = explained(validation=300, of=sources(*swept(3200))).both[1]  # measured: 5 s, 10 epochs of 100 steps of 1 ms
    assert gpu.whole.value == pytest.approx(6.0 + 10 * each) == sum(e.value for e in gpu.parts.values())
    values = {"gpu_power_w": 200.0}
    e = explained(prices={"gpu": 3.6}, of=sources(row("training/keras/fit", T, 1e-3, device="gpu:0", values=values)))
    cpu, gpu = e.costs
    assert gpu.money.value == pytest.approx(e.gpu.job_s.value / 1000) and cpu.money is None
    assert gpu.joules.value == pytest.approx(200 * e.gpu.job_s.value) and cpu.joules is None


def test_a_price_in_words():
    """The CPU's 7.24 s over the GPU's 11.764 are 0.62; at 3.60 and 1 an hour they cost 0.012 and 0.002."""
    for prices in ({}, {"gpu": 3.6}):
        assert only(explained(prices=prices), "worth").numbers["ratio"].value == pytest.approx(7.24 / 11.764)
    assert said(explained(), "worth") == ["The GPU pays while its machine costs less than 0.62x the CPU's an hour."]
    both_prices = only(explained(prices={"gpu": 3.6, "cpu": 1.0}), "price")
    assert both_prices.numbers["gpu"].value == pytest.approx(3.6 * 11.764 / 3600)
    assert sentence(both_prices) == "CPU 0.0020, GPU 0.012, in your currency. Cheapest: CPU. Fastest: CPU."
    cheap_gpu = only(explained(prices={"gpu": 0.36, "cpu": 1.0}), "price")
    assert (cheap_gpu.numbers["cheapest"], cheap_gpu.numbers["fastest"]) == ("gpu", "cpu")


def test_an_unknown_layer_makes_the_answer_partial():
    network = Network("own:build", "", (4,), 3, (Layer("odd", "Odd", shape=(4,), weights=16), Layer("out", "dense", 3)))
    estimate = Request(Training("own:build", 2, 8), network).unknown_share.words
    # products of 2 samples: odd 2 x 64 FLOP, out 3 x 48 FLOP, and passes
    start = "odd (Odd): nothing here knows them; estimated"
    assert estimate.startswith(start) and "% of a step's arithmetic" in estimate
    e = explained(Training("own:build", 2, 8), network=network)
    assert e.partial == (estimate,) and said(e, "not-known")[0].startswith("Not known: odd (Odd)")
    two = msgspec.structs.replace(network, layers=(Layer("even", "Odd", shape=(4,)), *network.layers))
    assert Request(T, two).unknown_share.names == "2 Odd layers" and Request(T).unknown_share is None


def odd(weights: int) -> Network:
    """An unknown layer of so many weights before a dense one of 12. Of 2 samples its step takes 20 FLOP a weight (4 forward, 4
    for the gradient, 12 of Adam), the rest 354: 3 x 48 for products, 5 x 6 for passes, 12 x 15 of Adam."""
    layers = (Layer("odd", "Odd", shape=(4,), weights=weights), Layer("out", "dense", 3))
    return Network("own:build", "", (4,), 3, layers)


def test_an_answer_says_which_layers_are_only_estimated():
    """320 of 674 FLOP."""
    told = answer.answer(explained(Training("own:build", 2, 8), network=odd(16)), "again")
    assert "Note  Partial: of odd (Odd), 47 % of the arithmetic, there is only an estimate." in told
    assert not any("Partial" in line or "It needs" in line for line in answer.answer(explained(), "again"))


def test_the_device_with_most_unmeasured_work_is_named():
    shares = {"cpu": 0.2, GPU: 0.3}

    def roughly(training, settings, *others, **named):
        rough = RoughWork(share=shares[settings.device], kinds=("FFT2D by its bytes alone",))
        return replace(predict(training, settings, *others, **named), rough=rough)

    e = explained(of=replace(sources(), predictor=FunctionPredictor(roughly)))
    text = "Rough, within a factor of 4: 30 % of a step's work on the GPU (FFT2D by its bytes alone)."
    assert said(e, "rough-work") == [text]
    assert said(explained(), "rough-work") == []


def test_an_answer_names_the_chosen_optimizer_and_loss():
    chosen = msgspec.structs.replace(odd(16), compiled_for_user=True)
    (warning,) = [w for w in explained(network=chosen).warnings if w.kind == "not-compiled"]
    assert warning.names == ("adam", "sparse_categorical_crossentropy") and not warning.disturbs
    assert "not-compiled" not in [w.kind for w in explained(network=odd(16)).warnings]


def test_an_answer_warns_when_memory_is_short(monkeypatch):
    cpu, gpu = explained().both
    peaks = {"cpu": exact(48 << 30), GPU: exact(24 << 30)}
    monkeypatch.setattr(
        explanation, "memory", lambda _, t, device, **rows: Memory(device=device, peak=peaks[device], capacity=32 << 30)
    )
    told = [
        "It needs 48.0 GiB of memory on the CPU, which has 32.0 GiB (predicted).",
        "On the GPU it takes 11.8 s (predicted).",
    ]
    assert answer.answer(explained(), "again")[1:] == [*told, "More: again --all"]  # no winner
    peaks[GPU] = exact(64 << 30)
    assert answer.answer(explained(), "again")[2].startswith(
        "And   It needs 64.0 GiB of memory on the GPU, which has 32.0"
    )
    monkeypatch.setattr(
        explanation,
        "memory",
        lambda _, t, device, **rows: Memory(device=device, peak=peaks[device], capacity=32 << 30, copied=40 << 30),
    )
    assert [f.numbers["copied"] for f in findings.without_winner(explained())[:2]] == [40 << 30] * 2
    longer = msgspec.structs.replace(gpu.cost, dataset_setup=exact(900.0))
    slow_start = findings.steps(cpu, msgspec.structs.replace(gpu, cost=longer))
    assert slow_start.numbers["mostly"] == "data-set setup"


@pytest.mark.parametrize(("weights", "most"), [(16, False), (20, True)])  # 320 and 400 FLOP beside 354
def test_mostly_unknown_arithmetic_gives_no_time(weights, most):
    """No winner, no time and nothing that rests on them, on either machine; what was measured stays."""
    training = Training("own:build", 2, 8)
    for of in (sources(), msgspec.structs.replace(sources(), gpu=None)):
        e = explained(training, of, network=odd(weights))
        assert e.request.unknown_share.most is most
        assert bool(e.sides) is not most
        titles = details.details(e)
        assert ("A step, predicted" in titles) is not most and "Memory and cost" in titles
    if most:
        told, plain = (answer.answer(e, "again", measuring_s=seconds) for seconds in (30.0, 0.0))
        assert told[:-1] == plain[:-1] and "odd (Odd) not known, 53 % of the arithmetic; --measure times it." in told[1]
        assert told[-1] == "Measure it here, about 30 s: again --measure"
        record = e.record()
        assert (
            (record["cpu"], e.what_ifs, e.costs, e.crossovers) == (None, (), (), ())
            and e.cpu
            and record["memory"] == e.memory
        )
        assert list(verify.lines(e, 3, lambda *given: exact(2 * MS)))[2:] == ["  a step as it is: measured 2.00 ms"]
    else:
        assert e.record()["cpu"] == e.cpu


def test_a_complete_answer_asks_for_nothing_more():
    e = explained()
    brief, complete = (answer.answer(e, "again", complete=complete) for complete in (False, True))
    assert brief[-1] == "More: again --all" and not any("--all" in line for line in complete)
    assert len(complete) == len(brief) - 1 and complete[:3] == brief[:3]
    check = answer.answer(e, "again", complete=True, can_check=True)
    assert check == [*complete, "Check it (1 min): again --verify 1"]


def test_rows_show_whether_the_gpu_was_used():
    t = row("training/keras/fit", T, 1e-3, device="gpu:0")
    launch = Launch("step", 10)
    others = [
        row("launch/tensorflow/fit", launch, 1e-3, device="gpu:0"),
        row("launch/tensorflow/fit", launch, 1e-3),
        row("launch/cupy/ufunc", Launch("elementwise", 1), 1e-5, device="gpu:0"),
        row("training/jax/loop", T, 1e-3, device="gpu:0"),
        trained("cifar10-cnn", 32, 640, (0.0, 0.0, 1e-3), device="gpu:0", keras_backend="jax"),
    ]

    def seen(*rows, machine=GPU_MACHINE) -> str:
        return sentence(framework.gpu_use(rows, machine, "box"))

    used = "On box TensorFlow used the GPU in 2 rows, 1 of them trainings."
    assert seen(t, *others) == used
    lost = row("training/keras/fit", T, None, device="gpu:0", status="failed", reason="no libcudnn")
    assert seen(lost) == "On box TensorFlow did not use the GPU: no libcudnn."
    assert seen().startswith("box has a GPU")
    assert seen(machine=None).startswith("On box no GPU was measured")


def test_a_stored_gpu_takes_this_machines_host():
    of = borrowed(cpu_step=2 * MS)
    assert stored.host_factor(of.cpu, of.gpu).value == pytest.approx(2.0, rel=1e-6)
    e = explained(of=of)
    # dispatch 2 and calls 0.1 ms twice, which hide 32 µs of arithmetic; 32 µs of bytes as they are
    assert e.gpu.parts["dispatch"].value == pytest.approx(4 * MS)
    assert e.gpu.parts["transfer bytes"].value == pytest.approx(32e-6)
    assert e.gpu.step_s.value == pytest.approx(4.232 * MS) and e.gpu.start_s.value == pytest.approx(12.0)
    assert e.borrowed == "nvidia-h200" and e.cpu.step_s.value == pytest.approx(1.64 * MS)
    assert "Dispatch is 2.0x slower than with nvidia-h200's own CPU." in said(e, "host")
    made = predict(T, Settings("gpu:0", switches={}), borrowed().gpu)
    wide = stored.rescaled(made, Estimate(2.0, 1.0, 3.0))
    assert (wide.parts["dispatch"].low, wide.parts["dispatch"].high) == pytest.approx((2 * MS, 6 * MS))
    assert (wide.step_s.low, wide.step_s.high) == pytest.approx((2.132 * MS, 6.332 * MS))
    parts = {"dispatch": 2 * MS, "matmul": 3 * MS, "input pipeline": 1 * MS, HIDDEN: -3 * MS}
    parts = {name: exact(seconds) for name, seconds in parts.items()}
    ahead = Settings("gpu:0", switches={"residence": "prefetch"})
    made = msgspec.structs.replace(made, settings=ahead, parts=parts, step_s=exact(3 * MS))
    assert stored.rescaled(made, exact(2.0)).step_s.value == pytest.approx(4 * MS)  # the host is the longest now
    fed = msgspec.structs.replace(
        made, settings=Settings("gpu:0"), parts=parts | {HIDDEN: exact(-2 * MS)}, step_s=exact(4 * MS)
    )
    assert stored.rescaled(fed, exact(1.0)).step_s.value == pytest.approx(4 * MS), (
        "a batch that is brought by the step's own host"
    )
    assert stored.rescaled(fed, exact(2.0)).step_s.value == pytest.approx(6 * MS), "dispatch 4 and the batch 2 ms"
    of = borrowed()
    e = explained(of=Sources(cpu=profile.Profile((), GPU_MACHINE), gpu=of.gpu, predictor=FunctionPredictor(predict)))
    assert e.host_factor is None and e.gpu.step_s.value == pytest.approx(2.164 * MS)
    assert said(e, "host") == ["Dispatch is taken as with nvidia-h200's own CPU: no call was measured on both."]

    def importing(seconds):
        return row("training/keras/build", T, 1.0, phases_s={"import": seconds})

    of = borrowed()
    starts = ((of.cpu, 3.0), (of.gpu, 4.0))
    here, there = (profile.Profile((*p.measurements, importing(s)), p.machine) for p, s in starts)
    made = explained(of=Sources(cpu=here, gpu=there, predictor=FunctionPredictor(predict)))
    assert made.gpu.start_s.value == pytest.approx(6 * 3 / 4)
    assert made.gpu.parts["dispatch"].value == pytest.approx(4 * MS)


def test_missing_costs_come_from_the_stored_cpu():
    """Its host takes twice as long: start-up 5 s there is 10 s here, half to twice as much; the step stays its own."""
    made = predict(T, Settings("cpu"), borrowed().cpu)
    bare = msgspec.structs.replace(made, start_s=exact(0.0), epoch_s=exact(0.0))
    bare = msgspec.structs.replace(bare, partial=("else",))
    assert bare.unmeasured == ("start-up", "an epoch beyond its steps")
    assert len(bare.gaps) == 2 and "start-up and an epoch beyond its steps: python -m workloads.launch" in bare.gaps[1]
    assert made.unmeasured == ()
    whole = stored.completed(bare, made, exact(2.0))
    assert (whole.start_s, whole.epoch_s) == (Estimate(10.0, 5.0, 20.0), Estimate(0.1, 0.05, 0.2))
    assert (whole.step_s, whole.compile_s) == (made.step_s, made.compile_s)
    words = f"on this CPU: taken as {made.profile}'s CPU has it"
    assert whole.gaps == ("else", f"start-up and an epoch beyond its steps {words}")
    assert stored.completed(made, made, exact(2.0)) == made


def test_unknown_costs_are_said_and_not_zero():
    def bare(*args, **given):
        return msgspec.structs.replace(predict(*args, **given), start_s=exact(0.0))

    e = explained(of=msgspec.structs.replace(sources(), predictor=FunctionPredictor(bare)))
    assert [side.unknown for side in e.both] == [("start-up",)] * 2
    assert "Note  Left out of the CPU's time, as no row tells it: start-up." in answer.answer(e, "again")
    assert details.training_table(e).rows[0][1:] == ["-", "-"]


def lacking(device):
    def made(training, settings, of, network=None, **keywords):
        if (settings.device == "cpu") == (device == "cpu"):
            raise Lacking(f"no rows of {device}", [f"python -m workloads.launch --device {device}"])
        return predict(training, settings, of, network, **keywords)

    return msgspec.structs.replace(sources(), predictor=FunctionPredictor(made))


def test_a_side_without_rows_names_its_command():
    e = explained(of=lacking("gpu:0"))
    assert e.gpu is None and e.cpu
    assert "Missing of the GPU: the profile has no rows of gpu:0" in said(e, "missing")[-1]
    told = answer.answer(e, "again", measuring_s=60.0)
    assert told[1:] == [
        "No verdict yet: no GPU was measured for this model.",
        "On the CPU it takes 7.24 s (predicted).",
        "Measure it here, about 60 s: again --measure",
    ]
    assert details.details(e)  # no section needs the other side


def test_what_two_sides_lack_is_named_at_once():
    def made(training, settings, *args, **keywords):
        raise Lacking(f"no rows of {settings.device}", [f"measure {settings.device}", "measure both"])

    with pytest.raises(Lacking) as missing:
        explained(of=msgspec.structs.replace(sources(), predictor=FunctionPredictor(made)))
    commands = "measure cpu; measure both; measure gpu:0"
    assert str(missing.value) == f"the profile has no rows of cpu, no rows of gpu:0; measure with: {commands}"
    e = explained(of=sources(with_gpu=False))
    assert e.gpu is None and not e.crossovers and e.lacks == ()


UNTRACED = Network(
    name="own.py:build",
    seed="",
    input=(8,),
    classes=1,
    layers=(),
    traced=TracedStep(model="own.py:build", batch=32, operations=(), untraced="it is compiled with run_eagerly=True"),
)


def test_an_untraced_step_is_measured_or_nothing():
    """Nothing predicts it: without a row there is only what to measure, with a row that device's side alone."""
    request = Request(Training("own.py:build", 32, 3200, 10), network=UNTRACED)
    with pytest.raises(explanation.NotMeasured) as error:
        explanation.explain(request, sources())
    assert error.value.what == "it is compiled with run_eagerly=True"
    parts = measure.parts(measure.KnownCosts(), request, sources(), ["cpu", GPU], everything=True)
    assert [part.name for part in parts] == ["its own step on the CPU", "its own step on the GPU"]


def test_an_untraced_measured_step_has_no_prediction():
    request = Request(T, network=msgspec.structs.replace(UNTRACED, name="cifar10-cnn"))
    row_of_cpu = trained("cifar10-cnn", 32, 3200, (0.1, 0.0, 4 * MS), epochs=10, once=(5.0, 0.1, 0.1))
    e = explanation.explain(request, sources(row_of_cpu))
    assert [(side.device, side.cost.source) for side in e.sides] == [("cpu", "measured")]
    assert (e.predictions, e.what_ifs, e.crossovers) == ((), (), ())
    reason, time = findings.without_winner(e)
    assert (reason.kind, reason.subject, time.subject) == ("untraced", GPU, "cpu")
    assert [finding.kind for finding in findings.findings(e)].count("estimated-layers") == 0
