"""The output of -h and --help: one screen with the flags that people need, or all flags. Standard library only."""

import argparse
import functools
import re
import textwrap
from collections.abc import Iterable
from typing import Any

from workloads import ROOT, terminal
from workloads.corrections.nearest import nearest

_USUAL_WIDTH = 80  # columns, where the output is no terminal


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
    """A text for argparse whose lines are not joined when they are wrapped."""
    lines = tuple(lines)
    text = VerbatimLines("\n".join(lines))
    text.lines = lines
    return text


def examples(commands: Iterable[str]) -> VerbatimLines:
    """The end of a command's help, for argparse's `epilog`: command lines to copy."""
    return verbatim(["examples:", *(terminal.Line(label="  ", command=command) for command in commands)])


class Formatter(argparse.HelpFormatter):
    """argparse's formatter of --help, at the terminal's width, with VerbatimLines as lines of their own."""

    def __init__(self, prog: str, **settings: Any):
        super().__init__(prog, **{**settings, "width": terminal.width() or _USUAL_WIDTH})

    def _split_lines(self, text: str, width: int) -> list[str]:
        """The lines of a flag's help; argparse calls it. Words such as host-latency are not broken."""
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        """The description or the examples as wrapped text; argparse calls it."""
        if isinstance(text, VerbatimLines):
            return terminal.filled([terminal.Line(line, label=indent) for line in text.lines], width + len(indent))
        return super()._fill_text(text, width, indent)


class Help(argparse.Action):
    """The flags -h and --help: -h prints one screen if the parser has `brief_flags`, --help everything."""

    def __call__(self, parser: Any, namespace: object, values: object, option_string: str | None = None) -> None:
        """Prints the help and ends the process; argparse calls it where the flag is typed."""
        if option_string == "-h" and parser.brief_flags:
            print(screen(parser))
        else:
            print(parser.format_help().rstrip())
        parser.exit()


def screen(parser: Any) -> str:
    """What -h prints: the question that the command answers, its arguments, the flags of `brief_flags`, the examples, and how
    to see all flags.

    parser: a CommandParser.
    """
    columns = terminal.width() or _USUAL_WIDTH
    arguments = [action for action in parser._actions if not action.option_strings]
    flags = [action for action in parser._actions if action.option_strings]
    brief_flags = dict.fromkeys(parser._option_string_actions[name] for name in parser.brief_flags)
    actions = [*arguments, *brief_flags]
    heads = []
    for action in actions:
        words = [*action.option_strings, _value_name(action)]
        heads.append("  " + " ".join(word for word in words if word))
    head_width = min(max(map(len, heads), default=0), columns // 3)
    lines: list[str] = [parser.question, ""]
    for head, action in zip(heads, actions, strict=True):
        lines.append(terminal.Line(_brief(action), label=f"{head:<{head_width}}  "))
    lines += ["", *parser.epilog.lines, f"all {len(flags)} flags: --help"]
    return terminal.filled(lines, columns)


def _value_name(action: argparse.Action) -> str:
    """What stands after a flag in the help: the name of its value, with dots where it takes several; "" of a switch."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    name = action.metavar or "|".join(map(str, action.choices or ()))
    return f"{name} ..." if action.nargs in ("+", "*") else name


def _brief(action: argparse.Action) -> str:
    """What -h shows of the help of a flag. As in argparse, a percent sign is written %%, which the formatting makes one."""
    text = action.help.brief if isinstance(action.help, HelpText) else action.help
    return (text or "") % {}


OVERVIEWS = ("workloads", "analysis")  # commands that list the others


@functools.cache
def _sources() -> dict[str, str]:
    """Every command, such as workloads.matmul -> the source of the module that has its QUESTION. Nothing is imported, so that an
    error is printed quickly."""
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
    """The commands that take a flag. near: a command, whose package's commands come first."""
    declared = re.compile(rf'add_argument\(\s*(?:"-\w",\s*)?"{re.escape(flag)}"')
    declaring = [command for command, text in _sources().items() if declared.search(text)]
    package = _package(near)
    return sorted(declaring, key=lambda command: _package(command) != package)


def _package(command: str) -> str:
    """The first part of a command's name: workloads or analysis."""
    return command.partition(".")[0]


def similar_command(word: str, first: str) -> str:
    """The command that a word means, `workloads.matmul` or `matmul`, spelled right or nearly; "" where there is none. first: the
    package, workloads or analysis, whose command is taken where both have one of that name."""
    known = sorted(commands(), key=lambda command: _package(command) != first)
    if "." in word:
        return nearest(word, known, 0.8)
    by_last_part = {command.rpartition(".")[2]: command for command in reversed(known)}
    return by_last_part.get(nearest(word, by_last_part), "")


def starts(command: str) -> str:
    """The module whose `main` is a command's: a package's own is in `__main__`."""
    is_package = ROOT.joinpath(*command.split(".")).is_dir()
    return f"{command}.__main__" if is_package else command


def overview(first: str) -> list[str]:
    """The lines that list all commands, each with the question that it answers. first: the package, workloads or analysis, whose
    commands come first."""
    known = sorted(commands().items(), key=lambda item: _package(item[0]) != first)
    name_width = max(len(command) for command, _ in known)
    lines: list[str] = ["What do you want to know?"]
    for command, question in known:
        lines.append(terminal.Line(question, label=f"  {command:<{name_width}}  "))
    return lines
