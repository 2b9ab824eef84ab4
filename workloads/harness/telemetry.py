"""Watches a measurement: clocks, stolen and throttled time, power and heat, other tenants. Nothing is ever set.

A worker makes one watch a row, lets it look before each block and reads it at the end of each visit, for all visits so far:

watch = telemetry.watch("cpu"); watch.begin(); watch.before_block(); ...; values, flags = watch.readings()
"""

import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

from workloads.machine import cpu, gpu
from workloads.machine.load import OTHER_LOAD

TOLERANCE = 0.03  # clocks and stolen time off by more make a row doubtful
_FEWEST_STOLEN_S = 2 / cpu.TICKS_A_SECOND  # /proc/stat counts whole ticks: one alone proves nothing
_SHORTEST_S = 0.1  # rows shorter than this are within a few ticks: no shares are worked out for them

_CHAIN_STEPS = 200_000
_CHAIN_PARTS = 4  # the fastest counts: an interrupt or a stolen slice hits one part, not all
_CYCLES_A_STEP = 2
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
_COLD = 0.9  # of the highest clock: a GPU that computes comes nearer unless power or heat keep it
_LINK = {"pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration", "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth"}
_POLICIES = {"power-cap": 0, "thermal": 1}  # NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL


def _chain(steps, x, k):
    """`steps` times x <- (x ^ k) + k: each step waits for the one before it."""
    for _ in range(steps):
        x = (x ^ k) + k
    return x


@functools.cache
def compiled_chain():
    """`_chain` as machine code. LLVM can fold neither step into the next: xor and add do not distribute over each
    other, and k is not known to it. Both take one cycle on every out-of-order x86-64 and AArch64 core."""
    import numba

    signature = "uint64(int64, uint64, uint64)"
    try:
        return numba.njit(signature, nogil=True, cache=True)(_chain)
    except (RuntimeError, OSError):  # no folder to keep the compiled code in
        return numba.njit(signature, nogil=True)(_chain)


def cpu_clock_hz() -> float:
    """The clock of the core this thread is on, from about half a millisecond of a chain whose cycles are known."""
    chain = compiled_chain()
    best = float("inf")
    for _ in range(_CHAIN_PARTS):
        begin = time.perf_counter()
        chain(_CHAIN_STEPS, 3, 6364136223846793005)
        best = min(best, time.perf_counter() - begin)
    return _CHAIN_STEPS * _CYCLES_A_STEP / best


def uneven(clocks: list[float]) -> bool:
    """Is a quarter of the clocks, or the only other one, more than TOLERANCE away from their median?

    One short look in many is off on any shared machine and moves no median.
    """
    if not clocks:
        return False
    middle = statistics.median(clocks)
    off = sum(abs(clock - middle) > TOLERANCE * middle for clock in clocks)
    return off > 0 and off >= len(clocks) / 4


class HostSeconds(NamedTuple):
    """Counters of the host, or what was spent of them. Seconds."""

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
        """These seconds, and those between two readings of the counters."""
        return HostSeconds(
            wall=self.wall + end.wall - begin.wall,
            process=self.process + end.process - begin.process,
            busy=self.busy + end.busy - begin.busy,
            stolen=self.stolen + end.stolen - begin.stolen,
            throttled=self.throttled + end.throttled - begin.throttled,
        )


