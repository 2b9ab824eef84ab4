"""Several rows at the same time, each in a worker of its own: the time of each while all are working.

Sets of rows take turns, alone and together, round by round; only what was done while all were at work counts.
"""

import abc
import contextlib
import dataclasses
import functools
import statistics
import threading
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from analysis import units
from kernels.problems import AtOnce, Problem
from workloads import records, terminal
from workloads.harness import plan, sweep
from workloads.harness.timing import Limits
from workloads.harness.worker import Order, Worker, environment
from workloads.records import Machine, Measurement, Row, Run, Samples, Settings
from workloads.shared_flags import Measuring

SLICES = 10  # a window is asked for in so many parts, so that it can end soon after the slowest has done its share
FEWEST = 3  # units of work that each must do while all are at work
LONGEST_S = 120.0  # of a window in which somebody does not get there
_PATIENCE_S = 180.0  # of a window, beyond its own seconds

# Of every GPU of a host at the same time:
ROUNDS, FAST_ROUNDS = 5, 3
WINDOW_S, FAST_WINDOW_S = 0.5, 0.15
MIB = 1 << 20


class GpuWork(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of work that all GPUs of a host do at the same time."""

    #: The kernel's name.
    kernel: str
    #: What it does: matmul, triad, h2d or d2h.
    operation: str
    #: Width of the matrices, or bytes.
    size: int
    #: Arithmetic.
    math: str = "float32"
    #: Copy mode.
    mode: str = "resident"


_BLAS = "matmul/cupy/cublas"
_COPY = "transfer/cupy/memcpy_async"
#: Widths of products around the one from which a GPU wins.
_WIDTHS = (128, 256, 512, 1024)
#: Full rates of the units, of the memory, of the link to the host; then products, resident and with copies.
WORK = (
    GpuWork(kernel=_BLAS, operation="matmul", size=4096),
    GpuWork(kernel=_BLAS, operation="matmul", size=4096, math="bfloat16"),
    GpuWork(kernel="stream/cupy/wide", operation="triad", size=512 * MIB),
    GpuWork(kernel=_COPY, operation="h2d", size=256 * MIB),
    GpuWork(kernel=_COPY, operation="d2h", size=256 * MIB),
    *(GpuWork(kernel=_BLAS, operation="matmul", size=width) for width in _WIDTHS),
    *(GpuWork(kernel=_BLAS, operation="matmul", size=width, mode="roundtrip-pinned") for width in _WIDTHS),
)

#: Party -> seconds a step of each unit of work that ran while all parties were at work.
StepSeconds = dict[int, list[float]]


class Turns(msgspec.Struct, frozen=True):
    """The schedule by which sets of parties take turns."""

    #: Number of rounds.
    rounds: int
    #: Seconds of a window, in which a set of parties works.
    window_s: float
    #: Seed of the data.
    seed: int


@dataclasses.dataclass
class Took:
    """Results of parties that took turns."""

    #: What each party does.
    parties: list[Row]
    #: Each party's answer to its preparation.
    prepared: list[Measurement] = dataclasses.field(default_factory=list)
    #: For each round, the seconds a step of each set of parties.
    rounds: list[dict[tuple[int, ...], StepSeconds]] = dataclasses.field(default_factory=list)
    #: The answer that ended the turns early; None where none did.
    ended_by: Measurement | None = None


class RowGroup(abc.ABC):
    """Rows that are measured together."""

    #: What is measured, in the order of the measurements.
    rows: list[Row]

    @abc.abstractmethod
    def measure(self) -> Generator[Measurement]:
        """The measurements, one a row; workers of its own end with it."""


@contextlib.contextmanager
def workers_of(parties: list[Row], here: Machine) -> Iterator[list[Worker]]:
    """A worker a party; they end with the block."""
    workers = [Worker(environment(row, here.uuids)) for row in parties]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


def in_turns(parties: list[Row], workers: list[Worker], sets: Sequence[tuple[int, ...]], turns: Turns) -> Took:
    """Prepares the parties one after the other, each in its worker; then the sets take turns, in the opposite order every other
    round."""
    whole_window = Limits(visit_s=turns.window_s)
    slice_of_window = Limits(visit_s=turns.window_s / SLICES)
    took = Took(parties)
    asks = {}
    for party, (row, worker) in enumerate(zip(parties, workers, strict=True)):
        order = Order(verb="prepare", row=row, limits=whole_window, seed=turns.seed)
        answer = worker.ask(order, timeout(row.problem))
        took.prepared.append(answer)
        if not answer.ok:
            took.ended_by = answer
            return took
        order = Order(verb="window", row=row, limits=slice_of_window, seed=turns.seed)
        asks[party] = functools.partial(worker.ask, order, _PATIENCE_S)
    for i in range(turns.rounds):
        took.rounds.append({})
        for members in sets if i % 2 == 0 else reversed(sets):
            slices = at_once({party: asks[party] for party in members}, turns.window_s)
            took.ended_by = _first_fault(slices)
            if took.ended_by:
                return took
            seconds = inside(slices)
            took.rounds[-1][members] = seconds
            if not all(seconds.values()):
                short = f"no step ended within a window of {units.seconds(turns.window_s)} while all were at work"
                took.ended_by = parties[members[0]].result("failed", f"{short}: take a smaller batch or model")
                return took
    return took


def _first_fault(slices: dict[int, list[Measurement]]) -> Measurement | None:
    """The first answer of any party that is not ok."""
    for answers in slices.values():
        for answer in answers:
            if not answer.ok:
                return answer
    return None


def at_once(asks: dict[int, Callable[[], Measurement]], window_s: float) -> dict[int, list[Measurement]]:
    """Party -> its slices of a window, requested again and again in a thread a party: until all have worked for `window_s`
    seconds and done FEWEST units meanwhile, until one fails, or until LONGEST_S is over."""
    slices: dict[int, list[Measurement]] = {party: [] for party in asks}
    over = threading.Event()
    begin = time.monotonic()
    errors: list[Exception] = []

    def is_done() -> bool:
        so_far = {party: list(answers) for party, answers in slices.items()}
        return time.monotonic() - begin > LONGEST_S or _is_complete(so_far, window_s)

    def work(party: int, ask: Callable) -> None:
        try:
            while not over.is_set():
                slices[party].append(ask())
                if is_done():
                    over.set()
        except Exception as error:  # raised where the parties are waited for; after a signal to stop nobody waits
            errors.append(error)
        finally:
            over.set()  # whatever ended this party ends the others

    threads = [threading.Thread(target=work, args=party_and_ask, daemon=True) for party_and_ask in asks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return slices


def _is_complete(slices: dict[int, list[Measurement]], window_s: float) -> bool:
    """Whether one party failed, or all have worked for `window_s` seconds and done FEWEST units meanwhile."""
    if _first_fault(slices):
        return True
    if not all(slices.values()):
        return False
    all_began = max(answers[0].series["end_s"][0] for answers in slices.values())
    first_ended = min(answers[-1].series["end_s"][-1] for answers in slices.values())
    if first_ended - all_began < window_s:
        return False
    return all(len(seconds) >= FEWEST for seconds in inside(slices).values())


def inside(slices: dict[int, list[Measurement]]) -> StepSeconds:
    """Seconds a step of each party's units that lie wholly within the time when all parties worked, the first unit of each left
    out as warm-up."""
    units_of = {party: _units(answers) for party, answers in slices.items()}
    all_began = max(party_units[0].end_s for party_units in units_of.values())
    first_ended = min(party_units[-1].end_s for party_units in units_of.values())
    step_s: StepSeconds = {}
    for party, party_units in units_of.items():
        step_s[party] = []
        for unit in party_units:
            if unit.begin_s >= all_began and unit.end_s <= first_ended:
                step_s[party].append((unit.end_s - unit.begin_s) / unit.steps)
    return step_s


class WorkUnit(NamedTuple):
    """A unit of work: a few steps or calls that a party did in one go."""

    #: When it began, in seconds of the machine's clock.
    begin_s: float
    #: When it ended.
    end_s: float
    #: Its steps or calls.
    steps: float


def _units(answers: list[Measurement]) -> list[WorkUnit]:
    """The units of a party's slices, one after the other."""
    every = []
    for answer in answers:
        times = zip(answer.series["begin_s"], answer.series["end_s"], strict=True)
        every += [WorkUnit(begin_s=begin, end_s=end, steps=answer.values["steps"]) for begin, end in times]
    return every


def measured(row: Row, took: Took, members: tuple[int, ...], parties: Sequence[int]) -> Measurement:
    """A row of these `parties` from the rounds of those members. host-latency: seconds a step (or call) as each party sees it,
    a block a round. host-throughput, where several do the same: seconds by the steps of all of them. Of rounds that an answer
    ended, that answer."""
    if took.ended_by:
        return _ended(row, took.ended_by, took.parties[parties[0]])
    why = f"{len(took.rounds)} alternating rounds"
    seconds: list[float] = []
    block_sizes = []
    seconds_of_all = []
    for round_ in took.rounds:
        step_s = round_[members]
        before = len(seconds)
        rate = 0.0  # steps a second of all parties
        for party in parties:
            seconds += step_s[party]
            if len(parties) > 1:
                rate += 1 / statistics.mean(step_s[party])
        block_sizes.append(len(seconds) - before)
        if len(parties) > 1:
            seconds_of_all.append(1 / rate)
    latency = Samples(
        clock="host-latency", seconds=tuple(seconds), calls=1, block_sizes=tuple(block_sizes), stop_reason=why
    )
    samples = [latency]
    if len(parties) > 1:
        one_a_round = (1,) * len(seconds_of_all)
        throughput = Samples(
            clock="host-throughput", seconds=tuple(seconds_of_all), calls=1, block_sizes=one_a_round, stop_reason=why
        )
        samples.append(throughput)
    prepared = took.prepared[parties[0]]
    return replace(prepared, kernel=row.kernel, problem=row.problem, settings=row.settings, samples=tuple(samples))


def _ended(row: Row, answer: Measurement, party: Row) -> Measurement:
    """The result of a row of this party, whose rounds an answer ended."""
    reason = answer.reason
    if answer.row != party:
        reason = f"what ran beside it ended: {answer.reason}"
    return row.result(answer.status, reason, flags=answer.flags, cause=answer.cause)


def alone_and_together(rows: list[Row], workers: list[Worker], turns: Turns) -> Generator[Measurement]:
    """The rows of the parties alone, then those of the same parties while all are at work."""
    count = len(rows) // 2
    all_parties = tuple(range(count))
    sets = (*((party,) for party in all_parties), all_parties)
    took = in_turns(rows[:count], workers, sets, turns)
    for party in all_parties:
        yield measured(rows[party], took, (party,), [party])
    for party in all_parties:
        yield measured(rows[count + party], took, all_parties, [party])


def timeout(problem: Problem) -> float:
    """Seconds to wait for a party's answer to its preparation."""
    return _PATIENCE_S + problem.patience_s


def studied(
    study: str,
    experiments: Sequence[RowGroup],
    *,
    measuring: Measuring,
    run: Run,
    shown: Callable[[Measurement], None] = lambda m: None,
) -> sweep.Outcome:
    """Carries out the experiments that the study's file, `STUDY.jsonl`, lacks; none that may end after --stop-after."""
    begin = time.monotonic()
    longest_s = 0.0
    file = sweep.place(measuring.output, study, run)
    with records.Writer(file, run, measuring.resume) as writer, sweep.signals():
        before = {m.key: m for m in writer.done if m.ok}
        outcome = sweep.Outcome(run=run, path=writer.path, measurements=[])
        try:
            for i, experiment in enumerate(experiments):
                outcome.left = sum(len(later.rows) for later in experiments[i:])
                started = time.monotonic()
                if measuring.stop_after_s and started - begin + longest_s > measuring.stop_after_s:
                    outcome.stopped = "stop-after"
                    return outcome
                stored = [before[row.key] for row in experiment.rows if row.key in before]
                if len(stored) == len(experiment.rows):
                    outcome.measurements += stored
                    for m in stored:
                        shown(m)
                    continue
                if not measuring.quiet:
                    terminal.note(f"{study}: {plan.name(experiment.rows[0])}")
                with contextlib.closing(experiment.measure()) as measured:  # closing: its workers end with it
                    for m in measured:
                        writer.append(m)
                        outcome.measurements.append(m)
                        shown(m)
                longest_s = max(longest_s, time.monotonic() - started)
            outcome.left = 0
        except sweep.Stopped as stop:
            outcome.stopped = str(stop)
    return outcome


def every_gpu_rows(gpus: list[int]) -> list[Row]:
    """The rows of every kind of work on each GPU of a host, alone and while all GPUs do it."""
    every = ",".join(map(str, gpus))
    rows = []
    for work in WORK:
        for gpu in gpus:
            rows.append(_gpu_row(work, gpu, at_work=str(gpu)))
        for gpu in gpus:
            rows.append(_gpu_row(work, gpu, at_work=every))
    return rows


def _gpu_row(work: GpuWork, gpu: int, at_work: str) -> Row:
    """The row of one GPU's work while those `at_work` do the same; their numbers, with commas."""
    problem = AtOnce(work.operation, work.size, at_work, work.math)
    return Row(work.kernel, problem, Settings(f"gpu:{gpu}", mode=work.mode))


@dataclasses.dataclass(frozen=True, kw_only=True)
class AloneAndTogether(RowGroup):
    """One kind of work of each GPU alone, and of each while all GPUs are at it."""

    #: The GPUs alone, then the GPUs while all are at work.
    rows: list[Row]
    #: A worker a GPU.
    workers: list[Worker]
    #: How they take turns.
    turns: Turns

    def measure(self) -> Generator[Measurement]:
        return alone_and_together(self.rows, self.workers, self.turns)


def every_gpu(
    gpus: list[int], measuring: Measuring, run: Run, shown: Callable[[Measurement], None] = lambda m: None
) -> sweep.Outcome:
    """Measures these rows into at-once.jsonl by a worker a GPU, which lives over all rows; the sweep.Outcome."""
    rows = every_gpu_rows(gpus)
    if measuring.fast:
        turns = Turns(FAST_ROUNDS, FAST_WINDOW_S, measuring.seed)
    else:
        turns = Turns(ROUNDS, WINDOW_S, measuring.seed)
    rows_of_a_work = 2 * len(gpus)
    with workers_of(rows[: len(gpus)], run.machine) as workers:
        experiments = []
        for begin in range(0, len(rows), rows_of_a_work):
            work = rows[begin : begin + rows_of_a_work]
            experiments.append(AloneAndTogether(rows=work, workers=workers, turns=turns))
        return studied("at-once", experiments, measuring=measuring, run=run, shown=shown)
