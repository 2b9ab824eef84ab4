"""An explanation's numbers and words on a predictor whose laws are known (fake_predictions): every number worked out by hand."""

import math

import msgspec
import pytest
from fake_measurements import GPU_MACHINE, row
from fake_predictions import MS, borrowed, exactly, predict, sources
from test_jobs import by_its_epochs, trained

from analysis.crossover import crossover
from analysis.explain import explanation, verify
from analysis.explain.explanation import Request, Sources
from analysis.predict import borrowed_gpu as stored
from analysis.predict import profile
from analysis.predict.combine import HIDDEN
from analysis.predict.prediction import Prediction
from analysis.predict.profile import Lacking
from analysis.stats import Estimate
from analysis.text import cases, explanation_tables, verdicts
from analysis.text import explanation as explanation_words
from analysis.training import costs
from kernels import networks
from kernels.networks.layers import Layer, Network
from kernels.problems import Launch, Training
from workloads.records import Settings
from workloads.records.published_cases import Reported

T = Training("cifar10-cnn", 32, 3200, 10)


def explained(training=T, of=None, **asked):
    return explanation.explain(Request(training, **asked), of or sources())


def test_both_sides_the_whole_job_and_parts_that_add_up_to_the_step():
    e = explained()
    assert (e.cpu.step_s.value, e.gpu.step_s.value) == pytest.approx((1.64 * MS, 2.164 * MS))
    assert e.cpu.job_s.value == pytest.approx(5 + 0.1 + 10 * (0.05 + 100 * 1.64 * MS))
    assert explanation_words.faster(e.cpu.job_s, e.gpu.job_s) == "cpu"
    told = explanation_words.verdict(e)
    assert len(told) == 5
    assert told[0].startswith("The CPU finishes first, 1.62 times as fast: a step takes 2.16 ms on the GPU")
    start = "Python and TensorFlow starting the step on the"
    gpu = f"{start} GPU (compiled by XLA; 2.00 ms, 92.4 % of it)"
    cpu = f"{start} CPU (operation by operation; 1.00 ms, 61.0 % of it)"
    assert told[1] == f"The largest part of a step is {gpu} and {cpu}."
    e = explained(Training("cifar10-cnn", 64, 640))
    for p in e.sides:
        assert sum(part.value for part in p.parts.values()) == pytest.approx(p.step_s.value)
    lines = explanation_tables.budget_lines(e)
    assert lines[0].split()[-5:] == ["CPU,", "op", "by", "op", "GPU,"] or "GPU, compiled" in lines[0]
    assert any("the bytes of the batch" in line and line.rstrip().endswith("64.0 µs (2.9 %)") for line in lines)


def test_the_width_the_batch_and_the_samples_at_which_the_winner_changes():
    e = explained()
    (batch,) = [a for a in e.crossovers if a.family.varies == "batch"]
    # 1 + 0.02 b = 2.1 + 0.002 b at 61.1
    assert (batch.kind, batch.crossings[0].below, batch.crossings[0].above) == ("gpu-from", 61, 64)
    assert batch.crossings[0].at.value == pytest.approx(61.1, rel=0.002)
    said = explanation_words.answer_sentence(batch)
    assert said == "By a step, the GPU wins from batch = 62 on (predicted over batch 1 to 1,024)."
    e = explained(Training("mlp-784-100x2-10", 128, 60_000, 10), varies="width", sizes=(10, 30, 50, 100))
    (width,) = [a for a in e.crossovers if a.family.varies == "width"]
    # 1 + 2.56 w = 2.228 + 0.128 w at w = 0.505 hundred
    assert width.crossings[0].at.value == pytest.approx(50.5, rel=0.002)
    with pytest.raises(ValueError, match="has no width"):
        explanation._of_width("cifar10-cnn", 30)
    e = explained(Training("peaks", 1000, 1000, 5))
    assert {a.family.varies: a.form.mode for a in e.crossovers} == {"batch": "a step", "samples": "a step"}


