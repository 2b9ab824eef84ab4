"""Watches what disturbs a measurement: clocks, stolen and throttled time, power and heat, other tenants. Nothing is ever set.

A worker makes one watch for each row, which looks before each block of samples and is read at the end of each visit, for all
visits so far:

watch = telemetry.watch("cpu"); watch.begin(); watch.before_block(); ...; readings = watch.readings()
"""

import contextlib
import functools
import math
import os
import statistics
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from workloads.machine import cpu, gpu
from workloads.machine.load import OTHER_LOAD

TOLERANCE = 0.03  # clocks and stolen time off by more make a row doubtful
_FEWEST_STOLEN_S = 2 / cpu.TICKS_A_SECOND  # /proc/stat counts whole ticks: one alone proves nothing
_SHORTEST_S = 0.1  # rows shorter than this are within a few ticks: no shares are worked out for them

_CHAIN_STEPS = 200_000
_CHAIN_START = 3
_CHAIN_KEY = 6364136223846793005  # an odd number of 63 bits; any would do
_CHAIN_PARTS = 4  # the fastest counts: an interrupt or a stolen slice hits one part, not all
_CYCLES_A_STEP = 2
_STILL_SHARE = 0.1  # of a window; a process that uses less CPU time has come to rest
_WINDOW_S = 0.012  # longer than a tick at 100 Hz: the CPU time of running threads is brought up to date by ticks

_SM_CLOCK_NS = 150_000
_SM_CLOCK_POLLS = 1 << 16  # the end of the loop should the GPU's timer stand still
_CUDA_FILE = "/dev/nvidia-uvm"  # open in every process with a CUDA context, and in none that only asks NVML
_TENANTS_EVERY_S = 0.5  # the list of processes costs NVML milliseconds
# One thread reads both counters until the time or the number of polls is up, so it always ends. It starts at a tick of
# the timer, which advances in steps of up to 1 µs on some GPUs. %clock64 counts SM cycles, %globaltimer nanoseconds.
_SM_CLOCK = r"""
__device__ unsigned long long timer() {
    unsigned long long now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now) :: "memory");
    return now;
}
extern "C" __global__ void sm_clock(unsigned long long* out, unsigned long long limit, int most_polls) {
    unsigned long long before = timer(), begin = before;
    for (int i = 0; i < 4096 && begin == before; ++i) begin = timer();
    unsigned long long first = clock64(), last = first, end = begin;
    for (int i = 0; i < most_polls && end - begin < limit; ++i) {
        end = timer();
        last = clock64();
    }
    out[0] = last - first;
    out[1] = end - begin;
}
"""
# NVML's clocks-event reasons, by bit. A hardware slowdown (8) goes with the bit that says why, or is heat.
_POWER_BITS = 0x4 | 0x80
_THERMAL_BITS = 0x20 | 0x40
_SLOWDOWN_BIT = 0x8
_IDLE_BIT = 0x1
_SM_DOMAIN = 1  # NVML_CLOCK_SM
_COLD_SHARE = 0.9  # of the highest clock: a GPU that computes comes nearer unless power or heat keep it
_LINK = {"pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration", "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth"}
_POLICIES = {"power-cap": 0, "thermal": 1}  # NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL


class Readings(NamedTuple):
    """What was watched during the visits to a row so far."""

    #: Name of a value in METRICS, such as cpu_clock_hz -> number.
    values: dict[str, float]
    #: Doubts about the row that this raises, such as steal.
    flags: tuple[str, ...]


def _chain(steps: int, x: int, k: int) -> int:
    """x after `steps` times x <- (x ^ k) + k, each of which needs the one before it."""
    for _ in range(steps):
        x = (x ^ k) + k
    return x


@functools.cache
def compiled_chain() -> Any:
    """`_chain` as machine code: a function of (steps, x, k), each step of which takes _CYCLES_A_STEP cycles.

    LLVM cannot fold steps together, as xor and add do not distribute over each other and k is not known to it. Both take one
    cycle on every out-of-order x86-64 and AArch64 core.
    """
    import numba

    signature = "uint64(int64, uint64, uint64)"
    try:
        return numba.njit(signature, nogil=True, cache=True)(_chain)
    except (RuntimeError, OSError):  # no folder for a cache of the compiled code
        return numba.njit(signature, nogil=True)(_chain)


