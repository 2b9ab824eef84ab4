"""The memory that a row needs, checked before anything is allocated: its arrays, locked pages, address space."""

import math
import resource
from collections.abc import Callable, Iterable
from pathlib import Path

from analysis import units
from kernels import registry
from kernels.problems import Problem
from workloads.harness.dispatch import CannotDo, one_line
from workloads.machine import facts
from workloads.records import Row

#: A row needs its arrays so many times on the host: the random and the whole-number inputs, the answer, its check.
_HOST_COPIES = 3
#: Copies of an operation where they are others. A transfer also has an array on the host, and its check the bytes once more from
#: the device and as a whole.
_HOST_COPIES_OF = {"transfer": 6}
# What Numba with its compiler and threads maps after NumPy: with 254 MiB left they never returned, with 352 MiB they did.
_MAPPED_BYTES = 3 << 27
# How the driver says that it will not lock host memory; CuPy has errors of its own for the device's.
_NOT_LOCKED = ("cudaErrorMemoryAllocation", "cudaErrorOperatingSystem", "cudaErrorNotPermitted")


class DoesNotFit(CannotDo):
    """A problem larger than the memory that is free."""

    cause = "does-not-fit"


def require_bytes(need: int, name: str, have: int, why: str = "") -> None:
    """Raises DoesNotFit when more memory of that name is needed than is free. why: what needs so much, in brackets."""
    if need > have:
        raise DoesNotFit(f"needs {units.size(need)} of {name} memory, {units.size(have)} are free{why}")


def require_memory(problem: Problem, device: str, free=facts.memory_available) -> None:
    """Raises DoesNotFit when the problem's arrays, and the copies that the check needs, exceed the free memory.

    Page-locked memory is taken from everybody until it is freed, so at most half of the free memory is locked.
    """
    locked = problem.locked_bytes
    most = free("cpu") // 2
    if locked > most:
        raise DoesNotFit(
            f"needs {units.size(locked)} of {problem.host_memory} host memory; at most half of what is free, "
            f"{units.size(most)}, is ever locked"
        )
    copies = _HOST_COPIES_OF.get(problem.op, _HOST_COPIES)
    why = f" ({copies} times the {units.size(problem.footprint_bytes)} of its arrays, to check the result)"
    require_bytes(copies * problem.footprint_bytes, "host", free("cpu"), why)
    if device != "cpu":
        require_bytes(problem.footprint_bytes * 2, "GPU", free("gpu:0"))


def require_room(row: Row, *free: Callable[[str], float]) -> None:
    """Raises DoesNotFit when its device's free memory is too small for a row; a framework holds the GPU's itself."""
    require_memory(row.problem, "cpu" if row.backend in registry.FRAMEWORKS else row.device, *free)


def too_large(rows: Iterable[Row], require: Callable[[Row], None], name: Callable[[Row], str]) -> dict[str, str]:
    """Key -> why a row will be left out, of those that memory is too small for, as `require` raises it."""
    left_out = {}
    for row in rows:
        try:
            require(row)
        except DoesNotFit as error:
            left_out[row.key] = f"{name(row)}: {error}"
    return left_out


def not_locked(problem: Problem, error: str) -> str:
    """Why page-locked memory was refused, naming the limit that a user can raise; "" when that is not what happened."""
    locked = problem.locked_bytes
    if not locked or not any(name in error for name in _NOT_LOCKED):
        return ""
    limit = lock_limit()
    allowed = "`ulimit -l` sets no limit"
    if limit is not None:
        allowed = f"`ulimit -l` allows {units.size(limit)}: raise it with `ulimit -l unlimited`"
    what = f"{units.size(locked)} of {problem.host_memory} host memory"
    return f"the driver gave no {what} ({one_line(error, 80)}); {allowed}"


def lock_limit() -> int | None:
    """Bytes that this process may lock in memory (RLIMIT_MEMLOCK); None without a limit."""
    soft = resource.getrlimit(resource.RLIMIT_MEMLOCK)[0]
    return None if soft == resource.RLIM_INFINITY else soft


def require_address_space() -> None:
    """Raises DoesNotFit where `ulimit -v` leaves this process too little for what libraries map, as some wait for it forever."""
    left = address_space_left()
    if left < _MAPPED_BYTES:
        raise DoesNotFit(
            f"`ulimit -v` leaves {units.size(max(0, int(left)))} of address space, and libraries take up to "
            f"{units.size(_MAPPED_BYTES)}: raise it with `ulimit -v unlimited`"
        )


def address_space_left() -> float:
    """Bytes that this process may still map (RLIMIT_AS); infinite without a limit, and where the system does not tell."""
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    statm = Path("/proc/self/statm")
    if limit == resource.RLIM_INFINITY or not statm.exists():
        return math.inf
    pages = int(statm.read_text(encoding="utf-8").split()[0])
    return limit - pages * resource.getpagesize()
