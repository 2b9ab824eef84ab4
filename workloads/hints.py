"""Finds a command that works in place of one that ended with an error. Standard library only."""

import contextlib
import io
import shlex
from argparse import Namespace
from collections.abc import Callable, Sequence
from typing import Protocol

from workloads.stops import HELP, Stop

_MOST = 6  # mistakes of a command that are corrected

Check = Callable[[Namespace], object]  # raises the Stop that a command with these flags would end with, at once


class TypedCommand(Protocol):
    """The parser of the command that was typed."""

    #: Its module, which python -m starts.
    module: str
    #: A command that works.
    example: str

    def parse_args(self, words: Sequence[str], /) -> Namespace:
        """Raises: Stop for words that it does not take."""

    def corrected(self, words: Sequence[str], wrong: str | None, right: str) -> list[str]:
        """The words with `right` in place of `wrong`."""


class Hints:
    """Finds a command that works in place of one that ended with a Stop."""

    def __init__(self, parser: TypedCommand, words: list[str], check: Check):
        self.parser = parser
        self.words = words
        self.check = check
        self.others: list[Stop] = []  # mistakes beside the first that `corrected` met

    def best(self, stop: Stop) -> str:
        """The typed command corrected, else what the Stop proposes, else the command's example, else its help."""
        if stop.instead:
            return stop.instead
        fixed = self.corrected(stop)
        if fixed is not None:
            return self.line(fixed)
        for proposed in (stop.tip, *[other.tip for other in self.others[-1:]], self.parser.example):
            if proposed and proposed != HELP and self.works(proposed):
                return proposed
            if proposed == HELP:
                break
        return self.line([HELP])

    def line(self, words: Sequence[str]) -> str:
        return shlex.join(["python", "-m", self.parser.module, *words])

    def corrected(self, stop: Stop) -> list[str] | None:
        """The typed words, corrected until they pass; None where a mistake has no correction."""
        words, current = self.words, stop
        for _ in range(_MOST):
            if current.wrong is None and not current.right:
                return None
            fixed = self.parser.corrected(words, current.wrong, current.right)
            if fixed == words:
                return None
            words = fixed
            mistake = self.mistake(words)
            if mistake is None:
                return words
            self.others.append(mistake)
            current = mistake
        return None

    def mistake(self, words: Sequence[str]) -> Stop | None:
        """The Stop with which the command would end; None where it would not."""
        if not {"-h", "--help"}.isdisjoint(words):
            return None
        silent = io.StringIO()
        try:
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
                self.check(self.parser.parse_args(words))
        except Stop as stop:
            return stop
        return None

    def works(self, line: str) -> bool:
        """Whether a command line works, as far as it is one of this command."""
        if line.split()[:3] != ["python", "-m", self.parser.module]:
            return True
        return self.mistake(shlex.split(line)[3:]) is None
