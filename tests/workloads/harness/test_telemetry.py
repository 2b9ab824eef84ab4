"""What watches a measurement: every flag raised and not raised, on fake clocks, /proc, CuPy and NVML."""

import os
import statistics
import sys
import threading
import time
import types

import numba
import pytest
from fake_gpu import FakeNvml, fake_cupy, use_nvml, use_root, write

from workloads.harness import telemetry
from workloads.machine import cpu, gpu

STAT = "cpu0 {busy} 0 0 900 0 0 0 {stolen} 0 0\n"


class Clock:
    """A clock that only moves when told to; `sleep` moves it."""

    def __init__(self):
        self.time = 0.0

    def __call__(self):
        return self.time

    def sleep(self, seconds):
        self.time += seconds


def test_the_chain_takes_its_cycles():
    """A loop trip holds as many xors as adds of registers, each on the result of the one before; they take their cycles."""
    compiled = numba.njit("uint64(int64, uint64, uint64)", nogil=True)(telemetry._chain)
    assembly = next(iter(compiled.inspect_asm().values()))
    if "xorq" not in assembly:
        pytest.skip("not an x86-64")
    body = assembly[: assembly.index("retq")].splitlines()
    steps = [line.split() for line in body if line.strip().startswith(("xorq", "addq\t%"))]
    assert len(steps) >= 4 and len({line[-1] for line in steps}) == 1, "all on one register"
    assert [line[0] for line in steps] == ["xorq", "addq"] * (len(steps) // 2)
    assert telemetry.compiled_chain()(3, 3, 5) == telemetry._chain(3, 3, 5) and 2e8 < telemetry.cpu_clock_hz() < 1e10


@pytest.mark.parametrize(
    ("clocks", "answer"),
    [([], False), ([3e9], False), ([3e9, 3.08e9, 2.92e9], False), ([3e9, 3e9, 3.1e9], True), ([3e9, 3e9, 2.9e9], True)],
)
def test_uneven(clocks, answer):
    assert telemetry.uneven(clocks) is answer


def test_shares_of_stolen_and_others_time():
    # 2 CPUs for 10 s: this process worked 12 s, others 2 s, 1 s was stolen of the 15 s asked for.
    spent = telemetry.HostSeconds(wall=10.0, process=12.0, busy=14.0, stolen=1.0)
    shares = telemetry.shares(spent, 2)
    assert shares == pytest.approx({"steal_fraction": 1 / 15, "other_load_fraction": 0.1})
    assert telemetry.shares(spent._replace(wall=0.05), 2) == {}, "too short"
    assert telemetry.shares(spent._replace(busy=0.0, stolen=0.0), 1) == {}, "the kernel does not count"
    one_tick = telemetry.HostSeconds(wall=1.0, process=0.1, busy=0.1, stolen=1 / cpu.TICKS_A_SECOND)
    assert telemetry.shares(one_tick, 1)["steal_fraction"] == 0, "one tick proves nothing"
    behind = telemetry.HostSeconds(wall=1.0, process=0.2, busy=0.1)
    assert telemetry.shares(behind, 1)["other_load_fraction"] == 0, "never below zero"
    crowded = telemetry.HostSeconds(wall=1.0, process=0.0, busy=2.02)
    assert telemetry.shares(crowded, 2)["other_load_fraction"] == 1, "never above one: such a row would not be read"


def cpu_seen(monkeypatch, root, clocks, *, wall=1.0, own=0.5, busy=50, stolen=0, throttled=0):
    """What a watch says over `wall` seconds of one CPU in which so many ticks were worked and stolen."""
    now, process = Clock(), Clock()
    use_root(monkeypatch, root)
    monkeypatch.setattr(cpu, "affinity", lambda: frozenset({0}))
    monkeypatch.setattr(cpu, "TICKS_A_SECOND", 100)
    monkeypatch.setattr(telemetry.time, "monotonic", now)
    monkeypatch.setattr(telemetry.time, "process_time", process)
    files = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": "30 23 0:26 / /cg rw - cgroup2 cgroup rw\n"}
    write(root, {**files, "proc/stat": STAT.format(busy=1000, stolen=10), "cg/cpu.stat": "throttled_usec 7\n"})
    answers = iter([clocks[0], *clocks])  # the first call compiles
    watch = telemetry.CpuWatch(lambda: next(answers))
    for _ in clocks[:-1]:
        watch.before_block()
    now.time, process.time = wall, own
    stat = STAT.format(busy=1000 + busy, stolen=10 + stolen)
    write(root, {"proc/stat": stat, "cg/cpu.stat": f"throttled_usec {7 + throttled}\n"})
    return watch.readings()


@pytest.mark.parametrize(
    ("about", "flags"),
    [
        ({}, ()),
        ({"stolen": 3}, ("steal",)),  # 3 ticks of 53
        ({"stolen": 1}, ()),  # a single tick
        ({"busy": 59}, ()),  # others took 9 % of the CPU
        ({"busy": 61}, ("other-load",)),  # and 11 %
        ({"throttled": 2000}, ("quota",)),
        ({"stolen": 5, "busy": 80, "throttled": 1}, ("steal", "quota", "other-load")),
    ],
)
def test_cpu_flags(monkeypatch, tmp_path, about, flags):
    values, raised = cpu_seen(monkeypatch, tmp_path, [3e9, 3e9, 3.01e9], **about)
    assert raised == flags
    assert values["cpu_clock_hz"] == 3e9
    assert values.get("throttled_s", 0) == pytest.approx(about.get("throttled", 0) * 1e-6)
    if about == {"stolen": 3}:
        assert values["steal_fraction"] == pytest.approx(3 / 53)


def test_a_slower_clock_is_flagged_unlike_stolen_time(monkeypatch, tmp_path):
    use_root(monkeypatch, tmp_path)

    def seen(*looks):
        """Compiles; two blocks; a look and, where it is bad, a second; the last."""
        given = iter([3e9, 3e9, 3e9, *looks, 3e9])
        watch = telemetry.CpuWatch(lambda: next(given))
        for _ in range(3):
            watch.before_block()
        return watch.readings()

    assert cpu_seen(monkeypatch, tmp_path, [3e9] * 4)[1] == seen(1e9, 3e9)[1] == ()
    values, flags = seen(2.8e9, 2.8e9)
    assert flags == ("cpu-clock",) and values["cpu_clock_hz"] == statistics.median([3e9, 3e9, 2.8e9, 3e9])


def settled(running, spent=lambda time: 0.0, limit=0.5):
    """Seconds that settle waits: `running(time)` is what others do, `spent(time)` the process's CPU time."""
    clock = Clock()
    fake = types.SimpleNamespace(perf_counter=clock, process_time=lambda: spent(clock.time), sleep=clock.sleep)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(telemetry, "time", fake)
        patched.setattr(telemetry.cpu, "others_running", lambda this_process: running(clock.time))
        waited = telemetry.settle(limit)
    assert waited == pytest.approx(clock.time)
    return waited


def test_threads_settle_by_state_or_process_clock():
    assert settled(lambda time: False) == 0 and settled(lambda time: time < 0.1) == pytest.approx(0.1, abs=2e-3)
    assert settled(lambda time: True) == pytest.approx(0.5, abs=2e-3), "gives up at its limit"
    assert settled(lambda time: True, limit=0.05) == pytest.approx(0.05, abs=2e-3)
    window = telemetry._WINDOW_S
    assert settled(lambda time: None) == pytest.approx(window)
    assert 0.1 <= settled(lambda time: None, spent=lambda time: min(time, 0.1)) <= 0.1 + 2 * window
    # One thread of ours wakes up now and then: that is not spinning.
    assert settled(lambda time: None, spent=lambda time: 0.02 * time) == pytest.approx(window)
    assert settled(lambda time: None, spent=lambda time: 2 * time) >= 0.5


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="the system does not tell")
def test_settle_waits_for_a_real_thread_that_works(monkeypatch):
    monkeypatch.setattr(cpu.os, "getppid", os.getpid)  # else it waits for the other worker of these tests too
    chain, started = telemetry.compiled_chain(), threading.Event()
    telemetry.settle(10.0)  # what tests before it left at work

    def work():
        started.set()
        chain(300_000_000, 3, 5)  # 0.2 s at 3 GHz, without Python's lock, as BLAS's workers spin

    thread = threading.Thread(target=work)
    thread.start()
    started.wait()
    time.sleep(0.01)
    assert 0.02 < telemetry.settle(10.0) < 10.0
    thread.join()
    assert telemetry.settle(10.0) < 0.02


