"""Runs every workload on this machine into one folder, writes the report, and ends with the answer in words."""

import contextlib
import dataclasses
import importlib
import itertools
import json
import os
import sys
import threading
import time
import traceback
from argparse import Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workloads import keywords, options, shared_flags, terminal
from workloads.shared_flags import CommandLine, Measuring

if TYPE_CHECKING:
    from workloads.harness.sweep import Workers
    from workloads.records import Machine, Row, Run
    from workloads.session import MeasuringPlan

QUESTION = "Where does a GPU begin to win on this machine?"
EXAMPLES = "python -m workloads.suite --quick", "python -m workloads.suite"
NEXT = "python -m analysis.explain --model file.py:function --measure"
LONG = """Roofs, memory levels, launches, copies, matrix products, their crossover and one Keras row in one folder, with a report.
--quick leaves all out but products, one Keras row and what its step is made of, and takes a few minutes. --device all
measures every GPU alone, then what several do with each other and what they take from each other at once."""
# Parts of a step of the CIFAR-10 CNN. On the CPU they are TensorFlow's rows; on a GPU rows of libraries, as its clock times
# kernels without their calls.
_CNN = {"model": "cifar10-cnn", "direction": ["all"]}
_ON_CPU = {**_CNN, "batch": ["32"], "backends": ["tensorflow"], "device": ["cpu"]}
_ON_GPU = {**_CNN, "batch": ["32", "1024"], "dtypes": ["tf32"], "modes": ["resident"]}
_PASSES = "read add relu relu_grad dropout maxpool maxpool_grad sgd adam"
_IN_CALLS = {"sizes": ["64KiB:16MiB:x16"], "dtypes": ["float32"], "variants": ["function"]}
_FED = {"study": "feeding", "variants": ["numpy"], "dtypes": ["float32"], "threads": None}  # a batch's way into a step
OF_THE_CPU: list[tuple[str, dict]] = [
    ("conv", {**_ON_CPU, "variants": ["function", "held"]}),
    ("matmul", {**_ON_CPU, "variants": ["function"]}),
    ("stream", {**_IN_CALLS, "operations": _PASSES.split(), "backends": ["tensorflow"], "device": ["cpu"]}),
]
OF_A_GPU: list[tuple[str, dict]] = [
    ("conv", {**_ON_GPU, "backends": ["cudnn"]}),
    ("matmul", {**_ON_GPU, "backends": ["cupy"], "variants": ["cublas"]}),
    ("stream", {"sizes": ["64KiB:256MiB:x16"], "backends": ["cupy"], "variants": ["wide"]}),
    (
        "transfer",
        {"sizes": ["4B:64MiB:x16"], "directions": ["h2d"], "host_memory": ["pageable"], "variants": ["array"]},
    ),
    ("transfer", _FED),
]
FLAGS = """
--quick              a few minutes: products up to 1,024, one training and what its step is made of
--only WORKLOAD ...  only these: peak stream launch transfer matmul conv training; peers (several GPUs, --device all)
# a fleet
--ray WHERE        every node and GPU of a Ray cluster, into one folder: auto (the one that runs, else a local one) or
                   HOST:PORT
--ray-timeout S =900  give a node up that says nothing for so long (900)"""
CROSSINGS = 2  # sentences on products that stand before a training's answer
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
# The flags that every part takes from the suite, unless it has its own of them.
SHARED = (
    *("device", "threads", "require_gpu", "min_time", "max_noise", "max_time"),
    *("fast", "rigorous", "seed", "quiet", "verbose", "format"),
)
ANSWERED = ("stream", "launch")  # workloads whose answer is printed under their table, as the page has it nowhere

