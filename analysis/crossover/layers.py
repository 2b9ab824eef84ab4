"""Comparisons over the rows of layers: the fastest backend at each, a framework beside the best library, cold caches beside
warm ones, and the gain of less precision by alignment.

A comparison takes rows that differ in nothing else, and gives the median of their ratios, the least and the most.
"""

import statistics
from collections.abc import Iterable

import msgspec

from analysis import labels
from analysis.crossover.families import MANY_IN_ONE, batch_family, framework_of, precision_of
from analysis.roofline.bounds import Roofs, judge
from analysis.stats import best_by, call_s, clock_of, group_by, is_gpu, middle, quick_seconds
from analysis.units import digits, flops_rate, percent
from kernels.problems import Problem
from workloads.records import Measurement, Measurements

NOUNS = {"conv": "convolution", "matmul": "product"}
_RATE = "{math} {noun}s on the {where}{most}: {rates}."


class Spread(msgspec.Struct, frozen=True):
    """Median, least and most of a number over so many `problems`."""

    median: float
    least: float
    most: float
    problems: int

    def words(self, form=digits) -> str:
        """`1.40 (0.900 to 3.10)`."""
        ends = f" ({form(self.least)} to {form(self.most)})" if self.problems > 1 else ""
        return f"{form(self.median)}{ends}"


class ArithmeticRates(msgspec.Struct, frozen=True):
    """A backend's FLOP/s, shares of the roof and speedups over its own float32, in one arithmetic. `alignment`: the channels
    (or a product's sizes) are multiples of it."""

    device: str
    backend: str
    math: str
    alignment: int
    rate: Spread
    share: Spread | None
    speedup: Spread | None


def spread(values: Iterable[float]) -> Spread | None:
    """Median, least, most and count of some numbers; None where there are none."""
    values = sorted(values)
    return Spread(statistics.median(values), values[0], values[-1], len(values)) if values else None


def is_square(problem: Problem) -> bool:
    """A square product, which has sections of its own."""
    return problem.op == "matmul" and bool(problem.side) and problem.layout == "nn"


def timed(measurements: Measurements, op: str) -> "list[Measurement]":
    """The rows of an operation with a time, data resident, in a warm process."""
    wanted = (op, "resident", "warm")
    return [m for m in measurements if (m.problem.op, m.mode, m.process) == wanted and quick_seconds(m)]


def waited(m: Measurement) -> float:
    """Seconds of a call that is waited for."""
    samples = m.on("host-latency") or clock_of(m)
    return middle(samples)


def side(m: Measurement) -> str:
    """`numpy`, `cudnn`, `tensorflow CPU`: the backend, and the device of one that runs on either."""
    device = labels.device(m.device)
    return f"{m.backend} {device}" if framework_of(m) or device not in ("CPU", "GPU") else m.backend


def best_by_side(measurements: Measurements, op: str) -> "dict[Problem, dict[str, Measurement]]":
    """problem -> side -> its fastest warm row by host latency, in the order of the rows; without square products and the kernel
    of 50 convolutions in a call."""
    groups = group_by(_layer_rows(measurements, op), lambda m: m.problem)
    return {problem: best_by(rows, side, waited) for problem, rows in groups.items()}


def _layer_rows(measurements: Measurements, op: str) -> "list[Measurement]":
    return [m for m in warm(measurements, op) if m.kernel != MANY_IN_ONE]


def warm(measurements: Measurements, op: str) -> "list[Measurement]":
    """The timed rows from warm caches, without square products."""
    return [m for m in timed(measurements, op) if m.settings.cache == "warm" and not is_square(m.problem)]


def largest(measurements: Measurements, op: str) -> "list[Measurement]":
    """The warm rows of each layer, direction and arithmetic at the largest batch that was measured."""
    every = warm(measurements, op)
    kinds = group_by(every, lambda m: (batch_family(m.problem), precision_of(m.problem)))
    most = {key: max(size_of(m.problem) for m in rows) for key, rows in kinds.items()}
    return [m for m in every if size_of(m.problem) == most[batch_family(m.problem), precision_of(m.problem)]]


def size_of(problem: Problem) -> int:
    """The batch, or a square product's n."""
    return problem.n if is_square(problem) else batch_family(problem).size(problem)


def against_library(measurements: Measurements, op: str) -> "list[tuple[Measurement, Measurement, float]]":
    """(a framework's row, the best library's on that device, its slowdown) of every problem and way, by
    calls that are waited for; threads as the framework chooses them or its best."""
    best = best_by(
        timed(measurements, op),
        lambda m: (m.problem, m.device, m.settings.cache, m.kernel if framework_of(m) else ""),
        waited,
    )
    return [
        (m, base, waited(m) / waited(base))
        for (*key, kernel), m in best.items()
        if kernel and (base := best.get((*key, "")))
    ]


