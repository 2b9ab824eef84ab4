"""Predictions from a made-up profile whose laws are known: every part worked out by hand."""

import math

import made_profile
import msgspec
import pytest
from fake_measurements import GPU_MACHINE, row
from fake_pipelines import study
from made_profile import BYTES, CALL, EPOCH, FIT, LATENCY, LINK, OPERATION, RATE, STEP, training
from msgspec.structs import replace

from analysis.predict import (
    calibration,
    components,
    prediction,
    profile,
)
from analysis.predict.step_parts import DEVICE, HIDDEN, HOST
from analysis.predict.step_time import Calibration
from analysis.predict.what_if import job_saved
from analysis.stats import Estimate
from analysis.training import costs
from kernels import networks
from kernels.networks.layers import Layer
from kernels.problems import Stream, Training
from tests.validation import prediction_errors
from workloads.records import Settings

MLP = Training("mlp-784-100x2-10", 32, 2048)
CPU, GPU = Settings("cpu"), Settings("gpu:0")
PLAIN = Calibration()
# FLOPs of the eight products of MLP's step; bytes of its passes (64 a hidden unit and sample, 52 a class and sample); of Adam's
# seven arrays over its 89,610 weights.
FLOPS = 2 * 32 * (2 * (784 * 100 + 100 * 100 + 100 * 10) + 100 * 100 + 100 * 10)
PASSED, UPDATED = 64 * 3200 + 52 * 320, 28 * 89_610
ALONE = 32 * 3200 + 44 * 320  # of the passes that are in no product's kernel: not bias nor relu


def seconds(of, settings=CPU, what=MLP, **keywords):
    return prediction.predict(what, settings, of, fitted=PLAIN, **keywords)


def test_an_op_by_op_step_sums_its_parts(whole):
    made = seconds(whole)
    parts = {name: e.value for name, e in made.parts.items()}
    assert made.execution == "op by op"
    assert parts["dispatch"] == pytest.approx(STEP["cpu", "off"])
    # rows in a tf.function have an operation's dispatch beside the call that is taken off
    assert parts["matmul"] == pytest.approx(FLOPS / RATE["cpu"] + 8 * OPERATION, rel=0.02)
    assert parts["element-wise"] == pytest.approx(ALONE / BYTES["cpu"], rel=0.01)
    assert parts["optimizer"] == pytest.approx(UPDATED / BYTES["cpu"], rel=0.01)
    # 8 products, a pass forward, 6 backward, 41 of the loss, its gradient and the accuracy, six updates of 28; a small model
    # has 2 products, the gradient of a bias, 23 of the loss, two updates of 4
    assert parts["launches"] == pytest.approx((8 + 7 + 41 + 168 - (2 + 1 + 23 + 8)) * OPERATION, rel=1e-3)
    assert made.step_s.value == pytest.approx(sum(parts.values()))
    assert made.step_s.low <= made.step_s.value <= made.step_s.high and made.partial == ()


def test_what_nothing_waits_for_runs_beside_the_rest(whole):
    """Of MLP's step two gradients of weights, three of biases and five updates: the first layer's come last, and the step ends
    with them. The others take as long as all of it on the cores that the line leaves, if that is more."""
    made = components.components(MLP, CPU, whole, networks.find(MLP.model))
    waited = 2 * 32 * (2 * 784 * 100 + 2 * (100 * 100 + 100 * 10))  # FLOPs
    passed = ALONE - 4 * 32 * (100 + 100 + 10)  # bytes, without the sums that are gradients of biases
    seconds_ = waited / RATE["cpu"] + (passed + 28 * 78_400) / BYTES["cpu"]
    assert made.path.seconds == pytest.approx(seconds_ + 6 * OPERATION, rel=0.01)
    parts = {n: e.value for n, e in seconds(whole).parts.items()}
    least = max(made.path.seconds + parts["launches"], made.path.busy)
    assert parts[HIDDEN] == pytest.approx(least - sum(parts[n] for n in ("launches", *DEVICE) if n in parts))
    assert components.components(MLP, GPU, whole, networks.find(MLP.model)).path is None


_LOOP = Layer("r", "recurrent", 5, groups=4, shape=(5,), weights=180, fused=True)
RECURRENT = networks.Network("own.py:build", "", (7, 3), 2, (_LOOP,))


