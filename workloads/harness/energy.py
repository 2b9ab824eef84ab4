"""Joules by the counters that are here: NVML's of a whole GPU board, RAPL's of the CPU's packages. Nothing is ever set."""

import os
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from workloads.machine import cpu, gpu

WINDOW_S = 0.5  # NVML's counter moves every 20 to 100 ms
WINDOWS = 3
_QUEUED = 64  # calls issued before they are waited for: no window runs on for long after its end
_POWERCAP = "sys/class/powercap"
NO_RAPL = "no energy: RAPL's counters (/sys/class/powercap) are not readable here"
NO_NVML = "no energy: NVML gives no energy counter for this GPU"


class NoCounter(Exception):
    """Nothing here counts the energy of a device; the message says why."""


class GpuEnergy:
    """NVML's counter of the energy of a whole GPU board."""

    words = "NVML, whole board"

    def __init__(self, handle: object):
        """handle: NVML's, of the GPU."""
        self._handle = handle

    def read(self) -> float | None:
        """Joules that the board has used so far; None where NVML does not answer."""
        millijoules = gpu.ask("nvmlDeviceGetTotalEnergyConsumption", self._handle)
        return None if millijoules is None else millijoules * 1e-3


class CpuEnergy:
    """RAPL's counters of the energy of the CPU packages."""

    words = "RAPL, CPU packages"

    def __init__(self, folders: list[Path]):
        """folders: where Linux shows the counter of each package."""
        self._packages = [_Package(folder) for folder in folders]

    def read(self) -> float:
        """Joules that the packages have used since this object was made."""
        return sum(package.read() for package in self._packages)


class _Package:
    """The counter of one CPU package, in microjoules; it begins again at 0 when it reaches its range."""

    def __init__(self, folder: Path):
        self._file = folder / "energy_uj"
        self._range_uj = int(cpu.text(folder / "max_energy_range_uj") or 0) or 1 << 32
        self._last_uj = int(cpu.text(self._file))
        self._total_uj = 0

    def read(self) -> float:
        """Joules that the package has used since this object was made."""
        now_uj = int(cpu.text(self._file))
        self._total_uj += (now_uj - self._last_uj) % self._range_uj
        self._last_uj = now_uj
        return self._total_uj * 1e-6


def counter(device: str, environment: Mapping[str, str] = os.environ) -> GpuEnergy | CpuEnergy:
    """The counter of the energy that a device uses: of the CPU, or of the only GPU that a process with this environment sees.

    Raises: NoCounter.
    """
    if device == "cpu":
        packages = []
        for folder in sorted(
            (cpu.ROOT / _POWERCAP).glob("intel-rapl:*")
        ):  # one a package, one each for its cores and its memory
            if cpu.text(folder / "name").startswith("package") and cpu.text(folder / "energy_uj").isdigit():
                packages.append(folder)
        if not packages:
            raise NoCounter(NO_RAPL)
        return CpuEnergy(packages)
    handle = gpu.only_handle(device, environment)
    if handle is None or GpuEnergy(handle).read() is None:
        raise NoCounter(NO_NVML)
    return GpuEnergy(handle)


def used(
    read: Callable[[], float | None], call: Callable[[], object], wait: Callable[[], None], samples: int
) -> dict[str, float]:
    """The energy of calls as values of a row: joules_per_sample, and watts, which include the idle power. {} if the counter
    stops.

    read: reads the counter, in joules. call: begins one inference of `samples` samples. wait: returns when the begun calls are
    done. The counter is read before and after windows of at least WINDOW_S full of calls; the median of the windows counts.
    """
    joules_per_sample = []
    watts = []
    for _ in range(WINDOWS):
        wait()
        begin = time.perf_counter()
        joules_before = read()
        calls = 0
        while time.perf_counter() - begin < WINDOW_S:
            call()
            calls += 1
            if calls % _QUEUED == 0:
                wait()
        wait()
        spent = time.perf_counter() - begin
        joules_after = read()
        if joules_before is None or joules_after is None or joules_after <= joules_before:
            return {}
        joules = joules_after - joules_before
        joules_per_sample.append(joules / (calls * samples))
        watts.append(joules / spent)
    return {"joules_per_sample": statistics.median(joules_per_sample), "watts": statistics.median(watts)}
