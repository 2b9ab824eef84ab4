"""Preparation before a row is timed: nothing else runs, cores and GPU have left their idle clocks. It is not timed."""

import math
import time

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

_ran: tuple = ()


def quiet_for(what: tuple) -> None:
    """Waits until threads stop spinning; skips those of this process if `what` (library, threads) is the last call's."""
    global _ran
    telemetry.settle(this_process=_ran != what)
    _ran = what


_warm_threads = 0


def ramp_up(prepared: Prepared, threads: int, limits: Limits) -> None:
    """Untimed calls for a second, or as long as 20 visits take if that is less, when more CPU threads are used than before in
    this process: cores take that long to reach their clock, and idle ones have not begun."""
    global _warm_threads
    begin = time.perf_counter()
    ramp_s = min(_RAMP_S, _RAMP_VISITS * limits.visit_s)
    while threads > _warm_threads and time.perf_counter() - begin < ramp_s:
        prepared.call()
    _warm_threads = max(threads, _warm_threads)


def warm_up(prepared: Prepared, row: Row, call_s: float, limits: Limits) -> None:
    """An untimed call, and on a GPU for 20 ms, so that it leaves its idle clock; none of a call that fills a visit by itself. Of
    a row under sustained load for 0.25 s, so that its clock is what power and heat allow: short batches, each waited for."""
    if call_s > limits.visit_s and not is_sustained(row):
        return
    batch = math.ceil(min(_BATCH_S / call_s, _MOST_QUEUED))
    least_s = _warm_up_s(row)
    begin = time.perf_counter()
    while True:
        for _ in range(batch if least_s else 1):
            prepared.run()
        if prepared.synchronize:
            prepared.synchronize()
        if time.perf_counter() - begin >= least_s:
            return


def _warm_up_s(row: Row) -> float:
    """Seconds of untimed calls at least; 0: one call."""
    if is_sustained(row):
        return _SUSTAINED_S
    return _BURST_S if row.on_gpu else 0.0
