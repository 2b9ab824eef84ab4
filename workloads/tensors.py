"""TensorFlow in this process: started on one device with its threads, its tensors, and the wait for its work."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator

import numpy as np

from kernels import registry

_LOG = "/proc/self/fd/2"
# Words that tell a line of TensorFlow's log about a missing library from the rest, the most telling first.
_TELLING = ("could not load dynamic library", "cannot dlopen", "cuinit", "cuda error", "could not find cuda")
_started = False


class Broken(Exception):
    """TensorFlow did not do what the row says: the row is `failed` with this reason."""


@contextlib.contextmanager
def timed(phases: dict[str, float], name: str) -> Iterator[None]:
    """Puts the seconds of its block into `phases` under a name."""
    begun = time.perf_counter()
    yield
    phases[name] = time.perf_counter() - begun


def begin(device: str, threads: int | None) -> dict[str, float]:
    """Imports Keras and starts the device; the seconds of both, empty when this process has done so before.

    Raises: NotInstalled; ValueError when the process already runs with other threads; Broken without the GPU asked for.
    """
    global _started
    phases: dict[str, float] = {}
    if device != "cpu" and not _started:  # TensorFlow says only when asked which library it missed
        os.environ |= {"TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
    with timed(phases, "import"):
        try:
            import keras  # noqa: F401
            import tensorflow
        except ImportError as error:
            if (error.name or "").split(".")[0] in ("keras", "tensorflow"):
                raise registry.NotInstalled("keras") from error
            raise
    _limit_threads(tensorflow.config.threading, threads)
    with timed(phases, "device_start"):
        gpus = tensorflow.config.list_physical_devices("GPU")
        if device != "cpu" and not gpus:
            raise Broken(f"TensorFlow finds no GPU: {missed(log_lines())}")
        if not _started:
            for gpu in gpus:
                tensorflow.config.experimental.set_memory_growth(gpu, True)
        tensorflow.zeros(1).numpy()
    first, _started = not _started, True
    return phases if first else {}


def _limit_threads(threading, threads: int | None) -> None:
    """Gives TensorFlow that many threads for an operation and for operations side by side (None: its own choice).

    Raises: ValueError when it already runs with others.
    """
    wanted = threads or 0
    if (threading.get_intra_op_parallelism_threads(), threading.get_inter_op_parallelism_threads()) == (wanted, wanted):
        return
    try:
        threading.set_intra_op_parallelism_threads(wanted)
        threading.set_inter_op_parallelism_threads(wanted)
    except RuntimeError as error:
        raise ValueError(f"TensorFlow already runs with other threads in this process: {error}") from error


def log_lines() -> list[str]:
    """The last lines that this process wrote to its log."""
    try:
        with open(_LOG, "rb") as log:
            return log.read()[-20000:].decode(errors="replace").splitlines()
    except OSError:
        return []


def missed(lines: list[str]) -> str:
    """The line of TensorFlow's log that says best why it sees no GPU, without its time stamp."""
    for words in _TELLING:
        for line in reversed(lines):
            if words in line.lower():
                return line.partition("] ")[2][:300] or line[:300]
    return "its log does not say why"


@functools.cache
def start(device: str, threads: int | None) -> tuple[str, Callable | None]:
    """(TensorFlow's name of the device, what waits for its work: None on the CPU, whose calls return when done).

    Raises: NotInstalled; Broken without the GPU asked for.
    """
    begin(device, threads)
    import tensorflow

    if device == "cpu":
        return "/CPU:0", None
    return "/GPU:0", tensorflow.test.experimental.sync_devices


def place(arrays: tuple[np.ndarray, ...], device: str) -> tuple:
    """The arrays as tensors on the device."""
    import tensorflow

    with tensorflow.device(device):
        return tuple(tensorflow.identity(tensorflow.constant(array)) for array in arrays)


def on(device: str, bind: Callable, *arguments) -> Callable:
    """`bind(*arguments)` with the device chosen: where variables and constants made in it go."""
    import tensorflow

    with tensorflow.device(device):
        return bind(*arguments)


def on_host(value) -> np.ndarray:
    """What a call gave, as an array on the host; of several parts, their values one after another."""
    if value is None:
        return np.empty(0)
    if isinstance(value, tuple):
        return np.concatenate([on_host(part).ravel() for part in value])
    return np.asarray(value.numpy() if hasattr(value, "numpy") else value)
