"""The size from which the GPU wins, for each family of problems that differ in one size, each precision and form of call."""

import itertools
from collections.abc import Iterable, Mapping

from msgspec.structs import replace

from analysis.crossover.answer import Answer, CrossoverPoint
from analysis.crossover.families import (
    LEAST,
    SQUARES,
    Family,
    RowsByPrecision,
    RowsBySize,
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

#: The variant of a kernel that is `a @ b` in Python, as people write it.
AS_WRITTEN_VARIANT = "operator"


def crossovers(
    measurements: Measurements,
    forms: Iterable[Form] = FORMS,
    framework: str = "",
    cache: str = "warm",
    machine: Machine | None = None,
) -> tuple[Answer, ...]:
    """From which n the GPU multiplies n x n matrices faster, an answer for each precision and form of call; `family_crossovers`
    explains the parameters."""
    rows = rows_in_family(comparable(measurements, SQUARES.op, framework, cache), SQUARES)
    return family_crossovers({SQUARES: rows}, forms, framework=framework, cache=cache, machine=machine)


def family_crossovers(
    families: dict[Family, RowsByPrecision],
    forms: Iterable[Form] = FORMS,
    framework: str = "",
    cache: str = "warm",
    machine: Machine | None = None,
) -> tuple[Answer, ...]:
    """One answer for each family, precision and form of call that was measured, float32 first. Without rows of a GPU there is one
    answer for each family and precision, which says so.

    The CPU's time at a size is its fastest row over libraries, kernels and thread counts; the GPU's is the fastest row of the
    form.

    Args:
        families: family (problems that differ in one size) -> precision -> size -> rows.
        forms: how the kernels are called: with which copies and clock.
        framework: the framework that ran the rows of both sides (tensorflow); "" for libraries called directly.
        cache: the state of the caches before a call, warm or cold.
        machine: if known, the intervals include the noise between its runs.
    """
    measured_forms = [replace(form, framework=framework, cache=cache) for form in forms]
    no_gpu_form = replace(LATENCY, framework=framework, cache=cache)
    answers: list[Answer] = []
    for family, rows_by_precision in families.items():
        for precision in _float32_first(rows_by_precision):
            rows_by_size = rows_by_precision[precision]
            if not _has_gpu_rows(rows_by_size):
                answers.append(_without_gpu(precision, no_gpu_form, rows_by_size, family))
                continue
            cpu_substitutes = _cpu_substitutes(rows_by_precision, precision)
            for form in measured_forms:
                answer = _answer(
                    precision=precision,
                    form=form,
                    rows_by_size=rows_by_size,
                    cpu_substitutes=cpu_substitutes,
                    family=family,
                    machine=machine,
                )
                if answer is not None:
                    answers.append(answer)
    return tuple(answers)


def forms_of(measurements: Iterable[Measurement]) -> list[tuple[str, str]]:
    """The (framework, state of the caches) pairs of the rows, which are compared by themselves. Libraries called directly, whose
    framework is "", come first, and of each framework its warm rows."""
    pairs = {(framework_of(m), m.settings.cache) for m in measurements if m.process == "warm"}
    return sorted(pairs, key=lambda pair: (pair[0], pair[1] != "warm"))


def layer_crossovers(
    measurements: Measurements,
    op: str,
    least: Mapping[str, int] = LEAST,
    forms: Iterable[Form] = (LATENCY, THROUGHPUT, *COPIES),
    machine: Machine | None = None,
) -> list[Answer]:
    """From which batch, number of channels or image size the GPU wins at the matrix products ("matmul") or convolutions ("conv")
    of layers. Square products that libraries ran from warm caches are left out: `crossovers` has them.

    `least`: for convolutions, the size that varies -> how many values of it must have been measured.
    """
    answers: list[Answer] = []
    for framework, cache in forms_of([m for m in measurements if m.problem.op == op]):
        rows = comparable(measurements, op, framework, cache)
        families = conv_rows(rows, least) if op == "conv" else dense_rows(rows)
        if op == "matmul" and (framework or cache != "warm"):
            families[SQUARES] = rows_in_family(rows, SQUARES)
        answers += family_crossovers(families, forms, framework=framework, cache=cache, machine=machine)
    return answers


def _float32_first(precisions: Iterable[str]) -> list[str]:
    """The precisions with float32 in front, the others in their order."""
    return sorted(precisions, key=lambda precision: precision != "float32")


def _has_gpu_rows(rows_by_size: RowsBySize) -> bool:
    return any(m.on_gpu for m in _all_rows(rows_by_size))


def _all_rows(rows_by_size: RowsBySize) -> list[Measurement]:
    return list(itertools.chain.from_iterable(rows_by_size.values()))


def _without_gpu(precision: str, form: Form, rows_by_size: RowsBySize, family: Family) -> Answer:
    """The answer that no GPU was measured, for the sizes that the CPU has."""
    return Answer(
        precision=precision,
        form=form,
        kind="no-gpu",
        low_n=min(rows_by_size),
        high_n=max(rows_by_size),
        family=family,
    )


def _cpu_substitutes(rows_by_precision: RowsByPrecision, precision: str) -> RowsBySize:
    """size -> rows of the arithmetic that CPUs use in place of a precision that only GPUs have: float32 for tf32. Empty for a
    precision that CPUs have."""
    if precision not in ARITHMETIC:
        return {}
    return rows_by_precision.get(ARITHMETIC[precision].on_cpu, {})


def _answer(
    *,
    precision: str,
    form: Form,
    rows_by_size: RowsBySize,
    cpu_substitutes: RowsBySize,
    family: Family,
    machine: "Machine | None",
) -> Answer | None:
    """The answer for one form of call; None when the GPU was never called so.

    rows_by_size: the rows of both devices in this precision. cpu_substitutes: CPU rows of the arithmetic that stands in where
    CPUs lack the precision.
    """
    rows = _all_rows(rows_by_size)
    tried = [m for m in rows if _is_gpu_row(m, form)]
    if not any(m.on(form.clock) or not m.ok for m in tried):
        return None
    if form.as_written and all(m.status == "skipped" for m in tried):  # `a @ b` cannot ask for this precision
        return None
    tried_sizes = tuple(sorted({family.size(m.problem) for m in tried}))
    default_threads = _default_threads(rows + _all_rows(cpu_substitutes))
    points = []
    gaps = []
    for n in sorted(rows_by_size):
        gpu_rows = [m for m in rows_by_size[n] if _is_gpu_row(m, form)]
        cpu_rows = [m for m in (*rows_by_size[n], *cpu_substitutes.get(n, ())) if not m.on_gpu]
        if form.as_written:
            cpu_rows = [m for m in cpu_rows if m.threads == default_threads and m.variant == AS_WRITTEN_VARIANT]
        cpu = fastest(cpu_rows, "host-latency", machine)
        gpu = fastest(gpu_rows, form.clock, machine)
        if cpu and gpu:
            points.append(CrossoverPoint(n=n, cpu=cpu, gpu=gpu))
            continue
        size = f"{family.size_name} = {n}"
        if cpu is None and cpu_rows:
            gaps.append(_gap(size, "CPU", cpu_rows))
        if gpu is None and gpu_rows:
            gaps.append(_gap(size, "GPU", gpu_rows))
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


def _is_gpu_row(m: Measurement, form: Form) -> bool:
    """Whether a row was measured on a GPU in that form of call."""
    return m.on_gpu and m.mode == form.mode and (not form.as_written or m.variant == AS_WRITTEN_VARIANT)


def _default_threads(rows: list[Measurement]) -> int | None:
    """The number of CPU threads that stands for the library's default: None, as in rows that set no number, if there are any;
    else the largest number that was measured."""
    counts = set()
    for m in rows:
        if m.on_gpu:
            continue
        if m.threads is None:
            return None
        counts.add(m.threads)
    return max(counts, default=None)


def _gap(size: str, device: str, rows: list[Measurement]) -> str:
    """Why a device has no time at a size: `n = 64: no GPU time (skipped: out of memory)`."""
    failed = [m for m in rows if not m.ok]
    reasons = dict.fromkeys(f"{m.status}: {m.reason}" if m.reason else m.status for m in failed)
    return f"{size}: no {device} time ({'; '.join(reasons) or 'not measured'})"
