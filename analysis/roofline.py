"""Measured ceilings of a machine, and how close every row comes to the one that bounds it.

The functions are pure and import nothing heavy until they are called; `python -m analysis.roofline RUN...` prints the
table and draws the picture.
"""

import statistics
import sys
from typing import TYPE_CHECKING

import msgspec

from analysis.sheets import SHEETS
from analysis.units import count, size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.estimate import Estimate
    from kernels.problems import Problem
    from workloads.results import Machine, Measurement, Samples

# A row is an error only when its whole interval lies beyond the roof's by more than this.
TOLERANCE = 1.02
ABOVE = "above-roof"
NO_CACHE_ROOF = "no cache roof measured"
BEST_MATMUL = "best matmul seen"
# Arithmetic that GPUs also do on tensor cores, which an FMA loop cannot reach.
TENSOR_MATHS = ("float64", "tf32", "float16", "bfloat16")
# The last cache is passed by for certain from this many times its size.
_BEYOND_CACHE = 4


class Roof(msgspec.Struct, frozen=True):
    """A ceiling of a device. `kind` compute: `rate` in FLOP/s for the arithmetic `name`; memory: bytes/s of `name`.

    threads: the CPU threads it was measured with (None: the library's default). floor_bytes: a memory roof holds for
    working sets above this, those of four caches, of which no cache holds a part that shows. measured: False for a
    data-sheet number, which nothing is judged by except the roof itself.
    """

    device: str
    kind: str
    name: str
    rate: "Estimate"
    source: str
    threads: int | None = None
    note: str = ""
    floor_bytes: int = 0
    measured: bool = True


class Bound(msgspec.Struct, frozen=True):
    """The least seconds that the roofs allow a problem, the roof that says so, and what could not be said."""

    seconds: "Estimate"
    roof: Roof
    note: str = ""


class Judged(msgspec.Struct, frozen=True):
    """A row against its roof: the fraction reached, `flag` ("" or "above-roof") and what could not be said."""

    fraction: "Estimate | None"
    roof: Roof | None
    flag: str = ""
    note: str = ""


def is_gpu(device: str) -> bool:
    return device.startswith("gpu")


def clock_of(measurement: "Measurement") -> "Samples | None":
    """The samples that a kernel is judged by: the device clock on a GPU where there is one, else host latency."""
    on_device = measurement.on("device") if is_gpu(measurement.settings.device) else None
    return on_device or measurement.on("host-latency")


def seconds_of(measurement: "Measurement") -> "Estimate | None":
    """Seconds per call on that clock; None when the row has no such time or is not ok."""
    from analysis.estimate import of

    samples = clock_of(measurement)
    return of(samples) if samples and measurement.status == "ok" and samples.seconds else None


def quick_seconds(measurement: "Measurement") -> float | None:
    """The value of `seconds_of` without its interval."""
    from analysis.estimate import middle

    samples = clock_of(measurement)
    return middle(samples) if samples and measurement.status == "ok" and samples.seconds else None


def describe(measurement: "Measurement") -> str:
    """A row in a few words: kernel, size, threads."""
    p, threads = measurement.problem, measurement.settings.threads
    what = ""
    if p.op == "matmul":
        what = f"n = {p.n}" if p.m == p.n == p.k else f"{p.m} x {p.n} x {p.k}"
    elif p.op == "stream":
        what = size(p.nbytes)
    elif p.op == "peak":
        what = p.math
    return ", ".join(filter(None, (measurement.kernel, what, count(threads, "thread") if threads else "")))


def roofs(measurements: "Iterable[Measurement]", machine: "Machine | None" = None) -> tuple[Roof, ...]:
    """The ceilings of each device from its `peak`, `stream` and `matmul` rows, then the data sheet's, if it is known.

    CPU roofs are per thread count. The arithmetic of tensor cores has no `peak` row: its roof is the best matmul on the
    device clock, and says so. `machine` gives the cache sizes (from where on a stream row counts as memory) and the
    GPU's name; without it the largest working set measured counts.
    """
    usable = [m for m in measurements if m.settings.mode == "resident" and quick_seconds(m)]
    found = [*_compute_roofs(usable), *_memory_roofs(usable, machine)]
    return (*sorted(found, key=lambda r: (r.device, r.kind, r.name, r.threads or 0)), *sheet_roofs(machine))


