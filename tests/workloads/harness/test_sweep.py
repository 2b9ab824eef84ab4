"""Sweeps through real workers, on kernels that die, hang, raise, lie or need too much: nothing measured is lost."""

import json
import os
import re
import signal
import subprocess
import sys
import time

import msgspec
import numpy as np
import planting
import pytest
from fake_measurements import CPU_MACHINE

from kernels import registry
from kernels.problems import Matmul, Training
from workloads import matmul, options, records
from workloads.harness import one_row, plan, rounds, runner, sweep, worker
from workloads.harness.rounds import Visit
from workloads.machine import facts, gpu
from workloads.machine.gpu import NoGpu
from workloads.records import Row, Samples, Settings
from workloads.shared_flags import Measuring

FAST = ["--fast", "--max-time", "0.05", "--min-time", "0.005", "--backends", "numpy", "--threads", "1", "-q"]
# A sweep of a thousand rows in a process of its own; streams are measured under no roof but their own.
FLAGS = "--sizes 4KiB:4MiB:+4KiB --operations copy --backends numpy --threads 1 --fast --min-time 0.01 --format csv -o"
LONG = [sys.executable, "-m", "workloads.stream", *FLAGS.split()]
# Kernels as a user would add them: one file, found by its name, in the real worker.
KERNELS = '''
import os, time
import numpy as np
from kernels.matmul.numpy import _blas_operands

def product(problem, a, b):
    a, b = _blas_operands(problem, a, b)
    return lambda: a @ b

@kernel
def good(problem, a, b):
    """A right product."""
    return product(problem, a, b)

@kernel
def wrong(problem, a, b):
    """Off by one in one element."""
    c = product(problem, a, b)()
    c[-1, -1] += 1
    return lambda: c

@kernel
def nan(problem, a, b):
    """Gives NaN."""
    return lambda: np.full((problem.m, problem.n), np.nan, np.float32)

@kernel
def picky(problem, a, b):
    """Can do nothing."""
    raise ValueError("only on Sundays")

@kernel
def broken(problem, a, b):
    """Raises while it runs what a refusal raises when bound."""
    def run():
        raise ValueError("shapes are wrong")
    return run

@kernel
def prints(problem, a, b):
    """Writes to stdout, which must not reach the answers."""
    print("noise on stdout")
    os.write(1, b"more noise")
    return product(problem, a, b)
'''
FAULTS = {"killed": "os.kill(os.getpid(), 11)", "hangs": "time.sleep(1000)", "raises": "{}['missing']"}
FAULTS["dies"] = "os.write(2, b'E0000 00:00:17 12 cuda_platform.cc:52] failed call to cuInit') and os._exit(7)"
KERNELS += "".join(
    f'@kernel\ndef {name}(problem, a, b):\n    """It {name}."""\n    return lambda: {does}\n'
    for name, does in FAULTS.items()
)
pytestmark = pytest.mark.usefixtures("no_roofs")
planted = planting.kernels_from("sweep", KERNELS)


def rows(*variants, n=8):
    return [Row(f"matmul/numpy/{v}", Matmul(n, n, n), Settings(threads=1)) for v in variants]


def swept(tmp_path, wanted, *more, **how):
    limits = FAST["--rigorous" in more :]
    if "--min-time" in more:
        at = limits.index("--min-time")
        limits = limits[:at] + limits[at + 2 :]
    measuring = matmul.parse([*limits, "-o", str(tmp_path), *more]).measuring
    return sweep.sweep(wanted, measuring, "matmul", sweep.header("command", measuring.seed), **how)


def test_every_fault_costs_one_row(tmp_path, planted, monkeypatch):
    monkeypatch.setattr(runner, "_LONGEST_ROW_S", 6)
    wanted = rows(*["dies", "good", "killed", "raises", "wrong", "nan", "picky", "broken", "hangs", "prints", "nosuch"])
    outcome = swept(tmp_path, wanted)
    got = {m.kernel.rpartition("/")[2]: (m.status, m.reason) for m in outcome.measurements}
    others = {"good": "ok", "prints": "ok", "wrong": "wrong", "nan": "wrong", "picky": "skipped"}
    failed = dict.fromkeys(("dies", "killed", "raises", "broken", "hangs", "nosuch"), "failed")
    assert {k: v[0] for k, v in got.items()} == others | failed
    assert got["dies"][1] == "its process ended with exit code 7"
    assert "SIGSEGV" in got["killed"][1] and "KeyError" in got["raises"][1]
    assert got["picky"][1] == "only on Sundays" and "time limit" in got["hangs"][1]
    assert got["broken"][1].startswith("ValueError: shapes are ")  # a refusal only where it is bound
    assert outcome.exit_code == 1
    keys = [r.key for r in wanted]
    assert [m.key for m in outcome.measurements] == keys  # as planned, whatever the order of the visits
    assert {m.key for m in records.read(outcome.path).measurements} == {*keys}


