"""What watches a measurement's CPU: its clock, stolen and throttled time, other processes; and the wait for idle threads."""

import functools
import statistics
import time
from collections.abc import Callable

from workloads.machine import cpu

TOLERANCE = 0.03  # clocks and stolen time off by more make a row doubtful
OTHER_LOAD = 0.10  # share of all usable CPUs that other processes may take
_FEWEST_STOLEN_S = 2 / cpu.TICKS_A_SECOND  # /proc/stat counts whole ticks: one alone proves nothing
_SHORTEST_S = 0.1  # rows shorter than this are within a few ticks: no shares are worked out for them

_CHAIN_STEPS = 200_000
_CHAIN_PARTS = 4  # the fastest counts: an interrupt or a stolen slice hits one part, not all
_CYCLES_A_STEP = 2
_WINDOW_S = 0.012  # longer than a tick at 100 Hz: the CPU time of running threads is brought up to date by ticks


def _chain(steps, x, k):
    """`steps` times x <- (x ^ k) + k: each step waits for the one before it."""
    for _ in range(steps):
        x = (x ^ k) + k
    return x


@functools.cache
def compiled_chain():
    """`_chain` as machine code. LLVM can fold neither step into the next: xor and add do not distribute over each
    other, and k is not known to it. Both take one cycle on every out-of-order x86-64 and AArch64 core."""
    import numba

    signature = "uint64(int64, uint64, uint64)"
    try:
        return numba.njit(signature, nogil=True, cache=True)(_chain)
    except (RuntimeError, OSError):  # no folder to keep the compiled code in
        return numba.njit(signature, nogil=True)(_chain)


def cpu_clock_hz() -> float:
    """The clock of the core this thread is on, from about half a millisecond of a chain whose cycles are known."""
    chain = compiled_chain()
    best = float("inf")
    for _ in range(_CHAIN_PARTS):
        begin = time.perf_counter()
        chain(_CHAIN_STEPS, 3, 6364136223846793005)
        best = min(best, time.perf_counter() - begin)
    return _CHAIN_STEPS * _CYCLES_A_STEP / best


def uneven(clocks: list[float]) -> bool:
    """Is a quarter of the clocks, or the only other one, more than TOLERANCE away from their median?

    One short look in many is off on any shared machine and moves no median.
    """
    if not clocks:
        return False
    middle = statistics.median(clocks)
    off = sum(abs(clock - middle) > TOLERANCE * middle for clock in clocks)
    return off > 0 and off >= len(clocks) / 4


class CpuWatch:
    """Clock, steal, quota and other processes' load while a row runs.

    values: cpu_clock_hz (median), steal_fraction (of the time asked for), throttled_s, other_load_fraction (of all
    usable CPUs). flags: cpu-clock, steal, quota, other-load.
    """

    def __init__(self, clock: Callable[[], float] = cpu_clock_hz, root=cpu.ROOT):
        self._clock, self._root = clock, root
        self._cpus = cpu.affinity()
        self._clocks: list[float] = []
        clock()  # compiles
        self._begin = self._counters()

    def _counters(self) -> tuple[float, float, cpu.Ticks, float]:
        return (time.monotonic(), time.process_time(), cpu.ticks(self._cpus, self._root), cpu.throttled_s(self._root))

    def before_block(self) -> None:
        seen = self._clock()
        if self._clocks and uneven([seen, statistics.median(self._clocks)]):
            seen = max(seen, self._clock())  # a second look tells a stolen slice from a slower clock
        self._clocks.append(seen)

    def seen(self) -> tuple[dict[str, float], tuple[str, ...]]:
        self.before_block()
        then, now = self._begin, self._counters()
        values = {"cpu_clock_hz": statistics.median(self._clocks)}
        values |= shares(now[0] - then[0], now[1] - then[1], then[2], now[2], len(self._cpus))
        throttled = now[3] - then[3]
        if throttled > 0:
            values["throttled_s"] = throttled
        raised = {
            "cpu-clock": uneven(self._clocks),
            "steal": values.get("steal_fraction", 0) > TOLERANCE,
            "quota": throttled > 0,
            "other-load": values.get("other_load_fraction", 0) > OTHER_LOAD,
        }
        return values, tuple(flag for flag, up in raised.items() if up)


def shares(wall_s: float, own_s: float, then: cpu.Ticks, now: cpu.Ticks, cpus: int) -> dict[str, float]:
    """steal_fraction and other_load_fraction over `wall_s` seconds of `cpus` CPUs, of which this process used `own_s`.

    Steal is a share of what was asked for (at work or stolen), as idle CPUs lose nothing. Empty for very short times
    and where the kernel does not count.
    """
    busy, stolen = now.busy_s - then.busy_s, now.stolen_s - then.stolen_s
    if wall_s < _SHORTEST_S or now.busy_s == 0:
        return {}
    asked = busy + stolen
    steal = stolen / asked if asked > 0 and stolen > _FEWEST_STOLEN_S * 0.999 else 0.0
    return {"steal_fraction": steal, "other_load_fraction": max(0.0, busy - own_s) / (wall_s * cpus)}


def settle(
    limit_s: float = 0.5,
    others_running: Callable[[], bool | None] = cpu.others_running,
    cpu_time: Callable[[], float] = time.process_time,
    now: Callable[[], float] = time.perf_counter,
    sleep: Callable[[float], None] = time.sleep,
) -> float:
    """Waits until no other thread of this process runs, at most `limit_s`; gives the seconds waited.

    BLAS and OpenMP workers spin for 100 to 200 ms after a call and would halve the next threaded kernel. Where the
    system does not tell which threads run, the process's CPU time must stand still over a window instead.
    """
    begin = now()
    while now() - begin < limit_s:
        running = others_running()
        if running is None:
            used, since = cpu_time(), now()
            sleep(_WINDOW_S)
            running = cpu_time() - used > 0.1 * (now() - since)
        elif running:
            sleep(0.001)
        if not running:
            break
    return now() - begin
