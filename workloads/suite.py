"""Runs every workload on this machine into one folder, writes the report, and ends with the answer in words."""

import contextlib
import importlib
import itertools
import json
import os
import sys
import threading
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from pathlib import Path

from workloads import options, shared_flags, terminal

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
SHARED = "device threads require_gpu min_time max_noise max_time fast rigorous seed resume quiet verbose"


def parser() -> options.Parser:
    made = options.parser("workloads.suite", LONG, *EXAMPLES, question=QUESTION, needs="quick only", flags=FLAGS)
    shared_flags.add_measuring(made)
    return made


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


def chosen(args: Namespace, gpu: list[str], several: bool = False, *lacks) -> list[tuple[str, dict]]:
    """The part of the plan that was asked for.

    Raises: Usage for an unknown workload.
    """
    whole = plan(args.quick, gpu, several, *lacks)
    names, asked = {name for name, _ in whole}, options.words(args.only)
    for name in asked:
        if name == "peers" and not several:
            raise options.Usage("peers takes several GPUs, and --device all", EXAMPLES[0])
        if name not in names:
            raise options.unknown("workload", name, sorted(names), where=" in this suite")
    return [(name, flags) for name, flags in whole if not asked or name in asked]


def _all(args: Namespace) -> bool:
    return "all" in options.words(args.device)


def _parts(args: Namespace, here, every: bool) -> list[tuple[str, dict]]:
    """The part of the plan that was asked for; with `every`, its GPU rows for every GPU, else for the first."""
    gpus = [] if options.words(args.device) == ["cpu"] else [f"gpu:{i}" for i in range(len(here.gpus))]
    return chosen(args, gpus if every else gpus[:1], len(gpus) > 1 and _all(args), here.lacks)


def _command(name: str):
    return importlib.import_module(f"workloads.{name}")


def arguments(args: Namespace, name: str, flags: dict, folder: Path, left: float | None) -> Namespace:
    """The arguments of one workload within this suite."""
    made = _command(name).parser().parse_args([])
    shared = {flag: getattr(args, flag) for flag in SHARED.split()}
    vars(made).update(shared | flags, output=str(folder), stop_after=left, format=args.format)
    return made


def _main(args: Namespace) -> int:
    from workloads import records, session
    from workloads.harness import sweep
    from workloads.machine import facts

    options.refuse(args, ("backends", "variants"), "every part of the suite has its own kernels")
    if args.ray:
        from workloads.fleet import nodes

        chosen(args, ["gpu"], _all(args))  # what is unknown is said here, not by every node
        if args.resume and not args.output:
            args = Namespace(**{**vars(args), "output": str(nodes.newest_run(args, parser()))})
        return nodes.run(args)
    if args.format in ("csv", "json") and len(options.words(args.only)) != 1:
        raise options.Usage(
            f"--format {args.format} takes one table; name one workload with --only, or read the run's files",
            f"python -m workloads.suite --quick --only matmul --format {args.format}",
        )
    session.check_flags(args)
    run = sweep.header(args, args.command)
    every = _all(args)
    parts = _parts(args, run.machine, every)
    if args.dry_run:
        return _dry_run(args, parts)
    folder = _newest_run(args, run) if args.resume and not args.output else sweep.place(args, parts[0][0], run).parent
    if not args.quiet:
        here = run.machine
        none = "" if here.gpus else f"no GPU ({facts.gpu_problem()}): the CPU is measured"
        gpus = none or f"{len(here.gpus)} x {here.gpus[0].name}"
        terminal.note(f"{here.cpu}, {here.cores} cores; {gpus}")
    if _is_brief(args):
        steps = Announced(parts, args, run)
        codes = _each(parts, args, run, folder, steps.one)
        steps.end()
    else:
        codes = _each(parts, args, run, folder, _one)
    if codes[-1] in options.SIGNALED.values():
        return codes[-1]
    if not records.read_files(sorted(folder.glob("*.jsonl"))).measurements:  # stopped before the first row
        return session.worst(codes)
    _report(args, folder)
    return session.save_and_compare(args, sorted(folder.glob("*.jsonl")), session.worst(codes))


