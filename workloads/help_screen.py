"""What -h and --help print: one screen with the flags that people need, or all flags. Standard library only."""

import argparse
import re
from typing import Any

from workloads import terminal

EXAMPLES = "examples:\n"  # begins an epilog whose lines stay as they are


class Formatter(argparse.HelpFormatter):
    """Wraps at the terminal's width; examples keep their lines."""

    def __init__(self, prog: str, **how):
        super().__init__(prog, **{**how, "width": terminal.width() or 80})

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        kept = text.splitlines() if text.startswith(EXAMPLES) else []
        return "\n".join(part for line in kept for part in terminal.wrapped(line, width)) or super()._fill_text(
            text, width, indent
        )


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
    return "\n".join(part for line in lines for part in terminal.wrapped(line, most))


def _takes(action: argparse.Action) -> str:
    """What stands behind a flag."""
    if action.nargs == 0:
        return ""
    if isinstance(action.metavar, tuple):
        return " ".join(action.metavar)
    name = action.metavar or "|".join(map(str, action.choices or ()))
    return f"{name} ..." if action.nargs in ("+", "*") else name


def _brief(text: str) -> str:
    """A flag's help up to a semicolon, without the brackets at its end."""
    return re.split(r"; | \([^()]*\)$", text.replace("%%", "%"))[0]
