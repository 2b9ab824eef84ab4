"""The size from which the GPU wins, for each form of call: sign changes of log(t_cpu / t_gpu) along families of problems that
differ in one size (analysis.crossover.families): square products in n, convolutions in batch, channels or image size."""

import itertools
import math
from collections.abc import Iterable, Mapping

import msgspec
from msgspec.structs import replace

from analysis import noise
from analysis.crossover.families import (
    LEAST,
    SQUARES,
    Family,
    Rows,
    comparable,
    conv_rows,
    dense_rows,
    framework_of,
    of_family,
    rows_of,
)
from analysis.stats import Estimate, covering, median_of, quickest
from kernels.problems.arrays import ARITHMETIC
from workloads.records import Machine, Measurement, Measurements

FINE = 1.05  # high over low: two sizes around a crossing that are no farther apart need none between them
WIDE = 10.0  # between sizes that are farther apart, where the winner changes is unknown


class Form(msgspec.Struct, frozen=True):
    """Contents of a GPU call: `mode` of copying, the clock, uses of a copy; `as_written`: `a @ b` on both sides.

    `framework`: both sides as that framework runs them (tensorflow), empty: libraries called by themselves. `cache`: what
    lies in it before a call, on both sides.
    """

    mode: str
    clock: str = "host-latency"
    reuse: int = 1
    as_written: bool = False
    framework: str = ""
    cache: str = "warm"


LATENCY, THROUGHPUT = Form("resident"), Form("resident", "host-throughput")
COPIES = tuple(Form(mode) for mode in ("roundtrip", "roundtrip-pinned", "roundtrip-pageable"))
AS_WRITTEN = (Form("resident", as_written=True), Form("roundtrip", as_written=True))
FORMS = (LATENCY, THROUGHPUT, *COPIES, *AS_WRITTEN)


class Side(msgspec.Struct, frozen=True):
    """The fastest row of one side at a size: seconds per call."""

    kernel: str
    device: str
    threads: int | None
    math: str
    seconds: Estimate


class Point(msgspec.Struct, frozen=True):
    """Both sides at size n of the family. `ratio` is t_cpu / t_gpu; `sign` 1: the GPU wins, -1: the CPU wins, 0: can't tell."""

    n: int
    cpu: Side
    gpu: Side

    @property
    def ratio(self) -> Estimate:
        return self.cpu.seconds / self.gpu.seconds

    @property
    def sign(self) -> int:
        return 1 if self.ratio.low > 1 else -1 if self.ratio.high < 1 else 0


class Crossing(msgspec.Struct, frozen=True):
    """The winner changes at `at`, interpolated between the measured sizes `below` and `above`; from there `to` wins. The value
    comes from the medians alone, so that noisier rows do not move it. Its interval covers the sizes next to it where the winner
    cannot be told. `apart`: the widest gap between measured sizes from below to above, high over low."""

    at: Estimate
    below: int
    above: int
    to: str
    apart: float = 1.0

    @property
    def fine(self) -> bool:
        return self.above / self.below <= FINE

    @property
    def wide(self) -> bool:
        """Whether its measured sizes lie too far apart to interpolate between them."""
        return self.apart > WIDE


class Answer(msgspec.Struct, frozen=True):
    """The crossover for one precision and form, in the measured range low_n..high_n.

    kind: gpu-from, gpu-at-smallest, cpu-throughout, several, cant-tell, no-gpu, no-cpu. bands: (first, last) size of each run
    of sizes whose interval of the ratio holds 1. gaps: sizes that were tried without a time, and why. tried: all sizes at which
    the GPU was tried in this form. family: the varying size and the fixed fields.
    """

    precision: str
    form: Form
    kind: str
    low_n: int
    high_n: int
    points: tuple[Point, ...] = ()
    crossings: tuple[Crossing, ...] = ()
    bands: tuple[tuple[int, int], ...] = ()
    gaps: tuple[str, ...] = ()
    tried: tuple[int, ...] = ()
    family: Family = SQUARES

    @property
    def predicted(self) -> bool:
        """Whether its seconds are predicted."""
        return any(p.gpu.kernel == "predicted" for p in self.points)

    @property
    def ends(self) -> tuple[Point, ...]:
        """The points of the smallest and the largest size; one where they are the same."""
        return tuple(dict.fromkeys((self.points[0], self.points[-1])))

    @property
    def cpu_maths(self) -> tuple[str, ...]:
        """The arithmetic of the CPU side, where it is not the precision itself."""
        return tuple(dict.fromkeys(p.cpu.math for p in self.points if p.cpu.math != self.precision))


