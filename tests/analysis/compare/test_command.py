"""compare, what runs differ by, and named baselines: verdicts worked out by hand, refusals, exit codes."""

import csv
import io
import json
import math
import shlex
from pathlib import Path
from types import SimpleNamespace

import fake_measurements as fake
import msgspec
import numpy as np
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, square
from msgspec.structs import replace

from analysis import noise
from analysis.compare import command, comparison
from analysis.metrics import COMPARED
from analysis.stats import Estimate, Verdict, Z, exact, t_quantile
from analysis.text import comparisons
from kernels.problems import Training
from workloads import matmul, options, records, session
from workloads.records import Loaded, Measurement, Run, Samples, Settings, baselines

RUN = replace(fake.run(CPU_MACHINE), software={"numpy": "2.4"}, sources="def")


def steady(center: float, off: float = 0.001, blocks: int = 10) -> Samples:
    """Blocks that alternate around a center: their median is it, their spread `off`."""
    seconds = tuple(center * (1 + off * (-1) ** (i // 2)) for i in range(2 * blocks))
    return Samples("host-latency", seconds, 1, (2,) * blocks, "steady")


def processes(*centers: float) -> Samples:
    seconds = tuple(np.repeat(centers, 2).tolist())
    reason = f"{len(centers)} processes"
    return Samples("host-latency", seconds, 1, (2,) * len(centers), reason, is_by_process=True)


def timed(samples: Samples, n: int = 64, status: str = "ok", flags=(), **settings) -> Measurement:
    kernel = "matmul/numpy/blas"
    return Measurement(kernel, square(n), Settings(threads=1, **settings), status, samples=(samples,), flags=flags)


def trained(samples: Samples) -> Measurement:
    return Measurement("training/keras/fit", Training("cifar10-cnn", 32, 512), Settings(), "ok", samples=(samples,))


def loaded(*measurements: Measurement, run: Run = RUN) -> Loaded:
    return Loaded((run,), measurements, 0, ())


def words(old, new, **how) -> list[str]:
    return [r.word for r in comparison.comparison(old, new, **how).rows]


def keep(root, shares: dict[tuple[str, int], float], machine=CPU_MACHINE, local: bool = True) -> None:
    """Stores what runs of a machine differ by under a folder of reports."""
    of = tuple(
        noise.NoiseShare(side=side, decade=decade, share=share, pairs=100, visit_share=2 * share, span_s=20.0)
        for (side, decade), share in shares.items()
    )
    place = root / "local" / machine.key if local else root / machine.key
    place.mkdir(parents=True)
    (place / noise.FILE).write_bytes(
        msgspec.json.encode(noise.Noise(machine=machine, taken_at="2026-01-01", span_s=900.0, sweeps=(), shares=of))
    )


@pytest.fixture(autouse=True)
def stored(tmp_path, monkeypatch):
    """Runs of the CPU differ by 1 %, device times of the GPU machine by 0.5 %."""
    keep(tmp_path / "kept", {(noise.CPU, 0): 0.01})
    keep(tmp_path / "kept", {(noise.GPU, 0): 0.005, (noise.CALLS, 0): 0.03}, GPU_MACHINE)
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "kept")


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


def test_trainings_take_no_kernels_number():
    """Whole trainings lie 10 to 20 % apart from start to start, so 4 % are neither a difference nor the same."""
    (row,) = comparison.comparison(*(loaded(trained(steady(center))) for center in (8.0, 8.3))).rows
    assert (row.word, row.between.share) == ("can't tell", noise.DEFAULT[noise.MODELS])


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


@pytest.mark.parametrize(
    ("rule", "code"),
    [(["slower>2%"], 0), (["slower>2%", "--strict"], options.UNSEEN), (["slower>5%", "--strict"], 0), (["slower"], 0)],
)
def test_a_rule_hidden_by_noise_warns_strictly_fails(rule, code, tmp_path, capsys):
    """Rows that show 3 % and more: a rule of 2 % says nothing of them."""
    old, new = (write(tmp_path / name, timed(steady(center, 0.0))) for name, center in (("a", 1.0), ("b", 1.001)))
    assert command.main([old, new, "--fail-on", *rule]) == code
    warned = "warning: 2.0 % slower would not have been seen in 1 of 1 row" in capsys.readouterr().err
    assert warned == (rule[0] == "slower>2%")


def test_strict_asks_for_a_share(runs, capsys):
    assert (
        command.main([*runs, "--strict"]) == command.main([*runs, "--strict", "--fail-on", "slower"]) == options.USAGE
    )
    assert "--strict needs --fail-on" in capsys.readouterr().err


def test_a_gpu_is_compared_by_its_device_clock():
    old, new = (loaded(row("matmul/cupy/cublas", square(64), {"host-latency": 1.0, "device": d})) for d in (0.5, 0.6))
    assert words(old, new) == ["slower"] and words(old, new, clock="host-latency") == ["same"]
    assert words(old, new, clock="host-issue") == []
    waited = loaded(row("matmul/cupy/cublas", square(64), {"host-latency": 1.0}))
    assert words(old, waited) == ["same"]  # where one has no device clock both are judged by what the host waits


def test_one_sample_and_lone_rows():
    one = Samples("host-latency", (1.0,), 1, (1,), "max-time")
    old = loaded(timed(one), timed(steady(1.0), n=2), timed(steady(1.0), n=3), timed(one, n=4, status="failed"))
    untimed = timed(one, n=6, status="failed")  # a new row without a time is none of the lone ones
    failed = timed(steady(1.0), n=3, status="failed")
    new = loaded(timed(replace(one, seconds=(3.0,))), failed, timed(steady(1.0), n=5), untimed)
    made = comparison.comparison(old, new)
    assert [(r.old.problem.n, r.word) for r in made.rows] == [(64, "can't tell")]
    assert [m.problem.n for m in made.broken] == [3]
    assert [m.problem.n for m in made.only_old] == [2] and [m.problem.n for m in made.only_new] == [5]
    assert command.verdict(made, 0.05) == options.REGRESSION and command.verdict(made, None) == options.OK
    assert comparisons.summary(made) == "0 slower, 0 faster, 0 the same within 5 %, 1 can't tell, 1 broken: of 2 rows."


def test_differences_of_machines_come_first():
    gpus = (replace(GPU_MACHINE.gpus[0], uuid="GPU-1", power_limit_w=600.0),)
    one, two = (replace(RUN, machine=m) for m in (GPU_MACHINE, replace(GPU_MACHINE, gpus=gpus, driver="590.1")))
    two = replace(two, software={"numpy": "2.5"}, sources="xyz")
    made = comparison.comparison(loaded(timed(steady(1.0)), run=one), loaded(timed(steady(1.0)), run=two))
    told = "driver: 580.0 -> 590.1; gpu:0 power_limit_w: 700.0 -> 600.0; numpy: 2.4 -> 2.5; sources: def -> xyz"
    assert list(made.differences) == told.split("; ")
    notes = comparisons.notes(made)
    assert "differs: driver: 580.0 -> 590.1" in notes and "... and 2 other differences (-v)" in notes
    assert "differs: sources: def -> xyz" in comparisons.notes(made, verbose=True)


def write(folder, *measurements, machine=CPU_MACHINE):
    fake.write(folder / "matmul.jsonl", replace(RUN, machine=machine), measurements)
    return str(folder)


@pytest.fixture
def runs(tmp_path):
    old = write(tmp_path / "old", timed(steady(1.0)), timed(steady(1.0), n=128), timed(steady(1.0), n=512))
    return old, write(tmp_path / "new", timed(steady(1.07)), timed(steady(0.9), n=128), timed(steady(1.0), n=512))


@pytest.mark.parametrize(
    ("rule", "code"),
    [(["--fail-on", "slower>5%"], 4), (["--fail-on", "slower>10%"], 0), (["--fail-on", "slower"], 4), ([], 0)],
)
def test_the_exit_code(runs, rule, code, capsys):
    assert command.main([*runs, *rule]) == code
    out, err = capsys.readouterr()
    first, _, head, *rows = out.splitlines()
    assert first == "1 slower, 1 faster, 1 the same within 5 %, 0 can't tell: of 3 rows."
    assert ("regression: 1 row" in err) == (code == 4) and head.split()[:4] == ["row", "old", "new", "change"]
    assert rows[0].startswith("matmul/numpy/blas n=64 ") and "+7.0 % slower" in rows[0]
    assert " -10.0 % faster" in rows[1] and rows[2] == ""


@pytest.mark.parametrize("nameless", ["old", "new"])
def test_a_run_without_its_machine_matches_no_other(runs, nameless, capsys):
    file = Path(runs[nameless == "new"], "matmul.jsonl")
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[1:]))
    assert command.main([*runs]) == 2
    error, tried = capsys.readouterr().err.splitlines()
    assert f"{nameless.upper()} has no line that names its machine" in error and error.count("intel-avx512-2c") == 1
    assert "same:" not in error and tried.endswith(" --any-machine")
    assert command.main([*runs, "--any-machine"]) == 0


