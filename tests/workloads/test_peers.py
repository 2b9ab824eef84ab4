"""Several GPUs of a host: the counts worked out by hand, what is planned, what is said, and what one GPU is told."""

import types

import fake_measurements as fake
import numpy as np
import pytest

from analysis.blocks import markdown
from analysis.fleet import devices
from analysis.report.sections import several_gpus
from analysis.roofline import peers as rates
from analysis.text import several_gpus as words
from kernels.problems import AllReduce, AtOnce, Matmul, PeerCopy, Stream, Transfer
from workloads import options, peers, records, suite
from workloads.frameworks import work_windows
from workloads.harness import concurrent, sweep
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Measurement, Row, Samples, Settings
from workloads.suite_parts import suite_steps

MIB = 1 << 20


def host(gpus: int) -> records.Machine:
    return fake.with_gpus(*(f"GPU-{i}" for i in range(gpus)))


def planned(*argv: str, gpus: int) -> list[Row]:
    return peers.parse(argv).rows(host(gpus))


def test_bus_bytes_match_nccl_tests():
    """Its busbw is algbw * 2 (n - 1) / n: of 256 MiB in 1 ms 268 GB/s over two GPUs, 1.5 times that over four, 1.75 over 8."""
    for gpus, share in (("0,1", 1.0), ("0,1,2,3", 1.5), ("0,1,2,3,4,5,6,7", 1.75)):
        variant = "collective/cupy/nccl"
        m = fake.row(variant, AllReduce(256 * MIB, gpus), {"host-latency": 2e-3, "host-throughput": 1e-3})
        assert rates.bandwidth(m).value == pytest.approx(share * 256 * MIB / 1e-3)
    assert AllReduce(12, "0,1,2", "float32").flops == 2 * 3 and AllReduce(12, "0,1", "bfloat16").elements == 6
    assert PeerCopy(0, 3, 5, 2).bytes_moved == 10 and PeerCopy(3, 0, 5).members == (0, 3)
    assert AtOnce("matmul", 64, "0,1", "bfloat16").inner == Matmul(64, 64, 64, "bfloat16")
    assert AtOnce("triad", 1200, "0").inner == Stream("triad", 1200, "float32")
    copy = AtOnce("h2d", 4096, "0,1,2")
    assert copy.inner == Transfer("h2d", 4096, "pinned")
    assert (copy.together, copy.locked_bytes, copy.flops) == (3, 4096, 0)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: PeerCopy(1, 1, 4), "between two GPUs, not from 1 to 1"),
        (lambda: PeerCopy(0, 1, 4, 3), "1 way or 2, not 3"),
        (lambda: PeerCopy(0, 1, 4, 0), "ways"),
        (lambda: PeerCopy(0, 1, 0), "nbytes"),
        (lambda: AtOnce("matmul", 0, "0"), "size"),
        (lambda: AllReduce(4, "0"), "over two GPUs or more"),
        (lambda: AllReduce(4, "1,0"), "in rising order"),
        (lambda: AllReduce(4, "0;1"), "whole numbers like 0,1"),
        (lambda: AllReduce(6), "no whole number of float32 values"),
        (lambda: AllReduce(4, form="sideways"), "unknown form 'sideways'"),
        (lambda: AtOnce("dance", 4, "0"), "unknown operation 'dance'"),
        (lambda: AtOnce("matmul", 4, "0", "int4"), "unknown dtype 'int4'"),
    ],
)
def test_what_is_no_problem_is_refused(make, why):
    with pytest.raises(ValueError, match=why):
        make()


