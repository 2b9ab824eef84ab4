"""The referee: what outsiders' files say, ratios and counts worked out by hand, matches that cannot be held here."""

import json
import sys
import types

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row, samples, square

from analysis import comparison, spread, trust
from analysis.report import trust as section
from kernels.problems import Matmul
from workloads import cuda_bench_child, measure, options, pyperf_child, referee, refereeing, results, soundness, sweep
from workloads.cuda_bench_child import BATCH, CALLS, COLD
from workloads.results import Loaded, Measurement, Row, Run, Samples, Settings
from workloads.timing import Limits

RUN = Run(results.SCHEMA, CPU_MACHINE, {}, "python -m workloads.referee", 1, "a", "b", "2026-01-01T00:00:00Z")
ONE = Row("matmul/numpy/blas", Matmul(64, 64, 64), Settings(threads=1))


def beside(ours, theirs, clock="pyperf", name="pyperf 2.10.0", kernel="matmul/numpy/blas") -> Measurement:
    series = {"ours_s": tuple(ours), trust.OUTSIDERS[clock][0]: tuple(theirs)}
    both = (samples(ours[0]), samples(theirs[0], clock))
    return msgspec.structs.replace(row(kernel, square(64), None), samples=both, series=series, notes={"referee": name})


def judged(match: str, **values) -> Measurement:
    told = {"pairs": 50.0, "planted": 0.05, "false": 1.0, "found": 49.0, "least_effect": 0.02, **values}
    return msgspec.structs.replace(row("matmul/numpy/blas", square(96), None, threads=1), values=told,
                                   settings=Settings(threads=1, switches={"match": match}))  # fmt: skip


@pytest.mark.parametrize(("ours", "theirs", "clock", "ratio", "allowed", "within"), [
    ((1.0, 1.01, 1.02), (1.0, 1.0, 1.0), "pyperf", 1.01, 0.02, True),  # 2 % whatever the outsider's runs do
    ((1.05, 1.05, 1.05), (1.0, 1.0, 1.0), "pyperf", 1.05, 0.02, False),
    ((1.1, 1.21, 1.1), (1.0, 1.1, 1.0), "pyperf", 1.1, 0.1, True),  # its runs differ by 10 %, and drift cancels in a turn
    ((1.015, 1.015), (1.0, 1.0), "cuda-bench", 1.015, 0.01, False),
    ((1.015, 1.025), (1.0, 1.01), "cuda-bench", (1.015 + 1.025 / 1.01) / 2, 0.02, True),  # twice what its runs differ by
])  # fmt: skip
def test_ratios_and_what_they_may_be_off_by(ours, theirs, clock, ratio, allowed, within):
    (found,) = trust.beside([beside(ours, theirs, clock)])
    assert (
        found.ratio.value == pytest.approx(ratio) and found.allowed == pytest.approx(allowed) and found.within == within
    )


def test_rows_without_an_outsider_tell_nothing():
    assert trust.beside([row("matmul/numpy/blas", square(64), 1.0), judged("verdicts")]) == []
    assert (
        trust.sentences([row("matmul/numpy/blas", square(64), 1.0)]) == []
        and section.section([row("a/numpy/b", square(64), 1.0)]) == []
    )


def test_sentences_and_the_section():
    two = msgspec.structs.replace(beside((3.0, 3.0), (2.0, 2.0)), problem=square(128))
    over = msgspec.structs.replace(row("matmul/numpy/blas", square(8), None), samples=(
        Samples("host-latency", (1.0, 1.1, 0.9), 1, (0, 1, 2), "3 processes"),))  # fmt: skip
    rows = [
        beside((1.0, 1.0), (1.0, 1.0)),
        two,
        judged("verdicts"),
        judged("rigorous", planted=0.02, found=40.0, false=0.0),
        over,
    ]
    said = trust.sentences(rows)
    assert (
        said[0].startswith("Beside pyperf 2.10.0, 1 of 2 rows from 1.00 s to 2.00 s agree")
        and "off by 50.0 %" in said[0]
    )
    assert (
        "Of 50 pairs of rows that are alike (fresh processes in alternating blocks), 1 were called different" in said[1]
    )
    assert "found in 49 of 50" in said[1] and "five a side" in said[2] and "2.00 % was found in 40 of 50" in said[2]
    assert said[3].startswith(f"Single processes of a row differ by up to {100 * spread.limit(over.samples[0]):.1f} %")
    page = section.section(rows)
    assert page[0] == "## How far to trust this" and sum("| off |" in line for line in page) == 1
    told = trust.lines(Loaded((RUN,), tuple(rows), 0, ()))
    assert sum(line.endswith("off") for line in told) == 1
    flagged = msgspec.structs.replace(two, flags=("other-load",))
    assert any(line.endswith("off other-load") for line in trust.lines(Loaded((RUN,), (flagged,), 0, ())))