def cpu_clock_hz() -> float:
    """The clock rate of the core that this thread runs on, by timing about half a millisecond of work whose cycles are known."""
    chain = compiled_chain()
    shortest_s = math.inf
    for _ in range(_CHAIN_PARTS):
        begin = time.perf_counter()
        chain(_CHAIN_STEPS, _CHAIN_START, _CHAIN_KEY)
        shortest_s = min(shortest_s, time.perf_counter() - begin)
    return _CHAIN_STEPS * _CYCLES_A_STEP / shortest_s


def uneven(clocks_hz: list[float]) -> bool:
    """Whether a quarter of these clock rates, one at least, is more than TOLERANCE (a share) away from their median.

    One look in many is off on any shared machine, and does not move the median of the samples.
    """
    if not clocks_hz:
        return False
    median_hz = statistics.median(clocks_hz)
    off = sum(abs(clock_hz - median_hz) > TOLERANCE * median_hz for clock_hz in clocks_hz)
    return off > 0 and off >= len(clocks_hz) / 4


class HostSeconds(NamedTuple):
    """Counters of the host at some moment, or how far they moved between two. Seconds."""

    #: Time on the wall.
    wall: float = 0.0
    #: CPU time of this process.
    process: float = 0.0
    #: CPU time of all processes on the usable CPUs.
    busy: float = 0.0
    #: CPU time that the hypervisor gave to other machines.
    stolen: float = 0.0
    #: Time in which a quota of the cgroup stopped this process.
    throttled: float = 0.0

    def plus(self, begin: "HostSeconds", end: "HostSeconds") -> "HostSeconds":
        """These seconds, and those by which the counters moved from `begin` to `end`."""
        return HostSeconds(
            wall=self.wall + end.wall - begin.wall,
            process=self.process + end.process - begin.process,
            busy=self.busy + end.busy - begin.busy,
            stolen=self.stolen + end.stolen - begin.stolen,
            throttled=self.throttled + end.throttled - begin.throttled,
        )


class CpuWatch:
    """Watches the CPU while a row is timed: its clock, time stolen by a hypervisor or a quota, the load of other programs.

    values: cpu_clock_hz (median), steal_fraction (of the time asked for), throttled_s, other_load_fraction (of all
    usable CPUs). flags: cpu-clock, steal, quota, other-load.
    """

    def __init__(self, clock: Callable[[], float] = cpu_clock_hz):
        """clock: gives the clock rate of the core in Hz; 0 where it is not to be looked at."""
        self._clock = clock
        self._cpus = cpu.affinity()
        self._clocks: list[float] = []
        self._spent = HostSeconds()
        clock()  # compiles
        self.begin()

    def begin(self) -> None:
        """Marks the beginning of a visit: what happened since the last one ended does not count."""
        self._begin = self._counters()

    def _counters(self) -> HostSeconds:
        """The host's counters now."""
        ticks = cpu.ticks(self._cpus)
        return HostSeconds(
            process=time.process_time(),
            wall=time.monotonic(),
            busy=ticks.busy_s,
            stolen=ticks.stolen_s,
            throttled=cpu.throttled_s(),
        )

    def before_block(self) -> None:
        """Looks at the clock of the core; called before each block of samples."""
        clock_hz = self._clock()
        if not clock_hz:
            return
        if self._clocks and uneven([clock_hz, statistics.median(self._clocks)]):
            clock_hz = max(clock_hz, self._clock())  # a second look tells a stolen slice of time from a slower clock
        self._clocks.append(clock_hz)

    def readings(self) -> Readings:
        """Values and flags of all visits so far; called at the end of a visit."""
        self.before_block()
        now = self._counters()
        self._spent = self._spent.plus(self._begin, now)
        self._begin = now
        spent = self._spent
        values = {"cpu_clock_hz": statistics.median(self._clocks)} if self._clocks else {}
        values |= shares(spent, len(self._cpus))
        if spent.throttled > 0:
            values["throttled_s"] = spent.throttled
        is_up = {
            "cpu-clock": uneven(self._clocks),
            "steal": values.get("steal_fraction", 0) > TOLERANCE,
            "quota": spent.throttled > 0,
            "other-load": values.get("other_load_fraction", 0) > OTHER_LOAD,
        }
        return Readings(values=values, flags=tuple(flag for flag, up in is_up.items() if up))