def test_every_pair_is_planned():
    rows = planned(gpus=3)
    copies = [r for r in rows if isinstance(r.problem, PeerCopy)]
    direct = [r.problem for r in copies if r.kernel == "peer/cupy/direct"]
    expected = {(i, j) for i in range(3) for j in range(3) if i != j}
    assert {(p.source, p.target) for p in direct if p.ways == 1} == expected
    assert [(p.source, p.target) for p in direct if p.ways == 2] == [(0, 1), (0, 2), (1, 2)]
    assert len(direct) == 6 * 2 + 3 and len(copies) == len(direct) + 6 * 2
    assert all(r.settings.device == f"gpu:{r.problem.source}" for r in copies)
    sums = [r for r in rows if isinstance(r.problem, AllReduce)]
    assert {r.problem.gpus for r in sums} == {"0,1,2"}
    by = {}
    for r in sums:
        by.setdefault((r.kernel.rpartition("/")[2], r.problem.dtype, r.problem.form), []).append(r.problem.nbytes)
    sizes = [4096 * 4**i for i in range(9)]
    assert by["nccl", "float32", "in-place"] == by["nccl", "bfloat16", "out-of-place"] == sizes
    assert by["one_shot", "float32", "out-of-place"] == by["nccl_graph", "bfloat16", "out-of-place"] == sizes[:5]
    assert len(by) == 2 * (2 + 4)
    some = planned("--device", "gpu:0", "gpu:2", "--only", "all-reduce", gpus=3)
    assert {r.problem.gpus for r in some} == {"0,2"}
    assert {r.kernel for r in planned("--variants", "staged", gpus=2)} == {"peer/cupy/staged"}


@pytest.mark.parametrize(
    ("words_", "gpus", "error", "why"),
    [
        ([], 1, options.Missing, "two GPUs or more: there is one, NVIDIA H200"),
        (["--device", "gpu:1", "cpu"], 2, options.Missing, "two GPUs or more: --device names 1"),
        (["--device", "gpu:5"], 2, options.Missing, "no gpu:5 here: there are 2"),
        (["--only", "dances"], 2, options.Usage, "unknown part 'dances'; known: copies, all-reduce, at-once"),
        (["--variants", "ring"], 2, options.Usage, "unknown variant 'ring'"),
        (["--sizes", "6"], 2, options.Usage, "6 bytes are no whole number of float32 values"),
        (["--dtypes", "int8"], 2, options.Usage, "unknown dtype 'int8'"),
    ],
)
def test_what_cannot_be_planned_is_refused(words_, gpus, error, why):
    with pytest.raises(error, match=why):
        planned(*words_, gpus=gpus)


def test_without_two_gpus_one_line_says_so(monkeypatch, capsys):
    assert peers.main(["--fast"]) == 3
    message = capsys.readouterr().err.splitlines()[0]
    assert message.startswith("error: no GPU here (") and "every row of peers takes two GPUs or more" in message
    monkeypatch.setattr(facts, "describe", lambda: host(1))
    assert peers.main(["--dry-run"]) == 3
    assert capsys.readouterr().err.splitlines() == [
        "error: every row of peers takes two GPUs or more: there is one, NVIDIA H200",
        f"  try: {options.typed('python -m workloads.suite --quick')}",
    ]
    monkeypatch.setattr(facts, "describe", lambda: host(2))
    assert peers.main(["--only", "copies", "at-once", "--format", "csv"]) == 2
    assert "name it with --only" in capsys.readouterr().err
    assert peers.main(["--dry-run", "--only", "copies", "at-once"]) == 0
    assert f"{5 + 4 + 4 * len(concurrent.WORK)} rows" in capsys.readouterr().out


def test_copies_and_common_work_are_two_files(monkeypatch, tmp_path):
    """The second is not begun where the first was stopped."""
    parts = {name: sweep.Outcome(fake.run(host(2)), tmp_path / name, [name]) for name in ("peers", "at-once")}
    monkeypatch.setattr(peers.PeersPlan, "sweep", lambda *_: parts["peers"])
    monkeypatch.setattr(concurrent, "every_gpu", lambda *_: parts["at-once"])
    plan, run = peers.parse(["-q", "-o", str(tmp_path)]), fake.run(host(2))
    both = plan.measure(run, [])
    assert both.measurements == ["peers", "at-once"] and [f.name for f in both.files] == ["peers", "at-once"]
    parts["peers"].stopped = "SIGINT"
    assert plan.measure(run, []) is parts["peers"]


