"""Watches a measurement: clocks, stolen and throttled time, power and heat, other tenants. Nothing is ever set.

A worker makes one watch a row, lets it look before each block and asks at the end of each visit what was seen in all so far:

watch = telemetry.watch("cpu"); watch.begin(); watch.before_block(); ...; values, flags = watch.seen()
"""

import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable

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


class CpuWatch:
    """Clock, steal, quota and other processes' load while a row runs.

    values: cpu_clock_hz (median), steal_fraction (of the time asked for), throttled_s, other_load_fraction (of all
    usable CPUs). flags: cpu-clock, steal, quota, other-load.
    """

    def __init__(self, clock: Callable[[], float] = cpu_clock_hz):
        self._clock = clock
        self._cpus = cpu.affinity()
        self._clocks: list[float] = []
        self._spent: tuple[float, ...] = (0.0,) * 5
        clock()  # compiles
        self.begin()

    def begin(self) -> None:
        """A visit begins; what happened since the last one ended does not count."""
        self._begin = self._counters()

    def _counters(self) -> tuple[float, ...]:
        ticks = cpu.ticks(self._cpus)
        own = time.process_time()
        return time.monotonic(), own, ticks.busy_s, ticks.stolen_s, cpu.throttled_s()

    def before_block(self) -> None:
        if not (seen := self._clock()):
            return
        if self._clocks and uneven([seen, statistics.median(self._clocks)]):
            seen = max(seen, self._clock())  # a second look tells a stolen slice from a slower clock
        self._clocks.append(seen)

    def seen(self) -> tuple[dict[str, float], tuple[str, ...]]:
        self.before_block()
        now = self._counters()
        self._spent = tuple(s + b - a for s, a, b in zip(self._spent, self._begin, now, strict=True))
        self._begin = now
        wall, own, busy, stolen, throttled = self._spent
        values = {"cpu_clock_hz": statistics.median(self._clocks)} if self._clocks else {}
        values |= shares(wall, own, busy, stolen, len(self._cpus))
        if throttled > 0:
            values["throttled_s"] = throttled
        raised = {
            "cpu-clock": uneven(self._clocks),
            "steal": values.get("steal_fraction", 0) > TOLERANCE,
            "quota": throttled > 0,
            "other-load": values.get("other_load_fraction", 0) > OTHER_LOAD,
        }
        return values, tuple(flag for flag, up in raised.items() if up)


def shares(wall_s: float, own_s: float, busy: float, stolen: float, cpus: int) -> dict[str, float]:
    """steal_fraction and other_load_fraction over `wall_s` seconds of `cpus` CPUs, which were busy and stolen for so many seconds
    in all, and `own_s` of them busy for this process.

    Steal is a share of what was asked for (at work or stolen), as idle CPUs lose nothing. Empty for very short times
    and where the kernel does not count.
    """
    if wall_s < _SHORTEST_S or busy == 0:
        return {}
    asked = busy + stolen
    steal = stolen / asked if asked > 0 and stolen > _FEWEST_STOLEN_S * 0.999 else 0.0
    return {"steal_fraction": steal, "other_load_fraction": max(0.0, busy - own_s) / (wall_s * cpus)}


