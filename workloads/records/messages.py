"""Messages in JSON from a child process to its parent: progress and errors. Results are other records."""

import traceback

import msgspec

from workloads import options


class ChildFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Why a child did not do what it was started for: the fields of an options.Stop."""

    #: The error in one sentence.
    message: str
    #: The words of the child's command that are wrong, as Parser.corrected takes them; None where a word lacks.
    wrong: str | None = None
    #: The words in their place; "" where there are none.
    right: str = ""
    #: The kind of word that `right` resembles: model, flag; "" for none.
    similar: str = ""
    #: A command that works; "" for none.
    tip: str = ""
    #: What to do before the command works; "" where nothing is to be done.
    first: str = ""
    #: The child's exit code.
    exit: int = options.FAILED

    def stop(self, tip: str | None = "") -> options.Stop:
        """The error with which the parent ends its own command: Usage where the child's exit code says so, else Missing.

        tip: a command that works, shown where the child names none; None to name the help of the command.
        """
        error_class = options.Usage if self.exit == options.USAGE else options.Missing
        return error_class(
            self.message,
            self.tip or tip,
            wrong=self.wrong,
            right=self.right,
            similar=self.similar,
            first=self.first,
        )


class Failed(msgspec.Struct, frozen=True, kw_only=True):
    """The whole answer of a child that failed."""

    #: Why it failed.
    error: ChildFailure


class Doing(msgspec.Struct, frozen=True, kw_only=True, tag="doing"):
    """What a process does now."""

    #: In words: `importing TensorFlow`, `compiling`.
    words: str
    #: Whether clocks run. What comes before them (import, build, compilation) counts toward no budget.
    timing: bool = False
    #: Seconds that it will take, by the steps timed so far; 0 where that is not known.
    seconds: float = 0.0
    #: The visit of a sweep that begins, from 1; 0 of what is done within one.
    visit: int = 0


class Done(msgspec.Struct, frozen=True, kw_only=True, tag="done"):
    """The end of what was ordered."""

    #: Why nothing was measured; "" if something was.
    reason: str = ""
    #: The error that ended it; None if it was carried out.
    error: ChildFailure | None = None


def failure(error: Exception) -> ChildFailure:
    """The record of an error that a child sends to its parent: with all fields of an options.Stop, of any other error with the
    class and message."""
    if isinstance(error, options.Stop):
        return ChildFailure(
            message=str(error),
            wrong=error.wrong,
            right=error.right,
            similar=error.similar,
            tip=error.tip or "",
            first=error.first,
            exit=error.code,
        )
    (*_, last_line) = traceback.format_exception_only(error)
    return ChildFailure(message=last_line.strip())
