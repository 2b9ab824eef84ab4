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
_GPU_COPIES = 2  # its arrays, and those of the check
# What Numba with its compiler and threads maps after NumPy: with 254 MiB left they never returned, with 352 MiB they did.
_MAPPED_BYTES = 3 << 27
# How the driver says that it will not lock host memory; CuPy has errors of its own for the device's.
_NOT_LOCKED = ("cudaErrorMemoryAllocation", "cudaErrorOperatingSystem", "cudaErrorNotPermitted")


class DoesNotFit(CannotDo):
    """A problem larger than the memory that is free."""

    cause = "does-not-fit"


def require_bytes(needed_bytes: int, name: str, free_bytes: float, reason: str = "") -> None:
    """Raises DoesNotFit if more memory is needed than is free.

    name: of the kind of memory in the message: host, GPU. reason: what needs so much, with a blank and in brackets; "" for none.
    """
    if needed_bytes > free_bytes:
        needed = units.size(needed_bytes)
        raise DoesNotFit(f"needs {needed} of {name} memory, {units.size(free_bytes)} are free{reason}")


#: Device, such as cpu or gpu:0 -> bytes that are free on it now.
FreeBytes = Callable[[str], float]


def require_memory(problem: Problem, device: str, free_bytes: FreeBytes = facts.memory_available) -> None:
    """Raises DoesNotFit if a problem's arrays on this device, with the copies that the check of its answer needs, exceed the
    free memory.

    Page-locked memory is taken from all programs until it is freed, so at most half of the free memory is locked.

    free_bytes: called with cpu or gpu:0; gives the bytes that are free there now.
    """
    locked_bytes = problem.locked_bytes
    most_locked_bytes = free_bytes("cpu") // 2
    if locked_bytes > most_locked_bytes:
        raise DoesNotFit(
            f"needs {units.size(locked_bytes)} of {problem.host_memory} host memory; at most half of what is free, "
            f"{units.size(most_locked_bytes)}, is ever locked"
        )
    copies = _HOST_COPIES_OF.get(problem.op, _HOST_COPIES)
    reason = f" ({copies} times the {units.size(problem.footprint_bytes)} of its arrays, to check the result)"
    require_bytes(copies * problem.footprint_bytes, "host", free_bytes("cpu"), reason)
    if device != "cpu":  # whatever its number, a worker process sees it as its first GPU
        require_bytes(_GPU_COPIES * problem.footprint_bytes, "GPU", free_bytes("gpu:0"))


def require_room(row: Row, free_bytes: FreeBytes | None = None) -> None:
    """Raises DoesNotFit if a row needs more memory than is free. Of a framework's row only the host's memory is looked at, as a
    framework takes the GPU's as a whole.

    free_bytes: None for this machine's free memory.
    """
    device = "cpu" if row.backend in registry.FRAMEWORKS else row.device
    if free_bytes is None:
        require_memory(row.problem, device)
    else:
        require_memory(row.problem, device, free_bytes)


def too_large(rows: Iterable[Row], require: Callable[[Row], None], name: Callable[[Row], str]) -> dict[str, str]:
    """Key of a row -> why it will be left out, in words, for the rows that do not fit into memory.

    require: called with each row; raises DoesNotFit. name: gives the row's name in the words.
    """
    left_out = {}
    for row in rows:
        try:
            require(row)
        except DoesNotFit as error:
            left_out[row.key] = f"{name(row)}: {error}"
    return left_out


def not_locked(problem: Problem, error: str) -> str:
    """Why the driver refused page-locked memory for a problem, in words with the limit that a user can raise; "" if the
    message of the error is about something else."""
    locked_bytes = problem.locked_bytes
    if not locked_bytes or not any(name in error for name in _NOT_LOCKED):
        return ""
    limit_bytes = lock_limit()
    allowed = "`ulimit -l` sets no limit"
    if limit_bytes is not None:
        allowed = f"`ulimit -l` allows {units.size(limit_bytes)}: raise it with `ulimit -l unlimited`"
    refused = f"{units.size(locked_bytes)} of {problem.host_memory} host memory"
    return f"the driver gave no {refused} ({one_line(error, most=80)}); {allowed}"


def lock_limit() -> int | None:
    """Bytes that this process may lock in memory (RLIMIT_MEMLOCK); None without a limit."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return None if soft_limit == resource.RLIM_INFINITY else soft_limit


def require_address_space() -> None:
    """Raises DoesNotFit if `ulimit -v` leaves this process less address space than libraries need: some wait for it forever."""
    left_bytes = address_space_left()
    if left_bytes < _MAPPED_BYTES:
        raise DoesNotFit(
            f"`ulimit -v` leaves {units.size(max(0, int(left_bytes)))} of address space, and libraries take up to "
            f"{units.size(_MAPPED_BYTES)}: raise it with `ulimit -v unlimited`"
        )


def address_space_left() -> float:
    """Bytes of address space that this process may still use (RLIMIT_AS); infinite without a limit, and where the system does not
    say how much it uses."""
    soft_limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    statm = Path("/proc/self/statm")
    if soft_limit == resource.RLIM_INFINITY or not statm.exists():
        return math.inf
    mapped_pages = int(statm.read_text(encoding="utf-8").split()[0])
    return soft_limit - mapped_pages * resource.getpagesize()