def sheet_roofs(machine: "Machine | None") -> tuple[Roof, ...]:
    """The data-sheet peaks of the machine's GPUs, for those in SHEETS."""
    from analysis.estimate import Estimate

    def roof(index: int, kind: str, name: str, rate: float, source: str) -> Roof:
        return Roof(f"gpu:{index}", kind, name, Estimate(rate, rate, rate), source, note="data sheet", measured=False)

    made = []
    for index, gpu in enumerate(machine.gpus if machine else ()):
        if sheet := SHEETS.get(gpu.name):
            made += [roof(index, "compute", math, rate, sheet.source) for math, rate in sheet.flops_per_s.items()]
            made.append(roof(index, "memory", "HBM", sheet.bytes_per_s, sheet.source))
    return tuple(made)


def _best(rows: "list[Measurement]", kind: str, name: str, **fields) -> Roof | None:
    """The fastest of the rows as a roof: FLOPs or bytes over seconds; None of no rows.

    A ceiling is what was reached at best, not in the middle: its value is the fastest block's, its interval reaches
    from the row's median to its fastest sample. Otherwise a roof measured in a busy minute would make good rows lie above.
    """
    from analysis.estimate import Estimate

    def work(m):
        return m.problem.flops if kind == "compute" else m.problem.bytes_moved

    if not rows:
        return None
    best = max(rows, key=lambda m: work(m) / quick_seconds(m))
    samples = clock_of(best)
    fastest = min(s for s in samples.seconds)
    blocks = [[s for s, b in zip(samples.seconds, samples.block, strict=True) if b == block] for block in set(samples.block)]
    quick = min(statistics.median(block) for block in blocks)
    rate = Estimate(work(best) / quick, work(best) / max(quick, quick_seconds(best)), work(best) / fastest)
    return Roof(best.settings.device, kind, name, rate, describe(best), best.settings.threads, **fields)


def _groups(rows, key) -> dict:
    found: dict = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return found


def _compute_roofs(rows: "list[Measurement]") -> "Iterable[Roof]":
    peaks = _groups((m for m in rows if m.problem.op == "peak"),
                    lambda m: (m.settings.device, m.problem.math, m.settings.threads))  # fmt: skip
    tensor = _groups((m for m in rows if m.problem.op == "matmul" and is_gpu(m.settings.device) and m.on("device")
                      and m.problem.math in TENSOR_MATHS), lambda m: (m.settings.device, m.problem.math))  # fmt: skip
    for (device, math, _), group in peaks.items():
        beaten = _tensor_roof(tensor.get((device, math)), _best(group, "compute", math))
        yield _best(group, "compute", f"{math} vector" if beaten else math)
    for (device, math), group in tensor.items():
        vector = next((_best(g, "compute", math) for (d, p, _), g in peaks.items() if (d, p) == (device, math)), None)
        if roof := _tensor_roof(group, vector):
            yield roof


def _tensor_roof(group: "list[Measurement] | None", vector: Roof | None) -> Roof | None:
    """The best matmul as a roof, unless an FMA peak holds it: tensor cores carry it beyond."""
    if not group:
        return None
    roof = _best(group, "compute", group[0].problem.math, note=BEST_MATMUL)
    return None if vector and roof.rate.low <= TOLERANCE * vector.rate.high else roof


def _memory_roofs(rows: "list[Measurement]", machine: "Machine | None") -> "Iterable[Roof]":
    streams = [m for m in rows if m.problem.op == "stream"]
    for device, on_device in _groups(streams, lambda m: m.settings.device).items():
        cache, name = last_cache_bytes(machine, device), "HBM" if is_gpu(device) else "DRAM"
        largest = max(m.problem.footprint_bytes for m in on_device)
        start = min(largest, _BEYOND_CACHE * cache) if cache else largest
        kept = [m for m in on_device if m.problem.footprint_bytes >= start]
        if cache and largest <= cache:  # a cache's rate is no memory's
            continue
        for group in _groups(kept, lambda m: m.settings.threads).values():
            yield _best(group, "memory", name, floor_bytes=start - 1)


def last_cache_bytes(machine: "Machine | None", device: str) -> int:
    """Bytes of a device's last cache; 0 when it is not known."""
    if machine is None:
        return 0
    if not is_gpu(device):
        return max(machine.caches_bytes.values(), default=0)
    index = int(device.partition(":")[2] or 0)
    return machine.gpus[index].l2_bytes if index < len(machine.gpus) else 0


