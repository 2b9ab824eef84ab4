"""What watches a measurement's GPU: its clock, what holds that down, power, the link, other tenants."""

import contextlib
import functools
import os
import statistics
import time
from collections.abc import Callable

from workloads.harness.cpu_watch import TOLERANCE, uneven
from workloads.machine import cpu, gpu

_SM_CLOCK_NS = 150_000
_SM_CLOCK_POLLS = 1 << 16  # the end of the loop should the GPU's timer stand still
_CUDA_FILE = "/dev/nvidia-uvm"  # open in every process with a CUDA context, and in none that only asks NVML
_TENANTS_EVERY_S = 0.5  # the list of processes costs NVML milliseconds
# One thread reads both counters until the time or the number of polls is up, so it always ends. It starts at a tick of
# the timer, which advances in steps of up to 1 us on some GPUs. %clock64 counts SM cycles, %globaltimer nanoseconds.
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
_LINK = {"pcie_generation": "nvmlDeviceGetCurrPcieLinkGeneration", "pcie_width": "nvmlDeviceGetCurrPcieLinkWidth"}
_POLICIES = {"power-cap": 0, "thermal": 1}  # NVML_PERF_POLICY_POWER, NVML_PERF_POLICY_THERMAL


@functools.cache
def _sm_clock_kernel():
    import cupy

    return cupy.RawKernel(_SM_CLOCK, "sm_clock")


class GpuWatch:
    """SM clock, throttle reasons, power and other tenants of CuPy's GPU `index`; for copies (`link`) the PCIe link as
    well. Without NVML, only the clock. Of a framework's GPU NVML's `handle` is given, and its clock is not read: that
    would bring CuPy, a second context and other libraries.

    values: gpu_clock_hz (median), gpu_power_w (highest), pcie_generation and pcie_width (highest: an idle link falls
    back, and a look comes between blocks). flags: gpu-clock, power-cap, thermal, other-tenant.
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
        self._begin, self._held = now(), self._held_s()

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
        self._flags.update(throttle_flags(self._ask("nvmlDeviceGetCurrentClocksThrottleReasons") or 0))
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
        elapsed, held = self._now() - self._begin, self._held_s()
        self._flags |= {flag for flag in held if held[flag] - self._held.get(flag, held[flag]) > TOLERANCE * elapsed}
        if uneven(self._clocks):
            self._flags.add("gpu-clock")
        values = {"gpu_clock_hz": statistics.median(self._clocks)} if self._clocks else {}
        values |= self._link
        if self._power:
            values["gpu_power_w"] = max(self._power)
        return values, tuple(sorted(self._flags))


def sm_clock_hz(kernel, out) -> float | None:
    """Cycles a second of one SM over 150 us, on the current stream; None when the GPU's timer did not move."""
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
