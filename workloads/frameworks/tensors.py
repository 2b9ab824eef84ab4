"""TensorFlow in this process: its start on one device with its threads, its tensors, and the wait for its work."""

import contextlib
import functools
import gc
import importlib
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from kernels import registry
from kernels.problems import Problem
from kernels.registry import Kernel
from workloads.harness import announce, copy_modes
from workloads.harness.bound_rows import Arrays
from workloads.harness.dispatch import Broken
from workloads.machine import cpu
from workloads.options import python
from workloads.records import Row, Settings, settings

if TYPE_CHECKING:
    import keras
    import tensorflow as tf

_PIP = f"{python()} -m pip install"
_LOG = cpu.ROOT / "proc/self/fd/2"
# Words that tell a line of TensorFlow's log about a missing library from the rest, the most telling first.
_TELLING = ("could not load dynamic library", "cannot dlopen", "cuinit", "cuda error", "could not find cuda")
_NAMES = {"tensorflow": "TensorFlow", "jax": "JAX", "torch": "PyTorch"}
_started = False


@contextlib.contextmanager
def timed(phases: dict[str, float], name: str) -> Iterator[None]:
    """A `with` block whose seconds are put into `phases` under a name, unless it raises."""
    begun = time.perf_counter()
    yield
    phases[name] = time.perf_counter() - begun


def begin(device: str, threads: int | None, library: str = "tensorflow") -> dict[str, float]:
    """Imports Keras and its backend `library`, and starts the device. Returns the seconds of both, as `import` and
    `device_start`; {} where this process has done so before.

    device: `cpu`, or a GPU as `gpu:0`. threads: of a CPU; None for the library's choice. library: tensorflow, jax or torch.
    Raises: NotInstalled where Keras or the library is not; Broken where the library finds no GPU for a row of one.
    """
    global _started
    phases: dict[str, float] = {}
    if device != "cpu" and not _started:  # TensorFlow says only when asked which library it missed
        os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
    if not _started:
        announce.starting(f"importing {_NAMES[library]}")
    with timed(phases, "import"):
        try:
            import keras  # noqa: F401

            importlib.import_module(library)
        except ImportError as error:
            missing = (error.name or "").split(".")[0]
            if missing in ("keras", "tensorflow"):
                raise registry.NotInstalled("keras") from error
            if missing == library:
                raise registry.NotInstalled("keras", library) from error
            raise
    with timed(phases, "device_start"):
        _START[library](device, threads)
    if _started:
        return {}
    _started = True
    return phases


def _start_tensorflow(device: str, threads: int | None) -> None:
    """Has TensorFlow start on the device. threads: unused, as it reads them from the worker's environment when it is imported.

    Raises: Broken where it finds no GPU for a row of one.
    """
    import tensorflow

    parts = int(os.environ.get(settings.PARTS, "1"))
    if parts > 1 and not _started:
        whole_cpu = tensorflow.config.list_physical_devices("CPU")[0]
        part = tensorflow.config.LogicalDeviceConfiguration()
        tensorflow.config.set_logical_device_configuration(whole_cpu, [part] * parts)
    if device != "cpu" and not tensorflow.config.list_physical_devices("GPU"):
        raise Broken(f"TensorFlow finds no GPU: to mend it, {_PIP} 'tensorflow[and-cuda]'; {missed()}")
    tensorflow.zeros(1).numpy()


def _start_jax(device: str, threads: int | None) -> None:
    """Has JAX start on the device.

    Raises: ValueError for a number of threads; Broken where JAX runs on another device.
    """
    import jax

    if threads:
        raise ValueError("JAX has no switch for its number of threads")
    backend = jax.default_backend()
    if (device == "cpu") != (backend == "cpu"):
        raise Broken(f"JAX runs on {backend}, not on {device}")
    jax.numpy.zeros(1).block_until_ready()


def _start_torch(device: str, threads: int | None) -> None:
    """Has PyTorch start on the device with so many threads.

    Raises: Broken where it finds no GPU for a row of one.
    """
    import torch

    if device != "cpu" and not torch.cuda.is_available():
        raise Broken("PyTorch finds no GPU")
    if threads:
        torch.set_num_threads(threads)
    torch.zeros(1, device="cpu" if device == "cpu" else "cuda").cpu()


#: Backend of Keras -> what starts it, by device and threads.
_START: dict[str, Callable[[str, int | None], None]] = {
    "tensorflow": _start_tensorflow,
    "jax": _start_jax,
    "torch": _start_torch,
}


def require_device(model: "keras.Model", device: str, library: str) -> None:
    """Raises Broken unless the model has variables and these are in the memory of the device, `cpu` or a GPU. library: the
    backend of Keras."""
    if not model.trainable_variables:
        raise Broken("the model has nothing to train")
    value = model.trainable_variables[0].value
    if library == "jax":
        devices = ", ".join(one.platform for one in value.devices())
    else:
        devices = str(value.device)
    names = ("cpu",) if device == "cpu" else ("gpu", "cuda")
    if any(name in devices.lower() for name in names):
        return
    why = f": {missed()}" if library == "tensorflow" else ""
    is_on_cpu = device != "cpu" and "cpu" in devices.lower()
    raise Broken(
        f"the model's variables are on {devices or 'no device'}, not on a {names[0].upper()}{why}",
        cause="on-cpu" if is_on_cpu else "",
    )


