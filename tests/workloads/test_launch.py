"""The launch command: its rows, its table, its refusals; and what happens once, in real fresh processes."""

import importlib
import json
import shlex
import sys

import pytest
from fake_measurements import CPU_MACHINE, GPU_MACHINE, row

from kernels import registry
from kernels.problems import Launch
from workloads import launch, options, session
from workloads.harness import startup
from workloads.harness.plan import RIGOROUS_PROCESSES
from workloads.harness.worker import Order, Worker, environment
from workloads.records import Row, Settings


def rows(*flags: str, here=CPU_MACHINE) -> list[Row]:
    return launch.parse(["-q", *flags]).rows(here)


def test_a_plan_has_counts_threads_and_once():
    made = rows("--backends", "numba")
    prange = {(r.problem.count, r.settings.threads) for r in made if r.kernel == "launch/numba/prange"}
    threads = {t for _, t in prange}
    assert 1 in threads and prange == {(n, t) for n in (1, 64) for t in threads}
    assert {r.problem.call for r in made if r.kernel == "launch/numba/njit"} == {"empty", "elementwise"}
    once = [r for r in made if r.problem.once]
    assert [(r.kernel, r.problem.call) for r in once] == [("launch/numba/once", c) for c in ("import", "compile")]
    assert {r.settings.process for r in once} == {"fresh"}
    assert {r.settings.process for r in made if not r.problem.once} == {"warm"}
    asked = ("--calls", "elementwise", "--counts", "3")
    assert {r.problem for r in rows("--backends", "numpy", *asked)} == {Launch("elementwise", 3)}
    assert {r.kernel for r in rows("--backends", "numba", "--variants", "once")} == {"launch/numba/once"}
    assert {r.kernel for r in rows("--backends", "numba", "--variants", "njit")} == {"launch/numba/njit"}


@pytest.mark.parametrize("here", [CPU_MACHINE, GPU_MACHINE])
def test_tensorflow_rows_by_device(here, monkeypatch):
    """As if TensorFlow were there: its kernels are named in files that import it in workers only."""
    variants = ("eager", "fit", "fit_jit")
    made_up = [registry.Kernel("launch", "tensorflow", v, lambda p: None, ("cpu", "gpu")) for v in variants]
    monkeypatch.setattr(registry, "load", lambda op, backend: made_up)
    devices = ["cpu", "gpu:0"][: 1 + len(here.gpus)]
    made = rows("--backends", "tensorflow", here=here)
    found = (r for r in made if r.problem.once)
    once = [(r.backend, r.problem.call, r.device, r.settings.switches.get("jit_compile")) for r in found]
    assert once[0] == ("tensorflow", "import", "cpu", None)
    started = [("tensorflow", "device_start", None), ("tensorflow", "compile", "on"), ("tensorflow", "compile", "off")]
    ways = [*started, ("keras", "compile", "auto")]
    expected = [(backend, call, device, jit) for device in devices for backend, call, jit in ways]
    assert [o for o in once if o[1] != "import"] == expected
    quick = rows("--backends", "tensorflow", "--fast", here=here)
    assert {r.kernel.split("/")[2] for r in quick} == {"eager", "fit", "once"}
    assert [r.problem.call for r in quick if r.problem.once] == ["import"]
    assert {r.settings.device for r in quick} == set(devices)


@pytest.mark.parametrize("count", [1, 2, 64])
def test_an_empty_call_repeats_as_its_row_says(monkeypatch, count):
    """It has no result that a check could look at: the calls are counted."""
    launches = importlib.import_module("kernels.launch.numba")
    made: list[str] = []
    monkeypatch.setattr(launches, "_nothing", lambda out: made.append("njit"))
    monkeypatch.setattr(launches, "_wake", lambda out: made.append("prange"))
    for name in ("njit", "prange"):
        run = registry.find(f"launch/numba/{name}").bind(Launch("empty", count))
        made.clear()
        run()
        assert made == [name] * count


def test_a_gpu_kernel_without_gpu_exits_3(capsys):
    assert launch.main(["-q", "--backends", "cupy", "--device", "cpu"]) == options.MISSING
    *_, error, tip = capsys.readouterr().err.splitlines()
    assert error.startswith("error: ") and "cupy needs a GPU" in error and tip.startswith("  try")


