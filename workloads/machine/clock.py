"""Moments: Unix seconds that go on evenly when somebody sets the wall clock, alike in a command and in its workers."""

import os
import time

VARIABLE = "CROSSOVER_CLOCK_ZERO_S"  # tells a worker the zero of the run that it works for
LATEST_S = 1e11  # no run was made later than in the year 5138; a file that says so is not followed

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)  # the one that goes on while a laptop sleeps


def _elapsed_s() -> float:
    """Seconds of a clock that nobody sets, common to all processes of a machine."""
    return time.clock_gettime(_CLOCK)


#: Unix seconds at which that clock was 0.
_zero_s = float(os.environ.get(VARIABLE) or time.time() - _elapsed_s())


def begin() -> None:
    """Sets this process's moments by the wall clock, as it stands when a run begins."""
    global _zero_s
    _zero_s = time.time() - _elapsed_s()


def moment() -> float:
    """Unix seconds now: the wall clock when the run began, and the seconds since then, whatever the wall clock says meanwhile."""
    return _zero_s + _elapsed_s()


def not_before(earliest: float) -> None:
    """Moves the clock forward, if it is behind, so that every later moment is at least `earliest` (Unix seconds). A run that is
    resumed continues after the moments of its file."""
    global _zero_s
    if earliest < LATEST_S:
        _zero_s = max(_zero_s, earliest - _elapsed_s())


def variables() -> dict[str, str]:
    """The environment variables with which a worker process has the same moments as this process."""
    return {VARIABLE: repr(_zero_s)}
