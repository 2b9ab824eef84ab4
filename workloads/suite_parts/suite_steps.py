"""The steps of the suite: which workloads measure what, on which devices, in which order."""

import contextlib
import dataclasses
import importlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads import keywords, options, terminal
from workloads.shared_flags import Measuring

if TYPE_CHECKING:
    from workloads.harness.sweep import Workers
    from workloads.records import Machine, Row, Run
    from workloads.session import MeasuringPlan

# Parts of a step of the CIFAR-10 CNN. On the CPU they are TensorFlow's rows; on a GPU rows of libraries, as its clock times
# kernels without their calls.
_CNN = {"model": "cifar10-cnn", "direction": ["all"]}
_CPU_LAYERS = {**_CNN, "batch": ["32"], "backends": ["tensorflow"], "device": ["cpu"]}
_GPU_LAYERS = {**_CNN, "batch": ["32", "1024"], "dtypes": ["tf32"], "modes": ["resident"]}
_PASSES = "read add relu relu_grad dropout maxpool maxpool_grad sgd adam"
_SMALL_ARRAYS = {"sizes": ["64KiB:16MiB:x16"], "dtypes": ["float32"], "variants": ["function"]}
_INPUT_PIPELINE = {
    "study": "feeding",
    "variants": ["numpy"],
    "dtypes": ["float32"],
    "threads": None,
}  # a batch's way into a step
CPU_PARTS: list[tuple[str, dict]] = [
    ("conv", {**_CPU_LAYERS, "variants": ["function", "held"]}),
    ("matmul", {**_CPU_LAYERS, "variants": ["function"]}),
    ("stream", {**_SMALL_ARRAYS, "operations": _PASSES.split(), "backends": ["tensorflow"], "device": ["cpu"]}),
]
GPU_PARTS: list[tuple[str, dict]] = [
    ("conv", {**_GPU_LAYERS, "backends": ["cudnn"]}),
    ("matmul", {**_GPU_LAYERS, "backends": ["cupy"], "variants": ["cublas"]}),
    ("stream", {"sizes": ["64KiB:256MiB:x16"], "backends": ["cupy"], "variants": ["wide"]}),
    (
        "transfer",
        {"sizes": ["4B:64MiB:x16"], "directions": ["h2d"], "host_memory": ["pageable"], "variants": ["array"]},
    ),
    ("transfer", _INPUT_PIPELINE),
]
_QUICK_LAUNCHES = (
    "launch",
    {"backends": ["tensorflow"], "calls": ["elementwise", "step", "epoch"], "fast": True},
)
# What each workload measures, as its step is announced.
WORDS = {
    "peak": "peak arithmetic",
    "stream": "operations in memory",
    "launch": "kernel launches",
    "transfer": "copies between host and GPU",
    "matmul": "matrix products",
    "conv": "convolutions",
    "training": "a training of the CIFAR-10 CNN",
    "peers": "copies between GPUs",
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuitePlan:
    """Which parts of the suite to measure, and how."""

    #: What every measuring command is told.
    measuring: Measuring
    #: Whether only products, a training and what its step is made of are measured.
    quick: bool
    #: Workloads by name; () for all.
    only: tuple[str, ...]
    #: Where the Ray cluster is whose nodes measure; "" for this machine alone.
    ray: str
    #: Seconds after which a node that says nothing is given up.
    ray_timeout_s: float
    #: The flags that every part takes from the suite: name -> what was typed.
    shared: dict[str, Any]

    @property
    def every_gpu(self) -> bool:
        """Whether each GPU is measured, and several also together."""
        return "all" in self.measuring.devices

    @property
    def selection(self) -> tuple:
        """The flags that decide which rows a node measures."""
        measuring = self.measuring
        return self.quick, self.only, measuring.devices, measuring.threads, measuring.fast

    @property
    def brief(self) -> bool:
        """Whether the rows are for the page alone: a terminal gets their tables with --verbose."""
        return self.measuring.format == "table" and not self.measuring.verbose


@dataclasses.dataclass(frozen=True, kw_only=True)
class SuiteStep:
    """One step of the suite."""

    #: The workload.
    name: str
    #: What it measures, as its step is announced.
    words: str
    #: What it is to do.
    plan: "MeasuringPlan"

    def into(self, folder: Path, left_s: float | None, resume: bool) -> "MeasuringPlan":
        """The plan that writes into the suite's folder and ends when the suite's time is over."""
        return self.plan.with_measuring(output=str(folder), stop_after_s=left_s, resume=resume)


def parts(
    quick: bool, gpus: list[str], several: bool = False, lacks: Callable[[str], str] = lambda math: ""
) -> list[tuple[str, dict]]:
    """(workload, its flags) in order.

    quick: only products, a training and what its step is made of. gpus: the GPUs that are measured, [] for the CPU alone.
    several: whether GPUs are also measured together. lacks: why a GPU has no such arithmetic, "" where it has.
    """
    together = [("peers", {"fast": True})] if several else []
    step_parts = _step_parts(gpus, lacks)
    if quick:
        return [
            *_quick_products(gpus),
            ("training", {"steps": 24, "fast": True}),
            *together,
            _QUICK_LAUNCHES,
            *step_parts,
        ]
    selected: list[tuple[str, dict]] = [
        ("peak", {}),
        ("stream", {"sizes": ["8KiB:2GiB:x2"], "fast": True}),
        ("launch", {"fast": True}),
    ]
    if gpus:
        selected.append(("transfer", {"sizes": ["4B:1GiB:x4"], "fast": True}))
    return [*selected, *_products(gpus, lacks), *together, ("training", {"steps": 300}), *step_parts]


def _step_parts(gpus: list[str], lacks: Callable[[str], str]) -> list[tuple[str, dict]]:
    """What a step of the CIFAR-10 CNN is made of, on the CPU and on the GPUs."""
    selected = [(name, {**flags, "fast": True}) for name, flags in CPU_PARTS]
    if not gpus:
        return selected
    for name, flags in GPU_PARTS:
        on_gpus = {**flags, "device": gpus, "fast": True}
        if flags.get("dtypes") == ["tf32"] and lacks("tf32"):  # TensorFlow then multiplies in float32 too
            on_gpus["dtypes"] = ["float32"]
        selected.append((name, on_gpus))
    return selected


def _quick_products(gpus: list[str]) -> list[tuple[str, dict]]:
    """Products up to 1,024. Noise hides what more sizes tell."""
    flags: dict[str, Any] = {"sizes": ["64:1024:x2"], "no_refine": True, "fast": True}
    if gpus:
        flags["backends"] = ["numpy", "cupy"]  # compiling Numba's kernels would take half a minute
    return [("matmul", flags)]


def _products(gpus: list[str], lacks: Callable[[str], str]) -> list[tuple[str, dict]]:
    """Products in every precision that a GPU has; CPU libraries have no fast form of the low ones. The largest run on GPUs alone,
    as a CPU takes minutes for each."""
    dtypes = ["float32", "float64"]
    if not gpus:
        return [("matmul", {"sizes": ["64:2048:x2"], "dtypes": dtypes})]
    dtypes += [math for math in ("tf32", "float16", "bfloat16") if not lacks(math)]
    return [
        ("matmul", {"sizes": ["64:4096:x2"], "dtypes": dtypes}),
        ("matmul", {"sizes": ["8192", "16384"], "dtypes": dtypes, "device": gpus}),
    ]


def chosen_parts(suite: SuitePlan, gpu: list[str], several: bool = False, *lacks) -> list[tuple[str, dict]]:
    """(workload, its flags) of the parts to measure.

    Raises: Usage for an unknown workload; Missing for one that needs a GPU.
    """
    whole = parts(suite.quick, gpu, several, *lacks)
    names = {name for name, _ in whole}
    for name in suite.only:
        if name == "peers" and not several:
            raise options.Usage("peers takes several GPUs, and --device all", "python -m workloads.suite --quick")
        if name == "transfer" and not gpu:
            raise options.Missing("transfer needs a GPU, and none is here or asked for", wrong="transfer")
        if name not in names:
            raise options.unknown("workload", name, sorted(names), where=" in this suite")
    return [(name, flags) for name, flags in whole if not suite.only or name in suite.only]


def planned_steps(suite: SuitePlan, here: "Machine", every_gpu: bool) -> list[SuiteStep]:
    """The steps of the suite on a machine; with `every_gpu` its GPU rows for every GPU, else for the first.

    Raises: Usage for an unknown workload or device; Missing for a GPU that is named or required and is not here.
    """
    from workloads.harness.plan import devices

    devices(suite.measuring.devices, here, suite.measuring.require_gpu)
    gpus = [] if suite.measuring.devices == ("cpu",) else [f"gpu:{i}" for i in range(len(here.gpus))]
    several = len(gpus) > 1 and suite.every_gpu
    every = chosen_parts(suite, gpus if every_gpu else gpus[:1], several, here.lacks)
    steps = []
    for name, flags in every:
        words = WORDS[name] + (" of the CIFAR-10 CNN" if "model" in flags else "")
        steps.append(SuiteStep(name=name, words=words, plan=step_plan(suite, name, flags)))
    return steps


def step_plan(suite: SuitePlan, name: str, flags: dict[str, Any]) -> "MeasuringPlan":
    """The plan of a workload with these flags within a suite."""
    command = importlib.import_module(f"workloads.{name}")
    return command.parse(keywords.words_of(command.parser(), **{**suite.shared, **flags}))


def planned_rows(steps: list[SuiteStep], here: "Machine") -> "list[Row]":
    """The rows of some steps; a step that cannot run here has none."""
    rows = []
    for step in steps:
        with contextlib.suppress(options.Missing):  # it is left out, here as when it is measured
            for planned in quietly(step.plan).rows_by_file(here).values():
                rows += planned
    return rows


def quietly(plan: "MeasuringPlan") -> "MeasuringPlan":
    """The plan that prints no note: what is left out is said when it is measured."""
    return plan.with_measuring(quiet=True)


def longest_seconds(plan: "MeasuringPlan", here: "Machine") -> float:
    """Seconds that a workload takes at most, as planned; 0 for one that cannot run here."""
    from workloads.harness.plan import seconds_at_most

    try:
        by_file = quietly(plan).rows_by_file(here)
    except options.Stop:
        return 0.0
    rows = list(itertools.chain.from_iterable(by_file.values()))
    return seconds_at_most(rows, plan.measuring.limits, plan.measuring.rigorous)


def measure_steps(
    steps: list[SuiteStep],
    measuring: Measuring,
    run: "Run",
    *,
    folder: Path,
    measured_by: "Callable[[str, MeasuringPlan, Run, Workers | None], int]",
) -> list[int]:
    """Measures the steps in order, until --stop-after or a signal; returns their exit codes."""
    from workloads.harness import sweep
    from workloads.machine import load

    if measuring.wait_quiet and steps:
        load.wait_until_quiet()
    begin = time.monotonic()
    begun: set[str] = set()
    codes: list[int] = []
    with sweep.workers() as processes:
        for step in steps:
            left_s = None
            if measuring.stop_after_s is not None:
                # the first step is always begun: it writes its file and prints how to resume
                elapsed_s = time.monotonic() - begin if codes else 0.0
                left_s = measuring.stop_after_s - elapsed_s
                if left_s <= 0:
                    break
            # a workload's second part goes on in its file
            plan = step.into(folder, left_s, resume=measuring.resume or step.name in begun)
            begun.add(step.name)
            try:
                # a training's start-up is of a process of its own
                codes.append(measured_by(step.name, plan, run, None if step.name == "training" else processes))
            except options.Missing as missing:  # TensorFlow, say: the rest of the suite still has its answer
                tip = f"\n  to have it: {missing.tip}" if missing.tip else ""
                terminal.note(f"{step.name} left out: {missing}{tip}")
                codes.append(options.MISSING)
            if codes[-1] in options.SIGNALED.values():
                break
    return codes
