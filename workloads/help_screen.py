"""The output of -h and --help: one screen with the flags that people need, or all flags. Standard library only."""

import argparse
import functools
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from workloads import ROOT, terminal
from workloads.corrections.nearest import nearest


class HelpText(str):
    """The help of a flag, as argparse takes it."""

    #: The part of it that -h shows.
    brief = ""


def help_text(brief: str, *, rest: str) -> HelpText:
    """The help of a flag of which -h shows `brief` alone; --help shows `brief` with `rest` after it."""
    text = HelpText(brief + rest)
    text.brief = brief
    return text


class VerbatimLines(str):
    """Text whose lines stay lines."""

    lines: tuple[str, ...] = ()


def verbatim(lines: Iterable[str]) -> VerbatimLines:
    """Lines as a text of argparse that stay lines."""
    lines = tuple(lines)
    text = VerbatimLines("\n".join(lines))
    text.lines = lines
    return text


def examples(commands: Iterable[str]) -> VerbatimLines:
    """The end of a command's help: command lines to begin with."""
    return verbatim(["examples:", *(terminal.Line(label="  ", command=command) for command in commands)])


class Formatter(argparse.HelpFormatter):
    """Wraps at the terminal's width; VerbatimLines stay lines."""

    def __init__(self, prog: str, **how):
        super().__init__(prog, **{**how, "width": terminal.width() or 80})

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # host-latency is one word

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if isinstance(text, VerbatimLines):
            return terminal.filled([terminal.Line(line, label=indent) for line in text.lines], width + len(indent))
        return super()._fill_text(text, width, indent)


class Help(argparse.Action):
    """The flag -h --help; the first is one screen where the parser says what people need."""

    def __call__(self, parser: Any, namespace, values, option_string=None):
        print(screen(parser) if option_string == "-h" and parser.brief_flags else parser.format_help().rstrip())
        parser.exit()


def screen(parser: Any) -> str:
    """The question that the command answers, the flags of `parser.brief_flags`, the examples, and how to see the rest."""
    most, flags = terminal.width() or 80, [a for a in parser._actions if a.option_strings]
    wanted = dict.fromkeys(parser._option_string_actions[name] for name in parser.brief_flags)
    actions = [*(a for a in parser._actions if not a.option_strings), *wanted]
    heads = ["  " + " ".join(filter(None, (*a.option_strings, _takes(a)))) for a in actions]
    wide = min(max(map(len, heads), default=0), most // 3)
    lines: list[str] = [parser.question, ""]
    for head, action in zip(heads, actions, strict=True):
        lines.append(terminal.Line(_brief(action), label=f"{head:<{wide}}  "))
    lines += ["", *parser.epilog.lines, f"all {len(flags)} flags: --help"]
    return terminal.filled(lines, most)


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    name = action.metavar or "|".join(map(str, action.choices or ()))
    return f"{name} ..." if action.nargs in ("+", "*") else name


def _brief(action: argparse.Action) -> str:
    """What -h shows of a flag's help. As in argparse, a percent sign is written %%."""
    text = action.help.brief if isinstance(action.help, HelpText) else action.help
    return (text or "") % {}


OVERVIEWS = ("workloads", "analysis")  # commands that list the others


@functools.cache
def _sources() -> dict[str, str]:
    """Every command -> the source of the module that has its QUESTION; nothing is imported."""
    by_command = {}
    paths = [*(ROOT / "analysis").rglob("*.py"), *(ROOT / "workloads").rglob("*.py")]
    for path in sorted(paths):
        text = path.read_text(encoding="utf-8")
        if re.search(_QUESTION, text, re.MULTILINE):
            parts = path.relative_to(ROOT).with_suffix("").parts
            by_command[".".join(parts[:-1] if parts[-1] in ("command", "__main__") else parts)] = text
    return by_command


_QUESTION = r'^QUESTION = "(.*)"$'


def commands() -> dict[str, str]:
    """Every command -> the question that it answers, its own QUESTION."""
    questions = {}
    for command, text in _sources().items():
        question = re.search(_QUESTION, text, re.MULTILINE)
        questions[command] = question[1] if question else ""
    return questions


def commands_with(flag: str, near: str) -> list[str]:
    """The commands that declare this flag, those of the package of the command `near` first."""
    declared = re.compile(rf'add_argument\(\s*(?:"-\w",\s*)?"{re.escape(flag)}"')
    declaring = [command for command, text in _sources().items() if declared.search(text)]
    package = _package(near)
    return sorted(declaring, key=lambda command: _package(command) != package)


def _package(command: str) -> str:
    """The first part of a command's name: workloads or analysis."""
    return command.partition(".")[0]


def similar_command(word: str, first: str) -> str:
    """The command that a word names, whole or by its last part, or nearly so; the package `first` comes first. "" without one."""
    known = sorted(commands(), key=lambda command: _package(command) != first)
    short = {command.rpartition(".")[2]: command for command in reversed(known)}
    return nearest(word, known, 0.8) if "." in word else short.get(nearest(word, short), "")


def starts(command: str) -> str:
    """The module whose `main` is a command's: a package's own is in `__main__`."""
    is_package = ROOT.joinpath(*command.split(".")).is_dir()
    return f"{command}.__main__" if is_package else command


def overview(first: str) -> list[str]:
    """A line a command, by the question it answers, those of the package `first` first."""
    known = sorted(commands().items(), key=lambda item: _package(item[0]) != first)
    wide = max(len(command) for command, _ in known)
    return [
        "What do you want to know?",
        *(terminal.Line(question, label=f"  {command:<{wide}}  ") for command, question in known),
    ]