COMMAND = CommandLine(
    name="suite",
    question=QUESTION,
    about=LONG,
    examples=EXAMPLES,
    needs="quick only",
    flags=FLAGS,
)


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

    @classmethod
    def parse(cls, argv: Sequence[str] | None = None) -> "SuitePlan":
        return cls.from_flags(COMMAND.parser().parse_args(argv))

    @classmethod
    def from_flags(cls, flags: Namespace) -> "SuitePlan":
        """Raises: Usage for flags that its parts have their own of, and for a format that one table alone has."""
        options.refuse(flags, ("backends", "variants"), "every part of the suite has its own kernels")
        only = options.words(flags.only)
        if flags.format in ("csv", "json") and len(only) != 1 and not flags.ray:
            raise options.Usage(
                f"--format {flags.format} takes one table; name one workload with --only, or read the run's files",
                f"python -m workloads.suite --quick --only matmul --format {flags.format}",
            )
        return cls(
            measuring=shared_flags.measuring(flags),
            quick=flags.quick,
            only=tuple(only),
            ray=flags.ray or "",
            ray_timeout_s=flags.ray_timeout,
            shared={name: getattr(flags, name) for name in SHARED},
        )

    @property
    def every_gpu(self) -> bool:
        """Whether each GPU is measured, and several also together."""
        return "all" in self.measuring.devices

    @property
    def brief(self) -> bool:
        """Whether the rows are for the page alone: a terminal gets their tables with --verbose."""
        return self.measuring.format == "table" and not self.measuring.verbose


@dataclasses.dataclass(frozen=True, kw_only=True)
class Step:
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


def plan(
    quick: bool, gpu: list[str], several: bool = False, lacks: Callable[[str], str] = lambda math: ""
) -> list[tuple[str, dict]]:
    """(workload, its flags) in order. Low precisions only on a `gpu` that has them, as CPU libraries have no fast form of them.
    The largest products run on GPUs alone, as a CPU takes minutes for each. several: --device all on a host with two GPUs or
    more. lacks: why a GPU has no such arithmetic, "" where it has."""
    together = [("peers", {"fast": True})] if several else []
    of_gpus = [(name, {**flags, "device": gpu}) for name, flags in OF_A_GPU] if gpu else []
    for _, flags in of_gpus:
        if flags.get("dtypes") == ["tf32"] and lacks("tf32"):  # TensorFlow then multiplies in float32 too
            flags["dtypes"] = ["float32"]
    of_a_step = [(name, {**flags, "fast": True}) for name, flags in [*OF_THE_CPU, *of_gpus]]
    if quick:
        libraries = {"backends": ["numpy", "cupy"]} if gpu else {}  # compiling Numba's would take half a minute
        products = {"sizes": ["64:1024:x2"], "no_refine": True, "fast": True}  # noise hides what more sizes tell
        launches = {"backends": ["tensorflow"], "calls": ["elementwise", "step", "epoch"], "fast": True}
        return [
            ("matmul", products | libraries),
            ("training", {"steps": 24, "fast": True}),
            *together,
            ("launch", launches),
            *of_a_step,
        ]
    lower = [math for math in ("tf32", "float16", "bfloat16") if gpu and not lacks(math)]
    dtypes = ["float32", "float64", *lower]
    return [
        ("peak", {}),
        ("stream", {"sizes": ["8KiB:2GiB:x2"], "fast": True}),
        ("launch", {"fast": True}),
        *([("transfer", {"sizes": ["4B:1GiB:x4"], "fast": True})] if gpu else []),
        ("matmul", {"sizes": ["64:4096:x2" if gpu else "64:2048:x2"], "dtypes": dtypes}),
        *([("matmul", {"sizes": ["8192", "16384"], "dtypes": dtypes, "device": gpu})] if gpu else []),
        *together,
        ("training", {"steps": 300}),
        *of_a_step,
    ]


def chosen(suite: SuitePlan, gpu: list[str], several: bool = False, *lacks) -> list[tuple[str, dict]]:
    """(workload, its flags) of the parts to measure.

    Raises: Usage for an unknown workload.
    """
    whole = plan(suite.quick, gpu, several, *lacks)
    names = {name for name, _ in whole}
    for name in suite.only:
        if name == "peers" and not several:
            raise options.Usage("peers takes several GPUs, and --device all", EXAMPLES[0])
        if name not in names:
            raise options.unknown("workload", name, sorted(names), where=" in this suite")
    return [(name, flags) for name, flags in whole if not suite.only or name in suite.only]


