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
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernels.problems import Problem

FOLDER = pathlib.Path(__file__).parent
#: The environment variable that names a further folder of kernels, <operation>/<backend>[_<topic>].py; tests plant theirs there.
PLANTED = "CROSSOVER_PLANTED_KERNELS"
#: What binding a kernel to a problem and its arrays gives. Only these calls are timed; each computes the problem and returns the
#: result.
TimedCall = Callable[[], Any]


@dataclasses.dataclass(frozen=True)
class Backend:
    """A way into a library, a language or a framework that kernels are written in."""

    #: Kinds of device that its kernels run on.
    devices: tuple[str, ...]
    #: The module that they need.
    library: str
    #: What pip installs it by.
    install: str
    #: `library` (called by itself), `own` (kernels written here, loop by loop), or `framework` (brings a device runtime: its
    #: kernels run in a process where no CuPy is imported).
    kind: str = "library"
    #: Its name in sentences.
    title: str = ""
    #: The name that its version has among a machine's software.
    version: str = ""
    #: The distribution that has this version, where it is read from there.
    package: str = ""


_CUPY = "'cupy-cuda12x[ctk]'"
BACKENDS = {
    "numpy": Backend(devices=("cpu",), library="numpy", install="numpy", title="NumPy", version="numpy"),
    "numba": Backend(devices=("cpu",), library="numba", install="numba", kind="own", title="Numba", version="numba"),
    "mkl": Backend(devices=("cpu",), library="mkl", install="mkl", title="MKL", version="mkl", package="mkl"),
    "cuda": Backend(devices=("gpu",), library="cupy", install=_CUPY, kind="own", title="CUDA", version="cupy"),
    "cupy": Backend(devices=("gpu",), library="cupy", install=_CUPY, title="CuPy", version="cupy"),
    "cudnn": Backend(
        devices=("gpu",),
        library="cudnn",
        install="'nvidia-cudnn-frontend<1.29'",
        title="cuDNN",
        version="cudnn_frontend",
        package="nvidia-cudnn-frontend",
    ),
    "cublaslt": Backend(
        devices=("gpu",),
        library="nvmath",
        install="nvmath-python",
        title="cuBLASLt",
        version="nvmath",
        package="nvmath-python",
    ),
    "tensorflow": Backend(
        devices=("cpu", "gpu"),
        library="tensorflow",
        install="tensorflow",
        kind="framework",
        title="TensorFlow",
        version="tensorflow",
        package="tensorflow",
    ),
    "keras": Backend(
        devices=("cpu", "gpu"),
        library="keras",
        install="tensorflow",
        kind="framework",
        title="Keras",
        version="keras",
        package="keras",
    ),
    "jax": Backend(
        devices=("cpu", "gpu"),
        library="jax",
        install="jax",
        kind="framework",
        title="JAX",
        version="jax",
        package="jax",
    ),
}


def _backends_of_kind(kind: str) -> tuple[str, ...]:
    return tuple(name for name, backend in BACKENDS.items() if backend.kind == kind)


LIBRARIES = _backends_of_kind("library")
WRITTEN_HERE = _backends_of_kind("own")
FRAMEWORKS = _backends_of_kind("framework")


def title(backend: str) -> str:
    """A backend's name in sentences; a word that names none stays as it is."""
    return BACKENDS[backend].title if backend in BACKENDS else backend


