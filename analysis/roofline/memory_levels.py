"""Plateaus of memory bandwidth: the levels that a device's STREAM rows show, found in the data and named by its caches."""

# A level of the memory hierarchy is a range of working sets over which the bandwidth stays the same. The sizes that the
# machine claims for its caches only name what the data show: a virtual machine may claim a cache that it does not have.

import functools
import math
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.stats import Estimate, Z, best_by, call_s, group_by, is_gpu, median, quick_seconds, seconds_of
from workloads.records import Machine, Measurement, Measurements

OPERATIONS = ("copy", "scale", "add", "triad", "read")
FEWEST = 3  # sizes on a plateau
LEAST_SIZES = 4  # sizes that make a curve worth searching
# How far apart equal levels may lie from size to size, whatever each row's own interval: pages, sets, ways.
_SPREAD = 0.04
_FLAT = 0.15  # the most that a plateau may rise or fall from end to end
# Times log(number of sizes): the cost of a further step, which fits a level and an end (Yao 1988, Schwarz's criterion with
# margin).
_PENALTY = 3.0
# A working set within this many times a cache's size may still show its level; one beyond it cannot.
_WITHIN = 1.5
_BEGINS = 0.95  # of the smallest working set measured on it: where a level begins


class Plateau(msgspec.Struct, frozen=True, kw_only=True):
    """A range of working sets with one bandwidth."""

    #: `cpu`, `gpu:0`.
    device: str
    #: CPU threads.
    threads: int | None
    #: One of OPERATIONS.
    operation: str
    #: L1, L2, L3, DRAM; on a GPU L2, HBM; "L3 or DRAM" where the machine claims more cache than the data show.
    name: str
    #: Bytes/s: the median over its working sets.
    rate: Estimate
    #: The smallest working set that was measured on it.
    from_bytes: int
    #: The largest.
    to_bytes: int
    #: Working sets on it.
    points: int
    #: The kernels that were fastest on it.
    kernels: tuple[str, ...]


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """The working sets that a level may hold."""

    plateau: Plateau
    #: The smallest, in bytes.
    first_bytes: int
    #: The largest.
    last_bytes: int


class Bandwidth(msgspec.Struct, frozen=True, kw_only=True):
    """The best bandwidth at a working set."""

    #: Of the working set.
    nbytes: int
    #: Bytes/s.
    rate: Estimate
    #: The kernel that reached it.
    kernel: str


class Key(msgspec.Struct, frozen=True, kw_only=True):
    """The device, threads and operation of a curve of bandwidths."""

    #: `cpu`, `gpu:0`.
    device: str
    #: CPU threads.
    threads: int | None
    #: One of OPERATIONS.
    operation: str


Curve = tuple[Bandwidth, ...]  # bandwidths of one device, number of threads and operation, by rising working set


def memory_name(device: str) -> str:
    """The name of a device's memory: HBM of a GPU, DRAM of a CPU."""
    return "HBM" if is_gpu(device) else "DRAM"


def curves(measurements: Measurements) -> dict[Key, Curve]:
    """The best bandwidth over all kernels at each working set, by rising size, for each device, number of threads and operation;
    only of STREAM kernels with warm caches."""
    rows = (
        m
        for m in measurements
        if m.problem.op == "stream"
        and m.problem.operation in OPERATIONS
        and (m.mode, m.settings.cache) == ("resident", "warm")
        and quick_seconds(m)
    )
    curves = {}
    for key, group in group_by(rows, _key).items():
        best = best_by(group, lambda m: m.problem.footprint_bytes, lambda m: -m.problem.bytes_moved / call_s(m))
        curves[key] = tuple(
            Bandwidth(nbytes=nbytes, rate=m.problem.bytes_moved / seconds_of(m), kernel=m.kernel)
            for nbytes, m in sorted(best.items())
        )
    return curves


def _key(m: Measurement) -> Key:
    return Key(device=m.device, threads=m.threads, operation=m.problem.operation)


