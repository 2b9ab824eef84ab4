"""The parts of the Markdown page, each a function from records to lines."""

import pathlib
from collections import Counter
from typing import TYPE_CHECKING

from analysis import facts, sentences
from analysis.crossover import Answer, square_rows
from analysis.estimate import of
from analysis.report import again, cells
from analysis.report.cells import table, text
from analysis.report.choose import best_resident, by_kernel
from analysis.report.roofline import has_any
from analysis.report.terminal import CACHED_MARK, CACHED_WORDS, fraction_words, roof_name, roof_rate
from analysis.roofline import Judged, Roof, is_gpu, judge, pick, quick_seconds, ridge
from analysis.units import count, digits, join, percent, seconds, size
from analysis.why import why

if TYPE_CHECKING:
    from collections.abc import Iterable

    from analysis.report.material import Material
    from workloads.results import Loaded, Measurement, Run

# A run is called noisy when more than this part of its rows has flags or an interval wider than +-3 %.
NOISY_SHARE, NOISY_WIDTH = 0.1, 0.03
NUMBERS = ("kernel", "problem", "math", "device", "threads", "mode", "time", "+-", "device time", "queued", "rate",
           "of its roof", "status, flags")  # fmt: skip
MOST_NUMBERS = 2500  # rows that the Markdown lists
_RIDGE = "ridge, FLOP per byte"
_WHERE_TIME_GOES = (
    "Where the GPU's time goes, at the sizes on both sides of each crossing. The last four columns add up to its "
    "time: the device clock, what a resident call takes beyond it, what copying adds to that, and the remainder."
)
_NOT_SHOWN = (
    "What this does not show: other machines, other shapes and layouts than those listed, the cost of the first call, "
    "several processes on one GPU, energy, and anything between the measured sizes but the interpolated crossings."
)


def noisy(measurements: "Iterable[Measurement]") -> tuple[int, int]:
    """(rows with flags or a wide interval, rows with a time); a CPU clock that moved counts by the interval it made."""
    timed = [(m, s) for m in measurements if m.status == "ok" and (s := m.on("host-latency")) and s.seconds]
    bad = [bool(set(m.flags) - {"cpu-clock"}) or of(s).noise > NOISY_WIDTH for m, s in timed]
    return sum(bad), len(timed)


def badge(measurements: "Iterable[Measurement]") -> str:
    """clean or noisy, and why."""
    bad, timed = noisy(measurements)
    word = "noisy" if bad > NOISY_SHARE * timed else "clean"
    width = f"+-{100 * NOISY_WIDTH:.0f} %"
    return f"**{word}**: {bad} of {count(timed, 'timed row')} flagged or with an interval wider than {width}"


def headers(runs: "Iterable[Material]") -> list[str]:
    """The same of several runs, each under its name."""
    runs = list(runs)
    lines = [f"# Where the GPU starts to win: {text(' beside '.join(one.name for one in runs))}", ""]
    for one in runs:
        own = header(one.loaded)
        lines += [f"## {text(one.label)}", *own[1:-2], ""]
    return [*lines, "As one page to open: `python -m analysis.report --open RUN RUN`, each RUN being such a folder", ""]


def header(loaded: "Loaded") -> list[str]:
    """Machine in a line, date, commit, badge, and the command to type again."""
    run = loaded.runs[-1] if loaded.runs else None
    if run is None:
        return ["# Crossover report", "", "The result file has no line that says what machine it came from.", ""]
    dates = sorted({r.started_at[:10] for r in loaded.runs})
    files = dict.fromkeys(f"`{pathlib.Path(f).name}`" for f in loaded.files)
    return [
        f"# Where the GPU starts to win: {text(run.machine.key)}", "",
        f"- Machine: {text(facts.machine_words(run.machine))}, {size(run.machine.memory_bytes)} of memory"
        + (", virtual" if run.machine.virtual else ""),
        f"- Date: {join(dates)}; commit {text(run.commit)}, sources {text(run.sources)}",
        f"- {badge(loaded.measurements)}",
        f"- Run again with {join(f'`{text(c)}`' for c in again.commands(loaded.runs))}; measured in {join(files)}",
        "- As one page to open: `python -m analysis.report --open RUN`, RUN being this folder", "",
    ]  # fmt: skip