def settle(limit_s: float = 0.5, own: bool = True) -> float:
    """Waits until no thread of the parent's other workers runs, and with `own` no other one of this process, at most `limit_s`;
    gives the seconds waited.

    BLAS and OpenMP workers spin for 100 to 200 ms after a call and would halve the next threaded kernel. Where the
    system does not tell which threads run, the process's CPU time must stand still over a window instead.
    """
    begin = time.perf_counter()
    while time.perf_counter() - begin < limit_s:
        running = cpu.others_running(own=own)
        if running is None:
            used, since = time.process_time(), time.perf_counter()
            time.sleep(_WINDOW_S)
            running = time.process_time() - used > 0.1 * (time.perf_counter() - since)
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
        self._clock, self._now = clock or self._sm_clock(index), now
        self._clocks: list[float] = []
        self._power: list[float] = []
        self._flags: set[str] = set()
        self._link: dict[str, float] = {}
        self._looks_at = _LINK if link else {}
        self._tenants_at = float("-inf")
        self._elapsed, self._spent = 0.0, dict[str, float]()
        self.begin()

    def begin(self) -> None:
        """A visit begins; what happened since the last one ended does not count."""
        self._begin, self._held = self._now(), self._held_s()
        self._first, self._reasons = len(self._clocks), 0

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

    def _held_s(self) -> dict[str, float]:
        """Seconds so far in which the driver held the clock down, for each flag that it counts them for."""
        asked = {flag: self._ask("nvmlDeviceGetViolationStatus", policy) for flag, policy in _POLICIES.items()}
        return {flag: seen.violationTime * 1e-9 for flag, seen in asked.items() if seen is not None}

    def before_block(self) -> None:
        """Looks right after a block's work, while the GPU still holds the clock it ran that at."""
        if (clock := self._clock()) is not None:
            self._clocks.append(clock)
        reasons = self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0
        self._reasons |= reasons
        self._flags.update(throttle_flags(reasons))
        if (milliwatts := self._ask("nvmlDeviceGetPowerUsage")) is not None:
            self._power.append(milliwatts / 1e3)
        for value, name in self._looks_at.items():
            if seen := self._ask(name):
                self._link[value] = max(float(seen), self._link.get(value, 0.0))
        if self._now() - self._tenants_at >= _TENANTS_EVERY_S:
            self._tenants_at = self._now()
            seen = self._ask("nvmlDeviceGetComputeRunningProcesses") or []
            if foreign([process.pid for process in seen]):
                self._flags.add("other-tenant")

    def seen(self) -> tuple[dict[str, float], tuple[str, ...]]:
        self.before_block()
        self._elapsed += self._now() - self._begin
        for flag, held in self._held_s().items():
            self._spent[flag] = self._spent.get(flag, 0.0) + held - self._held.get(flag, held)
        self._flags |= {flag for flag, spent in self._spent.items() if spent > TOLERANCE * self._elapsed}
        if uneven(self._clocks):
            self._flags.add("gpu-clock")
        values = {"gpu_clock_hz": statistics.median(self._clocks)} if self._clocks else {}
        values |= self._link
        if self._power:
            values["gpu_power_w"] = max(self._power)
        return values, tuple(sorted(self._flags | ({"cold-clocked"} if self._cold() else set())))

    def _cold(self) -> bool:
        """Whether the visit's clock was far below the GPU's highest while nothing but idling was a reason for it."""
        seen, top = self._clocks[self._first :], self._ask("nvmlDeviceGetMaxClockInfo", _SM_DOMAIN) or 0
        return bool(seen) and not self._reasons & ~_IDLE_BIT and statistics.median(seen) < _COLD * top * 1e6


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
    found = 0
    for folder in (cpu.ROOT / "proc").glob("[0-9]*"):
        if int(folder.name) != os.getppid() and _sibling(int(folder.name)):
            with contextlib.suppress(OSError):  # gone meanwhile
                found += any(os.readlink(file) == _CUDA_FILE for file in (folder / "fd").iterdir())
    return found


class Watch:
    """The watches of a row on the CPU or on a GPU, as one."""

    def __init__(self, on_gpu: bool, *parts: CpuWatch | GpuWatch):
        self._on_gpu, self._parts = on_gpu, parts

    def begin(self) -> None:
        for part in self._parts:
            part.begin()

    def before_block(self) -> None:
        for part in self._parts:
            part.before_block()

    def seen(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """(values with the unit in their names, flags) of what was seen since the watch was made.

        The host's clock is a value of a GPU's row, not a flag: what it moves shows in the interval.
        """
        both = [part.seen() for part in self._parts]
        values = {name: value for part, _ in both for name, value in part.items()}
        raised = (flag for _, flags in both for flag in flags)
        return values, tuple(flag for flag in raised if not (self._on_gpu and flag == "cpu-clock"))


def watch(device: str, link: bool = False, framework: bool = False) -> Watch:
    """A watch on the CPU, and for a GPU's row first on the GPU that is CuPy's current one in this process; `link`: on
    its PCIe link too. A `framework`'s GPU, the only one that its process sees, is watched through NVML alone, and the host
    without its clock, which takes a second to compile."""
    if device == "cpu":
        return Watch(False, CpuWatch())
    if framework:
        seen = gpu.only_handle(device)
        own = [GpuWatch(0, clock=lambda: None, handle=seen)] if seen is not None else []
        return Watch(True, *own, CpuWatch(clock=float))
    import cupy

    return Watch(True, GpuWatch(cupy.cuda.runtime.getDevice(), link=link), CpuWatch())
