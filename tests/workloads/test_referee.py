"""The referee: what outsiders' files say, ratios and counts worked out by hand, matches that cannot be held here."""

import argparse
import json
import math
import sys
import types

import msgspec
import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, answer, row, samples, square

from analysis import noise
from analysis.checks import referee as trust
from analysis.compare import comparison
from analysis.report.sections import method
from kernels.problems import Matmul, Stream
from workloads import options, records
from workloads.harness import one_row, sweep
from workloads.harness.timing import Limits
from workloads.records import Loaded, Measurement, Row, Run, Samples, Settings
from workloads.referee import command as referee
from workloads.referee import cuda_bench_child, outsiders, pyperf_child
from workloads.referee import verdicts as judging
from workloads.referee.cuda_bench_child import BATCH, CALLS, COLD

RUN = Run(records.SCHEMA, CPU_MACHINE, {}, "python -m workloads.referee", 1, "a", "b", "2026-01-01T00:00:00Z")
ONE = Row("matmul/numpy/blas", Matmul(64, 64, 64), Settings(threads=1))
THREE = Samples("host-latency", (1.0, 1.01, 0.99), 1, (0, 1, 2), "3 processes")


def beside(ours, theirs, clock="pyperf", name="pyperf 2.10.0", kernel="matmul/numpy/blas") -> Measurement:
    series = {"ours_s": tuple(ours), trust.OUTSIDERS[clock][0]: tuple(theirs)}
    both = (samples(ours[0]), samples(theirs[0], clock))
    return msgspec.structs.replace(row(kernel, square(64), None), samples=both, series=series, notes={"referee": name})


def judged(match: str, **values) -> Measurement:
    told = {"pairs": 50.0, "planted": 0.05, "false": 1.0, "found": 49.0, "least_effect": 0.02, **values}
    settings = Settings(threads=1, switches={"match": match})
    return msgspec.structs.replace(row("matmul/numpy/blas", square(96), None), values=told, settings=settings)


@pytest.mark.parametrize(
    ("ours", "theirs", "clock", "ratio", "allowed", "within"),
    [
        ((1.0, 1.01, 1.02), (1.0, 1.0, 1.0), "pyperf", 1.01, 0.02, True),  # 2 % whatever the outsider's runs do
        ((1.05, 1.05, 1.05), (1.0, 1.0, 1.0), "pyperf", 1.05, 0.02, False),
        # its runs differ by 10 %, and drift cancels in a turn
        ((1.1, 1.21, 1.1), (1.0, 1.1, 1.0), "pyperf", 1.1, 0.1, True),
        ((1.015, 1.015), (1.0, 1.0), "cuda-bench", 1.015, 0.01, False),
        # twice what its runs differ by
        ((1.015, 1.025), (1.0, 1.01), "cuda-bench", (1.015 + 1.025 / 1.01) / 2, 0.02, True),
    ],
)
def test_ratios_and_what_they_may_be_off_by(ours, theirs, clock, ratio, allowed, within):
    (found,) = trust.clock_ratios([beside(ours, theirs, clock)])
    assert found.ratio.value == pytest.approx(ratio)
    assert found.allowed == pytest.approx(allowed) and found.within == within


def test_rows_without_an_outsider_tell_nothing():
    assert trust.clock_ratios([row("matmul/numpy/blas", square(64), 1.0), judged("verdicts")]) == []
    assert trust.sentences([row("matmul/numpy/blas", square(64), 1.0)]) == []
    assert method.trust_section([row("a/numpy/b", square(64), 1.0)]) == []


