"""Ends `python -m workloads.matmull` with the command that was meant, in place of Python's own message."""

import contextlib
import shlex
import sys
from collections.abc import Sequence
from typing import NoReturn

from workloads import ROOT, help_screen, hints
from workloads.command_line import error_lines, invocation
from workloads.stops import USAGE


def leave_if_unknown(words: Sequence[str]) -> None:
    """Exits with an error and the corrected command if `python -m` was typed with a module of this project that does not exist.

    It is called while Python imports the package of that module. words: those that started Python, sys.orig_argv.
    Source: Python's documentation of sys.orig_argv.
    """
    if "-m" not in words[:-1]:
        return
    module, *others = words[words.index("-m") + 1 :]
    script, _, name = module.partition(".")
    if script == invocation.SCRIPT and name:
        similar = help_screen.similar_command(name, "analysis")
        _leave(module, ["python", "-m", similar, *others] if similar else ["python", "-m", "workloads"])
    if module.partition(".")[0] not in help_screen.OVERVIEWS or _can_run(module):
        return
    name = module.removesuffix(".py").rpartition(".")[2]
    similar = help_screen.similar_command(name, module)
    command = ["python", "-m", similar, *others] if similar else ["python", "-m", module.partition(".")[0]]
    _leave(module, command)


def _leave(module: str, command: list[str]) -> NoReturn:
    """Exits with an error for the module and the command to type instead."""
    print(f"error: no command {module!r}", file=sys.stderr)
    sys.argv[0] = module  # it is "-m" now; proposals begin as the command was typed, by what is here
    proposal = hints.Proposal(line=shlex.join(command))
    with contextlib.suppress(ImportError):  # of a package that is not installed
        proposal = hints.corrected_line(proposal.line)
    error_lines.print_proposal(proposal)
    sys.exit(USAGE)


def _can_run(module: str) -> bool:
    """Whether `python -m` can start a module: its file exists, or it is a package with a __main__.py."""
    path = ROOT.joinpath(*module.split("."))
    return path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()