def plateaus(measurements: Measurements, machine: "Machine | None" = None) -> tuple[Plateau, ...]:
    """The levels of the memory hierarchy that the measured bandwidths show, of each curve the smallest working sets first. Curves
    of fewer than LEAST_SIZES sizes show none. The machine's caches give the levels their names."""
    shown: list[Plateau] = []
    for key, curve in curves(measurements).items():
        shown += _curve_plateaus(key, curve, levels(machine, key.device, key.threads))
    return tuple(shown)


def levels(machine: "Machine | None", device: str, threads: int | None = None) -> tuple[tuple[str, int], ...]:
    """(name, bytes) of a device's caches as the machine states them, the innermost first; () if they are not known. L1 and L2 of
    a CPU belong to a core, so their bytes are those that so many threads (None: all cores) have together."""
    if machine is None:
        return ()
    if is_gpu(device):
        gpu = machine.gpu(device)
        stated = {"L2": gpu.l2_bytes if gpu else 0}
    else:
        cores = min(threads or machine.cores, machine.cores)
        caches = machine.caches_bytes
        stated = {"L1": caches.get("L1d", 0) * cores, "L2": caches.get("L2", 0) * cores, "L3": caches.get("L3", 0)}
    return tuple((name, nbytes) for name, nbytes in stated.items() if nbytes)


@functools.lru_cache(maxsize=512)
def _curve_plateaus(key: Key, curve: Curve, caches: tuple[tuple[str, int], ...]) -> tuple[Plateau, ...]:
    """The levels that one curve shows, the smallest working sets first. caches: (name, bytes) as `levels` gives them."""
    if len(curve) < LEAST_SIZES:
        return ()
    flat = [curve[first:end] for first, end in segments(curve) if _is_flat(curve[first:end])]
    runs = _falling(flat)
    names = _level_names(key.device, runs, caches)
    return tuple(_plateau(key, name, run) for run, name in zip(runs, names, strict=True) if name)


def _plateau(key: Key, name: str, run: Curve) -> Plateau:
    """The level of that name, from the bandwidths of the working sets on it."""
    return Plateau(
        device=key.device,
        threads=key.threads,
        operation=key.operation,
        name=name,
        rate=median([p.rate.value for p in run]),
        from_bytes=run[0].nbytes,
        to_bytes=run[-1].nbytes,
        points=len(run),
        kernels=tuple(dict.fromkeys(p.kernel for p in run)),
    )


def segments(curve: Curve) -> list[tuple[int, int]]:
    """The runs [first, end) of a curve with the same bandwidth: the step function that fits its logarithm best, where each
    further step costs a penalty. A difference counts by the noise of the points, or by how much sizes differ among themselves if
    that is more.

    Source: optimal partitioning, Jackson et al., IEEE Signal Processing Letters 2005: the cheapest cut of the points before `end`
    is a run from `first` after the cheapest cut of the points before `first`.
    """
    log_rates = np.log([p.rate.value for p in curve])
    variance = _noise(curve) ** 2
    sums = np.concatenate([[0.0], np.cumsum(log_rates)])
    squares = np.concatenate([[0.0], np.cumsum(log_rates * log_rates)])
    penalty = _PENALTY * math.log(len(log_rates))
    least_costs = [-penalty]  # [end]: cost of the cheapest cut of the points before `end`
    last_starts = [0]  # [end]: where the last run of that cut starts
    for end in range(1, len(log_rates) + 1):
        costs = []
        for first in range(end):
            mean_square = (sums[end] - sums[first]) ** 2 / (end - first)
            squared_residuals = squares[end] - squares[first] - mean_square
            costs.append(least_costs[first] + penalty + squared_residuals / variance)
        start = int(np.argmin(costs))
        last_starts.append(start)
        least_costs.append(costs[start])
    runs = []
    end = len(log_rates)
    while end:
        runs.append((last_starts[end], end))
        end = last_starts[end]
    return runs[::-1]