def test_sentences_and_the_section():
    two = msgspec.structs.replace(beside((3.0, 3.0), (2.0, 2.0)), problem=square(128))
    three = msgspec.structs.replace(THREE, seconds=(1.0, 1.1, 0.9))
    over = msgspec.structs.replace(row("matmul/numpy/blas", square(8), None), samples=(three,))
    alike = judged("rigorous", planted=0.02, found=40.0, false=0.0)
    rows = [beside((1.0, 1.0), (1.0, 1.0)), two, judged("verdicts"), alike, over]
    said = trust.sentences(rows)
    assert said[0].startswith("Beside pyperf 2.10.0, 1 of 2 rows from 1.00 s to 2.00 s agree")
    assert "off by 50.0 %" in said[0]
    expected = "Of 50 pairs of rows that are alike (fresh processes in alternating blocks), 1 were called different"
    assert expected in said[1]
    assert "found in 49 of 50" in said[1] and "five a side" in said[2] and "2.00 % was found in 40 of 50" in said[2]
    logs = [math.log(x) for x in (1.0, 1.1, 0.9)]
    variance = sum((x - sum(logs) / 3) ** 2 for x in logs) / 2
    limit = math.expm1(min(9.924843 * math.sqrt(2 * variance), 1.0))
    assert said[3].startswith(f"Two single processes of a row stay within {100 * limit:.0f} % in 99 of 100 pairs")
    page = method.trust_section(rows)
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
    told = [("hint", "string", "duration"), ("value", "float64", repr(value))]
    return {"tag": tag, "data": [{"name": name, "type": kind, "value": v} for name, kind, v in told]}


def test_cuda_benchs_file():
    cold, batch = (msgspec.structs.replace(ONE, settings=Settings("gpu:0", cache=c)) for c in ("cold", "warm"))
    walls = summary("nv/batch/walltime", 0.5)
    times = [summary("nv/batch/time/gpu/mean", CALLS * t) for t in (3e-6, 5e-6, 4e-6)]
    states = [{"name": f"r{i}", "summaries": [time, walls]} for i, time in enumerate(times)]
    figures = {"time/gpu/mean": 9e-3, "time/gpu/median": 2e-3, "sample_size": 50, "walltime": 1.25}
    alone = [{"name": "x", "summaries": [summary(f"nv/cold/{name}", value) for name, value in figures.items()]}]
    told = {"benchmarks": [{"name": "row1", "states": states}, {"name": "row0", "states": alone}]}
    rows = [(COLD, cold), (BATCH, batch)]
    one, two = cuda_bench_child.read(told, rows)
    assert (one.seconds, one.samples, one.wall_s) == (2e-3, 50, 1.25) and one.row == cold
    assert (two.seconds, two.samples, two.wall_s) == (pytest.approx(4e-6), 3 * CALLS, 1.5)
    alone[0] = {"name": "x", "is_skipped": True, "skip_reason": "too short", "summaries": None}
    with pytest.raises(KeyError, match="too short"):
        cuda_bench_child.read(told, rows)


def test_each_gpu_match_is_a_row_of_its_own():
    rows = outsiders.gpu_rows()
    assert len(rows) == 20 and len({r.key for _, r in rows}) == 20
    assert {r.settings.cache for f, r in rows if f == COLD} == {"cold"}
    assert {r.settings.cache for f, r in rows if f == BATCH} == {"warm"}
    assert len(outsiders.cpu_rows()) == 10 == len({r.key for r in outsiders.cpu_rows()})
    spreads = judging.spread_rows(GPU_MACHINE)
    assert any(r.settings.device == "gpu:0" for r in spreads) and len({r.key for r in spreads}) == len(spreads)
    assert all(r.settings.device == "gpu:0" for r in judging.verdict_rows(GPU_MACHINE))
    # A row timed the outsider's way is no row of a sweep: neither its times nor its spread are a sweep's.
    assert all(r.settings.switches[noise.MATCH] == "cuda-bench" for _, r in rows)
    assert not {r.key for _, r in rows} & {r.key for r in spreads}  # all lie in one file
    seconds, block = (1e-3, 1.5e-3, 2e-3, 0.5e-3), (0, 1, 2, 3)
    theirs = [answer(r, Samples("device", seconds, 1, block, "4 processes")) for _, r in rows]
    assert len(noise.Stored(theirs)) == 0


