"""Records of measurements: SI base units, the unit in every name, full precision.

Absent is not zero, and a number that is not finite is never stored.
"""

import math
import re
import statistics
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal

import msgspec

import kernels.networks  # noqa: F401  without it a problem of a whole model does not know its cost
from analysis.metrics import PHASES, VALUES
from kernels.problems import Problem
from workloads import SCHEMA  # noqa: F401  # other modules take it from here
from workloads.records.switches import Experiment, Keras, fault, is_variable, typed

LAST_READER = {1: "0.1.0"}  # schema of an older file -> the last version of Crossover that reads it
# Note of a training: the version of its made-up samples (frameworks.data.VERSION), or `as of sources HASH`. Losses of two rows
# are compared only where it is the same.
SAMPLES = "samples"
VISITS_AT = "visit_at_s"  # series: the end of each visit of a row, in Unix seconds
_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(Z|\+00:00)")
# Bounds on counts, seconds of a call and other numbers, checked on decoding; no measurement comes near them.
_MOST = 1 << 60
_MOST_VISITS = 1 << 20  # each is a block of the row's samples
Count = Annotated[int, msgspec.Meta(ge=1, lt=_MOST)]
BlockSize = Annotated[int, msgspec.Meta(ge=0, lt=_MOST)]  # samples of a block
Seconds = Annotated[float, msgspec.Meta(gt=1e-12, lt=1e9)]
Number = Annotated[float, msgspec.Meta(gt=-1e30, lt=1e30)]
Phase = Annotated[float, msgspec.Meta(ge=0, lt=1e9)]  # seconds of what happens once
Device = Annotated[str, msgspec.Meta(pattern=r"^(cpu|gpu:[0-9]{1,3})\Z")]


