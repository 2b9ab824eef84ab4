"""A machine's profile: its microbenchmark rows, from which the times of a training's parts are read.

Also here: the rows that stand for an execution on a device, and those that replace an arithmetic without rows.
"""

import functools
import math
import os
import statistics
from collections.abc import Callable, Hashable, Iterable
from pathlib import Path
from typing import Any

import msgspec

from analysis.roofline import bounds, links, overheads, roofs
from analysis.roofline.links import Link
from analysis.roofline.overheads import Constant
from analysis.stats import Estimate, covering, quick_median
from analysis.units import count
from kernels import registry
from kernels.problems import Conv, Matmul, Stream
from kernels.problems.arrays import ARITHMETIC
from workloads import records, terminal
from workloads.options import Usage
from workloads.records import Loaded, Machine, Measurement
from workloads.records.settings import is_sustained

#: How a step runs.
OP_BY_OP, COMPILED = "op by op", "compiled"
#: How a step runs -> the variant of TensorFlow's rows.
VARIANTS = {OP_BY_OP: "function", COMPILED: "jit"}
#: How a step runs -> Keras's jit_compile.
JIT = {OP_BY_OP: "off", COMPILED: "on"}
#: Variant -> the constant of a call's overhead.
CALLS = {"function": "tf-function-call", "jit": "tf-jit-call"}
#: The rows of libraries.
LIBRARIES = "libraries"
#: Variant of TensorFlow's convolutions in one graph whose filters stay the same.
CONSTANT_FILTERS = "held"
#: Variant of TensorFlow's operations in one graph, as in a step that is not compiled.
GRAPH = "graph"
#: The source of rows, LIBRARIES or a variant -> its words.
WORDS = {
    LIBRARIES: "libraries' rows",
    CONSTANT_FILTERS: "TensorFlow's rows inside a graph",
    "function": "TensorFlow's rows in a tf.function",
    "jit": "TensorFlow's rows compiled by XLA",
}
#: A GPU whose profile comes with the package, for machines without one.
STORED_GPU = "nvidia-h200"
#: The kernel that makes the tf.data set of a fit from its samples.
DATA_SET = "stream/tensorflow/dataset"
#: The operations of passes over arrays.
PASSES = "copy add scale read relu relu_grad dropout maxpool maxpool_grad batchnorm sgd adam"


def clock(device: str) -> str:
    """The clock on which TensorFlow's rows are read: on a CPU calls that are waited for, on a GPU calls of which many are
    queued."""
    return "host-latency" if device == "cpu" else "host-throughput"


def row_sources(device: str, execution: str, op: str) -> tuple[str, ...]:
    """The sources from which the time of an operation ("matmul", "conv" or "stream") in a step is read, the best first; the next
    one is taken if one has no rows. Sources are LIBRARIES or a variant of TensorFlow's rows.

    On a GPU it is only libraries by the GPU's own clock, as calls of a framework take longer than most of its kernels. On a CPU
    TensorFlow's rows with the same execution come first: convolutions inside a graph before single calls, and after them
    libraries' products, whose threads wait actively between calls.
    """
    if device != "cpu":
        return (LIBRARIES,)
    this, other = ("function", "jit") if execution == OP_BY_OP else ("jit", "function")
    if op == "matmul":
        return this, LIBRARIES, other
    if op == "conv" and execution == OP_BY_OP:
        return CONSTANT_FILTERS, this, other, LIBRARIES
    return this, other, LIBRARIES


def arithmetics(problem: Matmul | Conv, device: str) -> list[tuple[str, str]]:
    """(type, arithmetic) of the problem, then the pairs whose rows may stand for it on the device."""
    every = [(problem.dtype, problem.math)]
    for dtype, arithmetic in ARITHMETIC[problem.math].instead:
        if device != "cpu" or arithmetic == "float32":
            every.append((dtype, arithmetic))
    return every


def kind(problem: Matmul | Conv) -> str:
    """The kind of a product or convolution, such as `nn` (layout) or `dgrad` (direction): times are interpolated between rows of
    one kind."""
    if isinstance(problem, Conv):
        return f"{problem.direction} grouped" if problem.groups > 1 else problem.direction
    if problem.count > 1:
        return f"{problem.layout} x{problem.count}"
    return f"{problem.layout} {problem.epilogue}" if problem.epilogue else problem.layout


def coordinates(problem: Matmul | Conv) -> tuple[float, ...]:
    """Logarithms of the sizes of a product (m, n, k) or of a convolution (images, output side, channels, filters, window,
    stride), between which times are interpolated."""
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