@dataclasses.dataclass(frozen=True)
class Kernel:
    """One way to compute one operation: `bind(problem, *inputs)` gives the call that is timed.

    That call may carry attributes: `passes`, the number of times that it does the problem; `before`, untimed work before each
    call (the device is waited for in between); `notes`, words that its rows store; `bound`, the error that a check of its
    result allows; on several GPUs `synchronize`, a call that waits for all, and `on_host`, which copies its results to the host.
    """

    #: The operation: the folder that it lies in.
    op: str
    #: A name of BACKENDS.
    backend: str
    #: Its function's name.
    variant: str
    bind: Callable
    #: Kinds of device that it runs on.
    devices: tuple[str, ...]
    #: Whether it uses as many threads as it may.
    parallel: bool = True
    #: Whether each timed call makes a fresh result, so that it may not be queued behind a kernel that holds the stream.
    allocates: bool = False
    #: Whether a timed call returns when the device is done, so that there is nothing to queue.
    waits: bool = False
    #: Whether it is a step of a ladder, or costs more than it shows: it runs only when named or with --ladder, and stands for no
    #: side of a comparison.
    rung: bool = False
    #: Whether it can make many products in a call; any other kernel of products refuses them.
    batched: bool = False
    #: Whether it can give a product an epilogue; any other refuses.
    fused: bool = False

    @property
    def name(self) -> str:
        return f"{self.op}/{self.backend}/{self.variant}"

    @property
    def idea(self) -> str:
        """Its idea and its memory behavior: its docstring's first paragraph, on one line. The others are about the arrays."""
        first_paragraph, _, _ = (inspect.getdoc(self.bind) or "").partition("\n\n")
        return " ".join(first_paragraph.split())

    @property
    def notes(self) -> dict[str, str]:
        """Notes by name that each stored row of this kernel gets. A report thus has the idea of a kernel written here (not of a
        library's) where its library is not installed."""
        notes = {}
        if self.backend in WRITTEN_HERE and ladder(self.op):
            notes["idea"] = self.idea
        if self.rung:
            notes["rung"] = "yes"
        return notes


class NotInstalled(Exception):
    """Raised for a backend (a name of BACKENDS) whose own library is missing, or another library that its rows need; the message
    says what installs
    it."""

    def __init__(self, backend: str, library: str = ""):
        self.backend = backend
        self.what = f"{library or BACKENDS[backend].library} is not installed"
        self.command = f"{sys.executable} -m pip install {library or BACKENDS[backend].install}"
        super().__init__(f"{self.what}; install it with: {self.command}")


_registered: dict[str, Kernel] = {}


def kernel(function: Callable | None = None, /, *, variant: str = "", **flags: bool) -> Callable:
    """A decorator, with or without arguments, that registers a function as the kernel <op>/<backend>/<variant>; its module is
    called kernels.<op>.<backend>[_<topic>].

    variant: the name that its rows are stored by, where it is not the function's.
    flags: fields of Kernel: parallel, allocates, waits, rung, batched, fused.
    Raises: ValueError for a name that another function has.
    """
    if function is None:  # used as @kernel(...): Python then calls what is returned with the function
        return functools.partial(kernel, variant=variant, **flags)
    module = sys.modules[function.__module__]
    package, _, stem = function.__module__.rpartition(".")
    op, backend = package.rpartition(".")[2], stem.split("_")[0]
    # A module's DEVICES names the devices that it runs on where these are fewer than its backend's.
    devices = getattr(module, "DEVICES", None) or BACKENDS[backend].devices
    if op in ("conv", "matmul"):
        function = _checking_operands(function, flags)
    name = variant or function.__name__
    registered = Kernel(op=op, backend=backend, variant=name, bind=function, devices=devices, **flags)
    before = _registered.get(registered.name)
    # The same code again is no second kernel: the module was imported anew.
    if before and inspect.unwrap(before.bind).__code__ is not inspect.unwrap(function).__code__:
        raise ValueError(f"two kernels are called {registered.name}")
    _registered[registered.name] = registered
    return function


def refusal(problem: "Problem", flags: Mapping[str, bool]) -> str:
    """Why a kernel with those flags (fields of Kernel) cannot do the problem, judged by the flags alone; "" if they do not
    exclude it."""
    if getattr(problem, "batch", None) and not flags.get("batched"):
        return "this kernel makes one product a call"
    if getattr(problem, "epilogue", None) and not flags.get("fused"):
        return "this kernel adds no bias"
    return ""


