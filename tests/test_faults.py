"""Faults from outside: full disks, folders that may not be written, two runs at once, lost GPUs, clocks that step backward."""

import builtins
import errno
import math
import os
import resource
import signal
import subprocess
import sys
import time

import msgspec
import planting
import pytest

from kernels.problems import Matmul
from workloads import matmul, options, records
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser
from workloads.harness import one_row, sweep, timing, worker
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Measurement, Row, Samples, Settings

pytestmark = pytest.mark.usefixtures("no_roofs")
FAST = ["--fast", "--max-time", "0.05", "--min-time", "0.005", "--backends", "numpy", "--threads", "1"]
QUICK = Limits(0.005, 5, 0.5, 0.05)
FAULTS = '''
import os
import time
import numba
import numpy as np

@numba.njit
def _spin():
    x = 1
    while x:
        x = (x ^ 5) | 1
    return x

@kernel
def spins(problem, a, b):
    """Never ends, and holds the interpreter meanwhile."""
    return _spin

@kernel
def sticky(problem, a, b):
    """Fails as a kernel does that broke its CUDA context."""
    def run():
        raise RuntimeError("cudaErrorIllegalAddress: an illegal memory access was encountered")
    return run

@kernel
def full(problem, a, b):
    """Fails as CuPy does when the GPU's memory is out."""
    class OutOfMemoryError(Exception):
        pass
    def run():
        raise OutOfMemoryError("Out of memory allocating 1,024 bytes")
    return run

@kernel
def forks(problem, a, b):
    """Leaves a process, as a user's function that forks does."""
    child = os.fork()
    if child == 0:
        time.sleep(600)
    def run():
        return a @ b
    run.notes = {"child": str(child)}
    return run

@kernel
def leaves(problem, a, b):
    """Starts a process of another session whose parent ends, as a daemon does."""
    import subprocess
    command = "sleep 600 > /dev/null 2>&1 & echo $!"
    child = subprocess.run(["sh", "-c", command], start_new_session=True, capture_output=True, text=True).stdout
    def run():
        return a @ b
    run.notes = {"child": child.strip()}
    return run

@kernel
def returns_twice(problem, a, b):
    """Comes back in two processes."""
    child = os.fork()
    if child:
        os.waitpid(child, 0)
    return lambda: a @ b

@kernel
def plain(problem, a, b):
    """A right product that says which process made it."""
    def run():
        return a @ b
    run.notes = {"process": str(os.getpid())}
    return run
'''
planted = planting.kernels_from("faults", FAULTS)


def row(variant: str, n: int = 8) -> Row:
    return Row(f"matmul/numpy/{variant}", Matmul(n, n, n), Settings(threads=1))


def ask(mine: worker.Worker, variant: str, timeout_s: float = 60) -> Measurement:
    return mine.ask(worker.Order("measure", row(variant), QUICK), timeout_s)


def test_endless_and_breaking_calls_cost_one_row(planted):
    mine = worker.Worker({})
    try:
        first, broken, second = (ask(mine, variant) for variant in ("plain", "sticky", "plain"))
        short, third = ask(mine, "full"), ask(mine, "plain")
        begin = time.monotonic()
        stuck = ask(mine, "spins", 1.0)
        took = time.monotonic() - begin
        last = ask(mine, "plain")
    finally:
        mine.close()
    assert {m.status for m in (first, second, third, last)} == {"ok"}
    assert broken.status == "failed" and broken.flags == ("context-lost",)
    assert short.status == "skipped" and short.reason.startswith("out of host memory: Out of memory allocating")
    assert (stuck.status, stuck.reason) == ("failed", "stopped after its time limit of 1 s") and took < 20
    processes = [m.notes["process"] for m in (first, second, third, last)]
    assert processes[0] != processes[1] == processes[2] != processes[3]


def is_running(process: int) -> bool:
    """Whether a process runs: one that has ended and that nobody waits for does not."""
    try:
        with open(f"/proc/{process}/stat") as status:
            return status.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def ends(process: int) -> bool:
    """Whether a process ends within some seconds."""
    until = time.monotonic() + 20
    while is_running(process) and time.monotonic() < until:
        time.sleep(0.05)
    return not is_running(process)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_what_a_function_forked_ends_with_its_worker(planted):
    mine = worker.Worker({})
    try:
        left_by_close = int(ask(mine, "forks").notes["child"])
        left_alone = int(ask(mine, "leaves").notes["child"])
        assert is_running(left_by_close)
        assert is_running(left_alone)
    finally:
        mine.close()
    assert ends(left_by_close)
    assert ends(left_alone)
    mine.start()
    left_by_parent = int(ask(mine, "forks").notes["child"])
    os.close(mine._orders)  # as when the parent is killed
    mine._orders = os.open(os.devnull, os.O_WRONLY)
    try:
        assert ends(left_by_parent)
    finally:
        mine.close()