def test_turns_with_cuda_bench(monkeypatch):
    """What a turn said is there after it; further turns are added to what there is, to each row what it lacks."""
    rows, order = outsiders.gpu_rows()[:2], []

    def answer(side, asked, seed, path):
        order.append((side, len(asked)))
        return [cuda_bench_child.Timed(r, (2e-6 if side == "ours" else 1e-6) * len(order), 5, 0.25) for _, r in asked]

    monkeypatch.setattr(outsiders, "_gpu_child", answer)
    monkeypatch.setattr(outsiders, "version", lambda package: "0.3.0")
    first, made = outsiders.gpu(rows, 2, 1, {})
    assert order == [("cuda-bench", 2), ("ours", 2), ("ours", 2), ("cuda-bench", 2)]
    assert [m.row for m in made] == [r for _, r in rows] and made[0].notes["form"] == BATCH
    expected = {"ours_s": (4e-6,), "ours_wall_s": (0.25,), "cuda_bench_s": (1e-6,), "theirs_wall_s": (0.25,)}
    assert first[0].series == expected
    assert made[0].series["ours_s"] == (4e-6, 6e-6) and made[0].series["cuda_bench_s"] == (1e-6, 4e-6)
    assert made[0].on("device").block == (0, 1) and trust.clock_ratios(made)[0].ratio.value == 2.75  # 4 / 1 and 6 / 4
    assert all(records.sound(m) for m in made)
    before = {rows[0][1].key: first[0], rows[1][1].key: made[1]}
    order.clear()
    (last,) = outsiders.gpu(rows, 2, 1, before)
    assert order == [("ours", 1), ("cuda-bench", 1)] and last[1] == made[1]
    assert last[0].series["ours_s"] == (4e-6, 2e-6)
    assert list(outsiders.gpu(rows, 2, 1, {m.key: m for m in last})) == [last] and len(order) == 2


def test_restarts(monkeypatch):
    ours = {"reference_s": 1.0, "ours_s": [1.0, 1.009, 1.02], "ours_wall_s": [0.2, 0.3, 0.4]}
    told = ours | {"theirs_s": [0.991, 1.5, 2.0], "theirs_wall_s": [1.0, 1.0, 4.0]}

    def child(words, text=""):
        with open(words[2], "w") as file:
            json.dump(told, file)

    monkeypatch.setattr(outsiders, "child", child)
    monkeypatch.setattr(outsiders, "version", lambda package: "0.3.0")
    (found,) = trust.restarted([outsiders.restarts(outsiders.gpu_rows()[-1][1], 3, 30.0, 1)])
    assert (found.count, found.ours, found.theirs, found.ours_s, found.theirs_s) == (3, 2, 1, 0.3, 1.0)


def test_turns_with_pyperf(monkeypatch):
    runs = [types.SimpleNamespace(values=(), get_total_loops=lambda: 1)]  # a calibration has no values
    runs += [types.SimpleNamespace(values=(t, t + 1e-6), get_total_loops=lambda: 512) for t in (1e-6, 3e-6)]
    module = types.ModuleType("pyperf")
    module.Benchmark = types.SimpleNamespace(load=lambda path: types.SimpleNamespace(get_runs=lambda: runs))
    monkeypatch.setitem(sys.modules, "pyperf", module)
    asked = []

    def child(words, text="", variables=None):
        asked.append(words)
        with open(words[words.index("--ours") + 1], "ab") as file:
            for seconds in (5e-6, 6e-6, 5e-6):
                mine = Samples("host-latency", (seconds,) * 2, 9, (0, 1), "steady")
                done = answer(ONE, mine, flags=("cpu-clock",))
                file.write(msgspec.json.encode(done) + b"\n")

    monkeypatch.setattr(outsiders, "child", child)
    monkeypatch.setattr(outsiders, "version", lambda package: "2.10.0")
    made = outsiders.cpu(ONE, 2, 3, Limits(max_time=0.25), 7)
    assert made.series == {"ours_s": (5e-6, 5e-6), "pyperf_s": (pytest.approx(2.5e-6),) * 2}
    theirs = made.on("pyperf")
    assert theirs.block == (0, 0, 1, 1, 2, 2, 3, 3) and theirs.calls == 512 and theirs.stop_reason == "4 processes"
    assert made.on("host-latency").block == (0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5) and made.flags == ("cpu-clock",)
    assert made.notes == {"referee": "pyperf 2.10.0"} and noise.over_processes(made.on("host-latency"))
    given = [dict(zip(words[1::2], words[2::2], strict=False)) for words in asked]
    assert len(asked) == 2 and asked[0][0] == pyperf_child.MODULE and given[0]["--ours"] != given[1]["--ours"]
    assert msgspec.json.decode(given[0]["--row"], type=Row) == ONE and given[0]["--seed"] == "7"
    assert msgspec.json.decode(given[0]["--limits"], type=Limits) == Limits(max_time=0.25)