def test_the_suite_includes_peers_only_for_all_gpus(monkeypatch, tmp_path):
    assert "peers" not in dict(suite_steps.parts(False, ["gpu:0"])) and "peers" in dict(
        suite_steps.parts(True, ["gpu:0"], True)
    )
    with pytest.raises(options.Usage, match="peers takes several GPUs, and --device all"):
        suite_steps.chosen_parts(suite.parse(["--only", "peers"]), ["gpu:0"])
    on_all = suite.parse(["--device", "all"])
    parts = suite_steps.planned_steps(on_all, host(3), True)
    expected = {("all",), ("cpu",), ("gpu:0", "gpu:1", "gpu:2")}
    assert {part.plan.measuring.devices for part in parts} == expected
    names = [part.name for part in parts]
    assert names.index("matmul") < names.index("peers") < names.index("training")
    assert suite_steps.step_plan(on_all, suite_steps.SuitePart("peers", {"fast": True})).gpus(host(2)) == [0, 1]
    seen = []
    monkeypatch.setattr(facts, "describe", lambda: host(1))
    monkeypatch.setattr(suite, "_print_measured", lambda name, *_: seen.append(name) or 0)
    monkeypatch.setattr(suite, "_report", lambda *_: None)
    assert suite.main(["--device", "all", "--quick", "-v", "-o", str(tmp_path)]) == 0
    assert seen[:2] == ["matmul", "training"] and "peers" not in seen


def rows_at_once(slower: float) -> list[Measurement]:
    """What at_once plans for two GPUs: as fast as alone but for copies from the host, `slower` times as long."""
    made = []
    for row in concurrent.every_gpu_rows([0, 1]):
        p = row.problem
        seconds = 2e-5 + (2 * p.size**3 / 5e13 if p.operation == "matmul" else p.bytes_moved / 5e10)
        if p.together > 1 and (p.operation == "h2d" or row.settings.mode != "resident"):
            seconds *= slower
        made.append(fake.row(row.kernel, p, seconds, device=row.settings.device, mode=row.settings.mode))
    return made


def test_copies_are_listed_pair_by_pair():
    def row(way, p, rate):
        seconds = p.nbytes * p.ways / rate
        clocks = {"host-latency": 1e-5 + seconds, "host-throughput": seconds}
        return fake.row(f"peer/cupy/{way}", p, clocks, device=f"gpu:{p.source}")

    large = 256 * MIB
    rows = [
        row("direct", PeerCopy(0, 1, large), 400e9),
        row("direct", PeerCopy(1, 0, large), 200e9),
        row("direct", PeerCopy(0, 1, large, 2), 700e9),
        row("direct", PeerCopy(0, 1, 4), 1e9),
        row("staged", PeerCopy(0, 1, large), 25e9),
    ]
    assert words.copy_lines(rows) == ["Copies of 256 MiB from one to another of 2 GPUs reach 200 GB/s to 400 GB/s."]
    why = "GPU 0 has no direct access to the memory of GPU 1"
    none = fake.row("peer/cupy/direct", PeerCopy(0, 1, large), None, status="skipped", reason=why)
    assert words.copy_lines([none]) == [f"No direct copies: {why}. Copies go through the host."]

    def of(p, **how):
        return devices.quantity(fake.row("x/cupy/y", p, 1e-3, device="gpu:0", **how), host(2))

    assert of(PeerCopy(0, 1, MIB)) == "copies to gpu-1" and of(PeerCopy(0, 1, 4)) == "short copies to gpu-1"
    assert of(PeerCopy(0, 1, MIB, 2)) == "copies to and from gpu-1"
    assert of(AllReduce(4096)) == "short all-reduces over 0,1" and of(AtOnce("h2d", MIB, "0")) == "pinned h2d copies"
    assert of(AtOnce("matmul", 64, "0,1")) == "float32 products while 0,1 work"


def test_sums_compare_equally_launched_calls():
    def row(variant, nbytes, queued, **how):
        clocks = {"host-latency": 1e-3, "host-throughput": queued}
        return fake.row(f"collective/cupy/{variant}", AllReduce(nbytes, **how), clocks)

    rows = [
        row("nccl", 4096, 20e-6),
        row("one_shot", 4096, 8e-6),
        row("nccl_graph", 4096, 9e-6),
        row("one_shot_graph", 4096, 3e-6),
        row("nccl", 256 * MIB, 1e-3),
        row("nccl", 64 * MIB, 0.45e-3),
        row("one_shot", MIB, 9e-6),
        row("nccl", MIB, 9e-6),
        row("nccl", 4096, 50e-6, form="in-place"),
    ]
    assert words.sum_lines(rows) == [
        "All-reduce of float32 over 2 GPUs (NCCL): 268 GB/s of bus bandwidth at 256 MiB.",
        "Our one-shot kernel, recorded in CUDA graphs, float32: 3.0x faster than NCCL at 4.00 KiB.",
    ]