def test_a_loop_dispatches_per_time_step_without_cudnn(whole):
    """7 time steps; 5 products and 3 passes in each, of which two passes carry out 93 operations."""
    made = components.components(MLP, CPU, whole, RECURRENT)
    plain = replace(RECURRENT, layers=(replace(_LOOP, shape=(3,), kind="reshape"),))
    less = components.components(MLP, CPU, whole, plain)
    loops = 7 * (5 + 2 * 93 + 1)
    assert made.operations - less.operations == loops + 3 * 28  # and Adam's updates of three variables
    assert made.launches.value - less.launches.value == pytest.approx((loops + 3 * 28) * OPERATION, rel=1e-3)
    gpu = seconds(whole, GPU, replace(MLP, model="own.py:build"), network=RECURRENT)
    assert gpu.execution == "op by op" and gpu.settings == GPU  # Keras compiles no model that cuDNN has a layer of
    assert gpu.step_s.high >= 2 * gpu.step_s.value and gpu.step_s.low <= gpu.step_s.value / 2
    without = replace(RECURRENT, layers=(replace(_LOOP, fused=False),))
    assert seconds(whole, GPU, replace(MLP, model="own.py:build"), network=without).execution == "compiled"


def test_a_gpu_step_is_the_longer_of_two(whole):
    made = seconds(whole, GPU)
    parts = {name: e.value for name, e in made.parts.items()}
    assert made.execution == "compiled"
    calls, nbytes = 2 * LATENCY, 32 * 784 * 4 + 32 * 8
    assert parts["transfer calls"] == pytest.approx(calls, rel=0.01)
    assert parts["transfer bytes"] == pytest.approx(nbytes / LINK, rel=0.05)
    assert parts["dispatch"] == pytest.approx(STEP["gpu:0", "on"] - parts["transfer calls"])
    assert parts["matmul"] == pytest.approx(FLOPS / RATE["gpu:0"], rel=1e-2)
    device = sum(parts[name] for name in DEVICE if name in parts)
    host = sum(parts[name] for name in HOST)
    assert parts[HIDDEN] == pytest.approx(-device)
    assert made.step_s.value == pytest.approx(host)  # the device is done while the host dispatches
    large = seconds(whole, GPU, Training("cifar10-cnn", 512, 50_000))
    device = sum(large.parts[name].value for name in DEVICE)
    assert device > sum(large.parts[name].value for name in ("dispatch", "launches", "transfer calls"))
    # a copy waits for the device
    assert large.step_s.value == pytest.approx(device + large.parts["transfer bytes"].value)


def test_jit_and_switches_choose_the_execution(whole):
    def of(**switches):
        return seconds(whole, Settings("cpu", switches=switches))

    assert of(jit_compile="on").execution == of(gpu="visible").execution == "compiled"
    assert of(gpu="visible", jit_compile="off").execution == "op by op"
    assert of(jit_compile="on").parts["dispatch"].value == pytest.approx(STEP["cpu", "on"])
    assert seconds(whole, Settings("gpu:0", switches={"jit_compile": "off"})).execution == "op by op"
    assert "transfer calls" not in seconds(whole, Settings("gpu:0", switches={"residence": "resident"})).parts
    S0 = Training("cifar10-cnn", 32, 2048)
    with_, without = (seconds(whole, Settings("cpu", switches={"dropout": d}), S0) for d in ("on", "off"))
    assert without.parts["element-wise"].value < with_.parts["element-wise"].value
    assert without.parts["conv"] == with_.parts["conv"]
    assert "its 4 threads" in seconds(whole, Settings("cpu", threads=4)).partial[0]


def test_the_epoch_the_fit_and_the_job(whole):
    made = seconds(whole, what=Training("mlp-784-100x2-10", 32, 2050, 3, "float64"))
    assert made.training.steps == 65 and made.epoch_s.value == pytest.approx(EPOCH, rel=1e-3)
    assert made.fit_s.value == pytest.approx(FIT + 2050 * 784 * (8 + 4) / BYTES["cpu"], rel=0.02)
    # 64 steps of 32 samples, and one of the 2 that are left
    last = seconds(whole, what=Training("mlp-784-100x2-10", 2, 2, 3, "float64")).step_s.value
    assert last < made.step_s.value
    epoch_s = made.epoch_s.value + 64 * made.step_s.value + last
    assert made.epoch_total_s.value == pytest.approx(epoch_s)
    even = seconds(whole, what=Training("mlp-784-100x2-10", 32, 2048, 3, "float64"))
    assert even.last_step_saves_s.value == 0
    whole_job = made.start_s.value + made.compile_s.value + made.fit_s.value + 3 * made.epoch_total_s.value
    assert made.job_s.value == pytest.approx(whole_job)
    made = seconds(whole, Settings("gpu:0", switches={"steps_per_execution": "4"}))
    parts = made.parts["dispatch"].value + made.parts["transfer calls"].value
    own = CALL + OPERATION  # of a compiled call
    assert parts == pytest.approx(own + (STEP["gpu:0", "on"] - own) / 4, rel=0.01)
    made = seconds(whole, kernel="training/tensorflow/loop")
    assert made.parts["dispatch"].value == pytest.approx(CALL, rel=0.05) and made.epoch_s.value == made.fit_s.value == 0
    fed = seconds(whole, GPU, kernel="training/tensorflow/loop")
    assert fed.parts["dispatch"].value == pytest.approx(CALL + OPERATION, rel=0.05)  # no copy is in a call
    assert fed.parts["transfer calls"].value == pytest.approx(2 * LATENCY, rel=0.01)
    with pytest.raises(profile.Lacking):
        seconds(whole, kernel="training/jax/loop")


