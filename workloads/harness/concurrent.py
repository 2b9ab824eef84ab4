"""Times several rows while they run at the same time, each in a worker process of its own, and each of them alone.

Sets of parties (rows, each with its worker) work in turn, round by round, for a window of some hundred milliseconds, of which
only what was done while all parties of the set were at work counts.
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

SLICES = 10  # parts of a window, each an order to the worker, so that it can end soon after the slowest party has done its share
FEWEST = 3  # units of work that each party must do while all are at work
LONGEST_S = 120.0  # of a window in which a party does less
_PATIENCE_S = 180.0  # to wait for the answer to an order, beyond its own seconds

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
    """The schedule by which sets of parties work in turn."""

    #: Number of rounds.
    rounds: int
    #: Seconds of a window, in which a set of parties works.
    window_s: float
    #: Seed of the data.
    seed: int


@dataclasses.dataclass
class AlternatingResults:
    """Results of sets of parties that worked in turn."""

    #: The row of each party.
    parties: list[Row]
    #: What each party's worker answered when it was told to prepare, for instance how its result was checked.
    prepared: list[Measurement] = dataclasses.field(default_factory=list)
    #: For each round: the numbers of a set's parties -> the seconds of their steps.
    rounds: list[dict[tuple[int, ...], StepSeconds]] = dataclasses.field(default_factory=list)
    #: The answer that ended the rounds early, as it was not ok; None where none did.
    ended_by: Measurement | None = None


class RowGroup(abc.ABC):
    """Rows that are measured together."""

    #: What is measured, in the order of the measurements.
    rows: list[Row]

    @abc.abstractmethod
    def measure(self) -> Generator[Measurement]:
        """Yields the measurements, one for each row. Workers that it starts end with the generator."""


@contextlib.contextmanager
def workers_of(parties: list[Row], here: Machine) -> Iterator[list[Worker]]:
    """A worker process for each party (row). They end with the `with` block. here: this machine."""
    workers = [Worker(environment(row, here.uuids)) for row in parties]
    try:
        yield workers
    finally:
        for worker in workers:
            worker.close()


def in_turns(
    parties: list[Row], workers: list[Worker], sets: Sequence[tuple[int, ...]], turns: Turns
) -> AlternatingResults:
    """Has each worker prepare its party, one after the other; then the sets of parties work in turn, in the opposite order every
    other round. The first answer that is not ok ends it.

    parties: the rows. workers: one for each. sets: the numbers of the parties that work at the same time.
    """
    whole_window = Limits(visit_s=turns.window_s)
    slice_of_window = Limits(visit_s=turns.window_s / SLICES)
    results = AlternatingResults(parties)
    work_slices: dict[int, Callable[[], Measurement]] = {}  # party -> has its worker do a slice of a window
    for party, (row, worker) in enumerate(zip(parties, workers, strict=True)):
        order = Order(verb="prepare", row=row, limits=whole_window, seed=turns.seed)
        answer = worker.ask(order, timeout(row.problem))
        results.prepared.append(answer)
        if not answer.ok:
            results.ended_by = answer
            return results
        order = Order(verb="window", row=row, limits=slice_of_window, seed=turns.seed)
        work_slices[party] = functools.partial(worker.ask, order, _PATIENCE_S)
    for round_number in range(turns.rounds):
        results.rounds.append({})
        for members in sets if round_number % 2 == 0 else reversed(sets):
            slices = at_once({party: work_slices[party] for party in members}, turns.window_s)
            results.ended_by = _first_fault(slices)
            if results.ended_by:
                return results
            step_s = common_step_seconds(slices)
            results.rounds[-1][members] = step_s
            if not all(step_s.values()):
                fault = f"no step ended within a window of {units.seconds(turns.window_s)} while all were at work"
                results.ended_by = parties[members[0]].result("failed", f"{fault}: take a smaller batch or model")
                return results
    return results


def _first_fault(slices: dict[int, list[Measurement]]) -> Measurement | None:
    """The first answer of any party that is not ok; None if all are. slices: party -> its answers in a window."""
    for answers in slices.values():
        for answer in answers:
            if not answer.ok:
                return answer
    return None


def at_once(work_slices: dict[int, Callable[[], Measurement]], window_s: float) -> dict[int, list[Measurement]]:
    """Has several parties (rows, each with its worker process) work at the same time for a window. Returns the number of a
    party -> its worker's answers, one for each slice of the window.

    work_slices: party -> has its worker do a slice of work, and returns the answer. It is called again and again, until all
    parties have worked for `window_s` seconds and have done FEWEST units of work meanwhile, one fails, or LONGEST_S is over.
    """
    slices: dict[int, list[Measurement]] = {party: [] for party in work_slices}
    over = threading.Event()
    begin = time.monotonic()
    errors: list[Exception] = []

    def is_done() -> bool:
        so_far = {party: list(answers) for party, answers in slices.items()}
        return time.monotonic() - begin > LONGEST_S or _is_complete(so_far, window_s)

    def work(party: int, work_slice: Callable[[], Measurement]) -> None:
        """Has one party do slices of work until the window is over."""
        try:
            while not over.is_set():
                slices[party].append(work_slice())
                if is_done():
                    over.set()
        except Exception as error:  # raised where the parties are waited for; after a signal to stop nobody waits
            errors.append(error)
        finally:
            over.set()  # whatever ended this party ends the others

    threads = [threading.Thread(target=work, args=arguments, daemon=True) for arguments in work_slices.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    return slices


def _is_complete(slices: dict[int, list[Measurement]], window_s: float) -> bool:
    """Whether a window may end: a party failed, or all have worked for `window_s` seconds and done FEWEST units of work
    meanwhile.

    slices: party -> its answers so far, whose series have the times at which units of work began and ended.
    """
    if _first_fault(slices):
        return True
    if not all(slices.values()):
        return False
    all_began = max(answers[0].series["end_s"][0] for answers in slices.values())
    first_ended = min(answers[-1].series["end_s"][-1] for answers in slices.values())
    if first_ended - all_began < window_s:
        return False
    return all(len(seconds) >= FEWEST for seconds in common_step_seconds(slices).values())


def common_step_seconds(slices: dict[int, list[Measurement]]) -> StepSeconds:
    """Party -> seconds of a step in each of its units of work that lie wholly in the time in which all parties worked. That
    begins when each party has done its first unit, which warms up.

    slices: party -> its answers, whose series have the times at which units of work began and ended.
    """
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
    """The units of work in a party's answers, in order of time."""
    every: list[WorkUnit] = []
    for answer in answers:
        steps = answer.values["steps"]  # of each unit
        for begin_s, end_s in zip(answer.series["begin_s"], answer.series["end_s"], strict=True):
            every.append(WorkUnit(begin_s=begin_s, end_s=end_s, steps=steps))
    return every