def test_threads_states(tmp_path, monkeypatch):
    use_root(monkeypatch, tmp_path)
    me = threading.get_native_id()
    write(tmp_path, {f"proc/self/task/{me}/stat": f"{me} (python) R 1 2"})
    write(tmp_path, {"proc/self/task/9/stat": "9 (a) R (b) S 1 2"})
    assert cpu.others_running() is False
    write(tmp_path, {"proc/self/task/10/stat": "10 (openblas) R 1 2"})
    assert cpu.others_running() is True
    use_root(monkeypatch, tmp_path / "none")
    assert cpu.others_running() is None


@pytest.mark.parametrize(
    ("flags", "reasons"),
    [
        (set(), (0x0, 0x1, 0x2, 0x10)),
        ({"power-cap"}, (0x4, 0x80, 0x88)),
        ({"thermal"}, (0x20, 0x48, 0x8)),
        ({"power-cap", "thermal"}, (0x24,)),
    ],
)
def test_throttle_flags(flags, reasons):
    assert [telemetry.throttle_flags(bits) for bits in reasons] == [flags] * len(reasons)


def gpu_seen(clocks, wall=1.0):
    now, answers = Clock(), iter(clocks)
    watch = telemetry.GpuWatch(0, lambda: next(answers), now)
    for _ in clocks[:-1]:
        watch.before_block()
    now.time = wall
    return watch.readings()