def planned_steps(suite: SuitePlan, here: "Machine", every_gpu: bool) -> list[Step]:
    """The steps of the suite on a machine; with `every_gpu` its GPU rows for every GPU, else for the first.

    Raises: Usage for an unknown workload or device; Missing for a GPU that is named or required and is not here.
    """
    from workloads.harness.plan import devices

    devices(suite.measuring.devices, here, suite.measuring.require_gpu)
    gpus = [] if suite.measuring.devices == ("cpu",) else [f"gpu:{i}" for i in range(len(here.gpus))]
    several = len(gpus) > 1 and suite.every_gpu
    every = chosen(suite, gpus if every_gpu else gpus[:1], several, here.lacks)
    steps = []
    for name, flags in every:
        words = WORDS[name] + (" of the CIFAR-10 CNN" if "model" in flags else "")
        steps.append(Step(name=name, words=words, plan=plan_of(suite, name, flags)))
    return steps


def plan_of(suite: SuitePlan, name: str, flags: dict[str, Any]) -> "MeasuringPlan":
    """The plan of a workload with these flags within a suite."""
    command = importlib.import_module(f"workloads.{name}")
    return command.parse(keywords.words_of(command.parser(), **{**suite.shared, **flags}))


def carry_out(suite: SuitePlan) -> int:
    """Measures, writes the page, prints the answer and returns the exit code."""
    from workloads import records, session
    from workloads.harness import sweep

    if suite.ray:
        return _on_cluster(suite)
    measuring = suite.measuring
    session.check_files(measuring)
    run = sweep.header(measuring.command, measuring.seed)
    steps = planned_steps(suite, run.machine, suite.every_gpu)
    if measuring.dry_run:
        return _dry_run(steps, run.machine)
    if measuring.resume and not measuring.output:
        folder = _newest_run(steps, run)
    else:
        folder = sweep.place(measuring.output, steps[0].name, run).parent
    if not measuring.quiet:
        _print_machine(run.machine)
    if suite.brief:
        announced = Announced(steps, run.machine, quiet=measuring.quiet)
        codes = _each(steps, measuring, run, folder=folder, measured_by=announced.measure)
        announced.end()
    else:
        codes = _each(steps, measuring, run, folder=folder, measured_by=_print_measured)
    if codes[-1] in options.SIGNALED.values():
        return codes[-1]
    files = sorted(folder.glob("*.jsonl"))
    if not records.read_files(files).measurements:  # stopped before the first row
        return session.worst(codes)
    _report(suite, folder)
    return session.save_and_compare(measuring, sorted(folder.glob("*.jsonl")), session.worst(codes))


def _on_cluster(suite: SuitePlan) -> int:
    """The suite on every node of a Ray cluster; the exit code.

    Raises: Usage, Missing.
    """
    from workloads.fleet import nodes

    chosen(suite, ["gpu"], suite.every_gpu)  # what is unknown is said here, not by every node
    measuring = suite.measuring
    if measuring.resume and not measuring.output:
        folder = nodes.newest_run(measuring.command, lambda words: _choice(SuitePlan.parse(words)) == _choice(suite))
        measuring = dataclasses.replace(measuring, output=str(folder))
    return nodes.run(measuring, suite.ray, suite.ray_timeout_s)


def _choice(suite: SuitePlan) -> tuple:
    """What says which rows a node measures."""
    measuring = suite.measuring
    return suite.quick, suite.only, measuring.devices, measuring.threads, measuring.fast


def _print_machine(here: "Machine") -> None:
    """Prints on stderr what is measured."""
    from workloads.machine import facts

    gpus = f"{len(here.gpus)} x {here.gpus[0].name}" if here.gpus else ""
    none = f"no GPU ({facts.gpu_problem()}): the CPU is measured"
    terminal.note(f"{here.cpu}, {here.cores} cores; {gpus or none}")


def _newest_run(steps: list[Step], run: "Run") -> Path:
    """The folder of this machine's newest suite that planned the rows of these steps.

    Raises: Usage when there is none.
    """
    from workloads.harness import resuming, sweep

    def rows_of(words: list[str]) -> "list[Row]":
        suite = SuitePlan.parse(words)
        return _planned(planned_steps(suite, run.machine, suite.every_gpu), run.machine)

    return resuming.newest_run(
        sweep.LOCAL / run.machine.key,
        run.command,
        _planned(steps, run.machine),
        module="workloads.suite",
        rows_of=rows_of,
    )


def _planned(steps: list[Step], here: "Machine") -> "list[Row]":
    """The rows of some steps; a step that cannot run here has none."""
    rows = []
    for step in steps:
        with contextlib.suppress(options.Missing):  # it is left out, here as when it is measured
            for planned in _quietly(step.plan).rows_by_file(here).values():
                rows += planned
    return rows