class CpuWatch:
    """Clock, steal, quota and other processes' load while a row runs.

    values: cpu_clock_hz (median), steal_fraction (of the time asked for), throttled_s, other_load_fraction (of all
    usable CPUs). flags: cpu-clock, steal, quota, other-load.
    """

    def __init__(self, clock: Callable[[], float] = cpu_clock_hz):
        self._clock = clock
        self._cpus = cpu.affinity()
        self._clocks: list[float] = []
        self._spent = HostSeconds()
        clock()  # compiles
        self.begin()

    def begin(self) -> None:
        """A visit begins; what happened since the last one ended does not count."""
        self._begin = self._counters()

    def _counters(self) -> HostSeconds:
        ticks = cpu.ticks(self._cpus)
        return HostSeconds(
            process=time.process_time(),
            wall=time.monotonic(),
            busy=ticks.busy_s,
            stolen=ticks.stolen_s,
            throttled=cpu.throttled_s(),
        )

    def before_block(self) -> None:
        """Looks at the clock."""
        clock_hz = self._clock()
        if not clock_hz:
            return
        if self._clocks and uneven([clock_hz, statistics.median(self._clocks)]):
            clock_hz = max(clock_hz, self._clock())  # a second look tells a stolen slice from a slower clock
        self._clocks.append(clock_hz)

    def readings(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """(values, flags) of all visits so far."""
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
        return values, tuple(flag for flag, up in is_up.items() if up)


def shares(spent: HostSeconds, cpus: int) -> dict[str, float]:
    """steal_fraction and other_load_fraction of so many CPUs.

    Steal is a share of the time that was wanted (at work or stolen), as idle CPUs lose nothing. Empty for very short times
    and where the kernel does not count.
    """
    if spent.wall < _SHORTEST_S or spent.busy == 0:
        return {}
    steal = 0.0
    if spent.stolen > _FEWEST_STOLEN_S * 0.999:
        steal = spent.stolen / (spent.busy + spent.stolen)
    others = max(0.0, spent.busy - spent.process) / (spent.wall * cpus)
    return {
        "steal_fraction": steal,
        "other_load_fraction": min(1.0, others),
    }  # ticks of 10 ms count more than a short wall


def settle(limit_s: float = 0.5, this_process: bool = True) -> float:
    """Waits until no thread of the parent's other workers runs, and by default no other thread of `this_process`, at most
    `limit_s`; gives the seconds waited.

    BLAS and OpenMP workers spin for 100 to 200 ms after a call and would halve the next threaded kernel. Where the
    system does not tell which threads run, the process's CPU time must stand still over a window instead.
    """
    begin = time.perf_counter()
    while time.perf_counter() - begin < limit_s:
        running = cpu.others_running(this_process=this_process)
        if running is None:
            used_before = time.process_time()
            since = time.perf_counter()
            time.sleep(_WINDOW_S)
            running = time.process_time() - used_before > 0.1 * (time.perf_counter() - since)
        elif running:
            time.sleep(0.001)
        if not running:
            break
    return time.perf_counter() - begin


@functools.cache
def _sm_clock_kernel():
    import cupy

    return cupy.RawKernel(_SM_CLOCK, "sm_clock")


class GpuWatch:
    """SM clock, throttle reasons, power and other tenants of CuPy's GPU `index`; for copies (`link`) the PCIe link as
    well. Without NVML, only the clock. Of a framework's GPU NVML's `handle` is given, and its clock is not read: that
    would bring CuPy, a second context and other libraries.

    values: gpu_clock_hz (median), gpu_power_w (highest), pcie_generation and pcie_width (highest: an idle link falls
    back, and a look comes between blocks). flags: gpu-clock, power-cap, thermal, other-tenant, cold-clocked (of this visit).
    """

    def __init__(
        self,
        index: int,
        clock: Callable[[], float | None] | None = None,
        now=time.monotonic,
        link: bool = False,
        handle=None,
    ):
        self._handle = handle or gpu.handle(index)
        self._clock = clock or self._sm_clock(index)
        self._now = now
        self._clocks: list[float] = []
        self._power: list[float] = []
        self._flags: set[str] = set()
        self._link: dict[str, float] = {}
        self._looks_at = _LINK if link else {}
        self._tenants_at = float("-inf")
        self._elapsed_s = 0.0
        self._slowed_by_flag_s: dict[str, float] = {}
        self.begin()

    def begin(self) -> None:
        """A visit begins; what happened since the last one ended does not count."""
        self._begin_s = self._now()
        self._slowed_before_s = self._slowed_s()
        self._first_clock = len(self._clocks)  # of this visit
        self._reasons = 0

    @staticmethod
    def _sm_clock(index: int) -> Callable[[], float | None]:
        import cupy

        try:
            with cupy.cuda.Device(index):
                kernel, out = _sm_clock_kernel(), cupy.zeros(2, dtype=cupy.uint64)
                kernel.compile()
        except Exception:  # without NVRTC's headers or library there is no clock, and the row is measured all the same
            return lambda: None
        return functools.partial(sm_clock_hz, kernel, out)

    def _ask(self, name: str, *args):
        return gpu.ask(name, self._handle, *args) if self._handle else None

    def _slowed_s(self) -> dict[str, float]:
        """Flag -> the seconds so far in which the driver slowed the clock for that reason; only those that it counts."""
        seconds = {}
        for flag, policy in _POLICIES.items():
            status = self._ask("nvmlDeviceGetViolationStatus", policy)
            if status is not None:
                seconds[flag] = status.violationTime * 1e-9
        return seconds

    def before_block(self) -> None:
        """Looks right after a block's work, while the GPU still has the clock it ran that at."""
        clock_hz = self._clock()
        if clock_hz is not None:
            self._clocks.append(clock_hz)
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        self._reasons |= reasons
        self._flags.update(throttle_flags(reasons))
        milliwatts = self._ask("nvmlDeviceGetPowerUsage")
        if milliwatts is not None:
            self._power.append(milliwatts / 1e3)
        for value, name in self._looks_at.items():
            link = self._ask(name)
            if link:
                self._link[value] = max(float(link), self._link.get(value, 0.0))
        if self._now() - self._tenants_at >= _TENANTS_EVERY_S:
            self._tenants_at = self._now()
            processes = self._ask("nvmlDeviceGetComputeRunningProcesses") or []
            if foreign([process.pid for process in processes]):
                self._flags.add("other-tenant")

    def readings(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """(values, flags) of all visits so far."""
        self.before_block()
        self._elapsed_s += self._now() - self._begin_s
        for flag, seconds in self._slowed_s().items():
            in_visit = seconds - self._slowed_before_s.get(flag, seconds)
            self._slowed_by_flag_s[flag] = self._slowed_by_flag_s.get(flag, 0.0) + in_visit
        for flag, seconds in self._slowed_by_flag_s.items():
            if seconds > TOLERANCE * self._elapsed_s:
                self._flags.add(flag)
        if uneven(self._clocks):
            self._flags.add("gpu-clock")
        values = {"gpu_clock_hz": statistics.median(self._clocks)} if self._clocks else {}
        values |= self._link
        if self._power:
            values["gpu_power_w"] = max(self._power)
        flags = set(self._flags)
        if self._cold():
            flags.add("cold-clocked")
        return values, tuple(sorted(flags))

    def _cold(self) -> bool:
        """Whether the visit's clock was far below the GPU's highest while nothing but idling was a reason for it."""
        clocks_hz = self._clocks[self._first_clock :]
        if not clocks_hz or self._reasons & ~_IDLE_BIT:
            return False
        top_mhz = self._ask("nvmlDeviceGetMaxClockInfo", _SM_DOMAIN) or 0
        return statistics.median(clocks_hz) < _COLD * top_mhz * 1e6


def sm_clock_hz(kernel, out) -> float | None:
    """Cycles a second of one SM over 150 µs, on the current stream; None when the GPU's timer did not move."""
    import numpy as np

    kernel((1,), (1,), (out, np.uint64(_SM_CLOCK_NS), np.int32(_SM_CLOCK_POLLS)))
    cycles, nanoseconds = (int(n) for n in out.get())
    return cycles / (nanoseconds * 1e-9) if nanoseconds > 0 else None


def throttle_flags(reasons: int) -> set[str]:
    """power-cap and thermal, from NVML's bits. Idle, application clocks and sync boost are no fault of the run."""
    flags = {"power-cap"} if reasons & _POWER_BITS else set()
    if reasons & _THERMAL_BITS or (reasons & _SLOWDOWN_BIT and not flags):
        flags.add("thermal")
    return flags


def foreign(pids: list[int]) -> list[int]:
    """The processes among these that are not ours: neither this one nor its parent's other children.

    In a container NVML gives the host's numbers, of which none is ours to recognize: as many are then taken for ours as
    there are workers with a CUDA context, one at least.
    """
    if os.getpid() not in pids:
        return pids[max(1, _workers_on_gpu()) :]
    return [pid for pid in pids if pid != os.getpid() and not _sibling(pid)]


def _sibling(pid: int) -> bool:
    stat = cpu.text(cpu.ROOT / f"proc/{pid}/stat").rpartition(") ")[2].split()
    return pid == os.getppid() or (len(stat) > 1 and int(stat[1]) == os.getppid())


def _workers_on_gpu() -> int:
    """Processes of this one's parent, this one among them, that hold open what a CUDA context needs."""
    count = 0
    for folder in (cpu.ROOT / "proc").glob("[0-9]*"):
        if int(folder.name) != os.getppid() and _sibling(int(folder.name)):
            with contextlib.suppress(OSError):  # gone meanwhile
                count += any(os.readlink(file) == _CUDA_FILE for file in (folder / "fd").iterdir())
    return count


class Watch:
    """The watches of a row on the CPU or on a GPU, as one."""

    def __init__(self, on_gpu: bool, *parts: CpuWatch | GpuWatch):
        self._on_gpu = on_gpu
        self._parts = parts

    def begin(self) -> None:
        for part in self._parts:
            part.begin()

    def before_block(self) -> None:
        for part in self._parts:
            part.before_block()

    def readings(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """(values with the unit in their names, flags) since the watch began.

        The host's clock is a value of a GPU's row, not a flag: what it moves shows in the interval.
        """
        values: dict[str, float] = {}
        flags: list[str] = []
        for part in self._parts:
            part_values, part_flags = part.readings()
            values |= part_values
            flags += part_flags
        return values, tuple(flag for flag in flags if not (self._on_gpu and flag == "cpu-clock"))


def watch(device: str, link: bool = False, framework: bool = False) -> Watch:
    """A watch on the CPU, and for a GPU's row first on the GPU that is CuPy's current one in this process; `link`: on
    its PCIe link too. A `framework`'s GPU, the only one that its process sees, is watched through NVML alone, and the host
    without its clock, which takes a second to compile."""
    if device == "cpu":
        return Watch(False, CpuWatch())
    if framework:
        handle = gpu.only_handle(device)
        host = CpuWatch(clock=float)
        if handle is None:
            return Watch(True, host)
        return Watch(True, GpuWatch(0, clock=lambda: None, handle=handle), host)
    import cupy

    return Watch(True, GpuWatch(cupy.cuda.runtime.getDevice(), link=link), CpuWatch())
