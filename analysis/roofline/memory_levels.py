"""Plateaus of memory bandwidth: the levels that a device's STREAM rows show, found in the data and named by its caches."""

# A level of the memory hierarchy is a range of working sets over which the bandwidth stays the same. The sizes that the
# machine claims for its caches only name what the data show: a virtual machine may claim a cache that it does not have.

import functools
import math
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.stats import Estimate, Z, best_by, call_s, group_by, is_gpu, median, quick_seconds, seconds_of
from workloads.records import Machine, Measurements

OPERATIONS = ("copy", "scale", "add", "triad", "read")
FEWEST = 3  # sizes on a plateau
LEAST_SIZES = 4  # sizes that make a curve worth searching
# How far apart equal levels may lie from size to size, whatever each row's own interval: pages, sets, ways.
_SPREAD = 0.04
_FLAT = 0.15  # the most that a plateau may rise or fall from end to end
# Times log(sizes) for each further piece: its level and its end (Yao 1988, Schwarz's criterion with margin).
_PENALTY = 3.0
# A working set within this many times a cache's size may still show its level; one beyond it cannot.
_WITHIN = 1.5
_BEGINS = 0.95  # of its smallest working set seen: where a level begins


class Plateau(msgspec.Struct, frozen=True):
    """A range of working sets with one bandwidth: `rate` in bytes/s, over `from_bytes` to `to_bytes` as measured.

    name: L1, L2, L3, DRAM; on a GPU L2, HBM; "L3 or DRAM" where the machine claims more cache than the data show. points:
    sizes on it. kernels: those that were fastest there.
    """

    device: str
    threads: int | None
    operation: str
    name: str
    rate: Estimate
    from_bytes: int
    to_bytes: int
    points: int
    kernels: tuple[str, ...]


class Point(msgspec.Struct, frozen=True):
    """The best bandwidth at a working set, and the kernel that reached it."""

    nbytes: int
    rate: Estimate
    kernel: str


Key = tuple[str, int | None, str]  # device, threads, operation
Curve = tuple[Point, ...]


def memory_name(device: str) -> str:
    return "HBM" if is_gpu(device) else "DRAM"


def curves(measurements: Measurements) -> dict[Key, Curve]:
    """(device, threads, operation) -> the best variant at each working set, by rising size; warm STREAM rows only."""
    rows = (
        m
        for m in measurements
        if m.problem.op == "stream"
        and m.problem.operation in OPERATIONS
        and (m.mode, m.settings.cache) == ("resident", "warm")
        and quick_seconds(m)
    )
    found = {}
    for key, group in group_by(rows, lambda m: (m.device, m.threads, m.problem.operation)).items():
        best = best_by(group, lambda m: m.problem.footprint_bytes, lambda m: -m.problem.bytes_moved / call_s(m))
        found[key] = tuple(Point(n, m.problem.bytes_moved / seconds_of(m), m.kernel) for n, m in sorted(best.items()))
    return found


def plateaus(measurements: Measurements, machine: "Machine | None" = None) -> tuple[Plateau, ...]:
    """Every level that a curve shows, the smallest working sets first; none of a curve of fewer than LEAST_SIZES sizes."""
    return tuple(
        p for key, curve in curves(measurements).items() for p in _of(key, curve, levels(machine, key[0], key[1]))
    )


def levels(machine: "Machine | None", device: str, threads: int | None = None) -> tuple[tuple[str, int], ...]:
    """(name, bytes) of the caches that so many threads have together, the innermost first; L1 and L2 are a core's own."""
    if machine is None:
        return ()
    if is_gpu(device):
        gpu = machine.gpu(device)
        claimed = {"L2": gpu.l2_bytes if gpu else 0}
    else:
        cores, each = min(threads or machine.cores, machine.cores), machine.caches_bytes
        claimed = {"L1": each.get("L1d", 0) * cores, "L2": each.get("L2", 0) * cores, "L3": each.get("L3", 0)}
    return tuple((name, nbytes) for name, nbytes in claimed.items() if nbytes)


@functools.lru_cache(maxsize=512)
def _of(key: Key, curve: Curve, claimed: tuple) -> tuple[Plateau, ...]:
    if len(curve) < LEAST_SIZES:
        return ()
    runs = _falling([curve[i:j] for i, j in segments(curve) if _is_flat(curve[i:j])])
    names = _names(key[0], runs, claimed)
    return tuple(_plateau(key, name, run) for run, name in zip(runs, names, strict=True) if name)


