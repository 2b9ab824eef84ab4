"""Chooses the rows to run: devices, kernels and settings from a command line, and the plan that --dry-run prints."""

import dataclasses
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

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
_FRESH_S, _FRAMEWORK_S = 2.5, 8.0
# Guessed seconds of a whole row without its steps, and of a step. Half of 302 stored trainings took within 1.6 times of what
# these say; twelve numbers, of devices, models and data, said no better.
_ROW_S, _STEP_S = 10.0, 2e-3
# Device -> arithmetic -> the peaks that a short look takes: on the CPU what its libraries use, on a GPU its tensor cores too.
_TENSOR = dict.fromkeys(("tf32", "float16", "bfloat16", "float8_e4m3"), ("tensor", "wgmma"))
_CACHES, _FAST_CACHES = 4, 1.25  # the triad's arrays, in sizes of the last cache
_TRIADS = ("nontemporal", "elementwise", "wide")  # those that can be the fastest beyond the caches
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
    """The devices of these names, each once; without a name the CPU and the first GPU.

    Raises: Usage for an unknown name; Missing for a GPU that is named or required and is not here.
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
    """The error for a GPU that these flags ask for and that does not exist. right: what stays of the flags."""
    message = f"{fault}: {reason or facts.gpu_problem()}"
    error = options.Missing(message, "python -m workloads.doctor", wrong=flags, right=right)
    error.is_example = not right
    return error


def kernels(
    op: str, measuring: Measuring, on: list[str], *, ladder: bool = False, on_request: Iterable[str] = ()
) -> list[Kernel]:
    """The kernels of an operation for the backends and variants to measure on these devices; backends `on_request` only when
    they are named. ladder: the teaching rungs too.

    A backend that is not installed, or whose device is not here, is left out with a note, unless it is named.
    Raises: Usage for an unknown backend or variant; Missing for a named backend that cannot run.
    """
    every = registry.backends(op)
    named = known("backend", measuring.backends, every, f" for {op}")
    loaded: list[Kernel] = []
    for backend in named or [name for name in every if name not in on_request]:
        try:
            if not usable(registry.BACKENDS[backend], on):
                message, tip = no_device(backend)
                needs_cpu = "cpu" in registry.BACKENDS[backend].devices
                raise options.Missing(message, tip, wrong="--device" if needs_cpu else backend)
            loaded += [k for k in registry.load(op, backend) if usable(k, on)]
        except (registry.NotInstalled, options.Missing) as error:
            if named:
                if isinstance(error, options.Missing):
                    raise
                raise options.Missing(str(error), getattr(error, "tip", ""), wrong=backend) from error
            if measuring.verbose and not measuring.quiet:
                terminal.note(f"{backend} left out: {error}")
    variants = known("variant", measuring.variants, sorted({k.variant for k in loaded}))
    if variants:
        return [k for k in loaded if k.variant in variants]
    return [k for k in loaded if ladder or not k.rung]


def usable(what: Kernel | registry.Backend, on: list[str]) -> bool:
    """Whether a kernel or backend runs on one of these devices."""
    return any(device.partition(":")[0] in what.devices for device in on)


def refusal(kernel: Kernel, problem: Problem) -> str:
    """Why a kernel of NumPy or Numba cannot do a problem; "" if it can. Another library's refusal becomes a row with its
    reason, as only a worker may load that library."""
    if kernel.backend in ("numpy", "numba"):
        try:
            kernel.bind(problem, *problem.inputs(1))
        except ValueError as error:
            return str(error)
    return ""


def no_device(backend: str) -> tuple[str, str]:
    """(message, command that helps) for a backend none of whose devices is here or asked for."""
    wants = registry.BACKENDS[backend].devices[0]
    lacking = facts.no_gpu() if wants == "gpu" else None
    tip = options.typed("python -m analysis.report reports/nvidia-h200/suite --open")
    if lacking and lacking.kind == "not-installed":
        tip = f"{options.python()} -m pip install {registry.BACKENDS[backend].install}"
    if lacking:
        problem = lacking.words
    else:
        problem = "none was asked for" if wants == "gpu" else "the CPU was not asked for"
    return f"{backend} needs a {wants.upper()}: {problem}", tip


def directions(typed: Sequence[str] | None) -> list[str]:
    """The directions of a flag; `all` is every one, fprop the usual one.

    Raises: Usage for an unknown word.
    """
    words = known("direction", typed or ["fprop"], (*DIRECTIONS, "all"))
    return list(DIRECTIONS) if "all" in words else words


def precisions(typed: Sequence[str]) -> list[tuple[str, str]]:
    """(dtype, math) of each precision of a flag.

    Raises: Usage for an unknown one.
    """
    with options.usage_errors():
        return [precision(word) for word in options.words(typed)]


def shapes(typed: Sequence[str] | None) -> list[str]:
    """The words of a flag that takes shapes. Commas are in place of the x in a word without an x, and in one that begins with
    three numbers, `32,3,224,224:64x7x7`; else they separate shapes."""
    every = []
    for text in typed or ():
        is_one_shape = "x" not in text.lower() or re.match(r"\d+(,\d+){2}", text)
        every += [text] if is_one_shape else options.words([text])
    return every


def shape(text: str, like: str = "MxNxK") -> tuple[int, ...]:
    """The whole numbers of a shape like `4096x1024x512`, a number in each capital's place.

    Raises: Usage with the shape that the numbers may mean, the last one again where some lack.
    """
    typed = text
    text = text.lower()
    if re.sub(r"\d+[km]?", "N", text.replace(",", "x")) != re.sub("[A-Z]", "N", like):
        numbers = re.findall(r"[1-9]\d*[km]?", text) or ["64"]
        meant = iter(numbers + numbers[-1:] * 9)
        by_letter = dict(re.findall(r"([a-z]) ?[=:] ?([1-9]\d*)", text))  # N=8,H=32,W=32
        if by_letter:  # the filters of 3 x 3 are often left out
            right = re.sub("[A-Z]", lambda letter: by_letter.get(letter[0].lower(), "3"), like)
        else:
            right = re.sub("[A-Z]", lambda _: next(meant), like)
        error = options.Usage(f"{typed!r} is not a shape {like}", wrong=typed, right=right)
        error.is_example = len(numbers) < len(re.findall("[A-Z]", like))
        raise error
    return tuple(map(options.number, re.split("[x:,]", text)))


def thread_counts(measuring: Measuring) -> list[int]:
    """The CPU thread counts to run: those that are named, else 1, 2, 4, ... all; in a quick look 1 and all.

    Raises: Usage for more than Numba has, which every command of these needs for the CPU's roofs.
    """
    if not measuring.threads:
        return list(facts.threads_to_try(measuring.fast))
    largest = max(measuring.threads)
    most = facts.numba_threads()
    if largest > most:
        fitting = [str(count) for count in measuring.threads if count <= most]
        raise options.Usage(
            f"--threads {largest}: at most {most} here, as Numba, which measures the CPU's roofs, has no more",
            wrong="--threads",
            right=f"--threads {' '.join(fitting) or most}",
        )
    return list(measuring.threads)


def settings(
    kernel: Kernel, on: list[str], measuring: Measuring, *, modes: Sequence[str] = ("resident",), cache: str = "warm"
) -> Iterator[Settings]:
    """The settings to run a kernel in: every thread count on the CPU, every copy mode on a GPU (cold: resident alone, as a
    copy fills the caches anyway). A framework copies in its own ways, which are not these modes."""
    framework = kernel.backend in registry.FRAMEWORKS
    for device in on:
        if device.partition(":")[0] not in kernel.devices:
            continue
        if device != "cpu":
            for mode in modes:
                if mode == "resident" or not (framework or cache != "warm"):
                    yield Settings(device=device, mode=mode, cache=cache)
        elif framework and not measuring.threads:  # a framework chooses its threads itself
            yield Settings(device="cpu", cache=cache)
        else:
            counts = thread_counts(measuring)
            if not kernel.parallel:
                counts = [1]
            yield from (Settings(device="cpu", threads=t, cache=cache) for t in counts)


def known(what: str, typed: Sequence[str] | None, known: Sequence[str], where: str = "") -> list[str]:
    """The words of a flag, each once; none for a flag that was not typed.

    Raises: Usage for one that is not known.
    """
    words = list(dict.fromkeys(options.words(typed)))
    for word in words:
        if word not in known:
            raise options.unknown(what, word, known, where)
    return words


def counts(typed: Sequence[str] | None, *default) -> list:
    """The sizes of a flag, else these."""
    return options.sizes(typed) if typed else list(default)


def name(row: Row) -> str:
    """A row in words, as in a plan: kernel, problem, arithmetic, device or threads, and copy mode."""
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
    """Guessed seconds of a whole row with its process's start; five times for `rigorous` rows and those of fresh processes."""
    problem = row.problem
    steps = 0
    if isinstance(problem, Training):
        steps = problem.steps * max(problem.epochs, FEWEST_LATER + 1)
    processes = RIGOROUS_PROCESSES if rigorous or row.process == "fresh" else 1
    return (_ROW_S + steps * _STEP_S) * processes