class Settings(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a kernel is run. Stored without its defaults."""

    #: cpu, or gpu: and its number.
    device: Device = "cpu"
    #: Threads on the CPU; None: as many as the library chooses.
    threads: Count | None = None
    #: The copies in a call: resident (none), roundtrip, roundtrip-pageable, roundtrip-pinned.
    mode: str = "resident"
    #: State of the caches before a call: warm or cold.
    cache: str = "warm"
    #: fresh for what happens once in a process; else warm.
    process: str = "warm"
    #: Options of a training or an inference, and marks; `records.switches` has their names and texts.
    switches: dict[str, str] = {}

    @property
    def on_gpu(self) -> bool:
        return self.device != "cpu"

    @property
    def keras(self) -> Keras:
        return typed(Keras, self.switches)

    @property
    def experiment(self) -> Experiment:
        return typed(Experiment, self.switches)

    @property
    def variables(self) -> dict[str, str]:
        """The environment variables that are set before TensorFlow is imported."""
        return {name: text for name, text in self.switches.items() if is_variable(name)}


#: Those of Samples, and the one of pyperf's results.
CLOCKS = {"host-latency", "host-throughput", "host-issue", "device", "pyperf"}


class Samples(msgspec.Struct, frozen=True, omit_defaults=True):
    """Seconds per call on one clock."""

    #: host-latency (each call is waited for), host-throughput (calls are queued, one wait), host-issue (the host's part alone),
    #: device (CUDA events) or pyperf.
    clock: str
    #: Mean seconds of a call in each sample, in the order of the blocks.
    seconds: tuple[Seconds, ...]
    #: Calls in each sample.
    calls: Count
    #: Number of samples in block i; 0 for a visit without this clock. Blocks are what is resampled for intervals.
    block_sizes: tuple[BlockSize, ...]
    #: Why sampling ended, in words.
    stop_reason: str
    #: Whether each block was timed in another process, as --rigorous does.
    is_by_process: bool = False

    @property
    def block(self) -> tuple[int, ...]:
        """The number of the block that each sample belongs to, from 0."""
        numbers: list[int] = []
        for number, size in enumerate(self.block_sizes):
            numbers += [number] * size
        return tuple(numbers)

    @property
    def medians(self) -> dict[int, float]:
        """Block -> the median seconds of its samples."""
        groups: dict[int, list[float]] = {}
        for second, block in zip(self.seconds, self.block, strict=True):
            groups.setdefault(block, []).append(second)
        return {block: statistics.median(group) for block, group in groups.items()}


class Fits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The fits of a training that have the same number of steps an epoch, in one process."""

    #: Steps of an epoch.
    steps: Count
    #: Number of the process among those that the row was timed in, from 0.
    process: Annotated[int, msgspec.Meta(ge=0, lt=_MOST)] = 0
    #: Data-set setup of each fit. Seconds; noise may make it negative.
    setup_s: tuple[Number, ...] = ()
    #: Each epoch but the first of each fit. Seconds. () where these epochs are the row's samples.
    later_epoch_s: tuple[Seconds, ...] = ()


class Row(msgspec.Struct, frozen=True):
    """One thing to measure. Its key names the row in every file."""

    #: Its name: operation/backend/variant.
    kernel: Annotated[str, msgspec.Meta(pattern="^[^/]+/[^/]+/[^/]+$")]
    #: What the kernel computes, with its sizes.
    problem: Problem
    #: How the kernel is run.
    settings: Settings

    @property
    def key(self) -> str:
        return msgspec.json.encode(self, order="sorted").decode()

    @property
    def device(self) -> str:
        return self.settings.device

    @property
    def on_gpu(self) -> bool:
        return self.settings.on_gpu

    @property
    def threads(self) -> int | None:
        return self.settings.threads

    @property
    def mode(self) -> str:
        return self.settings.mode

    @property
    def process(self) -> str:
        return self.settings.process

    @property
    def keras(self) -> Keras:
        """How its model is compiled, fed and trained; the backend is the library that does it."""
        return typed(Keras, {**self.settings.switches, "keras_backend": self.library})

    @property
    def experiment(self) -> Experiment:
        return self.settings.experiment

    @property
    def side(self) -> str:
        """GPU or CPU."""
        return "GPU" if self.on_gpu else "CPU"

    @property
    def backend(self) -> str:
        return self.kernel.split("/")[1]

    @property
    def variant(self) -> str:
        return self.kernel.rpartition("/")[2]

    @property
    def library(self) -> str:
        """The library that computes a model: Keras's backend; `jax` for JAX's own loop."""
        return self.settings.switches.get("keras_backend", "jax" if self.backend == "jax" else "tensorflow")

    @property
    def label(self) -> str:
        """Backend and variant: `numpy/blas`."""
        return self.kernel.partition("/")[2]

    def result(self, status: str, reason: str = "", **fields: Any) -> "Measurement":
        """A Measurement of this row. status: ok, skipped, failed or wrong. fields: further fields of the Measurement."""
        return Measurement(
            kernel=self.kernel, problem=self.problem, settings=self.settings, status=status, reason=reason, **fields
        )


#: Why a row has no samples, where a command does something about it; "" for every other reason.
Cause = Literal[
    "",
    "does-not-fit",  # it needs more memory than is free
    "out-of-memory",  # an allocation failed
    "not-installed",  # the library of its backend is missing
    "no-gpu",  # it needs a GPU, there is none
    "no-data",  # the real data set cannot be had
    "on-cpu",  # a GPU row's work ran on the CPU
    "time-limit",  # its worker was stopped
    "process-ended",  # its worker died
    "open-size",  # a size of the model's input is not known
    "open-input",  # what the model's fit takes cannot be made up
]


class Measurement(Row, frozen=True, tag="measurement", omit_defaults=True):
    """The result of one row: its samples, or the reason for having none."""

    #: ok; skipped: it cannot be measured here; failed: by an error; wrong: the answer is not the reference's.
    status: Annotated[str, msgspec.Meta(pattern=r"^(ok|skipped|failed|wrong)\Z")] = "ok"
    #: Why it is not ok, in words.
    reason: str = ""
    #: Its samples, each clock once.
    samples: tuple[Samples, ...] = ()
    #: Seconds of what happens once (first_call, import, ...); METRICS has the names.
    phases_s: dict[str, Phase] = {}
    #: Further numbers; METRICS has the names.
    values: dict[str, Number] = {}
    #: Several numbers of one name, such as seconds of each request.
    series: dict[str, tuple[Number, ...]] = {}
    #: What makes the numbers doubtful.
    flags: tuple[str, ...] = ()
    #: How the answer was checked.
    check: str = ""
    #: Largest error of the answer; None where it was exact or not checked.
    max_error: Number | None = None
    #: When it was measured: date and time in UTC.
    at: str = ""
    #: What the kernel chose, such as its plan.
    notes: dict[str, str] = {}
    #: 0 for a whole row; in a result file and a worker's answer i for what was timed in the i-th round, to be joined.
    visit: Annotated[int, msgspec.Meta(ge=0, lt=_MOST_VISITS)] = 0
    #: Of a training, the fits of its number of steps and those of another number.
    fits: tuple[Fits, ...] = ()
    #: Why it has no samples, for what commands react to.
    cause: Cause = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a value or a phase whose name METRICS does not have; msgspec then refuses to decode the line."""
        if self.values.keys() <= VALUES.keys() and self.phases_s.keys() <= PHASES.keys():
            return
        unknown = (self.values.keys() - VALUES.keys()) | (self.phases_s.keys() - PHASES.keys())
        raise ValueError(f"{', '.join(sorted(unknown))} is not in METRICS (analysis/metrics.py)")

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @property
    def row(self) -> Row:
        return Row(self.kernel, self.problem, self.settings)

    @property
    def key(self) -> str:
        return self.row.key

    def on(self, clock: str) -> Samples | None:
        """The samples on the clock of this name, such as host-latency; None if none were taken."""
        return next((s for s in self.samples if s.clock == clock), None)

    @property
    def visits(self) -> int:
        """How many visits it was joined from; 0 of a row that was timed in one go."""
        return len(self.series.get(VISITS_AT, ()))

    @property
    def span_s(self) -> float | None:
        """Seconds from the end of its first visit to the end of its last; None without visits."""
        visit_times_s = self.series.get(VISITS_AT)
        return max(visit_times_s) - min(visit_times_s) if visit_times_s else None


Measurements = Sequence[Measurement]  # rows to go over as often as one likes

# Arithmetic -> the least compute capability of a GPU for it; 0 for others. Source: CUDA C++ Programming Guide.
SINCE = {"tf32": 8.0, "bfloat16": 8.0, "float8_e4m3": 8.9}


def lacking(capability: str, math: str) -> str:
    """Why a GPU cannot multiply in an arithmetic such as bfloat16, in words; "" where it can.

    capability: the GPU's compute capability, such as "7.5"; "" where it is not known, and then nothing is said.
    """
    least = SINCE.get(math, 0.0)
    if not capability or float(capability) >= least:
        return ""
    return f"{math} needs a GPU of compute capability {least} or newer, this one has {capability}"


class Gpu(msgspec.Struct, frozen=True):
    """Facts of a GPU."""

    #: The driver's name of it.
    name: str
    #: What CUDA_VISIBLE_DEVICES calls it; "" where that is not known.
    uuid: str
    #: `9.0`; "" where that is not known.
    compute_capability: Annotated[str, msgspec.Meta(pattern=r"^(\d+\.\d+)?\Z")]
    #: Number of multiprocessors.
    multiprocessors: int
    #: Bytes of its memory.
    memory_bytes: int
    #: Bytes of its second-level cache.
    l2_bytes: int
    #: Highest clock of the multiprocessors.
    max_clock_hz: float
    #: Highest clock of the memory.
    memory_clock_hz: float
    #: The power that it may draw; None where the driver does not say.
    power_limit_w: float | None = None
    #: Highest generation of its PCIe link.
    pcie_generation: int | None = None
    #: Most lanes of its PCIe link.
    pcie_width: int | None = None


class Machine(msgspec.Struct, frozen=True):
    """Facts of a machine."""

    #: Name of its folder; only another key is another machine. Never a hostname.
    key: Annotated[str, msgspec.Meta(pattern=r"^[^\x00-\x1f]+\Z")]
    #: The CPU's name, with the microarchitecture in brackets (`AMD EPYC (Zen 4)`) where that is known.
    cpu: str
    #: The CPU's vendor.
    vendor: str
    #: The widest vector instructions.
    simd: str
    #: Cores that may be used.
    cores: Count
    #: Hardware threads of a core.
    threads_a_core: int
    #: Bytes of the host's memory.
    memory_bytes: int
    #: Name of a cache, such as L2 -> its bytes.
    caches_bytes: dict[str, int] = {}
    #: Its GPUs, in the driver's order.
    gpus: tuple[Gpu, ...] = ()
    #: Version of the GPU's driver.
    driver: str = ""
    #: Operating system.
    os: str = ""
    #: Whether it is a virtual machine.
    virtual: bool = False

    @property
    def uuids(self) -> dict[str, str]:
        """Name of a GPU, such as gpu:0 -> the UUID by which CUDA_VISIBLE_DEVICES selects it."""
        return {f"gpu:{i}": gpu.uuid for i, gpu in enumerate(self.gpus) if gpu.uuid}

    def lacks(self, math: str) -> str:
        """Why one of its GPUs cannot multiply in an arithmetic such as bfloat16, in words; "" where all can."""
        for gpu in self.gpus:
            reason = lacking(gpu.compute_capability, math)
            if reason:
                return reason
        return ""

    def gpu(self, device: str) -> Gpu | None:
        """The facts of a GPU, such as gpu:0; None of one that is not there."""
        index = int(device.partition(":")[2] or 0)
        return self.gpus[index] if index < len(self.gpus) else None


class Method(msgspec.Struct, frozen=True, kw_only=True):
    """How the visits of a run were made. With the run's seed and software it says which visits can be one row."""

    #: Whether each round of visits has processes of its own (--rigorous).
    process_per_visit: bool
    #: The limits of a row's visits by their names in shared_flags.Limits, all but the number of rounds.
    limits: dict[str, float | None]
    #: Environment variables that set the threads of libraries.
    thread_variables: dict[str, str] = {}


class Run(msgspec.Struct, frozen=True, tag="run"):
    """The origin of a result file: machine, software, command and sources."""

    #: Version of the file's format.
    schema: int
    #: The machine that it was measured on.
    machine: Machine
    #: Library -> its version.
    software: dict[str, str]
    #: The command line that was typed.
    command: str
    #: Seed of the inputs and of the order of visits.
    seed: int
    #: Commit of the sources; "" outside a repository.
    commit: str
    #: Hash of the sources.
    sources: str
    #: When it began: date and time in UTC.
    started_at: str
    #: How rows were visited; None where it was not stored, as by studies that visit no row.
    method: Method | None = None


Line = Run | Measurement


def distinct(rows: Iterable[Row], but: Iterable[Row] = ()) -> list[Row]:
    """The rows in their order without repetitions, and without the rows (or Measurements) in `but`. Of rows with one key the last
    one stays, in the place of the first."""
    left_out = {row.key for row in but}
    by_key = {row.key: row for row in rows}
    return [row for key, row in by_key.items() if key not in left_out]


def finite(m: Measurement) -> Measurement:
    """The measurement, or a failed one in its place if a number of it is infinite or NaN, which JSON cannot store. The reason
    names the number: `values watts is not a finite number`."""
    for place, numbers in _numbers(m):
        if all(math.isfinite(number) for number in numbers):
            continue
        reason = f"{place} is not a finite number"
        if m.reason:
            reason += f"; {m.reason}"
        return m.result("failed", reason, flags=m.flags, at=m.at)
    return m


def _numbers(m: Measurement) -> Iterator[tuple[str, Sequence[float]]]:
    """Yields all numbers of a measurement, each group of them with the words for where they stand."""
    for name, seconds in m.phases_s.items():
        yield f"phases_s {name}", [seconds]
    for name, value in m.values.items():
        yield f"values {name}", [value]
    if m.max_error is not None:
        yield "max_error", [m.max_error]
    for name, series in m.series.items():
        yield f"series {name}", series
    for fits in m.fits:
        yield "fits", [*fits.setup_s, *fits.later_epoch_s]
    for samples in m.samples:
        yield samples.clock, samples.seconds


def shortened(m: Measurement) -> Measurement:
    """The measurement with its phases, values and series rounded to nine digits, as no clock or counter here is more exact.
    Samples stay as they are, and so do the times of visits, which are Unix seconds."""
    phases = {name: _nine_digits(seconds) for name, seconds in m.phases_s.items()}
    values = {name: _nine_digits(value) for name, value in m.values.items()}
    series = {name: tuple(map(_nine_digits, numbers)) for name, numbers in m.series.items()}
    if m.visits:
        series[VISITS_AT] = m.series[VISITS_AT]
    return msgspec.structs.replace(m, phases_s=phases, values=values, series=series)


def _nine_digits(number: float) -> float:
    return float(f"{number:.9g}")


def sound(line: Run | Measurement) -> bool:
    """Whether a line of a result file, decoded, can be the truth; a file may have been damaged or edited since it was written.

    A measurement that is ok has a time of some kind, and no number of it is outside the range that it can have.
    """
    if isinstance(line, Run):
        return is_moment(line.started_at)
    is_timed = line.samples or line.fits or line.phases_s or line.series
    if line.status == "ok" and not is_timed:
        return False
    sizes = [field for field in msgspec.structs.astuple(line.problem) if type(field) is int]
    return (
        line.kernel.isprintable()
        and (not line.at or is_moment(line.at))
        and not fault(line.settings.switches)
        and max(sizes, default=0) < _MOST
        and _are_sound(line.samples)
        and min(_seconds(line), default=0.0) >= 0
        and all(_is_in_range(name, value) for name, value in line.values.items())
    )


def is_moment(text: str) -> bool:
    """Whether a text is a date and time in UTC as rows have it, 2026-11-21T17:46:40Z. Sorted as texts they are in order of
    time."""
    if not _MOMENT.fullmatch(text):
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def _are_sound(samples: Sequence[Samples]) -> bool:
    """Whether the Samples of a measurement are of different clocks, all of them in CLOCKS, and each has a sample at least and a
    block for every sample."""
    clocks = {clock_samples.clock for clock_samples in samples}
    if not clocks <= CLOCKS or len(clocks) < len(samples):
        return False
    for clock_samples in samples:
        count = len(clock_samples.seconds)
        if count == 0 or count != sum(clock_samples.block_sizes):
            return False
    return True


def _is_in_range(name: str, value: float) -> bool:
    """Whether a value can be true, by the unit at the end of its name: a fraction is 0 to 1, a frequency (_hz) not negative."""
    if name.endswith("_fraction"):
        return 0 <= value <= 1
    return value >= 0 or not name.endswith("_hz")


def _seconds(m: Measurement) -> Iterator[float]:
    """Yields the numbers in a measurement's values and series that are seconds: their names end in _s."""
    for name, value in m.values.items():
        if name.endswith("_s"):
            yield value
    for name, series in m.series.items():
        if name.endswith("_s"):
            yield from series