def answers_section(told: "Iterable[tuple[str, list[str]]]") -> list[str]:
    """The verdict in at most five sentences: of each run (its label, empty for a single one; its sentences)."""
    lines = ["## The answer", ""]
    for label, said in told:
        lines += [*([f"### {text(label)}", ""] if label else []), *(f"- {text(s)}" for s in said), ""]
    return lines


def image(name: str, says: str, shown: bool) -> list[str]:
    """The picture with what it says for those who cannot see it; nothing when it was not drawn."""
    return [f"![{text(says)}]({name})", ""] if shown else []


def details_section(left_out: list[str]) -> list[str]:
    """What the five sentences leave out, apart from the answers that stand in the crossover table."""
    told = [s for s in left_out if "the roof measured" in s or s.startswith("At n")]
    return ["## Also seen", "", *(f"- {text(s)}" for s in told), ""] if told else []


def crossover_section(measurements: "list[Measurement]", answers: tuple[Answer, ...], pictures: bool) -> list[str]:
    """The picture, who wins from where in every form, and where the GPU's time goes at the deciding sizes."""
    if not answers:
        return []
    told = [a for a in answers if a.kind != "no-gpu" or a.gaps]
    says = sentences.crossing_sentence(told[0]) if told else "Time of a square matmul on the CPU against its size."
    lines = ["## Where the GPU wins", "", *image("crossover.svg", says, pictures)]
    if not told:
        there = any(is_gpu(m.settings.device) and m.status == "ok" for m in measurements)
        why = "The GPU has no square products here" if there else "No GPU was measured"
        return [*lines, f"{why}, so there is no crossover.", ""]
    heads = ("precision", "a call", "answer, CPU at its best", "answer, default threads", "measured")
    lines += table(heads, map(_answer_row, told), 5)
    gaps = dict.fromkeys(f"- {text(a.precision)}, {text(gap)}" for a in told for gap in a.gaps)
    return [*lines, *gaps, *([""] if gaps else []), *_why_table(measurements, told)]


def _answer_row(a: Answer) -> tuple:
    differs = a.default is not None and not sentences.same_answer(a, a.default)
    default = sentences.verdict_words(a.default) if differs else "the same"
    form, verdict = sentences.form_name(a.form), sentences.verdict_words(a)
    return sentences.precision_name(a), form, verdict, default, f"{a.low_n}..{a.high_n}"


def _why_table(measurements: "list[Measurement]", answers: list[Answer]) -> list[str]:
    def cell(value: float | None) -> str:
        return "-" if value is None else seconds(value)

    rows, squares = [], square_rows(measurements)
    for a in (a for a in answers if a.precision == answers[0].precision):
        for w in why((), a, family_rows=squares):
            sides = (seconds(w.cpu.seconds.value), sentences.side_name(w.cpu), seconds(w.gpu.seconds.value))
            parts = map(cell, (w.arithmetic, w.overhead, w.copies, w.remainder))
            rows.append((a.precision, sentences.form_name(a.form), w.n, *sides, *parts))
    heads = ("precision", "a call", "n", "CPU", "CPU kernel", "GPU", "arithmetic", "launch and Python", "copies",
             "not explained")  # fmt: skip
    return [_WHERE_TIME_GOES, "", *table(heads, rows, 2)] if rows else []


def roofline_section(measurements: "list[Measurement]", roofs: tuple[Roof, ...], pictures: bool) -> list[str]:
    """The picture, the ceilings and the matmuls under them; nothing without a measured ceiling or a matmul."""
    paths = best_resident(measurements)
    if not paths and not any(r.measured for r in roofs):
        return []
    says = " ".join(facts.other_sentences([], roofs)) or "No roof was measured."
    heads = ("device", "ceiling", "rate", "+-", "of the data sheet", _RIDGE, "measured by")
    drawn = has_any(measurements, roofs)
    lines = ["## How far from the hardware's limit", "", *image("roofline.svg", says, pictures and drawn)]
    measured = [_roof_row(r, roofs) for r in roofs if r.measured]
    lines += table(heads, measured, 2, ("of the data sheet", _RIDGE)) if measured else ["No roof was measured.", ""]
    if sheets := dict.fromkeys(r.source for r in roofs if not r.measured):
        lines += [f"Data-sheet peaks, dashed in the picture, are dense ones from: {text(join(sheets))}.", ""]
    rows = [(*key, n, *_path_row(m, roofs)) for key, path in paths.items() for n, m in path.items()]
    heads = ("device", "precision", "n", "fastest kernel", "threads", "FLOP per byte", "rate", "of its roof", "the roof", "flag")
    lines += table(heads, rows, 2, ("of its roof", "the roof", "flag")) if rows else []
    return [*lines, f"\\{CACHED_MARK} {CACHED_WORDS}.", ""] if any(CACHED_MARK in row[-3] for row in rows) else lines


