"""The steps of the suite: which workloads measure what, on which devices, in which order."""

import contextlib
import dataclasses
import importlib
import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

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
# How a batch gets into a step.
_INPUT_PIPELINE = {"study": "feeding", "variants": ["numpy"], "dtypes": ["float32"], "threads": None}
_COPIES = {"sizes": ["4B:64MiB:x16"], "directions": ["h2d"], "host_memory": ["pageable"], "variants": ["array"]}


class SuitePart(NamedTuple):
    """A workload that the suite measures, with flags."""

    #: The workload's name, such as matmul.
    workload: str
    #: Its flags as keywords: name -> what would be typed after it, such as {"sizes": ["64:1024:x2"], "fast": True}.
    flags: dict[str, Any]


CPU_PARTS = [
    SuitePart("conv", {**_CPU_LAYERS, "variants": ["function", "held"]}),
    SuitePart("matmul", {**_CPU_LAYERS, "variants": ["function"]}),
    SuitePart(
        "stream", {**_SMALL_ARRAYS, "operations": _PASSES.split(), "backends": ["tensorflow"], "device": ["cpu"]}
    ),
]
GPU_PARTS = [
    SuitePart("conv", {**_GPU_LAYERS, "backends": ["cudnn"]}),
    SuitePart("matmul", {**_GPU_LAYERS, "backends": ["cupy"], "variants": ["cublas"]}),
    SuitePart("stream", {"sizes": ["64KiB:256MiB:x16"], "backends": ["cupy"], "variants": ["wide"]}),
    SuitePart("transfer", _COPIES),
    SuitePart("transfer", _INPUT_PIPELINE),
]
_QUICK_LAUNCHES = SuitePart(
    "launch", {"backends": ["tensorflow"], "calls": ["elementwise", "step", "epoch"], "fast": True}
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

    #: The flags that every measuring command takes.
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
        """The flags that decide which rows are measured; runs with the same can be resumed by each other."""
        measuring = self.measuring
        return self.quick, self.only, measuring.devices, measuring.threads, measuring.fast

    @property
    def brief(self) -> bool:
        """Whether no table of rows is printed, as they are on the page; --verbose prints them."""
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

    def plan_in(self, folder: Path, *, left_s: float | None, resume: bool) -> "MeasuringPlan":
        """The plan that writes into the suite's folder, and ends with the suite.

        left_s: seconds that the suite has left; None for no limit. resume: whether the folder has a file that it continues.
        """
        return self.plan.with_measuring(output=str(folder), stop_after_s=left_s, resume=resume)


def lacks_nothing(math: str) -> str:
    """In place of Machine.lacks, for a machine whose GPU has every arithmetic."""
    return ""


def parts(
    quick: bool, gpus: list[str], several: bool = False, lacks: Callable[[str], str] = lacks_nothing
) -> list[SuitePart]:
    """All parts of the suite in order.

    quick: only products, a training and what its step is made of. gpus: the GPUs that are measured, such as gpu:0; [] for the
    CPU alone. several: whether GPUs are also measured together. lacks: why a GPU cannot compute in an arithmetic such as tf32;
    "" where it can.
    """
    together = [SuitePart("peers", {"fast": True})] if several else []
    step_parts = _step_parts(gpus, lacks)
    if quick:
        training = SuitePart("training", {"steps": 24, "fast": True})
        return [_quick_products(gpus), training, *together, _QUICK_LAUNCHES, *step_parts]
    roofs = [
        SuitePart("peak", {}),
        SuitePart("stream", {"sizes": ["8KiB:2GiB:x2"], "fast": True}),
        SuitePart("launch", {"fast": True}),
    ]
    if gpus:
        roofs.append(SuitePart("transfer", {"sizes": ["4B:1GiB:x4"], "fast": True}))
    training = SuitePart("training", {"steps": 300})
    return [*roofs, *_products(gpus, lacks), *together, training, *step_parts]


def _step_parts(gpus: list[str], lacks: Callable[[str], str]) -> list[SuitePart]:
    """What a training step of the CIFAR-10 CNN is made of, on the CPU and on the GPUs. Parameters as `parts`."""
    selected = [SuitePart(workload, {**flags, "fast": True}) for workload, flags in CPU_PARTS]
    if not gpus:
        return selected
    for workload, flags in GPU_PARTS:
        gpu_flags = {**flags, "device": gpus, "fast": True}
        if flags.get("dtypes") == ["tf32"] and lacks("tf32"):  # TensorFlow then multiplies in float32 too
            gpu_flags["dtypes"] = ["float32"]
        selected.append(SuitePart(workload, gpu_flags))
    return selected


def _quick_products(gpus: list[str]) -> SuitePart:
    """Products up to 1,024, at no more sizes than a noisy quick run can tell apart."""
    flags: dict[str, Any] = {"sizes": ["64:1024:x2"], "no_refine": True, "fast": True}
    if gpus:
        flags["backends"] = ["numpy", "cupy"]  # compiling Numba's kernels would take half a minute
    return SuitePart("matmul", flags)


def _products(gpus: list[str], lacks: Callable[[str], str]) -> list[SuitePart]:
    """Products in every precision that a GPU has; CPU libraries have no fast form of the low ones. The largest run on GPUs alone,
    as a CPU takes minutes for each. Parameters as `parts`."""
    dtypes = ["float32", "float64"]
    if not gpus:
        return [SuitePart("matmul", {"sizes": ["64:2048:x2"], "dtypes": dtypes})]
    dtypes += [math for math in ("tf32", "float16", "bfloat16") if not lacks(math)]
    return [
        SuitePart("matmul", {"sizes": ["64:4096:x2"], "dtypes": dtypes}),
        SuitePart("matmul", {"sizes": ["8192", "16384"], "dtypes": dtypes, "device": gpus}),
    ]


def chosen_parts(
    suite: SuitePlan, gpus: list[str], several: bool = False, lacks: Callable[[str], str] = lacks_nothing
) -> list[SuitePart]:
    """The parts of the suite that --only names, all without it. Parameters as `parts`.

    Raises: Usage for an unknown workload; Missing for one that needs a GPU.
    """
    all_parts = parts(suite.quick, gpus, several, lacks)
    workloads = {part.workload for part in all_parts}
    for name in suite.only:
        if name == "peers" and not several:
            raise options.Usage("peers takes several GPUs, and --device all", tip="python -m workloads.suite --quick")
        if name == "transfer" and not gpus:
            raise options.Missing("transfer needs a GPU, and none is here or asked for", wrong="transfer")
        if name not in workloads:
            raise options.unknown("workload", name, sorted(workloads), where=" in this suite")
    if not suite.only:
        return all_parts
    return [part for part in all_parts if part.workload in suite.only]


def planned_steps(suite: SuitePlan, here: "Machine", every_gpu: bool) -> list[SuiteStep]:
    """The steps of the suite on a machine.

    every_gpu: whether its GPU rows are measured on each GPU; else on the first.

    Raises: Usage for an unknown workload or device; Missing for a GPU that is named or required and is not here.
    """
    from workloads.harness.plan import devices

    devices(suite.measuring.devices, here, suite.measuring.require_gpu)  # raises for a device that is not here
    gpus = [] if suite.measuring.devices == ("cpu",) else [f"gpu:{i}" for i in range(len(here.gpus))]
    several = len(gpus) > 1 and suite.every_gpu
    measured_gpus = gpus if every_gpu else gpus[:1]
    steps = []
    for part in chosen_parts(suite, measured_gpus, several, here.lacks):
        words = WORDS[part.workload]
        if "model" in part.flags:
            words += " of the CIFAR-10 CNN"
        steps.append(SuiteStep(name=part.workload, words=words, plan=step_plan(suite, part)))
    return steps


def step_plan(suite: SuitePlan, part: SuitePart) -> "MeasuringPlan":
    """The plan of a part's workload, with the flags of the part and those that were typed for the whole suite."""
    command = importlib.import_module(f"workloads.{part.workload}")
    flags = {**suite.shared, **part.flags}
    return command.parse(keywords.words_of(command.parser(), **flags))


def planned_rows(steps: list[SuiteStep], here: "Machine") -> "list[Row]":
    """The rows of all steps; a step that cannot run on this machine has none."""
    rows = []
    for step in steps:
        with contextlib.suppress(options.Missing):  # it is left out, here as when it is measured
            for planned in quietly(step.plan).rows_by_file(here).values():
                rows += planned
    return rows


def quietly(plan: "MeasuringPlan") -> "MeasuringPlan":
    """The plan without its notes on stderr, for when it is only looked at: they are printed when it is measured."""
    return plan.with_measuring(quiet=True)


def longest_seconds(plan: "MeasuringPlan", here: "Machine") -> float:
    """Seconds that a workload is planned to take at most; 0 for one that cannot run on this machine."""
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
    """Measures the steps in order, until --stop-after or a signal. Returns the exit codes of those that began.

    run: the first line of each result file. folder: where these are. measured_by: measures one step and returns its exit code; it
    is called with the workload's name, the step's plan, the run, and worker processes to measure in (None for new ones).
    """
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
                # The first step is always begun: it writes its file and prints how to resume.
                elapsed_s = time.monotonic() - begin if codes else 0.0
                left_s = measuring.stop_after_s - elapsed_s
                if left_s <= 0:
                    break
            # The second part of a workload adds to the file of the first.
            plan = step.plan_in(folder, left_s=left_s, resume=measuring.resume or step.name in begun)
            begun.add(step.name)
            # A training gets a new process, as its start-up is timed too.
            step_processes = None if step.name == "training" else processes
            try:
                codes.append(measured_by(step.name, plan, run, step_processes))
            except options.Missing as missing:  # TensorFlow, say: the rest of the suite still has its answer
                tip = f"\n  to have it: {missing.tip}" if missing.tip else ""
                terminal.note(f"{step.name} left out: {missing}{tip}")
                codes.append(options.MISSING)
            if codes[-1] in options.SIGNALED.values():
                break
    return codes
