"""The lines on stderr of a command that ended with an error: what is wrong, and a command that works. Standard library only."""

import sys

from workloads import terminal
from workloads.command_line.invocation import typed
from workloads.hints import Hints, Proposal
from workloads.stops import Missing, Stop

_LONGEST_MESSAGE = 4000  # characters of an error line


def print_error(stop: Stop, command_hints: Hints) -> None:
    """Prints on stderr the `error:` line, a similar word where there is one, and the typed command corrected.

    command_hints: finds the command that works in place of the one that was typed.
    """
    proposal = command_hints.best(stop)
    _print_message(proposal.error or command_hints.message(stop))
    kind, name = proposal.similar
    if kind:
        terminal.note(terminal.Line(f"a similar {kind} exists: {name!r}", label="  tip: "))
    print_proposal(proposal)


def print_missing_packages(missing: Missing) -> None:
    """Prints on stderr that packages are not installed, and the command that installs them. No other command is looked for, as
    without them none can be tried."""
    _print_message(str(missing))
    print_proposal(Proposal(line=missing.tip or ""))


def _print_message(message: str) -> None:
    """Prints the `error:` line on stderr."""
    terminal.note(terminal.Line(_one_line(message), label=f"{terminal.paint('error:', 'bad', sys.stderr)} "))


def print_proposal(proposal: Proposal) -> None:
    """Prints on stderr what else was wrong with a command, and the command to try."""
    for other_mistake in proposal.notes:
        terminal.note(terminal.Line(_one_line(other_mistake), label="  and: "))
    label = "try, for example" if proposal.is_example else "try"
    if proposal.first:
        label = f"{terminal.on_one_line(proposal.first)}, then"
    terminal.note(terminal.Line(label=f"  {label}: ", command=typed(proposal.line)))


def _one_line(message: str) -> str:
    """A message in one line. Of a long one, which quotes a text of somebody's file, its beginning and its end."""
    return terminal.shorten(terminal.on_one_line(message), _LONGEST_MESSAGE)