def _newest_run(args: Namespace, run) -> Path:
    """The folder of this machine's newest suite that planned the rows of the arguments.

    Raises: Usage when there is none.
    """
    from workloads.harness import resuming, sweep

    def planned(these: Namespace) -> list:
        rows = []
        for name, flags in _parts(these, run.machine, _all(these)):
            part = arguments(these, name, flags, folder=Path(), left=None)
            with contextlib.suppress(options.Missing):  # it is left out, here as when it is measured
                for _, more in _rows(name, part, run.machine):
                    rows += more
        return rows

    def planned_by(command: str) -> list:
        words = resuming.arguments(command, "workloads.suite")
        return [] if words is None else planned(parser().parse_args(words))

    return resuming.newest_run(sweep.LOCAL / run.machine.key, run.command, planned(args), planned_by)


def _is_brief(args: Namespace) -> bool:
    """Whether the rows are for the page alone: a terminal gets their tables with --verbose."""
    return args.format == "table" and not args.verbose


class Announced:
    """Measures each part of the suite without its table: a line says which, and about how long the rest takes."""

    def __init__(self, parts: list[tuple[str, dict]], args: Namespace, run):
        self._names = [WORDS[name] + (" of the CIFAR-10 CNN" if "model" in flags else "") for name, flags in parts]
        self._planned = []
        for name, flags in parts:
            part = arguments(args, name, flags, folder=Path(), left=None)
            self._planned.append(_seconds(name, part, run.machine))
        self._quiet = args.quiet
        self._begin, self._begun = 0.0, 0
        if not self._quiet:
            terminal.note(f"measure  {len(parts)} steps, about {_minutes(sum(self._planned))}")

    def one(self, name: str, args: Namespace, run) -> int:
        """One workload's session, of which only errors are printed."""
        from workloads import session

        if self._begun == 0:
            self._begin = time.monotonic()
        if not args.quiet:
            left = sum(self._planned[self._begun :])
            before = sum(self._planned[: self._begun])
            if before:  # as the steps so far took beside their plan
                left *= (time.monotonic() - self._begin) / before
            step = f"{self._begun + 1}/{len(self._names)}  {self._names[self._begun]}"
            terminal.note(f"         {step:<45} about {_minutes(left)} left")
        self._begun += 1
        lines = terminal.redraws(sys.stderr) or not args.fast  # a fast step in a log is over before its first line
        outcome = _command(name).WORKLOAD.measure(Namespace(**vars(args) | {"quiet": args.quiet or not lines}), run)
        return session.sum_up(outcome, Namespace(**vars(args) | {"quiet": True}))

    def end(self) -> None:
        """Says how long all took. What follows can then show what it does: the last bar's line has ended."""
        if not self._quiet:
            terminal.note(f"         done in {_minutes(time.monotonic() - self._begin)}")


def _seconds(name: str, args: Namespace, here) -> float:
    """Seconds that a workload takes at most, as planned; 0 for one that cannot run here."""
    from workloads.harness.plan import seconds_at_most

    try:
        rows = itertools.chain.from_iterable(rows for _, rows in _rows(name, args, here))
        return seconds_at_most(list(rows), args)
    except options.Stop:
        return 0.0


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} minutes"


def _each(parts, args: Namespace, run, folder: Path, one: Callable[..., int]) -> list[int]:
    """Runs the parts in order, until --stop-after or a signal; returns their exit codes."""
    from workloads.harness import sweep
    from workloads.machine import load

    if args.wait_quiet and parts:
        load.wait_until_quiet()
    begin, begun, codes = time.monotonic(), set(), []
    with sweep.workers() as processes:
        for name, flags in parts:
            left = None if args.stop_after is None else args.stop_after - (time.monotonic() - begin)
            if left is not None and left <= 0:
                break
            made = arguments(args, name, flags, folder, left)
            made.resume = args.resume or name in begun  # a workload's second part goes on in its file
            made.workers = None if name == "training" else processes  # its start-up is of a process of its own
            begun.add(name)
            try:
                codes.append(one(name, made, run))
            except options.Missing as missing:  # TensorFlow, say: the rest of the suite still has its answer
                tip = f"\n  to have it: {missing.tip}" * bool(missing.tip)
                terminal.note(f"{name} left out: {missing}{tip}")
                codes.append(options.MISSING)
            if codes[-1] in options.SIGNALED.values():
                break
    return codes


