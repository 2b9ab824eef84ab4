"""Runs a command: its words become a plan, the plan is carried out, and whatever ends it becomes an exit code. Standard library
only."""

import contextlib
import errno
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from workloads import hints, terminal
from workloads.command_line.error_lines import print_error, print_missing_packages
from workloads.command_line.parsing import CommandParser
from workloads.command_line.requirements import missing_packages, require_packages
from workloads.hints import Hints
from workloads.stops import (
    INTERRUPTED,
    OK,
    TERMINATED,
    USAGE,
    Stop,
    Terminated,
    TooFewFiles,
    TooLittleMemory,
    Usage,
    require_address_space,
    require_open_files,
)

#: What a command's flags become: its frozen plan, None where it takes no flags.
PlanType = TypeVar("PlanType")


def no_plan(flags: Namespace) -> None:
    """The plan of a command that takes no flags."""


def no_check(plan: object) -> None:
    """The check of a command whose plans can all be begun."""


def run_command(
    command_parser: CommandParser,
    argv: Sequence[str] | None,
    *,
    make_plan: Callable[[Namespace], PlanType],
    carry_out: Callable[[PlanType], int],
    check: Callable[[PlanType], object] = no_check,
) -> int:
    """Parses the words of a command, makes its plan and carries that out; returns the exit code.

    A Stop becomes one error line and a command that works, an interrupt one line. Lines for people wrap at the terminal's width.

    argv: the words after the module; None for those of this process. make_plan: the plan of the parsed flags, or a Stop.
    carry_out: does what the plan says and returns the exit code. check: raises the Stop with which a plan would end at once; it
    is called with the plan of each command that an error may propose, so that only working ones are proposed.
    """

    def check_words(words: Sequence[str]) -> None:
        check(make_plan(command_parser.parse_args(words)))

    command_hints = Hints(command_parser, sys.argv[1:] if argv is None else list(argv), check_words)
    if hints.are_wanted(command_hints):
        return OK
    with terminal.wrapping() as out:
        try:
            with contextlib.suppress(ValueError):  # not the main thread: whoever owns it decides
                signal.signal(signal.SIGTERM, _raise_terminated)
            with _flushing(out):
                return carry_out(make_plan(_parsed_flags(command_parser, argv, out)))
        except Stop as stop:
            missing = missing_packages(["-m", command_parser.module, *command_hints.words])
            if missing:
                print_missing_packages(missing)
                return missing.code
            print_error(stop, command_hints)
            return stop.code
        except KeyboardInterrupt as stop:
            terminal.note(f"stopped {stop}".rstrip())
            return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        except BrokenPipeError:  # the reader of our output left, as `| head` does
            terminal.discard(sys.stdout)
            return OK
        except MemoryError:
            print_error(TooLittleMemory(), command_hints)
            return USAGE
        except OSError as error:
            if error.filename is None:  # of stdout, which takes nothing any more
                terminal.discard(sys.stdout)
            refused = _refused_by_system(error, _command_that_prints_again(command_parser, command_hints))
            print_error(refused, command_hints)
            return USAGE


def main_function(
    make_parser: Callable[[], CommandParser],
    *,
    make_plan: Callable[[Namespace], PlanType],
    carry_out: Callable[[PlanType], int],
    check: Callable[[PlanType], object] = no_check,
) -> Callable[..., int]:
    """A command's main(argv=None), which calls `run_command` with these and returns the exit code."""

    def main(argv: Sequence[str] | None = None) -> int:
        return run_command(make_parser(), argv, make_plan=make_plan, carry_out=carry_out, check=check)

    return main


@contextlib.contextmanager
def _flushing(out: terminal.Wrapping) -> Iterator[None]:
    """Writes all of the output at the end of its block: a full disk is known only then."""
    try:
        yield
    finally:
        out.flush()


def _parsed_flags(command_parser: CommandParser, argv: Sequence[str] | None, out: terminal.Wrapping) -> Namespace:
    """The flags of a command that is about to run; its status line begins, and `out` wraps lines if they are for people.

    Raises: Usage, also where too few files may be opened or too little memory taken; Missing for packages that are not installed.
    """
    flags = command_parser.parse_args(argv)
    if not getattr(flags, "quiet", False):
        terminal.show_waiting(command_parser.question)
    formats = {getattr(flags, "format", None), getattr(flags, "to", None)}  # flags of some commands
    out.wraps = formats <= {"table", None}
    require_open_files()
    require_address_space()
    require_packages()
    return flags


def _command_that_prints_again(command_parser: CommandParser, command_hints: Hints) -> str:
    """The command that prints what could not be written: one that measured reads the rows that it has stored."""
    words = command_hints.words
    resuming = [*words, "--resume"]
    measures_nothing_new = not {"--resume", "--dry-run", "-h", "--help"}.isdisjoint(words)
    can_resume = "--resume" in command_parser.grammar().flags and not measures_nothing_new
    if can_resume and command_hints.mistake(resuming) is None:
        words = resuming
    return command_hints.line(words)


def _refused_by_system(error: OSError, command: str) -> Usage:
    """The error for a file, or for our output, that the system refused.

    command: what to type, with another place for its output, where that is what was refused.
    """
    why = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        return TooFewFiles()
    if error.filename is None:
        return Usage(f"cannot write the output: {why}; send it to another place", tip=command)
    return Usage(f"cannot use {error.filename}: {why}")


def _raise_terminated(signal_number: int, frame: object) -> None:
    """The handler of SIGTERM: ends the command as Ctrl-C does."""
    raise Terminated
