"""The parts of the Markdown page, each a function from records to lines."""

import pathlib
import re
from collections import Counter
from collections.abc import Iterable

import msgspec

from analysis import labels
from analysis import table as cells
from analysis.crossover import ladder
from analysis.crossover.crossover import Answer
from analysis.crossover.families import SQUARES, rows_of
from analysis.crossover.time_split import why
from analysis.report.charts.roofline import products
from analysis.report.material import Material
from analysis.report.sections import crossings
from analysis.report.sections.rows import NUMBERS, OPTIONAL, is_concurrent
from analysis.roofline.bounds import Roof, pick, ridge
from analysis.stats import of, timed
from analysis.table import listed, table, text
from analysis.text import rates
from analysis.units import count, digits, join, percent, size
from workloads.machine import facts
from workloads.records import Machine, Measurement, Run

# A run is called noisy when more than this part of its rows has flags or an interval wider than ±3 %.
NOISY_SHARE, NOISY_WIDTH = 0.1, 0.03
MOST_NUMBERS = 2500  # rows that the Markdown lists
MOST_HASHES = 4  # commits, and sources, that a page names at its top
INLINE, COMMANDS = 3, "Commands"  # of more commands than INLINE the page has a list at its end, under that name
CEILINGS = "device | ceiling | rate | ± | of the data sheet | ridge, FLOP per byte | measured by"


def noisy(measurements: "Iterable[Measurement]") -> tuple[int, int]:
    """(rows with flags or a wide interval, rows with a time); a CPU clock that moved counts by the interval it made."""
    found = timed(measurements, "host-latency")
    bad = [bool(set(m.flags) - {"cpu-clock"}) or of(s).noise > NOISY_WIDTH for m, s in found]
    return sum(bad), len(found)


class Head(msgspec.Struct, frozen=True):
    """What stands above a run's answer: the machine and whether it was quiet, when and from what it was measured."""

    run: str  # its label among several
    key: str
    machine: str
    word: str  # clean or noisy, and why
    why: str
    dates: str
    versions: str
    commits: str
    counted: str
    files: list[str]
    commands: list[str]


def head(of: Material) -> Head:
    """The head of a page or of one run's part of it."""
    loaded, run = of.loaded, of.loaded.last
    bad, every = noisy(of.rows)
    machine = "The result file has no line that says what machine it came from."
    if run:
        machine = f"{rates.machine_words(run.machine)}, {size(run.machine.memory_bytes)} of memory"
        machine += ", virtual" * run.machine.virtual
    files = list(dict.fromkeys("/".join(pathlib.Path(f).parts[-2:]) for f in loaded.files))
    return Head(
        of.label,
        run.machine.key if run else "an unknown machine",
        machine,
        "noisy" if bad > NOISY_SHARE * every else "clean",
        f"{bad} of {count(every, 'timed row')} flagged or with an interval wider than ±{100 * NOISY_WIDTH:.0f} %",
        join(sorted({r.started_at[:10] for r in loaded.runs})),
        versions(loaded.runs) if run else "",
        join(dict.fromkeys(facts.marked(r.commit, r.sources) for r in loaded.runs)),
        f"{count(len(of.rows), 'row')} of {count(len(files), 'file')}",
        files,
        commands(loaded.runs),
    )


def header(runs: "list[Material]") -> list[str]:
    """The Markdown page's title and heads; of several runs each under its name."""
    heads = list(map(head, runs))
    if len(runs) == 1:
        told, how = _head_lines(heads[0]), "RUN`, RUN being this folder"
        return [f"# Where the GPU starts to win: {text(heads[0].key)}", "", *told, f"- {_AS_ONE_PAGE} {how}", ""]
    lines = [f"# Where the GPU starts to win: {text(' beside '.join(of.name for of in runs))}", ""]
    for one in heads:
        lines += [f"## {text(one.run)}", "", *_head_lines(one), ""]
    return [*lines, f"{_AS_ONE_PAGE} RUN RUN`, each RUN being such a folder", ""]


