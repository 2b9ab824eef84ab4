"""Sentences on rows and rates: how fast, how near the roof, what binds it, and what went wrong."""

from collections.abc import Iterable

from analysis.crossover.crossover import square_rows
from analysis.crossover.layers import is_square
from analysis.roofline import memory_levels
from analysis.roofline.bounds import ABOVE, BEST_MATMUL, Roof, describe, is_above, judge, level, pick, ridge
from analysis.roofline.roofs import NO_PLATEAU, QUEUED, TENSOR_VARIANTS, WAITED
from analysis.stats import best_by, call_s, group_by, quick_seconds
from analysis.units import bytes_rate, count, digits, flops_rate, join, percent, seconds, size, times
from workloads.records import Machine, Measurement

_NAMED = 3
_LIMITED = 0.5  # of a roof, from which on it is what limits a row
_PLAIN = "matmul/numba/naive"


def machine_words(machine: "Machine") -> str:
    """A machine in a line."""
    gpus = [g.name for g in machine.gpus]
    cpu = f"{machine.cpu}, {count(machine.cores, 'core')}"
    return ", ".join((cpu, *dict.fromkeys(g if gpus.count(g) == 1 else f"{gpus.count(g)} x {g}" for g in gpus)))


def _ok(measurements, op: str, gpu: bool) -> "list[Measurement]":
    return [
        m for m in measurements if m.problem.op == op and m.on_gpu == gpu and m.mode == "resident" and quick_seconds(m)
    ]


def _side(m: "Measurement") -> str:
    return m.label + with_threads(m.threads)


def with_threads(threads: int | None) -> str:
    return f" with {count(threads, 'thread')}" if threads else ""


def _first_precision(measurements) -> str:
    rows = square_rows(measurements)
    return "float32" if "float32" in rows or not rows else next(iter(rows))


def best_at_largest(measurements, gpu: bool) -> "Measurement | None":
    """The fastest resident row at the largest n of the first precision."""
    sizes = square_rows(measurements).get(_first_precision(measurements), {})
    for n in sorted(sizes, reverse=True):
        rows = _ok(sizes[n], "matmul", gpu)
        if rows := [m for m in rows if m.on("device")] or rows:
            return min(rows, key=call_s)
    return None


def rate_sentences(measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]") -> list[str]:
    """The best rate of each device at its largest n, with its part of the roof."""
    measurements = list(measurements)
    best = [m for gpu in (False, True) if (m := best_at_largest(measurements, gpu))]
    return [f"{_first_precision(measurements)}: {'; '.join(_rate(m, roofs) for m in best)}."] if best else []


def _rate(m: "Measurement", roofs) -> str:
    rate, judged = m.problem.flops / call_s(m), judge(m, roofs)
    what = "the GPU" if m.on_gpu else "the CPU"
    told = f"at n = {m.problem.n} {what} ({_side(m)}) reaches {flops_rate(rate)}"
    if judged.fraction is None or judged.roof is None:
        return f"{told} ({judged.note})"
    over = " (the CPU was slower while that was measured)" if judged.fraction.value > 1 and not m.on_gpu else ""
    return f"{told}, {percent(judged.fraction.value)} of {roof_words(judged.roof)}{over}"


def roof_words(roof: "Roof") -> str:
    """`its measured FMA peak of 240 GFLOP/s`."""
    if roof.kind in ("memory", "cache"):
        return f"its measured {roof.name} bandwidth of {bytes_rate(roof.rate.value)}"
    if roof.kind == "link":
        return f"the measured link ({roof.name}), {bytes_rate(roof.rate.value)}"
    if roof.kind == "launch":
        return f"an empty {roof.name}, {seconds(1 / roof.rate.value)}"
    tensor = roof.source.partition(",")[0].rpartition("/")[2] in TENSOR_VARIANTS
    what = "the best matmul seen" if roof.note == BEST_MATMUL else f"its measured {'tensor' if tensor else 'FMA'} peak"
    return f"{what}, {flops_rate(roof.rate.value)}"