def test_both_time_the_same_call():
    both = pyperf_child.Both(ONE, 1)
    a, b = ONE.problem.inputs(1)
    assert both.run() == pytest.approx(a @ b, abs=1e-3) and both.check() is None
    with pytest.raises(one_row.CannotDo):
        pyperf_child.Both(msgspec.structs.replace(ONE, problem=Matmul(8, 8, 8, "float32", "tf32")), 1)
    with pytest.raises(ValueError, match="64 times a call"):
        pyperf_child.Both(Row("stream/numba/loop", Stream("triad", 1 << 20), Settings(threads=1)), 1)


def test_each_of_pyperfs_processes_holds_both_in_turns(tmp_path, monkeypatch):
    """The first is pyperf's calibration and checks the answer; then ours after theirs, ours before theirs, and so on."""
    order = []

    class Both:
        run = None

        def __init__(self, row, seed):
            assert row == ONE and seed == 3

        def check(self):
            order.append("check")

        def ours(self, limits):
            order.append("ours")
            return answer(ONE)

    def runner(**given):
        parser = argparse.ArgumentParser()
        for flag in ("--worker", "--calibrate-loops", "--recalibrate-loops"):
            parser.add_argument(flag, action="store_true")
        timeit = {"timeit": lambda name, stmt, globals: order.append("theirs")}
        return types.SimpleNamespace(argparser=parser, parse_args=parser.parse_args, **timeit)

    module = types.ModuleType("pyperf")
    module.Runner = runner
    monkeypatch.setitem(sys.modules, "pyperf", module)
    monkeypatch.setattr(pyperf_child, "Both", Both)
    one, ours = msgspec.json.encode(ONE).decode(), str(tmp_path / "ours")
    words = ["x", "--row", one, "--seed", "3", "--ours", ours, "--worker"]
    for more in (["--calibrate-loops"], [], [], []):
        monkeypatch.setattr(sys, "argv", [*words, *more])
        pyperf_child.main()
    assert order == ["check", "theirs", "theirs", "ours", "ours", "theirs", "theirs", "ours"]
    monkeypatch.setattr(sys, "argv", words[:-1])
    pyperf_child.main()  # pyperf's own manager times nothing
    assert len((tmp_path / "ours").read_bytes().splitlines()) == 3 and order[-1] == "theirs"


def test_a_program_that_fails_says_its_last_words():
    with pytest.raises(
        outsiders.Unfit, match=r"workloads.referee.pyperf_child ended with exit code \d: .*(row|pyperf)"
    ):
        outsiders.child([pyperf_child.MODULE, "--nonsense"])
    with pytest.raises(outsiders.Unfit, match="pip install nosuch"):
        outsiders.version("nosuch")


