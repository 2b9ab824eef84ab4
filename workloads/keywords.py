"""Commands called as functions: their flags as keywords. Standard library only."""

import argparse
from collections.abc import Iterable
from typing import Any

from workloads.command_line.parsing import CommandParser
from workloads.corrections.nearest import nearest


def words_of(command: CommandParser, **keywords: Any) -> list[str]:
    """The words that ask for these flags: fast=True is `--fast`, sizes=[1, 2] is `--sizes 1 2`; None, False and [] are no words.

    Raises: TypeError for a keyword that is no flag.
    """
    actions = {action.dest: action for action in command._actions if action.dest != argparse.SUPPRESS}
    runs: list[str] = []  # words without a flag come first
    flags: list[str] = []
    for name, value in keywords.items():
        if name not in actions:
            raise TypeError(f"unknown option {name!r}; {_known_keywords(name, actions)}")
        several = isinstance(value, (list, tuple, range))
        if several and actions[name].nargs not in ("+", "*"):
            raise TypeError(f"{name} takes one value, not {value!r}")
        values = [str(one) for one in value] if several else [str(value)]
        if value is None or value is False or not values:
            continue
        if not actions[name].option_strings:
            runs += values
        elif value is True:
            flags.append(actions[name].option_strings[-1])
        elif several:
            flags += [actions[name].option_strings[-1], *values]
        else:
            flags.append(f"{actions[name].option_strings[-1]}={value}")
    return [*runs, *flags]


def _known_keywords(name: str, known: Iterable[str]) -> str:
    """The keyword that is most like a name, or has it or is had by it; all where none is."""
    names = sorted(known)
    beginning = [one for one in names if name.startswith(f"{one}_")]
    similar = beginning[0] if beginning else nearest(name, names)
    return f"did you mean {similar!r}?" if similar else f"known: {', '.join(names)}"


def namespace(command: CommandParser, **keywords: Any) -> argparse.Namespace:
    """The arguments of a command called as a function: flags as keywords, defaults for the rest.

    Raises: TypeError for a keyword that is no flag.
    """
    return command.parse_args(words_of(command, **keywords))
