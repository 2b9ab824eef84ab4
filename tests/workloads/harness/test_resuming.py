"""--resume: which run it goes on with, which visits it joins, and that it cuts nothing that we did not write."""

import io
import json
import pathlib

import msgspec
import planting
import pytest
from fake_measurements import CPU_MACHINE

from kernels.problems import Matmul
from workloads import matmul, options, records, session, stream
from workloads.harness import resuming, rounds, sweep
from workloads.harness.worker import Worker
from workloads.machine import clock
from workloads.records import Measurement, Method, Row, Run, Samples, Settings

pytestmark = pytest.mark.usefixtures("no_roofs")
planted = planting.kernels_from(
    "resuming",
    '''
@kernel
def steady(problem, a, b):
    """A right product."""
    return lambda: a @ b
''',
)
FAST = Method(process_per_visit=False, limits={"visit_s": 0.025, "max_noise": 0.05})
RUN = Run(
    schema=records.SCHEMA,
    machine=CPU_MACHINE,
    software={"numpy": "2.4.6"},
    command="python -m workloads.matmul --fast",
    seed=1,
    commit="abc",
    sources="def",
    started_at="2026-01-01T00:00:00Z",
    method=FAST,
)


def visited(n: int, number: int, at: float = 100.0) -> Measurement:
    samples = (Samples("host-latency", (0.25,), 1, (1,), "visit"),)
    row = Row("matmul/numpy/blas", Matmul(n, n, n), Settings(threads=1))
    return row.result("ok", samples=samples, visit=number, series={"visit_at_s": (at,)})


def lines_of(*lines) -> dict:
    return records.decode(msgspec.json.encode(line) for line in lines).rows


@pytest.mark.parametrize(
    ("change", "differs"),
    [
        ({}, ""),
        ({"seed": 2}, "seed 1, now 2"),
        ({"software": {"numpy": "2.5.0"}}, "numpy 2.4.6, now 2.5.0"),
        ({"method": msgspec.structs.replace(FAST, process_per_visit=True)}, "process_per_visit False, now True"),
        (
            {"method": msgspec.structs.replace(FAST, limits={"visit_s": 0.075, "max_noise": 0.01})},
            "visit_s 0.025, now 0.075; max_noise 0.05, now 0.01",
        ),
        (
            {"method": msgspec.structs.replace(FAST, thread_variables={"OMP_NUM_THREADS": "1"})},
            "OMP_NUM_THREADS none, now 1",
        ),
        ({"method": None}, "an unknown one"),
    ],
)
def test_only_visits_by_one_method_are_continued(tmp_path, capsys, change, differs):
    now = msgspec.structs.replace(RUN, **change)
    before = lines_of(RUN, visited(8, 1), visited(8, 2), visited(16, 1))
    lines = resuming.continued(before, [visited(8, 1).row], now, tmp_path / "matmul.jsonl")
    assert resuming.differences(RUN, now) == differs
    note = capsys.readouterr().err
    if not differs:
        assert [len(visits) for visits in lines.values()] == [2, 1] and note == ""
        return
    assert lines == {}
    assert note == f"{tmp_path / 'matmul.jsonl'}: 1 row timed by another method ({differs}), measured anew\n"


def test_a_rows_method_is_its_newest_runs(tmp_path, capsys):
    """8 was begun anew by the second run, 16 was not reached: each goes on with its own run's method only."""
    other = msgspec.structs.replace(RUN, seed=2)
    before = lines_of(RUN, visited(8, 1), visited(16, 1), visited(8, 2), other, visited(8, 1))
    rows = [visited(n, 1).row for n in (8, 16)]
    assert list(resuming.continued(before, rows, other, tmp_path)) == [visited(8, 1).key]
    assert list(resuming.continued(before, rows, RUN, tmp_path)) == [visited(16, 1).key]
    assert capsys.readouterr().err.count("1 row timed by another method") == 2