def shares(spent: HostSeconds, cpus: int) -> dict[str, float]:
    """Two values of a row: steal_fraction, the share of CPU time that a hypervisor gave to other machines, and
    other_load_fraction, the share of the time of all CPUs (`cpus` of them) that other programs used.

    Stolen is a share of the time that was wanted (at work or stolen), as idle CPUs lose nothing. {} for very short times and
    where the kernel does not count.
    """
    if spent.wall < _SHORTEST_S or spent.busy == 0:
        return {}
    steal = 0.0
    if spent.stolen > _FEWEST_STOLEN_S * 0.999:  # a little less, for rounding
        steal = spent.stolen / (spent.busy + spent.stolen)
    other_load = max(0.0, spent.busy - spent.process) / (spent.wall * cpus)
    # Ticks of 10 ms may add up to more than a short time on the wall.
    return {"steal_fraction": steal, "other_load_fraction": min(1.0, other_load)}


def settle(limit_s: float = 0.5, this_process: bool = True) -> float:
    """Waits until no thread of the parent's other worker processes runs, for at most `limit_s` seconds; returns the seconds
    that it waited.

    this_process: whether to wait for the other threads of this process, too. Threads of BLAS and OpenMP spin for 100 to 200 ms
    after a call and would halve the speed of the next threaded kernel. Where the system does not tell which threads run, the
    CPU time of this process must stand still for a moment instead.
    """
    begin = time.perf_counter()
    while time.perf_counter() - begin < limit_s:
        running = cpu.others_running(this_process=this_process)
        if running is None:  # the system does not tell
            used_before_s = time.process_time()
            window_began = time.perf_counter()
            time.sleep(_WINDOW_S)
            used_s = time.process_time() - used_before_s
            running = used_s > _STILL_SHARE * (time.perf_counter() - window_began)
        elif running:
            time.sleep(0.001)
        if not running:
            break
    return time.perf_counter() - begin


@functools.cache
def _sm_clock_kernel() -> Any:
    """The CuPy kernel of _SM_CLOCK, which counts cycles and nanoseconds on the GPU."""
    import cupy

    return cupy.RawKernel(_SM_CLOCK, "sm_clock")