def test_the_page_has_the_section_only_with_a_referees_rows():
    from analysis.report.material import Material
    from analysis.report.page import markdown

    def page(*rows):
        return markdown(Material(Loaded((RUN,), rows, 0, ("x.jsonl",))), False)

    plain = row("matmul/numpy/blas", square(64), 1e-3, threads=1)
    assert "How far to trust" not in page(plain) and "## How far to trust this" in page(plain, judged("verdicts"))


def summary(tag: str, value: float) -> dict:
    return {"tag": tag, "data": [{"name": "hint", "type": "string", "value": "duration"},
                                 {"name": "value", "type": "float64", "value": repr(value)}]}  # fmt: skip


def test_cuda_benchs_file():
    cold, batch = (msgspec.structs.replace(ONE, settings=Settings("gpu:0", cache=c)) for c in ("cold", "warm"))
    states = [{"name": f"r{i}", "summaries": [summary("nv/batch/time/gpu/mean", CALLS * t), summary("nv/batch/walltime", 0.5)]}
              for i, t in enumerate((3e-6, 5e-6, 4e-6))]  # fmt: skip
    told = {"benchmarks": [
        {"name": "row1", "states": states},
        {"name": "row0", "states": [{"name": "x", "summaries": [
            summary("nv/cold/time/gpu/mean", 9e-3), summary("nv/cold/time/gpu/median", 2e-3), summary("nv/cold/sample_size", 50),
            summary("nv/cold/walltime", 1.25)]}]},
    ]}  # fmt: skip
    rows = [(COLD, cold), (BATCH, batch)]
    one, two = cuda_bench_child.read(told, rows)
    assert (one.seconds, one.samples, one.wall_s) == (2e-3, 50, 1.25) and one.row == cold
    assert (two.seconds, two.samples, two.wall_s) == (pytest.approx(4e-6), 3 * CALLS, 1.5)
    told["benchmarks"][1]["states"][0] = {
        "name": "x",
        "is_skipped": True,
        "skip_reason": "too short",
        "summaries": None,
    }
    with pytest.raises(KeyError, match="too short"):
        cuda_bench_child.read(told, rows)


def test_each_gpu_match_is_a_row_of_its_own():
    rows = refereeing.gpu_rows()
    assert len(rows) == 20 and len({r.key for _, r in rows}) == 20
    assert {r.settings.cache for f, r in rows if f == COLD} == {"cold"} and {
        r.settings.cache for f, r in rows if f == BATCH
    } == {"warm"}
    assert len(refereeing.cpu_rows()) == 10 == len({r.key for r in refereeing.cpu_rows()})
    spreads = refereeing.spread_rows(GPU_MACHINE)
    assert any(r.settings.device == "gpu:0" for r in spreads) and len({r.key for r in spreads}) == len(spreads)
    assert all(r.settings.device == "gpu:0" for r in refereeing.verdict_rows(GPU_MACHINE))


def test_turns_with_cuda_bench(monkeypatch):
    rows, order = refereeing.gpu_rows()[:2], []

    def answer(side, asked, seed, path):
        order.append(side)
        return [cuda_bench_child.Timed(r, 2e-6 if side == "ours" else 1e-6, 5, 0.25) for _, r in asked]

    monkeypatch.setattr(refereeing, "_gpu_child", answer)
    monkeypatch.setattr(refereeing, "version", lambda package: "0.3.0")
    made = list(refereeing.gpu(rows, 2, 1))
    assert order == ["cuda-bench", "ours", "ours", "cuda-bench"] and [m.row for m in made] == [r for _, r in rows]
    assert made[0].series == {"ours_s": (2e-6,) * 2, "cuda_bench_s": (1e-6,) * 2} and made[0].notes["form"] == BATCH
    assert made[0].on("device").block == (0, 1) and trust.beside(made)[0].ratio.value == 2
    assert all(soundness.sound(m) for m in made)