def test_what_cannot_be_told_for_sure_is_still_said():
    def wide(*args, **keywords):
        return predict(*args, spread=0.3, **keywords)

    of = msgspec.structs.replace(sources(), predict=wide)
    (batch,) = [a for a in explained(of=of).crossovers if a.family.varies == "batch"]
    said = explanation_words.answer_sentence(batch)
    open_at = "too close to be sure at batch 16 to 64; predicted over batch 1 to 1,024"
    assert said == f"By a step, the GPU wins from batch = 62 on ({open_at})."
    of = msgspec.structs.replace(sources(), predict=lambda *a, **k: predict(*a, spread=0.3, **k))
    assert explanation_words.verdict(explained(of=of))[0].startswith(
        "It is too close to be sure, but likely the CPU finishes first, 1.62 times as fast: a step takes 2.16 ms"
    )
    late = explained(Training("cifar10-cnn", 128, 1280, 2))  # 3.56 against 2.36 ms a step, but start-up decides
    assert "1.75 times as fast (by the step alone the GPU is ahead): " in explanation_words.verdict(late)[0]


def along(*ratios) -> crossover.Answer:
    """Who wins at width 10, 20, 40 ...: the CPU takes so many times the GPU's second, (low, high) about it or exactly."""

    def side(value, low, high):
        return crossover.Side("predicted", "", None, "float32", Estimate(value, low, high))

    each = [(ratio if isinstance(ratio, tuple) else (ratio,) * 3) for ratio in ratios]
    points = [crossover.Point(10 * 2**i, side(*ends), side(1.0, 1.0, 1.0)) for i, ends in enumerate(each)]
    family = crossover.Family("training", "width", ("width",))
    return crossover.classify("float32", crossover.Form("a step"), points, family=family)


CPU_LIKELY, GPU_LIKELY = (0.8, 0.5, 1.25), (1.25, 0.8, 2.0)
NONE = "no winner can be told at any width looked at; likelier is"


@pytest.mark.parametrize(
    ("ratios", "said"),
    [
        # no size is sure: nobody wins
        ((CPU_LIKELY, GPU_LIKELY), f"{NONE} the CPU at width = 10 and the GPU at 20 (predicted over width 10 to 20)"),
        ((GPU_LIKELY, CPU_LIKELY, GPU_LIKELY), f"{NONE} the GPU (predicted over width 10 to 40)"),
        # three turns in one band are one, at sqrt(10 x 20) = 14.1 to sqrt(40 x 80) = 56.6; without the band they are three
        (
            (CPU_LIKELY, GPU_LIKELY, CPU_LIKELY, GPU_LIKELY, 2.0),
            "the GPU wins from somewhere between width = 15 and 57 on (too close "
            "to be sure at width 10 to 80; predicted over width 10 to 160)",
        ),
        (
            (0.8, 1.25, 0.8, 1.25),
            "the CPU wins at width = 10, from width = 15 the GPU, from width = 29 the CPU and from width = 57 "
            "the GPU (predicted over width 10 to 80)",
        ),
        # two turns in one band are none, where the same device wins on both sides
        (
            (0.5, CPU_LIKELY, GPU_LIKELY, CPU_LIKELY, 0.5),
            "the CPU likely wins at every width looked at (too close to be sure at "
            "width 20 to 80; predicted over width 10 to 160)",
        ),
        # 20 x 2 ** (ln 1.25 / ln 2.5) = 23.7
        (
            (GPU_LIKELY, GPU_LIKELY, 0.5),
            "the GPU likely wins at width = 10, from width = 24 the CPU (too close to be sure at width "
            "10 to 20; predicted over width 10 to 40)",
        ),
    ],
)
def test_who_wins_claims_no_more_than_its_own_bracket(ratios, said):
    assert explanation_words.answer_sentence(along(*ratios)) == f"By a step, {said}."


