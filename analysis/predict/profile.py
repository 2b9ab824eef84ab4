"""A machine's profile: its microbenchmark rows, from which the times of a training's parts are read.

Also here: the rows that stand for an execution on a device, and those that replace an arithmetic without rows.
"""

import functools
import math
import os
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from analysis.roofline import bounds, links, overheads, roofs
from analysis.roofline.links import Link
from analysis.roofline.overheads import Constant
from analysis.stats import Estimate, covering, middle
from analysis.units import count
from kernels import registry
from kernels.problems import Conv, Matmul, Stream
from kernels.problems.arrays import ARITHMETIC
from workloads import records, terminal
from workloads.options import Usage
from workloads.records import Loaded, Machine, Measurement
from workloads.records.settings import is_sustained

OP_BY_OP, COMPILED = "op by op", "compiled"
VARIANTS = {OP_BY_OP: "function", COMPILED: "jit"}
JIT = {OP_BY_OP: "off", COMPILED: "on"}
CALLS = {"function": "tf-function-call", "jit": "tf-jit-call"}  # variant -> its constant for a call's overhead
LIBRARIES, HELD = "libraries", "held"
GRAPH = "graph"  # TensorFlow's rows of many operations in one graph, as in a step that is not compiled
WORDS = {
    LIBRARIES: "libraries' rows",
    HELD: "TensorFlow's rows inside a graph",
    "function": "TensorFlow's rows in a tf.function",
    "jit": "TensorFlow's rows compiled by XLA",
}
STORED_GPU = "nvidia-h200"  # its profile comes with the package, for machines without a GPU
DATA_SET = "stream/tensorflow/dataset"  # the tf.data set that fit makes from its samples
PASSES = "copy add scale read relu relu_grad dropout maxpool maxpool_grad batchnorm sgd adam"


def clock(device: str) -> str:
    """The clock on which a framework's rows are read: a call that is waited for on the CPU, one of many queued on a GPU."""
    return "host-latency" if device == "cpu" else "host-throughput"


def row_sources(device: str, execution: str, op: str) -> tuple[str, ...]:
    """The sources of rows in order of preference. On a GPU only libraries on its own clock, as a framework's calls take longer
    than most of its kernels. On the CPU TensorFlow's in that execution; convolutions inside a graph come first, and libraries'
    products second, as their threads spin on between calls. The remaining sources are substitutes."""
    if device != "cpu":
        return (LIBRARIES,)
    this, other = ("function", "jit") if execution == OP_BY_OP else ("jit", "function")
    if op == "matmul":
        return this, LIBRARIES, other
    if op == "conv" and execution == OP_BY_OP:
        return HELD, this, other, LIBRARIES
    return this, other, LIBRARIES


def arithmetics(problem: Matmul | Conv, device: str) -> list[tuple[str, str]]:
    """(dtype, arithmetic) of the problem, then those that may replace it on the device."""
    instead = [
        (dtype, math_) for dtype, math_ in ARITHMETIC[problem.math].instead if device != "cpu" or math_ == "float32"
    ]
    return [(problem.dtype, problem.math), *instead]


def kind(problem: Matmul | Conv) -> str:
    """The kind of a problem: rows of one kind and arithmetic share a curve."""
    if isinstance(problem, Matmul):
        return problem.layout + (f" x{problem.count}" if problem.count > 1 else f" {problem.epilogue or ''}".rstrip())
    return f"{problem.direction}{' grouped' if problem.groups > 1 else ''}"


def coordinates(problem: Matmul | Conv) -> tuple[float, ...]:
    """The coordinates of a shape on its curve: logarithms of the sizes of a product, or of a convolution."""
    if isinstance(problem, Matmul):
        return (math.log(problem.m), math.log(problem.n), math.log(problem.k))
    return (
        math.log(problem.n),
        0.5 * math.log(problem.p * problem.q),
        math.log(problem.c_in),
        math.log(problem.c_out),
        math.log(problem.r * problem.s),
        math.log(problem.stride),
    )


