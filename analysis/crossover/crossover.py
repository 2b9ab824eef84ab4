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
    rows_in_family,
    rows_of,
)
from analysis.stats import Estimate, covering, median_of, quickest
from kernels.problems.arrays import ARITHMETIC
from workloads.records import Machine, Measurement, Measurements

#: Ratio of two sizes around a crossing up to which no size between them is measured.
FINE = 1.05
#: Ratio of neighboring sizes beyond which the crossing between them is not interpolated.
WIDE = 10.0


class Form(msgspec.Struct, frozen=True):
    """What a call contains, on both sides."""

    #: How the GPU's operands are copied: resident (not at all), roundtrip, roundtrip-pinned, roundtrip-pageable.
    mode: str
    #: The clock of the GPU's seconds; the CPU's is always host latency.
    clock: str = "host-latency"
    #: Calls that share one copy.
    reuse: int = 1
    #: Both sides as `a @ b` in Python, the CPU with its library's default threads.
    as_written: bool = False
    #: The framework that runs both sides (tensorflow); empty: libraries called directly.
    framework: str = ""
    #: State of the caches before a call: warm or cold.
    cache: str = "warm"


LATENCY = Form(mode="resident")
THROUGHPUT = Form(mode="resident", clock="host-throughput")
COPIES = (Form(mode="roundtrip"), Form(mode="roundtrip-pinned"), Form(mode="roundtrip-pageable"))
AS_WRITTEN = (Form(mode="resident", as_written=True), Form(mode="roundtrip", as_written=True))
FORMS = (LATENCY, THROUGHPUT, *COPIES, *AS_WRITTEN)


class FastestRow(msgspec.Struct, frozen=True, kw_only=True):
    """The fastest row of one side at a size."""

    #: Name of its kernel; "predicted" where the seconds are.
    kernel: str
    #: cpu, gpu:0, ...
    device: str
    #: Threads of the CPU; None on a GPU and where the library chooses.
    threads: int | None
    #: The arithmetic that it computes in.
    math: str
    #: Seconds per call.
    seconds: Estimate


class CrossoverPoint(msgspec.Struct, frozen=True, kw_only=True):
    """Both sides at one size of the family."""

    #: The size that varies.
    n: int
    #: The fastest row on the CPU.
    cpu: FastestRow
    #: The fastest row on the GPU.
    gpu: FastestRow

    @property
    def ratio(self) -> Estimate:
        """t_cpu / t_gpu."""
        return self.cpu.seconds / self.gpu.seconds

    @property
    def sign(self) -> int:
        """1: the GPU wins, -1: the CPU wins, 0: can't tell."""
        if self.ratio.low > 1:
            return 1
        if self.ratio.high < 1:
            return -1
        return 0


class Crossing(msgspec.Struct, frozen=True, kw_only=True):
    """A size at which the winner changes."""

    #: That size, interpolated between the medians, so that noisier rows do not move it. The interval covers the neighboring
    #: sizes where the winner cannot be told.
    at: Estimate
    #: Measured size below.
    below: int
    #: Measured size above.
    above: int
    #: The winner from there: gpu or cpu.
    to: str
    #: Largest ratio of two neighboring measured sizes between below and above.
    widest_gap: float = 1.0

    @property
    def fine(self) -> bool:
        """Whether no size between its measured ones is needed."""
        return self.above / self.below <= FINE

    @property
    def wide(self) -> bool:
        """Whether its measured sizes lie too far from each other to interpolate between them."""
        return self.widest_gap > WIDE


