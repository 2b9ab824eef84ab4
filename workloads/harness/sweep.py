"""Measures rows by worker processes into a result file: resumes it, stops early, and loses nothing that was measured."""

import contextlib
import math
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from workloads import REPORTS, options, records
from workloads.harness import announce, resuming, rounds
from workloads.harness.progress import InOrder, progress
from workloads.harness.rounds import Refine, Rounds
from workloads.harness.runner import Runner, Workers, workers
from workloads.machine import clock, facts
from workloads.records import Measurement, Row, Run, row_flags, settings
from workloads.shared_flags import Measuring

LOCAL = REPORTS / "local"


class Outcome(msgspec.Struct):
    """Result of a sweep (all rows of a command, visited round after round): the rows of its file, and how it ended."""

    #: The line of this run in the file.
    run: Run
    #: The result file.
    path: Path
    #: The rows.
    measurements: list[Measurement]
    #: What ended it early: stop-after, SIGINT or SIGTERM; "" where nothing did.
    stopped: str = ""
    #: Number of rows not measured, or not with all their visits.
    left: int = 0
    #: Of these, the number of rows that have some visits.
    begun: int = 0
    #: Files of parts before this one, whose rows come first.
    earlier: tuple[Path, ...] = ()

    @property
    def exit_code(self) -> int:
        """The exit code of the command: 0; 1 for failed or wrong rows; 3 where every row of the workload itself was skipped,
        so that at most roofs could be measured; 130 or 143 after a signal."""
        if self.stopped in options.SIGNALED:
            return options.SIGNALED[self.stopped]
        statuses = {m.status for m in self.measurements}
        if statuses & {"failed", "wrong"}:
            return options.FAILED
        workload = self.path.stem  # the file is named by it
        statuses_without_roofs = {m.status for m in self.measurements if m.problem.op == workload}
        all_skipped = (statuses_without_roofs or statuses) == {"skipped"}
        return options.MISSING if all_skipped and not self.stopped else options.OK

    @property
    def files(self) -> list[Path]:
        """The result files with the rows, in their order."""
        return [*self.earlier, self.path]

    def after(self, before: "Outcome | None") -> "Outcome":
        """This outcome, after it has put the rows and files of the one `before` it in front of its own; None: nothing was
        before."""
        if before is not None:
            self.measurements[:0] = before.measurements
            self.earlier = (*before.earlier, before.path)
        return self


class Stopped(BaseException):
    """SIGINT or SIGTERM asks the sweep to end; not an Exception, so that nothing in between swallows it."""


def header(command: str, seed: int) -> Run:
    """The record of a run that begins now on this machine, which is the first line that it writes to its result file.

    command: the command line as it was typed. seed: of the inputs and of the order of visits.
    """
    clock.begin()
    return Run(
        schema=records.SCHEMA,
        machine=facts.describe(),
        software=facts.software(),
        command=command,
        seed=seed,
        commit=facts.commit(),
        sources=records.source_hash(),
        started_at=facts.now(),
    )


def place(output: str, workload: str, run: Run) -> Path:
    """The path of a workload's result file, `WORKLOAD.jsonl`: in the folder `output`, or if that is "" in a new folder that is
    named by this machine and the time at which the run began."""
    if output:
        return Path(output) / f"{workload}.jsonl"
    stamp = "".join(character for character in run.started_at if character not in ":-")
    folder = LOCAL / run.machine.key / stamp
    number = 2
    while folder.exists():
        folder = folder.with_name(f"{stamp}-{number}")
        number += 1
    return folder / f"{workload}.jsonl"