def library_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """How much faster the CPU library is than our Numba kernels and than plain loops, at the largest n they share."""
    measurements = [m for m in measurements if m.problem.op == "matmul" and not m.on_gpu]
    library = _by_size(m for m in measurements if m.kernel.startswith("matmul/numpy/"))
    others = {
        "our own register tiles in Numba": _by_size(m for m in measurements if m.kernel == "matmul/numba/simd"),
        "our parallel Numba loops": _by_size(m for m in measurements if m.kernel == "matmul/numba/parallel"),
        "plain loops compiled by Numba": _by_size(m for m in measurements if m.kernel == _PLAIN),
    }
    said = []
    for name, rows in others.items():
        if shared := library.keys() & rows.keys():
            n = max(shared)
            said.append(f"{digits(rows[n] / library[n])} times the speed of {name} at n = {n}")
    return [f"The NumPy library reaches {join(said)}."] if said else []


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
    if intensity >= corner:
        share = p.flops / call_s(best) / compute.rate.value
        which = "it is compute-bound, so arithmetic is the limit"
        if share < _LIMITED:
            which = f"it could be compute-bound, but reaches {percent(share)} of that arithmetic: neither is the limit"
    elif (held := level(roofs, s.device, p.footprint_bytes, s.threads)) is None:
        which = f"it would be memory-bound, but its {size(p.footprint_bytes)} fit a cache, whose roof was not measured"
    elif held.kind == "cache":
        which = (
            f"it would be memory-bound, but its {size(p.footprint_bytes)} fit {held.name}, which gives "
            f"{bytes_rate(held.rate.value)}"
        )
    else:
        which = "it is memory-bound, so memory is the limit"
    return [
        f"A matmul of n = {p.n} does {digits(intensity)} FLOP for each byte it must move, and this CPU's ridge "
        f"point ({flops_rate(compute.rate.value)} over {bytes_rate(memory.rate.value)}) is "
        f"{digits(corner)}: {which}."
    ]


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
    return [
        f"At n = {best.problem.n} {most} threads are {times(same[1] / same[most])} as fast as one "
        f"({best.label}: {seconds(same[most])} against {seconds(same[1])})."
    ]


def ceiling_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """The measured ceilings, a sentence a device."""
    said = []
    for device in dict.fromkeys(r.device for r in roofs):
        memory = pick(roofs, device, "memory")
        peaks = [r for r in roofs if r.measured and (r.device, r.kind) == (device, "compute")]
        best = {r.name: max(o.rate.value for o in peaks if o.name == r.name) for r in peaks}
        whence = f" ({memory.note})" if memory and memory.note.startswith(NO_PLATEAU) else ""
        words = [f"{bytes_rate(memory.rate.value)} from {memory.name}{whence}"] if memory else []
        words += [f"{flops_rate(rate)} in {name}" for name, rate in best.items()]
        if words:
            said.append(f"Measured ceilings of {'the CPU' if device == 'cpu' else device}: {join(words)}.")
    return said


def unflat_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """What stands for a memory whose bandwidth has no flat part: where its ceiling comes from."""
    said = []
    for r in (r for r in roofs if r.kind == "memory" and r.note.startswith(NO_PLATEAU)):
        what = r.note.partition(": ")[2]
        said.append(
            f"{r.device}: the {r.name} ceiling{with_threads(r.threads)}, {bytes_rate(r.rate.value)}, is {what} ({r.source})."
        )
    return said


def level_sentences(measurements: "Iterable[Measurement]", machine: "Machine | None" = None) -> list[str]:
    """How fast each level of each device's memory is: the fastest operation, all threads; a sentence a device."""
    found = memory_levels.plateaus(measurements, machine)
    said = []
    for device in dict.fromkeys(p.device for p in found):
        most = max((p.threads or 0 for p in found if p.device == device), default=0)
        own = [p for p in found if p.device == device and (p.threads or 0) == most]
        best = best_by(sorted(own, key=lambda p: p.from_bytes), lambda p: p.name, lambda p: -p.rate.value)
        words = [
            f"{bytes_rate(p.rate.value)} from {name} (working sets of {size(p.from_bytes)} to {size(p.to_bytes)})"
            for name, p in best.items()
        ]
        said.append(f"Memory of {device_name(device)}{with_threads(most)} gives {join(words)}.")
    return said


