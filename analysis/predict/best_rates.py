"""The best measured rates of a profile, which bound the seconds of kernels from below."""

import math
from collections.abc import Callable

from analysis.predict.profile import Profile, cached_in_profile
from analysis.predict.step_kernels.operation_counts import unfused_traffic
from analysis.roofline import memory_levels
from analysis.stats import quick_median
from kernels.problems import Problem, Stream

#: Times the last cache's size: arrays of so many bytes together leave nothing in it.
#: Source: J. McCalpin, STREAM, run rules: each array at least four times the last cache.
_BEYOND_CACHE = 4
#: Powers of two: passes of so similar sizes share a best rate.
_NEAR = 2


def best_rate(profile: Profile, device: str, op: str, is_counted: Callable[[Problem], bool]) -> float | None:
    """The highest measured rate of an operation's problems that `is_counted` accepts: FLOPs a second of "matmul" and "conv",
    bytes a second of "stream". By the GPU's own clock if there are samples of it, else by waited calls; None without rows."""
    best = None
    for row in profile.rows.get((op, device), ()):
        samples = row.on("device") or row.on("host-latency")
        if samples and is_counted(row.problem):
            rate = getattr(row.problem, row.problem.rated) / quick_median(samples)
            best = max(rate, best or 0.0)
    return best


def bandwidth_beyond_caches(profile: Profile, device: str, nbytes: float) -> float | None:
    """Bytes a second of the memory, if arrays of so many bytes together are larger than the last cache; None if they are not, or
    no such pass was measured. Rows several times as large as the cache are preferred, as a part of smaller arrays is still in
    it."""
    caches = memory_levels.levels(profile.machine, device)
    if not caches:
        return None
    last_cache = caches[-1][1]
    if nbytes <= last_cache:
        return None
    far = best_rate(profile, device, "stream", lambda problem: problem.nbytes >= _BEYOND_CACHE * last_cache)
    if far is not None:
        return far
    return best_rate(profile, device, "stream", lambda problem: problem.nbytes > last_cache)


def least_seconds(profile: Profile, problem: Problem, device: str) -> float:
    """A lower bound of a kernel's seconds, by the best measured rate: for a matrix product or convolution the best FLOP/s of any
    product of its type, for a pass the best bytes/s of passes of about its size; infinite without rows."""
    if isinstance(problem, Stream):
        log_bytes = round(math.log2(problem.bytes_moved) / _NEAR) * _NEAR
        work = problem.bytes_moved * unfused_traffic(problem.operation)
        rate = _best_bandwidth(profile, device, log_bytes)
    else:
        work = problem.flops
        rate = _best_flops(profile, device, problem.dtype)
    return work / rate if rate else math.inf


@cached_in_profile
def _best_flops(profile: Profile, device: str, dtype: str) -> float | None:
    """The highest measured FLOP/s of matrix products of a type on a device."""
    return best_rate(profile, device, "matmul", lambda product: product.dtype == dtype)


@cached_in_profile
def _best_bandwidth(profile: Profile, device: str, log_bytes: int) -> float | None:
    """The highest measured bytes/s of passes over about 2^log_bytes bytes on a device."""

    def is_near(problem: Problem) -> bool:
        return abs(math.log2(problem.bytes_moved) - log_bytes) <= _NEAR

    return best_rate(profile, device, "stream", is_near)
