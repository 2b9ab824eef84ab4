"""What watches a measurement: clocks, stolen and throttled time, power and heat, other tenants. Nothing is ever set.

A worker makes one watch a row, lets it look before each block and asks at the end what was seen:

    watch = telemetry.watch("cpu"); watch.before_block(); ...; values, flags = watch.seen()
"""

import os

from workloads.harness.cpu_watch import CpuWatch
from workloads.harness.gpu_watch import GpuWatch
from workloads.machine import gpu


class Watch:
    """Several watches as one."""

    def __init__(self, *parts: CpuWatch | GpuWatch, on_gpu: bool = False):
        self._parts, self._on_gpu = parts, on_gpu or any(isinstance(part, GpuWatch) for part in parts)

    def before_block(self) -> None:
        for part in self._parts:
            part.before_block()

    def seen(self) -> tuple[dict[str, float], tuple[str, ...]]:
        """(values with the unit in their names, flags): what came of the row since the watch was made.

        The host's clock is a value of a GPU's row, not a flag: what it moves shows in the interval.
        """
        both = [part.seen() for part in self._parts]
        values = {name: value for part, _ in both for name, value in part.items()}
        raised = (flag for _, flags in both for flag in flags)
        return values, tuple(flag for flag in raised if not (self._on_gpu and flag == "cpu-clock"))


def watch(device: str, link: bool = False, framework: bool = False) -> Watch:
    """A watch on the CPU, and for a GPU's row first on the GPU that is CuPy's current one in this process; `link`: on
    its PCIe link too. A `framework`'s GPU, the only one that its process sees, is watched through NVML alone."""
    if device == "cpu":
        return Watch(CpuWatch())
    if framework:
        seen = gpu.only_handle(os.environ.get("CUDA_VISIBLE_DEVICES", ""), device)
        own = [GpuWatch(0, clock=lambda: None, handle=seen)] if seen is not None else []
        return Watch(*own, CpuWatch(), on_gpu=True)
    import cupy

    return Watch(GpuWatch(cupy.cuda.runtime.getDevice(), link=link), CpuWatch())