def measured(row: Row, results: AlternatingResults, members: tuple[int, ...], parties: Sequence[int]) -> Measurement:
    """The measurement of a row: how fast `parties` worked in the windows of the set `members`, which they are a part of.

    Its samples are seconds of a step (or call), a block for each round: on host-latency as each party sees them; on
    host-throughput, where several parties do the same, the time by the steps of all of them. If the rounds ended early, it has
    the reason.
    """
    if results.ended_by:
        return _ended(row, results.ended_by, party_row=results.parties[parties[0]])
    by_round: list[StepSeconds] = []
    for sets_of_round in results.rounds:
        step_s = sets_of_round[members]
        by_round.append({party: step_s[party] for party in parties})
    samples = [_latency(by_round)]
    if len(parties) > 1:
        samples.append(_throughput(by_round))
    prepared = results.prepared[parties[0]]
    return replace(prepared, kernel=row.kernel, problem=row.problem, settings=row.settings, samples=tuple(samples))


def _latency(by_round: list[StepSeconds]) -> Samples:
    """The seconds of all steps, a block for each round. by_round: for each round, party -> seconds of its steps."""
    seconds: list[float] = []
    block_sizes: list[int] = []
    for step_s in by_round:
        before = len(seconds)
        for seconds_of_party in step_s.values():
            seconds += seconds_of_party
        block_sizes.append(len(seconds) - before)
    return Samples(
        clock="host-latency",
        seconds=tuple(seconds),
        calls=1,
        block_sizes=tuple(block_sizes),
        stop_reason=f"{len(by_round)} alternating rounds",
    )


