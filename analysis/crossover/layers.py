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
from analysis.stats import best_by, call_s, clock_of, group_by, is_gpu, quick_median, quick_seconds
from analysis.units import digits, flops_rate, percent
from kernels.problems import Problem
from workloads.records import Measurement, Measurements

NOUNS = {"conv": "convolution", "matmul": "product"}
_RATE = "{math} {noun}s on the {where}{most}: {rates}."


class Spread(msgspec.Struct, frozen=True):
    """A number over several problems."""

    #: The middle one.
    median: float
    #: The smallest.
    least: float
    #: The largest.
    most: float
    #: Number of problems.
    problems: int

    def words(self, form=digits) -> str:
        """`1.40 (0.900 to 3.10)`."""
        if self.problems == 1:
            return form(self.median)
        return f"{form(self.median)} ({form(self.least)} to {form(self.most)})"


class ArithmeticRates(msgspec.Struct, frozen=True, kw_only=True):
    """How fast a backend is in one arithmetic, over problems."""

    #: cpu, gpu:0, ...
    device: str
    #: The library or framework.
    backend: str
    #: The arithmetic.
    math: str
    #: The channels, or a product's sizes, are multiples of it.
    alignment: int
    #: FLOP/s.
    rate: Spread
    #: Shares of the roof; None without a roof.
    share: Spread | None
    #: Speedups over the backend's float32; None for float32 and without it.
    speedup: Spread | None


def spread(values: Iterable[float]) -> Spread | None:
    """Median, least, most and count of some numbers; None where there are none."""
    values = sorted(values)
    if not values:
        return None
    return Spread(statistics.median(values), values[0], values[-1], len(values))


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
    return quick_median(samples)


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
    rows = warm(measurements, op)
    most: dict[tuple, int] = {}
    for m in rows:
        key = _layer_and_precision(m)
        most[key] = max(most.get(key, 0), size_of(m.problem))
    return [m for m in rows if size_of(m.problem) == most[_layer_and_precision(m)]]


def _layer_and_precision(m: Measurement) -> tuple:
    return batch_family(m.problem), precision_of(m.problem)


def size_of(problem: Problem) -> int:
    """The batch, or a square product's n."""
    return problem.n if is_square(problem) else batch_family(problem).size(problem)


def against_library(measurements: Measurements, op: str) -> "list[tuple[Measurement, Measurement, float]]":
    """(a framework's row, the best library's on that device, its slowdown) of every problem and way of calling, by
    calls that are waited for; threads as the framework chooses them or its best."""
    libraries = best_by((m for m in timed(measurements, op) if not framework_of(m)), _place, waited)
    frameworks = best_by(
        (m for m in timed(measurements, op) if framework_of(m)), lambda m: (*_place(m), m.kernel), waited
    )
    compared = []
    for row in frameworks.values():
        library = libraries.get(_place(row))
        if library is not None:
            compared.append((row, library, waited(row) / waited(library)))
    return compared


def _place(m: Measurement) -> tuple:
    return m.problem, m.device, m.settings.cache


def cold_and_warm(measurements: Measurements, op: str) -> "list[tuple[Measurement, Measurement, float]]":
    """(a kernel's row from cold caches, its warm row, the slowdown) on a clock that both have, each at its fastest thread
    count."""
    best = best_by(timed(measurements, op), lambda m: (m.settings.cache, *_kernel_and_clock(m)), call_s)
    compared = []
    for row in best.values():
        base = best.get(("warm", *_kernel_and_clock(row)))
        if row.settings.cache == "cold" and base is not None:
            compared.append((row, base, call_s(row) / call_s(base)))
    return compared


def _kernel_and_clock(m: Measurement) -> tuple:
    samples = clock_of(m)
    return m.kernel, m.problem, m.device, samples and samples.clock


def arithmetic(measurements: Measurements, op: str, roofs: Roofs = ()) -> list[ArithmeticRates]:
    """Every backend's arithmetic and alignment, the fastest row a problem: each layer at the largest batch that all of the
    backend's arithmetics were measured at, or, where there is none, each at its largest."""
    groups = group_by(
        _at_common_batch(measurements, op),
        lambda m: (m.device, m.backend, precision_of(m.problem), m.problem.alignment),
    )
    best = {key: best_by(rows, lambda m: _without_arithmetic(m.problem), call_s) for key, rows in groups.items()}
    speeds = []
    for device, backend, math, alignment in sorted(best, key=lambda key: _order(*key)):
        rows = best[device, backend, math, alignment]
        float32 = best.get((device, backend, "float32", alignment), {})
        rate = spread(m.problem.flops / call_s(m) for m in rows.values())
        if rate is None:
            continue
        speeds.append(
            ArithmeticRates(
                device=device,
                backend=backend,
                math=math,
                alignment=alignment,
                rate=rate,
                share=_roof_shares(rows.values(), roofs),
                speedup=_speedups(rows, float32) if math != "float32" else None,
            )
        )
    return speeds


