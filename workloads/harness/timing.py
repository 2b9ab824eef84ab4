"""The clocks, each a function `take(calls) -> seconds`, and a visit: the samples of a row on a clock, taken in one go.

Host clocks read time.perf_counter around `calls` calls; the device clock reads CUDA events around them.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kernels.cuda.autotuner import milliseconds
from kernels.cuda.blocking_kernel import batches
from workloads.records import Samples
from workloads.records.visits import joined
from workloads.shared_flags import Limits

#: A clock around calls: makes as many calls as it is told and returns their seconds together. It may have two attributes:
#: `resets` (True: it also does untimed work for each call) and `flags` (of the row, raised while it timed).
Take = Callable[[int], float]
# A visit ends early after so many times its planned seconds: on a busy host calls can be 100x slower than when it was planned.
OVERTIME = 4
MOST_SAMPLES = 10  # per visit
LONG_S = 1.0  # a first call of so many seconds is not repeated to learn how long a call takes
BLOCKED_BELOW_S = 1e-3  # shorter calls are queued behind a blocked stream, so that Python leaves no gaps between them
BLOCKED_CALLS = (
    200  # calls behind a blocked stream: fewer than its launch queue takes, and issued well before it is released
)
ISSUED_CALLS = 100  # calls issued before the queue is emptied
FEWEST_ROUNDS = 3  # of a row that is timed in one go, however long they take
_SHORTEST_CALL_S = 1e-9  # no call is taken to be shorter: a clock may give 0
FEWEST_LATER = 3  # epochs timed after a training's first one, if epochs are long


#: Makes one call of what is timed.
Run = Callable[[], object]


def host(run: Run) -> Take:
    """Host clock around calls that return when they are done, such as those of CPU kernels."""
    return throughput(run, synchronize=lambda: None)


def latency(run: Run, synchronize: Callable[[], object]) -> Take:
    """Host clock around calls each of which is waited for, as by a program that needs each result before it goes on.

    synchronize: waits until the device is done.
    """

    def take(calls: int) -> float:
        """Seconds of so many calls, each of them waited for."""
        repeat = itertools.repeat(None, calls)
        begin = time.perf_counter()
        for _ in repeat:
            run()
            synchronize()
        return time.perf_counter() - begin

    return take


def latency_after(run: Run, before: Run, synchronize: Callable[[], object] | None) -> Take:
    """Host clock around calls each of which is waited for. Before each, `before` is called and waited for, untimed.

    synchronize: waits until the device is done; None where calls return when they are done.
    """
    synchronize = synchronize or (lambda: None)

    def take(calls: int) -> float:
        """Seconds of so many calls, without those of the untimed work before each."""
        total_s = 0.0
        for _ in range(calls):
            before()
            synchronize()
            begin = time.perf_counter()
            run()
            synchronize()
            total_s += time.perf_counter() - begin
        return total_s

    take.resets = True  # type: ignore[attr-defined]  # a function may carry it
    return take


def device_after(run: Run, before: Run, stream: Any) -> Take:
    """GPU's clock (CUDA events) around single calls on a CuPy stream, with the work of `before` queued before each, untimed. Each
    call's time contains 1.3 µs, which pass between two events without a call."""
    import cupy

    begin = cupy.cuda.Event()
    end = cupy.cuda.Event()

    def take(calls: int) -> float:
        """Seconds of so many calls by the GPU's clock, without those of the untimed work before each."""
        total_s = 0.0
        for _ in range(calls):
            before()
            begin.record(stream)
            run()
            end.record(stream)
            end.synchronize()
            milliseconds_between = cupy.cuda.get_elapsed_time(begin, end)
            total_s += milliseconds_between * 1e-3
        return total_s

    take.resets = True  # type: ignore[attr-defined]  # a function may carry it
    return take


def issue(run: Run, synchronize: Callable[[], object]) -> Take:
    """Host clock around calls that are not waited for: the time that the host takes to hand a call to the GPU.

    Every ISSUED_CALLS calls the GPU is waited for by `synchronize`, untimed, as a full queue would make the host wait.
    """

    def take(calls: int) -> float:
        """Seconds that the host takes to issue so many calls."""
        total_s = 0.0
        while calls > 0:
            batch = min(calls, ISSUED_CALLS)
            calls -= batch
            repeat = itertools.repeat(None, batch)
            begin = time.perf_counter()
            for _ in repeat:
                run()
            total_s += time.perf_counter() - begin
            synchronize()
        return total_s

    return take


def throughput(run: Run, synchronize: Callable[[], object]) -> Take:
    """Host clock around calls that are queued one behind the other, and one wait for the device at the end (`synchronize`), as by
    a program that keeps the device busy."""

    def take(calls: int) -> float:
        """Seconds of so many calls, from the first to the end of the wait behind the last."""
        repeat = itertools.repeat(None, calls)
        begin = time.perf_counter()
        for _ in repeat:
            run()
        synchronize()
        return time.perf_counter() - begin

    return take


def device(run: Run, stream: Any) -> Take:
    """GPU's clock: CUDA events around calls that are queued on a CuPy stream one behind the other."""
    return lambda calls: milliseconds(run, calls, stream) * 1e-3