def test_restarts(monkeypatch):
    told = {"reference_s": 1.0, "ours_s": [1.0, 1.009, 1.02], "ours_wall_s": [0.2, 0.3, 0.4], "theirs_s": [0.991, 1.5, 2.0],
            "theirs_wall_s": [1.0, 1.0, 4.0]}  # fmt: skip

    def child(words, text=""):
        with open(words[2], "w") as file:
            json.dump(told, file)

    monkeypatch.setattr(refereeing, "child", child)
    monkeypatch.setattr(refereeing, "version", lambda package: "0.3.0")
    (found,) = trust.restarted([refereeing.restarts(refereeing.gpu_rows()[-1][1], 3, 30.0, 1)])
    assert (found.count, found.ours, found.theirs, found.ours_s, found.theirs_s) == (3, 2, 1, 0.3, 1.0)


def test_turns_with_pyperf(monkeypatch):
    runs = [types.SimpleNamespace(values=(), get_total_loops=lambda: 1)]  # a calibration has no values
    runs += [types.SimpleNamespace(values=(t, t + 1e-6), get_total_loops=lambda: 512) for t in (1e-6, 3e-6)]
    module = types.ModuleType("pyperf")
    module.Benchmark = types.SimpleNamespace(load=lambda path: types.SimpleNamespace(get_runs=lambda: runs))
    monkeypatch.setitem(sys.modules, "pyperf", module)
    asked = []
    monkeypatch.setattr(refereeing, "child", lambda words, text="", variables=None: asked.append(words))
    monkeypatch.setattr(refereeing, "version", lambda package: "2.10.0")
    mine = Samples("host-latency", (5e-6, 6e-6, 5e-6), 9, (0, 1, 2), "3 processes")
    done = Measurement(ONE.kernel, ONE.problem, ONE.settings, "ok", samples=(mine,))
    monkeypatch.setattr(refereeing, "fresh", lambda *given: done)
    made = refereeing.cpu(ONE, 2, 3, Limits(), 7)
    assert made.series == {"ours_s": (5e-6, 5e-6), "pyperf_s": (pytest.approx(2.5e-6),) * 2}
    theirs = made.on("pyperf")
    assert theirs.block == (0, 0, 1, 1, 2, 2, 3, 3) and theirs.calls == 512 and theirs.stop_reason == "4 processes"
    assert made.on("host-latency").block == (0, 1, 2, 3, 4, 5) and made.notes == {"referee": "pyperf 2.10.0"}
    assert len(asked) == 2 and asked[0][:2] == [pyperf_child.MODULE, "--row"] and "7" in asked[0]
    assert msgspec.json.decode(asked[0][2], type=Row) == ONE


def test_the_call_that_pyperf_gets_is_ours(monkeypatch):
    run = pyperf_child.call(ONE, 1)
    a, b = ONE.problem.inputs(1)
    assert run() == pytest.approx(a @ b, abs=1e-3)
    with pytest.raises(measure.CannotDo):
        pyperf_child.call(msgspec.structs.replace(ONE, problem=Matmul(8, 8, 8, "float32", "tf32")), 1)


def test_a_program_that_fails_says_its_last_words():
    with pytest.raises(refereeing.Unfit, match=r"workloads.pyperf_child ended with exit code \d: .*(row|pyperf)"):
        refereeing.child([pyperf_child.MODULE, "--nonsense"])
    with pytest.raises(refereeing.Unfit, match="pip install nosuch"):
        refereeing.version("nosuch")