def require_plan_format(name: str) -> None:
    """Raises Usage for a format of --dry-run that only measured rows have."""
    if name in ("csv", "md"):
        raise options.Usage(f"--dry-run has nothing measured for --format {name}", wrong="--format")


def seconds_at_most(rows: Sequence[Row], limits: Limits, rigorous: bool = False) -> float:
    """Seconds that rows take at most within these limits; of trainings the guess of `seconds`."""
    processes = RIGOROUS_PROCESSES if rigorous else 1
    fresh = limits.rounds if rigorous else 0
    libraries = {(row.backend, row.device) for row in rows if not isinstance(row.problem, Training)}
    total = _FRESH_S * fresh + _FRAMEWORK_S * len(libraries)
    for row in rows:
        clocks = 3 if row.problem.op == "feeding" or (row.on_gpu and row.mode == "resident") else 1
        if isinstance(row.problem, Training):
            total += seconds(row, rigorous)
        elif rounds.is_whole(row):
            row_processes = processes
            start_s = 0.2
            if row.process == "fresh":
                row_processes = RIGOROUS_PROCESSES
                start_s = _FRAMEWORK_S if row.backend in registry.FRAMEWORKS else _FRESH_S
            total += row_processes * (clocks * limits.max_time + start_s + row.problem.patience_s)
        else:
            total += (1 + rounds.EXTRA) * (0.2 * (fresh or 1) + clocks * limits.visit_s * limits.rounds)
    return total