def software_notes(row: Row) -> dict[str, str]:
    """Notes of a row about the software that it ran on: Keras's version and backend with its version. With TensorFlow also its
    threads; on a CPU whether it uses oneDNN and sees a GPU; on a GPU its version of CUDA."""
    import keras

    version = sys.modules[row.library].__version__
    notes = {"keras": keras.__version__, "backend": f"{row.library} {version}"}
    if row.library != "tensorflow":
        return notes
    notes["threads"] = str(row.threads or "TensorFlow's choice")
    if row.on_gpu:
        notes["cuda"] = _cuda()
    else:
        notes["onednn"] = _onednn()
        notes["gpu"] = row.keras.gpu
    return notes


def _cuda() -> str:
    """For which CUDA TensorFlow was built, and which cuBLAS this process has loaded: `built for 12.5.1, on cuBLAS 12`."""
    import tensorflow

    words = f"built for {tensorflow.sysconfig.get_build_info().get('cuda_version', 'none')}"
    loaded = re.search(r"libcublas\.so\.(\d+)", cpu.text(cpu.ROOT / "proc/self/maps"))
    if loaded:
        words += f", on cuBLAS {loaded[1]}"
    return words


def _onednn() -> str:
    """`on` where TensorFlow's CPU kernels are oneDNN's, else `off`: as TensorFlow reports it, or where it does not, as its
    environment variable is set."""
    try:
        from tensorflow.python.util import _pywrap_util_port  # no public way to it

        return "on" if _pywrap_util_port.IsMklEnabled() else "off"
    except (ImportError, AttributeError):
        return {"0": "off", "1": "on"}.get(os.environ.get("TF_ENABLE_ONEDNN_OPTS", ""), "TensorFlow's choice")


def missed(log: Sequence[str] = ()) -> str:
    """The line of TensorFlow's log that best explains why it sees no GPU, without its time stamp and at most 300 characters of
    it.

    log: its lines; by default this process's standard error, where that is a file.
    """
    log = log or cpu.text(_LOG)[-20000:].splitlines()
    for words in _TELLING:
        for line in reversed(log):
            if words in line.lower():
                return line.partition("] ")[2][:300] or line[:300]
    return "its log does not say why"


@functools.cache
def start(device: str, threads: int | None) -> tuple[str, Callable | None]:
    """Starts TensorFlow on a device, once a process. Returns (TensorFlow's name of the device, a function that waits for its
    work).

    The function is None for the CPU, where each call has waited when it returns. device: `cpu`, or a GPU as `gpu:0`.
    Raises: NotInstalled; Broken where TensorFlow finds no GPU for a row of one.
    """
    begin(device, threads)
    import tensorflow

    if device == "cpu":
        return "/CPU:0", None
    return "/GPU:0", tensorflow.test.experimental.sync_devices


def prepared(kernel: Kernel, problem: Problem, settings: Settings, inputs: Arrays) -> copy_modes.Prepared:
    """A TensorFlow kernel with its inputs as tensors on the row's device, ready to be timed. Kernels that copy data or launch
    nothing place their data themselves.

    Raises: ValueError for a copy mode, and for what the kernel cannot do.
    """
    if settings.mode != "resident":
        raise ValueError("TensorFlow's copies are kernels of workloads.transfer")
    device, wait = start(settings.device, settings.threads)
    if problem.op not in ("transfer", "launch"):
        inputs = place(inputs, device)
    with on(device):
        run = kernel.bind(problem, *inputs)
    if wait:
        wait()
    return copy_modes.Prepared(run, on_host, wait)


def peak_memory() -> dict[str, float]:
    """The value peak_memory_bytes: the most GPU memory that tensors took since TensorFlow's statistics were reset."""
    import tensorflow

    return {"peak_memory_bytes": float(tensorflow.config.experimental.get_memory_info("GPU:0")["peak"])}


def place(arrays: Arrays, device: str) -> "tuple[tf.Tensor, ...]":
    """Arrays of the host as tensors in the memory of a device, by TensorFlow's name: `/GPU:0`."""
    import tensorflow

    with on(device):
        return tuple(tensorflow.identity(tensorflow.constant(array)) for array in arrays)


def on(device: str) -> AbstractContextManager:
    """A `with` block whose tensors are made and operations run on a device, by TensorFlow's name: `/CPU:0`, `/GPU:0`.

    A row of the CPU may see a GPU that it must not use.
    """
    import tensorflow

    return tensorflow.device(device)


def forget() -> None:
    """Frees all Keras models that nobody refers to any more, with the graphs that were traced for them."""
    if "keras" in sys.modules:
        sys.modules["keras"].backend.clear_session()
    gc.collect()


def on_host(value: Any) -> np.ndarray:
    """The result of a call as an array on the host: of a tensor its values, of a tuple the values of all parts one after another,
    of None an empty array."""
    if value is None:
        return np.empty(0)
    if isinstance(value, tuple):
        return np.concatenate([on_host(part).ravel() for part in value])
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