def _noise(curve: Curve) -> float:
    """The typical standard deviation of the logarithm of a point's bandwidth, at least _SPREAD."""
    return max(_SPREAD, float(np.median([math.log(p.rate.high / p.rate.low) / (2 * Z) for p in curve])))


def _is_flat(run: Curve) -> bool:
    """Whether a run of working sets has one bandwidth: enough sizes, points that are not too noisy, and no rise or fall from end
    to end beyond the noise."""
    if len(run) < FEWEST or _noise(run) > _FLAT:
        return False
    x, y = np.log([p.nbytes for p in run]), np.log([p.rate.value for p in run])
    slope = np.polyfit(x, y, 1)[0]
    return abs(slope) * (x[-1] - x[0]) <= max(_FLAT, 3 * _noise(run))


def _falling(runs: list[Curve]) -> list[Curve]:
    """The runs without those that are slower than a run of larger working sets: there the overhead of a call was measured, not
    a level of memory."""
    falling: list[Curve] = []
    for run in reversed(runs):
        if not falling or _median_rate(run) > _median_rate(falling[-1]):
            falling.append(run)
    return falling[::-1]


def _median_rate(run: Curve) -> float:
    """The median bandwidth of a run in bytes/s."""
    return float(np.median([p.rate.value for p in run]))


def _level_names(device: str, runs: list[Curve], caches: tuple[tuple[str, int], ...]) -> list[str]:
    """A name for each run of working sets with one bandwidth: that of the smallest cache that may hold its largest working set,
    else the memory's. `caches`: (name, bytes) as the machine states them, the innermost first.

    If one cache may hold two runs, the slower one takes the name of the next cache if no run has it. In the last cache the slower
    run may also be the memory, as the cache may be smaller than stated: "L3 or DRAM". Otherwise it is a step within a level,
    and its name is "".
    """
    memory = memory_name(device)
    if not caches:  # nothing is known of the caches: the slowest level is taken for the memory
        numbered = [f"cache {i + 1}" for i in range(len(runs) - 1)]
        return [*numbered, memory] if runs else []
    level_names = [*(name for name, _ in caches), memory]
    run_levels = [_level_index(run, caches) for run in runs]
    names: list[str] = []
    for run_number, index in enumerate(run_levels):
        next_index = run_levels[run_number + 1] if run_number + 1 < len(run_levels) else len(level_names)
        name = level_names[index]
        either = f"{name} or {memory}"
        if name not in names:
            names.append(name)
        elif index == len(caches) - 1 and either not in names:
            names.append(either)
        elif index < len(caches) - 1 and index + 1 < next_index:
            names.append(level_names[index + 1])
        else:
            names.append("")
    return names


def _level_index(run: Curve, caches: tuple[tuple[str, int], ...]) -> int:
    """The index of the smallest cache that may hold the run's largest working set; len(caches) if only the memory does."""
    largest = run[-1].nbytes
    for index, (_, cache_bytes) in enumerate(caches):
        if largest <= _WITHIN * cache_bytes:
            return index
    return len(caches)


def spans(plateaus: Iterable[Plateau]) -> list[Span]:
    """The range of working sets that each measured level may hold.

    A level holds everything up to just below the start of the next level of its curve: between two levels a part still fits, and
    operations differ by a few bytes in their working sets. The last level ends at the largest working set measured on it.
    """
    by_size = sorted(plateaus, key=lambda plateau: plateau.from_bytes)
    spans = []
    for curve in group_by(by_size, lambda plateau: (plateau.device, plateau.threads, plateau.operation)).values():
        starts = [curve[0].from_bytes, *(int(_BEGINS * plateau.from_bytes) for plateau in curve[1:])]
        last_bytes = [*(start - 1 for start in starts[1:]), curve[-1].to_bytes]
        for plateau, first, last in zip(curve, starts, last_bytes, strict=True):
            spans.append(Span(plateau=plateau, first_bytes=first, last_bytes=last))
    return spans
