"""Calls that wait in a stream's queue until all of them are issued: no gap of Python's lies between them on the device."""

from collections.abc import Callable

import numpy as np

from kernels.cuda import loader

HOLD_NS = 50_000_000


def batches(stream) -> Callable[[Callable, int], tuple[float, bool]]:
    """batch(run, calls) -> (seconds of all calls by CUDA events, whether they all waited).

    A kernel of ours holds the stream, which must be the current one, until they are issued. It ends by itself after 50 ms: calls
    issued later did not wait.

    `run` must not allocate, synchronize or load a module; a stream's launch queue has room for about a thousand launches.
    """
    import cupy

    kernel = loader.load("cuda/hold", "hold")
    go, ended = flags = np.frombuffer(cupy.cuda.alloc_pinned_memory(8), np.int32, 2).reshape(2, 1)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()

    def batch(run: Callable, calls: int) -> tuple[float, bool]:
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
