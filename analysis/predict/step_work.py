"""The work of a training step on a device: seconds of its kernels by part, and what of it is priced roughly."""

from collections.abc import Sequence

import msgspec

from analysis.predict.best_rates import bandwidth_beyond_caches
from analysis.predict.critical_path import Path, TimedKernel, critical_path
from analysis.predict.curves import UNLIKE
from analysis.predict.passes import pass_seconds
from analysis.predict.products import product
from analysis.predict.profile import OP_BY_OP, Lacking, Profile, Read, rows_command
from analysis.predict.step_kernels.operation_counts import unfused_traffic
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.stats import Estimate, covering, total, within_factor
from kernels.problems import Problem, Stream

#: Share of a step's work below which nothing says that it is priced roughly.
LEAST_ROUGH = 0.05
#: Kinds of such work that are named.
MOST_KINDS = 2


class RoughWork(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a step that no row is of, priced by its bytes or by rows of something else: within a factor of UNLIKE."""

    #: Its share of the seconds of all work.
    share: float
    #: What it is, in words, the longest first.
    kinds: tuple[str, ...]


class WorkParts(msgspec.Struct, frozen=True, kw_only=True):
    """The work of a step's kernels on the device."""

    #: Part -> seconds.
    parts: dict[str, Estimate]
    #: Part -> the rows that its seconds are read from, in words.
    sources: dict[str, str]
    #: What stands for something else, or for nothing, in words.
    partial: list[str]
    #: Part -> what the profile lacks for some of its kernels.
    lacking: dict[str, Lacking]
    #: The critical path where kernels may run at once; None where they run one after the other.
    path: Path | None = None
    #: None where too little to matter.
    rough: RoughWork | None = None


def work_parts(kernels: Sequence[StepKernel], profile: Profile, device: str, execution: str) -> WorkParts:
    """The seconds that a step's kernels take on the device, by part, from the profile's rows; with what is substituted and what
    is lacking. On a CPU that runs op by op, also the critical path, as operations may run at the same time."""
    # each kernel's arrays counted by themselves, once
    moved = sum(kernel.problem.bytes_moved for kernel in kernels if kernel.problem)
    bandwidth = bandwidth_beyond_caches(profile, device, moved)
    timed = []
    sources: dict[str, list[str]] = {}
    partial = []
    lacking = {}
    for kernel in kernels:
        if kernel.problem is None:
            if kernel.why:
                partial.append(f"{kernel.name}: {kernel.why}")
            continue
        read = _read(profile, kernel.problem, device, execution)
        if read is None:
            rows = f"no {kernel.problem.op} rows of {device}"
            lacking[kernel.part] = Lacking(rows, [rows_command(kernel.problem, device)])
            continue
        if read.instead:
            partial.append(f"{kernel.part}: {read.instead}")
        sources.setdefault(kernel.part, []).append(read.source)
        timed.append(_timed(kernel, read, bandwidth, execution))
    may_overlap = device == "cpu" and execution == OP_BY_OP
    return WorkParts(
        parts=_by_part(timed),
        sources={part: ", ".join(dict.fromkeys(names)) for part, names in sources.items()},
        partial=partial,
        lacking=lacking,
        path=critical_path(timed, profile, device) if may_overlap else None,
        rough=_rough_work(timed),
    )


def _read(profile: Profile, problem: Problem, device: str, execution: str) -> Read | None:
    """Seconds of one run of a kernel for a problem, from the profile's rows; None without rows."""
    if isinstance(problem, Stream):
        return pass_seconds(profile, problem, device, execution)
    return product(profile, problem, device, execution)


def _timed(kernel: StepKernel, read: Read, bandwidth: float | None, execution: str) -> TimedKernel:
    """A kernel with the seconds of all its runs in a step: by the profile's rows, or if that is longer, by its bytes at the
    memory's bandwidth, since rows of one kernel at a time may find their arrays in a cache.

    bandwidth: bytes a second of the memory; None if all arrays of the step fit a cache.
    """
    seconds = read.seconds * kernel.times
    if kernel.rough:
        seconds = seconds * within_factor(1.0, UNLIKE)
    memory_s = 0.0
    if bandwidth and kernel.times == 1:
        memory_s = _moved(kernel.problem, execution) / bandwidth
    if memory_s > seconds.value:
        seconds = covering(memory_s, seconds.low, seconds.high)
    return TimedKernel(kernel=kernel, seconds=seconds, memory_s=memory_s)


def _moved(problem: Problem, execution: str) -> float:
    """Bytes that one run of a kernel moves. A pass that is not compiled moves its arrays again for each operation of its
    formula."""
    if execution == OP_BY_OP and isinstance(problem, Stream):
        return problem.bytes_moved * unfused_traffic(problem.operation)
    return problem.bytes_moved


def _by_part(kernels: Sequence[TimedKernel]) -> dict[str, Estimate]:
    """Part of a step (matmul, conv, element-wise, optimizer) -> seconds of its kernels, one after the other."""
    parts: dict[str, list[Estimate]] = {}
    for timed in kernels:
        parts.setdefault(timed.kernel.part, []).append(timed.seconds)
    return {part: total(seconds) for part, seconds in parts.items()}


def _rough_work(kernels: Sequence[TimedKernel]) -> RoughWork | None:
    """The work that is priced by rows of something else or by its bytes alone; None if it is less than LEAST_ROUGH of a step's
    work."""
    seconds_by_kind: dict[str, float] = {}
    for timed in kernels:
        kind = timed.kernel.rough
        if kind:
            seconds_by_kind[kind] = seconds_by_kind.get(kind, 0.0) + timed.seconds.value
    work_s = sum(timed.seconds.value for timed in kernels)
    share = sum(seconds_by_kind.values()) / work_s if work_s > 0 else 0.0
    if share < LEAST_ROUGH:
        return None
    kinds = sorted(seconds_by_kind, key=lambda kind: -seconds_by_kind[kind])
    return RoughWork(share=share, kinds=tuple(kinds[:MOST_KINDS]))