def test_that_it_does_not_flip_is_said_where_a_winner_is_sure():
    for ratios, words in (
        ((2.0, 2.0), " It does not flip here: already at width = 10 a step takes 1.00 s on the GPU"),
        ((GPU_LIKELY, 2.0), " It likely does not flip here: already"),
        ((GPU_LIKELY, GPU_LIKELY), ""),
    ):
        made = along(*ratios)
        said = cases.flips(msgspec.structs.replace(explained(), crossovers=(made,)), "width")
        assert said.removeprefix(explanation_words.answer_sentence(made)).startswith(words)
        assert bool(words) == ("flip" in said)


def test_break_even_in_epochs():
    late = explained(Training("cifar10-cnn", 640, 6400, 10))
    # GPU: 6 + 3 against 5 s; an epoch 10 steps of 3.38 ms against 13.8 ms
    assert late.break_even.value == pytest.approx(4.0 / (10 * (13.8 - 3.38) * MS))
    assert "which it has paid back after 38.4 epochs" in explanation_words._pays(late)
    step_s = Estimate(3.38 * MS, 2.38 * MS, 14.38 * MS)
    apart = costs.break_even(late.cpu.cost, msgspec.structs.replace(late.gpu, step_s=step_s).cost, 10)
    assert (apart.value, apart.low) == pytest.approx((late.break_even.value, 4.0 / (10 * (13.8 - 2.38) * MS)))
    assert apart.high == float("inf")  # its epochs may be longer
    assert explained().break_even is None
    assert explanation_words._pays(explained()).endswith("its epochs are no shorter: it never catches up.")
    # A CPU's step of 1.64 ms that may take 6.164: an epoch of 100 steps is 0.4 s shorter at most: 10 of them are 4 s
    e = explained()
    slow = msgspec.structs.replace(e.cpu, step_s=Estimate(1.64 * MS, 1.5 * MS, 6.164 * MS))
    paid = costs.break_even(slow.cost, e.gpu.cost, 100)
    assert (paid.value, paid.low, paid.high) == (math.inf, pytest.approx(10.0), math.inf)
    assert explanation_words._pays(msgspec.structs.replace(e, cpu=slow, break_even=paid)) == (
        "The GPU's job begins 4.00 s later, and whether its epochs are shorter cannot be told: it is ahead after "
        "10.0 epochs at the earliest, or never; this job has 10."
    )


def test_a_measured_step_stands_beside_the_prediction_and_moves_nothing():
    own = ("cifar10-cnn", 32, 3200)
    rows = [
        trained(*own, (0.0, 0.0, 2e-3)),
        trained(*own, (0.0, 0.0, 1e-3), device="gpu:0"),
        trained("cifar10-cnn", 64, 3200, (0.0, 0.0, 9e-3)),
        trained(*own, (0.0, 0.0, 9e-3), steps_per_execution="4"),
        trained(*own, (0.0, 0.0, 9e-3), threads=4),
        trained(*own, (0.0, 0.0, 9e-3), dtype="float64"),
    ]
    e = explained(of=sources(*rows))
    assert (e.measured["cpu"].step.value, e.measured["gpu:0"].step.value) == pytest.approx((2e-3, 1e-3))
    assert e.gpu.step_s == explained().gpu.step_s
    text = "\n".join(explanation_tables.budget_lines(e))
    assert "at most 360 µs (22.0 %)" in text  # 2 - 1.64, of 1.64: the remainder, signed
    assert "-1.16 ms (-53.8 %)" in text


