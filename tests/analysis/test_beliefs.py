"""The newcomers' beliefs, checked on a predictor whose laws are known (fake_predictions): every number worked out by hand."""

from fake_measurements import GPU_MACHINE, row
from fake_predictions import peaks, predict, sources

from analysis.explain import explanation
from analysis.explain.explanation import Request, Sources
from analysis.predict import profile
from analysis.text import published as beliefs
from kernels.problems import Inference, Training

T = Training("cifar10-cnn", 32, 3200, 10)


def checked(training=T, *more):
    of = sources(*more)
    asked = Request(training)
    return {
        b.name: b
        for b in beliefs.check(explanation.explain(asked, of), of.cpu, of.gpu, explanation.predictor(asked, of))
    }


def test_flops_do_not_decide_a_small_step_and_without_peaks_nothing_is_said_of_them():
    belief = checked()["flops"]
    # peaks of 100 and 1 TFLOP/s; steps of 1.64 and 2.164 ms
    assert belief.verdict == beliefs.FALSE
    assert "should be 100 times as fast" in belief.why and "its step is 1.32 times slower" in belief.why
    assert "28 to 56" in belief.why
    of = sources()
    peakless = profile.profile([m for m in of.gpu.measurements if m.problem.op != "peak"], GPU_MACHINE)
    bare = Sources(peakless, peakless, predict)
    assert beliefs.flops(explanation.explain(Request(T), bare), bare.cpu, bare.gpu).verdict == beliefs.UNKNOWN
    assert len(peaks()) == 3


def test_the_copy_and_bigger_batches_are_judged_by_the_step():
    belief = checked()["copy"]
    assert belief.verdict == beliefs.FALSE and "6.10 % of a step" in belief.why  # 132 µs of 2.164 ms
    large = checked(Training("cifar10-cnn", 8192, 16384))["copy"]
    assert large.verdict == beliefs.PARTLY  # 8.29 of 18.5 ms
    belief = checked()["batch"]
    # at batch 512: CPU 11.24 ms, GPU 3.124 ms
    assert belief.verdict == beliefs.HOLDS and "from 0.758 to 3.60 times" in belief.why
    assert "7 times an epoch and not 100" in belief.why
    assert checked(Training("peaks", 100, 100))["batch"].verdict == beliefs.UNKNOWN


def test_inference_is_looked_up_in_rows_of_answers():
    assert checked()["inference"].verdict == beliefs.UNKNOWN
    rows = []
    for batch, cpu, gpu in ((1, 1e-3, 1e-3), (64, 64e-3, 2e-3)):
        for device, seconds in (("cpu", cpu), ("gpu:0", gpu)):
            kernel = "inference/keras/call"
            rows.append(row(kernel, Inference("cifar10-cnn", batch), seconds, device=device, mode="roundtrip"))
    belief = checked(T, *rows)["inference"]
    assert belief.verdict == beliefs.FALSE
    assert "1.00 times at batch 1 and 32.0 times at batch 64 as fast as the CPU" in belief.why
    assert "0.758 times as fast" in belief.why
