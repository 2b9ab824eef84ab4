"""Inside a fresh worker: costs that occur once in a process. An import, a device's start, a first compilation; one sample."""

import importlib
import sys
from collections.abc import Callable

import numpy as np

from kernels import registry
from workloads.harness import timing
from workloads.harness.dispatch import CannotDo
from workloads.records import Measurement, Row, Samples, settings


def measure(row: Row) -> Measurement:
    """Seconds of the row's call in this process, which must be fresh: the sweep merges several.

    Only the call itself is in the sample; what had to come before it (the import, the device's start) is in phases_s.
    Raises: registry.NotInstalled; CannotDo for what a backend has not; RuntimeError in a process that is not fresh.
    """
    backend, call = row.backend, row.problem.call
    has = _STARTS.get(backend, {})
    if call not in has:
        raise CannotDo(f"{backend} has no {call} of its own; it has {', '.join(has) or 'none of these'}")
    if registry.BACKENDS[backend].library in sys.modules:
        raise RuntimeError(f"{backend} is imported already: this process is not fresh")
    phases: dict[str, float] = {}
    for before in ("import", "device_start"):
        if before == call:
            break
        if before in has:
            phases[before] = timing.seconds(has[before](row))
    seconds = timing.seconds(has[call](row))
    samples = Samples(clock="host-latency", seconds=(seconds,), calls=1, block_sizes=(1,), stop_reason="once")
    return row.result("ok", samples=(samples,), phases_s=phases, check="nothing is computed")


def _import(name: str) -> Callable[[Row], Callable]:
    def work():
        try:
            importlib.import_module(name)
        except ImportError as error:
            if (error.name or "").split(".")[0] in (name, "tensorflow"):
                raise registry.NotInstalled(name) from error
            raise

    return lambda row: work


def _numba_compile(row: Row) -> Callable:
    import numba

    @numba.njit
    def total(x):
        added = 0.0
        for i in range(x.size):
            added += x[i] * x[i]
        return added

    x = np.ones(16)
    return lambda: total(x)


def _cupy_start(row: Row) -> Callable:
    import cupy

    def work():
        cupy.zeros(256, cupy.float32)
        cupy.cuda.get_current_stream().synchronize()

    return work


def _cupy_compile(row: Row) -> Callable:
    import cupy

    source = r'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'
    x = cupy.ones(32, cupy.float32)
    cupy.cuda.get_current_stream().synchronize()

    def work():
        cupy.RawKernel(source, "twice")((1,), (32,), (x,))
        cupy.cuda.get_current_stream().synchronize()

    return work


def _tensorflow_start(row: Row) -> Callable:
    import tensorflow

    def work():
        if row.on_gpu and not tensorflow.config.list_physical_devices("GPU"):
            raise RuntimeError("TensorFlow finds no GPU")
        tensorflow.zeros(1).numpy()

    return work


def _tensorflow_compile(row: Row) -> Callable:
    import tensorflow

    def layer(x, w):
        return tensorflow.reduce_sum(tensorflow.nn.relu(tensorflow.matmul(x, w)))

    jit = settings.JIT[row.keras.jit_compile]
    compiled = tensorflow.function(layer, jit_compile=None if jit == "auto" else jit, autograph=False)
    x = tensorflow.ones((16, 16))
    return lambda: compiled(x, x).numpy()


def _keras_compile(row: Row) -> Callable:
    import keras

    jit, x = settings.JIT[row.keras.jit_compile], np.ones((1, 1), np.float32)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

    def work():
        model.compile("sgd", "mse", jit_compile=jit)
        model.fit(x, x, 1, verbose=0)

    return work


# backend -> call -> prepares it and gives the work that is timed. `import tensorflow` brings Keras with it.
_STARTS: dict[str, dict[str, Callable[[Row], Callable]]] = {
    "numba": {"import": _import("numba"), "compile": _numba_compile},
    "cupy": {"import": _import("cupy"), "device_start": _cupy_start, "compile": _cupy_compile},
    "tensorflow": {"import": _import("tensorflow"), "device_start": _tensorflow_start, "compile": _tensorflow_compile},
    "keras": {"import": _import("keras"), "device_start": _tensorflow_start, "compile": _keras_compile},
}
