"""Sentences on rows and rates: how fast, how near the roof, what binds it, and what went wrong."""

from collections.abc import Callable, Iterable

from analysis.crossover.families import precision_of, square_rows
from analysis.crossover.layers import is_square
from analysis.roofline import memory_levels
from analysis.roofline.bounds import (
    ABOVE,
    BEST_MATMUL,
    NO_CACHE_ROOF,
    Judged,
    Roof,
    describe,
    is_above,
    judge,
    level,
    pick,
    ridge,
)
from analysis.roofline.roofs import QUEUED, TENSOR_VARIANTS, WAITED
from analysis.stats import best_by, call_s, group_by, quick_seconds
from analysis.text import sentences
from analysis.text.sentences import say
from analysis.units import bytes_rate, count, flops_rate, join, percent, seconds
from workloads.records import Machine, Measurement

_NAMED = 3  # of anything in a sentence
_LIMITED = 0.5  # of a roof, from which on it is what limits a row
_LIBRARY = "matmul/numpy/"
_OURS = {
    "matmul/numba/simd": "Numba register tiles",
    "matmul/numba/parallel": "parallel Numba loops",
    "matmul/numba/naive": "plain loops",
}
_SAID = {
    "rate": "The {side} reaches {rate:flops/s} in {precision} at n = {n:,}, {of}.",
    "library": "NumPy's library is {of} (n = {n:,}).",
    "bound": "At n = {n:,} a product does {intensity:number} FLOP a byte; this CPU's ridge point is {corner:number}. {verdict}.",
    "threads": "{most} threads are {speed} at n = {n:,}.",
    "roofs": "Measured roofs of {device}: {of}.",
    "level": "Memory of {device}: {of}.",
    "launch": "An empty call of {device} takes {of}. No call takes less.",
    "link": "Large pinned copies reach {of}{less}.",
    "failed": "{rows} failed: {named}.",
    "wrong": "{rows} gave a wrong answer: {named}.",
    "above": "{rows} above the roof, which is impossible: {named}.",
    "lent": "{rows} above the measured roof, as this virtual machine's speed varies: {named}.",
}
_BOUND = {
    "compute": "It is compute-bound",
    "neither": "It could be compute-bound, but reaches {share:share} of that arithmetic: neither is the limit",
    "cached": "It would be memory-bound, but its {bytes:size} fit {level}",
    "memory": "It is memory-bound",
}
CACHED_MARK = "*"
CACHED_WORDS = "its working set fits a cache, whose roof was not measured: only the compute roof counts"


def machine_words(machine: Machine) -> str:
    """A machine in a line."""
    gpus = [g.name for g in machine.gpus]
    cpu = f"{machine.cpu}, {count(machine.cores, 'core')}"
    return ", ".join((cpu, *dict.fromkeys(g if gpus.count(g) == 1 else f"{gpus.count(g)} x {g}" for g in gpus)))


def device_name(device: str) -> str:
    """`the CPU`, `the GPU`, `GPU 1`."""
    return {"cpu": "the CPU", "gpu:0": "the GPU"}.get(device, f"GPU {device.partition(':')[2]}")


# ---------------------------------------------------------------- products


def best_at_largest(measurements: Iterable[Measurement], gpu: bool) -> Measurement | None:
    """The fastest resident row at the largest n: of float32 where it was measured, else of the first precision."""
    by_precision = square_rows(measurements)
    sizes = by_precision.get("float32") or next(iter(by_precision.values()), {})
    for n in sorted(sizes, reverse=True):
        rows = [m for m in sizes[n] if m.on_gpu == gpu and m.mode == "resident" and quick_seconds(m)]
        if rows := [m for m in rows if m.on("device")] or rows:
            return min(rows, key=call_s)
    return None


def rate_sentences(measurements: Iterable[Measurement], roofs: tuple[Roof, ...]) -> list[str]:
    """The best rate of each device at its largest n, with its part of the roof."""
    measurements, told = list(measurements), []
    for m in filter(None, (best_at_largest(measurements, gpu) for gpu in (False, True))):
        judged, rate = judge(m, roofs), m.problem.flops / call_s(m)
        of = judged.note
        if judged.fraction is not None and judged.roof is not None:
            of = f"{sentences.share(judged.fraction.value)} of {roof_words(judged.roof)}"
            of += " (the CPU was slower while that was measured)" * (judged.fraction.value > 1 and not m.on_gpu)
        told.append(say(_SAID["rate"], side=m.side, rate=rate, precision=precision_of(m.problem), n=m.problem.n, of=of))
    return told