class Answer(msgspec.Struct, frozen=True, kw_only=True):
    """The crossover for one precision and form."""

    #: The arithmetic of the GPU side.
    precision: str
    #: What a call contains.
    form: Form
    #: gpu-from, gpu-at-smallest, cpu-throughout, several, cant-tell, no-gpu, no-cpu.
    kind: str
    #: The smallest measured size.
    low_n: int
    #: The largest measured size.
    high_n: int
    #: Both sides at each size with both times, smallest first.
    points: tuple[CrossoverPoint, ...] = ()
    #: Every change of the winner, smallest size first.
    crossings: tuple[Crossing, ...] = ()
    #: (first, last) size of each run of sizes whose winner cannot be told.
    bands: tuple[tuple[int, int], ...] = ()
    #: Sizes that were tried without a time, and why, in words.
    gaps: tuple[str, ...] = ()
    #: All sizes at which the GPU was tried in this form.
    tried: tuple[int, ...] = ()
    #: The size that varies and the fields that do not.
    family: Family = SQUARES

    @property
    def predicted(self) -> bool:
        """Whether its seconds are predicted."""
        return any(point.gpu.kernel == "predicted" for point in self.points)

    @property
    def first_and_last(self) -> tuple[CrossoverPoint, ...]:
        """The points of the smallest and the largest size; one where they are the same."""
        if len(self.points) == 1:
            return self.points
        return (self.points[0], self.points[-1])

    @property
    def cpu_maths(self) -> tuple[str, ...]:
        """The arithmetic of the CPU side, where it is not the precision itself."""
        maths = [point.cpu.math for point in self.points]
        return tuple(dict.fromkeys(math for math in maths if math != self.precision))


def crossovers(
    measurements: Measurements,
    forms: Iterable[Form] = FORMS,
    framework: str = "",
    cache: str = "warm",
    machine: Machine | None = None,
) -> tuple[Answer, ...]:
    """The answers of the square products that are called one at a time."""
    rows = rows_in_family(comparable(measurements, SQUARES.op, framework, cache), SQUARES)
    return family_crossovers({SQUARES: rows}, forms, framework=framework, cache=cache, machine=machine)


def family_crossovers(
    families: dict[Family, Rows],
    forms: Iterable[Form] = FORMS,
    framework: str = "",
    cache: str = "warm",
    machine: Machine | None = None,
) -> tuple[Answer, ...]:
    """One Answer for each family, precision and form that was measured, float32 first; without a GPU, one a precision.

    The CPU side at a size is the fastest row over backends, variants and thread counts; the GPU side the fastest row of
    the form. As written means the variant `operator` on both sides, with the CPU library's default threads. Rows of a
    `framework` are compared with rows of the same framework only, and only when it is named. With the `machine`, the noise
    between its runs is in the intervals of rows that were timed within seconds.
    """
    measured_forms = [replace(form, framework=framework, cache=cache) for form in forms]
    no_gpu_form = replace(LATENCY, framework=framework, cache=cache)
    answers: list[Answer] = []
    for family, rows in families.items():
        for precision in _float32_first(rows):
            sizes = rows[precision]
            if not _has_gpu_rows(sizes):
                answers.append(_without_gpu(precision, no_gpu_form, sizes, family))
                continue
            cpu_instead = _cpu_rows_instead(rows, precision)
            for form in measured_forms:
                answer = _answer(
                    precision=precision,
                    form=form,
                    sizes=sizes,
                    cpu_instead=cpu_instead,
                    family=family,
                    machine=machine,
                )
                if answer is not None:
                    answers.append(answer)
    return tuple(answers)


def forms_of(measurements: Iterable[Measurement]) -> list[tuple[str, str]]:
    """(framework, cache) of the rows; each has its crossovers: libraries called directly and warm rows first."""
    pairs = {(framework_of(m), m.settings.cache) for m in measurements if m.process == "warm"}
    return sorted(pairs, key=lambda pair: (pair[0], pair[1] != "warm"))


def layer_crossovers(
    measurements: Measurements,
    op: str,
    least: Mapping[str, int] = LEAST,
    forms: Iterable[Form] = (LATENCY, THROUGHPUT, *COPIES),
    machine: Machine | None = None,
) -> list[Answer]:
    """The answers of all families of an operation, except single square products by libraries with warm caches. `least`: for
    convolutions, size that varies -> how many sizes make a family."""
    answers: list[Answer] = []
    for framework, cache in forms_of([m for m in measurements if m.problem.op == op]):
        rows = comparable(measurements, op, framework, cache)
        families = conv_rows(rows, least) if op == "conv" else dense_rows(rows)
        if op == "matmul" and (framework or cache != "warm"):
            families[SQUARES] = rows_in_family(rows, SQUARES)
        answers += family_crossovers(families, forms, framework=framework, cache=cache, machine=machine)
    return answers


def _float32_first(rows: Rows) -> list[str]:
    """The precisions in the order of the rows, float32 in front."""
    return sorted(rows, key=lambda precision: precision != "float32")