def _plateau(key: Key, name: str, run: Curve) -> Plateau:
    rate = median([p.rate.value for p in run])
    kernels = tuple(dict.fromkeys(p.kernel for p in run))
    return Plateau(*key, name, rate, run[0].nbytes, run[-1].nbytes, len(run), kernels)


def segments(curve: Curve) -> list[tuple[int, int]]:
    """The runs [i, j) whose constant levels fit the logarithm of the bandwidth best, each further one paid for.

    Optimal partitioning (Jackson et al., IEEE Signal Processing Letters 2005): the cheapest cut up to j is a run i..j
    after the cheapest cut up to i. The noise is that of the rows, and no less than sizes differ among themselves.
    """
    y = np.log([p.rate.value for p in curve])
    noise = _noise(curve)
    total, squares = np.concatenate([[0.0], np.cumsum(y)]), np.concatenate([[0.0], np.cumsum(y * y)])
    penalty = _PENALTY * math.log(len(y))
    best, cut = [-penalty], [0]
    for j in range(1, len(y) + 1):
        costs = [
            best[i] + penalty + (squares[j] - squares[i] - (total[j] - total[i]) ** 2 / (j - i)) / noise**2
            for i in range(j)
        ]
        cut.append(int(np.argmin(costs)))
        best.append(costs[cut[-1]])
    runs, end = [], len(y)
    while end:
        runs.append((cut[end], end))
        end = cut[end]
    return runs[::-1]


def _noise(curve: Curve) -> float:
    """Standard deviation of the logarithm of a point."""
    return max(_SPREAD, float(np.median([math.log(p.rate.high / p.rate.low) / (2 * Z) for p in curve])))


def _is_flat(run: Curve) -> bool:
    """Whether a run is a level: enough sizes, rates sure enough to tell, and no rise or fall from end to end beyond the noise."""
    if len(run) < FEWEST or _noise(run) > _FLAT:
        return False
    x, y = np.log([p.nbytes for p in run]), np.log([p.rate.value for p in run])
    slope = np.polyfit(x, y, 1)[0]
    return abs(slope) * (x[-1] - x[0]) <= max(_FLAT, 3 * _noise(run))


def _falling(runs: list[Curve]) -> list[Curve]:
    """Without the runs that are slower than a later one: there a call's own cost was measured, not a level."""
    kept: list[Curve] = []
    for run in reversed(runs):
        if not kept or _level(run) > _level(kept[-1]):
            kept.append(run)
    return kept[::-1]


def _level(run: Curve) -> float:
    return float(np.median([p.rate.value for p in run]))


def _names(device: str, runs: list[Curve], claimed: tuple[tuple[str, int], ...]) -> list[str]:
    """A name for each run: that of the smallest cache that may hold its largest working set, else the memory's.

    If one cache may hold two runs, the slower takes the name of the next cache if no run has it. In the last cache, the slower
    run may also be the memory, if the cache is smaller than the machine claims. Otherwise it is a step within a level, and has
    no name.
    """
    memory = memory_name(device)
    if not claimed:  # nothing is known of the caches: the slowest level is taken for the memory
        return [*(f"cache {i + 1}" for i in range(len(runs) - 1)), *([memory] if runs else [])]
    order = [*(name for name, _ in claimed), memory]
    wanted = [
        next((i for i, (_, held) in enumerate(claimed) if run[-1].nbytes <= _WITHIN * held), len(claimed))
        for run in runs
    ]
    given: list[str] = []
    for k, index in enumerate(wanted):
        following = wanted[k + 1] if k + 1 < len(wanted) else len(order)
        if order[index] not in given:
            given.append(order[index])
        elif index == len(claimed) - 1:
            given.append(f"{order[index]} or {memory}" if f"{order[index]} or {memory}" not in given else "")
        elif index < len(claimed) and index + 1 < following:
            given.append(order[index + 1])
        else:
            given.append("")
    return given


def held(found: Iterable[Plateau]) -> list[tuple[Plateau, int, int]]:
    """(plateau, first and last working set that it may hold). It ends just below the start of the next level of its curve, as
    between two levels a part is still held, and operations differ by a few bytes in their working sets. The last one ends at
    the largest size seen on it."""
    groups = group_by(sorted(found, key=lambda p: p.from_bytes), lambda p: (p.device, p.threads, p.operation))
    made: list[tuple[Plateau, int, int]] = []
    for group in groups.values():
        starts = [group[0].from_bytes, *(int(_BEGINS * p.from_bytes) for p in group[1:])]
        ends = [*(start - 1 for start in starts[1:]), group[-1].to_bytes]
        made += zip(group, starts, ends, strict=True)
    return made