@pytest.mark.parametrize("processes", [1, 5])
def test_verdicts_on_a_planted_truth(monkeypatch, processes):
    """A triple is two sides alike and one slowed down; `compare` itself judges them, as pairs."""
    handed = []

    def alternate(rows, limits, seed, handicaps):
        handed.append(handicaps)
        seconds = [(1 + h) * (1 + 0.0005 * (i % 3)) * 1e-3 for i, h in enumerate(handicaps)]
        return [answer(ONE, samples(s, blocks=8)) for s in seconds]

    monkeypatch.setattr(sweep, "alternate", alternate)
    known = msgspec.structs.replace(THREE, seconds=(1.0, 1.001, 0.999))
    known = answer(msgspec.structs.replace(ONE, problem=Matmul(8, 8, 8)), known)
    monkeypatch.setattr(noise, "stored", lambda key, more=(): noise.Stored([known]))
    *_, made = judging.verdicts(ONE, 3, Limits(), 1, processes == 5, RUN)
    planted = judging.PLANTED_RIGOROUS if processes == 5 else judging.PLANTED
    assert handed == [[0.0] * processes * 2 + [planted] * processes] * 3
    assert made.values["pairs"] == 3 and made.values["false"] == 0 and made.values["found"] == 3
    assert made.values["least_effect"] == (comparison.OVER_PROCESSES if processes == 5 else comparison.MIN_EFFECT)
    assert made.key == judging.judged(ONE, "rigorous" if processes == 5 else "verdicts").key != ONE.key
    assert trust.truths([made])[0].found == 3
    *_, more = judging.verdicts(ONE, 7, Limits(), 1, processes == 5, RUN, made)  # those that lack
    assert len(handed) == 7 and more.values["pairs"] == 7 == more.values["found"] and len(more.series["aa_ratio"]) == 7


def test_rows_of_two_triples_are_never_pairs_whatever_their_seeds(monkeypatch):
    def alternate(rows, limits, seed, handicaps):
        return [answer(ONE, samples(1e-3, blocks=8)) for _ in rows]

    monkeypatch.setattr(sweep, "alternate", alternate)
    one, two = (judging._triple(ONE, Limits(), 1, 0.05, 1) for _ in range(2))
    notes = [{m.notes[comparison.SIDE_BY_SIDE] for m in triple} for triple in (one, two)]
    assert len(notes[0]) == len(notes[1]) == 1 and notes[0] != notes[1]


def test_a_row_in_turns_has_what_is_common_to_a_round_taken_out(monkeypatch):
    """Process p is p % slower, the host 10 % slower in every other round: what is left is the processes' own."""

    def alternate(rows, limits, seed):
        times = [tuple((1 + 0.01 * p) * (1.1 if i % 2 else 1.0) * 1e-3 for i in range(9)) for p in range(len(rows))]
        return [answer(ONE, Samples("host-latency", t, 5, tuple(range(9)), "alternating blocks")) for t in times]

    monkeypatch.setattr(sweep, "alternate", alternate)
    made = judging.in_turns(ONE, Limits(), 1, 3)
    assert made.key == judging.judged(ONE, "turns").key and noise.in_turns(made.samples[0])
    assert not noise.over_processes(made.samples[0]) and made.samples[0].block == (0,) * 9 + (1,) * 9 + (2,) * 9
    expected = [(1 + 0.01 * p) * 1e-3 for p in range(3) for _ in range(9)]
    assert made.samples[0].seconds == pytest.approx(expected, rel=1e-5)
    logs = [math.log(1 + 0.01 * p) for p in range(3)]
    variance = sum((x - sum(logs) / 3) ** 2 for x in logs) / 2
    (told,) = trust.spreads([made])
    assert told.turns and told.limit == pytest.approx(math.expm1(9.924843 * math.sqrt(2 * variance)), rel=1e-3)
    assert told.name == "matmul/numpy/blas m=64 n=64 k=64 threads=1" and "take turns" in trust.sentences([made])[0]