def test_a_gpu_is_watched_without_nvml(monkeypatch):
    fake_cupy(monkeypatch)
    use_nvml(monkeypatch, None)
    assert gpu_seen([1.98e9] * 3) == ({"gpu_clock_hz": 1.98e9}, ())
    assert gpu_seen([1.98e9, 1.98e9, 1.7e9]) == ({"gpu_clock_hz": 1.98e9}, ("gpu-clock",))
    assert gpu_seen([None, None]) == ({}, ())
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetMaxClockInfo=2000))
    looks = iter([1e9] * 2 + [1.9e9] * 2 + [1.9e9] * 2)
    watch = telemetry.GpuWatch(0, lambda: next(looks))
    found = []
    for _ in range(3):
        watch.begin()
        watch.before_block()
        found.append("cold-clocked" in watch.readings()[1])
    assert found == [True, False, False]


@pytest.mark.parametrize(
    ("reasons", "pids", "flags"),
    [
        (0x0, [], ()),
        (0x4, [], ("power-cap",)),
        (0x40, [], ("thermal",)),
        (FakeNvml.NVMLError("not supported"), [], ()),
        (0x0, [os.getpid(), os.getppid()], ()),
        (0x0, [os.getpid(), 1 << 29], ("other-tenant",)),
        (0x0, [1 << 29], ()),  # ours, by the host's number
        (0x0, [1 << 29, (1 << 29) + 1], ("other-tenant",)),
    ],
)
def test_gpu_flags(monkeypatch, reasons, pids, flags):
    fake_cupy(monkeypatch)
    running = {"nvmlDeviceGetComputeRunningProcesses": [types.SimpleNamespace(pid=pid) for pid in pids]}
    answers = {"nvmlDeviceGetCurrentClocksThrottleReasons": reasons, **running}
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetPowerUsage=650_000, **answers))
    assert gpu_seen([1.98e9] * 3) == ({"gpu_clock_hz": 1.98e9, "gpu_power_w": 650.0}, flags)


@pytest.mark.parametrize(
    ("held_ns", "flags"), [((0, 0), ()), ((20e6, 0), ()), ((40e6, 0), ("power-cap",)), ((0, 40e6), ("thermal",))]
)
def test_the_drivers_own_count_of_held_time(monkeypatch, held_ns, flags):
    fake_cupy(monkeypatch)
    answers = iter([(5e9, 6e9), (5e9 + held_ns[0], 6e9 + held_ns[1])])
    counts = {}

    def violation(handle, policy):
        if policy == 0:
            counts.update(enumerate(next(answers)))
        return types.SimpleNamespace(violationTime=counts[policy], referenceTime=0)

    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetViolationStatus=violation))
    assert gpu_seen([1.98e9] * 2)[1] == flags


