"""Finds kernels: `@kernel` registers a function of a file `<operation>/<backend>[_<topic>].py`.

A kernel is `bind(problem, *inputs) -> run`: inputs are on its device, `bind` allocates or raises ValueError, only `run()` is
timed.
"""

import dataclasses
import functools
import importlib.util
import inspect
import os
import pathlib
import sys
from collections.abc import Callable, Mapping

FOLDER = pathlib.Path(__file__).parent
#: The environment variable that names a further folder of kernels, <operation>/<backend>[_<topic>].py; tests plant theirs there.
PLANTED = "CROSSOVER_PLANTED_KERNELS"
OPERATIONS = ("matmul", "conv", "stream", "peak", "transfer", "launch", "peer", "collective")


@dataclasses.dataclass(frozen=True)
class Backend:
    """A backend: the devices that its kernels run on, the module that they need, and the command that installs it.

    kind: `library` (called by itself), `own` (kernels written here, loop by loop), or `framework` (brings a device runtime of
    its own: its kernels run in a process where no CuPy is imported). title: its name in sentences. version: the name that its
    version has among a machine's software. package: the distribution that has this version, where it is read from there.
    """

    devices: tuple[str, ...]
    library: str
    install: str
    kind: str = "library"
    title: str = ""
    version: str = ""
    package: str = ""


_CUPY = "'cupy-cuda12x[ctk]'"
BACKENDS = {
    "numpy": Backend(("cpu",), "numpy", "numpy", "library", "NumPy", "numpy"),
    "numba": Backend(("cpu",), "numba", "numba", "own", "Numba", "numba"),
    "mkl": Backend(("cpu",), "mkl", "mkl", "library", "MKL", "mkl", "mkl"),
    "cuda": Backend(("gpu",), "cupy", _CUPY, "own", "CUDA", "cupy"),
    "cupy": Backend(("gpu",), "cupy", _CUPY, "library", "CuPy", "cupy"),
    "cudnn": Backend(
        ("gpu",), "cudnn", "'nvidia-cudnn-frontend<1.29'", "library", "cuDNN", "cudnn_frontend", "nvidia-cudnn-frontend"
    ),
    "cublaslt": Backend(("gpu",), "nvmath", "nvmath-python", "library", "cuBLASLt", "nvmath", "nvmath-python"),
    "tensorflow": Backend(
        ("cpu", "gpu"), "tensorflow", "tensorflow", "framework", "TensorFlow", "tensorflow", "tensorflow"
    ),
    "keras": Backend(("cpu", "gpu"), "keras", "tensorflow", "framework", "Keras", "keras", "keras"),
    "jax": Backend(("cpu", "gpu"), "jax", "jax", "framework", "JAX", "jax", "jax"),
}
LIBRARIES, OWN, FRAMEWORKS = (
    tuple(name for name, backend in BACKENDS.items() if backend.kind == kind)
    for kind in ("library", "own", "framework")
)


def title(backend: str) -> str:
    """A backend's name in sentences; a word that names none stays as it is."""
    return BACKENDS[backend].title if backend in BACKENDS else backend


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One way to compute one operation: `bind(problem, *inputs)` gives the `run()` that is timed.

    `run` may carry two attributes: `passes`, the number of times that a call does the problem, and `before`, untimed work
    before each call (the device is waited for in between).

    parallel: it uses as many threads as it is given.
    allocates: `run` makes a fresh result each call, so it may not be queued behind a held stream. waits: `run` returns when the
    device is done, so there is nothing to queue.
    batched: it makes many products in a call too; any other kernel of products refuses them. fused: it gives a product an
    epilogue too; any other refuses.
    rung: it is a step of a ladder, or costs more than it shows: it runs only when asked for by name or with --ladder, and
    stands for no side of a comparison.
    """

    op: str
    backend: str
    variant: str
    bind: Callable
    devices: tuple[str, ...]
    parallel: bool = True
    allocates: bool = False
    waits: bool = False
    rung: bool = False
    batched: bool = False
    fused: bool = False

    @property
    def name(self) -> str:
        return f"{self.op}/{self.backend}/{self.variant}"

    @property
    def idea(self) -> str:
        """Its idea and its memory behavior: its docstring, on one line."""
        return " ".join((self.bind.__doc__ or "").split())

    @property
    def notes(self) -> dict[str, str]:
        """Notes that its rows store, so that a report has its idea where the kernel's library is not installed."""
        told = {"idea": self.idea} if self.backend in OWN and ladder(self.op) else {}
        return told | ({"rung": "yes"} if self.rung else {})


class NotInstalled(Exception):
    """Raised for a backend whose own library is missing, or another library that its rows need; the message says what installs
    it."""

    def __init__(self, backend: str, library: str = ""):
        self.backend = backend
        self.what = f"{library or BACKENDS[backend].library} is not installed"
        self.command = f"{sys.executable} -m pip install {library or BACKENDS[backend].install}"
        super().__init__(f"{self.what}; install it with: {self.command}")


_registered: dict[str, Kernel] = {}


