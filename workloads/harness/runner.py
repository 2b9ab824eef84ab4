"""Has the visits of a sweep measured: chooses the worker process for each, and predicts calls that would take too long."""

import contextlib
import dataclasses
from collections.abc import Iterator

from msgspec.structs import replace

from kernels.problems import Problem
from kernels.registry import FRAMEWORKS
from workloads import records
from workloads.harness import plan, rounds
from workloads.harness.rounds import Visit
from workloads.harness.worker import SHARED, Order, Worker, environment
from workloads.machine import facts
from workloads.records import Measurement, Row
from workloads.records.visits import merged
from workloads.shared_flags import Measuring

_LONGEST_ROW_S = 120.0  # beyond what the clocks may take: inputs, compilation, the check
_ROOM = 8  # times a problem's own arrays
LONGEST_CALL_S = 10.0  # a call predicted to take longer is skipped
_SHORTEST_PREDICTOR_S = 1e-3  # a shorter call is mostly its fixed cost, and predicts no other
_MOST_TIMES_FLOPS = 64  # a call of fewer FLOPs predicts none of so many times as many


@dataclasses.dataclass(frozen=True, kw_only=True)
class WorkerKey:
    """Which rows share a worker process."""

    #: Distinguishes processes with the same environment.
    process: int
    #: The environment variables of the process, sorted.
    variables: tuple[tuple[str, str], ...]


#: The workers of a sweep.
Workers = dict[WorkerKey, Worker]


@contextlib.contextmanager
def workers(shared: Workers | None = None) -> Iterator[Workers]:
    """A place for the workers of a sweep, which end with the `with` block.

    shared: workers of several sweeps, which are used in their place and do not end.
    """
    if shared is not None:
        yield shared
        return
    pool: Workers = {}
    try:
        yield pool
    finally:
        for worker in pool.values():
            worker.close()


@dataclasses.dataclass(frozen=True, kw_only=True)
class TimedCall:
    """A call that was timed, from which a call of another size is predicted."""

    #: Seconds of the shortest sample.
    seconds: float
    #: What it computed.
    problem: Problem