def test_a_whole_row_is_kept_and_named(tmp_path, capsys):
    whole = visited(8, 0)
    lines = resuming.continued(lines_of(RUN, whole), [whole.row], msgspec.structs.replace(RUN, seed=2), tmp_path)
    assert list(lines) == [whole.key]
    assert "1 row measured in one go by another method (seed 1, now 2), not again" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "visits"),
    [
        (["--fast"], 3),
        ([], 5),
        (["--rigorous"], 10),
        (["--fast", "--seed", "2"], 3),
        (["--fast", "--max-noise", "0.2"], 3),
    ],
)
def test_a_shared_file_has_one_method_per_row(tmp_path, planted, monkeypatch, capsys, more, visits):
    monkeypatch.setattr(rounds, "EXTRA", 0)  # no further visits of a noisy row
    monkeypatch.setattr(rounds, "LEAST_VISITS", 1)
    words = ["--sizes", "8", "--variants", "steady", "--threads", "1", "--max-time", "0.05", "--format", "json"]
    assert matmul.main([*words, "--fast", "-o", str(tmp_path)]) == options.OK
    before = (tmp_path / "matmul.jsonl").read_bytes()
    capsys.readouterr()
    assert matmul.main([*words, *more, "-o", str(tmp_path), "--resume"]) == options.OK
    (row,) = records.read(tmp_path).measurements
    assert row.visits == visits and row.samples[0].medians.keys() == set(range(visits))
    assert row.samples[0].stop_reason == f"{visits} {'processes' if '--rigorous' in more else 'visits'}"
    assert ("1 row timed by another method" in capsys.readouterr().err) == (more != ["--fast"])
    assert (tmp_path / "matmul.jsonl").read_bytes().startswith(before)


def test_a_resumed_runs_moments_are_later(monkeypatch):
    elapsed = [50.0]
    monkeypatch.setattr(clock, "_elapsed_s", lambda: elapsed[0])
    monkeypatch.setattr(clock.time, "time", lambda: 1000.0)
    monkeypatch.setattr(clock, "_zero_s", 0.0)
    clock.begin()
    assert clock.moment() == 1000.0
    monkeypatch.setattr(clock.time, "time", lambda: 1e6)  # somebody sets it
    elapsed[0] = 52.5
    assert clock.moment() == 1002.5
    resuming.continue_clock([[visited(8, 1, at=2000.0), visited(8, 2, at=1500.0)]])
    assert clock.moment() == 2000.0
    elapsed[0] = 53.5
    assert clock.moment() == 2001.0
    resuming.continue_clock([[visited(8, 1, at=1e29)]])
    assert clock.moment() == 2001.0, "no moment that anybody measured"


@pytest.mark.parametrize("jump", [1e6, -1e6])
def test_setting_the_wall_clock_moves_no_visit(tmp_path, planted, monkeypatch, jump):
    """The command's clock jumps after the second visit; the workers' own are processes that never see it."""
    monkeypatch.setattr(rounds, "LEAST_VISITS", 1)
    wall, ask = clock.time.time, Worker.ask
    asked = []

    def and_jump(self, order, timeout_s):
        asked.append(order)
        if len(asked) == 2:
            monkeypatch.setattr(clock.time, "time", lambda: wall() + jump)
        return ask(self, order, timeout_s)

    monkeypatch.setattr(Worker, "ask", and_jump)
    words = ["--sizes", "8", "--variants", "steady", "--threads", "1", "--rigorous", "--max-time", "0.05", "-q"]
    assert matmul.main([*words, "-o", str(tmp_path)]) == options.OK
    (row,) = records.read(tmp_path).measurements
    moments = row.series["visit_at_s"]
    assert list(moments) == sorted(moments) and 0 < row.span_s < 600


def stored(folder, command: str, *lines) -> None:
    with records.Writer(folder / "stream.jsonl", msgspec.structs.replace(RUN, command=command)) as writer:
        for line in lines:
            writer.append(line)


STREAM = "python -m workloads.stream --sizes 64KiB --backends numpy --threads 1"