def _free_memory(here: Machine) -> Callable[[str], float]:
    """Bytes free on a device; all of a GPU's, as what is free only a process that starts CUDA can tell."""

    def free(device: str) -> float:
        if device == "cpu":
            return facts.memory_available()
        return here.gpus[0].memory_bytes if here.gpus else math.inf

    return free


def require_room_for_any(op: str, rows: Iterable[Row], here: Machine, example: str) -> None:
    """Raises Missing, with an example that works, where there are rows of an operation and memory is too small for each."""
    free = _free_memory(here)
    reason = ""
    for row in rows:
        if row.problem.op != op:
            continue
        try:
            memory_needs.require_room(row, free)
        except memory_needs.DoesNotFit as error:
            reason = reason or str(error)
            continue
        return
    if reason:
        too_large = options.Missing(f"nothing can be measured: a row {reason}", example, wrong="--sizes")
        too_large.is_example = True
        raise too_large


def _refused_peaks(rows: Iterable[Row]) -> dict[str, str]:
    """Key -> why a row of a peak will be left out, of those whose kernel cannot do it; other problems have inputs to make."""
    refused = {}
    for row in rows:
        if not isinstance(row.problem, Peak) or row.on_gpu:
            continue
        reason = refusal(registry.find(row.kernel), row.problem)
        if reason:
            refused[row.key] = f"{name(row)}: {reason}"
    return refused