def pick(roofs: "Iterable[Roof]", device: str, kind: str, name: str = "", threads: int | None = None) -> Roof | None:
    """The measured roof for that many threads, the best roof of the device without `threads`.

    A count that was not measured gets the lowest of what it cannot exceed: a roof of more threads, or one of fewer
    threads scaled up in proportion. So a fraction is never flattered.
    """
    found = [r for r in roofs if r.measured and (r.device, r.kind) == (device, kind) and name in ("", r.name)]
    same = [r for r in found if r.threads == threads]
    if threads is None or same:
        return max(same if threads else found, key=lambda r: r.rate.value, default=None)
    more = [r for r in found if r.threads is None or r.threads > threads]
    return min([*more, *(_scaled(r, threads) for r in found if r.threads and r.threads < threads)],
               key=lambda r: r.rate.value, default=None)  # fmt: skip


def _scaled(roof: Roof, threads: int) -> Roof:
    note = f"that of {count(roof.threads, 'thread')}, scaled"
    return msgspec.structs.replace(roof, rate=roof.rate.scaled(threads / roof.threads), threads=threads, note=note)


def attainable(roofs: "Iterable[Roof]", problem: "Problem", device: str, threads: int | None = None,
               cache: str = "warm") -> Bound | None:  # fmt: skip
    """The least seconds that the measured roofs allow a problem; None when the roof that matters was not measured.

    The memory roof counts for cold rows and for working sets that no cache holds; for others the note says
    "no cache roof measured".
    """
    flops, moved = getattr(problem, "flops", 0), getattr(problem, "bytes_moved", 0)
    compute = pick(roofs, device, "compute", getattr(problem, "math", "?"), threads) if flops else None
    memory = pick(roofs, device, "memory", "", threads) if moved else None
    cached = memory is not None and cache != "cold" and problem.footprint_bytes <= memory.floor_bytes
    note = NO_CACHE_ROOF if cached else ""
    if (memory is None or cached) if problem.op == "stream" else compute is None:
        return None
    times = [(r.rate.inverse(work), r) for r, work in ((compute, flops), (None if cached else memory, moved)) if r]
    seconds, roof = max(times, key=lambda pair: pair[0].value)
    return Bound(seconds, roof, note)


def judge(measurement: "Measurement", roofs: "Iterable[Roof]") -> Judged:
    """How near a row comes to its roof; `flag` is "above-roof" when it is impossible (units, precision, counting)."""
    from analysis.estimate import Estimate

    settings, problem, seconds = measurement.settings, measurement.problem, seconds_of(measurement)
    if seconds is None or problem.op == "training":
        return Judged(None, None)
    bound = attainable(roofs, problem, settings.device, settings.threads, settings.cache)
    if bound is None:
        known = problem.op == "stream" and pick(roofs, settings.device, "memory") is not None
        return Judged(None, None, note=NO_CACHE_ROOF if known else "no roof measured")
    best = bound.seconds
    fraction = Estimate(best.value / seconds.value, best.low / seconds.high, best.high / seconds.low)
    above = fraction.low > TOLERANCE or _beyond_sheet(measurement, seconds.high, roofs)
    return Judged(fraction, bound.roof, ABOVE if above else "", bound.note)


def _beyond_sheet(measurement: "Measurement", seconds: float, roofs: "Iterable[Roof]") -> bool:
    """Whether the row is faster than its maker says: the only check on a roof that is itself the best matmul seen."""
    flops = getattr(measurement.problem, "flops", 0)
    wanted = (measurement.settings.device, "compute", getattr(measurement.problem, "math", ""))
    return any(flops / seconds > TOLERANCE * r.rate.value for r in roofs
               if not r.measured and (r.device, r.kind, r.name) == wanted)  # fmt: skip


def is_above(measurement: "Measurement", roofs: "Iterable[Roof]") -> bool:
    """Whether a row is flagged "above-roof"; cheap for the many rows that lie far below."""
    s, seconds = measurement.settings, quick_seconds(measurement)
    if seconds is None:
        return False
    bound = attainable(roofs, measurement.problem, s.device, s.threads, s.cache)
    near = (bound is not None and bound.seconds.value > seconds) or _beyond_sheet(measurement, seconds, roofs)
    return near and judge(measurement, roofs).flag == ABOVE


def roof_fraction(measurement: "Measurement", roofs: "Iterable[Roof]") -> float | None:
    """The fraction of its roof that a row reaches (device clock on a GPU, else host latency); None without a roof."""
    fraction = judge(measurement, roofs).fraction
    return fraction.value if fraction else None


def ridge(compute: Roof, memory: Roof) -> float:
    """FLOPs per byte above which the arithmetic, not the memory, is the limit."""
    return compute.rate.value / memory.rate.value


def main(argv: list[str] | None = None) -> int:
    """Prints the roofs and the rows under them, and writes roofline.svg."""
    from analysis.report.command import roofline

    return roofline(argv)


if __name__ == "__main__":
    sys.exit(main())
