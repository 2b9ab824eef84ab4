"""Copies that several calls share, by hand."""

import fake_measurements as fake
import pytest

from analysis.crossover import forms, reuse, sign_changes
from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.crossover import crossovers
from analysis.crossover.families import SQUARES
from analysis.crossover.fastest_row import FastestRow
from analysis.crossover.forms import LATENCY, Form
from analysis.stats import Estimate, exact


def test_ten_calls_sharing_a_copy_pay_a_tenth():
    """At n = 8 and 32 both were measured: 1 ms there, 11 ms with its copy, so 2 ms of ten calls. At 16 one of both alone."""

    def answer(form: Form, seconds: dict[int, float]) -> Answer:
        cpu = FastestRow(kernel="matmul/numpy/blas", device="cpu", threads=1, math="float32", seconds=exact(5e-3))
        points = []
        for n, t in seconds.items():
            seconds_a_call = Estimate(t, 0.9 * t, 1.2 * t)
            gpu = FastestRow(
                kernel="matmul/cupy/cublas", device="gpu:0", threads=None, math="float32", seconds=seconds_a_call
            )
            points.append(CrossoverPoint(n=n, cpu=cpu, gpu=gpu))
        return sign_changes.classify("float32", form, points, family=SQUARES)

    resident, copied = (
        answer(LATENCY, {8: 1e-3, 16: 1e-3, 32: 2e-3}),
        answer(forms.COPIES[0], {8: 11e-3, 32: 12e-3, 64: 1.0}),
    )
    shared = reuse.amortized(resident, copied, 10)
    assert [point.n for point in shared.points] == [8, 32] and shared.form.reuse == 10
    each = shared.points[0].gpu.seconds
    assert (each.value, each.low, each.high) == pytest.approx((2e-3, 1.8e-3, 2.4e-3))
    assert (
        reuse.pairs((resident, copied), "float32") == [(resident, copied)] and reuse.pairs((copied,), "float32") == []
    )
    with pytest.raises(ValueError, match="no size was measured both"):
        reuse.amortized(resident, answer(forms.COPIES[0], {64: 1.0, 128: 1.0}), 10)


SIZES = (64, 128, 256, 512, 1024)


def test_a_copy_used_k_times_moves_the_crossover():
    one, copied = Estimate(2.0, 1.0, 3.0), Estimate(12.0, 11.0, 13.0)
    assert reuse.shared(one, copied, 1) == copied
    assert reuse.shared(one, copied, 5) == Estimate(4.0, 3.0, 5.0)  # (4 x 2 + 12) / 5
    made = [fake.row("matmul/numpy/blas", fake.square(n), 1e-6 * n, threads=1) for n in SIZES]
    made += [fake.row("matmul/cupy/cublas", fake.square(n), 100e-6) for n in SIZES]
    made += [fake.row("matmul/cupy/cublas", fake.square(n), 400e-6, mode="roundtrip") for n in SIZES]
    (resident, copied), *_ = reuse.pairs(crossovers(made), "float32")
    for uses, seconds in ((1, 400e-6), (2, 250e-6), (3, 200e-6)):
        answer = reuse.amortized(resident, copied, uses)
        assert answer.kind == "gpu-from" and answer.crossings[0].at.value == pytest.approx(seconds / 1e-6, rel=1e-9)
        assert answer.form.reuse == uses