def dry_run(rows: list[Row], measuring: Measuring) -> None:
    """Prints the plan: rows that fit into memory, the largest footprint, the seconds at most, the rows that do not fit; as one
    JSON object of all rows with --format json.

    Raises: Usage for the other formats, which are of rows that were measured.
    """
    require_plan_format(measuring.format)
    as_json = measuring.format == "json"
    left_out: dict[str, str] = {}
    if not as_json:
        free = _free_memory(facts.describe())
        left_out = memory_needs.too_large(rows, lambda row: memory_needs.require_room(row, free), name)
        left_out |= _refused_peaks(rows)
    rows = [row for row in rows if row.key not in left_out]
    seconds = seconds_at_most(rows, measuring.limits, measuring.rigorous)
    largest = max((r.problem.footprint_bytes for r in rows), default=0)
    if as_json:
        planned = {"rows": msgspec.to_builtins(rows), "largest_bytes": largest, "seconds_at_most": seconds}
        print(json.dumps(planned, indent=1))
        return
    for row in rows:
        print(name(row))
    print(
        f"{units.count(len(rows), 'row')}, at most {units.size(largest)} of arrays at a time, at most about {seconds:.0f} s"
    )
    for why in left_out.values():
        print(f"left out: {why}")


def roof_rows(
    maths: Iterable[str], on: list[str], here: Machine, *, threads: Iterable[int], fast: bool = False
) -> list[Row]:
    """A short look at the roofs that rows in this arithmetic stand under: peaks and the memory's bandwidth.

    The triad's arrays are four times the last cache (1.25 times in a `fast` look: gone through in order, they drive each other
    out of it all the same), at least 256 MiB, and at most an eighth of the free memory.
    """
    maths = list(maths)
    rows: list[Row] = []
    for device in on:
        if device == "cpu":
            backend = "numba"
            peaks = _PEAKS["cpu"]
            cache = max(here.caches_bytes.values(), default=0)
            least_bytes = 1 << 28
            every_settings = [Settings(device, count) for count in dict.fromkeys((*threads, here.cores))]
        else:
            backend = "cupy"
            peaks = _PEAKS["gpu"]
            cache = here.gpus[int(device[4:])].l2_bytes
            least_bytes = 1 << 30
            every_settings = [Settings(device)]
        peak_kernels = _installed("peak", backend)
        for chosen in every_settings:
            for kernel in peak_kernels:
                for arithmetic in maths:
                    if kernel.variant in peaks.get(arithmetic, ()):
                        rows.append(Row(kernel.name, peak_problem(arithmetic, chosen), chosen))
        times = _FAST_CACHES if fast else _CACHES
        nbytes = min(max(int(times * cache), least_bytes), facts.memory_available(device) // 8)
        for kernel in _installed("stream", backend):
            if kernel.variant in _TRIADS:
                rows.append(Row(kernel.name, Stream("triad", nbytes), every_settings[-1]))
    return rows


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
    """The forms that the words of --modes and --cache name.

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
    """The roofs of products or convolutions first, then problem by problem every kernel in every form.

    Raises: Usage for an unknown backend or variant, and where no kernel does any of the problems; Missing.
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
                modes = forms.modes or (("resident",) if kernel.rung else options.MODES)  # a rung is about its loops
                for how in settings(kernel, on, measuring, modes=modes, cache=cache):
                    rows.append(Row(kernel.name, problem, how))
    return rows


def _kernels_in(forms: CallForms, op: str, measuring: Measuring, on: list[str]) -> list[Kernel]:
    """The kernels of products or convolutions on these devices."""
    # tuning our own takes a while, and a library is there
    on_request = [] if forms.ladder or measuring.variants else ["cuda"]
    variant = forms.tensorflow if "cpu" in on else ""
    if not variant:
        on_request.append("tensorflow")
    named = kernels(op, measuring, on, ladder=forms.ladder, on_request=on_request)
    return [k for k in named if not variant or k.backend != "tensorflow" or k.variant == variant]


def peak_problem(math: str, settings: Settings) -> Peak:
    """A peak that takes some milliseconds there: 2^30 FLOPs a CPU thread, 2^37 on a GPU, 2^40 on its tensor cores."""
    if settings.threads:
        return Peak(math, settings.threads << 30)
    return Peak(math, 1 << 37 if ARITHMETIC[math].fma else 1 << 40)


def _installed(op: str, backend: str) -> list[Kernel]:
    """The kernels of a backend, teaching rungs left out; none where it is not installed."""
    try:
        return [k for k in registry.load(op, backend) if not k.rung]
    except registry.NotInstalled:
        return []
