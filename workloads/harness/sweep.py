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

    run: Run
    path: Path
    measurements: list[Measurement]
    stopped: str = ""  # "", stop-after, SIGINT or SIGTERM
    left: int = 0  # rows not measured, or not with all their visits
    begun: int = 0  # of these, the rows that have some
    earlier: tuple[Path, ...] = ()  # files of parts before this one, whose rows come first

    @property
    def exit_code(self) -> int:
        """0, 1 for failed or wrong rows, 3 when nothing but roofs could be measured, 130 or 143 after a signal."""
        if self.stopped in options.SIGNALED:
            return options.SIGNALED[self.stopped]
        statuses = {m.status for m in self.measurements}
        if statuses & {"failed", "wrong"}:
            return options.FAILED
        own = {m.status for m in self.measurements if m.problem.op == self.path.stem} or statuses
        return options.MISSING if own == {"skipped"} and not self.stopped else options.OK

    @property
    def files(self) -> list[Path]:
        return [*self.earlier, self.path]

    def after(self, before: "Outcome | None") -> "Outcome":
        """This one, the rows and files of the one before it in front."""
        if before is not None:
            self.measurements[:0], self.earlier = before.measurements, (*before.earlier, before.path)
        return self


class Stopped(BaseException):
    """A signal that asks us to end; not an Exception, so that nothing in between swallows it."""


def header(command: str, seed: int) -> Run:
    """The Run line of a file that this command writes now on this machine."""
    clock.begin()
    return Run(
        records.SCHEMA,
        facts.describe(),
        facts.software(),
        command,
        seed,
        facts.commit(),
        records.source_hash(),
        facts.now(),
    )


def place(output: str, workload: str, run: Run) -> Path:
    """The result file of a workload: in the folder `output`, else in a new one of this machine."""
    if output:
        return Path(output) / f"{workload}.jsonl"
    folder = LOCAL / run.machine.key
    stamp = run.started_at.replace(":", "").replace("-", "")
    taken = (folder / f"{stamp}{suffix}" for suffix in ("", *(f"-{i}" for i in range(2, 1000))))
    return next(f for f in taken if not f.exists()) / f"{workload}.jsonl"


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
    """Visits the rows round after round, with those that `refine` asks for after the first, as far as the file lacks visits.

    `shown` gets every measurement once it is complete, resumed ones first. Ends early, with every visit kept, on --stop-after
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
            return refine([m for m in done if not settings.is_sustained(m)]) or rounds.held(done)

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
        outcome.left, outcome.begun = len(unfinished), sum(around.of(key) is not None for key in unfinished)
    return outcome


Workers = dict[tuple, Worker]  # by their process's number and environment


@contextlib.contextmanager
def workers(shared: Workers | None = None) -> Iterator[Workers]:
    """Where workers are kept by their process's number and environment: those `shared` by several sweeps, else ended with one."""
    made: Workers = {}
    try:
        yield made if shared is None else shared
    finally:
        for worker in made.values():
            worker.close()


class _Runner:
    """Asks the worker of each environment, and keeps the speeds seen, to predict calls that would take too long."""

    def __init__(self, here: records.Machine, measuring: Measuring, processes: Workers):
        self._uuids, self._workers = here.uuids, processes
        self._limits = measuring.limits
        self._rigorous = measuring.rigorous
        self._seed = measuring.seed
        self._seen: dict[str, tuple[float, Problem]] = {}
        self._beside: dict[tuple, float] = {}  # what the last visit of a kind to a device took beside its guess

    def expected_s(self, row: Row, number: int) -> float:
        """Seconds of a visit: its guess, times what this run's last one like it took beside its own; 0 before any was made."""
        return self._guess_s(row, number) * self._beside.get((row.device, min(number, 2)), bool(self._beside))

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
        order, alone = Order("visit", row, self._limits, self._seed, number), self._rigorous
        for other in [key for key in self._workers if alone and key[0] != number]:
            self._workers.pop(other).close()
        m = self._answer(order, process=number * alone)
        samples = tuple(replace(s, stop_reason="visit", is_by_process=alone) for s in m.samples)
        return replace(m, visit=number, at=m.at or facts.now(), samples=samples)

    def _whole(self, row: Row) -> Measurement:
        """In one go; from several processes where they are to be fresh and with --rigorous. The first that is not ok ends it.
        A framework's processes are then kept for the rows to come: each row is still timed in that many."""
        fresh, order = row.process == "fresh", Order("measure", row, self._limits, self._seed)
        if not (fresh or self._rigorous):
            return self._answer(order)
        parts: list[Measurement] = []
        while len(parts) < plan.RIGOROUS_PROCESSES and (not parts or parts[-1].status == "ok"):
            parts.append(self._answer(order, fresh or row.backend not in FRAMEWORKS, -len(parts)))
        return merged(parts)

    def _answer(self, order: Order, fresh: bool = False, process: int = 0) -> Measurement:
        """The worker's answer to an order: a fresh worker, or the one kept for this environment and `process` number."""
        row = order.row
        timeout_s = _LONGEST_ROW_S + row.problem.patience_s + 6 * self._limits.max_time + 10 * self._predicted_s(row)
        variables = environment(row, self._uuids)
        if fresh:
            self._make_room(row)
            with contextlib.closing(Worker(variables, patient=True)) as worker:
                return worker.ask(order, timeout_s)
        variables |= SHARED if self._rigorous else {}
        key = (process, *sorted(variables.items()))
        self._make_room(row, key)
        if key not in self._workers:
            self._workers[key] = Worker(variables, patient=True)
        return self._workers[key].ask(order, timeout_s)

    def _make_room(self, row: Row, key: tuple = ()) -> None:
        """Ends idle framework processes, except the one of `key`, when the row needs their memory: they keep all that they
        ever took, and a training takes its whole GPU."""
        for other, worker in self._workers.items():
            alone = row.on_gpu and not SHARED.items() <= set(other[1:])
            if other != key and "KERAS_BACKEND" in dict(other[1:]) and (alone or _lacks_memory(row)):
                worker.close()

    def learn(self, done: Measurement, number: int = 0, took: float = 0.0) -> None:
        if done.ok and took:
            self._beside[done.device, min(number, 2)] = took / self._guess_s(done.row, number)
        one_layer = done.problem.op == "layer"  # another is no other size of it
        if done.status == "ok" and done.samples and done.problem.flops and not one_layer:
            seconds = min(done.samples[0].seconds)
            self._seen[rounds.way(done.row)] = (seconds, done.problem)

    def _predicted_s(self, row: Row) -> float:
        """Seconds of a call, predicted from the FLOP rate of the size before in the same kernel and settings; 0 if that call
        was too short or too small, as its time is then mostly a call's fixed cost."""
        seconds, problem = self._seen.get(rounds.way(row), (0.0, None))
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
    try:
        both = (signal.SIGINT, signal.SIGTERM)
        old = {s: signal.signal(s, lambda number, frame: stop(signal.Signals(number).name)) for s in both}
    except ValueError:  # not the main thread: whoever owns it decides
        old = {}
    try:
        yield
    finally:
        for number, handler in old.items():
            signal.signal(number, handler)