def _quietly(plan: "MeasuringPlan") -> "MeasuringPlan":
    """The plan that prints no note: what is left out is said when it is measured."""
    return plan.with_measuring(quiet=True)


class Announced:
    """Measures steps without their tables: a line says which one it is, and about how long the rest takes."""

    def __init__(self, steps: list[Step], here: "Machine", quiet: bool):
        self._words = [step.words for step in steps]
        self._planned_s = [_seconds(step.plan, here) for step in steps]
        self._quiet = quiet
        self._begin = 0.0  # of the first step
        self._step = 0  # steps that have begun
        if not self._quiet:
            terminal.note(f"measure  {len(steps)} steps, about {_duration(sum(self._planned_s))}")

    def measure(self, name: str, plan: "MeasuringPlan", run: "Run", processes: "Workers | None") -> int:
        """Measures the next step and prints only its errors; the exit code."""
        from workloads import session

        if self._step == 0:
            self._begin = time.monotonic()
        if not self._quiet:
            self._announce()
        self._step += 1
        redraws = terminal.redraws(sys.stderr)
        no_progress = plan.measuring.fast and not redraws  # a fast step in a log is over before its first line
        plan = plan.with_measuring(quiet=self._quiet or no_progress)
        outcome = plan.measure(run, plan.rows(run.machine), processes=processes)
        return session.sum_up(outcome, session.analyzed(outcome), quiet=True)

    def _announce(self) -> None:
        """Prints the next step's line."""
        before_s, left_s = sum(self._planned_s[: self._step]), sum(self._planned_s[self._step :])
        if before_s:  # as the steps so far took beside their plan
            left_s *= (time.monotonic() - self._begin) / before_s
        step = f"{self._step + 1}/{len(self._words)}  {self._words[self._step]}"
        terminal.note(f"         {step:<45} about {_duration(left_s)} left")

    def end(self) -> None:
        """Says how long all took. What follows can then show what it does: the last bar's line has ended."""
        if not self._quiet:
            terminal.note(f"         done in {_duration(time.monotonic() - self._begin)}")