_AS_ONE_PAGE = "As one page to open: `python -m analysis.report --open"


def _head_lines(of: Head) -> list[str]:
    """Machine in a line, date, commit, badge, and the commands to type again, or where they stand."""
    if not of.versions:
        return [of.machine]
    typed = f"{len(of.commands)} commands, [listed at the end](#{COMMANDS.lower()})"
    if len(of.commands) <= INLINE:
        typed = join(f"`{text(c)}`" for c in of.commands)
    files = dict.fromkeys(f"`{pathlib.PurePath(file).name}`" for file in of.files)
    return [
        f"- Machine: {text(of.machine)}",
        f"- Date: {text(of.dates)}; {text(of.versions)}",
        f"- **{of.word}**: {of.why}",
        f"- Run again with {typed}; measured in {join(files)}",
    ]


def versions(runs: "Iterable[Run]") -> str:
    """The commits and sources of the runs, newest first: `commits 3b57fefff and 390eacb90, sources 77dde8d25 and acf0fabd5`."""
    newest = sorted(runs, key=lambda r: r.started_at, reverse=True)
    commits = (facts.marked(r.commit, r.sources) for r in newest)
    return ", ".join([_hashes("commit", commits), _hashes("sources", (r.sources for r in newest))])


def _hashes(what: str, found: "Iterable[str]") -> str:
    """Each once, shortened; behind MOST_HASHES of them how many more."""
    every = list(dict.fromkeys(f"{name[:9]}{plus}{rest}" for name, plus, rest in (f.partition("+") for f in found)))
    more = [f"{len(every) - MOST_HASHES} more"] if len(every) > MOST_HASHES else []
    plural = "s" * (len(every) > 1 and not what.endswith("s"))
    return f"{what}{plural} {join([*every[:MOST_HASHES], *more])}"


def commands_section(runs: "Iterable[Material]") -> list[str]:
    """The commands of pages that come of more than INLINE of them, in the order they were run."""
    told = []
    for one in runs:
        every = commands(one.loaded.runs)
        if len(every) > INLINE:
            told += [*([f"{text(one.label)}:", ""] if one.label else []), "```", *every, "```", ""]
    return [f"## {COMMANDS}", "", *told] if told else []


def answers_section(runs: "list[Material]") -> list[str]:
    """The verdict in at most five sentences, of several runs each one's under its name."""
    lines = ["## The answer", ""]
    for run in runs:
        lines += [*([f"### {text(run.label)}", ""] if run.label else []), *(listed(run.said) or [""])]
    return lines


def crossover_section(measurements: "list[Measurement]", answers: tuple[Answer, ...]) -> list[str]:
    """Who wins from where in every form, and where the GPU's time goes at the deciding sizes."""
    if not answers:
        return []
    told = crossings.answered(answers)
    if not told:
        there = any(m.on_gpu and m.ok for m in measurements)
        lacking = "The GPU has no square products of workloads.matmul here" if there else "No GPU was measured"
        return [f"{lacking}, so there is no crossover.", ""]
    squares = rows_of(measurements, SQUARES)
    parts = crossings.details(told, (), lambda a: (), lambda a: why((), a, family_rows=squares))
    return crossings.wins(told, (), lambda a: ()).md() + parts


def roofline_section(of: Material) -> list[str]:
    """The ceilings; nothing without a measured one or a matmul."""
    measured = ceilings(of.roofs)
    if not measured and not products(of.rows, of.roofs):
        return []
    lines = (
        table(CEILINGS, measured, 2, "of the data sheet | ridge, FLOP per byte")
        if measured
        else ["No roof was measured.", ""]
    )
    if sheets := dict.fromkeys(r.source for r in of.roofs if not r.measured):
        lines += [f"Data-sheet peaks, dotted in the picture, are dense ones from: {text(join(sheets))}.", ""]
    return lines


def ceilings(roofs: tuple[Roof, ...]) -> list[tuple]:
    """The measured roofs under CEILINGS."""
    return [_roof_row(r, roofs) for r in roofs if r.measured]