def test_a_step_of_short_fits_stands_as_an_upper_bound():
    """5 ms at most, where 2.164 are predicted, in the interval; 1.5 ms of a row of later epochs, where 1.64 are, outside."""
    rows = [
        trained("cifar10-cnn", 32, 640, (0.0, 0.0, 5e-3), device="gpu:0"),
        by_its_epochs(trained("cifar10-cnn", 32, 3200, (0.0, 0.0, 1.5e-3))),
    ]
    e = explained(of=sources(*rows))
    assert [(device, cost.bound) for device, cost in e.measured.items()] == [("cpu", False), ("gpu:0", True)]
    table = {line[:41].strip(): line[41:].split("  ") for line in explanation_tables.budget_lines(e)}
    cells = {name: [cell.strip() for cell in each if cell.strip()] for name, each in table.items()}
    assert cells["measured"] == ["1.50 ms", "at most 5.00 ms"]
    assert cells["not explained (measured less predicted)"] == ["-140 µs (-8.54 %)", "at most 2.84 ms (131 %)"]
    assert cells["what is predicted lies"] == ["outside the measured interval", "inside the measured interval"]


def test_of_several_rows_of_a_training_its_own_epochs_tell_the_step_then_the_least_noise_everywhere():
    """Those told by their own epochs first, whatever their type; then the least noisy; never the last one read."""
    short = [
        trained("cifar10-cnn", 32, 640, (0.0, 0.0, s), noise=n, device=d)
        for d in ("cpu", "gpu:0")
        for s, n in ((3e-3, 0.01), (4e-3, 0.1))
    ]
    long = [
        by_its_epochs(trained("cifar10-cnn", 32, 3200, (0.0, 0.0, s), noise=0.05, dtype="float64", device=d))
        for d, s in (("cpu", 2e-3), ("gpu:0", 1e-3))
    ]
    reported = Reported(T, "gpu", "faster")
    for rows, steps in ((short, (3e-3, 3e-3)), ([*long, *short], (2e-3, 1e-3)), ([*short, *long], (2e-3, 1e-3))):
        e, found = explained(of=sources(*rows)), verdicts.measured(reported, rows)
        assert (e.measured["cpu"].step.value, e.measured["gpu:0"].step.value) == pytest.approx(steps)
        assert (found.cpu, found.gpu) == (e.measured["cpu"].step, e.measured["gpu:0"].step)


def test_validation_money_and_joules():
    plain, more = explained(), explained(validation=320)
    cnn = networks.find("cifar10-cnn")
    share = networks.inference_flops(cnn) / networks.training_flops(cnn)
    # ten batches, each the forward share of a step, but no less than half of what the host does (2.132 ms on the GPU)
    assert more.validation_s["gpu:0"].value == pytest.approx(10 * max(1.066 * MS, share * 2.164 * MS))
    expected = pytest.approx(plain.gpu.job_s.value + 10 * more.validation_s["gpu:0"].value)
    assert explanation.job_s(more, more.gpu).value == expected
    values = {"gpu_power_w": 200.0}
    e = explained(prices={"gpu": 3.6}, of=sources(row("training/keras/fit", T, 1e-3, device="gpu:0", values=values)))
    cpu, gpu = e.costs
    assert gpu.money.value == pytest.approx(e.gpu.job_s.value / 1000) and cpu.money is None
    assert gpu.joules.value == pytest.approx(200 * e.gpu.job_s.value) and cpu.joules is None
    assert "training of cifar10-cnn at batch 32, at most" in explanation_words.cost_sentence(gpu)
    expected = "has no price here (--price-cpu PER_HOUR), and its energy is not known"
    assert expected in explanation_words.cost_sentence(cpu)


def test_an_unknown_layer_makes_the_answer_partial_and_its_share_is_estimated():
    network = Network("own:build", "", (4,), 3, (Layer("odd", "Odd", shape=(4,), weights=16), Layer("out", "dense", 3)))
    said = Request(Training("own:build", 2, 8), network).unknown_share.words
    # products of 2 samples: odd 2 x 64 FLOP, out 3 x 48 FLOP, and passes
    assert said.startswith("odd (Odd): nothing here knows it; the share is estimated")
    assert "% of a step's arithmetic" in said
    e = explained(Training("own:build", 2, 8), network=network)
    assert e.partial == (said,) and any(line.startswith("Partial: odd (Odd)") for line in explanation_words.caveats(e))
    assert Request(T).unknown_share is None