def test_processes_of_a_row_are_spread_over_the_time_and_added_to(monkeypatch):
    asked = []

    class Worker:
        def __init__(self, variables):
            pass

        def ask(self, order, timeout_s):
            asked.append(order.row.problem.n)
            taken = Samples("host-latency", (1.0 + len(asked), 1.0), 1, (0, 1), "steady")
            return answer(order.row, taken, flags=("cpu-clock",))

        def close(self):
            pass

    monkeypatch.setattr(judging, "Worker", Worker)
    other = msgspec.structs.replace(ONE, problem=Matmul(8, 8, 8))
    one, two = judging.fresh([ONE, other], Limits(), 1, 3, {})
    assert asked == [64, 8, 64, 8, 64, 8] and one.samples[0].stop_reason == "3 processes" == two.samples[0].stop_reason
    both = (*two.samples, Samples("pyperf", (1.0,), 1, (0,), "x"))
    known = msgspec.structs.replace(two, notes={"referee": "pyperf 2"}, samples=both)
    asked.clear()
    same, more = judging.fresh([ONE, other], Limits(), 1, 5, {ONE.key: msgspec.structs.replace(one), other.key: known})
    assert asked == [64, 8, 64, 8] and {len(set(m.samples[0].block)) for m in (same, more)} == {5}
    assert more.samples[0].seconds[:6] == two.samples[0].seconds and more.samples[0].stop_reason == "5 processes"
    # a match's row keeps what it has
    assert more.notes == {"referee": "pyperf 2"} and more.on("pyperf").seconds == (1.0,)
    assert judging.fresh([ONE], Limits(), 1, 5, {ONE.key: same}) == [same] and len(asked) == 4
    ask = Worker.ask
    for spoiled in ({"flags": ("other-load",)}, {"status": "failed", "samples": ()}):
        monkeypatch.setattr(Worker, "ask", lambda *given, s=spoiled: msgspec.structs.replace(ask(*given), **s))
        assert judging.fresh([ONE], Limits(), 1, 7, {ONE.key: same}) == [same], "nothing is taken from what there was"


def test_when_processes_were_taken_is_kept_and_makes_occasions_of_them(monkeypatch):
    """Three processes at noon, of which the file did not say when; two more ten minutes later, then one an hour."""
    clocks = ["12:00"] * 3 + ["12:10"] * 2 + ["13:00", "14:00", "15:00"]
    at = (f"2026-11-22T{clock}:00Z" for clock in clocks)
    middles = iter([1.0] * 3 + [1.02] * 2 + [1.03, 1.04, 1.05])

    class Worker:
        def __init__(self, variables):
            pass

        def ask(self, order, timeout_s):
            return answer(ONE, samples(next(middles), blocks=2), at=next(at))

        def close(self):
            pass

    monkeypatch.setattr(judging, "Worker", Worker)
    (first,) = judging.fresh([ONE], Limits(), 1, 3, {})
    noon = 1795348800.0  # 2026-11-22 12:00 UTC
    assert first.series[noise.TAKEN] == (noon,) * 3
    untold = msgspec.structs.replace(first, series={})
    (second,) = judging.fresh([ONE], Limits(), 1, 5, {ONE.key: untold})
    (third,) = judging.fresh([ONE], Limits(), 1, 8, {ONE.key: second})
    assert third.series[noise.TAKEN] == (*[noon] * 3, *[noon + 600] * 2, noon + 3600, noon + 7200, noon + 10800)
    assert noise.moments(third, third.samples[0]) == [[0, 1, 2], [3, 4], [5], [6], [7]]
    alone, apart = trust.spreads([third])
    logs = [math.log(x) for x in (1.0, 1.02, 1.03, 1.04, 1.05)]
    variance = sum((x - sum(logs) / 5) ** 2 for x in logs) / 4
    assert apart.limit == pytest.approx(math.expm1(4.604095 * math.sqrt(2 * variance)), rel=1e-3)
    assert (alone.how, alone.processes, apart.how, apart.processes) == ("one by one", 8, "at 5 occasions", 8)
    assert sum("the middles of two occasions stay within" in said for said in trust.sentences([third])) == 1
    assert len(trust.spreads([second])) == 1