def kernel(function: Callable | None = None, /, **flags: bool):
    """Registers `function` as the kernel <op>/<backend>/<function's name>, op and backend taken from its file's name; flags are
    those of Kernel. Raises: ValueError for a name that is taken."""
    if function is None:
        return functools.partial(kernel, **flags)
    module = sys.modules[function.__module__]
    package, _, stem = function.__module__.rpartition(".")
    op, backend = package.rpartition(".")[2], stem.split("_")[0]
    devices = getattr(module, "DEVICES", None) or BACKENDS[backend].devices
    if op in ("conv", "matmul"):
        function = _shaped(function, flags)
    made = Kernel(op, backend, function.__name__, function, devices, **flags)
    before = _registered.get(made.name)
    if before and inspect.unwrap(before.bind).__code__ is not inspect.unwrap(function).__code__:
        raise ValueError(f"two kernels are called {made.name}")
    _registered[made.name] = made
    return function


def refusal(problem, flags: Mapping[str, bool]) -> str:
    """Why a kernel with those flags cannot do the problem, judged by the flags alone; "" if they do not exclude it."""
    if getattr(problem, "batch", None) and not flags.get("batched"):
        return "this kernel makes one product a call"
    return "this kernel adds no bias" if getattr(problem, "epilogue", None) and not flags.get("fused") else ""


def _shaped(function: Callable, flags: Mapping[str, bool]) -> Callable:
    """The kernel, which first refuses what its flags do not have, and operands of other shapes, which many would read past."""

    @functools.wraps(function)
    def bind(problem, *operands, **options):
        if why := refusal(problem, flags):
            raise ValueError(why)
        shapes = (*problem.operand_shapes, *([(problem.n,)] if getattr(problem, "epilogue", None) else []))
        if problem.op == "matmul" and len(operands) != len(shapes):
            raise ValueError(f"this product has {len(shapes)} operands, not {len(operands)}")
        for given, wanted in zip(operands, shapes, strict=False):
            if (shape := tuple(getattr(given, "shape", wanted))) != wanted:
                what = problem.direction or "the product"
                raise ValueError(f"{what} wants an operand of shape {wanted}, not {shape}")
        return function(problem, *operands, **options)

    return bind


def into(result, call: Callable, *arguments, keep=(), **named) -> Callable:
    """The `run()` that makes the call and returns `result`, filled; `keep`: objects known to the call by raw address only."""

    def run(keep=keep):
        call(*arguments, **named)
        return result

    return run


@functools.cache
def ladder(op: str) -> tuple[str, ...]:
    """The kernels of an operation's ladder, the simplest first; () of an operation without one."""
    names = getattr(importlib.import_module(f"kernels.{op}"), "LADDER", ())
    return tuple(f"{op}/{name}" for name in names)


def backends(op: str) -> list[str]:
    """The backends that have kernels for `op`, found by file name; nothing is imported."""
    return list(dict.fromkeys(stem.split("_")[0] for stem in _stems(op)))


def _stems(op: str) -> list[str]:
    """The files of an operation, in the order of BACKENDS.

    Raises: ValueError for one that names no backend.
    """
    order = list(BACKENDS)
    stems: list[str] = []
    for folder in _folders(op):
        stems += [path.stem for path in folder.glob("[!_]*.py")]
    for stem in stems:
        if stem.split("_")[0] not in BACKENDS:
            raise ValueError(f"kernels/{op}/{stem}.py names no backend; helpers of an operation begin with _")
    return sorted(stems, key=lambda stem: (order.index(stem.split("_")[0]), stem.split("_")))


def _folders(op: str) -> list[pathlib.Path]:
    """The folders of an operation's kernels."""
    planted = os.environ.get(PLANTED)
    return [FOLDER / op, pathlib.Path(planted) / op] if planted else [FOLDER / op]


def load(op: str, backend: str) -> list[Kernel]:
    """The kernels of an operation on a backend, simplest first.

    Raises: NotInstalled when the backend's own library is missing; any other import error as it is.
    """
    order = [f"kernels.{op}.{stem}" for stem in _stems(op) if stem.split("_")[0] == backend]
    if order and backend in FRAMEWORKS and importlib.util.find_spec(BACKENDS[backend].library) is None:
        raise NotInstalled(backend)  # frameworks are imported when a kernel is bound
    for folder in _folders(op)[1:]:
        package = importlib.import_module(f"kernels.{op}")
        if str(folder) not in package.__path__:
            package.__path__.append(str(folder))
    for module in order:
        try:
            importlib.import_module(module)
        except ImportError as error:
            if (error.name or "").split(".")[0] == BACKENDS[backend].library:
                raise NotInstalled(backend) from error
            raise
    return sorted(  # whichever was imported first
        (k for k in _registered.values() if (k.op, k.backend) == (op, backend)),
        key=lambda k: order.index(k.bind.__module__) if k.bind.__module__ in order else len(order),
    )


def find(name: str) -> Kernel:
    """The kernel of that full name.

    Raises: KeyError when no file has it; NotInstalled.
    """
    op, backend, _ = name.split("/")
    load(op, backend)
    return _registered[name]