def rows_command(problem: Matmul | Conv | Stream, device: str) -> str:
    """The command line that measures such problems on a device for a profile."""
    passes = f" --operations {PASSES} --dtypes float32" if device == "cpu" else ""
    words = {
        "matmul": "matmul --model fashion-mlp --batch 1:2048:x4 --direction all",
        "conv": "conv --model cifar10-cnn --batch 1:2048:x4 --direction all",
        "stream": f"stream{passes} --sizes 64KiB:256MiB:x4",
    }
    return f"python -m workloads.{words[problem.op]} {' '.join(measuring(problem.op, device, problem.math))}"


def measuring(op: str, device: str, math: str) -> tuple[str, ...]:
    """The flags of a command that measures an operation (matmul, conv, stream) on a device. On a CPU it is measured in
    TensorFlow; on a GPU in a library in that arithmetic, as TensorFlow's kernels cannot be timed without their calls."""
    if device == "cpu":
        return ("--backends", "tensorflow", "--device", "cpu")
    library = "cudnn" if op == "conv" else "cupy"
    flags = ("--backends", library, "--device", "gpu")
    if op == "stream":
        return flags
    return (*flags, "--dtypes", math, "--modes", "resident")


def constants_command(device: str) -> str:
    """The command line that measures a device's constants: launches, framework calls, Keras steps with almost no work."""
    return f"python -m workloads.launch --backends tensorflow --device {'cpu' if device == 'cpu' else 'gpu'}"


class Lacking(ValueError):
    """A profile lacks rows that a prediction needs."""

    def __init__(self, what: str, commands: Iterable[str]):
        #: The rows, in words.
        """what: the rows that are lacking, in words. commands: the command lines that measure them."""
        self.what = what
        #: The command lines that measure them.
        self.commands = tuple(commands)
        super().__init__(f"the profile has {what}; measure with: {'; '.join(self.commands)}")


def all_of(every: Iterable[Lacking]) -> Lacking:
    """One error that names everything that is lacking and every command that measures it, each once."""
    what: dict[str, None] = {}
    commands: dict[str, None] = {}
    for lacking in every:
        what[lacking.what] = None
        commands |= dict.fromkeys(lacking.commands)
    return Lacking(", ".join(what), commands)