class Runner:
    """Measures the visits of a sweep, each in the worker process for its row's environment."""

    def __init__(self, here: records.Machine, measuring: Measuring, processes: Workers):
        """processes: the workers to use, to which this adds those that it starts."""
        self._uuids = here.uuids
        self._workers = processes
        self._limits = measuring.limits
        self._rigorous = measuring.rigorous
        self._seed = measuring.seed
        #: Kernel, arithmetic and settings as rounds.size_series writes them -> the last call that was timed.
        self._last_call: dict[str, TimedCall] = {}
        #: (device, kind of visit) -> seconds that the last such visit took, as a multiple of its guess.
        self._guess_ratio: dict[tuple[str, str], float] = {}

    def expected_s(self, visit: Visit) -> float:
        """Seconds that a visit will probably take: a guess, corrected by how far the guess of the last visit of its kind was
        off. 0 before the first visit of any kind."""
        if not self._guess_ratio:
            return 0.0
        ratio = self._guess_ratio.get((visit.row.device, _kind(visit.round)), 1.0)
        return self._guess_s(visit.row, visit.round) * ratio

    def _guess_s(self, row: Row, round_number: int) -> float:
        """Seconds of a visit in this round (0: of the row in one go), before anything is known of this machine."""
        if round_number == 0:
            return plan.seconds(row, rigorous=self._rigorous)
        return self._limits.visit_s

    def measure(self, visit: Visit) -> Measurement:
        """The result of a visit. A row whose call is predicted to take more than LONGEST_CALL_S is skipped."""
        row = visit.row
        call_s = self._predicted_s(row)
        if visit.round <= 1 and call_s > LONGEST_CALL_S:  # later rounds: the first has timed the call
            reason = f"one call would take about {call_s:.0f} s, going by the size before"
            return row.result("skipped", reason, at=facts.now(), visit=visit.round)
        if visit.round == 0:
            return self._measure_whole(row)
        return self._measure_visit(row, visit.round)

    def _measure_visit(self, row: Row, round_number: int) -> Measurement:
        """The samples of a row in one round. With --rigorous each round has processes of its own: those of earlier rounds end."""
        order = Order(verb="visit", row=row, limits=self._limits, seed=self._seed, visit=round_number)
        process = 0
        if self._rigorous:
            process = round_number
            for key in [key for key in self._workers if key.process != round_number]:
                self._workers.pop(key).close()
        m = self._answer(order, process=process)
        samples = [replace(s, stop_reason="visit", is_by_process=self._rigorous) for s in m.samples]
        return replace(m, visit=round_number, at=m.at or facts.now(), samples=tuple(samples))

    def _measure_whole(self, row: Row) -> Measurement:
        """A row timed in one go; in several processes, joined, with --rigorous and where each sample needs a fresh process. The
        first process whose result is not ok ends it.

        With --rigorous the processes of a framework stay for the rows to come, as it takes seconds to start.
        """
        fresh = row.process == "fresh"
        order = Order(verb="measure", row=row, limits=self._limits, seed=self._seed)
        if not (fresh or self._rigorous):
            return self._answer(order)
        parts: list[Measurement] = []
        while len(parts) < plan.RIGOROUS_PROCESSES and (not parts or parts[-1].status == "ok"):
            if fresh or row.backend not in FRAMEWORKS:
                parts.append(self._answer_of_fresh_worker(order))
            else:
                process = -len(parts)  # negative: no process of a round has such a number
                parts.append(self._answer(order, process=process))
        return merged(parts)

    def _answer_of_fresh_worker(self, order: Order) -> Measurement:
        """The answer to an order of a worker that is started for it and ends with it."""
        self._end_idle_frameworks(order.row, but=None)
        with contextlib.closing(Worker(environment(order.row, self._uuids), patient=True)) as worker:
            return worker.ask(order, self._timeout_s(order.row))

    def _answer(self, order: Order, process: int = 0) -> Measurement:
        """The answer to an order of the worker with the row's environment, which is started if there is none.

        process: distinguishes workers with the same environment.
        """
        variables = environment(order.row, self._uuids)
        if self._rigorous:
            variables |= SHARED
        key = WorkerKey(process=process, variables=tuple(sorted(variables.items())))
        self._end_idle_frameworks(order.row, but=key)
        if key not in self._workers:
            self._workers[key] = Worker(variables, patient=True)
        return self._workers[key].ask(order, self._timeout_s(order.row))

    def _timeout_s(self, row: Row) -> float:
        """Seconds after which a worker that announces nothing is stopped."""
        clocks_s = 6 * self._limits.max_time + 10 * self._predicted_s(row)
        return _LONGEST_ROW_S + row.problem.patience_s + clocks_s

    def _end_idle_frameworks(self, row: Row, but: WorkerKey | None) -> None:
        """Ends the worker processes of frameworks, except the one of the key `but`, if the row needs their memory: a framework
        keeps all memory that it ever took, and a training takes its whole GPU."""
        for key, worker in self._workers.items():
            variables = dict(key.variables)
            is_framework = "KERAS_BACKEND" in variables
            if key == but or not is_framework:
                continue
            takes_whole_gpu = row.on_gpu and not SHARED.items() <= variables.items()
            if takes_whole_gpu or _lacks_memory(row):
                worker.close()

    def learn(self, measurement: Measurement, round_number: int = 0, took_s: float = 0.0) -> None:
        """Learns from the result of a visit, for the predictions of later ones.

        round_number: the visit's round; 0 for a row timed in one go. took_s: seconds of the visit; 0 where they are not known.
        """
        if not measurement.ok:
            return
        if took_s:
            ratio = took_s / self._guess_s(measurement.row, round_number)
            self._guess_ratio[measurement.device, _kind(round_number)] = ratio
        is_layer = measurement.problem.op == "layer"  # another layer is no other size of it
        if measurement.samples and measurement.problem.flops and not is_layer:
            series = rounds.size_series(measurement.row)
            seconds = min(measurement.samples[0].seconds)
            self._last_call[series] = TimedCall(seconds=seconds, problem=measurement.problem)

    def _predicted_s(self, row: Row) -> float:
        """Seconds of a call of the row, at the FLOP rate of the last call of the same kernel in the same settings. 0 where that
        call was too short or too small to tell, or there was none."""
        last = self._last_call.get(rounds.size_series(row))
        if last is None or type(last.problem) is not type(row.problem):
            return 0.0
        is_too_small = row.problem.flops > _MOST_TIMES_FLOPS * last.problem.flops
        if last.seconds < _SHORTEST_PREDICTOR_S or is_too_small:
            return 0.0
        return last.seconds * row.problem.flops / last.problem.flops


def _kind(round_number: int) -> str:
    """Rounds whose visits take alike: 0 stands for a row timed in one go, the first round binds and checks, later ones only
    time."""
    if round_number == 0:
        return "whole"
    return "first" if round_number == 1 else "later"


def _lacks_memory(row: Row) -> bool:
    """Whether the row's arrays, _ROOM times for temporaries, exceed the free memory of its device."""
    return _ROOM * row.problem.footprint_bytes > facts.memory_available(row.device)