def _path_row(m: "Measurement", roofs: tuple[Roof, ...]) -> tuple:
    judged, intensity = judge(m, roofs), m.problem.flops / m.problem.bytes_moved
    return (m.kernel.partition("/")[2], cells.threads(m), digits(intensity), cells.rate(m), fraction_words(judged),
            roof_name(judged.roof) if judged.roof else "-", judged.flag)  # fmt: skip


def _roof_row(r: Roof, roofs: tuple[Roof, ...]) -> tuple:
    threads = count(r.threads, "thread") if r.threads else ""
    name = ", ".join(filter(None, (roof_name(r), threads, r.note)))
    wanted = (r.device, r.kind, r.name)
    sheet = next((s for s in roofs if not s.measured and (s.device, s.kind, s.name) == wanted), None)
    memory = pick(roofs, r.device, "memory", "", r.threads) if r.kind == "compute" else None
    return (r.device, name, roof_rate(r), cells.width(r.rate),
            percent(r.rate.value / sheet.rate.value) if sheet else "-", digits(ridge(r, memory)) if memory else "-",
            r.source)  # fmt: skip


def kernels_section(measurements: "list[Measurement]", roofs: tuple[Roof, ...], pictures: bool) -> list[str]:
    """Every kernel's best rate and its rate at the largest size; then streams and peaks."""
    paths = by_kernel(measurements)
    says = "Rate of every kernel's square matmuls against their size."
    ranked = sorted(paths.items(), key=lambda item: (item[0][1] != "float32", item[0][1]))
    heads = ("kernel", "precision", "threads", "best rate", "at n", "of its roof", "at the largest n", "n")
    lines = ["## Kernels", "", *image("rates.svg", says, pictures and bool(paths))]
    lines += table(heads, [(*key, *_kernel_row(path, roofs)) for key, path in ranked], 2, ("of its roof",)) if ranked else []
    rows = [(m.kernel, cells.problem(m), m.settings.device, cells.threads(m), cells.rate(m)) for m in measurements
            if m.problem.op in ("stream", "peak") and quick_seconds(m)]  # fmt: skip
    lines += table(("kernel", "problem", "device", "threads", "rate"), rows, 3) if rows else []
    return lines if ranked or rows else []


def _kernel_row(path: "dict[int, Measurement]", roofs: tuple[Roof, ...]) -> tuple:
    best, last = max(path.values(), key=lambda m: m.problem.flops / quick_seconds(m)), path[max(path)]
    return (cells.threads(best), cells.rate(best), best.problem.n, fraction_words(judge(best, roofs)), cells.rate(last),
            last.problem.n)  # fmt: skip


def how_section(loaded: "Loaded") -> list[str]:
    """Checks, stop reasons, flags, seed, software and limits of what was measured."""
    ms = loaded.measurements
    run = loaded.runs[-1] if loaded.runs else None
    software = software_words(loaded.runs)
    checks = _counted(m.check or "not checked" for m in ms if m.status == "ok")
    return [
        "## How it was measured", "",
        f"- Rows: {_counted(m.status for m in ms)}; bad lines in the files: {loaded.bad_lines}.",
        f"- Checked before timing (exact: equal to the answer on whole numbers, in any order): {checks}.",
        "- A time is the median of samples taken in blocks; its 95 % interval resamples whole blocks and is widened "
        f"where blocks are few. Sampling stopped because: {_counted(s.stop_reason for m in ms for s in m.samples)}.",
        f"- Flags on rows: {_counted(flag for m in ms for flag in m.flags)}.",
        "- Rates and roofs use the device clock on a GPU where there is one, else the time of one call on the host.",
        f"- Order: as in the result files; seed {run.seed if run else 'unknown'}.",
        f"- Software: {text(join(software)) or 'unknown'}.",
        "- The CPU side of a crossover is the fastest kernel and thread count at that size; teaching rungs are out.",
        "- A memory roof counts only for working sets that no cache holds; smaller ones have the roof of the level that holds "
        "them, where it was measured.", "", _NOT_SHOWN, "",
    ]  # fmt: skip