class Read(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds read off a profile."""

    seconds: Estimate
    #: The source of its rows, in words.
    source: str
    #: The arithmetic used as a substitute, in words; "" where none is.
    instead: str = ""


def cached_in_profile(function: Callable) -> Callable:
    """Decorates a function whose first argument is a profile: its results are cached in that profile, by the other arguments."""

    @functools.wraps(function)
    def cached(profile: "Profile", *args: Hashable) -> Any:
        key = (function, *args)
        if key not in profile.results:
            profile.results[key] = function(profile, *args)
        return profile.results[key]

    return cached


class Profile:
    """A machine's rows and the values read from them, without a curve."""

    def __init__(
        self,
        measurements: Iterable[Measurement],
        machine: Machine | None = None,
        replaced: Iterable[Measurement] = (),
    ):
        #: The rows that count.
        """measurements: the rows that count. machine: on which they were measured; None if that is not known. replaced: rows that
        newer ones replace."""
        self.measurements = tuple(row for row in measurements if not is_sustained(row))
        self.machine = machine
        #: The machine's name.
        self.key = machine.key if machine else "this machine"
        #: Rows that newer ones replace.
        self.replaced = tuple(replaced)
        #: What `cached_in_profile` has cached: (function, arguments) -> its result.
        self.results: dict[tuple, Any] = {}

    @functools.cached_property
    def rows(self) -> dict[tuple[str, str], list[Measurement]]:
        """(operation, device) -> the successful rows from which times are interpolated: in a warm process, with data on the
        device."""
        by_place: dict[tuple[str, str], list[Measurement]] = {}
        for row in self.measurements:
            where = row.settings
            if row.ok and row.samples and where.mode == "resident" and where.process == "warm":
                by_place.setdefault((row.problem.op, where.device), []).append(row)
        return by_place

    @functools.cached_property
    def constants(self) -> tuple[Constant, ...]:
        """Seconds of launches, framework calls, Keras steps and epochs with nearly no work in them."""
        return overheads.constants(self.measurements)

    @functools.cached_property
    def trainings(self) -> tuple[Measurement, ...]:
        """The rows of trainings that were timed."""
        trainings = [row for row in self.measurements if row.problem.op == "training"]
        return tuple(row for row in trainings if row.ok and row.on("host-latency"))

    @functools.cached_property
    def devices(self) -> tuple[str, ...]:
        """The devices that have rows."""
        return tuple(dict.fromkeys(row.device for row in self.measurements))

    def constant(self, name: str, device: str, jit: str | None = None, clock: str = "host-latency") -> Estimate | None:
        """Seconds of a constant such as `keras-step` on a device; None without such rows. jit: on, off or auto, where it was
        measured with several settings of jit_compile."""
        constant = overheads.find(self.constants, name, device, clock=clock, jit=jit)
        return constant.seconds if constant else None

    @cached_in_profile
    def step_floor(self, device: str, jit: str) -> Estimate | None:
        """Seconds of a Keras step of a model with almost no work, compiled (jit "on") or not ("off"); None without rows. It is
        the slope between the fits of the fewest and the most steps. If Keras would choose this setting by itself, both kinds of
        rows were measured, with it chosen and set: then it is the median and the interval reaches both."""
        kernels = ["launch/tensorflow/fit_jit" if jit == "on" else "launch/tensorflow/fit_op_by_op"]
        jit_by_default = "off" if device == "cpu" else "on"
        if jit == jit_by_default:
            kernels.append("launch/tensorflow/fit")
        slopes = []
        for kernel in kernels:
            fit_s = self._seconds_of_fits(kernel, device)
            if len(fit_s) > 1:
                fewest, most = min(fit_s), max(fit_s)
                slopes.append((fit_s[most] - fit_s[fewest]) / (most - fewest))
        if not slopes:
            return None
        return covering(statistics.median(slopes), *slopes)

    def _seconds_of_fits(self, kernel: str, device: str) -> dict[int, float]:
        """Number of steps -> median seconds of a fit of so many steps, of a model with almost no work."""
        seconds = {}
        for row in self.measurements:
            if row.kernel == kernel and row.ok and row.device == device and row.problem.call == "step" and row.samples:
                seconds[row.problem.count] = quick_median(row.samples[0])
        return seconds

    @cached_in_profile
    def issuing(self, op: str, device: str) -> float | None:
        """Median seconds that the host takes to issue a library's product ("matmul") or convolution ("conv") on a GPU; None
        without rows. It is the time of a queued call if that is more than twice the kernel's own, so that the GPU waits for the
        host."""
        seconds = []
        for row in self.rows.get((op, device), ()):
            queued = row.on("host-throughput")
            on_device = row.on("device")
            if row.backend not in registry.LIBRARIES or not queued or not on_device:
                continue
            if quick_median(queued) > 2 * quick_median(on_device):
                seconds.append(quick_median(queued))
        return statistics.median(seconds) if seconds else None

    def copying(self, nbytes: int, device: str) -> Estimate | None:
        """Seconds of copying so many bytes of a batch to a GPU; None if no copies were measured."""
        law = self._copies(device)
        return law.seconds(nbytes) if law else None

    @cached_in_profile
    def _copies(self, device: str) -> Link | None:
        """The fitted seconds of copies from pageable memory to a GPU, by bytes."""
        return links.batch_copies(self.measurements, device)


def stored(machine: str) -> Path:
    """The path of the profile of a machine (such as nvidia-h200) that comes with the package, whether it exists or not; `make
    profile` writes it."""
    return Path(__file__).parent / "profiles" / f"{machine}.jsonl.gz"


def stored_names() -> list[str]:
    """The machines whose profiles come with the package."""
    return sorted(file.name.removesuffix(".jsonl.gz") for file in stored("*").parent.glob("*.jsonl.gz"))


def file_of(run: str) -> str:
    """The path of a run: the run itself if it exists, else the stored profile of that name if there is one."""
    named = stored(run)
    return str(named) if not os.path.exists(run) and os.path.isfile(named) else run


def read(*runs: str) -> Profile:
    """The profile of result files or run folders, or of a machine whose profile comes with the package (nvidia-h200). Rows that
    are faster than the hardware allows are left out with a warning on stderr.

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
    """The measurements without those that are impossibly faster than their hardware's measured limits.

    Rows of frameworks set no limit: their calls contain overhead, so that a library may well be faster.
    """
    lean = [m for m in loaded.every if m.backend not in registry.FRAMEWORKS]
    ceilings = roofs.roofs_of(lean, loaded.machine)
    return [m for m in loaded.measurements if not bounds.is_impossible(m, ceilings, loaded.machine)]


@functools.cache  # once a profile, which a command may read more often
def _warn_of_impossible_rows(runs: str, left_out: int) -> None:
    """Prints a warning on stderr that so many rows of some runs are left out; once for each."""
    rows = count(left_out, "row is", "rows are")
    warning = f"{rows} faster than the hardware's roof allows: not used ({runs})"
    terminal.note(terminal.Line(warning, label="warning: "))