def test_the_report_has_peers_only_with_rows(tmp_path):
    assert several_gpus.section([fake.row("matmul/cupy/cublas", fake.square(64), 1e-5)]) == []
    variant = "peer/cupy/direct"
    copy = fake.row(variant, PeerCopy(0, 1, 256 * MIB), {"host-latency": 1e-3, "host-throughput": 256 * MIB / 4e11})
    small = fake.row(variant, PeerCopy(1, 0, 4), {"host-latency": 1e-5, "host-throughput": 2e-6}, device="gpu:1")
    total = fake.row("collective/cupy/nccl", AllReduce(4096), {"host-latency": 2e-5, "host-throughput": 1e-5})
    lines = markdown(several_gpus.section([copy, small, total, *rows_at_once(1.5)]))
    assert "| gpu-0 -&gt; gpu-1 256 MiB | direct | 1.00 ms | 0 % | 671 µs | 400 GB/s |" in lines
    assert "| gpu-1 -&gt; gpu-0 4 bytes | direct | 10.0 µs | 0 % | 2.00 µs | - |" in lines
    assert "| float32 | out-of-place | 4.00 KiB | 10.0 µs | 0.410 GB/s |" in lines
    assert "| h2d of 256 MiB | resident | gpu:1 | 5.39 ms | 8.08 ms | 1.50 | 1.50 .. 1.50 |" in lines
    fake.write(tmp_path / "peers.jsonl", fake.run(host(2)), (copy, total, *rows_at_once(1.5)))
    from analysis import report

    page = report.render([tmp_path], tmp_path / "page")
    assert f"## {several_gpus.TITLE}" in page.read_text() and 'id="several"' in report.to_open(page).read_text()


def test_rows_at_once_run_as_their_kinds():
    """In this process, on the CPU: a unit of calls, each waited for, until the window is over; a wrong answer is no row."""
    alone = Row("matmul/numpy/blas", AtOnce("matmul", 33, "0"), Settings("cpu", 1))
    limits = Limits(visit_s=0.02)
    made = work_windows.prepare(alone, limits, 1)
    assert (made.status, made.check, made.problem) == ("ok", "exact", alone.problem) and "first_call" in made.phases_s
    taken = work_windows.window(alone, limits, 1)
    begins, ends = taken.series["begin_s"], taken.series["end_s"]
    assert len(begins) == len(ends) and taken.values["steps"] >= 1 and ends[-1] - begins[0] >= 0.02
    work_windows.prepare(Row("matmul/numpy/blas", AtOnce("matmul", 17, "0"), alone.settings), limits, 1)
    with pytest.raises(ValueError, match="was not prepared"):  # one at a time: large arrays are let go
        work_windows.window(alone, limits, 1)


