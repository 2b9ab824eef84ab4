"""Runs rows through workers into a result file: plans, resumes, stops, and loses nothing that was measured."""

import argparse
import contextlib
import math
import os
import pathlib
import signal
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from analysis import stats
from kernels.problems import Problem
from kernels.registry import FRAMEWORKS
from workloads import ROOT, options, records
from workloads.harness.plan import RIGOROUS_PROCESSES, name
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.machine import facts
from workloads.records import Measurement, Row, Run, row_flags
from workloads.records.visits import joined, merged

LOCAL = ROOT / "reports" / "local"
_LONGEST_ROW_S = 120.0  # beyond what the clocks may take: inputs, compilation, the check
_ROOM = 8  # times a problem's own arrays
_LONGEST_CALL_S = 10.0  # a call foretold to take longer is skipped


class Outcome(msgspec.Struct):
    """What a sweep came to: all rows of its file, in the order measured, and how it ended."""

    run: Run
    path: pathlib.Path
    measurements: list[Measurement]
    stopped: str = ""  # "", stop-after, SIGINT or SIGTERM
    left: int = 0

    @property
    def exit_code(self) -> int:
        """0, 1 for failed or wrong rows, 3 when nothing but roofs could be measured, 130 or 143 after a signal."""
        if self.stopped in ("SIGINT", "SIGTERM"):
            return options.INTERRUPTED if self.stopped == "SIGINT" else options.TERMINATED
        statuses = {m.status for m in self.measurements}
        if statuses & {"failed", "wrong"}:
            return options.FAILED
        own = {m.status for m in self.measurements if m.problem.op == self.path.stem} or statuses
        return options.MISSING if own == {"skipped"} and not self.stopped else options.OK


class Stopped(BaseException):
    """A signal that asks us to end; not an Exception, so that nothing in between swallows it."""


def header(args: argparse.Namespace, command: str) -> Run:
    """The Run line of a file written now on this machine."""
    return Run(
        records.SCHEMA,
        facts.describe(),
        facts.software(),
        command,
        args.seed,
        facts.commit(),
        records.source_hash(),
        facts.now(),
    )