def roof_words(roof: Roof) -> str:
    """`its FMA peak`: the roof that a row is judged by."""
    if roof.kind in ("memory", "cache"):
        return f"its {roof.name} bandwidth"
    if roof.kind in ("link", "launch"):
        return f"the measured {roof.kind} ({roof.name})"
    tensor = roof.source.partition(",")[0].rpartition("/")[2] in TENSOR_VARIANTS
    return "the best matmul seen" if roof.note == BEST_MATMUL else f"its measured {'tensor' if tensor else 'FMA'} peak"


def library_sentences(measurements: Iterable[Measurement]) -> list[str]:
    """How much faster the CPU library is than our Numba kernels and than plain loops, at the largest n that most share."""
    square = [m for m in measurements if m.problem.op == "matmul" and not m.on_gpu and is_square(m.problem)]
    square = [m for m in square if m.problem.math == "float32" and quick_seconds(m)]

    def by_size(kernel: str) -> dict[int, float]:
        best = best_by((m for m in square if m.kernel.startswith(kernel)), lambda m: m.problem.n, call_s)
        return {n: call_s(m) for n, m in best.items()}

    library = by_size(_LIBRARY)
    told: dict[int, list[str]] = {}
    for kernel, name in _OURS.items():
        rows = by_size(kernel)
        if shared := library.keys() & rows.keys():
            n = max(shared)
            told.setdefault(n, []).append(sentences.speed(rows[n] / library[n], name))
    return [say(_SAID["library"], of=join(of), n=n) for n, of in told.items()]


def bound_sentences(measurements: Iterable[Measurement], roofs: tuple[Roof, ...]) -> list[str]:
    """Whether the largest CPU matmul is compute-bound or memory-bound: arithmetic intensity against the ridge point."""
    best = best_at_largest(measurements, gpu=False)
    if best is None:
        return []
    p, s = best.problem, best.settings
    compute = pick(roofs, s.device, "compute", p.math, s.threads)
    memory = pick(roofs, s.device, "memory", "", s.threads)
    if not (compute and memory):
        return []
    intensity, corner, holds = p.flops / p.bytes_moved, ridge(compute, memory), None
    share = p.flops / call_s(best) / compute.rate.value
    if intensity >= corner:
        which = "compute" if share >= _LIMITED else "neither"
    else:
        holds = level(roofs, s.device, p.footprint_bytes, s.threads)
        which = "memory" if holds and holds.kind != "cache" else "cached"
    where = f"{holds.name}, which gives {bytes_rate(holds.rate.value)}" if holds else "a cache"
    verdict = say(_BOUND[which], share=share, bytes=p.footprint_bytes, level=where)
    return [say(_SAID["bound"], n=p.n, verdict=verdict, intensity=intensity, corner=corner)]


def thread_sentences(measurements: Iterable[Measurement]) -> list[str]:
    """What more threads buy the fastest CPU kernel at its largest n."""
    measurements = list(measurements)
    best = best_at_largest(measurements, gpu=False)
    alike = [
        m for m in measurements if best and (m.kernel, m.problem, m.mode) == (best.kernel, best.problem, best.mode)
    ]
    same = {m.threads: taken for m in alike if m.threads and (taken := quick_seconds(m))}
    if best is None or 1 not in same or len(same) < 2:
        return []
    most = max(same)
    return [say(_SAID["threads"], most=most, speed=sentences.speed(same[1] / same[most], "one"), n=best.problem.n)]


# ---------------------------------------------------------------- roofs


def _by_device(name: str, words: Callable[[str], list[str]], roofs: Iterable) -> list[str]:
    """A sentence for each device of the roofs, of the words that are said of it."""
    each = {device: words(device) for device in dict.fromkeys(r.device for r in roofs)}
    return [say(_SAID[name], device=device_name(device), of=join(said)) for device, said in each.items() if said]


def ceiling_sentences(roofs: tuple[Roof, ...]) -> list[str]:
    """The measured roofs, a sentence a device: memory, and the arithmetic of the first precisions."""

    def words(device: str) -> list[str]:
        memory = pick(roofs, device, "memory")
        peaks = [r for r in roofs if r.measured and (r.device, r.kind) == (device, "compute")]
        peaks.sort(key=lambda r: (r.name != "float32", -r.rate.value))
        best = [f"{flops_rate(own[0].rate.value)} in {name}" for name, own in group_by(peaks, lambda r: r.name).items()]
        return ([f"{bytes_rate(memory.rate.value)} from {memory.name}"] if memory else []) + best

    return _by_device("roofs", lambda device: words(device)[:_NAMED], roofs)