_FORMULAS = (
    "matmul M x N x K: 2 M N K FLOP; it must move its three matrices once, (M K + K N + M N) elements",
    "convolution: 2 n p q c_out c_in r s / groups FLOP; the images, the filters and the result once",
    "stream: the bytes of the arrays that the operation reads and writes, each once",
    "rate: FLOP or bytes over the median time; arithmetic intensity: FLOP over bytes; ridge: peak rate over bandwidth",
    "of its roof: the least time that the roofs allow, over the measured one",
    "speed-up: the CPU's time over the GPU's; crossover: where its logarithm passes 0, linear in the logarithm of the size",
    "a copy used k times: the call with its copies and k - 1 calls without, over k",
    "a job: start-up, build and compilation, then a fit: once + epochs (an epoch's own + steps x a step)",
)


def formulas() -> list[str]:
    """What the numbers on the page are, as formulas."""
    return ["### Formulas", "", *(f"- {text(f)}" for f in _FORMULAS), ""]


def software_words(runs: "Iterable[Run]") -> list[str]:
    """`numpy 2.4.6`: what any of the runs stood on; every version where they differ, the last one last."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in run.software.items():
            versions = found.setdefault(name, {})
            versions.pop(version, None)
            versions[version] = None
    return [f"{name} {' or '.join(versions)}" for name, versions in found.items()]


def _counted(names: "Iterable[str]") -> str:
    return ", ".join(f"{n} {text(name)}" for name, n in Counter(names).most_common()) or "none"


def numbers_section(measurements: "list[Measurement]", numbers: "list[tuple]", heads: tuple[str, ...] = NUMBERS) -> list[str]:
    """Every row that was tried, a line each (`numbers`: of `number_row`, before them the run where `heads` has it); the skipped
    ones by their reasons."""
    timed = [m for m in measurements if m.status != "skipped"]
    skipped: dict[tuple[str, str], int] = {}
    for m in (m for m in measurements if m.status == "skipped"):
        key = (m.kernel, m.reason)
        skipped[key] = skipped.get(key, 0) + 1
    left = [f"- {kernel}: {count(n, 'row')} skipped ({reason})" for (kernel, reason), n in skipped.items()]
    said = f"A time of `{several[0]}` is that of all of them." if (several := _several(timed)) else ""
    found = table(heads, numbers, 2 + len(heads) - len(NUMBERS), ("device time", "queued", "of its roof"))
    if len(numbers) > MOST_NUMBERS:
        found = [f"{len(numbers):,} rows are too many for a page of text: the HTML page filters and sorts them, "
                 "`python -m analysis.export --to csv RUN` writes them.", ""]  # fmt: skip
    return ["## All numbers", "", *([said, ""] if said else []), *found, *(["", *left] if left else [])]


def _several(measurements: "list[Measurement]") -> list[str]:
    """The rows of launches that do the same many times over, in words."""
    return [cells.problem(m) for m in measurements if m.problem.op == "launch" and m.problem.count > 1]


def number_row(m: "Measurement", judged: Judged) -> tuple:
    """The cells of a row in NUMBERS."""
    host = cells.on(m, "host-latency")
    doubts = "; ".join(filter(None, (cells.status(m), *m.flags, judged.flag)))
    return (m.kernel, cells.problem(m), getattr(m.problem, "math", "-"), m.settings.device, cells.threads(m),
            cells.mode(m), cells.time(host), cells.width(host), cells.time(cells.on(m, "device")),
            cells.time(cells.on(m, "host-throughput")), cells.rate(m), fraction_words(judged), doubts)  # fmt: skip


def order(m: "Measurement") -> tuple:
    p, s = m.problem, m.settings
    which = p.op, getattr(p, "math", ""), getattr(p, "n", 0), cells.shape(p)
    return *which, is_gpu(s.device), m.kernel, s.mode, s.threads or 0, _size(p)


def _size(p) -> tuple:
    """Where a problem without n stands among its like."""
    return str(getattr(p, "direction", "") or getattr(p, "operation", "")), getattr(p, "nbytes", 0), getattr(p, "count", 0)