@pytest.mark.parametrize(
    ("command", "taken"),
    [
        (STREAM, True),
        (f"{STREAM} --fast --stop-after 3", True),
        ("python -m workloads.stream --sizes 64KiB 1MiB --backends numpy --threads 1", True),
        ("python -m workloads.stream --sizes 1MiB --backends numpy --threads 1", False),
        ("python -m workloads.stream --sizes 64KiB --operations copy --backends numpy --threads 1", False),
        ("python -m workloads.peak", False),
        ("python -m workloads.suite --quick", False),
        ("python -m workloads.stream --no-such-flag", False),
        ("python -m workloads.stream --sizes '64KiB", False),
        ("", False),
    ],
)
def test_without_a_folder_the_same_plan_is_resumed(tmp_path, monkeypatch, command, taken):
    monkeypatch.setattr(sweep, "LOCAL", tmp_path)
    runs = tmp_path / RUN.machine.key
    stored(runs / "20260101T000000Z", command)
    stored(runs / "20260102T000000Z", "python -m workloads.stream --sizes 2MiB --backends numpy --threads 1")
    plan = stream.parse([*STREAM.split()[3:], "--resume"])
    run = msgspec.structs.replace(RUN, command=f"{STREAM} --resume")
    if taken:
        assert session.newest_run(plan, run, plan.rows(run.machine)) == runs / "20260101T000000Z"
        return
    with pytest.raises(
        options.Usage, match=r"nothing to resume: no run under .* has these rows in its plan"
    ) as refused:
        session.newest_run(plan, run, plan.rows(run.machine))
    assert refused.value.tip == STREAM
    assert str(runs / "20260102T000000Z") in str(refused.value)


def test_the_newest_readable_run_is_resumed(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep, "LOCAL", tmp_path)
    runs = tmp_path / RUN.machine.key
    for day in (1, 2):
        stored(runs / f"2026010{day}T000000Z", STREAM)
    (runs / "20260103T000000Z" / "stream.jsonl").mkdir(parents=True)
    plan = stream.parse([*STREAM.split()[3:], "--resume"])
    assert session.newest_run(plan, RUN, plan.rows(RUN.machine)) == runs / "20260102T000000Z"


def test_the_finishing_command_stops_by_itself():
    for flag in ("--stop-after 0.001", "--stop-after=5min", "--stop-after '10 s'"):
        command = f"python -m workloads.matmul --sizes 64 {flag} --fast"
        again = session.resume_command(command, pathlib.Path("reports/x"))
        assert again == "python -m workloads.matmul --sizes 64 --fast -o reports/x --resume"


TORN = msgspec.json.encode(visited(8, 1))[:-30]


@pytest.mark.parametrize(
    ("tail", "after"),
    [
        (b"", b""),
        (TORN, b""),
        (msgspec.json.encode(visited(8, 1)), msgspec.json.encode(visited(8, 1)) + b"\n"),  # only its end is lost
        (b"precious", b"precious\n"),
        (b'{"type":"note","text":"mine"', b'{"type":"note","text":"mine"\n'),
        (b'{"type":"measurement"', b'{"type":"measurement"\n'),  # shorter than anything that a Writer leaves
    ],
)
def test_only_our_torn_line_is_cut(tmp_path, tail, after):
    path = tmp_path / "matmul.jsonl"
    whole = b"a line of somebody's\n" + msgspec.json.encode(RUN) + b"\n"
    path.write_bytes(whole + tail)
    with records.Writer(path, RUN, resume=True):
        pass
    assert path.read_bytes() == whole + after + msgspec.json.encode(RUN) + b"\n"


@pytest.mark.parametrize(
    "text", [b"precious", b"precious\n", b"\n", b"a\nb\n", json.dumps({"type": "run"}).encode(), TORN]
)
def test_a_foreign_file_is_refused_unchanged(tmp_path, text):
    path = tmp_path / "matmul.jsonl"
    path.write_bytes(text)
    with pytest.raises(records.Refused, match="is no result file"):
        records.Writer(path, RUN, resume=True)
    assert path.read_bytes() == text
    path.write_bytes(b"")  # nothing can be lost
    with records.Writer(path, RUN, resume=True):
        pass
    assert records.decode(io.BytesIO(path.read_bytes())).runs == [RUN]


def test_a_row_that_failed_is_measured_again(tmp_path, capsys):
    failed = msgspec.structs.replace(visited(16, 2), status="failed", reason="died", samples=())
    before = lines_of(RUN, visited(8, 1), visited(16, 1), failed)
    lines = resuming.continued(before, [visited(n, 1).row for n in (8, 16)], RUN, tmp_path)
    assert list(lines) == [visited(8, 1).key]
    assert capsys.readouterr().err == ""
