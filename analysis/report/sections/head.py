"""The head of a page: the machine and whether it was quiet, when, from what sources and by what commands it was measured, and the
answer."""

import pathlib
from collections.abc import Iterable, Sequence

import msgspec

from analysis.blocks import Block, Heading, listed, markdown
from analysis.report.material import Material
from analysis.stats import median_of, timed
from analysis.table import text
from analysis.text import rates
from analysis.units import count, join, size
from workloads.machine import facts
from workloads.records import Measurements, Run, command_lines

#: A run is called noisy when more than this part of its rows has flags or a wide interval.
NOISY_SHARE = 0.1
#: Half the width of an interval beyond which it is called wide, as a part of its median: ±3 %.
NOISY_WIDTH = 0.03
#: Commits that a page names at its top.
MOST_HASHES = 4
#: More commands than these become a list at the page's end.
INLINE = 3
#: The heading of that list.
COMMANDS = "Commands"
#: Operations that only explain others: they have no winner.
_EXPLAINING = {"peak", "stream", "launch", "feeding"}
#: The machine of rows whose file does not name one.
_UNKNOWN = "an unknown machine"
_NO_MACHINE_LINE = "The result file has no line that says what machine it came from."


def noisy(measurements: Measurements) -> tuple[int, int]:
    """(rows that are noisy, rows with a time). A row is noisy if it has a flag or an interval wider than NOISY_WIDTH. The flag
    of a CPU clock that moved does not count: if it mattered, the interval is wide.
    """
    timed_rows = timed(measurements, "host-latency")
    noisy_rows = 0
    for m, samples in timed_rows:
        is_flagged = bool(set(m.flags) - {"cpu-clock"})
        if is_flagged or median_of(samples).noise > NOISY_WIDTH:
            noisy_rows += 1
    return noisy_rows, len(timed_rows)


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The facts above a run's answer: the machine and whether it was quiet, when and from what it was measured."""

    #: The run's label; "" for a page's only run.
    run: str
    #: The name of the machine, as of its folder.
    key: str
    #: The machine's parts in words, or that they are unknown.
    machine: str
    #: "clean" or "noisy".
    word: str
    #: How many rows are noisy, and by what measure.
    why: str
    #: The days on which it was measured.
    dates: str
    #: The commits that measured; "" where no run line tells them.
    versions: str
    #: How many rows of how many files.
    counted: str
    #: The result files, each with its folder.
    files: list[str]
    #: The commands that measured, to be typed again.
    commands: list[str]


def head(material: Material) -> Head:
    """The facts of a run, for the top of its page or of its part of one."""
    loaded = material.analysis.loaded
    run = loaded.last
    noisy_rows, timed_rows = noisy(material.rows)
    why = f"{noisy_rows:,} of {count(timed_rows, 'timed row')} flagged or with an interval wider than "
    days = {r.started_at[:10] for r in loaded.runs}
    files = list(dict.fromkeys("/".join(pathlib.Path(file).parts[-2:]) for file in loaded.files))
    return Head(
        run=material.label,
        key=run.machine.key if run else _UNKNOWN,
        machine=_machine_words(run),
        word=_word(noisy_rows, timed_rows),
        why=f"{why}±{100 * NOISY_WIDTH:.0f} %",
        dates=join(sorted(days)),
        versions=versions(loaded.runs),
        counted=f"{count(len(material.rows), 'row')} of {count(len(files), 'file')}",
        files=files,
        commands=commands(loaded.runs),
    )


def _word(noisy_rows: int, timed_rows: int) -> str:
    """clean, or noisy where more than NOISY_SHARE of the rows are noisy."""
    return "noisy" if noisy_rows > NOISY_SHARE * timed_rows else "clean"


def _machine_words(run: Run | None) -> str:
    """The machine's processors and memory, and whether it is a virtual one; that nothing is known of it without a run."""
    if run is None:
        return _NO_MACHINE_LINE
    machine = run.machine
    words = f"{rates.machine_words(machine)}, {size(machine.memory_bytes)} of memory"
    return f"{words}, virtual" if machine.virtual else words