def test_a_measured_law_is_the_input_pipeline(whole):
    """A batch of 6,422,528 bytes takes 0.2048 ms for its samples and 1.2845 ms at 5 GB/s."""
    of = profile.Profile([*whole.measurements, *study(("numpy", "prefetch"))], GPU_MACHINE)
    what, ahead = Training("mlp-784-100x2-10", 2048, 16_384), Settings("gpu:0", switches={"residence": "prefetch"})
    made, prefetched = seconds(of, GPU, what), seconds(of, ahead, what)
    host, device = (sum(made.parts[n].value for n in group if n in made.parts) for group in (HOST, DEVICE))
    brought = 0.2048e-3 + 1.2845056e-3
    assert made.parts["input pipeline"].value == pytest.approx(brought) and "transfer bytes" not in made.parts
    assert made.step_s.value == pytest.approx(host + brought) and host > device
    assert prefetched.step_s.value == pytest.approx(max(host, device, brought))
    # 512 samples are 6,291,456 bytes; their copy waits for the device, which is busy for longer than the host
    large = seconds(of, GPU, Training("cifar10-cnn", 512, 50_000))
    device = sum(large.parts[name].value for name in DEVICE)
    assert large.step_s.value == pytest.approx(device + 0.0512e-3 + 1.2582912e-3)


def test_a_smaller_last_batch_is_compiled_for_too(whole):
    fitted = Calibration(compile_s=0.1)

    def compiling(n, on):
        return prediction.predict(replace(MLP, samples=n), on, whole, fitted=fitted).compile_s.value

    made = [compiling(n, GPU) for n in (64, 65, 20)]
    assert made[1] == pytest.approx(2 * made[0])

    def sizes(batch):  # of its 8 different products
        return 2 * math.log2(batch * 784 * 100) + 3 * math.log2(batch * 100 * 100) + 3 * math.log2(batch * 100 * 10)

    assert (made[0], made[2]) == (pytest.approx(0.1 * sizes(32)), pytest.approx(0.1 * sizes(20)))
    traced = [compiling(n, CPU) for n in (64, 65)]
    # LeNet's 9 dense products double with the batch; of its 5 convolutions the filters count, 5 * 5 * 6 and 25 * 6 * 16
    network = networks.find("lenet")
    lenet = [components.components(Training("lenet", n, n), GPU, whole, network).traced for n in (32, 64)]
    assert lenet[1] - lenet[0] == pytest.approx(9)
    dense = (400 * 120, 120 * 84, 84 * 10)
    convs = 2 * math.log2(150) + 3 * math.log2(2400)
    assert lenet[0] == pytest.approx(convs + 3 * sum(math.log2(32 * n) for n in dense))
    # a graph that is not compiled leaves the batch open; it is traced, all its 224 operations
    assert traced == [pytest.approx(0.1 * 224)] * 2


def test_fused_passes_move_fewer_bytes(whole):
    jit = Settings("cpu", switches={"jit_compile": "on"})
    # bias and activation are one pass of two arrays over the hidden units, not two; so are those of the classes
    fused = PASSED - (2 * 8 * 3200 + 8 * 320)
    assert seconds(whole, jit).parts["element-wise"].value == pytest.approx(fused / BYTES["cpu"], rel=0.02)
    rows = [*made_profile.everything(), row("stream/numba/loop", Stream("triad", 2**28), 2**28 / 2e9)]
    of = profile.Profile(rows, GPU_MACHINE)
    big = Training("mlp-784-2000x3-10", 32, 2048)
    updated = 28 * networks.parameters(networks.find(big.model))  # 269 MB, more than the cache of 105 MiB
    # step by step Adam passes over 30 arrays, where one fused pass is over 7
    assert seconds(of, what=big).parts["optimizer"].value == pytest.approx(updated * 30 / 7 / 2e9, rel=0.02)
    assert seconds(of).parts == seconds(whole).parts  # a small model's arrays stay in the cache


