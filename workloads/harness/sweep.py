"""Runs rows through workers into a result file: plans, resumes, stops, and loses nothing that was measured."""

import contextlib
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
from msgspec.structs import replace

from kernels.problems import Problem
from kernels.registry import FRAMEWORKS
from workloads import REPORTS, options, records
from workloads.harness import announce, plan, resuming, rounds
from workloads.harness.progress import InOrder, progress
from workloads.harness.worker import SHARED, Order, Worker, environment
from workloads.machine import clock, facts
from workloads.records import Measurement, Row, Run, row_flags, settings
from workloads.records.visits import merged
from workloads.shared_flags import Measuring

LOCAL = REPORTS / "local"
_LONGEST_ROW_S = 120.0  # beyond what the clocks may take: inputs, compilation, the check
_ROOM = 8  # times a problem's own arrays
_LONGEST_CALL_S = 10.0  # a call predicted to take longer is skipped


class Outcome(msgspec.Struct):
    """Result of a sweep: all rows of its file, in the order measured, and how it ended."""

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
        """0, 1 for failed or wrong rows, 3 when nothing but roofs could be measured, 130 or 143 after a signal."""
        if self.stopped in options.SIGNALED:
            return options.SIGNALED[self.stopped]
        statuses = {m.status for m in self.measurements}
        if statuses & {"failed", "wrong"}:
            return options.FAILED
        without_roofs = {m.status for m in self.measurements if m.problem.op == self.path.stem} or statuses
        return options.MISSING if without_roofs == {"skipped"} and not self.stopped else options.OK

    @property
    def files(self) -> list[Path]:
        return [*self.earlier, self.path]

    def after(self, before: "Outcome | None") -> "Outcome":
        """This one, the rows and files of the one before it in front."""
        if before is not None:
            self.measurements[:0] = before.measurements
            self.earlier = (*before.earlier, before.path)
        return self


class Stopped(BaseException):
    """A signal that asks us to end; not an Exception, so that nothing in between swallows it."""


def header(command: str, seed: int) -> Run:
    """The Run line of a file that this command writes now on this machine."""
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
    """The result file of a workload: in the folder `output`, else in a new one of this machine."""
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
    refine: Callable[[list[Measurement]], list[Row]] = lambda done: [],
    processes: "Workers | None" = None,
) -> Outcome:
    """Visits the rows round after round, with those that `refine` adds after the first, as far as the file lacks visits.

    `shown` gets every measurement once it is complete, resumed ones first. Ends early, with every visit stored, on --stop-after
    and signals; then what rows have so far is shown. `processes`: workers that outlive this sweep.
    """
    begin = time.monotonic()
    limits = measuring.limits
    run = replace(run, method=resuming.method(limits, process_per_visit=measuring.rigorous))
    file = place(measuring.output, workload, run)
    with records.Writer(file, run, measuring.resume) as writer, signals():
        before = resuming.continued(writer.rows_before, rows, run, writer.path)
        resuming.after_these(before.values())
        around = rounds.Rounds(rows, limits, measuring.seed, before)
        outcome = Outcome(run, writer.path, [])
        show = InOrder(around, shown)

        def more(done: list[Measurement]) -> list[Row]:
            return refine([m for m in done if not settings.is_sustained(m)]) or rounds.sustained_rows(done)

        try:
            with workers(processes) as pool, progress(measuring.quiet, measuring.verbose) as step:
                runner = _Runner(run.machine, measuring, pool)
                show.ready()
                for m in around.measurements:
                    runner.learn(m)
                for row, number in around.visits(more, time.monotonic, time.sleep):
                    started = time.monotonic()
                    stop_s = measuring.stop_after_s
                    if stop_s and started - begin + runner.expected_s(row, number) > stop_s:
                        outcome.stopped = "stop-after" if around.to_go() else ""
                        break
                    step(row, around.to_go() or around.again())
                    if number:  # a whole row announces what it does itself
                        announce.timing("timing")
                    done = row_flags.flagged(runner.ask(row, number))
                    writer.append(done)
                    around.add(done)
                    runner.learn(done, number, time.monotonic() - started)
                    show.ready()
        except Stopped as stop:
            outcome.stopped = str(stop)
        finally:
            try:
                show.ready(every=True)
            except Stopped as stop:
                outcome.stopped = str(stop)
        outcome.measurements = around.measurements
        unfinished = [key for key in around.rows if not around.complete(key)]
        outcome.left, outcome.begun = len(unfinished), sum(around.measurement(key) is not None for key in unfinished)
    return outcome


#: Number of the process and environment -> the worker.
Workers = dict[tuple, Worker]


@contextlib.contextmanager
def workers(shared: Workers | None = None) -> Iterator[Workers]:
    """The workers of a sweep, which end with it; those that several sweeps have `shared` stay."""
    if shared is not None:
        yield shared
        return
    pool: Workers = {}
    try:
        yield pool
    finally:
        for worker in pool.values():
            worker.close()


