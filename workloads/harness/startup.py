"""Times what happens once in a process, in a worker process that is new: an import, a device's start, a first compilation."""

import importlib
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from kernels import registry
from workloads.harness import timing
from workloads.harness.dispatch import CannotDo
from workloads.records import Measurement, Row, Samples, settings


def measure(row: Row) -> Measurement:
    """One sample of what the row's library does once in a process: `row.problem.call`, which is import, device_start or compile.

    Steps that have to come before it are timed too, and are in phases_s. The process must be new; the sweep joins the samples of
    several.
    Raises: registry.NotInstalled; CannotDo for a step that the library does not have; RuntimeError in a process that is not new.
    """
    backend = row.backend
    call = row.problem.call
    has = _STEPS.get(backend, {})
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


#: Does a step; this is what is timed.
Work = Callable[[], object]
#: Prepares a step for a row, which is not timed, and returns the work to time.
Prepare = Callable[[Row], Work]


def _import(name: str) -> Prepare:
    """The step that imports a library by its name."""

    def work() -> None:
        """Imports the library. Raises: NotInstalled."""
        try:
            importlib.import_module(name)
        except ImportError as error:
            missing = (error.name or "").split(".")[0]
            if missing in (name, "tensorflow"):  # Keras needs TensorFlow
                raise registry.NotInstalled(name) from error
            raise

    return lambda row: work  # alike for every row


def _numba_compile(row: Row) -> Work:
    """Compiling a loop for the CPU, and calling it once."""
    import numba

    @numba.njit
    def total(x):
        added = 0.0
        for i in range(x.size):
            added += x[i] * x[i]
        return added

    x = np.ones(16)
    return lambda: total(x)


def _cupy_start(row: Row) -> Work:
    """Starting the GPU: its first memory and its first wait."""
    import cupy

    def work() -> None:
        cupy.zeros(256, cupy.float32)
        cupy.cuda.get_current_stream().synchronize()

    return work


def _cupy_compile(row: Row) -> Work:
    """Compiling a CUDA kernel and running it once, on a GPU that has started."""
    import cupy

    source = r'extern "C" __global__ void twice(float* x) { x[threadIdx.x] *= 2.0f; }'
    x = cupy.ones(32, cupy.float32)
    cupy.cuda.get_current_stream().synchronize()

    def work() -> None:
        kernel = cupy.RawKernel(source, "twice")
        kernel((1,), (32,), (x,))  # grid, block, arguments
        cupy.cuda.get_current_stream().synchronize()

    return work


def _tensorflow_start(row: Row) -> Work:
    """Starting TensorFlow's runtime with its device, up to the first value."""
    import tensorflow

    def work() -> None:
        if row.on_gpu and not tensorflow.config.list_physical_devices("GPU"):
            raise RuntimeError("TensorFlow finds no GPU")
        tensorflow.zeros(1).numpy()

    return work


def _tensorflow_compile(row: Row) -> Work:
    """Compiling a dense layer into a graph, by XLA if the row says so, and calling it once."""
    import tensorflow

    def layer(x: Any, w: Any) -> Any:
        return tensorflow.reduce_sum(tensorflow.nn.relu(tensorflow.matmul(x, w)))

    jit = settings.JIT[
        row.keras.jit_compile
    ]  # True: by XLA; False: not; "auto": as TensorFlow chooses, which is None there
    compiled = tensorflow.function(layer, jit_compile=None if jit == "auto" else jit, autograph=False)
    x = tensorflow.ones((16, 16))
    return lambda: compiled(x, x).numpy()


def _keras_compile(row: Row) -> Work:
    """Compiling a model of one weight and training it for one step."""
    import keras

    jit = settings.JIT[row.keras.jit_compile]
    x = np.ones((1, 1), np.float32)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])

    def work() -> None:
        model.compile(optimizer="sgd", loss="mse", jit_compile=jit)
        model.fit(x, x, batch_size=1, verbose=0)

    return work


# Backend -> step, in the order in which they happen -> what prepares it. `import tensorflow` brings Keras with it.
_STEPS: dict[str, dict[str, Prepare]] = {
    "numba": {"import": _import("numba"), "compile": _numba_compile},
    "cupy": {"import": _import("cupy"), "device_start": _cupy_start, "compile": _cupy_compile},
    "tensorflow": {"import": _import("tensorflow"), "device_start": _tensorflow_start, "compile": _tensorflow_compile},
    "keras": {"import": _import("keras"), "device_start": _tensorflow_start, "compile": _keras_compile},
}
