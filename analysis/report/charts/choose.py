"""Which rows stand for a device or a kernel in tables and charts, and where a chart has who wins."""

import itertools
from collections.abc import Iterable

from analysis.crossover.crossover import Answer, Crossing, Side, fastest
from analysis.crossover.families import SQUARES, rows_of
from workloads.records import Measurement

WINNER = {-1: ("CPU wins", "cpu-band"), 0: ("can't tell", "none-band"), 1: ("GPU wins", "gpu-band")}  # and a color


def best_of_cpu(measurements: Iterable[Measurement]) -> dict[str, dict[int, Side]]:
    """precision -> rising n -> the CPU's fastest square product."""
    found = {}
    for precision, sizes in rows_of(measurements, SQUARES).items():
        best = {n: fastest((m for m in sizes[n] if not m.on_gpu), "host-latency") for n in sorted(sizes)}
        if at := {n: side for n, side in best.items() if side}:
            found[precision] = at
    return found


def place(c: "Crossing") -> tuple[float, float]:
    """Where a picture has a crossing: its interval; of measured sizes that are far apart, everything between them."""
    return (c.below, c.above) if c.wide else (c.at.low, c.at.high)


def spans(a: Answer) -> list[tuple[float, float, int]]:
    """(from n, to n, sign) of the bands of a picture: 1 the GPU wins, -1 the CPU wins, 0 can't tell; they touch."""
    if not a.points:
        return []
    between = {(c.below, c.above): place(c) for c in a.crossings}
    made, start, last = [], float(a.points[0].n), a.points[-1]
    for p, q in itertools.pairwise(a.points):
        if p.sign != q.sign:
            low, high = between.get((p.n, q.n), ((p.n * q.n) ** 0.5,) * 2)
            made += [(start, low, p.sign), (low, high, 0)]
            start = high
    return [(low, high, sign) for low, high, sign in (*made, (start, last.n, last.sign)) if high > low]