def blocked(run: Run, stream: Any, launches: int = 1) -> Take:
    """GPU's clock around calls that are all queued on a CuPy stream before the first one begins, so that the GPU never waits for
    the host. A kernel (kernels.cuda.blocking_kernel) holds the stream until then.

    launches: kernels that a call launches; the queue takes only so many. If the kernel that holds the stream ends before all
    calls are queued, fewer are queued at a time. If it ends before even one is, the row gets the flag `hold-ended`.
    """
    timed_batch = batches(stream)
    most_calls = max(1, BLOCKED_CALLS // launches)

    def take(calls: int) -> float:
        """Seconds of so many calls by the GPU's clock, queued in batches behind the kernel that holds the stream."""
        nonlocal most_calls
        total_s = 0.0
        while calls > 0:
            batch = min(calls, most_calls)
            batch_s, was_blocked = timed_batch(run, batch)
            if not was_blocked and batch > 1:
                most_calls = batch // 2
                continue
            if not was_blocked:
                take.flags = ("hold-ended",)  # type: ignore[attr-defined]
            total_s += batch_s
            calls -= batch
        return total_s

    return take


def visit(take: Take, limits: Limits, clock: str, call_s: float, handicap: float = 0.0) -> Samples:
    """The samples of one visit to a row, on the clock of this name (host-latency, device, ...): seconds of a call, taken in
    one go.

    A sample is the mean of as many calls as fill a tenth of the visit (at least one), so that the time to read the clock does
    not count. call_s: about how many seconds a call takes.

    handicap: a planted slowdown, to test whether it is noticed: this share of calls is made more than counted. The calls of a
    sample are raised until that share of them is a whole number.
    """
    sizes = sample_sizes(call_s, limits)
    calls = sizes.calls
    if handicap:
        calls = round(math.ceil(calls * handicap) / handicap)
    calls_to_make = round(calls * (1 + handicap))
    seconds: list[float] = []
    while len(seconds) < sizes.samples and sum(seconds) * calls <= OVERTIME * limits.visit_s:
        sample_s = forward(take(calls_to_make))
        seconds.append(rounded(sample_s / calls))
    return Samples(clock=clock, seconds=tuple(seconds), calls=calls, block_sizes=(len(seconds),), stop_reason="1 visit")


def visits(take: Take, limits: Limits, clock: str, before: Callable[[], None] = lambda: None) -> Samples:
    """All samples of a row that is timed in one go: visits one after the other, each a block of samples, on the clock of this
    name.

    before: called before each visit.
    """
    call_s = call_seconds(take, limits)
    every: list[Samples] = []
    for _ in rounds(limits):
        before()
        every.append(visit(take, limits, clock, call_s))
    return joined(every, f"{len(every)} visits")


def rounds(limits: Limits) -> Iterator[int]:
    """Yields 0, 1, 2, ... for each round in which a row that is timed in one go is to be timed: `limits.rounds` of them, but
    after FEWEST_ROUNDS none that begins later than `limits.max_time` seconds after the first."""
    begin = time.perf_counter()
    for number in range(limits.rounds):
        if number < FEWEST_ROUNDS or time.perf_counter() - begin <= limits.max_time:
            yield number


def forward(seconds: float) -> float:
    """The seconds that a clock gave, unchanged, after a check.

    Raises: ArithmeticError if they are negative or NaN: the clock stepped backward, and batches sized by it would be endless.
    """
    if not seconds >= 0:
        raise ArithmeticError(f"the clock stepped backward, by {-seconds:.3g} s")
    return seconds


def seconds(work: Callable[[], object]) -> float:
    """The seconds that one call of `work` takes on the host's clock."""
    begin = time.perf_counter()
    work()
    return rounded(time.perf_counter() - begin)


def rounded(seconds: float) -> float:
    """The seconds rounded to six digits: no clock here is more exact, and result files are a third smaller."""
    return float(f"{seconds:.6g}")


class SampleSizes(NamedTuple):
    """How the time of a visit is divided."""

    #: Calls in a sample.
    calls: int
    #: Samples in the visit.
    samples: int


def sample_sizes(call_s: float, limits: Limits) -> SampleSizes:
    """How many calls of `call_s` seconds a sample has, and how many samples a visit of `limits.visit_s` seconds."""
    calls = max(1, round(limits.visit_s / MOST_SAMPLES / call_s))
    samples = round(limits.visit_s / (calls * call_s))
    return SampleSizes(calls=calls, samples=max(1, min(MOST_SAMPLES, samples)))


def call_seconds(take: Take, limits: Limits) -> float:
    """Approximate seconds of a warm call, by which samples are sized. If `take` does untimed work for each call, that is
    included: it may take a thousand times as long as the call.

    It is the shortest mean of growing batches, which are made for as long as a visit lasts; of two batches at least, unless the
    first took a second.
    """
    calls = 1
    shortest_s = math.inf
    sample_s = limits.visit_s / MOST_SAMPLES
    begin = time.perf_counter()
    for batch in itertools.count():
        batch_began = time.perf_counter()
        batch_s = forward(take(calls))
        if getattr(take, "resets", False):
            batch_s = time.perf_counter() - batch_began
        shortest_s = min(shortest_s, batch_s / calls)
        if time.perf_counter() - begin >= limits.visit_s and (batch or shortest_s >= LONG_S):
            break
        calls_of_a_sample = math.ceil(sample_s / max(shortest_s, _SHORTEST_CALL_S))
        calls = min(calls * 2, max(1, calls_of_a_sample))
    return max(shortest_s, _SHORTEST_CALL_S)
