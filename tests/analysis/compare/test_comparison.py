"""Runs compared row by row: verdicts worked out by hand."""

import math
from types import SimpleNamespace

import pytest
from fake_comparisons import RUN, keep, loaded, processes, steady, timed, trained, words
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, square
from msgspec.structs import replace

from analysis import noise
from analysis.compare import comparison
from analysis.stats import Estimate, Verdict, exact
from analysis.text import comparisons
from workloads.records import Samples


@pytest.mark.parametrize(
    ("new", "word"),
    [(1.05, "slower"), (0.95, "faster"), (1.0, "same"), (1.03, "same"), (1.035, "slower"), (1.045, "slower")],
)
def test_a_claim_needs_the_interval_past_the_limit(new, word):
    assert words(loaded(timed(steady(1.0))), loaded(timed(steady(new)))) == [word]


def test_the_interval_includes_the_noise_between_runs():
    old, new = timed(steady(1.0, 0.0)), timed(steady(1.03, 0.0))
    (row,) = comparison.comparison(loaded(old), loaded(new)).rows
    assert (row.between.share, row.between.source) == (0.01, noise.THIS_MACHINE)
    assert row.verdict.ratio.low == pytest.approx(1.03 / 1.01) and row.verdict.ratio.high == pytest.approx(1.03 * 1.01)
    assert words(loaded(old), loaded(new)) == ["same"]
    # another hour differs as much
    assert words(*(loaded(timed(processes(*[c] * 10))) for c in (1.0, 1.03))) == ["same"]


def test_device_times_include_the_noise_between_processes():
    taken = steady(1.0, 0.0), steady(1.022, 0.0), processes(*[1.0] * 10), processes(*[1.022] * 10)
    gpu = row("matmul/cupy/cublas", square(64), 1.0)
    one, later, ten, ten_later = (loaded(replace(gpu, samples=(replace(s, clock="device"),))) for s in taken)
    assert words(one, later) == words(ten, later) == ["same"] and words(ten, ten_later) == ["slower"]


def test_nothing_is_claimed_of_what_other_programs_disturbed():
    """Twice as slow beside a busy loop; on the device's clock only who shares the GPU counts."""
    quiet, twice = loaded(timed(steady(1.0))), loaded(timed(steady(2.0), flags=("other-load",)))
    assert words(quiet, twice) == words(twice, quiet) == ["can't tell"]
    old, new = (row("matmul/cupy/cublas", square(64), {"device": d}) for d in (1.0, 2.0))
    for flag, word in (("other-load", "slower"), ("other-tenant", "can't tell")):
        assert words(loaded(old), loaded(replace(new, flags=(flag,)))) == [word]


def test_a_run_beside_itself_is_the_same():
    """Whatever its rows are: of a wide interval, of a single sample, of a training."""
    fit = trained(processes(8.24, 9.2))
    once = Samples("host-latency", (1.0,), 1, (1,), "max-time")
    run = loaded(timed(processes(1.0, 2.0, 3.0)), timed(once, n=2), fit)
    assert words(run, run) == ["same"] * 3


def test_a_machine_without_noise_borrows_the_likest_one(tmp_path, monkeypatch):
    other = replace(CPU_MACHINE, key="intel-avx512-4c", cores=4)
    run = replace(RUN, machine=other)
    old, new = (loaded(timed(steady(c)), run=run) for c in (1.0, 1.05))
    made = comparison.comparison(old, new)
    assert made.rows[0].between.share == 0.01
    said, measure = comparisons.notes(made)
    assert "up to 1.00 % (as on intel-avx512-2c, the stored machine most like it)." in said
    assert measure.startswith("Measure it here once") and measure.endswith("workloads.doctor --noise")
    keep(tmp_path / "two", {(noise.CPU, 0): 0.02})
    keep(tmp_path / "two", {(noise.CPU, 0): 0.03}, GPU_MACHINE)
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "two")
    large = replace(CPU_MACHINE, key="intel-avx512-16c", cores=16)
    assert [noise.between_runs(m, noise.CPU, 1.0).share for m in (other, large)] == [0.02, 0.03]
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "empty")
    assert noise.between_runs(CPU_MACHINE, noise.CPU, 1.0).share == noise.DEFAULT[noise.CPU] == 0.2
    loud = comparison.comparison(old, loaded(timed(steady(1.05), flags=("other-load",)), run=run))
    disturbed, said, _ = comparisons.notes(loud)
    assert disturbed == "Other programs ran beside 1 row of NEW: no change is claimed there. Measure again."
    assert said == "Two equal runs differ by up to 20.0 % (a guess, as nothing is stored)."


def test_trainings_take_no_kernels_number():
    """Whole trainings lie 10 to 20 % apart from start to start, so 4 % are neither a difference nor the same."""
    (row,) = comparison.comparison(*(loaded(trained(steady(center))) for center in (8.0, 8.3))).rows
    assert (row.word, row.between.share) == ("can't tell", noise.DEFAULT[noise.MODELS])


