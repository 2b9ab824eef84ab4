"""compare, the spread between processes, and named baselines: verdicts worked out by hand, refusals, exit codes."""

import csv
import io
import json
import math

import msgspec
import numpy as np
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, square

from analysis import labels, noise
from analysis.compare import command, comparison
from kernels.problems import Training
from workloads import matmul, options, records, session
from workloads.records import Loaded, Measurement, Run, Samples, Settings, baselines

RUN = Run(
    records.SCHEMA, CPU_MACHINE, {"numpy": "2.4"}, "python -m workloads.matmul", 1, "abc", "def", "2026-01-01T00:00:00Z"
)


def steady(center: float, off: float = 0.001, blocks: int = 10) -> Samples:
    """Blocks that alternate around a center: their median is it, their spread `off`."""
    seconds = tuple(center * (1 + off * (-1) ** (i // 2)) for i in range(2 * blocks))
    return Samples("host-latency", seconds, 1, tuple(i // 2 for i in range(2 * blocks)), "steady")


def processes(*centers: float) -> Samples:
    block = tuple(i for i in range(len(centers)) for _ in range(2))
    return Samples("host-latency", tuple(c for c in centers for _ in range(2)), 1, block, f"{len(centers)} processes")


def timed(samples: Samples, n: int = 64, status: str = "ok", flags=(), **settings) -> Measurement:
    kernel = "matmul/numpy/blas"
    return Measurement(kernel, square(n), Settings(threads=1, **settings), status, samples=(samples,), flags=flags)


def loaded(*measurements: Measurement, run: Run = RUN) -> Loaded:
    return Loaded((run,), measurements, 0, ())


def words(old, new, **how) -> list[str]:
    how = {"stored": noise.Stored([*old.measurements, *new.measurements]), **how}
    return [r.word for r in comparison.comparison(old, new, **how).rows]


KNOWN = timed(processes(1.0, 1.001, 0.999, 1.0005, 0.9995), n=512)  # of another row of the kernel: 0.3 % at most


@pytest.mark.parametrize(
    ("new", "word"),
    [(1.05, "slower"), (0.95, "faster"), (1.0, "same"), (1.01, "same"), (1.03, "slower"), (1.02, "can't tell")],
)
def test_a_claim_needs_the_whole_interval_beyond_the_least_effect(new, word):
    old = loaded(timed(steady(1.0)), KNOWN)
    assert words(old, loaded(timed(steady(new)), KNOWN))[0] == word


def test_nothing_below_the_spread_between_processes_is_claimed():
    """Four rows alike, each of five processes: their variances are the same, so v0 is infinite and the normal quantile counts."""
    noisy = [timed(processes(1.0, 1.02, 0.98, 1.01, 0.99), n=n) for n in (128, 256, 512, 1024)]
    logs = [math.log(c) for c in (1.0, 1.02, 0.98, 1.01, 0.99)]
    mean = sum(logs) / 5
    variance = sum((x - mean) ** 2 for x in logs) / 4
    # log s^2 of 4 degrees lies digamma(2) - log 2 = 0.422784 - 0.693147 below log sigma^2 in the mean
    limit = math.exp(2.575829 * math.sqrt(2 * variance * math.exp(0.693147 - 0.422784))) - 1
    made = comparison.comparison(loaded(timed(steady(1.0))), loaded(timed(steady(1.05))), stored=noise.Stored(noisy))
    assert 0.06 < limit < 0.07 and made.rows[0].least.limit == pytest.approx(limit, rel=1e-4)
    assert made.rows[0].least.source == "4 rows like it" and made.rows[0].word == "same"  # what two processes differ by
    for center, word in ((1.08, "slower"), (0.92, "faster")):
        assert words(loaded(timed(steady(1.0))), loaded(timed(steady(center))), stored=noise.Stored(noisy)) == [word]


def test_variances_are_drawn_towards_those_of_rows_alike():
    def of(variance: float) -> noise.Seen:
        return noise.Seen(variance, 4, 1.0)

    # The logarithms vary by trigamma(2) = 0.644934 by chance; trigamma(1) = pi^2 / 6 beyond that is v0 / 2 = 1.
    a = math.sqrt(0.75 * (0.644934 + math.pi**2 / 6))
    rows = [of(math.exp(x)) for x in (a, a, -a, -a)]
    assert noise.degrees(rows) == pytest.approx(2, rel=1e-4)
    assert noise.center(rows, 2.0) == pytest.approx(math.exp(0.270363 - 0.577216), rel=1e-4)
    assert noise.center(rows, math.inf) == pytest.approx(math.exp(0.270363), rel=1e-4)
    assert noise.degrees([of(1.0), of(400.0)]) == 2.0  # two rows tell nothing of how variances differ
    assert noise.degrees([of(1.0)] * 4) == math.inf
    # (4 * 1 + 4 * 9) / 8 = 5 with 8 degrees, t = 3.3554; alone 4 degrees, t = 4.6041; of no processes of its own, the others'
    assert noise.limit(of(9e-6), (4.0, 1e-6)) == pytest.approx(math.expm1(3.355387 * math.sqrt(2 * 5e-6)), rel=1e-5)
    assert noise.limit(None, (4.0, 1e-6)) == pytest.approx(math.expm1(4.604095 * math.sqrt(2e-6)), rel=1e-5)
    assert noise.limit(of(9e-6), (math.inf, 1e-6)) == pytest.approx(math.expm1(2.575829 * math.sqrt(2e-6)), rel=1e-5)


@pytest.mark.parametrize("count", [3, 5, 15])
def test_a_limit_holds_as_often_as_it_says_however_few_the_processes(count):
    """Rows whose variances differ, `count` processes each: 99 of 100 differences of two further processes stay within."""
    rng = np.random.default_rng(count)
    sigmas = 0.01 / np.sqrt(rng.chisquare(4, 400) / 4)
    rows = [noise.Seen(float(np.var(sigma * rng.standard_normal(count), ddof=1)), count - 1, 1.0) for sigma in sigmas]
    free = noise.degrees(rows)
    known = (free, noise.center(rows, free))
    beyond = [
        abs(math.sqrt(2) * sigma * rng.standard_normal(20)) > math.log1p(noise.limit(row, known))
        for sigma, row in zip(sigmas, rows, strict=True)
    ]
    assert 0.005 < np.mean(beyond) < 0.016
    assert (
        np.mean(abs(math.sqrt(2) * sigmas * rng.standard_normal(400)) > 2 * np.sqrt([2 * r.variance for r in rows]))
        > 0.03
    )


def test_with_nothing_stored_little_is_claimed_and_said():
    old, new = loaded(timed(steady(1.0))), loaded(timed(steady(1.07)))
    made = comparison.comparison(old, new, stored=noise.Stored([]))
    assert [r.word for r in made.rows] == ["same"]
    assert made.rows[0].least == noise.Spread(noise.UNKNOWN, "nothing stored")
    assert any("workloads.referee" in line for line in command.preamble(made))
    assert words(old, loaded(timed(steady(1.10))), stored=noise.Stored([])) == ["slower"]


def test_rows_over_processes_carry_their_spread_in_the_interval():
    old, new = (
        loaded(timed(processes(1.0, 1.001, 0.999, 1.0005, 0.9995))),
        loaded(timed(processes(1.02, 1.021, 1.019, 1.0205, 1.0195))),
    )
    beside = [
        loaded(*(msgspec.structs.replace(m, notes={comparison.SIDE_BY_SIDE: "1"}) for m in side.measurements))
        for side in (old, new)
    ]
    made = comparison.comparison(*beside, stored=noise.Stored([]))
    assert made.rows[0].word == "slower"
    assert made.rows[0].least == noise.Spread(comparison.OVER_PROCESSES, "intervals over processes in turns")
    uneven = loaded(msgspec.structs.replace(beside[1].measurements[0], samples=(processes(1.02, 1.02, 1.02),)))
    assert comparison.comparison(beside[0], uneven, stored=noise.Stored([])).rows[0].least.source == noise.NOTHING
    wide = loaded(timed(processes(1.0, 1.03, 0.97, 1.02, 0.98)))
    made = comparison.comparison(wide, loaded(timed(processes(1.02, 1.05, 0.99, 1.04, 1.0))), stored=noise.Stored([]))
    assert made.rows[0].verdict.ratio.low < 0.98 and made.rows[0].verdict.ratio.high > 1.06


def at_occasions(*middles: float, apart: float = noise.APART_S + 1) -> Measurement:
    """Three processes at each of several occasions, 0.1 % below, at and above its middle, ten seconds from one to the next."""
    m = timed(processes(*(middle * (1 + off) for middle in middles for off in (-0.001, 0, 0.001))))
    taken = tuple(i * (apart + 20.0) + 10.0 * j for i in range(len(middles)) for j in range(3))
    return msgspec.structs.replace(m, series={noise.TAKEN: taken})


def test_two_runs_of_processes_claim_nothing_below_what_occasions_differ_by():
    """Five processes of a run say no more of another hour than one; where a row's were taken at five occasions, the middles of
    these do."""
    sides = (1.0, 1.005, 0.995, 1.002, 0.998)
    old, new = (timed(processes(*(c * x for x in sides))) for c in (1.0, 1.05))
    logs = [math.log(x) for x in sides]
    alone = math.expm1(4.604095 * math.sqrt(2 * sum((x - sum(logs) / 5) ** 2 for x in logs) / 4))  # t of 4 degrees
    (made,) = comparison.comparison(loaded(old), loaded(new), stored=noise.Stored([old, new])).rows
    assert made.word == "slower" and made.least.source == "single processes of this row" and made.least.processes == 5
    assert made.least.limit == pytest.approx(alone, rel=1e-4) and 0.025 < alone < 0.026
    steadier = noise.Stored([KNOWN])
    assert comparison.comparison(loaded(old), loaded(new), stored=steadier).rows[0].least.limit == comparison.MIN_EFFECT
    steadier = noise.Stored([at_occasions(1.0, 1.0, 1.0, 1.0, 1.0)])
    expected = comparison.OVER_PROCESSES
    assert comparison.comparison(loaded(old), loaded(new), stored=steadier).rows[0].least.limit == expected
    middles = (1.0, 1.02, 0.98, 1.01, 0.99)
    logs = [math.log(x) for x in middles]
    apart = math.expm1(4.604095 * math.sqrt(2 * sum((x - sum(logs) / 5) ** 2 for x in logs) / 4))
    others = [
        msgspec.structs.replace(at_occasions(1.0, 1.0, 1.0, 1.0, 1.0), problem=square(n)) for n in (128, 256, 512, 1024)
    ]
    known = noise.Stored([at_occasions(*middles), new, *others])  # neither a run of one occasion nor rows alike count
    (made,) = comparison.comparison(loaded(old), loaded(new), stored=known).rows
    assert made.least == noise.Spread(pytest.approx(apart, rel=1e-4), "5 occasions of this row", 5)
    assert 0.10 < apart < 0.12
    assert made.word == "same" and len(known) == 5
    single = [timed(steady(c)) for c in (1.0, 1.05)]  # of single processes, the fifteen of the row count
    assert comparison.comparison(*map(loaded, single), stored=known).rows[0].least.processes == 15
    asked = comparison.comparison(loaded(old), loaded(new), stored=known, min_effect=0.15).rows[0].least
    assert asked == noise.Spread(0.15, "the least effect asked for")
    elsewhere = [msgspec.structs.replace(m, problem=square(2048)) for m in (old, new)]  # a row of one occasion
    (made,) = comparison.comparison(*map(loaded, elsewhere), stored=known).rows
    assert made.least.source == "single processes of 5 rows like it"


@pytest.mark.parametrize(
    ("m", "count"),
    [
        (at_occasions(*[1.0] * 5), 5),
        (at_occasions(*[1.0] * 5, apart=noise.APART_S - 1), 1),
        (KNOWN, 1),
        (msgspec.structs.replace(at_occasions(1.0, 1.0, 1.0), series={noise.TAKEN: (0.0, 1000.0)}), 1),
    ],
)
def test_occasions_are_processes_with_a_pause_between_them(m, count):
    """Where nothing says when each was taken, all are of one."""
    found = noise.moments(m, m.samples[0])
    assert len(found) == count and [b for blocks in found for b in blocks] == list(dict.fromkeys(m.samples[0].block))
    assert (noise.Stored([m]).of(m, noise.OCCASIONS).source == noise.NOTHING) == (count == 1)


def test_few_occasions_tell_too_little():
    m = at_occasions(1.0, 1.0, 1.0, 1.0)
    assert len(noise.moments(m, m.samples[0])) == 4
    assert noise.Stored([m]).of(m, noise.OCCASIONS).source == noise.NOTHING
    series = {noise.TAKEN: (900.0,) * 3 + (0.0,) * 3 + (450.0,) * 3}
    late = msgspec.structs.replace(at_occasions(1.0, 1.1, 1.2), series=series)
    assert noise.moments(late, late.samples[0]) == [[3, 4, 5], [6, 7, 8], [0, 1, 2]]  # in the order of time


def test_who_compares_runs_of_one_occasion_hears_what_would_tell_more():
    sides = [loaded(timed(processes(c, 1.004 * c, 0.996 * c))) for c in (1.0, 1.1)]
    known = noise.Stored([m for side in sides for m in side.measurements])
    said = [line for line in command.preamble(comparison.comparison(*sides, stored=known)) if "another hour" in line]
    assert len(said) == 1 and said[0].startswith("of 1 row over processes") and "--only spread" in said[0]
    apart = noise.Stored([at_occasions(1.0, 1.0, 1.0, 1.0, 1.0)])
    assert not any("another hour" in line for line in command.preamble(comparison.comparison(*sides, stored=apart)))


def test_what_happens_once_in_a_process_tells_nothing_of_other_rows():
    once = timed(processes(1.0, 2.0, 3.0), n=512, process="fresh")
    assert noise.Stored([once]).of(timed(steady(1.0))).source == "nothing stored"
    assert noise.Stored([once]).of(once).source == "this row"
    warm = [timed(processes(1.0, 1.01, 1.02), n=n) for n in (16, 32, 64, 128, 256)]
    assert noise.Stored(warm).of(timed(steady(1.0), n=512)).source == "5 rows like it"
    assert noise.Stored(warm).of(timed(steady(1.0), n=512, process="fresh")).source == "nothing stored"


@pytest.mark.parametrize("flag", sorted(noise.DISTURBED))
def test_a_disturbed_row_tells_nothing_of_the_spread(flag):
    assert len(noise.Stored([KNOWN])) == 1 and len(noise.Stored([msgspec.structs.replace(KNOWN, flags=(flag,))])) == 0
    assert len(noise.Stored([msgspec.structs.replace(KNOWN, flags=("cpu-clock",))])) == 1


def test_rows_alike_are_those_of_the_same_kind_and_about_as_long():
    def at(center: float, off: float, n: int, **settings) -> Measurement:
        return timed(processes(*(center * (1 + off * x) for x in (0, 1, -1, 0.5, -0.5))), n=n, **settings)

    short, long = [at(1e-5, 0.01, n) for n in (1, 2, 3, 4)], [at(1e-1, 0.005, n) for n in (5, 6, 7, 8)]
    others = [at(1e-5, 0.1, n, mode="roundtrip") for n in (1, 2, 3, 4)]
    known, alone = noise.Stored([*short, *long, *others]), noise.Stored([*short, *long])
    for seconds, off in ((2e-5, 0.01), (2e-1, 0.005)):  # v0 is of all eight, s0 of those about as long
        limit = known.of(timed(steady(seconds), n=99)).limit
        assert limit == alone.of(timed(steady(seconds), n=99)).limit
        assert limit / off == pytest.approx(alone.of(timed(steady(2e-5), n=99)).limit / 0.01, rel=0.05)
    assert known.of(timed(steady(2e-5), n=99, mode="roundtrip")).limit > 3 * known.of(timed(steady(2e-5), n=99)).limit
    assert known.of(short[0]) == noise.Spread(known.of(short[1]).limit, "this row and 4 like it", 5)
    assert known.of(row("matmul/cupy/cublas", square(64), 1e-5)).source == noise.NOTHING  # no CPU says what a GPU does


def test_trainings_whose_processes_differ_much_hide_no_slower_kernel():
    """Five processes of a Keras fit lie 10 to 20 % apart: what they differ by is the framework's, and nothing of a product's."""
    kernel = "training/keras/fit"
    problem = Training("cifar10-cnn", 32, 512)
    fit = Measurement(kernel, problem, Settings(), "ok", samples=(processes(8.24, 9.24, 8.05, 7.0, 7.52),))
    kernels = [timed(processes(1.0, 1.001, 0.999, 1.0005, 0.9995), n=n) for n in (128, 256, 512, 1024)]
    for known in ([], kernels):
        alone, beside = (noise.Stored([*known, *more]).of(timed(steady(1.0), n=64)) for more in ((), (fit, fit)))
        assert alone == beside
    assert noise.Stored([*kernels, fit]).of(fit).source == "this row"
    assert words(loaded(timed(steady(1.0)), fit), loaded(timed(steady(1.5)), fit))[0] == "slower"


def test_processes_that_took_turns_have_a_spread_of_their_own():
    alone = timed(processes(1.0, 1.05, 0.95, 1.02, 0.98))
    switches = {noise.MATCH: "turns"}
    turns = msgspec.structs.replace(timed(processes(1.0, 1.001, 0.999, 1.0005, 0.9995), switches=switches))
    turns = msgspec.structs.replace(
        turns, samples=(msgspec.structs.replace(turns.samples[0], stop_reason="5 processes in turns"),)
    )
    known = noise.Stored([alone, turns])
    logs = [math.log(c) for c in (1.0, 1.05, 0.95, 1.02, 0.98)]
    deviation = math.sqrt(sum((x - sum(logs) / 5) ** 2 for x in logs) / 4)
    assert known.of(alone).limit == pytest.approx(math.expm1(4.604095 * deviation * math.sqrt(2)), rel=1e-5)
    assert known.of(alone).source == "this row" and known.of(alone, noise.TURNS).limit < 0.02 and len(known) == 2
    sides = [msgspec.structs.replace(timed(steady(c)), notes={comparison.SIDE_BY_SIDE: "1"}) for c in (1.0, 1.05)]
    assert words(*map(loaded, sides), stored=known) == ["slower"]
    # not known of turns: what is known counts
    assert words(*map(loaded, sides), stored=noise.Stored([alone])) == ["can't tell"]
    # 29 % is too wide
    assert words(loaded(timed(steady(1.0))), loaded(timed(steady(1.05))), stored=known) == ["can't tell"]


def test_stored_spreads_are_found_beside_the_machines_runs(tmp_path):
    for place, m in (
        (tmp_path / "k" / "a", KNOWN),
        (tmp_path / "local" / "k" / "b", timed(processes(1.0, 1.1, 1.2), n=32)),
    ):
        place.mkdir(parents=True)
        lines = [msgspec.json.encode(x) for x in (RUN, m, timed(steady(1.0)))]
        (place / "matmul.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    assert len(noise.stored("k", root=tmp_path)) == 2 and len(noise.stored("other", root=tmp_path)) == 0


def test_pairs_taken_side_by_side_are_compared_as_pairs():
    drift = [1.0, 1.3, 0.8, 1.2, 0.9, 1.1, 1.25, 0.85]
    seconds = tuple(d for d in drift for _ in range(2))
    old = Samples("host-latency", seconds, 1, tuple(i // 2 for i in range(16)), "alternating blocks")
    new = msgspec.structs.replace(old, seconds=tuple(1.05 * s for s in old.seconds))
    apart = [timed(s) for s in (old, new)]
    beside = [msgspec.structs.replace(m, notes={comparison.SIDE_BY_SIDE: "1"}) for m in apart]
    known = noise.Stored([KNOWN])
    assert words(loaded(apart[0]), loaded(apart[1]), stored=known) == ["can't tell"]
    assert words(loaded(beside[0]), loaded(beside[1]), stored=known) == ["slower"]
    other = msgspec.structs.replace(beside[1], notes={comparison.SIDE_BY_SIDE: "2"})
    assert words(loaded(beside[0]), loaded(other), stored=known) == ["can't tell"]


def test_the_clock_is_the_devices_on_a_gpu_unless_another_is_asked_for():
    old, new = (loaded(row("matmul/cupy/cublas", square(64), {"host-latency": 1.0, "device": d})) for d in (0.5, 0.6))
    assert words(old, new) == ["slower"] and words(old, new, clock="host-latency") == ["same"]
    assert words(old, new, clock="host-issue") == []


def test_one_sample_and_lone_rows():
    one = Samples("host-latency", (1.0,), 1, (0,), "max-time")
    old = loaded(timed(one), timed(steady(1.0), n=2), timed(steady(1.0), n=3), timed(one, n=4, status="failed"))
    new = loaded(
        timed(msgspec.structs.replace(one, seconds=(3.0,))),
        timed(steady(1.0), n=3, status="failed"),
        timed(steady(1.0), n=5),
    )
    made = comparison.comparison(old, new, stored=noise.Stored([]))
    assert [(r.old.problem.n, r.word) for r in made.rows] == [(64, "can't tell")]
    assert [m.problem.n for m in made.broken] == [3]
    assert [m.problem.n for m in made.only_old] == [2] and [m.problem.n for m in made.only_new] == [5]
    assert command.verdict(made, 0.05) == options.REGRESSION and command.verdict(made, None) == options.OK
    assert command.summary(made) == "2 rows: 0 slower, 0 faster, 0 same, 1 can't tell, 1 broken"


def test_differences_of_machines_come_first():
    gpus = (msgspec.structs.replace(GPU_MACHINE.gpus[0], uuid="GPU-1", power_limit_w=600.0),)
    one, two = (
        msgspec.structs.replace(RUN, machine=m)
        for m in (GPU_MACHINE, msgspec.structs.replace(GPU_MACHINE, gpus=gpus, driver="590.1"))
    )
    two = msgspec.structs.replace(two, software={"numpy": "2.5"}, sources="xyz")
    made = comparison.comparison(
        loaded(timed(steady(1.0)), run=one), loaded(timed(steady(1.0)), run=two), stored=noise.Stored([])
    )
    assert made.differences == (
        "driver: 580.0 -> 590.1",
        "gpu:0 power_limit_w: 700.0 -> 600.0",
        "numpy: 2.4 -> 2.5",
        "sources: def -> xyz",
    )
    assert command.preamble(made)[0] == "differs: driver: 580.0 -> 590.1"


def write(folder, *measurements, machine=CPU_MACHINE):
    with records.Writer(folder / "matmul.jsonl", msgspec.structs.replace(RUN, machine=machine)) as writer:
        for m in measurements:
            writer.append(m)
    return str(folder)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    monkeypatch.setattr(noise, "REPORTS", tmp_path / "none")
    old = write(tmp_path / "old", timed(steady(1.0)), timed(steady(1.0), n=128), KNOWN)
    new = write(tmp_path / "new", timed(steady(1.07)), timed(steady(0.9), n=128), KNOWN)
    return old, new


@pytest.mark.parametrize(
    ("rule", "code"),
    [(["--fail-on", "slower>5%"], 4), (["--fail-on", "slower>10%"], 0), (["--fail-on", "slower"], 4), ([], 0)],
)
def test_the_exit_code(runs, rule, code, capsys):
    assert command.main([*runs, *rule]) == code
    out, err = capsys.readouterr()
    assert "1 slower, 1 faster, 1 same, 0 can't tell" in out and ("regression: 1 row" in err) == (code == 4)
    rows = [line for line in out.splitlines() if "matmul/numpy/blas" in line]
    assert rows[0].startswith("slower") and "m=64" in rows[0] and rows[1].startswith("faster") and len(rows) == 2


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
    assert [r["row"] for r in told] == [r["row"] for r in rows] and list(told[0]) == list(command.HEAD)
    assert [r["verdict"] for r in told] == ["slower", "faster", "same"]
    assert told[0]["ratio"] == pytest.approx(1.07, abs=2e-3)
    assert command.main([*runs, "--format", "md", "-v"]) == 0
    assert sum(line.startswith("| ") for line in capsys.readouterr().out.splitlines()) == 5


def test_runs_without_a_row_in_common(runs, tmp_path, capsys):
    assert command.main([runs[0], write(tmp_path / "x", timed(steady(1.0), n=7))]) == 2
    assert "no row in common" in capsys.readouterr().err
    assert command.main([runs[0], write(tmp_path / "y", timed(steady(1.0), status="failed"))]) == 2
    assert "no row in" in capsys.readouterr().err


def test_names_tell_different_rows_apart():
    one = steady(1.0)
    made = [
        timed(one),
        timed(one, n=65),
        timed(one, cache="cold"),
        timed(one, switches={"x": "on"}),
        row("matmul/cupy/cublas", square(64, "tf32"), 1.0),
        row("matmul/cupy/cublas", square(64), 1.0),
    ]
    told = [labels.row(m) for m in made]
    assert len(set(told)) == len(told) and told[0] == "matmul/numpy/blas m=64 n=64 k=64 threads=1"
    assert told[4] == "matmul/cupy/cublas m=64 n=64 k=64 math=tf32 device=gpu:0"


class TestBaselines:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(baselines, "FOLDER", tmp_path / "saved")

    def test_a_saved_name_is_a_run_and_is_never_overwritten(self, runs, tmp_path):
        kept = baselines.save("before", records.files_of(runs[0]))
        assert records.read("before").measurements == records.read(runs[0]).measurements
        assert baselines.names() == ["before"]
        with pytest.raises(options.Usage, match="exists"):
            baselines.save("before", [])
        assert kept == tmp_path / "saved" / "before"

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

    def test_half_a_baseline_is_none_and_anothers_is_left_alone(self, runs, tmp_path, monkeypatch):
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("half", [*records.files_of(runs[0]), tmp_path / "nosuch"])
        assert baselines.names() == []
        baselines.save("other", records.files_of(runs[0]))
        # made by another between the question and the copy
        monkeypatch.setattr(baselines, "require_free", lambda name: None)
        with pytest.raises(options.Usage, match="cannot save"):
            baselines.save("other", [])
        assert len(records.read("other").measurements) == 3

    def args(self, *argv):
        return matmul.parser().parse_args(["-q", *argv])

    def test_flags_are_checked_before_anything_is_measured(self, runs):
        baselines.save("before", records.files_of(runs[0]))
        for argv, message in (
            (["--fail-on", "slower>5%"], "needs --against"),
            (["--save", "before"], "exists"),
            (["--against", "nosuch"], "saved names: before"),
        ):
            with pytest.raises(options.Usage, match=message):
                session.check_flags(self.args(*argv))
        session.check_flags(self.args("--save", "after", "--against", "before", "--fail-on", "slower>5%"))

    def test_at_the_end_rows_are_saved_and_compared(self, runs, capsys):
        baselines.save("before", records.files_of(runs[0]))
        files = records.files_of(runs[1])
        args = self.args("--save", "after", "--against", "before", "--fail-on", "slower>5%")
        assert session.save_and_compare(args, files, options.OK) == options.REGRESSION
        out, err = capsys.readouterr()
        assert "against before:" in out
        assert "1 slower" in out and "regression" in err and baselines.names() == ["after", "before"]
        args = self.args("--against", "before", "--fail-on", "slower>5%", "--format", "json")
        assert session.save_and_compare(args, files, options.OK) == options.REGRESSION and not capsys.readouterr().out
        assert session.save_and_compare(args, files, options.FAILED) == options.FAILED
        assert session.save_and_compare(args, files, options.INTERRUPTED) == options.INTERRUPTED
        assert session.save_and_compare(self.args(), files, options.OK) == options.OK

    def test_a_function_does_not_compare(self):
        with pytest.raises(TypeError, match="flag of the command"):
            options.namespace(matmul.parser(), save="x")


@pytest.mark.parametrize(("text", "share"), [("slower>5%", 0.05), ("slower > 2.5 %", 0.025), ("slower", 0.0)])
def test_rules(text, share):
    assert options.regression(text) == pytest.approx(share)