@pytest.mark.parametrize(
    ("clock", "most", "reasons", "cold"),
    [
        (1.2e9, 1980, FakeNvml.NVMLError(), True),
        (1.2e9, 1980, 0x1, True),  # idle
        (1.2e9, 1980, 0x4, False),
        (1.2e9, 1980, 0x2, False),  # set so
        (1.79e9, 1980, 0x0, False),
        (1.78e9, lambda handle, domain: {1: 1980}[domain], 0x0, True),
        (1.2e9, FakeNvml.NVMLError(), 0x0, False),
        (None, 1980, 0x0, False),
    ],
)
def test_an_idle_gpu_clock_is_flagged(monkeypatch, clock, most, reasons, cold):
    fake_cupy(monkeypatch)
    answers = {"nvmlDeviceGetMaxClockInfo": most, "nvmlDeviceGetCurrentClocksThrottleReasons": reasons}
    use_nvml(monkeypatch, FakeNvml(**answers))
    assert ("cold-clocked" in gpu_seen([clock] * 2)[1]) == cold


def test_what_happens_between_visits_is_no_rows(monkeypatch, tmp_path):
    """Two visits of 0.06 s, of which nothing could be said alone, with 9 s of other load between them."""
    cpu_seen(monkeypatch, tmp_path, [3e9] * 2)
    now, process = Clock(), Clock()
    monkeypatch.setattr(telemetry.time, "monotonic", now)
    monkeypatch.setattr(telemetry.time, "process_time", process)

    def ticks(busy: int, stolen: int = 0):
        write(tmp_path, {"proc/stat": STAT.format(busy=busy, stolen=stolen)})

    ticks(0)
    watch = telemetry.CpuWatch(lambda: 3e9)
    ticks(6)
    now.time, process.time = 0.06, 0.06
    assert "steal_fraction" not in watch.readings()[0]
    ticks(906, 50)
    now.time = 10.0
    watch.begin()
    ticks(912, 50)
    now.time, process.time = 10.06, 0.12
    values, flags = watch.readings()
    assert (values["steal_fraction"], values["other_load_fraction"], flags) == (0, 0, ())
    watch.begin()
    ticks(930, 56)  # 0.18 s of others' and 0.06 s stolen beside 0.06 s of ours
    now.time, process.time = 10.16, 0.18
    values, flags = watch.readings()
    assert values["other_load_fraction"] == pytest.approx(0.12 / 0.22) and set(flags) == {"steal", "other-load"}
    assert values["steal_fraction"] == pytest.approx(0.06 / 0.36)


def test_the_clock_kernel_is_bounded_or_replaced(monkeypatch):
    calls = []

    def kernel(grid, block, args):
        calls.append((grid, block, [int(a) for a in args[1:]]))

    assert telemetry.sm_clock_hz(kernel, types.SimpleNamespace(get=lambda: [297_000, 150_000])) == pytest.approx(1.98e9)
    (grid, block, (limit_ns, polls)) = calls[0]
    assert (grid, block) == ((1,), (1,)) and limit_ns < 200_000 and polls <= 1 << 16
    assert telemetry.sm_clock_hz(kernel, types.SimpleNamespace(get=lambda: [5, 0])) is None
    loops = [line for line in telemetry._SM_CLOCK.splitlines() if "for (" in line]
    assert len(loops) == 2 and "while" not in telemetry._SM_CLOCK
    assert all("i < 4096" in line or "i < most_polls" in line for line in loops), "every loop counts to an end"
    made = fake_cupy(monkeypatch)
    use_nvml(monkeypatch, None)

    def broken(*_):
        raise RuntimeError("NVRTC is missing")

    made.RawKernel = broken
    telemetry._sm_clock_kernel.cache_clear()
    watch = telemetry.watch("gpu:1")
    watch.before_block()
    values, flags = watch.readings()
    assert "gpu_clock_hz" not in values and "cpu_clock_hz" in values
    assert "gpu-clock" not in flags