def crossovers(
    measurements: Measurements,
    forms: Iterable[Form] = FORMS,
    framework: str = "",
    cache: str = "warm",
    machine: Machine | None = None,
) -> tuple[Answer, ...]:
    """The answers of the square products that are called one at a time."""
    rows = of_family(comparable(measurements, SQUARES.op, framework, cache), SQUARES)
    return of_families({SQUARES: rows}, forms, framework, cache, machine)


def of_families(
    families: dict[Family, Rows],
    forms: Iterable[Form] = FORMS,
    framework: str = "",
    cache: str = "warm",
    machine: Machine | None = None,
) -> tuple[Answer, ...]:
    """One Answer for each family, precision and form that was measured, float32 first; without a GPU, one a precision.

    The CPU side at a size is the fastest row over backends, variants and thread counts; the GPU side the fastest row of
    the form. As written means the variant `operator` on both sides, with the CPU library's default threads. Rows of a
    `framework` meet those of the same framework only, and only when it is named. With the `machine`, what its runs differ by
    is in the intervals of rows that were timed within seconds.
    """
    shown = [replace(form, framework=framework, cache=cache) for form in (LATENCY, *forms)]
    return tuple(a for family, rows in families.items() for a in _answers(family, rows, shown, machine))


def forms_of(measurements: Iterable[Measurement]) -> list[tuple[str, str]]:
    """(framework, cache) of the rows, each with crossovers of its own: libraries called directly and warm rows first."""
    found = {(framework_of(m), m.settings.cache) for m in measurements if m.process == "warm"}
    return sorted(found, key=lambda pair: (pair[0], pair[1] != "warm"))


def layer_crossovers(
    measurements: Measurements,
    op: str,
    least: Mapping[str, int] = LEAST,
    forms: Iterable[Form] = (LATENCY, THROUGHPUT, *COPIES),
    machine: Machine | None = None,
) -> list[Answer]:
    """The answers of all families of an operation, except single square products by libraries with warm caches. `least`: for
    convolutions, size that varies -> how many sizes make a family."""
    found: list[Answer] = []
    for framework, cache in forms_of([m for m in measurements if m.problem.op == op]):
        rows = comparable(measurements, op, framework, cache)
        families = conv_rows(rows, least) if op == "conv" else dense_rows(rows)
        if op == "matmul" and (framework or cache != "warm"):
            families |= {SQUARES: of_family(rows, SQUARES)}
        found += of_families(families, forms, framework, cache, machine)
    return found


def _answers(family: Family, rows: Rows, forms: list[Form], machine: "Machine | None") -> list[Answer]:
    """The crossovers of a family. The first of `forms` is used for a precision without a GPU, the others if measured."""
    answers = []
    for precision in sorted(rows, key=lambda p: (p != "float32", list(rows).index(p))):
        sizes = rows[precision]
        gpu_rows = [m for at in sizes.values() for m in at if m.on_gpu]
        if not gpu_rows:
            answers.append(Answer(precision, forms[0], "no-gpu", min(sizes), max(sizes), family=family))
            continue
        instead = rows.get(ARITHMETIC[precision].on_cpu, {}) if precision in ARITHMETIC else {}  # the answer names it
        found = (_answer(precision, form, sizes, instead, family, machine) for form in forms[1:])
        answers += filter(None, found)
    return answers


