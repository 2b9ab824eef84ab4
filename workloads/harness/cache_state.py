"""Cold calls: the caches are emptied before each, untimed, by reading something else."""

# Reading, as writing leaves lines that are written back while the call is timed. Four times the last cache is read: caches
# replace lines roughly in the order of their use, so that once its size leaves some of the old data there.

import concurrent.futures
import ctypes
import functools
import os
import threading
from collections.abc import Callable

import numpy as np

from analysis import units
from kernels import registry
from kernels.problems import Stream
from kernels.registry import Kernel
from workloads.machine import cpu, facts

TIMES = 4
OPS = ("matmul", "conv", "stream")
_L2_CACHE_SIZE = 38  # CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, from cuda.h


def flush(kernel: Kernel, device: str) -> Callable:
    """The call that makes a kernel's data cold on `cpu` or a GPU; on a GPU it is queued ahead of the kernel's work.

    Raises: ValueError where there is nothing to make cold, or no way to do so.
    """
    if kernel.op not in OPS:
        raise ValueError(f"cold rows are for data that a cache may hold, of {', '.join(OPS)}; a {kernel.op} has none")
    if device == "cpu":
        return cpu_flush(cpu.affinity())
    return _tensorflow() if kernel.backend in registry.FRAMEWORKS else _cupy()


@functools.cache
def cpu_flush(cpus: frozenset[int]) -> Callable:
    """Reads on every CPU of the process, each its share, so that no core's own caches stay warm. Python's threads do it: they
    sleep when done. Those of OpenMP and BLAS spin, and would hold the cores that the timed call needs.

    A virtual machine may claim a larger cache than it has; then more is read than is needed, which costs time only.
    """
    last = last_cache_bytes(cpus)
    if not last:
        raise ValueError("how large this CPU's caches are is not known, so nothing can be told to be cold")
    nbytes = TIMES * last
    free = facts.memory_available()
    if nbytes > free // 4:
        raise ValueError(
            f"emptying the caches takes {units.size(nbytes)} to read, and at most a quarter of what is free, "
            f"{units.size(free)}, is taken for that"
        )
    parts = np.array_split(np.ones(nbytes // 8), len(cpus))
    free_cpus = sorted(cpus)
    all_ready = threading.Barrier(len(cpus))
    pool = concurrent.futures.ThreadPoolExecutor(len(cpus), initializer=lambda: _stay_on(free_cpus.pop()))

    def read(part: np.ndarray) -> float:
        all_ready.wait()  # else one thread could take two parts, and a core none
        return part.sum()

    def flush() -> None:
        list(pool.map(read, parts))

    flush()  # what was written when the array was filled is written back now
    return flush


def _stay_on(number: int) -> None:
    """Keeps this thread on the CPU of that number, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {number})


def last_cache_bytes(cpus: frozenset[int]) -> int:
    """Bytes that the last-level caches of these CPUs hold together; 0 where unknown."""
    return max(cpu.caches(cpus).values(), default=0) * last_caches(cpus)


def last_caches(cpus: frozenset[int]) -> int:
    """Number of last-level caches of these CPUs; a chip may have several, each shared by some of its cores. 1 where unknown."""
    shared_by = set()
    for number in cpus:
        indices = (cpu.ROOT / f"sys/devices/system/cpu/cpu{number}/cache").glob("index*")
        levels = {cpu.text(index / "level"): cpu.text(index / "shared_cpu_list") for index in indices}
        shared_by.add(levels[max(levels)] if levels else "")
    return max(1, len(shared_by))


@functools.cache
def _cupy() -> Callable:
    import cupy

    nbytes = TIMES * cupy.cuda.Device().attributes["L2CacheSize"]
    problem = Stream("read", nbytes, "float32")
    return registry.find("stream/cupy/wide").bind(problem, cupy.ones(problem.elements, np.float32))


@functools.cache
def _tensorflow() -> Callable:
    """A sum by TensorFlow itself, as no CuPy is imported in its process."""
    import tensorflow

    with tensorflow.device("/GPU:0"):
        data = tensorflow.ones(TIMES * _l2_bytes() // 4)
        read = tensorflow.function(tensorflow.reduce_sum, autograph=False)
        read(data)
    return lambda: read(data)


def _l2_bytes() -> int:
    """The second-level cache of the first GPU that this process sees, by the driver."""
    driver = ctypes.CDLL("libcuda.so.1")
    size = ctypes.c_int(0)
    device = ctypes.c_int(0)
    failed = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or (driver.cuDeviceGetAttribute(ctypes.byref(size), _L2_CACHE_SIZE, device))
    )
    if failed or size.value < 1:
        raise ValueError(f"the driver does not say how large the GPU's cache is (error {failed})")
    return size.value