@pytest.mark.parametrize("processes", [1, 5])
def test_verdicts_on_a_planted_truth(monkeypatch, processes):
    """A triple is two sides alike and one slowed down; `compare` itself judges them, as pairs."""
    handed = []

    def alternate(rows, limits, seed, handicaps):
        handed.append(handicaps)
        return [Measurement(ONE.kernel, ONE.problem, ONE.settings, "ok", samples=(
            samples((1 + h) * (1 + 0.0005 * (i % 3)) * 1e-3, blocks=8),)) for i, h in enumerate(handicaps)]  # fmt: skip

    monkeypatch.setattr(sweep, "alternate", alternate)
    known = Measurement(ONE.kernel, Matmul(8, 8, 8), ONE.settings, "ok", samples=(
        Samples("host-latency", (1.0, 1.001, 0.999), 1, (0, 1, 2), "3 processes"),))  # fmt: skip
    monkeypatch.setattr(spread, "stored", lambda key, more=(): spread.Stored([known]))
    made = refereeing.verdicts(ONE, 3, Limits(), 1, processes == 5, RUN)
    planted = refereeing.PLANTED_RIGOROUS if processes == 5 else refereeing.PLANTED
    assert handed == [[0.0] * processes * 2 + [planted] * processes] * 3
    assert made.values["pairs"] == 3 and made.values["false"] == 0 and made.values["found"] == 3
    assert made.values["least_effect"] == (comparison.OVER_PROCESSES if processes == 5 else comparison.MIN_EFFECT)
    assert made.key == refereeing.judged(ONE, processes == 5).key != ONE.key
    assert trust.truths([made])[0].found == 3


class TestTheCommand:
    @pytest.fixture(autouse=True)
    def here(self, monkeypatch):
        monkeypatch.setattr(sweep, "header", lambda args, command: msgspec.structs.replace(RUN, command=command))
        monkeypatch.setattr(refereeing, "version", lambda package: "1")
        monkeypatch.setattr(refereeing, "cpu", lambda row, *how: msgspec.structs.replace(
            beside((1.0, 1.0), (1.0, 1.0)), kernel=row.kernel, problem=row.problem, settings=row.settings))  # fmt: skip

    def test_a_match_and_its_resumption(self, tmp_path, capsys, monkeypatch):
        argv = ["--only", "cpu", "--rows", "1,2", "-q", "-o", str(tmp_path)]
        assert referee.main([*argv, "--stop-after", "1e-9"]) == options.OK
        out, err = capsys.readouterr()
        assert "stopped by stop-after" in err and "--resume" in err and "1 row" in out
        assert referee.main([*argv, "--resume"]) == options.OK
        assert len(results.read(tmp_path).measurements) == 2
        monkeypatch.setattr(refereeing, "cpu", lambda *given: pytest.fail("measured again"))
        assert referee.main([*argv, "--resume"]) == options.OK
        lines = (tmp_path / "referee.jsonl").read_text().splitlines()
        assert sum('"measurement"' in line for line in lines) == 2  # none is written twice
        assert "2 of 2 rows" in capsys.readouterr().out

    def test_what_cannot_be_held_is_left_out_with_the_reason(self, tmp_path, capsys, monkeypatch):
        assert referee.main(["--only", "gpu", "restarts", "-q", "-o", str(tmp_path / "a")]) == options.MISSING
        out, err = capsys.readouterr()
        assert "left out: gpu: no GPU here" in err and "left out: restarts" in err and "no match could be held" in out

        def lacking(*given):
            raise refereeing.Unfit("pyperf is not installed")

        monkeypatch.setattr(refereeing, "cpu", lacking)
        assert referee.main(["--only", "cpu", "-q", "-o", str(tmp_path / "b")]) == options.MISSING
        assert "left out: cpu: pyperf is not installed" in capsys.readouterr().err

    def test_bad_words(self, capsys, tmp_path):
        for argv, message in (
            (["--only", "chess"], "unknown match 'chess'"),
            (["--turns", "0"], "whole number from 1"),
        ):
            assert referee.main([*argv, "-o", str(tmp_path / "x")]) == options.USAGE
            assert message in capsys.readouterr().err

    def test_a_failed_row_is_exit_1(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(
            refereeing, "cpu", lambda row, *how: Measurement(row.kernel, row.problem, row.settings, "failed", "no")
        )
        assert referee.main(["--only", "cpu", "--rows", "1", "-q", "-o", str(tmp_path)]) == options.FAILED
        assert "failed: matmul/numpy/blas: no" in capsys.readouterr().err