def _has_gpu_rows(sizes: "dict[int, list[Measurement]]") -> bool:
    return any(m.on_gpu for m in _all_rows(sizes))


def _all_rows(sizes: "dict[int, list[Measurement]]") -> list[Measurement]:
    """The rows of all sizes."""
    return list(itertools.chain.from_iterable(sizes.values()))


def _without_gpu(precision: str, form: Form, sizes: dict, family: Family) -> Answer:
    return Answer(precision=precision, form=form, kind="no-gpu", low_n=min(sizes), high_n=max(sizes), family=family)


def _cpu_rows_instead(rows: Rows, precision: str) -> "dict[int, list[Measurement]]":
    """size -> rows of the arithmetic in which CPUs compute this precision; empty where it is the same. The answer names it."""
    if precision not in ARITHMETIC:
        return {}
    return rows.get(ARITHMETIC[precision].on_cpu, {})


def _answer(
    *,
    precision: str,
    form: Form,
    sizes: "dict[int, list[Measurement]]",
    cpu_instead: "dict[int, list[Measurement]]",
    family: Family,
    machine: "Machine | None",
) -> Answer | None:
    """The answer for a form; None when no GPU row of that form was tried."""
    rows = _all_rows(sizes)
    tried = [m for m in rows if _is_form(m, form)]
    if not any(m.on(form.clock) or not m.ok for m in tried):
        return None
    if form.as_written and all(m.status == "skipped" for m in tried):  # no operator writes this precision
        return None
    tried_sizes = tuple(sorted({family.size(m.problem) for m in tried}))
    default_threads = _default_threads(rows + _all_rows(cpu_instead))
    points = []
    gaps = []
    for n in sorted(sizes):
        gpu_rows = [m for m in sizes[n] if _is_form(m, form)]
        cpu_rows = [m for m in (*sizes[n], *cpu_instead.get(n, ())) if not m.on_gpu]
        if form.as_written:
            cpu_rows = [m for m in cpu_rows if m.threads == default_threads and m.variant == "operator"]
        cpu = fastest(cpu_rows, "host-latency", machine)
        gpu = fastest(gpu_rows, form.clock, machine)
        if cpu and gpu:
            points.append(CrossoverPoint(n=n, cpu=cpu, gpu=gpu))
            continue
        where = f"{family.size_name} = {n}"
        if cpu is None and cpu_rows:
            gaps.append(_gap(where, "CPU", cpu_rows))
        if gpu is None and gpu_rows:
            gaps.append(_gap(where, "GPU", gpu_rows))
    if points:
        return replace(classify(precision, form, points, gaps, family=family), tried=tried_sizes)
    gpu_was_timed = any(fastest([m], form.clock) for m in tried)
    return Answer(
        precision=precision,
        form=form,
        kind="no-cpu" if gpu_was_timed else "no-gpu",
        low_n=tried_sizes[0],
        high_n=tried_sizes[-1],
        gaps=tuple(gaps),
        tried=tried_sizes,
        family=family,
    )


def _is_form(m: Measurement, form: Form) -> bool:
    """Whether a row is the GPU's in that form."""
    return m.on_gpu and m.mode == form.mode and (not form.as_written or m.variant == "operator")


def _default_threads(rows: list[Measurement]) -> int | None:
    """The thread count that stands for the library's default: None (not set) if there are such rows, else the most measured."""
    counts = set()
    for m in rows:
        if m.on_gpu:
            continue
        if m.threads is None:
            return None
        counts.add(m.threads)
    return max(counts, default=None)


def fastest(rows: Iterable[Measurement], clock: str, machine: "Machine | None" = None) -> FastestRow | None:
    """The fastest row on that clock; None without a time. With the machine, its interval has the noise between runs."""
    row_and_samples = quickest(rows, clock)
    if row_and_samples is None:
        return None
    row, samples = row_and_samples
    return FastestRow(
        kernel=row.kernel,
        device=row.device,
        threads=row.threads,
        math=row.problem.math,
        seconds=noise.with_noise_between_runs(machine, row, samples, median_of(samples)),
    )