def test_a_calibration_finds_what_other_models_trainings_hold(monkeypatch):
    """Steps of 1.05 times the dispatch, 1.2 times the launches and 1.6 times the work: most of that is found, as the numbers are
    held to the microbenchmarks, and a model left out is predicted far better than without them."""
    of = profile.Profile(made_profile.everything(), GPU_MACHINE)
    truth = Calibration(dispatch=1.05, launches=1.2, work=1.6)
    trained = [(model, batch) for model in ("mlp-784-100x2-10", "fashion-mlp") for batch in (8, 128)]
    trained += [("cifar10-cnn", 8), ("cifar10-cnn", 32), ("cifar10-cnn", 128), ("lenet", 32)]
    taken = (prediction.predict(Training(m, b, 2048), CPU, of, fitted=truth).step_s for m, b in trained)
    rows = [training(*one, step.value) for one, step in zip(trained, taken, strict=True)]
    full = profile.Profile([*of.measurements, *rows], GPU_MACHINE)
    assert calibration.calibration(full, CPU, {"cifar10-cnn"}).models == ("mlp-784-100x2-10", "fashion-mlp", "lenet")
    assert 1.15 < calibration.calibration(full, CPU, {"lenet"}).work < 1.6
    errors = [c.error for c in prediction_errors.leave_one_out(full)]
    monkeypatch.setattr(calibration, "_with_factors", lambda trainings: Calibration())
    plain = [c.error for c in prediction_errors.leave_one_out(profile.Profile(full.measurements, GPU_MACHINE))]
    assert len(errors) == 8 and sum(errors) < 0.8 * sum(plain)
    assert all(e < p for e, p in zip(errors, plain, strict=True))


def test_a_gpus_launches_are_told_by_its_trainings():
    """Launches of twice the time: a GPU's are found, whose rows are of other kernels; a CPU's stay nearer to its own rows."""
    of = profile.Profile(made_profile.everything(), GPU_MACHINE)
    truth = Calibration(launches=2.0)
    rows = []
    for settings in (CPU, GPU):
        for model in ("fashion-mlp-30", "fashion-mlp-60", "cifar10-cnn"):
            step = prediction.predict(Training(model, 32, 2048), settings, of, fitted=truth).step_s.value
            rows.append(training(model, 32, step, settings.device))
    full = profile.Profile([*of.measurements, *rows], GPU_MACHINE)
    found = {settings.device: calibration.calibration(full, settings).launches for settings in (CPU, GPU)}
    assert 1.8 < found["gpu:0"] < 2.1 and found["cpu"] < found["gpu:0"]


def test_one_models_training_calibrates_its_device():
    """A quick run has one training. Its GPU's launches take twice the time: with k times the launches the fit leaves residuals of
    ln(2 / k) / 0.25 and ln(k) / 1, least (soft_l1) at k = 1.93 for a step of launches alone. The CPU's stay as they are."""
    of = profile.Profile(made_profile.everything(), GPU_MACHINE)
    truth = Calibration(launches=2.0)
    trained = prediction.predict(Training("fashion-mlp-60", 32, 2048), GPU, of, fitted=truth).step_s.value
    full = profile.Profile([*of.measurements, training("fashion-mlp-60", 32, trained, "gpu:0")], GPU_MACHINE)
    assert 1.6 < calibration.calibration(full, GPU).launches < 1.93
    other = Training("fashion-mlp-30", 32, 2048)
    true_s, plain_s, calibrated_s = (
        prediction.predict(other, GPU, rows, fitted=fitted).step_s.value
        for rows, fitted in ((of, truth), (of, PLAIN), (full, None))
    )
    assert true_s > calibrated_s and true_s - calibrated_s < 0.25 * (true_s - plain_s)
    assert calibration.calibration(full, CPU).models == ()
    assert calibration.calibration(full, GPU, {"fashion-mlp-60"}).models == ()  # of itself it says nothing