def launch_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """The shortest GPU call: waited for, and queued."""
    said = []
    for device in dict.fromkeys(r.device for r in roofs if r.kind == "launch"):
        waited, queued = (pick(roofs, device, "launch", name) for name in (WAITED, QUEUED))
        words = [f"{seconds(1 / waited.rate.value)} when the program waits for it"] if waited else []
        words += [f"{seconds(1 / queued.rate.value)} of the device's time when many are queued"] if queued else []
        said.append(
            f"A call of {device_name(device)} that computes nothing takes {join(words)}; however little there is to "
            "compute, a call costs that."
        )
    return said


def link_sentences(roofs: "tuple[Roof, ...]") -> list[str]:
    """What crosses between host and device at best."""
    said = []
    for device in dict.fromkeys(r.device for r in roofs if r.kind == "link"):
        ways = {"h2d": "to", "d2h": "from"}
        here = [r for r in roofs if (r.device, r.kind) == (device, "link")]
        words = [f"{bytes_rate(r.rate.value)} {ways[r.name]} {device_name(device)}" for r in here]
        ends = {"h2d": "from", "d2h": "to"}[here[0].name] if len(here) == 1 else "from and to"
        memory = pick(roofs, device, "memory")
        slower = min(r.rate.value for r in here)
        times_less = f", {digits(memory.rate.value / slower)} times less than its own memory gives" if memory else ""
        said.append(f"Large copies {ends} pinned host memory reach {join(words)}{times_less}.")
    return said


def device_name(device: str) -> str:
    """`the CPU`, `the GPU`, `GPU 1`."""
    return {"cpu": "the CPU", "gpu:0": "the GPU"}.get(device, f"GPU {device.partition(':')[2]}")


def trouble_sentence(
    measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]", machine: "Machine | None" = None
) -> str:
    """Failed rows, wrong answers and impossible rates in one sentence; "" when there are none.

    A virtual CPU is lent more or less of its host from minute to minute, so its rows may pass a roof measured in a
    leaner one: that is no error, and `beyond_sentence` says it elsewhere.
    """
    measurements = list(measurements)
    parts = []
    for status, words in (("failed", "failed"), ("wrong", "gave a wrong answer")):
        rows = [m for m in measurements if m.status == status]
        if rows:
            parts.append(f"{count(len(rows), 'row')} {words}: {_named(rows, lambda m: m.reason)}")
    above = [m for m in measurements if (ABOVE in m.flags or is_above(m, roofs)) and not _lent(m, machine)]
    if above:
        lie = "lies" if len(above) == 1 else "lie"
        parts.append(
            f"{count(len(above), 'row')} {lie} above the roof, which is impossible: the machine was slower while "
            f"the roof was measured, or units, precision or counting are wrong: {_named(above)}"
        )
    return f"{'; '.join(parts)}." if parts else ""


def _lent(m: "Measurement", machine: "Machine | None") -> bool:
    return machine is not None and machine.virtual and not m.on_gpu


def beyond_sentence(
    measurements: "Iterable[Measurement]", roofs: "tuple[Roof, ...]", machine: "Machine | None"
) -> list[str]:
    """CPU rows of a virtual machine above their roof."""
    above = [m for m in measurements if _lent(m, machine) and is_above(m, roofs)]
    if not above:
        return []
    rows = f"{count(len(above), 'row')} of the CPU {'passes' if len(above) == 1 else 'pass'} the roof measured"
    return [
        f"{rows}: this virtual machine was lent more of its host then than while the roof was measured: {_named(above)}."
    ]


def _named(rows, why=lambda m: "") -> str:
    told = [describe(m) + (f" ({why(m)})" if why(m) else "") for m in rows[:_NAMED]]
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return ", ".join(told) + more


def skipped_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """Rows that were not run, by reason."""
    reasons = group_by((m for m in measurements if m.status == "skipped"), lambda m: m.reason)
    return [f"{count(len(rows), 'row')} skipped ({reason}): {_named(rows)}." for reason, rows in reasons.items()]


def flag_sentences(measurements: "Iterable[Measurement]") -> list[str]:
    """Flags that make numbers doubtful, with how many rows have them."""
    flags: dict[str, list] = {}
    for m in measurements:
        for flag in m.flags:
            flags.setdefault(flag, []).append(m)
    return [f"{count(len(rows), 'row')} flagged {flag}: {_named(rows)}." for flag, rows in flags.items()]