def odd(weights: int) -> Network:
    """An unknown layer of so many weights before a dense one of 12. Of 2 samples its step takes 20 FLOP a weight (4 forward, 4
    for the gradient, 12 of Adam), the rest 354: 3 x 48 for products, 5 x 6 for passes, 12 x 15 of Adam."""
    layers = (Layer("odd", "Odd", shape=(4,), weights=weights), Layer("out", "dense", 3))
    return Network("own:build", "", (4,), 3, layers)


def test_a_verdict_says_which_layers_are_only_estimated():
    """320 of 674 FLOP."""
    first, *rest = explanation_words.verdict(explained(Training("own:build", 2, 8), network=odd(16)))
    assert first.startswith("The CPU finishes first, ")
    assert first.endswith(
        "included; partial: of odd (Odd), about 47.5 % of a step's arithmetic, nothing is known here and all "
        "is estimated."
    )
    assert len(rest) == 4
    assert not any("partial" in sentence for sentence in explanation_words.verdict(explained()))


@pytest.mark.parametrize(("weights", "most"), [(16, False), (20, True)])  # 320 and 400 FLOP beside 354
def test_where_most_of_the_arithmetic_is_unknown_no_time_is_told(weights, most):
    """No winner, no time and nothing that rests on them, on either machine; what was measured stays."""
    training = Training("own:build", 2, 8)
    for of in (sources(), msgspec.structs.replace(sources(), gpu=None)):
        e = explained(training, of, network=odd(weights))
        assert e.asked.unknown_share.most is most
        told = explanation_words.lines(e, "seen", checked=["believed"])
        parts = "a step in all", "Cost of the job", "What if", "believed"
        assert [not any(part in line for line in told) for part in parts] == [most] * 4
        assert "Memory" in told and any(line.startswith("  Partial: odd (Odd): nothing here knows it") for line in told)
    if most:
        (only,) = explanation_words.verdict(e)
        assert only.startswith(
            "Partial: which device wins, and in what time, is not told, for nothing here knows odd (Odd), "
            "about 53.1 % of a step's arithmetic. To measure it: "
        )
        assert only.endswith("-m workloads.training --model own:build --batch 2 --samples 8 --epochs 1")
        assert (e.told().cpu, e.told().what_ifs, e.told().costs) == (None, (), ()) and e.told().memory == e.memory
        assert list(verify.lines(e, lambda *given: exactly(2 * MS)))[2:] == ["  a step as it is: measured 2.00 ms"]
    else:
        assert e.told() is e
    if most:
        free = exactly(0.0)
        steps = {"cpu": 2 * MS, "gpu:0": 3 * MS}
        seen = {device: costs.TrainingCost(free, free, exactly(s)) for device, s in steps.items()}
        seen = msgspec.structs.replace(e, measured=seen)
        (both,) = explanation_words.verdict(seen)
        assert " Measured, a step takes 2.00 ms on the CPU and 3.00 ms on the GPU. " in both


