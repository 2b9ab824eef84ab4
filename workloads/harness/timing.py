"""The clocks, each a `take(calls) -> seconds` of so many calls, and a visit: the samples of a short while on one of them.

Host clocks read time.perf_counter around `calls` calls; the device clock reads CUDA events around them.
"""

import itertools
import math
import time
from collections.abc import Callable, Iterator

from kernels.cuda.autotuner import milliseconds
from kernels.cuda.held import batches
from workloads.records import Samples
from workloads.records.visits import joined
from workloads.shared_flags import Limits

Take = Callable[[int], float]
# A visit ends early after so many times its seconds: on a busy host calls can be 100x slower than when they were sized.
OVERTIME = 4
MOST_SAMPLES = 10  # a visit
LONG_S = 1.0  # a first call so long is believed
HELD_BELOW_S = 1e-3  # calls shorter than this are queued behind a held stream: no gaps of Python between them
HELD_CALLS = 200  # fewer than a stream's launch queue takes, and issued well within the hold
ISSUED_CALLS = 100
FEWEST_LATER = 3  # epochs of a training after a fit's first, where they are long


def host(run: Callable) -> Take:
    """Host clock around calls that return when they are done (CPU kernels)."""
    return throughput(run, lambda: None)


def latency(run: Callable, synchronize: Callable) -> Take:
    """Host clock around calls that are each waited for: what a program sees that needs every result at once."""

    def take(calls: int) -> float:
        repeat = itertools.repeat(None, calls)
        begin = time.perf_counter()
        for _ in repeat:
            run()
            synchronize()
        return time.perf_counter() - begin

    return take


def each(run: Callable, before: Callable, synchronize: Callable | None) -> Take:
    """Host clock around calls that are each waited for, with `before` done and waited for, untimed, ahead of each."""
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


def device_each(run: Callable, before: Callable, stream) -> Take:
    """Device clock around single calls, with `before` queued ahead of each. Two events next to each other are 1.3 µs
    apart, which is in every call's time."""
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()

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
    """Host clock around issuing calls that nobody waits for: what the host pays. The queue is emptied, untimed, before it
    is full, as a full queue makes the host wait."""

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
    """Host clock around queued calls and one wait at the end: what a program sees that keeps the device busy."""

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


def held(run: Callable, stream, launches: int = 1) -> Take:
    """Device clock around calls that all wait in the queue before the first begins (kernels.cuda.held), each of so many
    `launches`. Where the hold ends before all are issued, fewer are queued at a time; where it ends before a single one is,
    the clock's `flags` say so.
    """
    batch, most = batches(stream), max(1, HELD_CALLS // launches)

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
            spent, calls = spent + seconds, calls - some
        return spent

    return take


def visit(take: Take, limits: Limits, clock: str, call_s: float, handicap: float = 0.0) -> Samples:
    """The samples of one visit. Each is the mean of as many calls of about `call_s` seconds as fill a tenth of the visit (at
    least one), so that reading the clock does not show.

    handicap: a planted slowdown that tests verdicts: the share of calls made but not counted; samples are lengthened until it
    is a whole number of calls.
    """
    calls, count = plan(call_s, limits)
    if handicap:
        calls = round(math.ceil(calls * handicap) / handicap)
    seconds: list[float] = []
    while len(seconds) < count and sum(seconds) * calls <= OVERTIME * limits.visit_s:
        seconds.append(rounded(forward(take(round(calls * (1 + handicap)))) / calls))
    return Samples(clock, tuple(seconds), calls, (0,) * len(seconds), "1 visit")


def visits(take: Take, limits: Limits, clock: str, before: Callable[[], None] = lambda: None) -> Samples:
    """A whole row's samples where no sweep makes its rounds: visits one after the other, a block each, `before` ahead of each."""
    call_s, made = call_seconds(take, limits), list[Samples]()
    for _ in rounds(limits):
        before()
        made.append(visit(take, limits, clock, call_s))
    return joined(made, f"{len(made)} visits")


def rounds(limits: Limits) -> Iterator[int]:
    """Counts the rounds of what is timed in one go: those that begin within `max_time`, three at least."""
    begin = time.perf_counter()
    for number in range(limits.rounds):
        if number < 3 or time.perf_counter() - begin <= limits.max_time:
            yield number


def forward(seconds: float) -> float:
    """The seconds that a clock gave.

    Raises: ArithmeticError for a clock that stepped backward: sizing batches by it would make them endless.
    """
    if not seconds >= 0:
        raise ArithmeticError(f"the clock stepped backward, by {-seconds:.3g} s")
    return seconds


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return rounded(time.perf_counter() - begin)


def rounded(seconds: float) -> float:
    """To six digits: no clock here knows more, and result files are a third smaller."""
    return float(f"{seconds:.6g}")


def plan(call_s: float, limits: Limits) -> tuple[int, int]:
    """(calls a sample, samples a visit) for calls of that length."""
    calls = max(1, round(limits.visit_s / MOST_SAMPLES / call_s))
    return calls, max(1, min(MOST_SAMPLES, round(limits.visit_s / (calls * call_s))))


def call_seconds(take: Take, limits: Limits) -> float:
    """About how long one call takes once warm, with what is done untimed before it (a reset may take a thousand times the
    call): the fastest of growing batches within a visit's time, of two at least unless the first took a second."""
    calls, best, begin = 1, math.inf, time.perf_counter()
    for batch in itertools.count():
        started = time.perf_counter()
        timed = forward(take(calls))
        spent = time.perf_counter() - started if getattr(take, "resets", False) else timed
        best = min(best, spent / calls)
        if time.perf_counter() - begin >= limits.visit_s and (batch or best >= LONG_S):
            break
        calls = min(calls * 2, max(1, math.ceil(limits.visit_s / MOST_SAMPLES / max(best, 1e-9))))
    return max(best, 1e-9)