def title(runs: "list[Material]") -> str:
    """The page's title. It asks for a winner only where both devices ran an operation, other than those that only explain."""
    cpu_operations: set[str] = set()
    gpu_operations: set[str] = set()
    for run in runs:
        for m in run.rows:
            if not m.ok or m.process != "warm":
                continue
            operations = gpu_operations if m.on_gpu else cpu_operations
            operations.add(m.problem.op)
    on_both = cpu_operations & gpu_operations
    return "Where the GPU starts to win" if on_both - _EXPLAINING else "What was measured"


def header(runs: "list[Material]", *, with_commands: bool = True) -> list[str]:
    """The lines of a page's title and of its facts, of several runs each under its name. with_commands: whether these have the
    commands that measure it again.
    """
    heads = list(map(head, runs))
    if len(runs) == 1:
        return [f"# {title(runs)}: {text(heads[0].key)}", "", *_head_lines(heads[0], with_commands), ""]
    names = " beside ".join(run.name for run in runs)
    lines = [f"# {title(runs)}: {text(names)}", ""]
    for run_head in heads:
        lines += [f"## {text(run_head.run)}", "", *_head_lines(run_head, with_commands), ""]
    return lines


def _head_lines(run_head: Head, with_commands: bool) -> list[str]:
    """The facts of a run as Markdown: machine, date, commit, whether it was quiet. with_commands: also the commands to type
    again, or where they are listed.
    """
    if not run_head.versions:
        return [run_head.machine]
    lines = [
        f"- Machine: {text(run_head.machine)}",
        f"- Date: {text(run_head.dates)}; {text(run_head.versions)}",
        f"- **{run_head.word}**: {run_head.why}",
    ]
    if not with_commands:
        return lines
    if len(run_head.commands) <= INLINE:
        typed = join(f"`{text(command)}`" for command in run_head.commands)
    else:
        typed = f"{len(run_head.commands)} commands, [listed at the end](#{COMMANDS.lower()})"
    files = dict.fromkeys(f"`{pathlib.PurePath(file).name}`" for file in run_head.files)
    return [*lines, f"- Run again with {typed}; measured in {join(files)}"]


def versions(runs: Sequence[Run]) -> str:
    """The commits of the runs, newest first, each once; beyond MOST_HASHES of them only how many more. "" without runs."""
    if not runs:
        return ""
    newest = sorted(runs, key=lambda r: r.started_at, reverse=True)
    every = list(dict.fromkeys(facts.marked(r.commit, r.sources, digits=9) for r in newest))
    names = every[:MOST_HASHES]
    if len(every) > MOST_HASHES:
        names.append(f"{len(every) - MOST_HASHES} more")
    noun = "commits" if len(every) > 1 else "commit"
    return f"{noun} {join(names)}"


def commands_section(runs: "Iterable[Material]") -> list[str]:
    """A list of the commands of runs with more than INLINE of them, in the order they were run."""
    lines = []
    for run in runs:
        every = commands(run.analysis.loaded.runs)
        if len(every) <= INLINE:
            continue
        if run.label:
            lines += [f"{text(run.label)}:", ""]
        lines += ["```", *every, "```", ""]
    return [f"## {COMMANDS}", "", *lines] if lines else []


def answers_section(runs: "list[Material]") -> list[str]:
    """The answer of each run in at most five sentences; under its name where there are several runs."""
    answers: list[Block] = []
    for run in runs:
        if run.label:
            answers.append(Heading(text=run.label))
        answers += listed(run.answer)
    return ["## The answer", "", *markdown(answers)]


def commands(runs: "Iterable[Run]") -> list[str]:
    """The commands that measured these runs, in the order in which they were run, each once. Flags by which a run is stopped or
    resumed are left out, so that a command that was resumed counts once.
    """
    ran = sorted(runs, key=lambda r: r.started_at)
    typed = (command_lines.without(run.command, command_lines.STOPPING) for run in ran)
    return list(dict.fromkeys(map(command_lines.portable, typed)))
