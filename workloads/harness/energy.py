"""Joules by the counters that are here: NVML's of a whole GPU board, RAPL's of the CPU's packages. Nothing is ever set."""

import os
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from workloads.machine import cpu, gpu

WINDOW_S = 0.5  # NVML's counter moves every 20 to 100 ms
WINDOWS = 3
_QUEUED = 64  # calls issued before they are waited for: no window runs on for long after its end
_POWERCAP = "sys/class/powercap"
NO_RAPL = "no energy: RAPL's counters (/sys/class/powercap) are not readable here"
NO_NVML = "no energy: NVML gives no energy counter for this GPU"

Counter = Callable[[], float | None]


def counter(device: str, environment=os.environ) -> tuple[Counter | None, str]:
    """(function that reads the joules used so far, what they cover); (None, why there is none)."""
    if device == "cpu":
        folders = sorted((cpu.ROOT / _POWERCAP).glob("intel-rapl:*"))  # below are its cores and its memory
        packages = []
        for folder in folders:
            if cpu.text(folder / "name").startswith("package") and cpu.text(folder / "energy_uj").isdigit():
                packages.append(_package(folder))
        if not packages:
            return None, NO_RAPL
        return lambda: sum(package() for package in packages), "RAPL, CPU packages"
    handle = gpu.only_handle(device, environment)

    def read() -> float | None:
        millijoules = gpu.ask("nvmlDeviceGetTotalEnergyConsumption", handle)
        return None if millijoules is None else millijoules * 1e-3

    if handle is None or read() is None:
        return None, NO_NVML
    return read, "NVML, whole board"


def _package(folder: Path) -> Callable[[], float]:
    """Joules of one package since the first reading; its counter starts again at `max_energy_range_uj`."""
    counter_range = int(cpu.text(folder / "max_energy_range_uj") or 0) or 1 << 32
    last_uj = int(cpu.text(folder / "energy_uj"))
    total_uj = 0

    def read() -> float:
        nonlocal last_uj, total_uj
        now_uj = int(cpu.text(folder / "energy_uj"))
        total_uj += (now_uj - last_uj) % counter_range
        last_uj = now_uj
        return total_uj * 1e-6

    return read


def used(read: Counter, call: Callable[[], None], wait: Callable[[], None], samples: int) -> dict[str, float]:
    """joules_per_sample of `call`, which answers `samples` samples, and watts, idle power included. The counter is read before
    and after windows of at least WINDOW_S of calls that are waited for. Nothing if the counter stops."""
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
