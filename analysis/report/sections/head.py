"""The head of a page: the machine and whether it was quiet, when, from what sources and by what commands it was measured, and the
answer."""

import pathlib
from collections.abc import Iterable

import msgspec

from analysis.blocks import Block, Heading, listed, markdown
from analysis.report.material import Material
from analysis.stats import median_of, timed
from analysis.table import text
from analysis.text import rates
from analysis.units import count, join, size
from workloads.machine import facts
from workloads.records import Measurements, Run, command_lines

# A run is called noisy when more than this part of its rows has flags or an interval wider than ±3 %.
NOISY_SHARE, NOISY_WIDTH = 0.1, 0.03
MOST_HASHES = 4  # commits that a page names at its top
INLINE, COMMANDS = 3, "Commands"  # more commands than INLINE become a list at the page's end, under that name


def noisy(measurements: Measurements) -> tuple[int, int]:
    """(rows with flags or a wide interval, rows with a time); a CPU clock that moved counts by the interval it made."""
    found = timed(measurements, "host-latency")
    bad = [bool(set(m.flags) - {"cpu-clock"}) or median_of(s).noise > NOISY_WIDTH for m, s in found]
    return sum(bad), len(found)


class Head(msgspec.Struct, frozen=True):
    """The facts above a run's answer: the machine and whether it was quiet, when and from what it was measured."""

    run: str  # its label among several
    key: str
    machine: str
    word: str  # clean or noisy, and why
    why: str
    dates: str
    versions: str
    counted: str
    files: list[str]
    commands: list[str]


def head(of: Material) -> Head:
    """The head of a page or of one run's part of it."""
    loaded, run = of.analysis.loaded, of.analysis.loaded.last
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
        f"{bad:,} of {count(every, 'timed row')} flagged or with an interval wider than ±{100 * NOISY_WIDTH:.0f} %",
        join(sorted({r.started_at[:10] for r in loaded.runs})),
        versions(loaded.runs) if run else "",
        f"{count(len(of.rows), 'row')} of {count(len(files), 'file')}",
        files,
        commands(loaded.runs),
    )


def title(runs: "list[Material]") -> str:
    """The page's title. It asks for a winner only where both devices ran an operation, other than those that only explain."""
    warm = [m for of in runs for m in of.rows if m.ok and m.process == "warm"]
    did = ({m.problem.op for m in warm if m.on_gpu is gpu} for gpu in (False, True))
    wins = set.intersection(*did) - {"peak", "stream", "launch", "feeding"}
    return "Where the GPU starts to win" if wins else "What was measured"


def header(runs: "list[Material]", *, with_commands: bool = True) -> list[str]:
    """The Markdown page's title and heads; of several runs each under its name. with_commands: and how to run them again."""
    heads = list(map(head, runs))
    if len(runs) == 1:
        return [f"# {title(runs)}: {text(heads[0].key)}", "", *_head_lines(heads[0], with_commands), ""]
    lines = [f"# {title(runs)}: {text(' beside '.join(of.name for of in runs))}", ""]
    for one in heads:
        lines += [f"## {text(one.run)}", "", *_head_lines(one, with_commands), ""]
    return lines


def _head_lines(of: Head, with_commands: bool) -> list[str]:
    """Machine in a line, date, commit, badge, and the commands to type again, or where they stand."""
    if not of.versions:
        return [of.machine]
    lines = [
        f"- Machine: {text(of.machine)}",
        f"- Date: {text(of.dates)}; {text(of.versions)}",
        f"- **{of.word}**: {of.why}",
    ]
    if not with_commands:
        return lines
    typed = f"{len(of.commands)} commands, [listed at the end](#{COMMANDS.lower()})"
    if len(of.commands) <= INLINE:
        typed = join(f"`{text(c)}`" for c in of.commands)
    files = dict.fromkeys(f"`{pathlib.PurePath(file).name}`" for file in of.files)
    return [*lines, f"- Run again with {typed}; measured in {join(files)}"]


def versions(runs: "Iterable[Run]") -> str:
    """The commits of the runs, newest first, each once; beyond MOST_HASHES of them only how many more."""
    newest = sorted(runs, key=lambda r: r.started_at, reverse=True)
    every = list(dict.fromkeys(facts.marked(r.commit, r.sources, digits=9) for r in newest))
    more = [f"{len(every) - MOST_HASHES} more"] if len(every) > MOST_HASHES else []
    return f"commit{'s' * (len(every) > 1)} {join([*every[:MOST_HASHES], *more])}"


def commands_section(runs: "Iterable[Material]") -> list[str]:
    """A list of the commands of runs with more than INLINE of them, in the order they were run."""
    told = []
    for one in runs:
        every = commands(one.analysis.loaded.runs)
        if len(every) > INLINE:
            told += [*([f"{text(one.label)}:", ""] if one.label else []), "```", *every, "```", ""]
    return [f"## {COMMANDS}", "", *told] if told else []


def answers_section(runs: "list[Material]") -> list[str]:
    """The answer of each run in at most five sentences; under its name where there are several runs."""
    answers: list[Block] = []
    for run in runs:
        if run.label:
            answers.append(Heading(text=run.label))
        answers += listed(run.said)
    return ["## The answer", "", *markdown(answers)]


def commands(runs: "Iterable[Run]") -> list[str]:
    """The commands in the order they were run, each once. Flags that stop and resume are removed, so that a resumed command
    counts once."""
    ran = sorted(runs, key=lambda r: r.started_at)
    typed = (command_lines.without(run.command, command_lines.STOPPING) for run in ran)
    return list(dict.fromkeys(map(command_lines.portable, typed)))
