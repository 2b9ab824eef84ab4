"""A kernel that blocks a stream until all calls to be timed are queued: no gap of Python's lies between them on the device."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

from kernels.cuda import loader

if TYPE_CHECKING:
    import cupy

#: The kernel ends by itself after so many nanoseconds, so that nothing waits for a host that died.
HOLD_NS = 50_000_000


def batches(stream: "cupy.cuda.Stream") -> Callable[[Callable, int], tuple[float, bool]]:
    """A function batch(run, calls) that times calls without gaps between them. It returns (device seconds of all calls, by
    CUDA events; whether all were queued before the first began).

    A kernel of ours blocks the stream, which must be the current one, until all calls are issued. It ends by itself after 50
    ms: calls issued later did not wait.
    `run` must not allocate, synchronize or load a module; a stream's launch queue has room for about a thousand launches.
    """
    import cupy

    kernel = loader.compile_kernel("cuda/hold", "hold")
    # Two numbers that host and kernel share: the host says go, the kernel says that it ended before that.
    flags = np.frombuffer(cupy.cuda.alloc_pinned_memory(8), np.int32, 2).reshape(2, 1)
    go, ended = flags
    begin = cupy.cuda.Event()
    end = cupy.cuda.Event()

    def batch(run: Callable, calls: int) -> tuple[float, bool]:
        """Blocks the stream, queues `calls` calls of `run` between two events, lets them go and waits for their end."""
        flags[:] = 0
        kernel((1,), (1,), (np.uint64(flags.ctypes.data), np.int64(HOLD_NS)))
        try:
            begin.record(stream)
            for _ in range(calls):
                run()
            end.record(stream)
        finally:
            go[0] = 1
        end.synchronize()
        return cupy.cuda.get_elapsed_time(begin, end) * 1e-3, not ended[0]

    return batch