def _roof_shares(rows: "Iterable[Measurement]", roofs: Roofs) -> Spread | None:
    """Shares of the roof of the rows that have one."""
    fractions = [judge(m, roofs).fraction for m in rows]
    return spread(fraction.value for fraction in fractions if fraction)


def _speedups(rows: "dict[tuple, Measurement]", base: "dict[tuple, Measurement]") -> Spread | None:
    """Speedups over the rows of `base` at the problems that both have."""
    return spread(call_s(base[problem]) / call_s(m) for problem, m in rows.items() if problem in base)


def _at_common_batch(measurements: Measurements, op: str) -> "list[Measurement]":
    """The warm rows of each backend and layer at the largest batch that all its arithmetics have; without one, each arithmetic
    at its largest."""
    rows = _layer_rows(measurements, op)
    batches: dict[tuple, dict[str, set[int]]] = {}
    for m in rows:
        by_precision = batches.setdefault(_layer(m), {})
        by_precision.setdefault(precision_of(m.problem), set()).add(size_of(m.problem))
    chosen = []
    for m in rows:
        by_precision = batches[_layer(m)]
        common = set.intersection(*by_precision.values())
        candidates = common or by_precision[precision_of(m.problem)]
        if size_of(m.problem) == max(candidates):
            chosen.append(m)
    return chosen


def _layer(m: Measurement) -> tuple:
    return m.device, m.backend, batch_family(m.problem)


def _order(device: str, backend: str, math: str, alignment: int) -> tuple:
    return is_gpu(device), device, backend, math != "float32", math, -alignment


def _without_arithmetic(problem: Problem) -> tuple:
    """The values of the fields that are not the arithmetic."""
    fields = msgspec.structs.asdict(problem)
    return tuple(value for name, value in fields.items() if name not in ("dtype", "math", "out"))


def by_size(compared: "Iterable[tuple]") -> "dict[tuple, Spread]":
    """(device, not float32, arithmetic, kernel, size, size in words) of rows -> the Spread of their ratios, in that order.
    compared: (row, ..., ratio)."""
    ratios: dict[tuple, list[float]] = {}
    for row, *_, ratio in compared:
        problem = row.problem
        size = size_of(problem)
        words = f"n = {size}" if is_square(problem) else f"batch {size}"
        key = (row.device, problem.math != "float32", problem.math, row.kernel, size, words)
        ratios.setdefault(key, []).append(ratio)
    spreads = {}
    for key in sorted(ratios):
        values = spread(ratios[key])
        if values is not None:
            spreads[key] = values
    return spreads


def rate_sentences(measurements: Measurements, op: str, roofs: Roofs = ()) -> list[str]:
    """The best rate of each device over the layers in the first arithmetic, at their largest batch, and the slowest layer's."""
    at_largest = largest(measurements, op)
    precisions = [precision_of(m.problem) for m in at_largest]
    if not precisions:
        return []
    precision = "float32" if "float32" in precisions else precisions[0]
    has_more_batches = len(at_largest) < len(warm(measurements, op))
    rows = []
    for m in at_largest:
        has_epilogue = bool(getattr(m.problem, "epilogue", None))
        if precision_of(m.problem) == precision and not has_epilogue and not framework_of(m):
            rows.append(m)
    sentences = []
    for device, group in group_by(rows, lambda m: m.device).items():
        best = best_by(group, lambda m: m.problem, call_s).values()
        extremes = [_rate_and_share(min(best, key=_rate), roofs), _rate_and_share(max(best, key=_rate), roofs)]
        sentence = _RATE.format(
            math=precision,
            noun=NOUNS[op],
            where=labels.device(device),
            most=", largest batch" if has_more_batches else "",
            rates=" to ".join(dict.fromkeys(extremes)),
        )
        sentences.append(sentence)
    return sentences


def _rate(m: Measurement) -> float:
    """FLOP/s."""
    return m.problem.flops / call_s(m)


def _rate_and_share(m: Measurement, roofs: Roofs) -> str:
    """`1.20 TFLOP/s (80 % of its roof)`."""
    judged = judge(m, roofs)
    share = f" ({percent(judged.fraction.value)} of its roof)" if judged.fraction else ""
    return flops_rate(_rate(m)) + share


def aligned(alignment: int) -> str:
    """`multiples of 8`, or `not all multiples of 4`."""
    return f"multiples of {alignment}" if alignment > 1 else "not all multiples of 4"
