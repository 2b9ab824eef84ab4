"""Calls and visits on a fake GPU whose times are added up by hand."""

import numpy as np
import pytest

from kernels import registry
from kernels.problems import Matmul
from workloads.harness import copy_modes, one_row
from workloads.harness.timing import Limits
from workloads.records import Row, Settings

WORK, RESET = 10e-6, 50e-6  # seconds of a call on the device, and of what comes before it
GPU = Settings("gpu:0")


def call(gpu, host_s: float = 0.0, seconds: float = WORK):
    def run():
        gpu.calls += 1
        gpu.now += host_s
        gpu.launch(seconds)

    return run


def exactly(seconds: float):
    return pytest.approx(seconds, rel=1e-9)


def matmul(gpu, seconds: float = WORK, host_s: float = 0.0, **about):
    """A kernel whose answer is there when the device is done, and that takes the host so long to issue."""
    traits = {name: about.pop(name) for name in ("waits", "allocates") if name in about}

    def bind(problem, a, b):
        import cupy

        c = cupy.empty((problem.m, problem.n), a.dtype)

        def run():
            gpu.calls += 1
            gpu.now += host_s
            gpu.launch(seconds, lambda: np.matmul(a, b, out=c))
            return c

        for name, value in about.items():
            setattr(run, name, value)
        return run

    return registry.Kernel("matmul", "cupy", "fake", bind, ("gpu",), **traits)


def visited(monkeypatch, kernel, problem=None, settings: Settings = GPU, number: int = 1, visit_s: float = 7.5e-3):
    monkeypatch.setattr(one_row.registry, "find", lambda name: kernel)
    return one_row.visit(Row("matmul/cupy/fake", problem or Matmul(4, 5, 6), settings), Limits(visit_s), 1, number)


def prepared(gpu, seconds=WORK):
    stream = copy_modes.gpu_stream()
    return copy_modes.Prepared(call(gpu, seconds=seconds), None, stream.synchronize, stream)


def row(**settings) -> Row:
    return Row("matmul/cupy/fake", Matmul(4, 5, 6), Settings(**{"device": "gpu:0", **settings}))
