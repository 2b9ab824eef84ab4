"""Which rows stand for a device, a kernel or a form in tables and pictures."""

import itertools
from collections.abc import Iterable

from analysis.crossover.crossover import Answer, Crossing, fastest, square_rows
from analysis.stats import Estimate, call_s, quick_seconds
from workloads.records import Measurement


def best_resident(measurements: "Iterable[Measurement]") -> "dict[tuple[str, str], dict[int, Measurement]]":
    """(device, precision) -> n -> the fastest resident square matmul, on the clock that rooflines use."""
    found: dict = {}
    for precision, sizes in square_rows(measurements).items():
        for n in sorted(sizes):
            for m in sizes[n]:
                if m.settings.mode == "resident" and quick_seconds(m):
                    at = found.setdefault((m.device, precision), {})
                    at[n] = min(at.get(n, m), m, key=_preference)
    return {key: _one_clock(at) for key, at in found.items()}


def _one_clock(at: "dict[int, Measurement]") -> "dict[int, Measurement]":
    """Without the rows that lack a device clock where others have it: their time holds launches too."""
    timed = {n: m for n, m in at.items() if m.on("device")}
    return timed or at


def _preference(m: "Measurement") -> tuple[bool, float]:
    """Rows with a device clock before those without (their time holds launches too), then the fastest."""
    return (m.on_gpu and m.on("device") is None, call_s(m))


def by_kernel(measurements: "Iterable[Measurement]") -> "dict[tuple[str, str], dict[int, Measurement]]":
    """(kernel, precision) -> n -> the fastest resident square matmul of that kernel over thread counts; rungs too."""
    found: dict = {}
    for m in measurements:
        p = m.problem
        if p.op == "matmul" and p.m == p.n == p.k and m.settings.mode == "resident" and quick_seconds(m):
            at = found.setdefault((m.kernel, p.math), {})
            at[p.n] = min(at.get(p.n, m), m, key=call_s)
    return {key: dict(sorted(at.items())) for key, at in found.items()}


def lines(answers: Iterable[Answer], measurements: "Iterable[Measurement]") -> "dict[str, list[tuple[int, Estimate]]]":
    """label -> (n, seconds) of the first precision: the CPU's best, its default threads, and the GPU in each form.

    Works without a GPU too: then only the CPU's line is there.
    """
    answers = list(answers)
    if not answers:
        return {}
    first = [a for a in answers if a.precision == answers[0].precision and not a.form.as_written]
    found = {"CPU, best": _cpu_line(first[0], measurements)}
    for a in first:
        found[_label(a)] = [(p.n, p.gpu.seconds) for p in a.points]
        if a.default:
            found.setdefault("CPU, default threads", [(p.n, p.cpu.seconds) for p in a.default.points])
    return {label: line for label, line in found.items() if line}


def _cpu_line(a: Answer, measurements) -> "list[tuple[int, Estimate]]":
    sizes = square_rows(measurements).get(a.precision, {})
    sides = {n: fastest([m for m in sizes[n] if not m.on_gpu], "host-latency") for n in sorted(sizes)}
    if any(sides.values()):
        return [(n, side.seconds) for n, side in sides.items() if side]
    return [(p.n, p.cpu.seconds) for p in a.points]


def _label(a: Answer) -> str:
    resident = "one call" if a.form.clock == "host-latency" else "queued calls"
    mode = {
        "resident": resident,
        "roundtrip": "copies as written",
        "roundtrip-pinned": "copies, pinned",
        "roundtrip-pageable": "copies, pageable",
    }
    reuse = f", {a.form.reuse} uses" if a.form.reuse > 1 else ""
    return f"GPU, {mode.get(a.form.mode, a.form.mode)}{reuse}"


def place(c: "Crossing") -> tuple[float, float]:
    """Where a picture has a crossing: its interval; of measured sizes that are far apart, everything between them."""
    return (c.below, c.above) if c.wide else (c.at.low, c.at.high)


def spans(a: Answer) -> list[tuple[float, float, int]]:
    """(from n, to n, sign) of the bands of a picture: 1 the GPU wins, -1 the CPU wins, 0 can't tell; they touch."""
    if not a.points:
        return []
    between = {(c.below, c.above): place(c) for c in a.crossings}
    made: list[list] = [[a.points[0].n, a.points[0].n, a.points[0].sign]]
    for p, q in itertools.pairwise(a.points):
        made[-1][1] = p.n
        if p.sign == q.sign:
            continue
        if (p.n, q.n) in between:
            low, high = between[p.n, q.n]
            made[-1][1] = low
            made += [[low, high, 0], [high, q.n, q.sign]]
        else:
            middle = (p.n * q.n) ** 0.5
            made[-1][1] = middle
            made.append([middle, q.n, q.sign])
    made[-1][1] = a.points[-1].n
    return [(low, high, sign) for low, high, sign in made if high > low]
