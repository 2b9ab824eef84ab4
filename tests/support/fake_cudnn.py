"""A cudnn-frontend whose plans take given times on fake_cupy's GPU."""

import enum
import importlib
import sys
import types

import fake_cupy
import msgspec

from kernels import registry
from kernels.cuda import autotuner
from kernels.reference.exact import OutputCheck

HOST_S = 40e-6  # of the host to start a call
COMPARED_S = 0.2e-6  # of the host to compare a plan with an excluded kind, on every call


class Note(enum.Enum):
    """Kinds of plans that can be excluded."""

    TENSOR_CORE = enum.auto()
    DOWN_CONVERT_INPUTS = enum.auto()
    REDUCED_PRECISION_REDUCTION = enum.auto()
    WINOGRAD = enum.auto()
    WINOGRAD_TILE_4x4 = enum.auto()
    WINOGRAD_TILE_6x6 = enum.auto()
    WINOGRAD_TILE_13x13 = enum.auto()
    FFT = enum.auto()


class Engine(msgspec.Struct, frozen=True, kw_only=True):
    """A plan that the library lists."""

    #: Its number.
    number: int
    #: Device seconds of a call.
    seconds: float
    #: Its kinds.
    notes: tuple[Note, ...] = ()
    #: Bytes of device memory that it needs.
    workspace: int = 0
    #: Whether it cannot be built.
    broken: bool = False
    #: Whether its sums are wrong.
    wrong: bool = False


class Library:
    """The `cudnn` module, over a Gpu, how many plans were built, and the engines and graphs called."""

    def __init__(self, gpu: fake_cupy.Gpu, engines: list[Engine]):
        self.gpu, self.engines = gpu, engines
        self.builds = 0
        self.called: list[int] = []
        self.graphs: list[Graph] = []

    def check(self, problem, inputs, output, bound) -> OutputCheck:
        """The reference's: of the engine that was called last."""
        (engine,) = [engine for engine in self.engines if engine.number == self.called[-1]]
        return OutputCheck("exact", not engine.wrong, 0.0)

    def module(self) -> types.ModuleType:
        module = types.ModuleType("cudnn")
        module.numerical_note = Note
        module.data_type = types.SimpleNamespace(FLOAT="float", DOUBLE="double", HALF="half", BFLOAT16="bf16")
        module.heur_mode = types.SimpleNamespace(A="a", B="b", FALLBACK="fallback")
        module.create_handle, module.set_stream = lambda: "handle", lambda handle, stream: None
        module.backend_version = lambda: 91900
        module.pygraph = lambda **settings: Graph(self)
        return module


class Tensor:
    """A tensor of a graph, whose setters give itself."""

    def __getattr__(self, name):
        return lambda *_: self


class Graph:
    """A graph of one convolution."""

    def __init__(self, library: Library):
        self.library = library
        self.engines: list[Engine] = []
        self.excluded: list[Note] = []
        self.built: set[int] = set()

    def tensor(self, **_) -> Tensor:
        return Tensor()

    conv_fprop = conv_dgrad = conv_wgrad = tensor

    def validate(self) -> None: ...

    build_operation_graph = check_support = validate

    def create_execution_plans(self, modes) -> None:
        self.engines = list(self.library.engines)

    def deselect_numeric_notes(self, notes) -> None:
        self.excluded.extend(notes)

    def get_execution_plan_count(self) -> int:
        return len(self.engines)

    def get_plan_name_at_index(self, index: int) -> str:
        return f"eng{self.engines[index].number}"

    def get_workspace_size_plan_at_index(self, index: int) -> int:
        return self.engines[index].workspace

    def build_plan_at_index(self, index: int) -> None:
        engine = self.engines[index]
        if engine.broken or set(engine.notes) & set(self.excluded):
            raise RuntimeError("not supported")
        self.built.add(index)
        self.library.builds += 1

    def execute_plan_at_index(self, pack, workspace, index, handle) -> None:
        assert index in self.built and len(pack) == 3 and handle == "handle"
        self.library.called.append(self.engines[index].number)
        self.library.graphs.append(self)
        self.library.gpu.now += HOST_S + COMPARED_S * len(self.excluded) * len(self.engines)
        self.library.gpu.launch(self.engines[index].seconds)


def installed(monkeypatch, gpu: fake_cupy.Gpu, engines: list[Engine], folder):
    """(kernels.conv.cudnn over a library of these engines, the library), as a process that just began; choices are stored in a
    folder."""
    library = Library(gpu, engines)
    monkeypatch.setitem(sys.modules, "cudnn", library.module())
    monkeypatch.setattr(registry, "_registered", dict(registry._registered))
    monkeypatch.setattr(autotuner, "folder", lambda: folder)
    for name in [name for name in registry._registered if name.startswith("conv/cudnn/")]:
        del registry._registered[name]
    monkeypatch.setitem(sys.modules, "kernels.conv.cudnn", None)
    del sys.modules["kernels.conv.cudnn"]
    module = importlib.import_module("kernels.conv.cudnn")
    monkeypatch.setattr(module, "check", library.check)
    return module, library