def test_two_machines_are_refused_unless_asked_for(runs, tmp_path, capsys):
    other = write(tmp_path / "gpu", timed(steady(1.0)), machine=GPU_MACHINE)
    assert command.main([runs[0], other]) == 2
    err = capsys.readouterr().err.splitlines()
    assert "intel-avx512-2c" in err[0]
    assert "nvidia-h200" in err[0] and err[1].endswith(f"{runs[0]} {other} --any-machine")
    assert command.main([runs[0], other, "--any-machine"]) == 0
    assert "differs: machine: intel-avx512-2c -> nvidia-h200" in capsys.readouterr().out


def test_formats_hold_the_same_rows(runs, capsys):
    assert command.main([*runs, "--format", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert command.main([*runs, "--format", "csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert [r["row"] for r in told] == [r["row"] for r in rows] and list(told[0]) == list(COMPARED)
    assert [r["verdict"] for r in told] == ["slower", "faster", "same"]
    assert told[0]["ratio"] == pytest.approx(1.07, abs=2e-3)
    assert command.main([*runs, "--format", "md", "-v"]) == 0
    assert sum(line.startswith("| ") for line in capsys.readouterr().out.splitlines()) == 5


def test_runs_without_a_row_in_common(runs, tmp_path, capsys):
    assert command.main([runs[0], write(tmp_path / "x", timed(steady(1.0), n=7))]) == 2
    assert "no row in common" in capsys.readouterr().err
    no_time = write(tmp_path / "y", timed(steady(1.0), status="failed"))
    assert command.main([no_time, runs[1]]) == 2
    (error, _) = capsys.readouterr().err.splitlines()
    assert error == f"error: no row in {no_time} has a time"
    assert command.main([runs[0], no_time, "--fail-on", "slower>5%"]) == options.REGRESSION
    assert "regression: 1 row" in capsys.readouterr().err


class TestBaselines:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(baselines, "FOLDER", tmp_path / "saved")

    def test_a_saved_name_is_never_overwritten(self, runs, tmp_path):
        kept = baselines.save("before", records.files_of(runs[0]))
        assert records.read("before").measurements == records.read(runs[0]).measurements
        assert baselines.names() == ["before"]
        with pytest.raises(options.Usage, match="exists"):
            baselines.save("before", [])
        assert kept == tmp_path / "saved" / "before"

    def test_a_stored_machines_name_cannot_be_taken(self):
        with pytest.raises(options.Usage, match="'nvidia-h200' names a stored machine"):
            baselines.require_free("nvidia-h200")

    @pytest.mark.parametrize("name", ["", "../x", "a/b", ".hidden", "-x", "a b", "x" * 101])
    def test_names_that_are_paths_are_none(self, name):
        with pytest.raises(options.Usage, match="no name"):
            baselines.folder(name)
        assert baselines.find(name) is None

    def test_a_folder_that_cannot_be_written(self, tmp_path, monkeypatch):
        (tmp_path / "file").write_text("")
        monkeypatch.setattr(baselines, "FOLDER", tmp_path / "file" / "saved")
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("x", [])

    def test_an_incomplete_or_foreign_baseline_is_left_alone(self, runs, tmp_path, monkeypatch):
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("half", [*records.files_of(runs[0]), tmp_path / "nosuch"])
        assert baselines.names() == []
        baselines.save("other", records.files_of(runs[0]))
        # made by another between the question and the copy
        monkeypatch.setattr(baselines, "require_free", lambda name: None)
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("other", [])
        assert len(records.read("other").measurements) == 3

    def measuring(self, *argv):
        return matmul.parse(["-q", *argv]).measuring

    def test_flags_are_checked_before_anything_is_measured(self, runs):
        baselines.save("before", records.files_of(runs[0]))
        for argv, message in (
            (["--fail-on", "slower>5%"], "needs --against"),
            (["--save", "before"], "exists"),
            (["--against", "nosuch"], "no baseline or run 'nosuch'; saved: before"),
            (["--save", "../../x"], "no name for a baseline"),
            (["--save", ""], "names nothing"),
            (["--against", ""], "names nothing"),
        ):
            with pytest.raises(options.Usage, match=message):
                session.check_files(self.measuring(*argv))
            with pytest.raises(options.Usage, match=message):
                session.carry_out(matmul.parse(["-q", "--dry-run", *argv]))
        session.check_files(self.measuring("--save", "after", "--against", "before", "--fail-on", "slower>5%"))

    def test_at_the_end_rows_are_saved_and_compared(self, runs, capsys):
        baselines.save("before", records.files_of(runs[0]))
        files = records.files_of(runs[1])
        measuring = self.measuring("--save", "after", "--against", "before", "--fail-on", "slower>5%")
        assert session.save_and_compare(measuring, files, options.OK) == options.REGRESSION
        out, err = capsys.readouterr()
        assert "against before:" in out
        assert "1 slower" in out and "regression" in err and baselines.names() == ["after", "before"]
        measuring = self.measuring("--against", "before", "--fail-on", "slower>5%", "--format", "json")
        assert (
            session.save_and_compare(measuring, files, options.OK) == options.REGRESSION and not capsys.readouterr().out
        )
        assert session.save_and_compare(measuring, files, options.FAILED) == options.FAILED
        assert session.save_and_compare(measuring, files, options.INTERRUPTED) == options.INTERRUPTED
        assert session.save_and_compare(self.measuring(), files, options.OK) == options.OK

    def test_another_machines_baseline_needs_its_own_command(self, runs, tmp_path, monkeypatch, capsys):
        other = write(tmp_path / "a gpu", timed(steady(1.0)), machine=GPU_MACHINE)
        measuring = self.measuring("--against", other)
        with pytest.raises(options.Usage) as refused:
            session.save_and_compare(measuring, records.files_of(runs[1]), options.OK)
        assert refused.value.instead == f"python -m analysis.compare '{other}' {runs[1]} --any-machine"
        assert command.main(shlex.split(refused.value.instead)[3:]) == options.OK

    def test_a_function_does_not_compare(self):
        with pytest.raises(TypeError, match="flag of the command"):
            matmul.run(save="x")


def test_a_row_unreadable_in_the_later_run_regresses(tmp_path, capsys):
    """The second row of NEW has a time of 1e999 seconds, which no float holds."""
    old = write(tmp_path / "old", timed(steady(1.0)), timed(steady(1.5), n=128))
    new = write(tmp_path / "new", timed(steady(1.0)))
    rule = [old, new, "--fail-on", "slower>5%"]
    assert command.main(rule) == options.OK
    lost = msgspec.json.encode(timed(steady(1.5), n=128)).replace(b"1.5", b"1e999")
    (file,) = records.files_of(new)
    with open(file, "ab") as lines:
        lines.write(lost + b"\n")
    assert command.main(rule) == options.REGRESSION
    assert capsys.readouterr().err.count(f"warning: 1 line of {file} cannot be read") == 1
    made = comparison.comparison(records.read(old), records.read(new))
    assert [m.problem.n for m in made.lost] == [128]


@pytest.mark.parametrize(
    ("text", "share"),
    [("slower>5%", 0.05), ("slower > 2.5 %", 0.025), ("slower>5", 0.05), ("5%", 0.05), ("slower", 0.0)],
)
def test_rules(text, share):
    assert options.regression(text) == pytest.approx(share)


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


def test_a_timed_row_has_seconds_on_one_clock():
    empty = Samples("device", (), 1, (), "0 visits")
    one = timed(steady(1e-3))
    assert comparison._timed(replace(one, samples=(empty, *one.samples)))
    assert not comparison._timed(replace(one, samples=(empty,))) and not comparison._timed(
        replace(one, status="failed")
    )
