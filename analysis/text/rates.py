"""Sentences on rows and rates: how fast, how near the roof, what binds it, and what went wrong."""

from collections.abc import Iterable

from analysis.crossover.crossover import square_rows
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
from analysis.roofline.roofs import NO_PLATEAU, QUEUED, TENSOR_VARIANTS, WAITED
from analysis.stats import best_by, call_s, quick_seconds
from analysis.text import sentences
from analysis.units import bytes_rate, count, flops_rate, join, percent, seconds, size
from workloads.records import Machine, Measurement

_NAMED = 3  # of anything in a sentence
_LIMITED = 0.5  # of a roof, from which on it is what limits a row
_LIBRARY, _OURS = (
    "matmul/numpy/",
    {
        "matmul/numba/simd": "Numba register tiles",
        "matmul/numba/parallel": "parallel Numba loops",
        "matmul/numba/naive": "plain loops",
    },
)
_SAID = {
    "rate": "The {side} reaches {rate} in {precision} at n = {n:,}, {of}.",
    "library": "NumPy's library is {of} (n = {n:,}).",
    "bound": "At n = {n:,} a product does {intensity} FLOP a byte; this CPU's ridge point is {corner}. {verdict}.",
    "threads": "{most} threads are {speed} at n = {n:,}.",
    "roofs": "Measured roofs of {device}: {of}.",
    "level": "Memory of {device}: {of}.",
    "launch": "An empty call of {device} takes {of}. No call takes less.",
    "link": "Large pinned copies reach {of}{less}.",
    "unflat": "{device}: no bandwidth plateau in {name}; its roof of {rate} is {what}.",
    "above": "{rows} above the roof, which is impossible: {named}.",
    "lent": "{rows} above the measured roof, as this virtual machine's speed varies: {named}.",
}
_BOUND = {
    "compute": "It is compute-bound",
    "neither": "It could be compute-bound, but reaches {share} of that arithmetic: neither is the limit",
    "cached": "It would be memory-bound, but its {bytes} fit {level}",
    "memory": "It is memory-bound",
}


CACHED_MARK = "*"
CACHED_WORDS = "its working set fits a cache, whose roof was not measured: only the compute roof counts"


def machine_words(machine: "Machine") -> str:
    """A machine in a line."""
    gpus = [g.name for g in machine.gpus]
    cpu = f"{machine.cpu}, {count(machine.cores, 'core')}"
    return ", ".join((cpu, *dict.fromkeys(g if gpus.count(g) == 1 else f"{gpus.count(g)} x {g}" for g in gpus)))


def device_name(device: str) -> str:
    """`the CPU`, `the GPU`, `GPU 1`."""
    return {"cpu": "the CPU", "gpu:0": "the GPU"}.get(device, f"GPU {device.partition(':')[2]}")


def first_precision(measurements) -> str:
    """The precision that is told first: float32 where it was measured."""
    rows = square_rows(measurements)
    return "float32" if "float32" in rows or not rows else next(iter(rows))


def best_at_largest(measurements, gpu: bool) -> "Measurement | None":
    """The fastest resident row at the largest n of the first precision."""
    sizes = square_rows(measurements).get(first_precision(measurements), {})
    for n in sorted(sizes, reverse=True):
        rows = [m for m in sizes[n] if m.on_gpu == gpu and m.mode == "resident" and quick_seconds(m)]
        if rows := [m for m in rows if m.on("device")] or rows:
            return min(rows, key=call_s)
    return None


def rate_sentences(measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]") -> list[str]:
    """The best rate of each device at its largest n, with its part of the roof."""
    measurements = list(measurements)
    best = [m for gpu in (False, True) if (m := best_at_largest(measurements, gpu))]
    return [_rate(m, first_precision(measurements), roofs) for m in best]


def _rate(m: "Measurement", precision: str, roofs) -> str:
    judged = judge(m, roofs)
    of = judged.note
    if judged.fraction is not None and judged.roof is not None:
        of = f"{sentences.share(judged.fraction.value)} of {roof_words(judged.roof)}"
        of += " (the CPU was slower while that was measured)" * (judged.fraction.value > 1 and not m.on_gpu)
    rate = flops_rate(m.problem.flops / call_s(m))
    return _SAID["rate"].format(side="GPU" if m.on_gpu else "CPU", rate=rate, precision=precision, n=m.problem.n, of=of)