class GpuWatch:
    """Watches a GPU while a row is timed: the clock of its multiprocessors, why it is throttled, its power, other programs on it.
    Without NVML only the clock is watched.

    values: gpu_clock_hz (median), gpu_power_w (highest), pcie_generation and pcie_width (highest: an idle link falls
    back, and a look comes between blocks). flags: gpu-clock, power-cap, thermal, other-tenant, cold-clocked (of this visit).
    """

    def __init__(
        self,
        index: int,
        clock: Callable[[], float | None] | None = None,
        now: Callable[[], float] = time.monotonic,
        link: bool = False,
        handle: object = None,
    ):
        """index: of the GPU as CuPy counts. clock: gives the clock rate in Hz or None; by default by a CuPy kernel, which a
        process of another framework must not run. link: whether to watch the PCIe link, as for copies. handle: NVML's of the
        GPU, where CuPy must not be imported to find it."""
        self._handle = handle or gpu.handle(index)
        self._clock = clock or self._sm_clock(index)
        self._now = now
        self._clocks: list[float] = []
        self._power: list[float] = []
        self._flags: set[str] = set()
        self._link: dict[str, float] = {}
        self._link_queries = _LINK if link else {}
        self._tenants_at = float("-inf")
        self._elapsed_s = 0.0
        self._slowed_by_flag_s: dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        """Marks the beginning of a visit: what happened since the last one ended does not count."""
        self._begin_s = self._now()
        self._slowed_before_s = self._slowed_s()
        self._first_clock = len(self._clocks)  # of this visit
        self._reasons = 0

    @staticmethod
    def _sm_clock(index: int) -> Callable[[], float | None]:
        """A function that gives the clock rate of the GPU's multiprocessors in Hz; None where it cannot be read."""
        import cupy

        try:
            with cupy.cuda.Device(index):
                kernel = _sm_clock_kernel()
                out = cupy.zeros(2, dtype=cupy.uint64)
                kernel.compile()
        except Exception:  # without NVRTC's headers or library there is no clock, and the row is measured all the same
            return lambda: None
        return functools.partial(sm_clock_hz, kernel, out)

    def _ask(self, name: str, *args: object) -> Any:
        """What NVML's function of this name answers for the GPU; None where it does not answer."""
        return gpu.ask(name, self._handle, *args) if self._handle else None

    def _slowed_s(self) -> dict[str, float]:
        """Flag (power-cap, thermal) -> seconds in which the driver has slowed the clock for that reason so far; only reasons for
        which it counts them."""
        seconds = {}
        for flag, policy in _POLICIES.items():
            status = self._ask("nvmlDeviceGetViolationStatus", policy)
            if status is not None:
                seconds[flag] = status.violationTime * 1e-9
        return seconds

    def before_block(self) -> None:
        """Looks at the GPU; called right after a block of samples and before the next, while the GPU still has the clock that it
        worked at."""
        clock_hz = self._clock()
        if clock_hz is not None:
            self._clocks.append(clock_hz)
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        self._reasons |= reasons
        self._flags.update(throttle_flags(reasons))
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        if milliwatts is not None:
            self._power.append(milliwatts / 1e3)
        for value, function in self._link_queries.items():
            link = self._ask(function)
            if link:
                self._link[value] = max(float(link), self._link.get(value, 0.0))
        if self._now() - self._tenants_at >= _TENANTS_EVERY_S:
            self._tenants_at = self._now()
            processes = self._ask("nvmlDeviceGetComputeRunningProcesses") or []
            if foreign_processes([process.pid for process in processes]):
                self._flags.add("other-tenant")

    def readings(self) -> Readings:
        """Values and flags of all visits so far; called at the end of a visit."""
        self.before_block()
        self._elapsed_s += self._now() - self._begin_s
        for flag, slowed_s in self._slowed_s().items():  # the driver's counters, which began long before
            in_visit_s = slowed_s - self._slowed_before_s.get(flag, slowed_s)
            self._slowed_by_flag_s[flag] = self._slowed_by_flag_s.get(flag, 0.0) + in_visit_s
        for flag, slowed_s in self._slowed_by_flag_s.items():
            if slowed_s > TOLERANCE * self._elapsed_s:
                self._flags.add(flag)
        if uneven(self._clocks):
            self._flags.add("gpu-clock")
        values = {"gpu_clock_hz": statistics.median(self._clocks)} if self._clocks else {}
        values |= self._link
        if self._power:
            values["gpu_power_w"] = max(self._power)
        flags = set(self._flags)
        if self._is_cold_clocked():
            flags.add("cold-clocked")
        return Readings(values=values, flags=tuple(sorted(flags)))

    def _is_cold_clocked(self) -> bool:
        """Whether the GPU had not left its idle clock in this visit: the clock was far below the highest one, and NVML names
        no other reason than idling."""
        clocks_hz = self._clocks[self._first_clock :]
        if not clocks_hz or self._reasons & ~_IDLE_BIT:
            return False
        top_mhz = self._ask("nvmlDeviceGetMaxClockInfo", _SM_DOMAIN) or 0
        return statistics.median(clocks_hz) < _COLD_SHARE * top_mhz * 1e6


def sm_clock_hz(kernel: Any, out: Any) -> float | None:
    """The clock rate of one multiprocessor of the GPU over 150 µs, in Hz; None when the GPU's timer did not move.

    kernel: the CuPy kernel of _SM_CLOCK, which runs on the current stream. out: CuPy array for its cycles and nanoseconds.
    """
    import numpy as np

    kernel((1,), (1,), (out, np.uint64(_SM_CLOCK_NS), np.int32(_SM_CLOCK_POLLS)))
    cycles, nanoseconds = (int(n) for n in out.get())
    return cycles / (nanoseconds * 1e-9) if nanoseconds > 0 else None