def best_of_cpu(measurements: Measurements) -> dict[str, dict[int, FastestRow]]:
    """precision -> rising n -> the CPU's fastest square product."""
    best: dict[str, dict[int, FastestRow]] = {}
    for precision, sizes in rows_of(measurements, SQUARES).items():
        for n in sorted(sizes):
            row = fastest((m for m in sizes[n] if not m.on_gpu), "host-latency")
            if row is not None:
                best.setdefault(precision, {})[n] = row
    return best


def _gap(where: str, device: str, rows: list[Measurement]) -> str:
    """`n = 64: no GPU time (skipped: out of memory)`."""
    failed = [m for m in rows if not m.ok]
    reasons = dict.fromkeys(f"{m.status}: {m.reason}" if m.reason else m.status for m in failed)
    return f"{where}: no {device} time ({'; '.join(reasons) or 'not measured'})"


def classify(
    precision: str,
    form: Form,
    points: Iterable[CrossoverPoint],
    gaps: Iterable[str] = (),
    family: Family = SQUARES,
) -> Answer:
    """The answer for points at growing sizes; at least one."""
    points = tuple(points)
    crossings = _crossings(points)
    return Answer(
        precision=precision,
        form=form,
        kind=_kind(points, crossings),
        low_n=points[0].n,
        high_n=points[-1].n,
        points=points,
        crossings=crossings,
        bands=_cant_tell_bands(points),
        gaps=tuple(gaps),
        family=family,
    )


def _kind(points: tuple[CrossoverPoint, ...], crossings: tuple[Crossing, ...]) -> str:
    """The kind of the answer."""
    if len(crossings) == 1 and crossings[0].to == "gpu":
        return "gpu-from"
    if crossings:
        return "several"
    smallest, largest = points[0].sign, points[-1].sign
    if smallest == 0 or largest == 0:
        return "cant-tell"
    return "gpu-at-smallest" if smallest > 0 else "cpu-throughout"


def _cant_tell_bands(points: tuple[CrossoverPoint, ...]) -> tuple[tuple[int, int], ...]:
    """(first, last) size of each run of points without a winner."""
    bands = []
    for sign, run in itertools.groupby(points, key=lambda point: point.sign):
        if sign == 0:
            sizes = [point.n for point in run]
            bands.append((sizes[0], sizes[-1]))
    return tuple(bands)


def _crossings(points: tuple[CrossoverPoint, ...]) -> tuple[Crossing, ...]:
    """The changes of the winner, smallest size first."""
    with_winner = [i for i, point in enumerate(points) if point.sign != 0]
    changes = []
    for below, above in itertools.pairwise(with_winner):
        if points[below].sign != points[above].sign:
            changes.append((below, above))
    crossings = []
    for number, change in enumerate(changes):
        start = changes[number - 1][1] if number > 0 else 0
        stop = changes[number + 1][0] if number + 1 < len(changes) else len(points) - 1
        crossings.append(_crossing(points, change, between=points[start : stop + 1]))
    return tuple(crossings)


def _crossing(
    points: tuple[CrossoverPoint, ...], change: tuple[int, int], between: tuple[CrossoverPoint, ...]
) -> Crossing:
    """A change of the winner.

        CPU wins   CPU wins   can't tell   can't tell   GPU wins
                   below |------- interval of `at` -----| above

    The interval covers the can't-tell sizes: it reaches from where the first edge of the ratio's interval passes 1 to where
    the second does, or to the end of the measured range.

    change: indices of the two points with a winner around it. between: the points between the changes before and after it.
    """
    below, above = change
    to_gpu = points[above].sign
    log_at = _log_crossing(between, to_gpu)
    first = _past_bands(points, below, -1)
    last = _past_bands(points, above, 1)
    bracket = points[first : last + 1]
    log_n = [math.log(point.n) for point in bracket]
    earliest_edge = []
    latest_edge = []
    for point in bracket:
        log_low = math.log(point.ratio.low) if point.ratio.low > 0 else -math.inf
        edges = (to_gpu * log_low, to_gpu * math.log(point.ratio.high))
        earliest_edge.append(max(edges))
        latest_edge.append(min(edges))
    log_first = _zeros(log_n, earliest_edge)[0] if bracket[0].sign else log_n[0]
    log_last = _zeros(log_n, latest_edge)[-1] if bracket[-1].sign else log_n[-1]
    return Crossing(
        at=covering(math.exp(log_at), math.exp(log_first), math.exp(log_last)),
        below=bracket[0].n,
        above=bracket[-1].n,
        to="gpu" if to_gpu > 0 else "cpu",
        widest_gap=max(larger.n / smaller.n for smaller, larger in itertools.pairwise(bracket)),
    )