def test_resume_runs_only_what_has_no_ok_row(tmp_path, planted):
    swept(tmp_path, rows("good", "raises"))
    before = records.read(tmp_path).measurements[0]
    assert before.visits >= 3 and 0 < before.span_s < 60
    seen = []
    outcome = swept(tmp_path, rows("good", "raises", "prints"), "--resume", shown=seen.append)
    assert [m.kernel.rpartition("/")[2] for m in seen] == ["good", "raises", "prints"]
    assert outcome.measurements[0] == before  # taken from the file, samples and all
    assert records.read(tmp_path).bad_lines == 0


def test_stop_after_finishes_its_row(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(sweep, "LOCAL", tmp_path / "a b")
    argv = ["--sizes", "8:64:+8", *FAST[:-1], "--format", "csv", "--stop-after", "1e-9"]
    assert matmul.main(argv) == 0
    told = capsys.readouterr().err
    assert "stopped by stop-after" in told and f"-o '{sweep.LOCAL}/" in told and "--resume" in told
    assert "--stop-after" not in told, "that would stop it again"


def begun(folder, visits):
    """A long sweep in a process of its own, once its file has so many visits."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen([*LONG, str(folder)], **pipes, text=True, cwd=worker.ROOT)
    file = folder / "stream.jsonl"
    while not (file.exists() and file.read_bytes().count(b"\n") > visits):
        assert process.poll() is None, process.stderr.read()
        time.sleep(0.02)
    return process


def pgrep(*words) -> list[str]:
    return subprocess.run(["pgrep", *words], capture_output=True, text=True, check=False).stdout.split()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_keeps_finished_visits(tmp_path, number, code):
    process = begun(tmp_path, 5)
    process.send_signal(number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "rows unfinished" in err and "--resume" in err and f"-o {tmp_path}" in err
    kept = records.read(tmp_path)
    assert len(kept.measurements) >= 5 and kept.bad_lines == 0
    # the last may have been stored and not yet shown
    assert len(kept.measurements) - len(out.splitlines()) + 1 in (0, 1)
    assert not pgrep("-f", f"workloads.harness.worker .*{process.pid}")


def test_a_killed_parent_leaves_rows_and_no_worker(tmp_path):
    process = begun(tmp_path, 4)
    children = pgrep("-P", str(process.pid))
    process.kill()
    process.communicate()
    assert len(records.read(tmp_path).measurements) >= 4
    assert children
    until = time.monotonic() + 20
    while any(os.path.exists(f"/proc/{c}") for c in children) and time.monotonic() < until:
        time.sleep(0.1)
    assert not any(os.path.exists(f"/proc/{c}") for c in children)


def test_a_killed_sweep_resumes_in_its_round(tmp_path, planted, monkeypatch):
    """Three rows and seven visits: the third round has begun for one of them."""
    wanted = [row for n in (8, 12, 16) for row in rows("good", n=n)]
    whole = swept(tmp_path / "whole", wanted).path.read_bytes().splitlines(keepends=True)
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "matmul.jsonl").write_bytes(b"".join(whole[:8]) + whole[8][:50])  # killed within a line
    asked, ask = [], worker.Worker.ask
    monkeypatch.setattr(worker.Worker, "ask", lambda self, order, s: (asked.append(order), ask(self, order, s))[1])
    monkeypatch.setattr(rounds, "EXTRA", 0)  # none of a noisy row
    outcome = swept(tmp_path / "cut", wanted, "--resume")
    assert [order.visit for order in asked] == [3, 3]
    assert [m.visits for m in outcome.measurements] == [3, 3, 3] and outcome.left == 0
    assert (tmp_path / "cut" / "matmul.jsonl").read_bytes().startswith(b"".join(whole[:8]))
    assert {m.samples[0].stop_reason for m in records.read(tmp_path / "cut").measurements} == {"3 visits"}


def test_visits_of_other_sources_are_not_resumed(tmp_path, planted, monkeypatch, capsys):
    argv = ["--sizes", "8", *FAST, "-o", str(tmp_path)]
    assert matmul.main(argv) == 0
    monkeypatch.setattr(records, "source_hash", lambda: "0123")
    assert matmul.main([*argv, "--resume"]) == 2
    error, tip = capsys.readouterr().err.splitlines()[-2:]
    assert "visits of two programs are not one row" in error
    assert f"-o {tmp_path}-new" in tip and "--resume" not in tip


def test_a_call_predicted_too_long_is_skipped(tmp_path, planted, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(runner, "LONGEST_CALL_S", 1e-3)
        outcome = swept(tmp_path, rows("good", n=700) + rows("good", n=1400))
    assert [m.status for m in outcome.measurements] == ["ok", "skipped"]
    assert "going by the size before" in outcome.measurements[1].reason
    tiny, large = swept(tmp_path / "tiny", rows("good", n=1) + rows("good", n=1024), "--min-time", "0.001").measurements
    assert (tiny.status, large.status, tiny.check) == ("ok", "ok", "exact")
    assert sum(tiny.samples[0].seconds) * tiny.samples[0].calls < 0.1


@pytest.mark.parametrize(("n", "seconds"), [(500, 0.25), (1000, 2.0), (2000, 16.0), (4000, 128.0), (4001, 0.0)])
def test_a_call_is_predicted_by_its_flops(n, seconds):
    """2 s at n = 1000, so 2 s (n / 1000)^3; nothing of more than 64 times the FLOPs."""
    here = runner.Runner(CPU_MACHINE, matmul.parse(FAST).measuring, {})
    (known,) = rows("blas", n=1000)
    samples = (Samples("host-latency", (2.5, 2.0, 3.0), 1, (3,), "visit"),)
    here.learn(known.result("ok", samples=samples))
    (asked,) = rows("blas", n=n)
    assert here._predicted_s(asked) == pytest.approx(seconds)
    if seconds > runner.LONGEST_CALL_S:
        skipped = here.measure(Visit(row=asked, round=1))
        assert skipped.status == "skipped" and f"about {seconds:.0f} s" in skipped.reason


class TestChoosing:
    def measuring(self, *argv):
        return matmul.parse([*argv, "-q"]).measuring

    def test_unknown_words_are_usage_errors(self):
        for argv, message in (
            (["--backends", "nope"], "unknown backend 'nope'"),
            (["--variants", "nope"], "unknown variant 'nope'"),
        ):
            with pytest.raises(options.Usage, match=message):
                plan.kernels("matmul", self.measuring(*argv), ["cpu"])

    @pytest.mark.parametrize(
        ("kind", "tip"), [("not-installed", "pip install 'cupy"), ("no-driver", "report reports/nvidia-h200")]
    )
    def test_a_named_backend_must_exist(self, monkeypatch, kind, tip):
        """Without a driver no package helps: the stored GPU is shown."""
        monkeypatch.setattr(facts, "no_gpu", lambda: NoGpu(kind=kind, words="no luck"))
        with pytest.raises(options.Missing) as error:
            plan.kernels("matmul", self.measuring("--backends", "cupy"), ["cpu"])
        assert "no luck" in str(error.value) and tip in error.value.tip
        with pytest.raises(options.Missing, match="the CPU was not asked for") as error:
            plan.kernels("matmul", self.measuring("--backends", "numpy"), ["gpu:0"])
        assert (error.value.wrong, error.value.right) == ("--device", "")  # the hint leaves it out

    def test_rungs_run_only_when_asked_for(self):
        def variants(*argv, ladder=False):
            measuring = self.measuring("--backends", "numba", *argv)
            return [k.variant for k in plan.kernels("matmul", measuring, ["cpu"], ladder=ladder)]

        assert variants() == ["parallel", "simd"]
        assert variants(ladder=True) == ["naive", "reordered", "parallel", "amx", "packed", "simd", "dots"]
        assert variants("--variants", "naive") == ["naive"]

    def test_threads_of_a_kernel_that_uses_one(self):
        naive, parallel = (registry.find(f"matmul/numba/{v}") for v in ("naive", "parallel"))
        measuring = self.measuring("--threads", "1,2")
        assert [s.threads for s in plan.settings(naive, ["cpu"], measuring)] == [1]
        assert [s.threads for s in plan.settings(parallel, ["cpu"], measuring)] == [1, 2]


@pytest.mark.parametrize(
    "words", ["--sizes 256 --backends cupy", "--sizes 64 --device gpu", "--sizes 64 --require-gpu"]
)
def test_what_is_missing_exits_3(words, capsys, monkeypatch):
    here = facts.describe()
    monkeypatch.setattr(facts, "describe", lambda: msgspec.structs.replace(here, gpus=()))
    lacking = NoGpu(kind="no-device", words="a driver but no device")
    monkeypatch.setattr(gpu, "no_gpu", lambda: lacking)
    monkeypatch.setattr(facts, "no_gpu", lambda: lacking)
    assert matmul.main(words.split()) == 3
    assert "a driver but no device" in capsys.readouterr().err


def test_dry_run_measures_nothing(tmp_path, capsys):
    assert matmul.main(["--sizes", "64:256", *FAST, "--dry-run", "-o", str(tmp_path / "new")]) == 0
    assert not (tmp_path / "new").exists()
    assert "rows, at most" in capsys.readouterr().out
    for way, beside, starts in (([], 0.2 + 5 * 0.075, 0), (["--rigorous"], 10 * (0.2 + 0.075), 10 * 2.5)):
        assert matmul.main(["--sizes", "64", "--backends", "numpy", "--dry-run", "--format", "json", *way]) == 0
        told = json.loads(capsys.readouterr().out)
        assert told["seconds_at_most"] == pytest.approx(len(told["rows"]) * 1.15 * beside + starts + 8)


def test_the_function_gives_a_data_frame(tmp_path):
    times = {"max_time": 0.05, "min_time": 0.005}
    frame = matmul.run(sizes=[16, 32], backends=["numpy"], threads=[1], output=str(tmp_path), **times)
    got = frame[frame.op == "matmul"]
    assert set(got.n) == {16, 32} and set(got.variant) == {"operator", "blas"} and (got.median_s > 0).all()


def test_a_new_kernel_needs_one_function(tmp_path, planted, capsys):
    texts, argv = {}, ["--sizes", "16", *FAST, "--variants", "good,blas", "-o", str(tmp_path)]
    for kind in ("json", "csv", "md"):
        assert matmul.main([*argv, "--format", kind, *["--resume"] * bool(texts)]) == 0
        texts[kind] = capsys.readouterr().out
    rows_, csv = json.loads(texts["json"]), texts["csv"].splitlines()
    assert len(rows_) == len(csv) - 1 == 2 and "| numpy ms | numpy good ms |" in texts["md"].splitlines()[0]
    assert list(rows_[0]) == csv[0].split(",") and ",good," in texts["csv"]


def test_timing_data_is_not_the_check_data():
    whole, random = (make(Matmul(32, 32, 32), 1)[0] for make in (one_row.whole_numbers, one_row.bound_rows.inputs))
    assert not np.array_equal(whole, random) and np.unique(random).size > 1000


def test_rigorous_is_ten_rounds_each_in_fresh_processes(tmp_path, monkeypatch):
    asked: list[tuple[int, str, int]] = []
    ended = []

    class Counted:
        made = 0

        def __init__(self, variables, patient):
            Counted.made += 1
            self.number = Counted.made

        def ask(self, order, timeout):
            asked.append((self.number, order.row.backend, order.visit))
            one = Samples("host-latency", (1.0, 1.0), 1, (2,), "visit")
            return order.row.result("ok", samples=(one,), visit=order.visit)

        def close(self):
            ended.append(self.number)

    monkeypatch.setattr(runner, "Worker", Counted)
    kernels = "matmul/tensorflow/function", "matmul/numpy/blas"
    wanted = [Row(kernel, Matmul(n, n, n), Settings()) for kernel in kernels for n in (8, 16)]
    outcome = swept(tmp_path, wanted, "--rigorous")
    assert {m.samples[0].stop_reason for m in outcome.measurements} == {"10 processes"}
    assert all(m.samples[0].block == tuple(sorted([*range(10)] * 2)) for m in outcome.measurements)
    for backend in ("numpy", "tensorflow"):
        own = [(i, visit) for i, b, visit in asked if b == backend]
        assert sorted(visit for _, visit in own) == sorted([*range(1, 11)] * 2)
        assert len({i for i, _ in own}) == len(set(own)) == 10
    assert sorted(ended) == list(range(1, 21))


def test_whole_rows_of_rigorous_are_five_processes(tmp_path, monkeypatch):
    """A training is timed in five, kept for those to come; what is to be fresh in five of its own."""
    taken = Samples("host-latency", (1.0, 2.0), 1, (1, 1), "steady")
    asked = []

    def ask(self, order, timeout):
        asked.append((order.verb, id(self)))
        return order.row.result("ok", samples=(taken,))

    monkeypatch.setattr(worker.Worker, "ask", ask)
    trainings = [Row("training/keras/fit", Training("lenet", 4, n), Settings()) for n in (8, 16)]
    outcome = swept(tmp_path, trainings, "--rigorous")
    assert [verb for verb, _ in asked] == ["measure"] * 10 and len({i for _, i in asked}) == 5
    taken = {m.samples[0] for m in outcome.measurements}
    assert {(s.stop_reason, s.block) for s in taken} == {("5 processes", (0, 0, 1, 1, 2, 2, 3, 3, 4, 4))}


def test_a_training_has_the_gpus_memory_alone(monkeypatch):
    """All of it, as a user's takes it: its process ends before another one's row begins on the GPU, and none before a CPU's."""
    ended = []

    class Idle(worker.Worker):
        def ask(self, order, timeout):
            return order.row.result("ok")

        def close(self):
            ended.append(self.variables.get("NVIDIA_TF32_OVERRIDE", "own"))

    monkeypatch.setattr(runner, "Worker", Idle)
    monkeypatch.setattr(runner, "_lacks_memory", lambda row: False)
    asked = (("gpu:0", {}), ("cpu", {}), ("gpu:0", {"beside": "fits", "tf32": "off"}), ("gpu:0", {"tf32": "off"}))
    each = (Settings(device, switches=given) for device, given in asked)
    gpu, cpu, fits, own = (Row("training/keras/fit", Training("lenet", 4, 8), on) for on in each)
    product = Row("matmul/cupy/cublas", Matmul(8, 8, 8), Settings("gpu:0"))
    for rows, left in (((gpu, cpu, gpu), []), ((gpu, own), ["own"]), ((fits, product), []), ((own, product), ["0"])):
        here = runner.Runner(facts.describe(), Measuring(command=""), {})
        ended.clear()
        answers = [here.measure(Visit(row=row, round=0)) for row in rows]
        assert [answer.status for answer in answers] == ["ok"] * len(rows) and ended == left


def test_an_address_space_limit_skips_and_is_named(tmp_path):
    """In a worker of its own, whose libraries take more than is left."""
    wanted = Row("matmul/numpy/blas", Matmul(8, 8, 8), Settings(threads=1))
    script = (
        "import resource, sys\n"
        "from workloads.harness import memory_needs, one_row\n"
        "from workloads.harness.worker import Order\n"
        "from workloads.records import Row\n"
        "import msgspec\n"
        "order = Order('visit', msgspec.json.decode(sys.argv[1], type=Row), visit=1)\n"
        "assert memory_needs.address_space_left() == float('inf')\n"
        "assert one_row.obey(order).status == 'ok'\n"
        "mapped = int(open('/proc/self/statm').read().split()[0]) * resource.getpagesize()\n"
        "resource.setrlimit(resource.RLIMIT_AS, (mapped + (300 << 20), -1))\n"
        "print(one_row.obey(order).reason)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, wanted.key], capture_output=True, text=True, check=True, cwd=worker.ROOT
    )
    assert re.fullmatch(
        r"`ulimit -v` leaves (29\d|300) MiB of address space, and libraries take up to 384 MiB: "
        r"raise it with `ulimit -v unlimited`\n",
        done.stdout,
    )