def throttle_flags(reasons: int) -> set[str]:
    """The flags for the reasons why a GPU's clock is slowed: power-cap, thermal. Other reasons (idle, application clocks, sync
    boost) are no fault of the run.

    reasons: bits as nvmlDeviceGetCurrentClocksThrottleReasons gives them.
    """
    flags = {"power-cap"} if reasons & _POWER_BITS else set()
    if reasons & _THERMAL_BITS or (reasons & _SLOWDOWN_BIT and not flags):
        flags.add("thermal")
    return flags


def foreign_processes(pids: list[int]) -> list[int]:
    """The process ids among these of other people's programs: neither this process, nor its parent, nor its parent's other
    children.

    In a container NVML gives the host's process ids, in which this process does not find its own. Then as many of them are taken
    for ours as there are workers with a CUDA context, one at least, and the others are returned.
    """
    if os.getpid() not in pids:
        count_ours = max(1, _workers_on_gpu())
        return pids[count_ours:]
    return [pid for pid in pids if pid != os.getpid() and not _is_family(pid)]


def _is_family(pid: int) -> bool:
    """Whether a process is this one's parent or has the same parent, by /proc/PID/stat."""
    # The state and the parent's id follow the command in parentheses, which may have any character.
    state_and_parent = cpu.text(cpu.ROOT / f"proc/{pid}/stat").rpartition(") ")[2].split()[:2]
    if pid == os.getppid():
        return True
    return len(state_and_parent) == 2 and int(state_and_parent[1]) == os.getppid()


def _workers_on_gpu() -> int:
    """Number of processes with this one's parent, this one among them, that have opened the file that a CUDA context needs."""
    count = 0
    for folder in (cpu.ROOT / "proc").glob("[0-9]*"):
        if int(folder.name) != os.getppid() and _is_family(int(folder.name)):
            with contextlib.suppress(OSError):  # gone meanwhile
                count += any(os.readlink(file) == _CUDA_FILE for file in (folder / "fd").iterdir())
    return count


class Watch:
    """The watch of a row: on the CPU, and for a row on a GPU on that GPU too."""

    def __init__(self, on_gpu: bool, *parts: CpuWatch | GpuWatch):
        """on_gpu: whether the row is timed on a GPU. parts: the watches to read."""
        self._on_gpu = on_gpu
        self._parts = parts

    def begin(self) -> None:
        """Marks the beginning of a visit."""
        for part in self._parts:
            part.begin()

    def before_block(self) -> None:
        """Looks; called before each block of samples."""
        for part in self._parts:
            part.before_block()

    def readings(self) -> Readings:
        """Values and flags of all visits so far; called at the end of a visit.

        The host's clock is a value of a GPU's row but raises no flag: where it matters, the row's interval is wide.
        """
        values: dict[str, float] = {}
        flags: list[str] = []
        for part in self._parts:
            part_readings = part.readings()
            values |= part_readings.values
            for flag in part_readings.flags:
                if not (self._on_gpu and flag == "cpu-clock"):
                    flags.append(flag)
        return Readings(values=values, flags=tuple(flags))


def watch(device: str, link: bool = False, framework: bool = False) -> Watch:
    """The watch of a row on this device, cpu or a GPU; of a GPU, CuPy's current one in this process.

    link: whether to watch the GPU's PCIe link. framework: whether TensorFlow or JAX works in this process. Then the only GPU
    that it sees is watched by NVML alone, as CuPy must not be imported, and the CPU without its clock, as that takes a second
    to compile.
    """
    if device == "cpu":
        return Watch(False, CpuWatch())
    if framework:
        handle = gpu.only_handle(device)
        host = CpuWatch(clock=float)  # float() is 0: no look at the clock
        if handle is None:
            return Watch(True, host)
        return Watch(True, GpuWatch(0, clock=lambda: None, handle=handle), host)
    import cupy

    return Watch(True, GpuWatch(cupy.cuda.runtime.getDevice(), link=link), CpuWatch())
