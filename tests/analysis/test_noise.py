"""What runs differ by: stored numbers, by clock, decade and machine."""

import math

import numpy as np
import pytest
from fake_comparisons import keep, loaded, steady, timed
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, square
from msgspec.structs import replace

from analysis import noise
from analysis.stats import Z, exact, t_quantile


def test_each_clock_and_decade_has_its_noise(tmp_path, monkeypatch):
    keep(tmp_path / "x", {(noise.CPU, -6): 0.30, (noise.CPU, -3): 0.10}, local=False)
    (tmp_path / "x" / "broken").mkdir()
    (tmp_path / "x" / "broken" / noise.FILE).write_text("{")
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "x")
    shares = [noise.between_runs(CPU_MACHINE, noise.CPU, s).share for s in (3e-7, 5e-6, 1e-3, 2.0)]
    assert shares == [0.30, 0.30, 0.10, 0.10]
    keep(tmp_path / "x", {(noise.CPU, -6): 0.02})
    noise.stored.cache_clear()
    assert noise.between_runs(CPU_MACHINE, noise.CPU, 1e-3).share == 0.02
    gpu = row("matmul/cupy/cublas", square(64), 1.0)
    taken = (gpu, "device"), (gpu, "host-latency"), (timed(steady(1.0)), "host-latency")
    assert [noise.side(*one) for one in taken] == [noise.GPU, noise.CALLS, noise.CPU]


def test_a_share_is_a_quantile_of_distant_sweeps():
    """Ten sweeps of a row, 100 s apart: of the 15 pairs at least 450 s apart the 95 % quantile."""
    middles = 3e-3 * np.exp(0.02 * np.random.default_rng(1).standard_normal(10))
    sweeps = [(100.0 * i, loaded(timed(steady(float(c), 0.0)))) for i, c in enumerate(middles)]
    apart = [abs(math.log(middles[j] / middles[i])) for i in range(10) for j in range(i + 5, 10)]
    (share,) = noise.shares(sweeps)
    assert (share.side, share.pairs) == (noise.CPU, 15) and share.decade == -3
    assert share.share == pytest.approx(math.expm1(float(np.quantile(apart, 0.95))), rel=1e-6)
    # all visits of a run agree, so each difference counts 25 times
    assert share.visit_share == pytest.approx(share.share, rel=0.05) and share.span_s == 0.0
    assert noise.shares(sweeps[:5]) == ()  # 6 pairs say nothing
    loud = timed(steady(9e-3, 0.0), n=128, flags=("other-load",))
    beside = [(at, loaded(*one.measurements, timed(steady(3e-3), n=128))) for at, one in sweeps[1:]]
    (share,) = noise.shares([(0.0, loaded(*sweeps[0][1].measurements, loud)), *beside])
    assert share.pairs == 15 + 10 and share.share < 0.1  # without the row's 5 pairs with the loud one
    disturbed = [loaded(timed(steady(3e-3 + 3e-3 * (i % 2)), flags=("quota",))) for i in range(10)]
    (share,) = noise.shares([(100.0 * i, one) for i, one in enumerate(disturbed)])
    assert share.share == pytest.approx(1.0)  # nothing else is known


def test_a_pair_of_sweeps_spans_the_shorter_one():
    """Visits over 8 s in the first five sweeps, over 20 s in the others: the 15 pairs have one of each."""
    sweeps = []
    for i in range(10):
        span_s = 8.0 if i < 5 else 20.0
        row = replace(timed(steady(3e-3)), series={"visit_at_s": (100.0, 103.0, 100.0 + span_s)})
        sweeps.append((100.0 * i, loaded(row)))
    (share,) = noise.shares(sweeps)
    assert (share.pairs, share.span_s) == (15, 8.0)


def test_noise_between_runs_shrinks_with_the_visits_spread():
    """Visits of all runs differ by 2 %, runs by 1 % over 20 s: in the logarithm sd = ln 1.02 / (sqrt 2 x 1.96) = 0.00714 and
    0.00359. Two visits 0.4 % off their mean take 0.004^2 off the first."""
    known = noise.Between(share=0.01, source=noise.THIS_MACHINE, visit_share=0.02, runs=10, span_s=20.0)
    of_visits, of_runs = (math.log(1 + share) / (math.sqrt(2) * Z) for share in (0.02, 0.01))
    t = t_quantile(9)
    agree, differ = [1.0, 1.0], [math.exp(-0.004), math.exp(0.004)]
    assert noise.half_width(known, agree, 10.0) == pytest.approx(t * of_visits)  # it saw nothing of the noise
    assert noise.half_width(known, differ, 10.0) == pytest.approx(t * math.sqrt(of_visits**2 - 0.004**2))
    assert noise.half_width(known, agree, 20.0) == pytest.approx(t * of_runs)  # of so long runs it was measured
    far = [math.exp(-0.1), math.exp(0.1)]
    assert noise.half_width(known, far, 10.0) == pytest.approx(t * of_runs)  # a shorter span averages no more
    assert noise.half_width(known, far, 80.0) == pytest.approx(t * of_runs / 2)  # and a longer one at most so much more
    other = replace(known, source="as on another")
    assert (
        noise.half_width(other, agree, 80.0) == pytest.approx(t * of_visits) and noise.half_width(other, far, 1.0) == 0
    )
    guess = noise.Between(share=0.2, source=noise.GUESS, visit_share=0.2)
    assert noise.half_width(guess, agree, 0.0) == pytest.approx(math.log(1.2) / math.sqrt(2))


def test_a_rows_seconds_have_it_in_their_interval():
    steady_row = timed(steady(1.0, 0.0))
    long = replace(steady_row, series={"visit_at_s": (0.0, 40.0)})
    widened = noise.with_noise_between_runs(CPU_MACHINE, long, long.samples[0], exact(1.0))
    between = noise.between_runs(CPU_MACHINE, noise.CPU, 1.0)
    assert widened.high == pytest.approx(math.exp(noise.half_width(between, [1.0], 40.0))) and widened.low < 1
    assert noise.with_noise_between_runs(None, long, long.samples[0], exact(1.0)) == exact(1.0)


def test_the_likest_machine_goes_by_gpu_vectors_cores():
    """For GPUs their names come before the CPU; cores are compared by their ratio: 4 is nearer to 8 than 20 is."""

    def machine(key: str, cores: int = 8, gpus=(), vendor: str = "intel", simd: str = "avx512"):
        return replace(CPU_MACHINE, key=key, cores=cores, gpus=gpus, vendor=vendor, simd=simd)

    here = machine("here", gpus=GPU_MACHINE.gpus)
    others = [
        machine("here", 99, vendor="amd"),
        machine("same GPU", 99, GPU_MACHINE.gpus, "amd", "avx2"),
        machine("4 cores", 4),
        machine("20 cores", 20),
        machine("AMD", vendor="amd"),
    ]
    for side, order in ((noise.GPU, [0, 1, 2, 3, 4]), (noise.CPU, [0, 2, 3, 4, 1])):
        ranked = sorted(others, key=lambda other: noise._likeness(other, here, side), reverse=True)
        assert [others.index(one) for one in ranked] == order
