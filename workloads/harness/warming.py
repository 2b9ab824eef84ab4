"""Preparation before a row is timed: nothing else runs, cores and GPU have left their idle clocks. It is not timed."""

import math
import time
from typing import NamedTuple

from workloads.harness import telemetry
from workloads.harness.copy_modes import Prepared
from workloads.harness.timing import Limits
from workloads.records import Row
from workloads.records.settings import is_sustained

# Seconds of untimed calls: until cores have reached their clock, until a GPU has left its idle clock, until its clock is what
# power and heat allow.
_RAMP_S = 1.0
_BURST_S = 0.02
_SUSTAINED_S = 0.25
_RAMP_VISITS = 20  # a row that is timed for a few ms is not waited for a second
_BATCH_S = 0.005  # seconds of untimed calls that are queued at a time
_MOST_QUEUED = 200  # untimed calls that are queued at a time


class Threads(NamedTuple):
    """The threads that a row uses on the CPU."""

    #: The library that has them.
    backend: str
    #: How many; None: as many as the library chooses.
    number: int | None


#: The threads of the row that was timed last; None before the first.
_last_threads: Threads | None = None


def wait_for_quiet(threads: Threads | None) -> None:
    """Waits until no thread of another worker process runs any more, and no other thread of this process: threads of BLAS and
    OpenMP spin for a while after their work.

    threads: of the row that is timed next; None where no row is. If they are those of the last row, the threads of this process
    are not waited for: they would spin in use, too.
    """
    global _last_threads
    is_same = threads is not None and threads == _last_threads
    telemetry.settle(this_process=not is_same)
    _last_threads = threads


#: Most CPU threads that rows timed by this process have used.
_warm_threads = 0


def ramp_up(prepared: Prepared, threads: int, limits: Limits) -> None:
    """Calls the kernel untimed for a second (or as long as 20 visits take, if that is less), if it uses more CPU threads than any
    row before it in this process: cores take that long to reach their clock, and idle ones have not begun."""
    global _warm_threads
    begin = time.perf_counter()
    ramp_s = min(_RAMP_S, _RAMP_VISITS * limits.visit_s)
    while threads > _warm_threads and time.perf_counter() - begin < ramp_s:
        prepared.call()
    _warm_threads = max(threads, _warm_threads)


def warm_up(prepared: Prepared, row: Row, call_s: float, limits: Limits) -> None:
    """Calls the kernel untimed before a row's samples are taken: once on the CPU; on a GPU for _BURST_S, so that it leaves its
    idle clock; under sustained load for _SUSTAINED_S, so that its clock is what power and heat allow.

    A call that takes longer than a visit (call_s seconds) is its own warm-up.
    """
    if call_s > limits.visit_s and not is_sustained(row):
        return
    least_s = _warm_up_s(row)
    batch = math.ceil(min(_BATCH_S / call_s, _MOST_QUEUED)) if least_s else 1
    begin = time.perf_counter()
    while True:
        for _ in range(batch):
            prepared.run()
        if prepared.synchronize:
            prepared.synchronize()
        if time.perf_counter() - begin >= least_s:
            return


def _warm_up_s(row: Row) -> float:
    """Seconds that untimed calls of a row have to take at least; 0: one call is enough."""
    if is_sustained(row):
        return _SUSTAINED_S
    return _BURST_S if row.on_gpu else 0.0