def test_an_interval_reaches_the_worst_of_few_models():
    """Steps of one model take 1.5 times what the profile's rows say, those of two others what they say. Predicted by these two,
    it takes 1.5x the time."""
    of = profile.Profile(made_profile.everything(), GPU_MACHINE)
    trained = [("mlp-784-100x2-10", 1.0), ("fashion-mlp", 1.0), ("cifar10-cnn", 1.5)]
    predicted = [prediction.predict(Training(m, 32, 2048), CPU, of, fitted=PLAIN).step_s.value for m, _ in trained]
    rows = [training(m, 32, factor * s) for (m, factor), s in zip(trained, predicted, strict=True)]
    full = profile.Profile([*of.measurements, *rows], GPU_MACHINE)
    fitted = calibration.calibration(full, CPU)
    assert list(fitted.spreads.values()) == pytest.approx([0.5, 0.5], rel=0.02)
    made = prediction.predict(Training("lenet", 32, 2048), CPU, full).step_s
    assert made.high / made.value == pytest.approx(made.value / made.low) == pytest.approx(1.5, rel=0.02)


def test_compiling_is_told_by_other_models_trainings():
    """4 s a compilation of fashion-mlp; the model itself has no voice."""
    base = made_profile.everything()
    own = training("mlp-784-100x2-10", 32, 1e-3, phases_s={"compile": 99.0})
    other = training("fashion-mlp", 32, 2e-3, phases_s={"compile": 4.0})
    of = profile.Profile([*base, own, other], GPU_MACHINE)
    made = prediction.predict(MLP, CPU, of)
    fitted = calibration.calibration(of, CPU, {MLP.model})
    # its 406 operations: 17 products, gradients of 6 activations and of 6 biases, 41 of the loss, 12 updates of 28; MLP's 224
    assert fitted.compile_s == pytest.approx(4.0 / 406)
    assert made.compile_s.value == pytest.approx(4.0 / 406 * 224)


def test_a_custom_loop_compiles_as_a_fit_does():
    """50 ms for each logarithm of its products' sizes: the smaller model's 2 log2(32 x 78,400) + 3 log2(32 x 1,000) = 87.414, the
    predicted one's with 3 log2(32 x 10,000) more = 142.278; twice, as 2,050 samples end in a smaller batch. A resident training
    that was measured so takes what is predicted, and only the fit, its epochs and its steps are saved."""
    once = {"import": 4.0, "device_start": 0.0, "build": 0.25}
    other = training("mlp-784-100x1-10", 32, 1e-3, "gpu:0", phases_s={**once, "compile": 0.05 * 87.414})
    of = profile.Profile([*made_profile.everything(), other], GPU_MACHINE)
    what = replace(MLP, samples=2050, epochs=3)
    home = Settings("gpu:0", switches={"residence": "resident"})
    fit, loop = prediction.predict(what, GPU, of), prediction.predict(what, home, of, kernel="training/tensorflow/loop")
    assert loop.compile_s.value == pytest.approx(2 * 0.05 * 142.278, rel=1e-5) and loop.start_s.value == 4.25
    assert (loop.compile_s, loop.start_s) == (fit.compile_s, fit.start_s)
    made = {"compile": 0.05 * 142.278, "compile_last": 0.05 * 142.278}
    seen = training(MLP.model, 32, loop.step_s.value, "gpu:0", 0.0, 0.0, 2050, 3, phases_s=once | made)
    assert costs.whole_training(costs.measured(seen), 3, 65).value == pytest.approx(loop.job_s.value, rel=1e-5)
    saved = fit.fit_s.value + 3 * (fit.epoch_total_s.value - 65 * loop.step_s.value)
    assert job_saved(fit, loop).value == pytest.approx(saved)


def test_the_predicted_model_is_never_fitted_on():
    of = profile.Profile(made_profile.everything(), GPU_MACHINE)
    mlp = {b: Training("fashion-mlp", b, 2048) for b in (8, 128)}
    true = {b: prediction.predict(one, CPU, of, fitted=PLAIN).step_s.value for b, one in mlp.items()}
    others = [training("fashion-mlp", b, t) for b, t in true.items()] + [training("lenet", 32, 1e-3)]
    absurd = [training("cifar10-cnn", b, 9.0) for b in (8, 32, 128)]
    clean, mad = (profile.Profile([*of.measurements, *others, *more], GPU_MACHINE) for more in ([], absurd))
    S0 = Training("cifar10-cnn", 32, 2048)
    assert prediction.predict(S0, CPU, mad).step_s == prediction.predict(S0, CPU, clean).step_s
    assert prediction.predict(MLP, CPU, mad).step_s != prediction.predict(MLP, CPU, clean).step_s