def command(problem: Matmul | Conv | Stream, device: str) -> str:
    """The command line that measures rows of such problems."""
    what = {
        "matmul": "matmul --model fashion-mlp --batch 1:2048:x4 --direction all",
        "conv": "conv --model cifar10-cnn --batch 1:2048:x4 --direction all",
        "stream": f"stream{f' --operations {PASSES} --dtypes float32' * (device == 'cpu')} --sizes 64KiB:256MiB:x4",
    }
    return f"python -m workloads.{what[problem.op]} {' '.join(measuring(problem.op, device, problem.math))}"


def measuring(op: str, device: str, math: str) -> tuple[str, ...]:
    """The flags that measure rows of an operation for a device: TensorFlow's on the CPU. On a GPU a library's in that
    arithmetic, as TensorFlow's kernels cannot be timed apart from their calls."""
    if device == "cpu":
        return "--backends", "tensorflow", "--device", "cpu"
    of_math = () if op == "stream" else ("--dtypes", math, "--modes", "resident")
    return ("--backends", "cudnn" if op == "conv" else "cupy", "--device", "gpu", *of_math)


def launches(device: str) -> str:
    """The command line that measures the constants of a device."""
    return f"python -m workloads.launch --backends tensorflow --device {'cpu' if device == 'cpu' else 'gpu'}"


class Lacking(ValueError):
    """A profile lacks rows that a prediction needs; `commands` are the command lines that measure them."""

    def __init__(self, what: str, commands: Iterable[str]):
        self.what, self.commands = what, tuple(commands)
        super().__init__(f"the profile has {what}; measure with: {'; '.join(self.commands)}")


def all_of(each: Iterable[Lacking]) -> Lacking:
    """All that is lacking and every command that measures it, each named once."""
    every = list(each)
    return Lacking(", ".join(dict.fromkeys(e.what for e in every)), dict.fromkeys(c for e in every for c in e.commands))


class Read(msgspec.Struct, frozen=True):
    """Seconds read off a profile, and the source of its rows; `instead`: the arithmetic used as a substitute, in words."""

    seconds: Estimate
    source: str
    instead: str = ""


def once(work: Callable) -> Callable:
    """Caches the results of a function of a profile and more arguments in that profile."""

    @functools.wraps(work)
    def kept(of: "Profile", *args):
        key = (work, *args)
        if key not in of.kept:
            of.kept[key] = work(of, *args)
        return of.kept[key]

    return kept


class Profile:
    """A machine's rows and the values read from them, without a curve. key: its name. replaced: rows that newer ones replace."""

    def __init__(self, measurements: "Iterable[Measurement]", machine: "Machine | None" = None, replaced=()):
        self.measurements, self.machine = tuple(m for m in measurements if not is_sustained(m)), machine
        self.key, self.replaced = machine.key if machine else "this machine", tuple(replaced)
        self.kept: dict = {}

    @functools.cached_property
    def rows(self) -> "dict[tuple, list[Measurement]]":
        """(op, device) -> the rows that a curve may use: ok, in a warm process, data resident."""
        found: dict[tuple, list] = {}
        for m in self.measurements:
            s = m.settings
            if m.ok and (s.mode, s.process) == ("resident", "warm") and m.samples:
                found.setdefault((m.problem.op, s.device), []).append(m)
        return found

    @functools.cached_property
    def constants(self) -> tuple[Constant, ...]:
        return overheads.constants(self.measurements)

    @functools.cached_property
    def trainings(self) -> "tuple[Measurement, ...]":
        return tuple(m for m in self.measurements if m.problem.op == "training" and m.ok and m.on("host-latency"))

    @functools.cached_property
    def devices(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(m.device for m in self.measurements))

    def constant(self, name: str, device: str, jit: str | None = None, clock: str = "host-latency") -> Estimate | None:
        found = overheads.find(self.constants, name, device, clock=clock, jit=jit)
        return found.seconds if found else None

    @once
    def step_floor(self, device: str, jit: str) -> Estimate | None:
        """Seconds of a Keras step of a model with almost no work, compiled (`on`) or not (`off`): the slope between the fits of
        the fewest and the most steps. It is the median of Keras's own choice, if it is the same, and the explicit setting."""
        own = "on" if device != "cpu" else "off"
        kernels = {"on": "launch/tensorflow/fit_jit", "off": "launch/tensorflow/fit_op_by_op"}
        wanted = (kernels[jit], *(("launch/tensorflow/fit",) if own == jit else ()))
        slopes = list[float]()
        for kernel in wanted:
            at = {
                m.problem.count: middle(m.samples[0])
                for m in self.measurements
                if m.kernel == kernel and m.ok and m.problem.call == "step" and m.device == device and m.samples
            }
            points = sorted(at.items())
            if len(points) > 1:
                (fewest, least), (n, most) = points[0], points[-1]
                slopes.append((most - least) / (n - fewest))
        return covering(statistics.median(slopes), *slopes) if slopes else None

    @once
    def issuing(self, op: str, device: str) -> float | None:
        """Seconds that the host takes to issue a library's product or convolution: from calls queued one after another that are
        so short that the device waits for the host; None without such rows."""
        found = []
        for m in self.rows.get((op, device), ()):
            queued, own = m.on("host-throughput"), m.on("device")
            if m.backend in registry.LIBRARIES and queued and own and middle(queued) > 2 * middle(own):
                found.append(middle(queued))
        return statistics.median(found) if found else None

    def copying(self, nbytes: int, device: str) -> Estimate | None:
        """Seconds of a copy of a batch of so many bytes to the device."""
        law = self._copies(device)
        return law.seconds(nbytes) if law else None

    @once
    def _copies(self, device: str) -> Link | None:
        return links.law(self.measurements, device)