def test_whether_the_framework_used_the_gpu_is_told_from_rows():
    t = row("training/keras/fit", T, 1e-3, device="gpu:0", notes={"cuda": "built for 12.5.1"})
    assert explanation_words.seen((t,), GPU_MACHINE, "box") == (
        "On box TensorFlow saw the GPU and used it in 1 measurement, 1 of them trainings with their weights on it; "
        "TensorFlow is built for 12.5.1."
    )
    launch = Launch("step", 10)
    others = [
        row("launch/tensorflow/fit", launch, 1e-3, device="gpu:0"),
        row("launch/tensorflow/fit", launch, 1e-3),
        row("launch/cupy/ufunc", Launch("elementwise", 1), 1e-5, device="gpu:0"),
        row("training/jax/loop", T, 1e-3, device="gpu:0"),
        trained("cifar10-cnn", 32, 640, (0.0, 0.0, 1e-3), device="gpu:0", keras_backend="jax"),
    ]
    assert explanation_words.seen((t, *others), GPU_MACHINE, "box").startswith(
        "On box TensorFlow saw the GPU and used it in 2 measurements, 1 of them trainings with their weights on it"
    )
    assert explanation_words.seen(tuple(others[:1]), GPU_MACHINE, "box").endswith("used it in 1 measurement.")
    why = "TensorFlow finds no GPU: no libcudnn"
    lost = row("training/keras/fit", T, None, device="gpu:0", status="failed", reason=why)
    assert explanation_words.seen((lost,), GPU_MACHINE, "box") == f"On box TensorFlow did not use the GPU: {why}."
    assert "whether TensorFlow sees it was not measured" in explanation_words.seen((), GPU_MACHINE, "box")
    assert explanation_words.seen((), None, "box").startswith("On box no GPU was measured")


def test_a_stored_gpu_is_driven_by_this_machines_host_and_starts_by_its_import():
    of = borrowed(cpu_step=2 * MS)
    assert stored.host_factor(of.cpu, of.gpu).value == pytest.approx(2.0, rel=1e-6)
    e = explained(of=of)
    # dispatch 2 and calls 0.1 ms twice, 32 µs of bytes and 32 µs of arithmetic as they are
    assert e.gpu.parts["dispatch"].value == pytest.approx(4 * MS)
    assert e.gpu.parts["transfer bytes"].value == pytest.approx(32e-6)
    assert e.gpu.step_s.value == pytest.approx(4.264 * MS) and e.gpu.start_s.value == pytest.approx(12.0)
    assert e.borrowed == "nvidia-h200" and e.cpu.step_s.value == pytest.approx(1.64 * MS)
    said = " ".join(explanation_words.caveats(e))
    assert "those stored of nvidia-h200" in said and "is taken as 2.00" in said and "not a laptop's" in said
    made = predict(T, Settings("gpu:0", switches={}), borrowed().gpu)
    wide = stored.rescaled(made, Estimate(2.0, 1.0, 3.0))
    assert (wide.parts["dispatch"].low, wide.parts["dispatch"].high) == pytest.approx((2 * MS, 6 * MS))
    assert (wide.step_s.low, wide.step_s.high) == pytest.approx((2.164 * MS, 6.364 * MS))
    parts = {
        "dispatch": exactly(2 * MS),
        "matmul": exactly(3 * MS),
        "input pipeline": exactly(1 * MS),
        HIDDEN: exactly(-3 * MS),
    }
    made = Prediction(T, Settings("gpu:0"), parts, exactly(3 * MS), *[exactly(0.0)] * 4, "compiled", (), "m")
    assert stored.rescaled(made, exactly(2.0)).step_s.value == pytest.approx(4 * MS)  # the host is the longest now
    of = borrowed()
    e = explained(of=Sources(profile.profile((), GPU_MACHINE), of.gpu, predict))
    assert e.host_factor is None and e.gpu.step_s.value == pytest.approx(2.164 * MS)
    assert any("no call was measured on both" in line for line in explanation_words.caveats(e))

    def importing(seconds):
        return row("launch/tensorflow/once", Launch("import"), seconds)

    of = borrowed()
    here, there = (
        profile.profile((*p.measurements, importing(s)), p.machine) for p, s in ((of.cpu, 3.0), (of.gpu, 4.0))
    )
    made = explained(of=Sources(here, there, predict))
    assert made.gpu.start_s.value == pytest.approx(6 * 3 / 4)
    assert made.gpu.parts["dispatch"].value == pytest.approx(4 * MS)