def sweep(
    rows: list[Row],
    measuring: Measuring,
    workload: str,
    run: Run,
    *,
    shown: Callable[[Measurement], None] = lambda m: None,
    refine: Refine = lambda done: [],
    processes: Workers | None = None,
) -> Outcome:
    """Measures rows (a row is a kernel with its problem and settings) and stores them in the result file of a workload such as
    matmul. What a resumed file has is not measured again.

    It goes round the rows several times. In each round a row is visited: a worker process takes a short block of samples. Rows
    that cannot be timed so, such as trainings, are measured in one go before.

    run: about this run, for the file. shown: called with each row's Measurement once no visit to it is left, rows of a resumed
    file first. refine: called after the first round with the measurements so far; the rows that it returns are added.
    processes: worker processes to use, which outlive this sweep; None for new ones.

    Ends early on --stop-after, SIGINT or SIGTERM. Every visit is stored then, and `shown` gets what the other rows have so far.
    """
    begin = time.monotonic()
    method = resuming.method(measuring.limits, process_per_visit=measuring.rigorous)
    run = replace(run, method=method)
    file = place(measuring.output, workload, run)
    with records.Writer(file, run, measuring.resume) as writer, signals():
        stored = resuming.continued(writer.rows_before, rows, run, writer.path)
        resuming.continue_clock(stored.values())
        schedule = Rounds(rows, measuring.limits, measuring.seed, stored)
        show = InOrder(schedule, shown)
        outcome = Outcome(run, writer.path, [])
        try:
            with workers(processes) as pool:
                runner = Runner(run.machine, measuring, pool)
                stopped_at = begin + measuring.stop_after_s if measuring.stop_after_s else math.inf
                is_finished = _visit_rows(
                    schedule, runner, measuring, refine=refine, writer=writer, show=show, stopped_at=stopped_at
                )
            if not is_finished:
                outcome.stopped = "stop-after"
        except Stopped as stop:
            outcome.stopped = str(stop)
        finally:
            try:
                show.rest()
            except Stopped as stop:
                outcome.stopped = str(stop)
        outcome.measurements = schedule.measurements
        unfinished = [key for key in schedule.rows if not schedule.complete(key)]
        outcome.left = len(unfinished)
        outcome.begun = sum(schedule.measurement(key) is not None for key in unfinished)
    return outcome


def _visit_rows(
    schedule: Rounds,
    runner: Runner,
    measuring: Measuring,
    *,
    refine: Refine,
    writer: records.Writer,
    show: InOrder,
    stopped_at: float,
) -> bool:
    """Makes the visits of a sweep one after the other and stores each result. False if it stopped before a planned visit that
    would probably have ended after `stopped_at` (time.monotonic)."""

    def rows_to_add(measurements: list[Measurement]) -> list[Row]:
        """The rows that `refine` adds; once it adds none, those to measure again under sustained load."""
        without_load = [m for m in measurements if not settings.is_sustained(m)]
        return refine(without_load) or rounds.sustained_rows(measurements)

    with progress(measuring.quiet, measuring.verbose) as begin_visit:
        show.complete_rows()
        for measurement in schedule.measurements:
            runner.learn(measurement)
        for visit in schedule.visits(rows_to_add, time.monotonic, time.sleep):
            started = time.monotonic()
            if started + runner.expected_s(visit) > stopped_at:
                return schedule.to_go() == 0
            begin_visit(visit.row, schedule.to_go() or schedule.extra_to_go())
            if visit.round:  # a row timed in one go announces what it does itself
                announce.timing("timing")
            measurement = row_flags.flagged(runner.measure(visit))
            writer.append(measurement)
            schedule.add(measurement)
            runner.learn(measurement, visit.round, took_s=time.monotonic() - started)
            show.complete_rows()
    return True


def _raise_stopped(name: str) -> None:
    """Raises Stopped with the name of a signal."""
    raise Stopped(name)


@contextlib.contextmanager
def signals(stop: Callable[[str], None] = _raise_stopped) -> Iterator[None]:
    """While the `with` block runs, SIGINT and SIGTERM call `stop` with their name, which by default raises Stopped.

    Outside the main thread Python lets nobody handle signals, and nothing changes.
    """

    def handle(number: int, frame: object) -> None:
        stop(signal.Signals(number).name)

    try:
        handlers_before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread
        handlers_before = {}
    try:
        yield
    finally:
        for number, handler in handlers_before.items():
            signal.signal(number, handler)