def stored(machine: str) -> Path:
    """The file of a profile that comes with the package, whether there is one or not; `make profile` writes it."""
    return Path(__file__).parent / "profiles" / f"{machine}.jsonl.gz"


def stored_names() -> list[str]:
    """The machines whose profiles come with the package."""
    return sorted(file.name.removesuffix(".jsonl.gz") for file in stored("*").parent.glob("*.jsonl.gz"))


def file_of(run: str) -> str:
    """A run, or the file of the stored profile that it names if nothing else has that name."""
    named = stored(run)
    return str(named) if not os.path.exists(run) and os.path.isfile(named) else run


def read(*runs: str) -> Profile:
    """The profile of the result files that RUN names, or of a machine whose profile is stored (`nvidia-h200`). Rows faster than
    the hardware allows are left out, which stderr says.

    Raises: options.Usage for rows of several machines; FileNotFoundError for no file.
    """
    machines = records.by_machine(*map(file_of, runs))
    if len(machines) > 1:
        first = next(iter(machines))
        message = (
            f"these rows are of {len(machines)} machines ({', '.join(machines)}), whose times are no one machine's; "
            f"name one, as reports/{first}"
        )
        others = [run for run in runs if first not in records.by_machine(file_of(run))]
        if len(others) == 1:  # which is left out
            raise Usage(message, wrong=others[0])
        raise Usage(message, None)
    (loaded,) = machines.values()
    packaged = {str(stored(name)) for name in stored_names()}
    if packaged.issuperset(map(file_of, runs)):  # a test judges their rows
        return Profile(loaded.measurements, loaded.machine, loaded.replaced)
    rows = credible(loaded)
    left_out = len(loaded.measurements) - len(rows)
    if left_out:
        _warn_of_impossible_rows(" ".join(map(str, runs)), left_out)
    return Profile(rows, loaded.machine, loaded.replaced)


def credible(loaded: Loaded) -> list[Measurement]:
    """The rows without those that are faster than the hardware's roof allows.

    No roof is made from a framework's rows: their calls contain overhead, so that a library's row may well be faster.
    """
    lean = [m for m in loaded.every if m.backend not in registry.FRAMEWORKS]
    ceilings = roofs.roofs_of(lean, loaded.machine)
    return [m for m in loaded.measurements if not bounds.is_impossible(m, ceilings, loaded.machine)]


@functools.cache  # once a profile, which a command may read more often
def _warn_of_impossible_rows(runs: str, left_out: int) -> None:
    """Says on stderr that rows of some runs are left out."""
    rows = count(left_out, "row is", "rows are")
    warning = f"{rows} faster than the hardware's roof allows: not used ({runs})"
    terminal.note(terminal.Line(warning, label="warning: "))
