"""Takes samples of a call, given as `take(calls) -> seconds`, on one clock until they are steady.

Host clocks read time.perf_counter around `calls` calls; the device clock reads CUDA events around them.
"""

import itertools
import math
import time
from collections.abc import Callable

import msgspec
import numpy as np

from analysis import stats
from kernels.cuda import loader
from workloads.records import Samples

Take = Callable[[int], float]
SAMPLES_A_BLOCK = 10
MOST_BLOCKS = 20
LOOK_AT = (5, 7, 10, 14, 20)  # blocks after which the interval is looked at
HELD_BELOW_S = 1e-3  # calls shorter than this are queued behind a held stream: no gaps of Python between them
HELD_CALLS = 200  # fewer than a stream's launch queue takes, and issued well within the hold
ISSUED_CALLS = 100
HOLD_NS = 50_000_000


class Limits(msgspec.Struct, frozen=True):
    """When to stop: blocks of `min_time` seconds; `min_samples` at least, `max_time` seconds at most; steady when the
    interval's half-width is below `max_noise` of the median twice in a row."""

    min_time: float = 0.05
    min_samples: int = 20
    max_noise: float = 0.01
    max_time: float = 2.0


def host(run: Callable) -> Take:
    """Host clock around calls that return when they are done (CPU kernels)."""

    def take(calls: int) -> float:
        repeat = itertools.repeat(None, calls)
        begin = time.perf_counter()
        for _ in repeat:
            run()
        return time.perf_counter() - begin

    return take


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
    """Device clock around single calls, with `before` queued ahead of each. Two events next to each other are 1.3 us
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
    import cupy

    begin, end = cupy.cuda.Event(), cupy.cuda.Event()

    def take(calls: int) -> float:
        repeat = itertools.repeat(None, calls)
        begin.record(stream)
        for _ in repeat:
            run()
        end.record(stream)
        end.synchronize()
        return cupy.cuda.get_elapsed_time(begin, end) * 1e-3

    return take


def held(run: Callable, stream, launches: int = 1) -> Take:
    """Device clock around calls that all wait in the queue before the first begins, as a kernel of ours holds the stream
    until they are issued (50 ms at most; it ends by itself). `run` must not allocate, synchronize or load a module; `launches`
    is how many it makes in a call: a stream's launch queue has room for about a thousand, and who meets it full waits.
    """
    import cupy

    kernel = loader.load("cuda/hold", "hold")
    go = np.frombuffer(cupy.cuda.alloc_pinned_memory(4), np.int32, 1)
    begin, end = cupy.cuda.Event(), cupy.cuda.Event()

    def batch(calls: int) -> float:
        go[0] = 0
        kernel((1,), (1,), (np.uint64(go.ctypes.data), np.int64(HOLD_NS)))
        try:
            begin.record(stream)
            for _ in itertools.repeat(None, calls):
                run()
            end.record(stream)
        finally:
            go[0] = 1
        end.synchronize()
        return cupy.cuda.get_elapsed_time(begin, end) * 1e-3

    def take(calls: int) -> float:
        most = max(1, HELD_CALLS // launches)
        whole, rest = divmod(calls, most)
        return sum(batch(most) for _ in range(whole)) + (batch(rest) if rest else 0.0)

    return take


def collect(take: Take, limits: Limits, clock: str, before_block: Callable[[], None] = lambda: None) -> Samples:
    """Samples of `take` in blocks until steady or out of time.

    A sample is the mean of as many calls as fill a tenth of a block (one, when a call takes longer), so reading the
    clock costs nothing that shows. Warm-up calls size the samples and are not kept.
    """
    calls, per_block = plan(call_seconds(take, limits), limits)
    seconds: list[float] = []
    block: list[int] = []
    steady = 0
    begin = time.perf_counter()
    for index in range(MOST_BLOCKS):
        before_block()
        for _ in range(per_block):
            seconds.append(rounded(forward(take(calls)) / calls))
            block.append(index)
            spent = time.perf_counter() - begin
            if spent > limits.max_time and len(seconds) >= 3:
                return Samples(clock, tuple(seconds), calls, tuple(block), "max-time")
        if index + 1 in LOOK_AT and len(seconds) >= limits.min_samples:
            steady = steady + 1 if stats.median(seconds, block).noise <= limits.max_noise else 0
            if steady == 2:
                return Samples(clock, tuple(seconds), calls, tuple(block), "steady")
    return Samples(clock, tuple(seconds), calls, tuple(block), "max-blocks")


def enough(seconds: list[float], spent: float, limits: Limits, fewest: int = 3, looked_at: int = 5) -> str:
    """Why to stop after these long samples: time is up, or the interval is narrow enough; empty to go on."""
    if len(seconds) < fewest:
        return ""
    if spent > limits.max_time:
        return "max-time"
    if len(seconds) >= looked_at and stats.median(seconds).noise <= limits.max_noise:
        return "steady"
    return "max-blocks" if len(seconds) == MOST_BLOCKS else ""


def forward(seconds: float) -> float:
    """The seconds that a clock gave.

    Raises: ArithmeticError for a clock that stepped backward: sizing batches by it would make them endless.
    """
    if not seconds >= 0:
        raise ArithmeticError(f"the clock stepped backward, by {-seconds:.3g} s")
    return seconds


def rounded(seconds: float) -> float:
    """To six digits: no clock here knows more, and result files are a third smaller."""
    return float(f"{seconds:.6g}")


def one_block(take: Take, limits: Limits, clock: str, call_seconds: float, handicap: float = 0.0) -> Samples:
    """The samples of a single block, for rows whose blocks alternate.

    handicap: the share of calls made beyond those counted, a planted slow-down that tests verdicts; of samples so long that the
    share is a whole number of calls.
    """
    calls, per_block = plan(call_seconds, limits)
    if handicap:
        calls = round(math.ceil(calls * handicap) / handicap)
    seconds = tuple(rounded(forward(take(round(calls * (1 + handicap)))) / calls) for _ in range(per_block))
    return Samples(clock, seconds, calls, (0,) * per_block, "one-block")


def plan(call_seconds: float, limits: Limits) -> tuple[int, int]:
    """(calls a sample, samples a block) for calls of that length."""
    sample = limits.min_time / SAMPLES_A_BLOCK
    calls = max(1, round(sample / call_seconds))
    return calls, max(1, min(SAMPLES_A_BLOCK, round(limits.min_time / (calls * call_seconds))))


def call_seconds(take: Take, limits: Limits) -> float:
    """About how long one call takes once warm, with what is done untimed before it (a reset may take a thousand times the
    call): the fastest of growing batches within a block's time."""
    calls, best, begin = 1, math.inf, time.perf_counter()
    while True:
        started = time.perf_counter()
        timed = forward(take(calls))
        spent = time.perf_counter() - started if getattr(take, "resets", False) else timed
        best = min(best, spent / calls)
        if time.perf_counter() - begin >= limits.min_time:
            return max(best, 1e-9)
        calls = min(calls * 2, max(1, math.ceil(limits.min_time / SAMPLES_A_BLOCK / max(best, 1e-9))))
