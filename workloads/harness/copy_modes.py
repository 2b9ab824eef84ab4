"""Makes every kernel run in every copy mode alike, so that only the copies differ.

resident: the data is on the device already. roundtrip: cp.asarray, compute, cp.asnumpy, as people write it (CuPy
stages through its pinned pool, every call takes fresh device memory). roundtrip-pageable: ndarray.set and get on
touched pageable memory. roundtrip-pinned: preallocated page-locked buffers, all on one stream, one wait.
"""

import dataclasses
from collections.abc import Callable

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
    """A kernel that is bound to its inputs in a copy mode."""

    #: The call to time.
    run: Callable
    #: Brings the value of the call to the host.
    result: Callable
    #: Waits for the device; None where the call returns when it is done.
    synchronize: Callable | None = None
    #: Where device work is queued; None where that is not CuPy's.
    stream: object | None = None
    #: Makes the data cold; None where it stays warm.
    flush: Callable | None = None

    def call(self):
        """The value of one call, returned when its work on the device is done."""
        value = self.run()
        if self.synchronize:
            self.synchronize()
        return value

    @property
    def passes(self) -> int:
        """The number of times that a call does the problem."""
        return getattr(self.run, "passes", 1)

    @property
    def notes(self) -> dict[str, str]:
        """Choices that the kernel made when it was bound, such as its plan."""
        return getattr(self.run, "notes", {})

    @property
    def bound(self) -> float | None:
        """The largest error allowed on whole numbers, where the answer is not exact."""
        return getattr(self.run, "bound", None)

    @property
    def before(self) -> Callable | None:
        """Untimed work before each call, or None."""
        steps = [step for step in (getattr(self.run, "before", None), self.flush) if step]
        if not steps:
            return None

        def all_steps() -> None:
            for step in steps:
                step()

        return all_steps


def prepare(kernel: Kernel, problem: Problem, settings: Settings, inputs: Arrays) -> Prepared:
    """Binds the kernel to inputs in the copy mode of the settings, its data warm or made cold before each call.

    Raises: ValueError for what the kernel cannot do.
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
    """The kernel bound to warm data."""
    if not settings.on_gpu and settings.mode != "resident":
        raise ValueError("a CPU kernel's data is where it is: there is nothing to copy")
    if problem.members:  # several GPUs: the kernel places its data and knows what to wait for
        run = kernel.bind(problem, *inputs)
        return Prepared(run, run.on_host, run.synchronize)
    if kernel.backend in HANDLERS:
        return handler(kernel.backend)(kernel, problem, settings, inputs)
    if not settings.on_gpu:
        return Prepared(kernel.bind(problem, *inputs), np.asarray)
    import cupy

    stream = gpu_stream()
    if problem.op == "transfer":  # the copy is the kernel: it gets its data on the host and places it itself
        run = kernel.bind(problem, *inputs)
        stream.synchronize()
        return Prepared(run, _bytes_on_host, stream.synchronize, stream)
    hosts = [_raw(x) for x in inputs]
    if settings.mode == "resident":
        run = kernel.bind(problem, *(bound_rows.on_device(cupy, x) for x in hosts))
        stream.synchronize()
    elif settings.mode == "roundtrip":
        run = _roundtrip(cupy, kernel, problem, hosts)
    else:
        pinned = settings.mode == "roundtrip-pinned"
        run = _buffered(cupy, kernel, problem, hosts, pinned=pinned, stream=stream)
    out = numpy_dtype(problem.out)

    def result(value):
        if value is None:  # an empty call
            return np.empty(0)
        array = cupy.asnumpy(value) if isinstance(value, cupy.ndarray) else value
        return array.view(out) if array.dtype.kind == "u" else array

    return Prepared(run, result, stream.synchronize, stream)


def _bytes_on_host(value) -> np.ndarray:
    """The result of a copy, as bytes on the host; of a copy both ways, what arrived on the device and then on the host."""
    import cupy

    parts = value if isinstance(value, tuple) else (value,)
    return np.concatenate([cupy.asnumpy(part).view(np.uint8).ravel() for part in parts])


_stream = None


def gpu_stream():
    """This process's one CUDA stream, made current at every call, as a library may have chosen another: not the
    legacy default stream, which waits for all others."""
    import cupy

    global _stream
    if _stream is None:
        _stream = cupy.cuda.Stream(non_blocking=True)
    _stream.use()
    return _stream


def _raw(array: np.ndarray) -> np.ndarray:
    """bfloat16 as its 16 bits: CuPy's copies and cuBLAS need no more."""
    return array.view(np.uint16) if array.dtype == numpy_dtype("bfloat16") else array


def _roundtrip(cupy, kernel, problem, hosts):
    """The call that copies into new device memory, computes and copies back."""
    # what it cannot do is said now, not when it is timed
    first = kernel.bind(problem, *(cupy.asarray(x) for x in hosts))

    def run():
        return cupy.asnumpy(kernel.bind(problem, *(cupy.asarray(x) for x in hosts))())

    vars(run).update(vars(first))  # its notes, which do not change with the copies around it
    return run


def _buffered(cupy, kernel, problem, hosts, *, pinned: bool, stream):
    """The call that copies into device buffers, computes and copies back, all on one stream."""
    devices = [cupy.asarray(x) for x in hosts]  # filled before the kernel is bound: it may look at its inputs
    compute = kernel.bind(problem, *devices)
    if pinned:
        hosts = [_pinned_copy(cupy, x) for x in hosts]
    first = compute()
    out = _pinned_copy(cupy, cupy.asnumpy(first)) if pinned else np.ones(first.shape, first.dtype)

    def run():
        for device, host in zip(devices, hosts, strict=True):
            device.set(host, stream=stream)
        compute().get(out=out, stream=stream, blocking=not pinned)
        return out

    vars(run).update(vars(compute))
    return run


def _pinned_copy(cupy, array: np.ndarray) -> np.ndarray:
    memory = cupy.cuda.alloc_pinned_memory(array.nbytes)
    pinned = np.frombuffer(memory, array.dtype, array.size).reshape(array.shape)
    pinned[...] = array
    return pinned