HANGS = """
import sys
from workloads.frameworks import grid
from workloads.harness import worker

def starts_and_tells(self, start=worker.Worker.start):
    start(self)
    print(self._process.pid, flush=True)

worker.Worker.start = starts_and_tells
grid.network(sys.argv[1])
"""


HOLDS_THE_INTERPRETER = "sum(range(1 << 50))"  # and looks at no signal


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("hang", ["while True: pass", HOLDS_THE_INTERPRETER])
def test_a_hanging_worker_ends_with_its_parent(tmp_path, hang):
    model = tmp_path / "model.py"
    model.write_text(f"def hangs():\n    open({str(tmp_path / 'begun')!r}, 'w')\n    {hang}\n")
    command = [sys.executable, "-c", HANGS, f"{model}:hangs"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        child = int(parent.stdout.readline())
        until = time.monotonic() + 60
        while not (tmp_path / "begun").exists() and time.monotonic() < until:
            time.sleep(0.05)
        parent.kill()
    try:
        assert ends(child)
    finally:
        if is_running(child):
            os.kill(child, signal.SIGKILL)


def test_a_worker_answers_after_its_function_forks(planted):
    mine = worker.Worker({})
    try:
        twice = ask(mine, "returns_twice", 20)
        after = ask(mine, "plain")
        assert mine._process is not None and after.notes["process"] == str(mine._process.pid)
    finally:
        mine.close()
    assert twice.status == "ok"


def test_what_graphs_and_gpus_say_when_they_fail():
    class InvalidArgumentError(Exception):
        pass

    places = "".join(f'  File "trainer.py", line {i}, in step\n' for i in range(20))
    error = (
        f"Graph execution error:\n\nDetected at node adam/CollectiveReduceV2 defined at (most recent call last):\n{places}\n"
        "Collective ops is aborted by: Shape mismatch\n\t [[{{node adam}}]] [Op:__inference_9]"
    )

    def breaks():
        raise InvalidArgumentError(error)

    m = one_row.guarded(row("plain"), breaks)
    assert m.reason.startswith("InvalidArgumentError: Collective ops is aborted by: Shape mismatch [[{{node adam}}]]")
    assert (m.status, m.flags) == ("failed", ("context-lost",))
    assert one_row.innermost("no\n\nsuch thing") == "no such thing"

    class OutOfMemoryError(Exception):
        pass

    def work():
        raise OutOfMemoryError("Out of memory allocating 10,000,000,000 bytes")

    answer = one_row.guarded(msgspec.structs.replace(row("x"), settings=Settings("gpu:0")), work)
    assert answer.status == "skipped" and answer.reason.startswith("out of GPU memory: ") and answer.flags == ()


@pytest.mark.parametrize(
    "where",
    [
        {"values": {"final_loss": math.nan}},
        {"phases_s": {"import": math.inf}},
        {"series": {"loss": (1.0, math.nan)}},
        {"max_error": math.nan},
        {"samples": (Samples("host-latency", (1.0, math.nan), 1, (1, 1), "steady"),)},
    ],
)
def test_an_invalid_number_is_a_failed_row(tmp_path, where):
    bad = Measurement("training/keras/fit", Matmul(1, 1, 1), Settings(), "ok", flags=("steal",), **where)
    with records.Writer(tmp_path / "x.jsonl", sweep.header("c", seed=1)) as writer:
        writer.append(bad)
    read = records.read(tmp_path)
    assert read.bad_lines == 0 and read.measurements[0].status == "failed" and read.measurements[0].flags == ("steal",)
    assert "is not a finite number" in read.measurements[0].reason
    good = Measurement("training/keras/fit", Matmul(1, 1, 1), Settings(), "ok", values={"final_loss": 1.0})
    assert records.finite(good) is good


def test_an_unreadable_answer_is_a_failed_row(monkeypatch):
    mine = worker.Worker({})
    try:
        mine.start()
        monkeypatch.setattr(mine, "_line", lambda deadline: b'{"type": "nonsense"')
        answer = ask(mine, "blas")
        assert answer.status == "failed" and "answered what cannot be read" in answer.reason and mine._process is None
    finally:
        mine.close()


@pytest.mark.parametrize(("patient", "status"), [(True, "ok"), (False, "failed")])
def test_announcements_give_a_patient_sweep_more_time(monkeypatch, patient, status):
    """On a clock of its own: an announcement comes after 0.8 of 1 s, the answer 0.8 s later."""
    now = 100.0
    answer = msgspec.json.encode(row("plain").result("ok"))
    lines = iter([b'{"type": "doing", "words": "compiling"}', answer])

    def line(deadline):
        nonlocal now
        now += 0.8
        if now > deadline:
            raise TimeoutError
        return next(lines)

    mine = worker.Worker({}, patient=patient)
    monkeypatch.setattr(worker.time, "monotonic", lambda: now)
    monkeypatch.setattr(mine, "_line", line)
    try:
        assert ask(mine, "plain", 1.0).status == status
    finally:
        mine.close()


def test_a_clock_stepping_backward_is_an_error():
    steps = iter([0.001, 0.001, -0.5])
    with pytest.raises(ArithmeticError, match=r"stepped backward, by 0\.5 s"):
        timing.visits(lambda calls: next(steps), Limits(0.0001, 3, 0.5, 1.0), "host-latency")
    with pytest.raises(ArithmeticError):
        timing.visit(lambda calls: -1.0, QUICK, "host-latency", 1e-3)
    with pytest.raises(ArithmeticError):
        timing.call_seconds(lambda calls: -1e-3, QUICK)

    def work():
        return timing.call_seconds(lambda calls: math.nan, QUICK)

    assert one_row.guarded(row("x"), work).status == "failed"


def test_a_wall_clock_stepping_backward_loses_no_row(tmp_path, monkeypatch):
    times = iter(["2026-01-02T00:00:00Z", "2026-01-01T00:00:00Z"])
    monkeypatch.setattr(facts, "now", lambda: next(times))
    timed = Samples("host-latency", (1.0,), 1, (1,), "steady")
    for n, resume in ((1, False), (2, True)):
        with records.Writer(tmp_path / "matmul.jsonl", sweep.header("c", seed=1), resume) as writer:
            writer.append(Measurement("matmul/numpy/blas", Matmul(n, n, n), Settings(), "ok", samples=(timed,)))
    assert [m.problem.n for m in records.read(tmp_path).measurements] == [1, 2]


@pytest.mark.parametrize("number", [errno.EROFS, errno.EACCES, errno.ENOSPC])
def test_an_unwritable_folder_is_one_error_line(tmp_path, monkeypatch, capsys, number):
    real = builtins.open

    def refuse(path, mode="r", *args, **keywords):
        if str(path).startswith(str(tmp_path)) and "a" in mode:
            raise OSError(number, os.strerror(number), str(path))
        return real(path, mode, *args, **keywords)

    monkeypatch.setattr(builtins, "open", refuse)
    assert matmul.main(["--sizes", "8", *FAST, "-q", "-o", str(tmp_path / "x")]) == options.USAGE
    err = capsys.readouterr().err.splitlines()
    assert err[0].startswith("error: cannot write") and os.strerror(number) in err[0] and len(err) == 2


@pytest.mark.parametrize(("limit", "code"), [(8, options.USAGE), (63, options.USAGE), (64, options.OK)])
def test_a_limit_on_open_files_is_named_first(monkeypatch, capsys, limit, code):
    limits = {resource.RLIMIT_NOFILE: limit, resource.RLIMIT_AS: resource.RLIM_INFINITY}
    monkeypatch.setattr("workloads.stops.resource.getrlimit", lambda kind: (limits[kind], limits[kind]))
    parser = CommandParser(module="workloads.matmul", examples=["python -m workloads.matmul"])
    assert running.run_command(parser, [], make_plan=running.no_plan, carry_out=lambda plan: options.OK) == code
    err = capsys.readouterr().err.splitlines()
    assert len(err) == (2 if code else 0) and all(f" {limit} open files" in line for line in err[:1])


def test_too_many_open_files_are_no_unwritable_output(capsys):
    def body(plan):
        raise OSError(errno.EMFILE, "Too many open files")

    parser = CommandParser(module="workloads.matmul", examples=["python -m workloads.matmul"])
    assert running.run_command(parser, [], make_plan=running.no_plan, carry_out=body) == options.USAGE
    err = capsys.readouterr().err.splitlines()
    assert "ulimit -n" in err[0] and "cannot write" not in err[0] and len(err) == 2


def start(folder, *more: str) -> subprocess.Popen:
    flags = ["--sizes", "4KiB:1MiB:x1.1", *FAST, "--format", "csv", "-o", str(folder), *more]
    command = [sys.executable, "-m", "workloads.stream", *flags]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=worker.ROOT)


@pytest.mark.slow
def test_a_full_disk_and_a_second_run(tmp_path):
    """The limit on a file's size gives the same error from the same call as a full disk does; stress_faults fills a real one."""
    first = start(tmp_path)
    path = tmp_path / "stream.jsonl"
    while not (path.exists() and path.read_bytes().count(b"\n") > 4):
        assert first.poll() is None, first.stderr.read()
        time.sleep(0.02)
    first.send_signal(signal.SIGSTOP)  # it measures nothing meanwhile, and its file stays locked
    second = start(tmp_path, "--resume")
    err = second.communicate(timeout=60)[1]
    assert second.returncode == options.USAGE
    assert "is being written by another run" in err and len(err.splitlines()) == 2
    size = path.stat().st_size
    resource.prlimit(first.pid, resource.RLIMIT_FSIZE, (size + 700, size + 700))
    first.send_signal(signal.SIGCONT)
    out, err = first.communicate(timeout=60)
    assert first.returncode == options.USAGE and "cannot write" in err and "what was measured before is in it" in err
    shown = [line for line in out.splitlines() if line.startswith("stream,")]
    kept = records.read(path)
    assert len(kept.measurements) >= len(shown) > 3 and kept.bad_lines <= 1