def _answer(
    precision: str, form: Form, sizes: dict, instead: dict, family: Family, machine: "Machine | None"
) -> Answer | None:
    """The answer for a form; None when no GPU row of that form was tried."""
    tried = [m for n in sizes for m in sizes[n] if _is_form(m, form)]
    if not any(m.on(form.clock) or not m.ok for m in tried):
        return None
    if form.as_written and all(m.status == "skipped" for m in tried):  # no operator writes this precision
        return None
    tried_n = tuple(sorted({family.size(m.problem) for m in tried}))
    points, gaps = [], []
    default_threads = _default_threads([m for n in sizes for m in sizes[n]] + [m for n in instead for m in instead[n]])
    for n in sorted(sizes):
        at = sizes[n]
        cpu_rows = [m for m in (*at, *instead.get(n, ())) if not m.on_gpu]
        if form.as_written:
            cpu_rows = [m for m in cpu_rows if m.threads == default_threads and m.variant == "operator"]
        gpu_rows = [m for m in at if _is_form(m, form)]
        cpu, gpu = fastest(cpu_rows, "host-latency", machine), fastest(gpu_rows, form.clock, machine)
        if cpu and gpu:
            points.append(Point(n, cpu, gpu))
        else:
            both = (("CPU", cpu, cpu_rows), ("GPU", gpu, gpu_rows))
            gaps += [_gap(f"{family.size_name} = {n}", who, rows) for who, side, rows in both if side is None and rows]
    if not points:
        missing = "no-cpu" if any(fastest([m], form.clock) for m in tried) else "no-gpu"
        return Answer(precision, form, missing, tried_n[0], tried_n[-1], gaps=tuple(gaps), tried=tried_n, family=family)
    return replace(classify(precision, form, points, gaps, family), tried=tried_n)


def _is_form(m: Measurement, form: Form) -> bool:
    return m.on_gpu and m.mode == form.mode and (not form.as_written or m.variant == "operator")


def _default_threads(rows) -> int | None:
    """The thread count that stands for the library's default: None (not set) if there are such rows, else the most measured."""
    counts = {m.threads for m in rows if not m.on_gpu}
    return None if None in counts or not counts else max(counts)


def fastest(rows: Iterable[Measurement], clock: str, machine: "Machine | None" = None) -> Side | None:
    """The fastest row on that clock; None without a time. With the machine, its interval has the noise between runs."""
    if not (found := quickest(rows, clock)):
        return None
    m, samples = found
    seconds = noise.of_one_run(machine, m, samples, median_of(samples))
    return Side(m.kernel, m.device, m.threads, m.problem.math, seconds)


def best_of_cpu(measurements: Measurements) -> dict[str, dict[int, Side]]:
    """precision -> rising n -> the CPU's fastest square product."""
    found = {}
    for precision, sizes in rows_of(measurements, SQUARES).items():
        best = {n: fastest((m for m in sizes[n] if not m.on_gpu), "host-latency") for n in sorted(sizes)}
        if at := {n: side for n, side in best.items() if side}:
            found[precision] = at
    return found


def _gap(where: str, who: str, rows) -> str:
    reasons = dict.fromkeys(f"{m.status}: {m.reason}" if m.reason else m.status for m in rows if not m.ok)
    return f"{where}: no {who} time ({'; '.join(reasons) or 'not measured'})"


def classify(
    precision: str, form: Form, points: Iterable[Point], gaps: Iterable[str] = (), family: Family = SQUARES
) -> Answer:
    """The answer for the given points (at least one, by growing n)."""
    points = tuple(points)
    told = [i for i, p in enumerate(points) if p.sign]
    changes = [(i, j) for i, j in itertools.pairwise(told) if points[i].sign != points[j].sign]
    crossings = tuple(_crossing(points, changes, number) for number in range(len(changes)))
    signs = [p.sign for p in points]
    if len(crossings) == 1 and crossings[0].to == "gpu":
        kind = "gpu-from"
    elif crossings:
        kind = "several"
    elif not told or 0 in (signs[0], signs[-1]):
        kind = "cant-tell"
    else:
        kind = "gpu-at-smallest" if signs[0] > 0 else "cpu-throughout"
    runs = [list(run) for sign, run in itertools.groupby(points, key=lambda p: p.sign) if sign == 0]
    bands = tuple((run[0].n, run[-1].n) for run in runs)
    ends = points[0].n, points[-1].n
    return Answer(precision, form, kind, *ends, points, crossings, bands, tuple(gaps), family=family)


