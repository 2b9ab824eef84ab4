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

# Of every GPU of a host at once:
ROUNDS, FAST_ROUNDS = 5, 3
WINDOW_S, FAST_WINDOW_S = 0.5, 0.15
MIB = 1 << 20
# (kernel, operation, size, math, mode): full rates of the units, of the memory, of the link to the host; then products around
# the size from which a GPU wins, with their data there and with copies.
WORK = (
    *(("matmul/cupy/cublas", "matmul", 4096, math, "resident") for math in ("float32", "bfloat16")),
    ("stream/cupy/wide", "triad", 512 * MIB, "float32", "resident"),
    *(("transfer/cupy/memcpy_async", way, 256 * MIB, "float32", "resident") for way in ("h2d", "d2h")),
    *(
        ("matmul/cupy/cublas", "matmul", n, "float32", mode)
        for mode in ("resident", "roundtrip-pinned")
        for n in (128, 256, 512, 1024)
    ),
)

Taken = dict[int, list[float]]  # party -> seconds a step of each unit that ran while all were at work


class Turns(msgspec.Struct, frozen=True):
    """The schedule by which sets of parties take turns: number of rounds, seconds of a window, and the seed of the data."""

    rounds: int
    window_s: float
    seed: int


@dataclasses.dataclass
class Took:
    """Results of parties that took turns: each party's answer to its preparation, the seconds per step of each set in each
    round, and the answer that ended the turns early, if one did."""

    parties: list[Row]
    prepared: list[Measurement] = dataclasses.field(default_factory=list)
    rounds: list[dict[tuple[int, ...], Taken]] = dataclasses.field(default_factory=list)
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
    window, slice_ = Limits(visit_s=turns.window_s), Limits(visit_s=turns.window_s / SLICES)
    took = Took(parties)
    for row, worker in zip(parties, workers, strict=True):
        answer = worker.ask(Order("prepare", row, window, turns.seed), timeout(row.problem))
        took.prepared.append(answer)
        if not answer.ok:
            took.ended_by = answer
            return took
    asks = {
        party: functools.partial(worker.ask, Order("window", row, slice_, turns.seed), _PATIENCE_S)
        for party, (row, worker) in enumerate(zip(parties, workers, strict=True))
    }
    for i in range(turns.rounds):
        took.rounds.append({})
        for members in sets if i % 2 == 0 else reversed(sets):
            windows = at_once({party: asks[party] for party in members}, turns.window_s)
            took.ended_by = next((m for given in windows.values() for m in given if not m.ok), None)
            if took.ended_by:
                return took
            taken = took.rounds[-1][members] = inside(windows)
            if not all(taken.values()):
                short = f"no step ended within a window of {units.seconds(turns.window_s)} while all were at work"
                took.ended_by = parties[members[0]].result("failed", f"{short}: take a smaller batch or model")
                return took
    return took