class TestTheCommand:
    @pytest.fixture(autouse=True)
    def here(self, monkeypatch):
        monkeypatch.setattr(sweep, "header", lambda args, command: msgspec.structs.replace(RUN, command=command))
        monkeypatch.setattr(outsiders, "version", lambda package: "1")
        both = beside((1.0, 1.0), (1.0, 1.0))
        monkeypatch.setattr(
            outsiders, "cpu", lambda row, *how: answer(row, *both.samples, series=both.series, notes=both.notes)
        )

    def test_a_match_and_its_resumption(self, tmp_path, capsys, monkeypatch):
        argv = ["--only", "cpu", "--rows", "1,2", "-q", "-o", str(tmp_path)]
        assert referee.main([*argv, "--stop-after", "1e-9"]) == options.OK
        out, err = capsys.readouterr()
        assert "stopped by stop-after" in err and "--resume" in err and "1 row" in out
        assert referee.main([*argv, "--resume"]) == options.OK
        assert len(records.read(tmp_path).measurements) == 2
        monkeypatch.setattr(outsiders, "cpu", lambda *given: pytest.fail("measured again"))
        assert referee.main([*argv, "--resume"]) == options.OK
        lines = (tmp_path / "referee.jsonl").read_text().splitlines()
        assert sum('"measurement"' in line for line in lines) == 2  # none is written twice
        assert "2 of 2 rows" in capsys.readouterr().out

    def test_the_spread_and_the_verdicts_are_added_to(self, tmp_path, capsys, monkeypatch):
        asked = []

        def fresh(rows, limits, seed, processes, done):
            asked.append((len(rows), processes, len(done)))
            return [answer(r, THREE) for r in rows]

        def in_turns(r, *how):
            asked.append(r.key)
            made = msgspec.structs.replace(THREE, stop_reason="3 processes in turns")
            return answer(judging.judged(r, judging.TURNS), made)

        def verdicts(r, pairs, limits, seed, rigorous, here, before):
            for n in range(int(before.values["pairs"]) if before else 0, pairs):
                yield msgspec.structs.replace(judged("verdicts", pairs=n + 1.0), kernel=r.kernel, problem=r.problem)

        for name, fake in (("fresh", fresh), ("in_turns", in_turns), ("verdicts", verdicts)):
            monkeypatch.setattr(judging, name, fake)
        count = len(judging.spread_rows(CPU_MACHINE))
        argv = ["--only", "spread", "-q", "-o", str(tmp_path), "--rows", "1", str(count + 1), "--turns"]
        assert referee.main([*argv, "4"]) == options.OK == referee.main([*argv, "8", "--resume"])
        first = judging.verdict_rows(CPU_MACHINE)[0]
        assert asked == [(1, 4, 0), first.key, (1, 8, 2)]  # what took turns is not measured again
        argv = ["--only", "verdicts", "-q", "-o", str(tmp_path), "--rows", "1", "--resume", "--pairs"]
        assert referee.main([*argv, "2"]) == options.OK == referee.main([*argv, "3"])
        lines = (tmp_path / "referee.jsonl").read_text().splitlines()
        expected = [True, True, False, True]
        assert [f'"pairs":{n}.0' in line for line, n in zip(lines[-4:], (1, 2, 0, 3), strict=True)] == expected
        assert "Of 3 pairs of rows that are alike" in capsys.readouterr().out

    def test_what_cannot_be_held_is_left_out_with_the_reason(self, tmp_path, capsys, monkeypatch):
        assert referee.main(["--only", "gpu", "restarts", "-q", "-o", str(tmp_path / "a")]) == options.MISSING
        out, err = capsys.readouterr()
        assert "left out: gpu: no GPU here" in err and "left out: restarts" in err and "no match could be held" in out

        def lacking(*given):
            raise outsiders.Unfit("pyperf is not installed")

        monkeypatch.setattr(outsiders, "cpu", lacking)
        assert referee.main(["--only", "cpu", "-q", "-o", str(tmp_path / "b")]) == options.MISSING
        assert "left out: cpu: pyperf is not installed" in capsys.readouterr().err

    def test_bad_words(self, capsys, tmp_path):
        for argv, message in (["--only", "chess"], "unknown match 'chess'"), (["--turns", "0"], "whole number from 1"):
            assert referee.main([*argv, "-o", str(tmp_path / "x")]) == options.USAGE
            assert message in capsys.readouterr().err

    def test_a_failed_row_is_exit_1(self, tmp_path, monkeypatch, capsys):
        monkeypatch.setattr(outsiders, "cpu", lambda row, *how: answer(row, status="failed", reason="no"))
        assert referee.main(["--only", "cpu", "--rows", "1", "-q", "-o", str(tmp_path)]) == options.FAILED
        assert "failed: matmul/numpy/blas: no" in capsys.readouterr().err