def roof_words(roof: "Roof") -> str:
    """`its FMA peak`: the roof that a row is judged by."""
    if roof.kind in ("memory", "cache"):
        return f"its {roof.name} bandwidth"
    if roof.kind in ("link", "launch"):
        return f"the measured {roof.kind} ({roof.name})"
    tensor = roof.source.partition(",")[0].rpartition("/")[2] in TENSOR_VARIANTS
    return "the best matmul seen" if roof.note == BEST_MATMUL else f"its measured {'tensor' if tensor else 'FMA'} peak"


def library_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """How much faster the CPU library is than our Numba kernels and than plain loops, at the largest n that most share."""
    measurements = [m for m in measurements if m.problem.op == "matmul" and not m.on_gpu]
    library = _by_size(m for m in measurements if m.kernel.startswith(_LIBRARY))
    said: dict[int, list[str]] = {}
    for kernel, name in _OURS.items():
        rows = _by_size(m for m in measurements if m.kernel == kernel)
        if shared := library.keys() & rows.keys():
            n = max(shared)
            said.setdefault(n, []).append(sentences.speed(rows[n] / library[n], name))
    return [_SAID["library"].format(of=join(of), n=n) for n, of in said.items()]


def _by_size(rows) -> dict[int, float]:
    """n -> least seconds, over the square rows of float32."""
    square = (m for m in rows if quick_seconds(m) and is_square(m.problem) and m.problem.math == "float32")
    return {n: call_s(m) for n, m in best_by(square, lambda m: m.problem.n, call_s).items()}


def bound_sentences(measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]") -> list[str]:
    """Whether the largest CPU matmul is compute-bound or memory-bound: arithmetic intensity against the ridge point."""
    best = best_at_largest(list(measurements), gpu=False)
    if best is None:
        return []
    p, s = best.problem, best.settings
    compute = pick(roofs, s.device, "compute", p.math, s.threads)
    memory = pick(roofs, s.device, "memory", "", s.threads)
    if not (compute and memory):
        return []
    intensity, corner = p.flops / p.bytes_moved, ridge(compute, memory)
    share = p.flops / call_s(best) / compute.rate.value
    words = {"share": sentences.share(share), "bytes": size(p.footprint_bytes), "level": "a cache"}
    if intensity >= corner:
        which = "compute" if share >= _LIMITED else "neither"
    else:
        holds = level(roofs, s.device, p.footprint_bytes, s.threads)
        which = "memory" if holds and holds.kind != "cache" else "cached"
        words["level"] = f"{holds.name}, which gives {bytes_rate(holds.rate.value)}" if holds else "a cache"
    verdict = _BOUND[which].format(**words)
    numbers = {"intensity": sentences.number(intensity), "corner": sentences.number(corner)}
    return [_SAID["bound"].format(n=p.n, verdict=verdict, **numbers)]


def thread_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """What more threads buy the fastest CPU kernel at its largest n."""
    best = best_at_largest(list(measurements), gpu=False)
    if best is None:
        return []
    same = {
        m.threads: taken
        for m in measurements
        if (m.kernel, m.problem, m.mode) == (best.kernel, best.problem, best.mode)
        and m.threads
        and (taken := quick_seconds(m))
    }
    if 1 not in same or len(same) < 2:
        return []
    most = max(same)
    return [_SAID["threads"].format(most=most, speed=sentences.speed(same[1] / same[most], "one"), n=best.problem.n)]


def ceiling_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """The measured roofs, a sentence a device: memory, and the arithmetic of the first precisions."""
    said = []
    for device in dict.fromkeys(r.device for r in roofs):
        memory = pick(roofs, device, "memory")
        peaks = [r for r in roofs if r.measured and (r.device, r.kind) == (device, "compute")]
        ranked = sorted(peaks, key=lambda r: (r.name != "float32", -r.rate.value))
        best = {r.name: max(o.rate.value for o in peaks if o.name == r.name) for r in ranked}
        words = [f"{bytes_rate(memory.rate.value)} from {memory.name}"] if memory else []
        words += [f"{flops_rate(rate)} in {name}" for name, rate in best.items()]
        if words:
            said.append(_SAID["roofs"].format(device=device_name(device), of=join(words[:_NAMED])))
    return said