def _one(name: str, args: Namespace, run) -> int:
    """One workload's own session, its final sentences left to the report."""
    if args.format == "table":
        print(f"\n{name}", flush=True)
    return _command(name).WORKLOAD.session(args, run=run)


def on_node(folder: str) -> int:
    """The suite on a node of a fleet, in a process of its own: its flags come on stdin, its files go into this folder. The
    plan is written first, so that lost rows are known should the node die. GPUs work alone; with --device all also together."""
    import msgspec

    from workloads.fleet import cluster, nodes
    from workloads.harness import sweep
    from workloads.machine import facts

    args, place = Namespace(**json.loads(sys.stdin.buffer.readline())), Path(folder)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    run = sweep.header(args, args.command)
    planned, wanted = nodes.Plan(run, {}), []
    if not run.machine.gpus:
        print(f"no GPU ({facts.gpu_problem()}): its CPU is measured", flush=True)
    try:
        parts = _parts(args, run.machine, True)
        args.device = args.device or ["all"]
        for name, flags in parts:
            try:
                for file, rows in _rows(name, arguments(args, name, flags, place, None), run.machine):
                    planned.rows[file] = planned.rows.get(file, []) + rows
                wanted.append((name, flags))
            except options.Missing as missing:
                print(f"{name} left out: {missing}", flush=True)
        (place / cluster.PLAN).write_bytes(msgspec.json.encode(planned) + b"\n")
        _each([] if args.dry_run else wanted, args, run, place, _measured)
    except options.Stop as stop:
        print(stop, flush=True)
    return options.OK


def _leave_with_parent() -> None:
    """Ends this process when its stdin closes, which happens however the parent ends; its workers then end the same way."""
    while os.read(0, 1 << 16):  # not sys.stdin: a thread that waits in it does not let the process end
        pass
    os._exit(options.TERMINATED)


def _rows(name: str, args: Namespace, here) -> Iterator[tuple[str, list]]:
    """(result file, rows) of one workload; rows that refining adds are not known yet."""
    module = _command(name)
    args.quiet = True  # what is left out is said when it is measured
    yield name, list(module.rows(args, here))
    if name == "peers":
        from workloads.harness import concurrent

        yield "at-once", concurrent.every_gpu_rows(module.gpus(args, here))


def _measured(name: str, args: Namespace, run) -> int:
    """One workload without its table and sentences."""
    _command(name).WORKLOAD.measure(args, run)
    return options.OK


def _dry_run(args: Namespace, parts: list[tuple[str, dict]]) -> int:
    for name, flags in parts:
        if args.format != "json":  # then it is one part, and its plan an object
            print(f"\n{name}")
        made = arguments(args, name, flags, Path(), None)
        made.dry_run = True
        _command(name).WORKLOAD.session(made)
    return options.OK


def _report(args: Namespace, folder: Path) -> None:
    """Writes the report into the folder and says its answer and its path."""
    from analysis import report, units
    from analysis.explain import command as explain
    from analysis.text import several_gpus, summary
    from workloads import records

    out = sys.stdout if args.format == "table" else sys.stderr
    loaded = records.read(folder)
    rows, here = loaded.measurements, loaded.runs[-1].machine
    trained = any(m.problem.op == "training" for m in rows)
    with terminal.doing(f"reading {units.count(len(rows), 'row')} and writing the page"):
        path = report.to_open(report.render([folder], folder))
        sentences = []
        if not trained or not _is_brief(args):
            sentences += summary.answer(rows, here)
        elif here.gpus:  # the training is explained below; without a GPU no size has another winner
            others = [m for m in rows if m.problem.op != "training"]
            sentences += summary.answer(others, here)[:CROSSINGS]
        sentences += several_gpus.lines(rows)
    if sentences:
        print("\n" + "\n".join(sentences), file=out)
    if trained:
        with terminal.doing("explaining the training"):
            explained = explain.of_run("cifar10-cnn", str(folder))
        print("\n" + "\n".join(explained), file=out)
    print(f"\nNext  {options.typed(NEXT)}", file=out)
    print(f"Page  {options.near(path)}", file=out)


main = options.entry(parser, _main)

if __name__ == "__main__":
    sys.exit(main())