def _roof_row(r: Roof, roofs: tuple[Roof, ...]) -> tuple:
    threads = count(r.threads, "thread") if r.threads else ""
    name = ", ".join(filter(None, (r.label, threads, r.note)))
    wanted = (r.device, r.kind, r.name)
    sheet = next((s for s in roofs if not s.measured and (s.device, s.kind, s.name) == wanted), None)
    memory = pick(roofs, r.device, "memory", "", r.threads) if r.kind == "compute" else None
    return (
        r.device,
        name,
        r.speed,
        labels.width(r.rate),
        percent(r.rate.value / sheet.rate.value) if sheet else "-",
        digits(ridge(r, memory)) if memory else "-",
        r.source,
    )


def numbers_section(runs: "list[Material]") -> list[str]:
    """Every row that was tried, a line each; the skipped ones by their reasons."""
    every = [m for of in runs for m in of.rows]
    tried = [m for m in every if m.status != "skipped"]
    skipped = Counter((m.kernel, m.reason) for m in every if m.status == "skipped")
    left = [f"- {text(kernel)}: {count(n, 'row')} skipped ({text(reason)})" for (kernel, reason), n in skipped.items()]
    many = next((m.problem for m in tried if m.problem.op == "launch" and m.problem.count > 1), None)
    said = [f"A time of `{labels.problem(many)}` is that of all of them."] if many else []
    if any(map(is_concurrent, tried)):
        said.append("Contention is the time over the steps of all processes together.")
    if len(tried) > MOST_NUMBERS:
        found = [
            f"{len(tried):,} rows are too many for a page of text: the HTML page filters and sorts them, "
            "`python -m analysis.export --to csv RUN` writes them.",
            "",
        ]
    else:
        heads, rows = numbers(runs, skipped=False)
        found = table(heads, rows, heads.index("problem") + 1 + ("how" in heads))
    return ["## All numbers", "", *([" ".join(said), ""] if said else []), *found, *(["", *left] if left else [])]


def numbers(runs: "list[Material]", skipped: bool = True) -> tuple[tuple[str, ...], list[list[str]]]:
    """(the columns of the table of all numbers, the cells of every row): what was run, its numbers, how its answer was checked;
    of several runs the run first. Columns that say nothing anywhere are left out."""
    several = len(runs) > 1
    heads = (*(("run",) if several else ()), *NUMBERS, "check")
    found = [
        [*([of.letter] if several else []), *map(str, row), m.check or "-"]
        for of in runs
        for m, row in zip(of.ordered, of.numbers, strict=True)
        if skipped or m.status != "skipped"
    ]
    shown = [i for i, head in enumerate(heads) if head not in OPTIONAL or any(row[i] not in ("", "-") for row in found)]
    return tuple(heads[i] for i in shown), [[row[i] for i in shown] for row in found]


_STOPPED = re.compile(r" --stop-after[ =]\S+| --resume(?= |$)")


def commands(runs: "Iterable[Run]") -> list[str]:
    """The commands in the order they were run, each once: what went on where it had stopped is the same command, without the
    flags for that."""
    ran = sorted(runs, key=lambda r: r.started_at)
    return list(dict.fromkeys(_STOPPED.sub("", cells.portable(run.command)) for run in ran))


def ladder_section(measurements: "Iterable[Measurement]", machine: "Machine | None", op: str = "matmul") -> list[str]:
    """A table for each device, arithmetic and thread count, a line a rung at each size, and what each rung changed; nothing
    where no teaching rung was measured."""
    found = ladder.ladders(measurements, machine, op)
    if not found:
        return []
    about = "Our own kernels, the simplest first, beside the fastest library there and under the measured peak."
    lines = [about, ""]
    for one in found:
        rows = [(ladder.problem_name(p), *cells) for p in one.problems for cells in ladder.cells(one, p)]
        lines += [f"### {text(ladder.title(one))}", "", *table(f"problem | {ladder.HEADS}", rows, 2, ladder.SHARES)]
        lines += listed(ladder.sentences(one))
    return lines