def cold_and_warm(measurements: Measurements, op: str) -> "list[tuple[Measurement, Measurement, float]]":
    """(a kernel's row from cold caches, its warm row, the slowdown) on a clock that both have, each at its fastest thread
    count."""

    def alike(m: Measurement) -> tuple:
        samples = clock_of(m)
        return m.settings.cache, m.kernel, m.problem, m.device, samples and samples.clock

    best = best_by(timed(measurements, op), alike, call_s)
    return [
        (m, base, call_s(m) / call_s(base))
        for (cache, *key), m in best.items()
        if cache == "cold" and (base := best.get(("warm", *key)))
    ]


def arithmetic(measurements: Measurements, op: str, roofs: Roofs = ()) -> list[ArithmeticRates]:
    """Every backend's arithmetic and alignment, the fastest row a problem: each layer at the largest batch that all of the
    backend's arithmetics were measured at, or, where there is none, each at its own largest."""
    kinds = group_by(
        _alike(measurements, op), lambda m: (m.device, m.backend, precision_of(m.problem), m.problem.alignment)
    )
    best = {kind: best_by(rows, lambda m: _but_arithmetic(m.problem), call_s) for kind, rows in kinds.items()}
    found = []
    for (device, backend, math, of), at in sorted(best.items(), key=lambda item: _order(*item[0])):
        base = best.get((device, backend, "float32", of), {}) if math != "float32" else {}
        shares = [j.fraction.value for m in at.values() if (j := judge(m, roofs)).fraction]
        rates = [m.problem.flops / call_s(m) for m in at.values()]
        gains = [call_s(base[key]) / call_s(m) for key, m in at.items() if key in base]
        if rate := spread(rates):
            found.append(ArithmeticRates(device, backend, math, of, rate, spread(shares), spread(gains)))
    return found


def _alike(measurements: Measurements, op: str) -> "list[Measurement]":
    """The warm rows of each backend and layer at one batch for all its arithmetics."""
    rows = _layer_rows(measurements, op)
    sizes: dict = {}
    for m in rows:
        sizes.setdefault(_layer(m), {}).setdefault(precision_of(m.problem), set()).add(size_of(m.problem))
    common = {layer: set.intersection(*by.values()) for layer, by in sizes.items()}
    return [
        m for m in rows if size_of(m.problem) == max(common[_layer(m)] or sizes[_layer(m)][precision_of(m.problem)])
    ]


def _layer(m: Measurement) -> tuple:
    return m.device, m.backend, batch_family(m.problem)


def _order(device: str, backend: str, math: str, alignment: int) -> tuple:
    return is_gpu(device), device, backend, math != "float32", math, -alignment


def _but_arithmetic(problem: Problem) -> tuple:
    own = msgspec.structs.asdict(problem)
    return tuple(value for name, value in own.items() if name not in ("dtype", "math", "out"))


def by_size(compared) -> "dict[tuple, Spread]":
    """(device, not float32, arithmetic, kernel, size, size in words) of rows -> the Spread of their ratios, in that order."""

    def key(m: Measurement) -> tuple:
        p, size = m.problem, size_of(m.problem)
        return m.device, p.math != "float32", p.math, m.kernel, size, f"{'n =' if is_square(p) else 'batch'} {size}"

    groups = group_by(compared, lambda one: key(one[0]))
    return {name: made for name in sorted(groups) if (made := spread(ratio for *_, ratio in groups[name]))}


def rate_sentences(measurements: Measurements, op: str, roofs: Roofs = ()) -> list[str]:
    """The best rate of each device over the layers in the first arithmetic, at their largest batch, and the slowest layer's."""
    every, measured = largest(measurements, op), warm(measurements, op)
    plain = (m for m in every if not getattr(m.problem, "epilogue", None))
    rows, maths = [m for m in plain if not framework_of(m)], [precision_of(m.problem) for m in every]
    first = "float32" if "float32" in maths else next(iter(maths), "")
    told = []
    for own in group_by((m for m in rows if precision_of(m.problem) == first), lambda m: m.device).values():
        best = best_by(own, lambda m: m.problem, call_s).values()
        ends = (pick(best, key=lambda m: m.problem.flops / call_s(m)) for pick in (min, max))
        reached = " to ".join(dict.fromkeys(_reached(m, roofs) for m in ends))
        most = ", largest batch" * (len(every) < len(measured))
        where = labels.device(own[0].device)
        told.append(_RATE.format(math=first, noun=NOUNS[op], where=where, most=most, rates=reached))
    return told


def _reached(m: Measurement, roofs: Roofs) -> str:
    judged = judge(m, roofs)
    share = f" ({percent(judged.fraction.value)} of its roof)" if judged.fraction else ""
    return flops_rate(m.problem.flops / call_s(m)) + share


def aligned(alignment: int) -> str:
    """`multiples of 8`, or `not all multiples of 4`."""
    return f"multiples of {alignment}" if alignment > 1 else "not all multiples of 4"
