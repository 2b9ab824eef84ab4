"""Makes every kernel run in every copy mode alike, so that only the copies differ.

resident: the data is on the device already. roundtrip: cp.asarray, compute, cp.asnumpy, as people write it (CuPy
stages through its pinned pool, every call takes fresh device memory). roundtrip-pageable: ndarray.set and get on
touched pageable memory. roundtrip-pinned: preallocated page-locked buffers, all on one stream, one wait.
"""

import dataclasses
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from kernels.problems import Problem
from kernels.problems.arrays import numpy_dtype
from kernels.registry import Kernel
from workloads.harness import bound_rows, cache_state
from workloads.harness.bound_rows import Arrays
from workloads.harness.dispatch import HANDLERS, handler
from workloads.machine import gpu
from workloads.records import Settings


@dataclasses.dataclass(frozen=True)
class Prepared:
    """A kernel with its inputs in a copy mode, ready to be called."""

    #: The call to time; it returns an array (or several) of the library that computes.
    run: Callable[[], Any]
    #: Takes what `run` returned; gives it as a NumPy array.
    result: Callable[[Any], np.ndarray]
    #: Waits for the device; None where the call returns when it is done.
    synchronize: Callable[[], object] | None = None
    #: CuPy's stream on which the work is queued; None for other libraries.
    stream: Any = None
    #: Empties the caches of the data before a call; None where they stay warm.
    flush: Callable[[], object] | None = None

    def call(self) -> Any:
        """What one call of `run` returns, after its work on the device is done."""
        value = self.run()
        if self.synchronize:
            self.synchronize()
        return value

    @property
    def passes(self) -> int:
        """How many times one call of `run` does the problem; a short kernel may do it several times."""
        return getattr(self.run, "passes", 1)

    @property
    def notes(self) -> dict[str, str]:
        """Choices that the kernel made when it got its inputs, such as its tiling, by name."""
        return getattr(self.run, "notes", {})

    @property
    def bound(self) -> float | None:
        """The largest error that the result may have on inputs of whole numbers; None where it must be exact."""
        return getattr(self.run, "bound", None)

    @property
    def before(self) -> Callable[[], None] | None:
        """A function to call before each call of `run`, untimed: what the kernel needs, and the emptying of caches. None if
        there is nothing to do."""
        steps = [step for step in (getattr(self.run, "before", None), self.flush) if step]
        if not steps:
            return None

        def all_steps() -> None:
            for step in steps:
                step()

        return all_steps


def prepare(kernel: Kernel, problem: Problem, settings: Settings, inputs: Arrays) -> Prepared:
    """The kernel with these inputs (arrays on the host), in the copy mode and with the state of caches that the settings name.

    Raises: ValueError for what the kernel or the device cannot do.
    """
    if settings.cache == "cold" and settings.mode != "resident":
        raise ValueError("a call that copies its data brings them into the caches: cold rows are resident")
    if settings.on_gpu and problem.products:
        lacking = gpu.lacks(settings.device, problem.math)
        if lacking:
            raise ValueError(lacking)  # a library would take another arithmetic in its place, and not say so
    prepared = _prepare(kernel, problem, settings, inputs)
    if settings.cache == "warm":
        return prepared
    if prepared.passes > 1:
        raise ValueError(f"a call makes {prepared.passes} passes over its data, of which only the first would be cold")
    return dataclasses.replace(prepared, flush=cache_state.flush(kernel, settings.device))