def _checking_operands(function: Callable, flags: Mapping[str, bool]) -> Callable:
    """The kernel of a product or convolution, which now raises ValueError for a problem that its flags exclude, and for operands
    of other shapes than the problem's: compiled code would read past their end."""

    @functools.wraps(function)
    def bind(problem: "Problem", *operands: Any, **options: Any) -> TimedCall:
        """Binds the operands of a Matmul or Conv when they have passed the checks; what has no shape is not checked."""
        why = refusal(problem, flags)
        if why:
            raise ValueError(why)
        shapes = [*problem.operand_shapes]
        if getattr(problem, "epilogue", None):
            shapes.append((problem.n,))  # the bias
        if problem.op == "matmul" and len(operands) != len(shapes):
            raise ValueError(f"this product has {len(shapes)} operands, not {len(operands)}")
        for operand, expected in zip(operands, shapes, strict=False):
            shape = tuple(getattr(operand, "shape", expected))
            if shape != expected:
                result = problem.direction or "the product"
                raise ValueError(f"{result} wants an operand of shape {expected}, not {shape}")
        return function(problem, *operands, **options)

    return bind


def timed_call(call: Callable, *arguments: Any, result: Any, keep: Any = (), **named: Any) -> TimedCall:
    """What a kernel returns to be timed: a call without arguments that makes call(*arguments, **named), which fills `result`, and
    returns `result`.

    keep: objects that stay alive as long as the returned call does, as `call` knows them by raw address only.
    """

    def run(keep=keep):
        call(*arguments, **named)
        return result

    return run


@functools.cache
def ladder(op: str) -> tuple[str, ...]:
    """The full names of the kernels of an operation's ladder (versions of one computation, a new idea in each), the simplest
    first; () of an operation without one."""
    names = getattr(importlib.import_module(f"kernels.{op}"), "LADDER", ())
    return tuple(f"{op}/{name}" for name in names)


def backends(op: str) -> list[str]:
    """The backends that have kernels for the operation `op`, each once, found by file name; nothing is imported."""
    return list(dict.fromkeys(stem.split("_")[0] for stem in _stems(op)))


def _stems(op: str) -> list[str]:
    """The names of an operation's kernel files, <backend>[_<topic>], without their ending, in the order of BACKENDS.

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
    """The folders of an operation's kernels: the project's, and one of the user's if the variable PLANTED names it."""
    planted = os.environ.get(PLANTED)
    return [FOLDER / op, pathlib.Path(planted) / op] if planted else [FOLDER / op]


def load(op: str, backend: str) -> list[Kernel]:
    """The kernels of an operation on a backend, simplest first.

    Raises: NotInstalled when the backend's own library is missing; any other import error as it is.
    """
    modules = [f"kernels.{op}.{stem}" for stem in _stems(op) if stem.split("_")[0] == backend]
    if modules and backend in FRAMEWORKS and importlib.util.find_spec(BACKENDS[backend].library) is None:
        raise NotInstalled(backend)  # frameworks are imported when a kernel is bound, so no import below would fail
    for planted_folder in _folders(op)[1:]:
        # Modules in the user's folder are imported as if they were in kernels/<op>/.
        package = importlib.import_module(f"kernels.{op}")
        if str(planted_folder) not in package.__path__:
            package.__path__.append(str(planted_folder))
    for module in modules:
        try:
            importlib.import_module(module)  # its @kernel decorators register what it has
        except ImportError as error:
            if (error.name or "").split(".")[0] == BACKENDS[backend].library:
                raise NotInstalled(backend) from error
            raise
    return _in_file_order(op, backend, modules)


def _in_file_order(op: str, backend: str, modules: list[str]) -> list[Kernel]:
    """The registered kernels of an operation on a backend in the order of their modules (dotted names), whichever was imported
    first."""

    def position(kernel: Kernel) -> int:
        module = kernel.bind.__module__
        return modules.index(module) if module in modules else len(modules)

    kernels = [kernel for kernel in _registered.values() if (kernel.op, kernel.backend) == (op, backend)]
    return sorted(kernels, key=position)


def find(name: str) -> Kernel:
    """The kernel of that full name, <op>/<backend>/<variant>; its module is imported if need be.

    Raises: KeyError when no file has it; NotInstalled when its backend's library is missing.
    """
    op, backend, _ = name.split("/")
    load(op, backend)
    return _registered[name]
