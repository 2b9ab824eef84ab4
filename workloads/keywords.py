"""Commands called as functions: their flags as keywords. Standard library only."""

import argparse
from collections.abc import Iterable
from typing import Any

from workloads.command_line.parsing import CommandParser
from workloads.corrections.nearest import nearest


def words_of(command: CommandParser, **keywords: Any) -> list[str]:
    """The words that would be typed for these flags: fast=True is `--fast`, sizes=[1, 2] is `--sizes 1 2`; None, False and [] are
    no words.

    command: the parser whose flags they are.

    Raises: TypeError for a keyword that is no flag.
    """
    actions = {action.dest: action for action in command._actions if action.dest != argparse.SUPPRESS}
    runs: list[str] = []  # words without a flag come first
    flags: list[str] = []
    for name, value in keywords.items():
        if name not in actions:
            raise TypeError(f"unknown option {name!r}; {_known_keywords(name, actions)}")
        action = actions[name]
        is_several = isinstance(value, (list, tuple, range))
        if is_several and action.nargs not in ("+", "*"):
            raise TypeError(f"{name} takes one value, not {value!r}")
        values = [str(one) for one in value] if is_several else [str(value)]
        if value is None or value is False or not values:
            continue
        if not action.option_strings:
            runs += values
            continue
        flag = action.option_strings[-1]
        if value is True:
            flags.append(flag)
        elif is_several:
            flags += [flag, *values]
        else:
            flags.append(f"{flag}={value}")
    return [*runs, *flags]


def _known_keywords(name: str, known: Iterable[str]) -> str:
    """The end of the error for an unknown keyword: the known one that it begins with, or that is spelled most like it; else all.

    name: the unknown keyword.
    """
    names = sorted(known)
    beginnings = [keyword for keyword in names if name.startswith(f"{keyword}_")]
    similar = beginnings[0] if beginnings else nearest(name, names)
    return f"did you mean {similar!r}?" if similar else f"known: {', '.join(names)}"


def namespace(command: CommandParser, **keywords: Any) -> argparse.Namespace:
    """The parsed flags of a command that is called as a function: these keywords, and the defaults of the others.

    Raises: TypeError for a keyword that is no flag.
    """
    return command.parse_args(words_of(command, **keywords))