def test_the_smallest_slowdown_a_row_can_show():
    """No spread of its own: the interval is what two runs differ by, so a slowdown shows from 1.02 x 1.01 or 1.02 x 1.03 on."""
    old = timed(steady(1.0, 0.0)), row("matmul/cupy/cublas", square(64), {"host-latency": 1.0})
    new = timed(steady(1.01, 0.0)), row("matmul/cupy/cublas", square(64), {"host-latency": 1.01})
    run = replace(RUN, machine=GPU_MACHINE)
    made = comparison.comparison(loaded(old[0]), loaded(new[0]))
    assert made.rows[0].smallest_slowdown == pytest.approx(1.02 * 1.01 - 1)
    assert made.too_noisy(0.03) == made.rows and made.too_noisy(0.031) == ()
    assert comparisons.smallest_slowdowns(made) == []
    assert comparisons.smallest_slowdowns(made, 0.02) == [
        "CPU: 2.0 % slower would not have been seen; 3.0 % would, in nine of ten rows."
    ]
    called = comparison.comparison(loaded(old[1], run=run), loaded(new[1], run=run))
    assert called.rows[0].smallest_slowdown == pytest.approx(1.02 * 1.03 - 1)
    loud = comparison.comparison(loaded(old[0]), loaded(replace(new[0], flags=("other-load",))))
    assert loud.rows[0].smallest_slowdown == math.inf
    assert comparisons.smallest_slowdowns(loud) == ["CPU: 5.0 % slower would not have been seen."]
    once = Samples("host-latency", (1.0,), 1, (1,), "max-time")
    single = comparison.comparison(loaded(timed(once)), loaded(timed(replace(once, seconds=(1.01,)))))
    assert single.rows[0].smallest_slowdown == math.inf


def _row(m, verdict: Verdict) -> comparison.Compared:
    """A row compared with itself, with this verdict."""
    return comparison.Compared(
        name="a row",
        old=m,
        new=m,
        clock="host-latency",
        verdict=verdict,
        between=noise.Between(share=0.0, source="nothing"),
    )


@pytest.mark.parametrize(
    ("ratio", "slowdown"),
    [
        (Estimate(1.0, 0.5, 1.25), 1.04),  # low is half the value: 1.02 x 2 is the first ratio whose low end is 1.02
        (Estimate(1.0, 0.8, 4.0), 0.275),
        (Estimate(1.2, 1.0, 1.3), 0.224),
    ],
)
def test_the_smallest_slowdown_takes_the_intervals_lower_end(ratio, slowdown):
    m = timed(steady(1.0))
    verdict = Verdict(word="slower", ratio=ratio)
    row = _row(m, verdict)
    assert row.smallest_slowdown == pytest.approx(slowdown)


def test_a_rule_counts_slower_rows_by_their_ratio():
    row = _row(timed(steady(1.0)), Verdict(word="slower", ratio=Estimate(1.08, 1.03, 1.2)))
    compared = comparison.RunComparison(differences=(), rows=(row,), broken=(), only_old=(), only_new=())
    assert (compared.regressions(0.05), compared.regressions(0.1)) == ((row,), ())


@pytest.mark.parametrize(("rows", "most"), [(1, "10 %"), (2, "20 %"), (5, "50 %"), (9, "90 %"), (10, "90 %")])
def test_nine_of_ten_rows_show_the_named_slowdown(rows, most):
    """Rows that show 10, 20, 30 ... % and more; of five rows nine of ten are all five, of ten the first nine."""
    m = timed(steady(1.0))
    made = []
    for number in range(1, rows + 1):
        verdict = Verdict(word="can't tell", ratio=Estimate(1.0, 1.02 / (1 + number / 10), 1.02))
        made.append(_row(m, verdict))
    compared = comparison.RunComparison(differences=(), rows=tuple(made), broken=(), only_old=(), only_new=())
    line = f"CPU: 5.0 % slower would not have been seen; {most} would, in nine of ten rows."
    assert comparisons.smallest_slowdowns(compared) == [line]


def test_a_gpu_is_compared_by_its_device_clock():
    old, new = (loaded(row("matmul/cupy/cublas", square(64), {"host-latency": 1.0, "device": d})) for d in (0.5, 0.6))
    assert words(old, new) == ["slower"] and words(old, new, clock="host-latency") == ["same"]
    assert words(old, new, clock="host-issue") == []
    waited = loaded(row("matmul/cupy/cublas", square(64), {"host-latency": 1.0}))
    assert words(old, waited) == ["same"]  # where one has no device clock both are judged by what the host waits


def test_records_omit_what_no_slowdown_would_show():
    """Of one visit nothing is ever claimed; 1 [0.8, 1.25] would be called slower from 1.02 / 0.8 on."""
    sides = timed(steady(1e-3), 64), timed(steady(1e-3), 128)
    ratios = exact(1.0), Estimate(1.0, 0.8, 1.25)
    rows = tuple(
        comparison.Compared(
            name="a row",
            old=one,
            new=one,
            clock="host-latency",
            verdict=Verdict(word="can't tell", ratio=ratio),
            between=noise.Between(share=0.0, source=noise.THIS_MACHINE),
        )
        for one, ratio in zip(sides, ratios, strict=True)
    )
    found = [
        replace(one, verdict=Verdict(word="can't tell", ratio=ratio)) for one, ratio in zip(rows, ratios, strict=True)
    ]
    told = comparison.records(SimpleNamespace(with_verdict=lambda word: found if word == "can't tell" else []))
    assert [one["smallest_slowdown"] for one in told] == [None, pytest.approx(0.275)]
    assert [(one["between_runs"], one["between_from"]) for one in told] == [(0.0, noise.THIS_MACHINE)] * 2
    assert [(one["low"], one["high"], one["ratio"]) for one in told] == [(1.0, 1.0, 1.0), (0.8, 1.25, 1.0)]


def test_a_timed_row_has_seconds_on_one_clock():
    empty = Samples("device", (), 1, (), "0 visits")
    one = timed(steady(1e-3))
    assert comparison._timed(replace(one, samples=(empty, *one.samples)))
    assert not comparison._timed(replace(one, samples=(empty,))) and not comparison._timed(
        replace(one, status="failed")
    )