def test_the_command_prints_rows_and_constants(tmp_path, capsys):
    flags = shlex.split("--backends numpy --calls elementwise --counts 1 8 --fast --max-time 0.02 --min-time 0.005 -q")
    assert launch.main([*flags, "-o", str(tmp_path)]) == 0
    head, first, *rest = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["kernel", "call", "where"] and "µs in all" in head
    assert first.split()[:4] == ["numpy/ufunc", "elementwise", "x1", "1"]
    assert rest[-2].startswith("a NumPy call on 256 values") and rest[-1].startswith("`x + 1` on 256 values, a fresh")
    assert launch.main([*flags, "-o", str(tmp_path), "--resume", "--format", "json"]) == 0
    lines = json.loads(capsys.readouterr().out)
    expected = {(v, "elementwise", n) for v in ("ufunc", "operator") for n in (1, 8)}
    assert {(line["variant"], line["call"], line["count"]) for line in lines} == expected
    clocks = {"host-latency": 10.3e-6, "host-throughput": 5.2e-6, "host-issue": 5.1e-6, "device": 2.5e-6}
    m = row("launch/cupy/rawkernel", Launch("empty"), clocks, flags=("cpu-clock",))
    expected = ["cupy/rawkernel", "empty x1", "gpu:0", "10.3", "0", "5.20", "5.10", "2.50", "cpu-clock"]
    assert launch.LaunchTable().cells(m) == expected
    failed = row("launch/cupy/graph", Launch("empty"), None, status="failed", reason="no memory")
    assert launch.LaunchTable().cells(failed)[3:] == ["failed", "", "", "", "", "no memory"]
    launch.LaunchTable().add(row("launch/cupy/graph", Launch("copy"), None, status="skipped", reason="it has no copy"))
    assert capsys.readouterr().out == ""


def once(backend: str, call: str) -> Row:
    return Row(f"launch/{backend}/once", Launch(call), Settings("cpu", process="fresh"))


def fresh(wanted: Row):
    worker = Worker(environment(wanted, {}))
    try:
        return worker.ask(Order("measure", wanted), 60)
    finally:
        worker.close()


def test_five_fresh_processes_are_merged_with_their_spread(tmp_path):
    m = fresh(once("numba", "compile"))
    (samples,) = m.samples
    assert (m.status, m.check, samples.stop_reason, samples.calls) == ("ok", "nothing is computed", "once", 1)
    assert list(m.phases_s) == ["import"] and samples.seconds[0] > 0.01 and m.phases_s["import"] > 0.01
    m = fresh(once("numba", "device_start"))
    assert (m.status, m.reason) == ("skipped", "numba has no device_start of its own; it has import, compile")
    plan = launch.parse(["--backends", "numba", "--calls", "import", "-q", "-o", str(tmp_path)])
    run = session.begin(plan)
    (m,) = plan.measure(run, plan.rows(run.machine)).measurements
    assert len(m.on("host-latency").seconds) == RIGOROUS_PROCESSES == len(set(m.on("host-latency").block))
    assert min(m.on("host-latency").seconds) > 0.01 and not m.phases_s  # the import itself, not a second one


def test_a_stale_process_or_missing_library_fails(monkeypatch):
    importlib.import_module("numba")
    with pytest.raises(RuntimeError, match="numba is imported already"):
        startup.measure(once("numba", "import"))
    for name in ("cupy", "cupy_backends"):
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(registry.BACKENDS, "cupy", registry.Backend(("gpu",), "cupy_", "cupy"))
    with pytest.raises(registry.NotInstalled, match="pip install cupy"):
        startup.measure(once("cupy", "import"))


def test_launch_cells_are_microseconds_per_row():
    """Each clock in its own column: waited for, queued, issued, on the device."""
    clocks = {"host-latency": 640e-6, "host-throughput": 320e-6, "host-issue": 64e-6, "device": 160e-6}
    table = launch.LaunchTable()
    many = row("launch/tensorflow/fit", Launch("step", 64), clocks, device="gpu:0", switches={"jit_compile": "on"})
    assert table.cells(many) == [
        "tensorflow/fit",
        "step x64",
        "gpu:0",
        "640",
        "0",
        "320",
        "64.0",
        "160",
        "jit_compile on",
    ]
    alone = row("launch/numba/njit", Launch("empty", 1), 2e-6, threads=2, flags=("steal",))
    assert table.cells(alone)[1:3] == ["empty x1", "2 threads"] and table.cells(alone)[-1] == "steal"
    once = row("launch/numba/once", Launch("import"), None, status="failed", reason="no numba")
    assert table.cells(once) == ["numba/once", "import", "cpu", "failed", "", "", "", "", "no numba"]