def test_what_this_machines_rows_do_not_tell_of_a_job_is_the_stored_cpus():
    """Its host takes twice as long: start-up 5 s there is 10 s here, half to twice as much; the step stays its own."""
    made = predict(T, Settings("cpu"), borrowed().cpu)
    none, partial = exactly(0.0), ("of the whole job: no rows", "else")
    bare = msgspec.structs.replace(made, start_s=none, epoch_s=none, partial=partial)
    assert bare.untold == ("start-up", "an epoch beyond its steps")
    assert made.untold == ()
    whole = stored.completed(bare, made, exactly(2.0))
    assert (whole.start_s, whole.epoch_s) == (Estimate(10.0, 5.0, 20.0), Estimate(0.1, 0.05, 0.2))
    assert (whole.step_s, whole.compile_s) == (made.step_s, made.compile_s)
    words = (
        f"start-up and an epoch beyond its steps: as {made.profile}'s CPU has it, for this machine's rows do not tell"
    )
    assert whole.partial == ("else", f"of the whole job {words}")
    assert stored.completed(made, made, exactly(2.0)) == made


def test_without_its_start_nobody_is_said_to_finish_first():
    def bare(*args, **given):
        return msgspec.structs.replace(predict(*args, **given), start_s=exactly(0.0))

    (said, *_) = explanation_words.verdict(explained(of=msgspec.structs.replace(sources(), predict=bare)))
    assert said.startswith("By the step the ")
    assert said.endswith("Who finishes a whole job first cannot be told: start-up was not measured.")


def lacking(device):
    def made(training, settings, of, network=None, **keywords):
        if (settings.device == "cpu") == (device == "cpu"):
            raise Lacking(f"no rows of {device}", [f"python -m workloads.launch --device {device}"])
        return predict(training, settings, of, network, **keywords)

    return msgspec.structs.replace(sources(), predict=made)


def test_a_side_that_lacks_rows_is_said_with_the_command_and_the_other_is_explained():
    e = explained(of=lacking("gpu:0"))
    assert e.gpu is None and e.cpu and e.commands == ("python -m workloads.launch --device gpu:0",)
    assert any(
        line.startswith("Missing: the GPU: the profile has no rows of gpu:0") for line in explanation_words.caveats(e)
    )
    told = explanation_words.verdict(e)
    assert told[0].startswith("Only the CPU could be predicted: a step takes 1.64 ms") and "no row tells" not in told[0]
    assert explanation_words.lines(e, "seen")  # no section needs the other side


def test_what_no_row_tells_of_a_job_is_not_known_and_not_nothing():
    def bare(*args, **given):
        return msgspec.structs.replace(predict(*args, **given), start_s=exactly(0.0), compile_s=exactly(0.0))

    def either(training, settings, of, network=None, **given):
        foretold = bare if settings.device == "cpu" else lacking("gpu:0").predict
        return foretold(training, settings, of, network, **given)

    e = explained(of=msgspec.structs.replace(lacking("gpu:0"), predict=either))
    assert explanation_words.verdict(e)[0].endswith(", and start-up, which no row tells.")
    table = {line[:40].strip(): line for line in explanation_tables.budget_lines(e)}
    assert table["import, device start, building"].endswith("  not known")
    assert table["compiling"].endswith("  not known") and table["the whole job"].endswith(" and what is not known")
    known = {line[:40].strip(): line for line in explanation_tables.budget_lines(explained(of=lacking("gpu:0")))}
    assert not any("not known" in line for line in known.values())


def test_what_two_sides_lack_is_named_at_once():
    def made(training, settings, *args, **keywords):
        raise Lacking(f"no rows of {settings.device}", [f"measure {settings.device}", "measure both"])

    with pytest.raises(Lacking) as missing:
        explained(of=msgspec.structs.replace(sources(), predict=made))
    assert str(missing.value) == (
        "the profile has no rows of cpu and no rows of gpu:0; measure with: measure cpu; measure both; measure gpu:0"
    )
    e = explained(of=sources(with_gpu=False))
    assert e.gpu is None and not e.crossovers and e.lacks == ()
    assert any("--gpu-profile reports/nvidia-h200" in line for line in explanation_words.caveats(e))