def at_once(asks: dict[int, Callable[[], Measurement]], window_s: float) -> dict[int, list[Measurement]]:
    """The windows of each party, requested again and again in a thread each: until all have worked for `window_s` seconds and
    done FEWEST units meanwhile, until one fails, or until LONGEST_S is over."""
    found: dict[int, list[Measurement]] = {party: [] for party in asks}
    over, begun, broken = threading.Event(), time.monotonic(), []

    def done() -> bool:
        windows = {party: list(given) for party, given in found.items()}
        if any(not m.ok for given in windows.values() for m in given) or time.monotonic() - begun > LONGEST_S:
            return True
        if not all(windows.values()):
            return False
        begin = max(given[0].series["end_s"][0] for given in windows.values())
        end = min(given[-1].series["end_s"][-1] for given in windows.values())
        return end - begin >= window_s and all(len(own) >= FEWEST for own in inside(windows).values())

    def work(party: int, ask: Callable) -> None:
        try:
            while not over.is_set():
                found[party].append(ask())
                if done():
                    over.set()
        except Exception as error:  # raised where the parties are waited for; nobody waits when we were told to stop
            broken.append(error)
        finally:
            over.set()  # whatever ended this party ends the others

    threads = [threading.Thread(target=work, args=one, daemon=True) for one in asks.items()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if broken:
        raise broken[0]
    return found


def inside(taken: dict[int, list[Measurement]]) -> Taken:
    """Seconds a step of each party's units that lie wholly within the time when all parties worked, the first unit of each left
    out as warm-up."""
    units = {
        name: [
            (b, e, m.values["steps"])
            for m in windows
            for b, e in zip(m.series["begin_s"], m.series["end_s"], strict=True)
        ]
        for name, windows in taken.items()
    }
    begin, end = max(found[0][1] for found in units.values()), min(found[-1][1] for found in units.values())
    return {
        name: [(e - b) / steps for b, e, steps in found if b >= begin and e <= end] for name, found in units.items()
    }


def measured(row: Row, took: Took, members: tuple[int, ...], parties: Sequence[int]) -> Measurement:
    """A row of these `parties` from the rounds of those members. host-latency: seconds a step (or call) as each party sees it,
    a block a round. host-throughput, where several do the same: seconds by the steps of all of them. Of rounds that an answer
    ended, that answer."""
    if bad := took.ended_by:
        own = bad.row == took.parties[parties[0]]
        reason = bad.reason if own else f"what ran beside it ended: {bad.reason}"
        return row.result(bad.status, reason, flags=bad.flags, cause=bad.cause)
    taken = [by_members[members] for by_members in took.rounds]
    each = [[s for party in parties for s in round_[party]] for round_ in taken]
    block_sizes = tuple(map(len, each))
    why = f"{len(taken)} alternating rounds"
    samples = [Samples("host-latency", tuple(s for round_ in each for s in round_), 1, block_sizes, why)]
    if len(parties) > 1:
        rates = [sum(1 / statistics.mean(round_[party]) for party in parties) for round_ in taken]
        samples.append(Samples("host-throughput", tuple(1 / rate for rate in rates), 1, (1,) * len(rates), why))
    prepared = took.prepared[parties[0]]
    return replace(prepared, kernel=row.kernel, problem=row.problem, settings=row.settings, samples=tuple(samples))


def alone_and_together(rows: list[Row], workers: list[Worker], turns: Turns) -> Generator[Measurement]:
    """The rows of each party alone, then those of each while all are at work."""
    count = len(rows) // 2
    parties, sets = rows[:count], (*((i,) for i in range(count)), tuple(range(count)))
    took = in_turns(parties, workers, sets, turns)
    for i, row in enumerate(rows):
        yield measured(row, took, sets[min(i, count)], [i % count])


def timeout(problem: Problem) -> float:
    return _PATIENCE_S + problem.patience_s


def studied(
    study: str,
    experiments: Sequence[RowGroup],
    measuring: Measuring,
    run: Run,
    shown: Callable[[Measurement], None] = lambda m: None,
) -> sweep.Outcome:
    """Carries out the experiments that the study's file, `STUDY.jsonl`, lacks; none that may end after --stop-after."""
    begin, longest = time.monotonic(), 0.0
    file = sweep.place(measuring.output, study, run)
    with records.Writer(file, run, measuring.resume) as writer, sweep.signals():
        before = {m.key: m for m in writer.done if m.ok}
        outcome = sweep.Outcome(run, writer.path, [])
        try:
            for i, experiment in enumerate(experiments):
                outcome.left = sum(len(later.rows) for later in experiments[i:])
                started = time.monotonic()
                if measuring.stop_after_s and started - begin + longest > measuring.stop_after_s:
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
                longest = max(longest, time.monotonic() - started)
            outcome.left = 0
        except sweep.Stopped as stop:
            outcome.stopped = str(stop)
    return outcome


def every_gpu_rows(gpus: list[int]) -> list[Row]:
    """The rows of every kind of work on each GPU of a host, alone and while all GPUs do it."""
    every = ",".join(map(str, gpus))
    return [
        Row(kernel, AtOnce(operation, size, at_work or str(gpu), math), Settings(f"gpu:{gpu}", mode=mode))
        for kernel, operation, size, math, mode in WORK
        for at_work in ("", every)
        for gpu in gpus
    ]


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
        return studied("at-once", experiments, measuring, run, shown)