class _Runner:
    """Asks the worker of each environment, and keeps measured speeds, to predict calls that would take too long."""

    def __init__(self, here: records.Machine, measuring: Measuring, processes: Workers):
        self._uuids = here.uuids
        self._workers = processes
        self._limits = measuring.limits
        self._rigorous = measuring.rigorous
        self._seed = measuring.seed
        self._last_call: dict[
            str, tuple[float, Problem]
        ] = {}  # size series -> seconds of a call of the size before, and it
        # (device, kind of visit) -> seconds that the last such visit took, as a multiple of its guess
        self._guess_ratio: dict[tuple[str, int], float] = {}

    def expected_s(self, row: Row, number: int) -> float:
        """Seconds of a visit: its guess, times the ratio of this run's last one of its kind; 0 before the first of any kind."""
        if not self._guess_ratio:
            return 0.0
        return self._guess_s(row, number) * self._guess_ratio.get((row.device, min(number, 2)), 1.0)

    def _guess_s(self, row: Row, number: int) -> float:
        return self._limits.visit_s if number else plan.seconds(row, self._rigorous)

    def ask(self, row: Row, number: int) -> Measurement:
        """Measures the row's visit of round `number`; 0: the whole row in one go."""
        call_s = self._predicted_s(row)
        if number <= 1 and call_s > _LONGEST_CALL_S:
            reason = f"one call would take about {call_s:.0f} s, going by the size before"
            return row.result("skipped", reason, at=facts.now(), visit=number)
        return self._visit(row, number) if number else self._whole(row)

    def _visit(self, row: Row, number: int) -> Measurement:
        """With --rigorous each round has processes of its own."""
        order = Order(verb="visit", row=row, limits=self._limits, seed=self._seed, visit=number)
        process = 0
        if self._rigorous:
            process = number
            earlier_rounds = [key for key in self._workers if key[0] != number]
            for key in earlier_rounds:
                self._workers.pop(key).close()
        m = self._answer(order, process=process)
        samples = tuple(replace(s, stop_reason="visit", is_by_process=self._rigorous) for s in m.samples)
        return replace(m, visit=number, at=m.at or facts.now(), samples=samples)

    def _whole(self, row: Row) -> Measurement:
        """In one go; from several processes where they are to be fresh and with --rigorous. The first that is not ok ends it.
        A framework's processes then stay for the rows to come: a row is still timed in that many."""
        fresh = row.process == "fresh"
        order = Order(verb="measure", row=row, limits=self._limits, seed=self._seed)
        if not (fresh or self._rigorous):
            return self._answer(order)
        parts: list[Measurement] = []
        while len(parts) < plan.RIGOROUS_PROCESSES and (not parts or parts[-1].status == "ok"):
            parts.append(self._answer(order, fresh or row.backend not in FRAMEWORKS, -len(parts)))
        return merged(parts)

    def _answer(self, order: Order, fresh: bool = False, process: int = 0) -> Measurement:
        """The worker's answer to an order: a fresh worker's, or that of this environment and `process` number."""
        row = order.row
        timeout_s = _LONGEST_ROW_S + row.problem.patience_s + 6 * self._limits.max_time + 10 * self._predicted_s(row)
        variables = environment(row, self._uuids)
        if fresh:
            self._make_room(row)
            with contextlib.closing(Worker(variables, patient=True)) as worker:
                return worker.ask(order, timeout_s)
        if self._rigorous:
            variables |= SHARED
        key = (process, *sorted(variables.items()))
        self._make_room(row, key)
        if key not in self._workers:
            self._workers[key] = Worker(variables, patient=True)
        return self._workers[key].ask(order, timeout_s)

    def _make_room(self, row: Row, key: tuple = ()) -> None:
        """Ends idle framework processes, except the one of `key`, when the row needs their memory: they keep all that they
        ever took, and a training takes its whole GPU."""
        for other, worker in self._workers.items():
            variables = dict(other[1:])
            takes_whole_gpu = row.on_gpu and not SHARED.items() <= variables.items()
            if other != key and "KERAS_BACKEND" in variables and (takes_whole_gpu or _lacks_memory(row)):
                worker.close()

    def learn(self, done: Measurement, number: int = 0, took_s: float = 0.0) -> None:
        """Learns from a visit of round `number` that took so many seconds; 0 s where that is not known."""
        if not done.ok:
            return
        if took_s:
            self._guess_ratio[done.device, min(number, 2)] = took_s / self._guess_s(done.row, number)
        is_layer = done.problem.op == "layer"  # another layer is no other size of it
        if done.samples and done.problem.flops and not is_layer:
            seconds = min(done.samples[0].seconds)
            self._last_call[rounds.size_series(done.row)] = (seconds, done.problem)

    def _predicted_s(self, row: Row) -> float:
        """Seconds of a call, predicted from the FLOP rate of the size before in the same kernel and settings; 0 if that call
        was too short or too small, as its time is then mostly a call's fixed cost."""
        seconds, problem = self._last_call.get(rounds.size_series(row), (0.0, None))
        if type(problem) is not type(row.problem) or seconds < 1e-3 or row.problem.flops > 64 * problem.flops:
            return 0.0
        return seconds * row.problem.flops / problem.flops


def _lacks_memory(row: Row) -> bool:
    """Whether the row's arrays, _ROOM times for temporaries, exceed the free memory of its device."""
    return _ROOM * row.problem.footprint_bytes > facts.memory_available(row.device)


def _raise(name: str) -> None:
    raise Stopped(name)


@contextlib.contextmanager
def signals(stop: Callable[[str], None] = _raise) -> Iterator[None]:
    """SIGINT and SIGTERM end the sweep in order: `stop` gets their names, by default to raise Stopped."""

    def end(number: int, frame: object) -> None:
        stop(signal.Signals(number).name)

    try:
        old = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not the main thread: whoever owns it decides
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
