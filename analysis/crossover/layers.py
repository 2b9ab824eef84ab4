"""Comparisons over measurements of layers' products and convolutions: libraries, frameworks, caches and precisions.

A comparison takes rows that differ in nothing else, and gives the median of their ratios, the least and the most.
"""

import statistics
from collections.abc import Callable, Iterable

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

    median: float
    #: The smallest.
    least: float
    #: The largest.
    most: float
    #: Number of problems.
    problems: int

    def words(self, written: Callable[[float], str] = digits) -> str:
        """`1.40 (0.900 to 3.10)`; `written` gives the text of one number."""
        if self.problems == 1:
            return written(self.median)
        return f"{written(self.median)} ({written(self.least)} to {written(self.most)})"


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
    """Whether a problem is a product of square matrices, both stored row by row. Pages treat these by themselves."""
    return problem.op == "matmul" and bool(problem.side) and problem.layout == "nn"


def timed(measurements: Measurements, op: str) -> "list[Measurement]":
    """The rows of an operation ("matmul" or "conv") that have a time and whose data were on the device, without those of fresh
    processes."""
    wanted = (op, "resident", "warm")
    return [m for m in measurements if (m.problem.op, m.mode, m.process) == wanted and quick_seconds(m)]


def waited(m: Measurement) -> float:
    """Median seconds of a call that the host waits for; of a row without such samples, seconds by the clock that it has."""
    samples = m.on("host-latency") or clock_of(m)
    return quick_median(samples)


def side(m: Measurement) -> str:
    """The name under which a row's backend is compared: `numpy`, `cudnn`; with the device if the backend runs on several:
    `tensorflow CPU`."""
    device = labels.device(m.device)
    return f"{m.backend} {device}" if framework_of(m) or device not in ("CPU", "GPU") else m.backend


def best_by_side(measurements: Measurements, op: str) -> "dict[Problem, dict[str, Measurement]]":
    """problem -> backend (`numpy`, `tensorflow CPU`) -> its row with the fastest call that is waited for, with warm caches.
    Square products are left out."""
    groups = group_by(_layer_rows(measurements, op), lambda m: m.problem)
    return {problem: best_by(rows, side, waited) for problem, rows in groups.items()}


def _layer_rows(measurements: Measurements, op: str) -> "list[Measurement]":
    """The warm rows of layers, without the kernel that computes 50 convolutions in a call."""
    return [m for m in warm(measurements, op) if m.kernel != MANY_IN_ONE]


def warm(measurements: Measurements, op: str) -> "list[Measurement]":
    """The timed rows from warm caches, without square products."""
    return [m for m in timed(measurements, op) if m.settings.cache == "warm" and not is_square(m.problem)]


def largest(measurements: Measurements, op: str) -> "list[Measurement]":
    """The warm rows of each layer's product or convolution in each arithmetic, at the largest batch that was measured of it."""
    rows = warm(measurements, op)
    largest_batch: dict[tuple, int] = {}
    for m in rows:
        key = _layer_and_precision(m)
        largest_batch[key] = max(largest_batch.get(key, 0), size_of(m.problem))
    return [m for m in rows if size_of(m.problem) == largest_batch[_layer_and_precision(m)]]


def _layer_and_precision(m: Measurement) -> tuple:
    """Key of rows that differ in the batch and in what runs them alone."""
    return batch_family(m.problem), precision_of(m.problem)


def size_of(problem: Problem) -> int:
    """The batch of a layer's product or convolution; n of a product of n x n matrices."""
    return problem.n if is_square(problem) else batch_family(problem).size(problem)


def against_library(measurements: Measurements, op: str) -> "list[tuple[Measurement, Measurement, float]]":
    """(a framework's row, the fastest library's row, slowdown of the framework) for each problem, device, state of the caches
    and kernel of a framework. Calls are waited for; each row is the fastest over thread counts."""
    rows = timed(measurements, op)
    libraries = best_by((m for m in rows if not framework_of(m)), _computation, waited)
    frameworks = best_by((m for m in rows if framework_of(m)), lambda m: (*_computation(m), m.kernel), waited)
    compared = []
    for row in frameworks.values():
        library = libraries.get(_computation(row))
        if library is not None:
            compared.append((row, library, waited(row) / waited(library)))
    return compared