def _throughput(by_round: list[StepSeconds]) -> Samples:
    """The seconds by the steps of all parties together: one sample and block for each round. by_round: for each round, party ->
    seconds of its steps."""
    seconds: list[float] = []
    for step_s in by_round:
        steps_per_s = 0.0  # of all parties
        for seconds_of_party in step_s.values():
            steps_per_s += 1 / statistics.mean(seconds_of_party)
        seconds.append(1 / steps_per_s)
    return Samples(
        clock="host-throughput",
        seconds=tuple(seconds),
        calls=1,
        block_sizes=(1,) * len(seconds),
        stop_reason=f"{len(by_round)} alternating rounds",
    )


def _ended(row: Row, answer: Measurement, party_row: Row) -> Measurement:
    """The result of a row whose rounds ended early.

    answer: that ended them, of this party or another. party_row: what the row's own party did.
    """
    reason = answer.reason
    if answer.row != party_row:
        reason = f"what ran beside it ended: {answer.reason}"
    return row.result(answer.status, reason, flags=answer.flags, cause=answer.cause)


def alone_and_together(rows: list[Row], workers: list[Worker], turns: Turns) -> Generator[Measurement]:
    """Yields the measurements of these rows. The first half is the rows of parties that work alone; the second half is the
    rows of the same parties, in the same order, while all work.

    workers: one for each party.
    """
    count = len(rows) // 2
    all_parties = tuple(range(count))
    sets = (*((party,) for party in all_parties), all_parties)
    results = in_turns(rows[:count], workers, sets, turns)
    for party in all_parties:
        yield measured(rows[party], results, (party,), [party])
    for party in all_parties:
        yield measured(rows[count + party], results, all_parties, [party])


def timeout(problem: Problem) -> float:
    """Seconds to wait until a worker has prepared a row with this problem."""
    return _PATIENCE_S + problem.patience_s


def studied(
    study: str,
    experiments: Sequence[RowGroup],
    *,
    measuring: Measuring,
    run: Run,
    shown: Callable[[Measurement], None] = lambda m: None,
) -> sweep.Outcome:
    """Measures groups of rows into the result file of a study, `STUDY.jsonl`. Groups that a resumed file has are not measured
    again.

    shown: called with each measurement. Ends early on SIGINT and SIGTERM, and before a group that would end after --stop-after if
    it took as long as the longest one so far.
    """
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
    """The rows of every kind of work in WORK: for each kind those of each GPU alone, then those of each GPU while all do it.

    gpus: the numbers of the host's GPUs.
    """
    every = ",".join(map(str, gpus))
    rows = []
    for work in WORK:
        for gpu in gpus:
            rows.append(_gpu_row(work, gpu, at_work=str(gpu)))
        for gpu in gpus:
            rows.append(_gpu_row(work, gpu, at_work=every))
    return rows


def _gpu_row(work: GpuWork, gpu: int, at_work: str) -> Row:
    """The row of one GPU's work. at_work: the numbers of the GPUs that do the same at the same time, itself among them, with
    commas between them."""
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
    """Measures every kind of work on each GPU of this host, alone and while all GPUs do it, into at-once.jsonl. Each GPU has one
    worker process for all rows.

    gpus: the numbers of the GPUs. shown: called with each measurement.
    """
    rows = every_gpu_rows(gpus)
    if measuring.fast:
        turns = Turns(rounds=FAST_ROUNDS, window_s=FAST_WINDOW_S, seed=measuring.seed)
    else:
        turns = Turns(rounds=ROUNDS, window_s=WINDOW_S, seed=measuring.seed)
    rows_of_a_work = 2 * len(gpus)
    with workers_of(rows[: len(gpus)], run.machine) as workers:
        experiments = []
        for begin in range(0, len(rows), rows_of_a_work):
            work = rows[begin : begin + rows_of_a_work]
            experiments.append(AloneAndTogether(rows=work, workers=workers, turns=turns))
        return studied("at-once", experiments, measuring=measuring, run=run, shown=shown)