def test_each_gpu_works_alone_then_together(monkeypatch, tmp_path):
    """Workers that say 1 ms alone and 2 ms beside another."""
    asked_for = []

    def in_turns(rows, workers, sets, turns):
        asked_for.append((tuple(r.settings.device for r in rows), sets, len(workers), turns.rounds))
        answers = [r.result("ok", check="exact") for r in rows]
        one = {members: {i: [1e-3 * len(members)] * 4 for i in members} for members in sets}
        return concurrent.AlternatingResults(rows, answers, [one] * turns.rounds)

    closed = []
    monkeypatch.setattr(concurrent, "in_turns", in_turns)
    monkeypatch.setattr(
        concurrent, "Worker", lambda variables: types.SimpleNamespace(close=lambda: closed.append(variables))
    )
    measuring = peers.parse(["--fast", "-q", "-o", str(tmp_path)]).measuring
    outcome = concurrent.every_gpu([0, 1], measuring, fake.run(host(2)))
    assert asked_for[0] == (("gpu:0", "gpu:1"), ((0,), (1,), (0, 1)), 2, concurrent.FAST_ROUNDS)
    assert [v["CUDA_VISIBLE_DEVICES"] for v in closed] == ["GPU-0", "GPU-1"]  # one worker a GPU for all of it
    assert outcome.exit_code == 0 and outcome.path.name == "at-once.jsonl"
    stored = records.read(tmp_path).measurements
    assert [m.row for m in stored] == concurrent.every_gpu_rows([0, 1])
    assert all(np.median(m.on("host-latency").seconds) == pytest.approx(1e-3 * m.problem.together) for m in stored)
    assert {round(r.value, 6) for *_, r in rates.slowdowns(stored)} == {2.0}

    def in_turns(rows, workers, sets, turns):
        return concurrent.AlternatingResults(rows, ended_by=rows[1].result("failed", "out of luck"))

    monkeypatch.setattr(concurrent, "in_turns", in_turns)
    monkeypatch.setattr(concurrent, "Worker", lambda variables: types.SimpleNamespace(close=lambda: None))
    measuring = peers.parse(["--fast", "-q", "-o", str(tmp_path / "failed")]).measuring
    outcome = concurrent.every_gpu([0, 1], measuring, fake.run(host(2)))
    assert len(outcome.measurements) == 4 * len(concurrent.WORK) and outcome.exit_code == 1
    assert {m.reason for m in outcome.measurements} == {"out of luck", "what ran beside it ended: out of luck"}


def test_a_table_of_sums_has_nccls_bandwidth():
    """Of 3 GPUs a sum of 3 MB moves 4 MB a GPU: in 1 ms 4 GB/s, however noisy. The one-shot kernel has the small size alone."""

    def total(kernel: str, nbytes: int, seconds: tuple[float, ...]) -> Measurement:
        waited = Samples("host-latency", (9.0,) * 3, 1, (1,) * 3, "3 visits")
        queued = Samples("host-throughput", seconds, 1, (1,) * 3, "3 visits")
        problem = AllReduce(nbytes, "0,1,2")
        return Measurement(f"collective/cupy/{kernel}", problem, Settings("gpu:0"), "ok", samples=(waited, queued))

    rows = [
        total("nccl", 6_000, (20e-6, 20e-6, 20e-6)),
        total("one_shot", 6_000, (5e-6, 5e-6, 5e-6)),
        total("nccl", 3_000_000, (0.5e-3, 1e-3, 4e-3)),
    ]
    table = [line for line in markdown(several_gpus._sums(rows)) if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    assert cells[0] == ["type", "form", "each GPU's array", "nccl", "one_shot", "NCCL's bus bandwidth"]
    assert cells[2] == ["float32", "out-of-place", "5.86 KiB", "20.0 µs", "5.00 µs", "0.400 GB/s"]
    assert cells[3] == ["float32", "out-of-place", "2.86 MiB", "1.00 ms", "-", "4.00 GB/s"]


@pytest.mark.parametrize(
    ("ratios", "told"),
    [
        ({"matmul": 1.5, "triad": 1.0}, 2),
        ({"matmul": 1.0, "triad": 1.0}, 1),
        ({"matmul": 1.5, "triad": 2.0}, 2),
        ({}, 0),
    ],
)
def test_work_without_contention_is_one_sentence(ratios, told):
    rows = []
    for operation, ratio in ratios.items():
        for gpus, slower in (("0", 1.0), ("0,1", ratio)):
            taken = Samples("host-latency", (slower * 1e-3,) * 5, 1, (1,) * 5, "5 visits")
            problem = AtOnce(operation, 4096 if operation == "matmul" else 1 << 28, gpus)
            kernel = "matmul/cupy/cublas" if operation == "matmul" else "stream/cupy/wide"
            rows.append(Measurement(kernel, problem, Settings("gpu:0"), "ok", samples=(taken,)))
    sentences = words.at_once_lines(rows)
    assert len(sentences) == told
    slower = [sentence for sentence in sentences if "slower" in sentence or "1.5" in sentence or "2.0" in sentence]
    assert len(slower) == sum(ratio > 1.1 for ratio in ratios.values())