def _computation(m: Measurement) -> tuple:
    """Key of rows that differ in the kernel and its threads alone."""
    return m.problem, m.device, m.settings.cache


def cold_and_warm(measurements: Measurements, op: str) -> "list[tuple[Measurement, Measurement, float]]":
    """(a kernel's row from cold caches, its row from warm ones, slowdown by the cold caches) for each kernel and problem, by one
    clock; each row is the fastest over thread counts."""
    best = best_by(timed(measurements, op), lambda m: (m.settings.cache, *_kernel_and_clock(m)), call_s)
    compared = []
    for cold in best.values():
        warm_row = best.get(("warm", *_kernel_and_clock(cold)))
        if cold.settings.cache == "cold" and warm_row is not None:
            compared.append((cold, warm_row, call_s(cold) / call_s(warm_row)))
    return compared


def _kernel_and_clock(m: Measurement) -> tuple:
    """Key of rows that differ in the caches and the number of threads alone."""
    samples = clock_of(m)
    return m.kernel, m.problem, m.device, samples and samples.clock


def arithmetic(measurements: Measurements, op: str, roofs: Roofs = ()) -> list[ArithmeticRates]:
    """How fast each backend is in each arithmetic, by the alignment of the sizes: the spread over problems, each by its fastest
    row, with shares of the roofline and the speedup over float32.

    Each layer counts at the largest batch that was measured in all arithmetics of the backend; without such a batch, each
    arithmetic at its own largest.
    """
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
    """The spread of the shares of the roofline's limit that rows reach; rows without a limit are left out, None if all are."""
    fractions = [judge(m, roofs).fraction for m in rows]
    return spread(fraction.value for fraction in fractions if fraction)


def _speedups(rows: "dict[tuple, Measurement]", base: "dict[tuple, Measurement]") -> Spread | None:
    """The spread of speedups of `rows` over `base`, both problem -> row, at the problems that both have; None without any."""
    return spread(call_s(base[problem]) / call_s(m) for problem, m in rows.items() if problem in base)


def _at_common_batch(measurements: Measurements, op: str) -> "list[Measurement]":
    """The warm rows of each backend and layer at the largest batch that was measured in all its arithmetics; without such a
    batch, each arithmetic at its own largest."""
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
    """Key of rows that differ in batch, arithmetic, kernel and threads alone."""
    return m.device, m.backend, batch_family(m.problem)


def _order(device: str, backend: str, math: str, alignment: int) -> tuple:
    """Sort key: CPUs first, then by name, float32 before other arithmetics, large alignments first."""
    return is_gpu(device), device, backend, math != "float32", math, -alignment


def _without_arithmetic(problem: Problem) -> tuple:
    """The values of the fields that are not the arithmetic."""
    fields = msgspec.structs.asdict(problem)
    return tuple(value for name, value in fields.items() if name not in ("dtype", "math", "out"))


def by_size(compared: "Iterable[tuple]") -> "dict[tuple, Spread]":
    """The spread of ratios for each device, arithmetic, kernel and size, sorted: (device, not float32?, arithmetic, kernel, size,
    `n = 64` or `batch 64`) -> spread. `compared`: tuples that begin with a row and end with its ratio, such as those of
    against_library."""
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
    """A sentence for each device with the rates of its slowest and fastest layer, each by the fastest library at the largest
    batch; in float32 if that was measured, else in the first arithmetic of the rows. `op`: matmul or conv."""
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
    """FLOP/s of a row's median call."""
    return m.problem.flops / call_s(m)


def _rate_and_share(m: Measurement, roofs: Roofs) -> str:
    """`1.20 TFLOP/s (80 % of its roof)`."""
    judged = judge(m, roofs)
    share = f" ({percent(judged.fraction.value)} of its roof)" if judged.fraction else ""
    return flops_rate(_rate(m)) + share


def aligned(alignment: int) -> str:
    """`multiples of 8`, or `not all multiples of 4`."""
    return f"multiples of {alignment}" if alignment > 1 else "not all multiples of 4"
