"""The clocks, each a function `take(calls) -> seconds`, and a visit: the samples that a row takes on a clock in one go.

Host clocks read time.perf_counter around `calls` calls; the device clock reads CUDA events around them.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator

from kernels.cuda.autotuner import milliseconds
from kernels.cuda.blocking_kernel import batches
from workloads.records import Samples
from workloads.records.visits import joined
from workloads.shared_flags import Limits

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
FEWEST_LATER = 3  # epochs timed after a training's first one, if epochs are long


def host(run: Callable) -> Take:
    """Host clock around calls that return when they are done (CPU kernels)."""
    return throughput(run, lambda: None)


def latency(run: Callable, synchronize: Callable) -> Take:
    """Host clock around calls that are each waited for, as by a program that needs each result before it goes on."""

    def take(calls: int) -> float:
        repeat = itertools.repeat(None, calls)
        begin = time.perf_counter()
        for _ in repeat:
            run()
            synchronize()
        return time.perf_counter() - begin

    return take


def latency_after(run: Callable, before: Callable, synchronize: Callable | None) -> Take:
    """Host clock around calls that are each waited for. Ahead of each, `before` runs and is waited for, untimed."""
    synchronize = synchronize or (lambda: None)

    def take(calls: int) -> float:
        spent = 0.0
        for _ in range(calls):
            before()
            synchronize()
            begin = time.perf_counter()
            run()
            synchronize()
            spent += time.perf_counter() - begin
        return spent

    take.resets = True  # type: ignore[attr-defined]  # a function may carry it
    return take


def device_after(run: Callable, before: Callable, stream) -> Take:
    """Device clock around single calls, with `before` queued ahead of each. Every call's time contains 1.3 µs, the time
    between two events without a call."""
    import cupy

    begin = cupy.cuda.Event()
    end = cupy.cuda.Event()

    def take(calls: int) -> float:
        spent = 0.0
        for _ in range(calls):
            before()
            begin.record(stream)
            run()
            end.record(stream)
            end.synchronize()
            spent += cupy.cuda.get_elapsed_time(begin, end) * 1e-3
        return spent

    take.resets = True  # type: ignore[attr-defined]  # a function may carry it
    return take


def issue(run: Callable, synchronize: Callable) -> Take:
    """Host clock around issuing calls without waiting for them: the host's share of a call. The queue is emptied, untimed,
    before it is full, as a full queue makes the host wait."""

    def take(calls: int) -> float:
        spent = 0.0
        while calls > 0:
            some = min(calls, ISSUED_CALLS)
            calls -= some
            repeat = itertools.repeat(None, some)
            begin = time.perf_counter()
            for _ in repeat:
                run()
            spent += time.perf_counter() - begin
            synchronize()
        return spent

    return take


def throughput(run: Callable, synchronize: Callable) -> Take:
    """Host clock around queued calls and one wait at the end, as by a program that keeps the device busy."""

    def take(calls: int) -> float:
        repeat = itertools.repeat(None, calls)
        begin = time.perf_counter()
        for _ in repeat:
            run()
        synchronize()
        return time.perf_counter() - begin

    return take


def device(run: Callable, stream) -> Take:
    """Device clock: CUDA events around calls queued on `stream`."""
    return lambda calls: milliseconds(run, calls, stream) * 1e-3


def blocked(run: Callable, stream, launches: int = 1) -> Take:
    """Device clock around calls that are all queued before the first one begins: a kernel blocks the stream until then
    (kernels.cuda.blocking_kernel).

    A call has so many kernel `launches`. If the kernel ends before all are issued, fewer are queued at a time. If it ends before
    a single one is issued, the clock has the flag `hold-ended`.
    """
    batch = batches(stream)
    most = max(1, BLOCKED_CALLS // launches)

    def take(calls: int) -> float:
        nonlocal most
        spent = 0.0
        while calls > 0:
            some = min(calls, most)
            seconds, waited = batch(run, some)
            if not waited and some > 1:
                most = some // 2
                continue
            if not waited:
                take.flags = ("hold-ended",)  # type: ignore[attr-defined]
            spent += seconds
            calls -= some
        return spent

    return take


def visit(take: Take, limits: Limits, clock: str, call_s: float, handicap: float = 0.0) -> Samples:
    """The samples of one visit. Each is the mean of as many calls of about `call_s` seconds as fill a tenth of the visit (at
    least one), so that the time to read the clock is negligible.

    handicap: a planted slowdown, to test verdicts: extra calls are made but not counted, this share of the others. Samples
    are lengthened until the extra calls are a whole number.
    """
    calls, count = plan(call_s, limits)
    if handicap:
        calls = round(math.ceil(calls * handicap) / handicap)
    seconds: list[float] = []
    while len(seconds) < count and sum(seconds) * calls <= OVERTIME * limits.visit_s:
        seconds.append(rounded(forward(take(round(calls * (1 + handicap)))) / calls))
    return Samples(clock=clock, seconds=tuple(seconds), calls=calls, block_sizes=(len(seconds),), stop_reason="1 visit")


def visits(take: Take, limits: Limits, clock: str, before: Callable[[], None] = lambda: None) -> Samples:
    """All samples of a row that no sweep visits: one visit after the other, each a block, with `before` ahead of each."""
    call_s = call_seconds(take, limits)
    every: list[Samples] = []
    for _ in rounds(limits):
        before()
        every.append(visit(take, limits, clock, call_s))
    return joined(every, f"{len(every)} visits")


def rounds(limits: Limits) -> Iterator[int]:
    """Yields the numbers of at most `limits.rounds` rounds; after the third only of those that begin within `max_time`."""
    begin = time.perf_counter()
    for number in range(limits.rounds):
        if number < 3 or time.perf_counter() - begin <= limits.max_time:
            yield number


def forward(seconds: float) -> float:
    """The seconds that a clock gave, unchanged.

    Raises: ArithmeticError if they are negative: the clock stepped backward, and batches sized by it would be endless.
    """
    if not seconds >= 0:
        raise ArithmeticError(f"the clock stepped backward, by {-seconds:.3g} s")
    return seconds


def seconds(work: Callable[[], object]) -> float:
    """The seconds that a piece of work takes."""
    begin = time.perf_counter()
    work()
    return rounded(time.perf_counter() - begin)


def rounded(seconds: float) -> float:
    """The seconds rounded to six digits: no clock here is more exact, and result files are a third smaller."""
    return float(f"{seconds:.6g}")


def plan(call_s: float, limits: Limits) -> tuple[int, int]:
    """(calls per sample, samples per visit) for calls of `call_s` seconds."""
    calls = max(1, round(limits.visit_s / MOST_SAMPLES / call_s))
    return calls, max(1, min(MOST_SAMPLES, round(limits.visit_s / (calls * call_s))))


def call_seconds(take: Take, limits: Limits) -> float:
    """Approximate seconds of a warm call, with its untimed reset, if any, included (that may take a thousand times the call):
    the shortest mean of growing batches within a visit's time, of at least two batches unless the first took a second."""
    calls = 1
    best = math.inf
    begin = time.perf_counter()
    for batch in itertools.count():
        started = time.perf_counter()
        timed = forward(take(calls))
        spent = time.perf_counter() - started if getattr(take, "resets", False) else timed
        best = min(best, spent / calls)
        if time.perf_counter() - begin >= limits.visit_s and (batch or best >= LONG_S):
            break
        calls = min(calls * 2, max(1, math.ceil(limits.visit_s / MOST_SAMPLES / max(best, 1e-9))))
    return max(best, 1e-9)