def place(args: argparse.Namespace, workload: str, run: Run) -> pathlib.Path:
    """The result file: in -o DIR, or in a new folder of this machine (with --resume: its newest that has one)."""
    if args.output:
        return pathlib.Path(args.output) / f"{workload}.jsonl"
    folder = LOCAL / run.machine.key
    if args.resume:
        old = sorted(folder.glob(f"*/{workload}.jsonl"))
        if not old:
            raise options.Usage(
                f"nothing to resume: no {workload} run under {folder}", command_without(run.command, "--resume")
            )
        return old[-1]
    stamp = run.started_at.replace(":", "").replace("-", "")
    taken = (folder / f"{stamp}{suffix}" for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(f for f in taken if not f.exists()) / f"{workload}.jsonl"


def command_without(command: str, flag: str) -> str:
    return " ".join(word for word in command.split() if word != flag)


def sweep(
    rows: list[Row],
    args: argparse.Namespace,
    workload: str,
    command: str,
    shown: Callable[[Measurement], None] = lambda m: None,
    refine: Callable[[list[Measurement]], list[Row]] = lambda done: [],
    run: Run | None = None,
) -> Outcome:
    """Measures the rows that the file does not have yet, then those that `refine` asks for until it asks for none.

    `shown` gets every measurement, resumed ones first. Ends early, with everything kept, on --stop-after and signals.
    """
    run = run or header(args, command)
    if isinstance(model := getattr(args, "model", None), str):  # of layers; rows of whole models name their own
        run = msgspec.structs.replace(run, network=model)
    begin = time.monotonic()
    limits = Limits(**options.limits(args))
    with records.Writer(place(args, workload, run), run, args.resume) as writer, signals():
        kept = {m.key: m for m in writer.done if m.status == "ok"}
        outcome = Outcome(run, writer.path, [])
        runner = _Runner(run.machine, limits, args)
        try:
            with contextlib.closing(runner), progress(args) as step:
                while rows:
                    for i, row in enumerate(rows):
                        outcome.left = len(rows) - i
                        if args.stop_after and time.monotonic() - begin > args.stop_after:
                            outcome.stopped = "stop-after"
                            return outcome
                        step(row, len(outcome.measurements), len(outcome.measurements) + outcome.left)
                        done = kept.get(row.key)
                        if done is None:
                            done = row_flags.flagged(runner.measure(row))
                            writer.append(done)
                        runner.learn(done)
                        outcome.measurements.append(done)
                        shown(done)
                    outcome.left = 0
                    rows = refine(outcome.measurements)
        except Stopped as stop:
            outcome.stopped = str(stop)
    return outcome


class _Runner:
    """Keeps a worker for each environment, and the speeds seen, to foretell calls that would take too long."""

    def __init__(self, here: records.Machine, limits: Limits, args: argparse.Namespace):
        self._uuids = here.uuids
        self._limits, self._args = limits, args
        self._workers: dict[tuple, Worker] = {}
        self._last: dict[tuple, str] = {}
        self._seen: dict[str, tuple[float, Problem]] = {}

    def measure(self, row: Row) -> Measurement:
        foretold = self._foretell(row)
        if foretold > _LONGEST_CALL_S:
            reason = f"one call would take about {foretold:.0f} s, going by the size before"
            return row.result("skipped", reason)
        fresh = row.settings.process == "fresh"
        if not (fresh or self._args.rigorous):
            return self._kept(row)
        ask = self._kept if not fresh and row.backend in FRAMEWORKS else self._fresh
        return self._processes(row, ask)

    def _processes(self, row: Row, ask: Callable[[Row, int], Measurement]) -> Measurement:
        """From as many processes as --rigorous takes; the first that is not ok ends it. A framework's, which take many seconds
        to start, are kept for the rows to come: each row is still timed in that many."""
        parts: list[Measurement] = []
        while len(parts) < RIGOROUS_PROCESSES and (not parts or parts[-1].status == "ok"):
            parts.append(ask(row, len(parts)))
        return merged(parts)

    def _fresh(self, row: Row, process: int) -> Measurement:
        with contextlib.closing(Worker(environment(row, self._uuids))) as worker:
            return self._asked(worker, row)

    def _kept(self, row: Row, process: int = 0) -> Measurement:
        """From the worker of the row's environment, or of several the one with that number."""
        variables = environment(row, self._uuids)
        key = (process, *sorted(variables.items()))
        for other in [k for k, backend in self._last.items() if backend in FRAMEWORKS and k != key and _short(row)]:
            self._workers[other].close()  # an idle framework uses no CPU, but it keeps the memory that it once had
        self._last[key] = row.backend
        if key not in self._workers:
            self._workers[key] = Worker(variables)
        return self._asked(self._workers[key], row)

    def _asked(self, worker: Worker, row: Row) -> Measurement:
        own = row.problem.patience_s
        timeout = _LONGEST_ROW_S + own + 6 * self._limits.max_time + 10 * self._foretell(row)
        return worker.ask(Order("measure", row, self._limits, self._args.seed), timeout)

    def learn(self, done: Measurement) -> None:
        if done.status == "ok" and done.samples and done.problem.flops:
            seconds = min(done.samples[0].seconds)
            self._seen[_way(done.row)] = (seconds, done.problem)

    def _foretell(self, row: Row) -> float:
        """Seconds of a call at the rate of the same kernel, arithmetic and settings one size before; 0 when that call
        was too short, or too much smaller, to tell: its time is the cost of any call."""
        seconds, problem = self._seen.get(_way(row), (0.0, None))
        if type(problem) is not type(row.problem) or seconds < 1e-3 or row.problem.flops > 64 * problem.flops:
            return 0.0
        return seconds * row.problem.flops / problem.flops

    def close(self) -> None:
        for worker in self._workers.values():
            worker.close()


def _short(row: Row) -> bool:
    """Whether a row needs more of its device's memory than lies idle now, with room for what is made beside its arrays."""
    return _ROOM * row.problem.footprint_bytes > facts.memory_available(row.device)


def _way(row: Row) -> str:
    """The row's kernel, arithmetic and settings, whatever the size."""
    return row.kernel + row.problem.math + msgspec.json.encode(row.settings, order="sorted").decode()


def alternate(
    rows: list[Row],
    limits: Limits,
    *,
    seed: int = 1,
    least: int = 8,
    most: int = 160,
    same_process: bool = False,
    handicaps: list[float] | None = None,
) -> list[Measurement]:
    """Rows measured in alternating blocks (A B B A ...), each in a process of its own unless they are to share one.

    Ends when each row's ratio to the first is known to `limits.max_noise`, after `least` to `most` rounds, whatever the
    verdict: going on until there is one would find one. Block i of all rows was taken side by side, so
    estimate.verdict(..., paired=True) may compare them. A row that fails ends it.
    """
    uuids = facts.describe().uuids
    cpus = _one_cpu() if all(row.settings.threads == 1 for row in rows) else None
    workers = [Worker(environment(row, uuids)) for row in (rows[:1] if same_process else rows)]
    sides = list(
        zip(rows, workers * len(rows) if same_process else workers, handicaps or [0.0] * len(rows), strict=False)
    )
    taken: list[list[Measurement]] = [[] for _ in rows]
    try:
        for worker in workers:
            worker.start()
        for count in range(-2, most):  # two rounds warm up
            if count == -1 and cpus:  # imported and compiled side by side, measured in turns on one CPU
                for worker in workers:
                    worker.pin(cpus)
            order = range(len(rows)) if count % 2 else reversed(range(len(rows)))
            for side in order:
                row, worker, handicap = sides[side]
                answer = worker.ask(Order("visit", row, limits, seed, max(1, count + 1), handicap), _LONGEST_ROW_S)
                if answer.status != "ok":
                    return [answer] * len(rows)
                if count >= 0:
                    taken[side].append(answer)
            if count + 1 >= least and count % 4 == 3 and _told_apart(taken, limits.max_noise):
                break
    finally:
        for worker in workers:
            worker.close()
    return [merged(side, "alternating blocks") for side in taken]


def _one_cpu() -> set[int] | None:
    """A CPU for single-threaded rows to take turns on: two CPUs of a shared host are not equally busy behind our back."""
    return {max(os.sched_getaffinity(0))} if hasattr(os, "sched_getaffinity") else None


def _told_apart(taken: list[list[Measurement]], noise: float) -> bool:
    first, *others = ([m.samples[0] for m in side] for side in taken)
    return all(stats.verdict(joined(first), joined(o), paired=True).ratio.noise <= noise for o in others)


@contextlib.contextmanager
def progress(args: argparse.Namespace) -> Iterator[Callable[[Row, int, int], None]]:
    """Calls to show that a row begins: a bar with the time left on a terminal, else plain lines now and then."""
    if args.quiet:
        yield lambda row, done, all_: None
    elif sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (BarColumn(20), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("{task.description}"))
        with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
            task = bar.add_task("")
            yield lambda row, done, all_: bar.update(task, completed=done, total=all_, description=name(row))
    else:
        last = -math.inf

        def plain(row: Row, done: int, all_: int) -> None:
            nonlocal last
            if args.verbose or time.monotonic() - last > 10:
                last = time.monotonic()
                print(f"[{done + 1}/{all_}] {name(row)}", file=sys.stderr)

        yield plain


@contextlib.contextmanager
def signals() -> Iterator[None]:
    """SIGINT and SIGTERM end the sweep in order."""

    def stop(number, frame):
        raise Stopped(signal.Signals(number).name)

    try:
        old = {s: signal.signal(s, stop) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever owns it decides
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