def _log_crossing(points: tuple[CrossoverPoint, ...], to_gpu: int) -> float:
    """log n at which the medians' winner changes once, to the side of sign `to_gpu`. Intervals do not count.

        r(n) = to_gpu log(t_cpu / t_gpu)        below 0 before the change, above 0 after it
        change point: the i with r_i < 0 <= r_(i+1) and the least sum r_0 + ... + r_i, should noise make several
        log n = linear between n_i and n_(i+1), where r passes 0

    Source: the change point of a cumulative sum, E. S. Page, Continuous Inspection Schemes (1954).
    """
    log_n = [math.log(point.n) for point in points]
    r = [to_gpu * math.log(point.ratio.value) for point in points]
    change_points = []
    for i, sum_before in enumerate(itertools.accumulate(r)):
        following = min(i + 1, len(points) - 1)
        if r[i] < 0 <= r[following]:
            change_points.append((sum_before, i))
    _, i = min(change_points)
    return log_n[i] + (log_n[i + 1] - log_n[i]) * r[i] / (r[i] - r[i + 1])


def _past_bands(points: tuple[CrossoverPoint, ...], start: int, step: int) -> int:
    """Walks from index `start` over can't-tell bands as long as the same side wins behind them: the index of the first point
    with a winner after the last band, or of the range's end."""
    index = start
    while 0 <= index + step < len(points) and points[index + step].sign == 0:
        beyond = index + step
        while 0 <= beyond + step < len(points) and points[beyond].sign == 0:
            beyond += step
        if points[beyond].sign == -points[index].sign:
            break
        index = beyond
    return index


def _zeros(x: list[float], y: list[float]) -> list[float]:
    """Every x at which the line through the points rises through 0."""
    zeros = []
    for (x0, y0), (x1, y1) in itertools.pairwise(zip(x, y, strict=True)):
        if y0 < 0 <= y1:
            zeros.append(_zero(x0, y0, x1, y1=y1))
    return zeros


def _zero(x0: float, y0: float, x1: float, y1: float) -> float:
    """The x at which the line from (x0, y0) to (x1, y1) passes 0. An infinite y moves it to the other point."""
    if y0 == -math.inf:
        return x1
    if y1 == math.inf:
        return x0
    return x0 + (x1 - x0) * -y0 / (y1 - y0)


def refine(answer: Answer, sizes: Iterable[int] = ()) -> list[int]:
    """Sizes to add so that each crossing's bracket becomes <= 5 % wide; none inside a can't-tell band.

    Never a size that this form tried already, with or without a time. `sizes`: those measured for other forms, taken
    where one lies near the geometric mean. Call it again with the answer that they give; [] is the end.
    """
    untried = set(sizes) - set(answer.tried)
    added = set()
    for crossing in answer.crossings:
        if crossing.fine:
            continue
        bracket = [point for point in answer.points if crossing.below <= point.n <= crossing.above]
        for smaller, larger in itertools.pairwise(bracket):
            if larger.n / smaller.n > FINE and smaller.sign != larger.sign:
                n = _size_between(smaller.n, larger.n, untried)
                if n is not None and n not in answer.tried:
                    added.add(n)
    return sorted(added)


def _size_between(smaller: int, larger: int, known: set[int]) -> int | None:
    """The geometric mean, as a multiple of a power of two of at most a quarter of the gap; None if nothing fits.

    A known size in the middle third (in the logarithm) is as good.
    """
    mean = math.sqrt(smaller * larger)
    sixth = math.log(larger / smaller) / 6
    near = [n for n in known if abs(math.log(n / mean)) < sixth]
    if near:
        return min(near, key=lambda n: abs(math.log(n / mean)))
    most = max(1, min((larger - smaller) / 4, mean))
    step = 2 ** max(0, int(math.log2(most)))
    n = round(mean / step) * step
    return n if smaller < n < larger else None
