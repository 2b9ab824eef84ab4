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


def require(count: int) -> None:
    """Raises ValueError where the process sees fewer GPUs."""
    there = runtime.getDeviceCount()
    if there < count:
        raise ValueError(f"it takes {count} GPUs, and this process sees {there}")


def array(gpu: int, values: np.ndarray) -> cupy.ndarray:
    """The values on that GPU; bfloat16 as its 16 bits."""
    raw = values.view(np.uint16) if values.dtype.name == "bfloat16" else values
    with cupy.cuda.Device(gpu), stream(gpu):
        made = cupy.empty(raw.shape, raw.dtype)
        made.set(raw)
        stream(gpu).synchronize()
    return made


def poisoned(like: cupy.ndarray) -> cupy.ndarray:
    """An array of the same shape, type and GPU with every bit set: what a kernel leaves unwritten is NaN."""
    gpu = like.device.id
    with cupy.cuda.Device(gpu), stream(gpu):
        made = cupy.empty_like(like)
        made.data.memset_async(0xFF, made.nbytes, stream(gpu))
        stream(gpu).synchronize()
    return made


@functools.cache
def reaches(gpu: int, other: int) -> bool:
    """Whether that GPU may read and write the other's memory directly; the access is then on."""
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
    """A call that waits for the streams of the first `count` GPUs."""
    streams = [stream(gpu) for gpu in range(count)]

    def wait():
        for each in streams:
            each.synchronize()

    return wait


def launcher(
    gpu: int, compiled, blocks: int, threads: int, arguments: Sequence, early: bool = False
) -> Callable[[], None]:
    """A call that launches the kernel on that GPU's stream, which must be the current device, as loader.overlapping does."""
    with cupy.cuda.Device(gpu):  # compiled and loaded for this GPU: another may not wait for that
        return loader.overlapping(compiled, blocks, threads, arguments, on=stream(gpu), early=early)


def on_each(works: Sequence[Callable[..., None]]) -> Callable[[], None]:
    """A call that does each work with its own GPU as the current device, then makes the first GPU current again."""
    numbered = list(enumerate(works))

    def run():
        for gpu, work in numbered:
            runtime.setDevice(gpu)
            work()
        runtime.setDevice(0)

    return run


def recorded(call: Callable[[], None], count: int, passes: int) -> Callable[[], None]:
    """A call that replays `passes` calls, recorded once as a CUDA graph on each of the first `count` GPUs."""
    streams = [stream(gpu) for gpu in range(count)]
    call()  # what happens once may not be recorded
    wait_for(count)()
    graphs, broken = [], []
    on_each([each.begin_capture for each in streams])()
    try:
        for _ in range(passes):
            call()
    finally:
        for gpu, each in enumerate(streams):
            runtime.setDevice(gpu)
            try:
                graphs.append(each.end_capture())
            except runtime.CUDARuntimeError as error:
                broken.append(error)
        runtime.setDevice(0)
        if broken:
            stream.cache_clear()  # a stream whose recording failed is of no more use
    if broken:
        raise broken[0]
    on_each([lambda g=g, s=s: g.upload(s) for g, s in zip(graphs, streams, strict=True)])()
    wait_for(count)()
    # graphs hold addresses
    return on_each([lambda g=g, s=s, keep=call: g.launch(s) for g, s in zip(graphs, streams, strict=True)])