def test_a_cpu_row_is_watched_without_cupy(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setattr(gpu, "nvml", lambda: pytest.fail("a CPU row asks NVML nothing"))
    watch = telemetry.watch("cpu")
    watch.before_block()
    values, flags = watch.readings()
    assert values["cpu_clock_hz"] > 0
    assert set(flags) <= {"cpu-clock", "steal", "quota", "other-load"}


def test_our_other_workers_are_no_tenants(monkeypatch, tmp_path):
    """NVML gives the host's numbers there: as many are ours as the parent has children with a CUDA context."""
    parent = 4000  # the suite's own may be 1, as is that of 73
    monkeypatch.setattr(os, "getppid", lambda: parent)
    children = (os.getpid(), parent, "nvidia-uvm"), (71, parent, "nvidia-uvm"), (72, parent, "nvidiactl")
    for pid, of, file in (*children, (73, 1, "nvidia-uvm"), (parent, 1, "nvidia-uvm")):
        write(tmp_path, {f"proc/{pid}/stat": f"{pid} (python) S {of} 0 0"})
        (tmp_path / f"proc/{pid}/fd").mkdir()
        (tmp_path / f"proc/{pid}/fd/9").symlink_to(f"/dev/{file}")
    use_root(monkeypatch, tmp_path)
    assert telemetry.foreign_processes([900, 901]) == []  # this one and 71
    assert telemetry.foreign_processes([900, 901, 902]) == [902] and telemetry.foreign_processes(
        [os.getpid(), 71, 900]
    ) == [900]


def test_a_frameworks_gpu_is_watched_through_nvml_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-7")
    asked = []
    nvml = FakeNvml(nvmlDeviceGetPowerUsage=650_000, nvmlDeviceGetCurrentClocksThrottleReasons=0x4)
    nvml.nvmlDeviceGetHandleByUUID = lambda uuid: asked.append(uuid) or "board"
    use_nvml(monkeypatch, nvml)
    values, flags = telemetry.watch("gpu:0", framework=True).readings()
    assert asked == ["GPU-7"] and values["gpu_power_w"] == 650.0 and "gpu_clock_hz" not in values
    assert "power-cap" in flags
    use_nvml(monkeypatch, None)
    values, flags = telemetry.watch("gpu:0", framework=True).readings()
    assert not {"gpu_power_w", "cpu_clock_hz"} & set(values) and "cpu-clock" not in flags


class Part:
    """A watch that counts how often it was asked."""

    def __init__(self, values, flags):
        self.values, self.flags, self.calls = values, flags, []

    def begin(self):
        self.calls.append("begin")

    def before_block(self):
        self.calls.append("before block")

    def readings(self):
        self.calls.append("seen")
        return telemetry.Readings(self.values, self.flags)


@pytest.mark.parametrize(("on_gpu", "flags"), [(True, ("hot", "steal")), (False, ("hot", "steal", "cpu-clock"))])
def test_a_watch_asks_all_its_parts(on_gpu, flags):
    parts = Part({"gpu_power_w": 300.0}, ("hot",)), Part({"cpu_clock_hz": 3e9}, ("steal", "cpu-clock"))
    watch = telemetry.Watch(on_gpu, *parts)
    watch.begin()
    watch.before_block()
    assert watch.readings() == ({"gpu_power_w": 300.0, "cpu_clock_hz": 3e9}, flags)
    assert [part.calls for part in parts] == [["begin", "before block", "seen"]] * 2


def test_the_links_highest_state_while_copying_counts(monkeypatch):
    fake_cupy(monkeypatch)
    generations = iter([1, 5, 5, 1])  # an idle link falls back
    about = {"nvmlDeviceGetCurrPcieLinkGeneration": lambda handle: next(generations)}
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetCurrPcieLinkWidth=16, **about))
    watch = telemetry.GpuWatch(0, lambda: None, link=True)
    for _ in range(3):
        watch.before_block()
    assert watch.readings() == ({"pcie_generation": 5.0, "pcie_width": 16.0}, ())
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetCurrPcieLinkGeneration=lambda handle: pytest.fail("only for copies")))
    assert telemetry.GpuWatch(0, lambda: None).readings() == ({}, ())
    use_nvml(monkeypatch, None)
    assert telemetry.GpuWatch(0, lambda: None, link=True).readings() == ({}, ())
