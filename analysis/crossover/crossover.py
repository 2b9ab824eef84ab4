"""The size from which the GPU wins, for each family of problems that differ in one size, each precision and form of call."""

import itertools
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from analysis.crossover.answer import Answer, CrossoverPoint
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
)
from analysis.crossover.fastest_row import fastest
from analysis.crossover.forms import COPIES, FORMS, LATENCY, THROUGHPUT, Form
from analysis.crossover.sign_changes import classify
from kernels.problems.arrays import ARITHMETIC
from workloads.records import Machine, Measurement, Measurements


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


def _gap(where: str, device: str, rows: list[Measurement]) -> str:
    """`n = 64: no GPU time (skipped: out of memory)`."""
    failed = [m for m in rows if not m.ok]
    reasons = dict.fromkeys(f"{m.status}: {m.reason}" if m.reason else m.status for m in failed)
    return f"{where}: no {device} time ({'; '.join(reasons) or 'not measured'})"