def level_sentences(measurements: Iterable[Measurement], machine: Machine | None = None) -> list[str]:
    """How fast each level of each device's memory is: the fastest operation, all threads; a sentence a device."""
    found = sorted(memory_levels.plateaus(measurements, machine), key=lambda p: p.from_bytes)

    def words(device: str) -> list[str]:
        most = max(p.threads or 0 for p in found if p.device == device)
        own = [p for p in found if (p.device, p.threads or 0) == (device, most)]
        best = best_by(own, lambda p: p.name, lambda p: -p.rate.value)
        return [f"{bytes_rate(p.rate.value)} from {name}" for name, p in best.items()][-_NAMED:]

    return _by_device("level", words, sorted(found, key=lambda p: p.device))


def launch_sentences(roofs: tuple[Roof, ...]) -> list[str]:
    """The shortest GPU call: waited for, and queued."""

    def words(device: str) -> list[str]:
        each = {how: pick(roofs, device, "launch", name) for name, how in ((WAITED, "waited for"), (QUEUED, "queued"))}
        return [f"{sentences.time(1 / roof.rate)} {how}" for how, roof in each.items() if roof]

    return _by_device("launch", words, (r for r in roofs if r.kind == "launch"))


def link_sentences(roofs: tuple[Roof, ...]) -> list[str]:
    """What crosses between host and device at best."""
    told = []
    for device, links in group_by((r for r in roofs if r.kind == "link"), lambda r: r.device).items():
        ways = {"h2d": "to", "d2h": "from"}
        words = join(f"{bytes_rate(r.rate.value)} {ways[r.name]} {device_name(device)}" for r in links)
        memory = pick(roofs, device, "memory")
        times = memory.rate.value / min(r.rate.value for r in links) if memory else 0
        less = f", {sentences.factor(times)} less than its own memory" if memory else ""
        told.append(say(_SAID["link"], of=words, less=less))
    return told


def fraction_words(judged: Judged) -> str:
    """`82.1 %`, marked where no memory roof was known to hold; `-` without a roof."""
    if judged.fraction is None:
        return "-"
    return percent(judged.fraction.value) + (f" {CACHED_MARK}" if judged.note == NO_CACHE_ROOF else "")


def roof_name(roof: Roof) -> str:
    """`float32`, `DRAM bandwidth`, `link h2d`, `launch: waited call`."""
    words = {"compute": roof.name, "link": f"link {roof.name}", "launch": f"launch: {roof.name}"}
    return words.get(roof.kind, f"{roof.name} bandwidth")


def roof_rate(roof: Roof) -> str:
    """The rate in its unit; of a launch, the time of a call."""
    if roof.kind == "launch":
        return f"{seconds(1 / roof.rate.value)} a call"
    return (flops_rate if roof.kind == "compute" else bytes_rate)(roof.rate.value)


# ---------------------------------------------------------------- what went wrong


def trouble_sentence(
    measurements: Iterable[Measurement], roofs: tuple[Roof, ...], machine: Machine | None = None
) -> str:
    """Failed rows, wrong answers and impossible rates, a sentence each; "" when there are none.

    A virtual CPU is lent more or less of its host from minute to minute, so its rows may pass a roof measured in a
    leaner one: that is no error, and `beyond_sentence` says it elsewhere.
    """
    rows = list(measurements)
    kinds = {status: [m for m in rows if m.status == status] for status in ("failed", "wrong")}
    kinds["above"] = [m for m in rows if (ABOVE in m.flags or is_above(m, roofs)) and not _lent(m, machine)]
    return " ".join(_counted(kind, own, "row") for kind, own in kinds.items() if own)


def beyond_sentence(measurements: Iterable[Measurement], roofs: tuple[Roof, ...], machine: Machine | None) -> list[str]:
    """CPU rows of a virtual machine above their roof."""
    above = [m for m in measurements if _lent(m, machine) and is_above(m, roofs)]
    return [_counted("lent", above, "CPU row")] if above else []


def _lent(m: Measurement, machine: Machine | None) -> bool:
    return machine is not None and machine.virtual and not m.on_gpu


def _counted(kind: str, rows: list[Measurement], what: str) -> str:
    """How many rows, the first by its name; why, where it failed or is wrong."""
    why = f" ({rows[0].reason})" if rows[0].reason and kind in ("failed", "wrong") else ""
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return say(_SAID[kind], rows=count(len(rows), what), named=describe(rows[0]) + why + more)
