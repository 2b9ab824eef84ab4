"""Chooses the rows to run: devices, kernels and settings from a command line, and the plan that --dry-run prints."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from analysis import units
from kernels import registry
from kernels.problems import Peak, Problem, Stream, Training
from kernels.problems.arrays import ARITHMETIC, precision
from kernels.registry import Kernel
from workloads import options, terminal
from workloads.harness import memory_needs, rounds
from workloads.harness.timing import FEWEST_LATER
from workloads.machine import facts
from workloads.records import Machine, Row, Settings
from workloads.shared_flags import Limits, Measuring

CACHES = ("warm", "cold")
DIRECTIONS = ("fprop", "dgrad", "wgrad")
RIGOROUS_PROCESSES = 5
# A fresh process until its first visit ends: 1.7 to 2.5 on two Zen 4 cores; with TensorFlow 5 there, 8 on an H200's host.
_FRESH_S = 2.5
_FRAMEWORK_S = 8.0
# Guessed seconds of a row that is timed in one go, without its steps, and of a step. Half of 302 stored trainings took within 1.6
# times of what these say; twelve numbers, of devices, models and data, said no better.
_ROW_S = 10.0
_STEP_S = 2e-3
_VISIT_OVERHEAD_S = 0.2  # of a visit or a row, beyond what its clocks take
_GPU_CLOCKS = 3  # host-latency, host-throughput, device
_MOST_LETTERS = 9  # of the form of a shape
_CACHES = 4  # the triad's arrays, in sizes of the last cache
_FAST_CACHES = 1.25  # the same in a quick look
_LEAST_TRIAD_BYTES = {"cpu": 1 << 28, "gpu": 1 << 30}
_TRIADS = ("nontemporal", "elementwise", "wide")  # those that can be the fastest beyond the caches
# Device -> arithmetic -> the peaks that a short look takes: on the CPU what its libraries use, on a GPU its tensor cores too.
_TENSOR = dict.fromkeys(("tf32", "float16", "bfloat16", "float8_e4m3"), ("tensor", "wgmma"))
_PEAKS: dict[str, dict[str, tuple[str, ...]]] = {
    "cpu": {"float32": ("fma",), "float64": ("fma",)},
    "gpu": {"float32": ("fma",), "float64": ("fma", "tensor"), **_TENSOR},
}
# Problems' fields that name what is done.
_WORDS = (
    "model",
    "layer",
    "operation",
    "call",
    "direction",
    "host_memory",
    "compute",
    "layout",
    "epilogue",
    "gpus",
    "form",
)


def devices(names: Sequence[str], here: Machine, require_gpu: bool = False) -> list[str]:
    """The devices of this machine that were named (cpu, gpu, gpu:1, all), each once; without a name the CPU and the first GPU.

    require_gpu: whether a machine without a GPU is an error.
    Raises: Usage for an unknown name; Missing for a GPU that is named or required and does not exist.
    """
    every = ["cpu"] + [f"gpu:{i}" for i in range(len(here.gpus))]
    if require_gpu and not here.gpus:
        raise no_gpu(right="--device cpu" if names else "")
    if not names:
        return every[:2]
    chosen: list[str] = []
    for word in names:
        name = "gpu:0" if word == "gpu" else word
        if name == "all":
            chosen += every
        elif name in every:
            chosen.append(name)
        elif name.startswith("gpu:") and name[4:].isdigit():
            reason = f"there are {len(here.gpus)}" if here.gpus else ""
            error = no_gpu(f"no {name} here", reason, right="--device cpu")
            error.is_example = "cpu" not in names
            raise error
        else:
            unknown_device = options.unknown("device", word, ("cpu", "gpu", "gpu:1", "all"))
            number = re.fullmatch(r"(?:[a-z]+:?)?(\d{1,3})", word.lower())
            if number:  # cuda:1, gpu1 or 1
                unknown_device.right = f"gpu:{number[1]}"
            raise unknown_device
    return list(dict.fromkeys(chosen))


def no_gpu(
    fault: str = "no GPU here", reason: str = "", flags: str = "--device --require-gpu", right: str = ""
) -> options.Missing:
    """The error for a GPU that a command needs and that does not exist.

    fault: what is wrong, in words. reason: why; "" for what the machine's facts say. flags: the flags that need a GPU, which the
    corrected command has not, or has as `right`.
    """
    message = f"{fault}: {reason or facts.gpu_problem()}"
    error = options.Missing(message, "python -m workloads.doctor", wrong=flags, right=right)
    error.is_example = not right
    return error


def kernels(
    op: str, measuring: Measuring, on: list[str], *, ladder: bool = False, on_request: Iterable[str] = ()
) -> list[Kernel]:
    """The kernels of an operation to measure on these devices, by the backends and variants that the command names.

    If it names none, all backends are taken but those in `on_request`, and a backend that is not installed, or none of whose
    devices is here, is left out (with a note for --verbose). ladder: whether the teaching rungs are taken without being named.
    Raises: Usage for an unknown backend or variant; Missing for a named backend that cannot run.
    """
    every = registry.backends(op)
    named = known("backend", measuring.backends, every, f" for {op}")
    loaded: list[Kernel] = []
    for backend in named or [name for name in every if name not in on_request]:
        try:
            if not usable(registry.BACKENDS[backend], on):
                raise no_device(backend)
            loaded += [kernel for kernel in registry.load(op, backend) if usable(kernel, on)]
        except (registry.NotInstalled, options.Missing) as error:
            if named:
                if isinstance(error, options.Missing):
                    raise
                raise options.Missing(str(error), wrong=backend) from error
            if measuring.verbose and not measuring.quiet:
                terminal.note(f"{backend} left out: {error}")
    variants = known("variant", measuring.variants, sorted({kernel.variant for kernel in loaded}))
    if variants:
        return [kernel for kernel in loaded if kernel.variant in variants]
    return [kernel for kernel in loaded if ladder or not kernel.rung]


def usable(kernel_or_backend: Kernel | registry.Backend, on: list[str]) -> bool:
    """Whether a kernel or a backend runs on one of these devices (cpu, gpu:0, ...)."""
    return any(device.partition(":")[0] in kernel_or_backend.devices for device in on)


def refusal(kernel: Kernel, problem: Problem) -> str:
    """Why a kernel of NumPy or Numba cannot do a problem, in words; "" if it can, and for kernels of other libraries, which
    only a worker process may load: its refusal becomes the result of the row."""
    if kernel.backend in ("numpy", "numba"):
        try:
            kernel.bind(problem, *problem.inputs(1))
        except ValueError as error:
            return str(error)
    return ""


def no_device(backend: str) -> options.Missing:
    """The error for a backend none of whose devices exists or was named."""
    devices = registry.BACKENDS[backend].devices
    needs_gpu = devices[0] == "gpu"
    lacking = facts.no_gpu() if needs_gpu else None
    tip = options.typed("python -m analysis.report reports/nvidia-h200/suite --open")
    if lacking and lacking.kind == "not-installed":
        tip = f"{options.python()} -m pip install {registry.BACKENDS[backend].install}"
    if lacking:
        reason = lacking.words
    elif needs_gpu:
        reason = "none was asked for"
    else:
        reason = "the CPU was not asked for"
    message = f"{backend} needs a {devices[0].upper()}: {reason}"
    return options.Missing(message, tip, wrong="--device" if "cpu" in devices else backend)


def directions(typed: Sequence[str] | None) -> list[str]:
    """The directions of a convolution or a layer that a flag names; `all` stands for every one, and without the flag it is fprop.

    typed: the words of the flag; None or () where it was not typed. Raises: Usage for an unknown word.
    """
    words = known("direction", typed or ["fprop"], (*DIRECTIONS, "all"))
    return list(DIRECTIONS) if "all" in words else words


class Precision(NamedTuple):
    """Types of a product or convolution."""

    #: Type of the data.
    dtype: str
    #: Arithmetic, such as tf32.
    math: str


def precisions(typed: Sequence[str]) -> list[Precision]:
    """The precisions that the words of a flag name, such as tf32, which is float32 data multiplied in TF32.

    Raises: Usage for an unknown one.
    """
    with options.usage_errors():
        return [Precision(*precision(word)) for word in options.words(typed)]


def shapes(typed: Sequence[str] | None) -> list[str]:
    """The shapes that a flag names, as they were typed: `512x512x512,64x64x64` is two.

    A comma separates shapes, unless it stands in place of an x: in a word without an x, and in one that begins with three numbers
    and commas, such as `32,3,224,224:64x7x7`.
    """
    every: list[str] = []
    for word in typed or ():
        is_one_shape = "x" not in word.lower() or re.match(r"\d+(,\d+){2}", word)
        every += [word] if is_one_shape else options.words([word])
    return every


def shape(typed: str, like: str = "MxNxK") -> tuple[int, ...]:
    """The whole numbers of a shape such as `4096x1024x512` or `4kx1kx512` (1k is 1000). like: its form, with a capital letter
    in the place of each number.

    Raises: Usage for a word of another form, corrected to the shape that its numbers may mean.
    """
    text = typed.lower()
    form = re.sub(r"\d+[km]?", "N", text.replace(",", "x"))
    if form == re.sub("[A-Z]", "N", like):
        return tuple(map(options.number, re.split("[x:,]", text)))
    numbers = re.findall(r"[1-9]\d*[km]?", text) or ["64"]
    by_letter = dict(re.findall(r"([a-z]) ?[=:] ?([1-9]\d*)", text))  # N=8,H=32,W=32
    if by_letter:  # the sizes of filters are often left out, as 3x3 is usual
        right = re.sub("[A-Z]", lambda letter: by_letter.get(letter[0].lower(), "3"), like)
    else:
        repeated_last = numbers + numbers[-1:] * _MOST_LETTERS
        meant = iter(repeated_last)
        right = re.sub("[A-Z]", lambda _: next(meant), like)
    error = options.Usage(f"{typed!r} is not a shape {like}", wrong=typed, right=right)
    error.is_example = len(numbers) < len(re.findall("[A-Z]", like))
    raise error


def thread_counts(measuring: Measuring) -> list[int]:
    """The numbers of CPU threads to measure with: those that the command names; else 1, 2, 4, ... all; in a quick look 1 and all.

    Raises: Usage for more threads than Numba has, which measures the peaks of the CPU for every command.
    """
    if not measuring.threads:
        return list(facts.threads_to_try(measuring.fast))
    largest = max(measuring.threads)
    most_threads = facts.numba_threads()
    if largest > most_threads:
        fitting = [str(count) for count in measuring.threads if count <= most_threads]
        raise options.Usage(
            f"--threads {largest}: at most {most_threads} here, as Numba, which measures the CPU's roofs, has no more",
            wrong="--threads",
            right=f"--threads {' '.join(fitting) or most_threads}",
        )
    return list(measuring.threads)


def settings(
    kernel: Kernel, on: list[str], measuring: Measuring, *, modes: Sequence[str] = ("resident",), cache: str = "warm"
) -> Iterator[Settings]:
    """Yields the settings in which a kernel is measured on these devices: every number of threads on the CPU, every copy mode
    on a GPU, with the state of caches (warm or cold) that `cache` names.

    Copy modes other than resident are left out for cold caches, which a copy would fill, and for frameworks, which copy in other
    ways.
    """
    is_framework = kernel.backend in registry.FRAMEWORKS
    has_copy_modes = cache == "warm" and not is_framework
    for device in on:
        if device.partition(":")[0] not in kernel.devices:
            continue
        if device != "cpu":
            for mode in modes:
                if mode == "resident" or has_copy_modes:
                    yield Settings(device=device, mode=mode, cache=cache)
        elif is_framework and not measuring.threads:  # a framework chooses its threads itself
            yield Settings(device="cpu", cache=cache)
        else:
            counts = thread_counts(measuring)  # it refuses too many, also for a kernel of one thread
            for threads in counts if kernel.parallel else [1]:
                yield Settings(device="cpu", threads=threads, cache=cache)


def known(what: str, typed: Sequence[str] | None, known: Sequence[str], where: str = "") -> list[str]:
    """The words of a flag, each once, after a check that all are known; [] for a flag that was not typed.

    what: a word is, such as backend, for the error. where: it is unknown, such as ` for matmul`. Raises: Usage for an unknown
    word.
    """
    words = list(dict.fromkeys(options.words(typed)))
    for word in words:
        if word not in known:
            raise options.unknown(what, word, known, where)
    return words


def counts(typed: Sequence[str] | None, *default: Any) -> list[Any]:
    """The whole numbers that the words of a flag name, ranges such as 64:1024:x2 among them; `default` where it was not typed."""
    return options.sizes(typed) if typed else list(default)


def name(row: Row) -> str:
    """A row in one line of words: kernel, problem, arithmetic, device or threads, and copy mode; of a training where its samples
    lie."""
    fields = msgspec.structs.asdict(row.problem)
    sizes = " ".join(f"{field}={value}" for field, value in fields.items() if isinstance(value, int))
    words = " ".join(filter(None, (getattr(row.problem, field, "") for field in _WORDS)))
    if row.on_gpu:
        device = row.device
    else:
        device = units.count(row.threads, "thread") if row.threads else "default threads"
    mode = row.mode
    if row.problem.op in ("training", "feeding"):
        mode = row.settings.switches.get("residence", "")
    return f"{row.kernel} {words} {sizes} {row.problem.math or row.problem.dtype} {device} {mode}".rstrip()


def seconds(row: Row, rigorous: bool = False) -> float:
    """A guess of the seconds of a row that is timed in one go, with the start of its process. Rows that are timed in several
    processes take as many times as long: with --rigorous (`rigorous`), and what happens once in a process.
    """
    problem = row.problem
    steps = 0
    if isinstance(problem, Training):
        fewest_epochs = FEWEST_LATER + 1  # a training is timed in some epochs after its first one, however few it has
        steps = problem.steps * max(problem.epochs, fewest_epochs)
    processes = RIGOROUS_PROCESSES if rigorous or row.process == "fresh" else 1
    return (_ROW_S + steps * _STEP_S) * processes


def require_plan_format(name: str) -> None:
    """Raises Usage if --dry-run is typed with an output format (--format) that only measured rows have."""
    if name in ("csv", "md"):
        raise options.Usage(f"--dry-run has nothing measured for --format {name}", wrong="--format")


def seconds_at_most(rows: Sequence[Row], limits: Limits, rigorous: bool = False) -> float:
    """Seconds that measuring these rows takes at most, worker processes included; trainings are guessed, as `seconds` does it.

    rigorous: whether each round of visits has processes of its own.
    """
    libraries = {(row.backend, row.device) for row in rows if not isinstance(row.problem, Training)}
    total_s = _FRAMEWORK_S * len(libraries)
    if rigorous:
        total_s += _FRESH_S * limits.rounds
    for row in rows:
        if isinstance(row.problem, Training):
            total_s += seconds(row, rigorous)
        elif rounds.is_whole(row):
            total_s += _whole_row_s(row, limits, rigorous)
        else:
            overhead_s = _VISIT_OVERHEAD_S * (limits.rounds if rigorous else 1)
            total_s += (1 + rounds.EXTRA) * (overhead_s + _clocks(row) * limits.visit_s * limits.rounds)
    return total_s


def _clocks(row: Row) -> int:
    """The most clocks on which a row is timed."""
    has_several = row.problem.op == "feeding" or (row.on_gpu and row.mode == "resident")
    return _GPU_CLOCKS if has_several else 1


def _whole_row_s(row: Row, limits: Limits, rigorous: bool) -> float:
    """Seconds at most of a row that is timed in one go, in one process or with --rigorous in several."""
    processes = RIGOROUS_PROCESSES if rigorous else 1
    start_s = _VISIT_OVERHEAD_S
    if row.process == "fresh":
        processes = RIGOROUS_PROCESSES
        start_s = _FRAMEWORK_S if row.backend in registry.FRAMEWORKS else _FRESH_S
    return processes * (_clocks(row) * limits.max_time + start_s + row.problem.patience_s)


def _free_memory(here: Machine) -> Callable[[str], float]:
    """A function that gives the free bytes of a device (cpu, gpu:0); of a GPU all its bytes, as only a process that starts
    CUDA can tell what is free there."""

    def free(device: str) -> float:
        if device == "cpu":
            return facts.memory_available()
        return here.gpus[0].memory_bytes if here.gpus else math.inf

    return free


def require_room_for_any(op: str, rows: Iterable[Row], here: Machine, example: str) -> None:
    """Raises Missing if none of the rows of an operation fits into this machine's memory; nothing where it has no rows.

    example: a command that works, for the error.
    """
    free_bytes = _free_memory(here)
    reason = ""  # of the first row that does not fit
    for row in rows:
        if row.problem.op != op:
            continue
        try:
            memory_needs.require_room(row, free_bytes)
        except memory_needs.DoesNotFit as error:
            reason = reason or str(error)
            continue
        return
    if reason:
        too_large = options.Missing(f"nothing can be measured: a row {reason}", example, wrong="--sizes")
        too_large.is_example = True
        raise too_large


def _refused_peaks(rows: Iterable[Row]) -> dict[str, str]:
    """Key of a row -> why it will be left out, in words, for rows of CPU peaks whose kernel cannot do the arithmetic. Other
    problems are not tried, as their inputs would have to be made."""
    refused = {}
    for row in rows:
        if not isinstance(row.problem, Peak) or row.on_gpu:
            continue
        reason = refusal(registry.find(row.kernel), row.problem)
        if reason:
            refused[row.key] = f"{name(row)}: {reason}"
    return refused


def dry_run(rows: list[Row], measuring: Measuring) -> None:
    """Prints the plan for --dry-run: a line for each row that fits into memory; the most bytes and seconds that they need; the
    rows that do not fit. With --format json it is one JSON object, of all rows.

    Raises: Usage for formats that only measured rows have.
    """
    require_plan_format(measuring.format)
    as_json = measuring.format == "json"
    left_out: dict[str, str] = {}
    if not as_json:
        free_bytes = _free_memory(facts.describe())
        left_out = memory_needs.too_large(rows, lambda row: memory_needs.require_room(row, free_bytes), name)
        left_out |= _refused_peaks(rows)
    rows = [row for row in rows if row.key not in left_out]
    most_s = seconds_at_most(rows, measuring.limits, measuring.rigorous)
    largest_bytes = max((row.problem.footprint_bytes for row in rows), default=0)
    if as_json:
        print(plan_as_json(rows, largest_bytes, most_s))
        return
    for row in rows:
        print(name(row))
    arrays = f"at most {units.size(largest_bytes)} of arrays at a time"
    print(f"{units.count(len(rows), 'row')}, {arrays}, at most about {most_s:.0f} s")
    for reason in left_out.values():
        print(f"left out: {reason}")


def plan_as_json(rows: Sequence[Row], largest_bytes: int, most_s: float) -> str:
    """The plan for --dry-run as one JSON object: its rows, the most bytes that one of them takes, the seconds of all."""
    planned = {"rows": msgspec.to_builtins(rows), "largest_bytes": largest_bytes, "seconds_at_most": most_s}
    return json.dumps(planned, indent=1)


def roof_rows(
    maths: Iterable[str], on: list[str], here: Machine, *, threads: Iterable[int], fast: bool = False
) -> list[Row]:
    """Rows that measure the limits (roofs) of products and convolutions on these devices in a short time: the peak FLOP rates in
    these arithmetics, and the bandwidth of the memory.

    threads: the numbers of CPU threads to measure peaks with, to which the number of cores is added. fast: whether a quick look
    is enough.
    """
    maths = list(maths)
    rows: list[Row] = []
    for device in on:
        if device == "cpu":
            kind = "cpu"
            backend = "numba"
            every_settings = [Settings(device, count) for count in dict.fromkeys((*threads, here.cores))]
        else:
            kind = "gpu"
            backend = "cupy"
            every_settings = [Settings(device)]
        peak_kernels = _installed("peak", backend)
        for chosen in every_settings:
            for kernel in peak_kernels:
                for arithmetic in maths:
                    if kernel.variant in _PEAKS[kind].get(arithmetic, ()):
                        rows.append(Row(kernel.name, peak_problem(arithmetic, chosen), chosen))
        triad = Stream("triad", _triad_bytes(device, here, fast=fast))
        for kernel in _installed("stream", backend):
            if kernel.variant in _TRIADS:
                rows.append(Row(kernel.name, triad, every_settings[-1]))
    return rows


def _triad_bytes(device: str, here: Machine, *, fast: bool) -> int:
    """Bytes of the arrays with which the bandwidth of a device's memory is measured: several times its last cache, so that they
    do not stay in it, but at most an eighth of the free memory.

    In a fast look they are little larger than the cache: gone through in order, they drive each other out of it all the same.
    """
    if device == "cpu":
        cache_bytes = max(here.caches_bytes.values(), default=0)
        least_bytes = _LEAST_TRIAD_BYTES["cpu"]
    else:
        gpu_number = int(device.partition(":")[2])
        cache_bytes = here.gpus[gpu_number].l2_bytes
        least_bytes = _LEAST_TRIAD_BYTES["gpu"]
    caches = _FAST_CACHES if fast else _CACHES
    wanted_bytes = max(int(caches * cache_bytes), least_bytes)
    return min(wanted_bytes, facts.memory_available(device) // 8)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CallForms:
    """In which forms a product or convolution is called."""

    #: Copy modes on a GPU; () for all, teaching rungs resident alone.
    modes: tuple[str, ...] = ()
    #: States of the caches before a call: warm, cold.
    caches: tuple[str, ...] = ("warm",)
    #: Whether the teaching rungs are called too.
    ladder: bool = False
    #: The variant of TensorFlow's that stands for the CPU's library; "" where TensorFlow has rows only when it is named.
    tensorflow: str = ""


def call_forms(
    modes: Sequence[str] | None, caches: Sequence[str], *, ladder: bool = False, tensorflow: str = ""
) -> CallForms:
    """The forms of calls that the words of --modes (copy modes) and --cache (warm, cold) name.

    modes: None where --modes was not typed. ladder, tensorflow: as CallForms has them.
    Raises: Usage for an unknown copy mode or state of the caches.
    """
    return CallForms(
        modes=tuple(known("mode", modes, options.MODES)),
        caches=tuple(known("cache", caches, CACHES)),
        ladder=ladder,
        tensorflow=tensorflow,
    )


def under_roofs(
    op: str, problems: Sequence[Problem], *, forms: CallForms, measuring: Measuring, here: Machine
) -> list[Row]:
    """The rows of an operation (matmul or conv): first those that measure its limits (roofs), then for each problem every
    kernel in every form of call.

    Raises: Usage for an unknown backend or variant, and where no kernel can do any of the problems; Missing for a device or a
    backend that is named and not here.
    """
    on = devices(measuring.devices, here, measuring.require_gpu)
    named = _kernels_in(forms, op, measuring, on)
    reasons: set[str] = set()
    for problem in problems:
        reasons.update(registry.refusal(problem, vars(kernel)) for kernel in named)
    if reasons and "" not in reasons:
        options.refuse(measuring, ("backends", "variants"), f"{min(reasons)}, nor does another that is named")
    used = []
    for device in on:
        if any(usable(kernel, [device]) for kernel in named):
            used.append(device)
    maths = dict.fromkeys(problem.math for problem in problems)
    rows = roof_rows(maths, used, here, threads=thread_counts(measuring), fast=measuring.fast)
    for problem in problems:
        for cache in forms.caches:
            for kernel in named:
                if registry.refusal(problem, vars(kernel)):
                    continue
                modes: Sequence[str] = options.MODES
                if forms.modes:
                    modes = forms.modes
                elif kernel.rung:  # a teaching step is about its loops, not about copies
                    modes = ("resident",)
                for chosen in settings(kernel, on, measuring, modes=modes, cache=cache):
                    rows.append(Row(kernel.name, problem, chosen))
    return rows


def _kernels_in(forms: CallForms, op: str, measuring: Measuring, on: list[str]) -> list[Kernel]:
    """The kernels of products or convolutions to measure on these devices.

    If the command does not name backends, there are none of `cuda`, which take a while to tune, unless the ladder or variants are
    wanted; and none of TensorFlow but the variant that stands for the CPU's library.
    """
    on_request = [] if forms.ladder or measuring.variants else ["cuda"]
    tensorflow_variant = forms.tensorflow if "cpu" in on else ""
    if not tensorflow_variant:
        on_request.append("tensorflow")
    chosen = kernels(op, measuring, on, ladder=forms.ladder, on_request=on_request)
    if not tensorflow_variant:
        return chosen
    return [kernel for kernel in chosen if kernel.backend != "tensorflow" or kernel.variant == tensorflow_variant]


def peak_problem(math: str, settings: Settings) -> Peak:
    """A problem of peak FLOP rate in an arithmetic, large enough to take some milliseconds: 2^30 FLOPs for each CPU thread,
    2^37 on a GPU, 2^40 on its tensor cores."""
    if settings.threads:
        return Peak(math, settings.threads << 30)
    return Peak(math, 1 << 37 if ARITHMETIC[math].fma else 1 << 40)


def _installed(op: str, backend: str) -> list[Kernel]:
    """The kernels of a backend for an operation, without its teaching steps; [] where the backend is not installed."""
    try:
        return [kernel for kernel in registry.load(op, backend) if not kernel.rung]
    except registry.NotInstalled:
        return []
