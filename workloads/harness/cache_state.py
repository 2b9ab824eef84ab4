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


def flush(kernel: Kernel, device: str) -> Callable[[], object]:
    """A function that empties the caches of the device (`cpu` or a GPU) of the kernel's data, by reading other data.

    On the CPU it returns when that is done; on a GPU it queues the read, ahead of the kernel's work that is queued next.
    Raises: ValueError for a kernel of an operation without such data, and where the size of the caches is not known.
    """
    if kernel.op not in OPS:
        raise ValueError(f"cold rows are for data that a cache may hold, of {', '.join(OPS)}; a {kernel.op} has none")
    if device == "cpu":
        return cpu_flush(cpu.affinity())
    return _tensorflow() if kernel.backend in registry.FRAMEWORKS else _cupy()


@functools.cache
def cpu_flush(cpus: frozenset[int]) -> Callable[[], None]:
    """A function that empties the caches of these logical CPUs: a thread on each reads a part of an array that is several times
    as large as the last-level caches together.

    The threads are Python's, which sleep when done. Threads of OpenMP or a BLAS would spin on the cores that the timed call
    needs. A virtual machine may claim a larger cache than it has; then more is read than is needed, which costs time only.
    Raises: ValueError where the size of the caches is not known, or the array would take more than a quarter of the memory.
    """
    cache_bytes = last_cache_bytes(cpus)
    if not cache_bytes:
        raise ValueError("how large this CPU's caches are is not known, so nothing can be told to be cold")
    array_bytes = TIMES * cache_bytes
    free_bytes = facts.memory_available()
    if array_bytes > free_bytes // 4:
        raise ValueError(
            f"emptying the caches takes {units.size(array_bytes)} to read, and at most a quarter of what is free, "
            f"{units.size(free_bytes)}, is taken for that"
        )
    array = np.ones(array_bytes // 8)  # float64: 8 bytes each
    parts = np.array_split(array, len(cpus))
    free_cpus = sorted(cpus)
    all_ready = threading.Barrier(len(cpus))
    pool = concurrent.futures.ThreadPoolExecutor(len(cpus), initializer=lambda: _pin_thread(free_cpus.pop()))

    def read(part: np.ndarray) -> float:
        all_ready.wait()  # else one thread could take two parts, and a core none
        return part.sum()

    def flush() -> None:
        list(pool.map(read, parts))

    flush()  # the first time it also waits until the array, as it was filled, is written back to memory
    return flush


def _pin_thread(cpu_number: int) -> None:
    """Lets this thread run on this logical CPU only, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu_number})


def last_cache_bytes(cpus: frozenset[int]) -> int:
    """Size of the last-level caches of these logical CPUs together, in bytes; 0 where it is not known."""
    return max(cpu.caches(cpus).values(), default=0) * last_caches(cpus)


def last_caches(cpus: frozenset[int]) -> int:
    """Number of last-level caches that these logical CPUs use; a chip may have several, each shared by some of its cores. 1 where
    the system does not say."""
    sharing_groups = set()  # lists of CPUs that share a last-level cache: `0-7,16-23`
    for number in cpus:
        caches = (cpu.ROOT / f"sys/devices/system/cpu/cpu{number}/cache").glob("index*")
        cpus_by_level = {cpu.text(cache / "level"): cpu.text(cache / "shared_cpu_list") for cache in caches}
        last_level = max(cpus_by_level, default=None)
        sharing_groups.add(cpus_by_level[last_level] if last_level else "")
    return max(1, len(sharing_groups))


@functools.cache
def _cupy() -> Callable[[], object]:
    """A function that reads TIMES the size of the GPU's L2 cache, by the kernel stream/cupy/wide on CuPy's current stream."""
    import cupy

    read_bytes = TIMES * cupy.cuda.Device().attributes["L2CacheSize"]
    problem = Stream("read", read_bytes, "float32")
    return registry.find("stream/cupy/wide").bind(problem, cupy.ones(problem.elements, np.float32))


@functools.cache
def _tensorflow() -> Callable[[], object]:
    """A function that reads TIMES the size of the GPU's L2 cache, by a sum in TensorFlow: CuPy is not imported in the
    processes of TensorFlow."""
    import tensorflow

    with tensorflow.device("/GPU:0"):
        data = tensorflow.ones(TIMES * _l2_bytes() // 4)  # float32: 4 bytes each
        read = tensorflow.function(tensorflow.reduce_sum, autograph=False)
        read(data)
    return lambda: read(data)


def _l2_bytes() -> int:
    """Bytes of the L2 cache of the first GPU that this process sees, as the CUDA driver says. Raises: ValueError where it does
    not."""
    driver = ctypes.CDLL("libcuda.so.1")
    cache_bytes = ctypes.c_int(0)
    device = ctypes.c_int(0)
    # Each call returns CUDA's error code, 0 for none; `or` ends at the first error.
    error = (
        driver.cuInit(0)
        or driver.cuDeviceGet(ctypes.byref(device), 0)
        or driver.cuDeviceGetAttribute(ctypes.byref(cache_bytes), _L2_CACHE_SIZE, device)
    )
    if error or cache_bytes.value < 1:
        raise ValueError(f"the driver does not say how large the GPU's cache is (error {error})")
    return cache_bytes.value