def _crossing(points: tuple[Point, ...], changes: list[tuple[int, int]], number: int) -> Crossing:
    """The change of that number; `changes`: indices of the two points with a sure winner around each. The interval reaches over
    the can't-tell bands next to these: to where its two edges pass 0, or to the end of the measured range."""
    below, above = changes[number]
    to_gpu = points[above].sign
    after = changes[number - 1][1] if number > 0 else 0
    before = changes[number + 1][0] if number + 1 < len(changes) else len(points) - 1
    at = _middle(points[after : before + 1], to_gpu)
    first, last = _past_bands(points, below, -1), _past_bands(points, above, 1)
    points = points[first : last + 1]
    log_n = [math.log(p.n) for p in points]
    ratios = [p.ratio for p in points]
    edges = [(to_gpu * (math.log(r.low) if r.low > 0 else -math.inf), to_gpu * math.log(r.high)) for r in ratios]
    early, late = _rises(log_n, [max(e) for e in edges]), _rises(log_n, [min(e) for e in edges])
    low = early[0] if points[0].sign else log_n[0]
    high = late[-1] if points[-1].sign else log_n[-1]
    n = covering(math.exp(at), math.exp(low), math.exp(high))
    apart = max(b.n / a.n for a, b in itertools.pairwise(points))
    return Crossing(n, points[0].n, points[-1].n, "gpu" if to_gpu > 0 else "cpu", apart)


def _middle(points: tuple[Point, ...], to_gpu: int) -> float:
    """log n at which the medians' winner changes once, from the other side to that of sign `to_gpu`. Where noise makes the
    medians change back and forth, it is the change that leaves most on its sides: the least sum of the logarithms before it.
    Linear in log n between two sizes. No interval counts.

    Source: the change point of a cumulative sum, E. S. Page, Continuous Inspection Schemes (1954).
    """
    log_n = [math.log(p.n) for p in points]
    log_ratio = [to_gpu * math.log(p.ratio.value) for p in points]
    sums = itertools.accumulate(log_ratio)
    rises = [(before, i) for i, before in enumerate(sums) if log_ratio[i] < 0 <= log_ratio[min(i + 1, len(points) - 1)]]
    _, i = min(rises)
    return log_n[i] + (log_n[i + 1] - log_n[i]) * log_ratio[i] / (log_ratio[i] - log_ratio[i + 1])


def _past_bands(points: tuple[Point, ...], at: int, step: int) -> int:
    """Walks from index `at` over can't-tell bands as long as the same side wins behind each: the index of the first sure size
    after the last band, or of the range's end."""
    while 0 <= at + step < len(points) and points[at + step].sign == 0:
        beyond = at + step
        while 0 <= beyond + step < len(points) and points[beyond].sign == 0:
            beyond += step
        if points[beyond].sign == -points[at].sign:
            break
        at = beyond
    return at


def _rises(x: list[float], y: list[float]) -> list[float]:
    """Where the line through the points rises through 0; it starts below and ends above. An end without a bound keeps its side
    up to the other end."""

    def at(x0: float, y0: float, x1: float, y1: float) -> float:
        return x1 if y0 == -math.inf else x0 if y1 == math.inf else x0 + (x1 - x0) * -y0 / (y1 - y0)

    return [at(*a, *b) for a, b in itertools.pairwise(zip(x, y, strict=True)) if a[1] < 0 <= b[1]]


def refine(answer: Answer, sizes: Iterable[int] = ()) -> list[int]:
    """Sizes to add so that each crossing's bracket becomes <= 5 % wide; none inside a can't-tell band.

    Never a size that this form tried already, with or without a time. `sizes`: those measured for other forms, taken
    where one lies near the geometric mean. Call it again with the answer that they give; [] is the end.
    """
    at = [p.n for p in answer.points]
    signs = {p.n: p.sign for p in answer.points}
    added = set()
    for c in answer.crossings:
        inside = at[at.index(c.below) : at.index(c.above) + 1]
        for a, b in itertools.pairwise(inside):
            if not c.fine and b / a > FINE and signs[a] != signs[b]:
                added.add(_between(a, b, set(sizes) - set(answer.tried)))
    return sorted(n for n in added if n and n not in answer.tried)


def _between(a: int, b: int, known: set[int]) -> int | None:
    """The geometric middle, as a multiple of a power of two of at most a quarter of the gap; None if nothing fits.

    A known size in the middle third (in the logarithm) is as good.
    """
    middle = math.sqrt(a * b)
    near = [n for n in known if abs(math.log(n / middle)) < math.log(b / a) / 6]
    if near:
        return min(near, key=lambda n: abs(math.log(n / middle)))
    step = 2 ** max(0, int(math.log2(max(1, min((b - a) / 4, middle)))))
    n = round(middle / step) * step
    return n if a < n < b else None