def unflat_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """What stands for a memory whose bandwidth has no flat part: where its roof comes from."""
    return [
        _SAID["unflat"].format(
            device=device_name(r.device), name=r.name, rate=bytes_rate(r.rate.value), what=r.note.partition(": ")[2]
        )
        for r in roofs
        if r.kind == "memory" and r.note.startswith(NO_PLATEAU)
    ]


def level_sentences(measurements: "Iterable[Measurement]", machine: "Machine | None" = None) -> list[str]:
    """How fast each level of each device's memory is: the fastest operation, all threads; a sentence a device."""
    found = memory_levels.plateaus(measurements, machine)
    said = []
    for device in dict.fromkeys(p.device for p in found):
        most = max((p.threads or 0 for p in found if p.device == device), default=0)
        own = [p for p in found if p.device == device and (p.threads or 0) == most]
        best = best_by(sorted(own, key=lambda p: p.from_bytes), lambda p: p.name, lambda p: -p.rate.value)
        words = [f"{bytes_rate(p.rate.value)} from {name}" for name, p in best.items()]
        said.append(_SAID["level"].format(device=device_name(device), of=join(words[-_NAMED:])))
    return said


def launch_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """The shortest GPU call: waited for, and queued."""
    said = []
    for device in dict.fromkeys(r.device for r in roofs if r.kind == "launch"):
        each = (
            (pick(roofs, device, "launch", name), how) for name, how in ((WAITED, "waited for"), (QUEUED, "queued"))
        )
        words = [f"{sentences.time(1 / roof.rate)} {how}" for roof, how in each if roof]
        said.append(_SAID["launch"].format(device=device_name(device), of=join(words)))
    return said


def link_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """What crosses between host and device at best."""
    said = []
    for device in dict.fromkeys(r.device for r in roofs if r.kind == "link"):
        ways = {"h2d": "to", "d2h": "from"}
        here = [r for r in roofs if (r.device, r.kind) == (device, "link")]
        words = [f"{bytes_rate(r.rate.value)} {ways[r.name]} {device_name(device)}" for r in here]
        memory = pick(roofs, device, "memory")
        times = memory.rate.value / min(r.rate.value for r in here) if memory else 0
        less = f", {sentences.factor(times)} less than its own memory" if memory else ""
        said.append(_SAID["link"].format(of=join(words), less=less))
    return said


def trouble_sentence(
    measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]", machine: "Machine | None" = None
) -> str:
    """Failed rows, wrong answers and impossible rates, a sentence each; "" when there are none.

    A virtual CPU is lent more or less of its host from minute to minute, so its rows may pass a roof measured in a
    leaner one: that is no error, and `beyond_sentence` says it elsewhere.
    """
    measurements, said = list(measurements), []
    for status, words in (("failed", "failed"), ("wrong", "gave a wrong answer")):
        if rows := [m for m in measurements if m.status == status]:
            said.append(f"{count(len(rows), 'row')} {words}: {_named(rows, lambda m: m.reason)}.")
    above = [m for m in measurements if (ABOVE in m.flags or is_above(m, roofs)) and not _lent(m, machine)]
    if above:
        said.append(_SAID["above"].format(rows=count(len(above), "row"), named=_named(above)))
    return " ".join(said)


def _lent(m: "Measurement", machine: "Machine | None") -> bool:
    return machine is not None and machine.virtual and not m.on_gpu


def beyond_sentence(
    measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]", machine: "Machine | None"
) -> list[str]:
    """CPU rows of a virtual machine above their roof."""
    above = [m for m in measurements if _lent(m, machine) and is_above(m, roofs)]
    return [_SAID["lent"].format(rows=count(len(above), "CPU row"), named=_named(above))] if above else []


def _named(rows, why=lambda m: "") -> str:
    told = [describe(m) + (f" ({why(m)})" if why(m) else "") for m in rows[:1]]
    return told[0] + (f" and {len(rows) - 1} more" if len(rows) > 1 else "")


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
