"""Several GPUs in one process: a stream on each, arrays, access to each other's memory, launches without CuPy's checks.

The GPUs of a problem are the ones that its process sees: the first of its members is CUDA's device 0, and so on.
"""

import functools
from collections.abc import Callable, Sequence

import cupy
import numpy as np
from cupy.cuda import runtime

from kernels.cuda import loader


@functools.cache
def stream(gpu: int) -> cupy.cuda.Stream:
    """This process's one stream on that GPU."""
    with cupy.cuda.Device(gpu):
        return cupy.cuda.Stream(non_blocking=True)


def require_gpus(count: int) -> None:
    """Raises ValueError where the process sees fewer GPUs."""
    visible = runtime.getDeviceCount()
    if visible < count:
        raise ValueError(f"it takes {count} GPUs, and this process sees {visible}")


def array(gpu: int, values: np.ndarray) -> cupy.ndarray:
    """A copy of the values on that GPU; bfloat16, which CuPy lacks, as 16-bit unsigned integers."""
    raw = values.view(np.uint16) if values.dtype.name == "bfloat16" else values
    with cupy.cuda.Device(gpu), stream(gpu):
        copy = cupy.empty(raw.shape, raw.dtype)
        copy.set(raw)
        stream(gpu).synchronize()
    return copy


def poisoned(like: cupy.ndarray) -> cupy.ndarray:
    """An array of the same shape, type and GPU as `like` with every bit set: what a kernel leaves unwritten is then NaN."""
    gpu = like.device.id
    with cupy.cuda.Device(gpu), stream(gpu):
        unwritten = cupy.empty_like(like)
        unwritten.data.memset_async(0xFF, unwritten.nbytes, stream(gpu))
        stream(gpu).synchronize()
    return unwritten


@functools.cache
def reaches(gpu: int, other: int) -> bool:
    """Whether that GPU may read and write the other's memory directly; if so, this call turns the access on."""
    if not runtime.deviceCanAccessPeer(gpu, other):
        return False
    with cupy.cuda.Device(gpu):
        try:
            runtime.deviceEnablePeerAccess(other)
        except runtime.CUDARuntimeError as error:
            if "AlreadyEnabled" not in str(error):
                raise
    return True


def require_reach(count: int) -> None:
    """Raises ValueError where some of the first `count` GPUs cannot read another's memory."""
    for gpu in range(count):
        for other in range(count):
            if gpu != other and not reaches(gpu, other):
                raise ValueError(f"GPU {gpu} has no direct access to the memory of GPU {other}")


def wait_for(count: int) -> Callable[[], None]:
    """A call that waits until the streams of the first `count` GPUs are done."""
    streams = [stream(gpu) for gpu in range(count)]

    def wait():
        for stream_of_gpu in streams:
            stream_of_gpu.synchronize()

    return wait


def launcher(
    gpu: int, compiled: "cupy.RawKernel", blocks: int, threads: int, arguments: Sequence, early: bool = False
) -> Callable[[], None]:
    """A call that launches a compiled kernel on that GPU's stream; that GPU must be the current device when it is called.

    arguments: the kernel's, CuPy arrays and NumPy scalars. early: its blocks start while the launch before it ends.
    """
    with cupy.cuda.Device(gpu):  # compiled and loaded for this GPU: another may not wait for that
        return loader.overlapping(compiled, blocks, threads, arguments, on=stream(gpu), early=early)


def on_all(works: Sequence[Callable[[], None]], keep: object = None) -> Callable[[], None]:
    """A call that makes the first of these calls with GPU 0 as the current device, the second with GPU 1 .., then makes GPU 0
    current.

    keep: what they know by raw address only, and so must stay alive.
    """
    numbered = list(enumerate(works))

    def run(keep=keep):
        for gpu, work in numbered:
            runtime.setDevice(gpu)
            work()
        runtime.setDevice(0)

    return run


def _graphs(call: Callable[[], None], passes: int, streams: Sequence[cupy.cuda.Stream]) -> list:
    """`passes` calls recorded as CUDA graphs, one of the work on each of the streams, which are GPU 0's, GPU 1's ..

    Raises: CUDARuntimeError where they cannot be recorded.
    """
    graphs = []
    errors = []
    on_all([stream_of_gpu.begin_capture for stream_of_gpu in streams])()
    try:
        for _ in range(passes):
            call()
    finally:
        for gpu, stream_of_gpu in enumerate(streams):
            runtime.setDevice(gpu)
            try:
                graphs.append(stream_of_gpu.end_capture())
            except runtime.CUDARuntimeError as error:
                errors.append(error)
        runtime.setDevice(0)
        if errors:
            stream.cache_clear()  # a stream whose recording failed is of no more use
    if errors:
        raise errors[0]
    return graphs


def recorded(call: Callable[[], None], count: int, passes: int) -> Callable[[], None]:
    """A call that replays `passes` calls, which are recorded here as a CUDA graph on each of the first `count` GPUs."""
    streams = [stream(gpu) for gpu in range(count)]
    call()  # what happens once may not be recorded
    wait_for(count)()
    uploads = []
    launches = []
    for graph, stream_of_gpu in zip(_graphs(call, passes, streams), streams, strict=True):
        uploads.append(functools.partial(graph.upload, stream_of_gpu))
        launches.append(functools.partial(graph.launch, stream_of_gpu))
    on_all(uploads)()
    wait_for(count)()
    return on_all(launches, keep=call)
