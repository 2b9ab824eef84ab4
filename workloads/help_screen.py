"""The output of -h and --help: one screen with the flags that people need, or all flags. Standard library only."""

import argparse
import re
import textwrap
from typing import Any

from workloads import ROOT, terminal
from workloads.corrections.likeness import closest

EXAMPLES = "examples:\n"  # begins an epilog whose lines stay as they are


class Formatter(argparse.HelpFormatter):
    """Wraps at the terminal's width; examples and aligned columns keep their lines."""

    def __init__(self, prog: str, **how):
        super().__init__(prog, **{**how, "width": terminal.width() or 80})

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)  # host-latency is one word

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if text.startswith(EXAMPLES) or "  " in text:
            return terminal.filled([f"{indent}{line}" for line in text.splitlines()], width + len(indent))
        return super()._fill_text(text, width, indent)


class Help(argparse.Action):
    """The flag -h --help; the first is one screen where the parser says what people need."""

    def __call__(self, parser: Any, namespace, values, option_string=None):
        print(screen(parser) if option_string == "-h" and parser.needs else parser.format_help().rstrip())
        parser.exit()


def screen(parser: Any) -> str:
    """The question that the command answers, the flags of `parser.needs`, the examples, and how to see the rest."""
    most, flags = terminal.width() or 80, [a for a in parser._actions if a.option_strings]
    wanted = dict.fromkeys(parser._option_string_actions[f"--{name}"] for name in parser.needs)
    actions = [*(a for a in parser._actions if not a.option_strings), *wanted]
    heads = ["  " + " ".join(filter(None, (*a.option_strings, _takes(a)))) for a in actions]
    wide = min(max(map(len, heads), default=0), most // 3)
    lines = [f"{head:<{wide}}  {_brief(a.help or '')}" for head, a in zip(heads, actions, strict=True)]
    lines = [parser.question, "", *lines, "", *parser.epilog.splitlines(), f"all {len(flags)} flags: --help"]
    return terminal.filled(lines, most)


def _takes(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    name = action.metavar or "|".join(map(str, action.choices or ()))
    return f"{name} ..." if action.nargs in ("+", "*") else name


def _brief(text: str) -> str:
    """A flag's help up to a semicolon, without long brackets at its end."""
    return re.split(r" \([^()]*; |; | \([^()]{20,}\)$", text.replace("%%", "%"))[0]


OVERVIEWS = ("workloads", "analysis")  # commands that list the others


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
    declared = re.compile(rf"^ *(?:-\w )?{re.escape(flag)}(?= )", re.MULTILINE)
    declaring = [command for command, text in _sources().items() if declared.search(text)]
    package = near.partition(".")[0]
    return sorted(declaring, key=lambda command: not command.startswith(package))


def similar_command(word: str, first: str) -> str:
    """The command that a word names, whole or by its last part, or nearly so; the package `first` comes first. "" without one."""
    known = sorted(commands(), key=lambda command: not command.startswith(first))
    short = {command.rpartition(".")[2]: command for command in reversed(known)}
    return closest(word, known, 0.8) if "." in word else short.get(closest(word, short), "")


def starts(command: str) -> str:
    """The module whose `main` is a command's: a package's own is in `__main__`."""
    return f"{command}.__main__" if (ROOT / command.replace(".", "/")).is_dir() else command


def overview(first: str) -> list[str]:
    """A line a command, by the question it answers, those of the package `first` first."""
    known = sorted(commands().items(), key=lambda item: not item[0].startswith(first))
    wide = max(len(command) for command, _ in known)
    return ["What do you want to know?", *(f"  {command:<{wide}}  {question}" for command, question in known)]