def _prepare(kernel: Kernel, problem: Problem, settings: Settings, inputs: Arrays) -> Prepared:
    """The kernel with these inputs in the copy mode of the settings, caches as they are. Raises: ValueError, as `prepare`."""
    if not settings.on_gpu and settings.mode != "resident":
        raise ValueError("a CPU kernel's data is where it is: there is nothing to copy")
    if problem.members:  # several GPUs: the kernel places its data and knows what to wait for
        run = kernel.bind(problem, *inputs)
        return Prepared(run=run, result=run.on_host, synchronize=run.synchronize)
    if kernel.backend in HANDLERS:
        return handler(kernel.backend)(kernel, problem, settings, inputs)
    if not settings.on_gpu:
        return Prepared(run=kernel.bind(problem, *inputs), result=np.asarray)
    import cupy

    stream = gpu_stream()
    if problem.op == "transfer":  # the copy is the kernel: it gets its data on the host and places it itself
        run = kernel.bind(problem, *inputs)
        stream.synchronize()
        return Prepared(run=run, result=_bytes_on_host, synchronize=stream.synchronize, stream=stream)
    hosts = [_without_bfloat16(x) for x in inputs]
    if settings.mode == "resident":
        run = kernel.bind(problem, *(bound_rows.on_device(cupy, x) for x in hosts))
        stream.synchronize()
    elif settings.mode == "roundtrip":
        run = _roundtrip(cupy, kernel, problem, hosts)
    else:
        pinned = settings.mode == "roundtrip-pinned"
        run = _buffered(cupy, kernel, problem, hosts, pinned=pinned, stream=stream)
    result_dtype = numpy_dtype(problem.out)

    def result(value: Any) -> np.ndarray:
        """What a call returned as a NumPy array, with the bits of a bfloat16 (see _without_bfloat16) taken for one again."""
        if value is None:  # an empty call
            return np.empty(0)
        array = cupy.asnumpy(value) if isinstance(value, cupy.ndarray) else value
        return array.view(result_dtype) if array.dtype.kind == "u" else array

    return Prepared(run=run, result=result, synchronize=stream.synchronize, stream=stream)


def _bytes_on_host(value: Any) -> np.ndarray:
    """The bytes that a copy has written, on the host. A copy in both directions returns two arrays; theirs follow each other:
    what arrived on the device, then what arrived on the host."""
    import cupy

    parts = value if isinstance(value, tuple) else (value,)
    return np.concatenate([cupy.asnumpy(part).view(np.uint8).ravel() for part in parts])


_stream = None


def gpu_stream() -> Any:
    """The one CuPy stream on which this process queues its work, made the current one: a library may have chosen another since.

    It is not CUDA's default stream, which waits for all others.
    """
    import cupy

    global _stream
    if _stream is None:
        _stream = cupy.cuda.Stream(non_blocking=True)
    _stream.use()
    return _stream


def _without_bfloat16(array: np.ndarray) -> np.ndarray:
    """The array; one of bfloat16, which CuPy does not know, as a view of its 16 bits: copies and cuBLAS need no more."""
    return array.view(np.uint16) if array.dtype == numpy_dtype("bfloat16") else array


def _roundtrip(cupy: ModuleType, kernel: Kernel, problem: Problem, hosts: list[np.ndarray]) -> Callable[[], np.ndarray]:
    """A call that copies the host arrays into new memory of the GPU, computes there and copies the result back."""

    def bound() -> Callable[[], Any]:
        return kernel.bind(problem, *(cupy.asarray(host) for host in hosts))

    first = bound()  # raises now, not when it is timed, what the kernel cannot do

    def run() -> np.ndarray:
        compute = bound()
        return cupy.asnumpy(compute())

    vars(run).update(vars(first))  # the kernel's attributes, such as its notes: copies change none of them
    return run


def _buffered(
    cupy: ModuleType, kernel: Kernel, problem: Problem, hosts: list[np.ndarray], *, pinned: bool, stream: Any
) -> Callable[[], np.ndarray]:
    """A call that copies the host arrays into buffers on the GPU, computes there and copies the result back, on one CuPy stream.
    It always returns the same host array.

    pinned: whether the host's arrays are page-locked, so that copies need no staging and the call need not wait for them.
    """
    devices = [cupy.asarray(host) for host in hosts]  # filled before the kernel is bound: it may look at its inputs
    compute = kernel.bind(problem, *devices)
    if pinned:
        hosts = [_pinned_copy(cupy, host) for host in hosts]
    first = compute()
    out = _pinned_copy(cupy, cupy.asnumpy(first)) if pinned else np.ones(first.shape, first.dtype)

    def run() -> np.ndarray:
        for device, host in zip(devices, hosts, strict=True):
            device.set(host, stream=stream)
        compute().get(out=out, stream=stream, blocking=not pinned)
        return out

    vars(run).update(vars(compute))  # the kernel's attributes, such as its notes
    return run


def _pinned_copy(cupy: ModuleType, array: np.ndarray) -> np.ndarray:
    """A copy of a host array in page-locked memory, which a GPU copies from and to without staging."""
    memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
    pinned = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    pinned[...] = array
    return pinned