def _seconds(plan: "MeasuringPlan", here: "Machine") -> float:
    """Seconds that a workload takes at most, as planned; 0 for one that cannot run here."""
    from workloads.harness.plan import seconds_at_most

    try:
        by_file = _quietly(plan).rows_by_file(here)
    except options.Stop:
        return 0.0
    rows = list(itertools.chain.from_iterable(by_file.values()))
    return seconds_at_most(rows, plan.measuring.limits, plan.measuring.rigorous)


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _each(
    steps: list[Step],
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
                left_s = measuring.stop_after_s - (time.monotonic() - begin)
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


def _print_measured(name: str, plan: "MeasuringPlan", run: "Run", processes: "Workers | None") -> int:
    """Measures a workload and prints its table, its final sentences left to the report; the exit code."""
    from workloads import session

    if plan.measuring.format == "table":
        print(f"\n{name}", flush=True)
    outcome = session.print_measured(plan, run, plan.rows(run.machine), processes)
    analysis = session.analyzed(outcome)
    if plan.measuring.format == "table" and name in ANSWERED:
        plan.answer(outcome, analysis)
    return session.sum_up(outcome, analysis, quiet=plan.measuring.quiet, verbose=plan.measuring.verbose)


def on_node(folder: str) -> int:
    """The suite on a node of a fleet, in a process of its own: its command's words come on stdin, its files go into this folder,
    what it does and its end to stdout as workloads.records.messages. The plan is written first, so that lost rows are known
    should the node die. GPUs work alone; with --device all also together."""
    import msgspec

    from workloads.harness import announce
    from workloads.records.messages import Doing, Done, failure

    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message

    def send(message: Doing | Done) -> None:
        messages.write(msgspec.json.encode(message) + b"\n")

    announce.send_to(send)
    try:
        _measure_node(Path(folder), json.loads(sys.stdin.buffer.readline()))
        send(Done())
    except options.Stop as stop:
        send(Done(reason=str(stop)))
    except Exception as error:
        traceback.print_exc()
        send(Done(error=failure(error)))
    return options.OK


def _measure_node(folder: Path, words: list[str]) -> None:
    """Writes the plan of a suite's command on a node, then measures its rows.

    Raises: options.Stop for a command that cannot be run here.
    """
    import msgspec

    from workloads.fleet import cluster, nodes
    from workloads.harness import sweep
    from workloads.machine import facts

    suite = SuitePlan.parse(words)
    measuring = dataclasses.replace(suite.measuring, resume=True)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    run = sweep.header(measuring.command, measuring.seed)
    planned = nodes.NodePlan(run, {})
    wanted = []
    if not run.machine.gpus:
        terminal.note(f"no GPU ({facts.gpu_problem()}): its CPU is measured")
    for step in _node_steps(suite, run.machine):
        try:
            for file, rows in _quietly(step.plan).rows_by_file(run.machine).items():
                planned.rows[file] = planned.rows.get(file, []) + rows
            wanted.append(step)
        except options.Missing as missing:
            terminal.note(f"{step.name} left out: {missing}")
    (folder / cluster.PLAN).write_bytes(msgspec.json.encode(planned) + b"\n")
    if not measuring.dry_run:
        _each(wanted, measuring, run, folder=folder, measured_by=_measured)


def _node_steps(suite: SuitePlan, here: "Machine") -> list[Step]:
    """The steps on a node: where no device is named, those of every GPU, alone."""
    if suite.measuring.devices:
        return planned_steps(suite, here, True)
    on_all = dataclasses.replace(suite, shared={**suite.shared, "device": ["all"]})
    return planned_steps(on_all, here, True)


def _leave_with_parent() -> None:
    """Ends this process when its stdin closes, which happens however the parent ends; its workers then end the same way."""
    while os.read(0, 1 << 16):  # not sys.stdin: a thread that waits in it does not let the process end
        pass
    os._exit(options.TERMINATED)


def _measured(name: str, plan: "MeasuringPlan", run: "Run", processes: "Workers | None") -> int:
    """Measures a workload without its table and sentences."""
    plan.measure(run, plan.rows(run.machine), processes=processes)
    return options.OK


def _dry_run(steps: list[Step], here: "Machine") -> int:
    """Prints the plan of each step."""
    for step in steps:
        if step.plan.measuring.format != "json":  # then it is one part, and its plan an object
            print(f"\n{step.name}")
        step.plan.dry_run(step.plan.rows(here), here)
    return options.OK


def _report(suite: SuitePlan, folder: Path) -> None:
    """Writes the report into the folder and says its answer and its path."""
    from analysis import report, units
    from analysis.analysis import Analysis
    from analysis.explain import command as explain
    from analysis.text import several_gpus, summary
    from workloads import records

    out = sys.stdout if suite.measuring.format == "table" else sys.stderr
    loaded = records.read(folder)
    rows, here = loaded.measurements, loaded.runs[-1].machine
    trained = any(m.problem.op == "training" for m in rows)
    with terminal.doing(f"reading {units.count(len(rows), 'row')} and writing the page"):
        path = report.to_open(report.render([folder], folder))
        sentences = []
        if not trained or not suite.brief:
            sentences += summary.answer(Analysis.from_loaded(loaded))
        elif here.gpus:  # the training is explained below; without a GPU no size has another winner
            others = [m for m in rows if m.problem.op != "training"]
            sentences += summary.answer(Analysis.from_rows(others, here))[:CROSSINGS]
        sentences += several_gpus.lines(rows)
    if sentences:
        print("\n" + "\n".join(sentences), file=out)
    if trained:
        with terminal.doing("explaining the training"):
            explained = explain.answer_by_run("cifar10-cnn", str(folder))
        print("\n" + "\n".join(explained), file=out)
    print(f"\nNext  {options.typed(NEXT)}", file=out)
    print(f"Page  {options.near(path)}", file=out)


def _check(suite: SuitePlan) -> None:
    """Raises: Stop where its steps cannot be planned."""
    from workloads.machine import facts

    if not suite.ray:
        planned_steps(suite, facts.describe(), suite.every_gpu)


parser = COMMAND.parser
parse = SuitePlan.parse


def main(argv: Sequence[str] | None = None) -> int:
    return options.command(parser(), argv, SuitePlan.from_flags, carry_out, check=_check)


if __name__ == "__main__":
    sys.exit(main())