def test_a_profile_without_rows_names_its_commands(whole):
    def lacking(*ops):
        return profile.Profile([m for m in whole.measurements if m.problem.op not in ops], GPU_MACHINE)

    for op, words in (
        ("launch", "workloads.launch"),
        ("matmul", "workloads.matmul"),
        ("stream", "workloads.stream"),
        ("transfer", "workloads.transfer"),
    ):
        with pytest.raises(profile.Lacking) as missing:
            seconds(lacking(op), GPU)
        assert words in missing.value.commands[0] and missing.value.commands[0] in str(missing.value)
    with pytest.raises(profile.Lacking) as missing:
        seconds(lacking("conv"), what=Training("cifar10-cnn", 32, 2048))
    assert "workloads.conv" in missing.value.commands[0]
    with pytest.raises(profile.Lacking) as missing:  # all of it at once, each command once
        seconds(lacking("conv", "matmul", "launch"), what=Training("cifar10-cnn", 32, 2048))
    needs = "no conv rows of cpu, no matmul rows of cpu, no step with almost no work on cpu"
    assert str(missing.value).startswith(f"the profile has {needs}; measure with: ")
    assert [c.split()[2] for c in missing.value.commands] == ["workloads.conv", "workloads.matmul", "workloads.launch"]
    assert all(c in str(missing.value) for c in missing.value.commands)
    network = networks.find("mlp-784-100x2-10")
    own = seconds(whole, what=Training("their.module:build", 32, 2048), network=network)
    assert own.step_s == seconds(whole).step_s
    nadam = seconds(whole, network=replace(network, optimizer="nadam"))
    assert nadam.partial == ("the optimizer nadam, priced as adam",)
    assert nadam.parts["optimizer"] == own.parts["optimizer"]
    with pytest.raises(ValueError, match="unknown model"):
        seconds(whole, what=Training("their.module:build", 32, 2048))


def test_no_interval_ends_below_zero_seconds():
    rows = made_profile.everything()
    assert seconds(profile.Profile(rows, GPU_MACHINE)).start_s.value == made_profile.IMPORT
    made = seconds(profile.Profile([m for m in rows if getattr(m.problem, "call", "") != "import"], GPU_MACHINE))
    assert made.unmeasured == ("start-up",)
    assert made.gaps[-1].startswith("of the whole training start-up: python -m workloads.launch")
    assert msgspec.json.decode(msgspec.json.encode(made), type=prediction.Prediction) == made
    # 2 s known to -1..5, by a calibration wrong by half: 0 to 5; known exactly: 2 / 1.5 to 2 * 1.5
    assert prediction._widened(Estimate(2.0, -1.0, 5.0), 0.5) == Estimate(2.0, 0.0, 5.0)
    assert prediction._widened(Estimate(2.0, 2.0, 2.0), 0.5) == Estimate(2.0, 2.0 / 1.5, 3.0)


@pytest.mark.parametrize(
    ("batch", "samples", "compilations"),
    [(32, 2048, 1), (32, 2050, 2), (2048, 2048, 1), (4096, 2048, 1), (1000, 2048, 2)],
)
def test_a_smaller_last_batch_compiles_once_more(whole, batch, samples, compilations):
    made = components.components(replace(MLP, batch=batch, samples=samples), GPU, whole, networks.find(MLP.model))
    fitted = prediction.compilation_s(made, Calibration(compile_s=0.01))
    assert fitted.value == pytest.approx(compilations * 0.01 * made.traced)
    assert prediction.compilation_s(
        replace(made, execution="op by op"), Calibration(compile_s=0.01)
    ).value == pytest.approx(0.01 * made.traced)


def test_the_largest_parts_share_what_does_not_overlap(whole):
    """6, 3 and 1 of 10 s, however uncertain; 4 s overlap."""
    made = prediction.predict(Training("lenet", 32, 2048), Settings("cpu"), whole)
    parts = {
        "conv": Estimate(3.0, 0.0, 99.0),
        "matmul": Estimate(6.0, 5.0, 7.0),
        "dispatch": Estimate(1.0, 0.0, 50.0),
        HIDDEN: Estimate(-4.0, -4.0, -4.0),
    }
    step = replace(made, parts=parts)
    assert step.parts_s == 10.0 and step.largest_shares == pytest.approx({"matmul": 0.6, "conv": 0.3})
    assert list(step.largest_shares) == ["matmul", "conv"]
