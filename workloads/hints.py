"""Finds a command that works in place of one that ended with an error: what may be meant is parsed as if it had been typed, and
only what gets further is taken. Standard library only."""

import contextlib
import importlib
import io
import shlex
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import NamedTuple, Protocol

from workloads import help_screen
from workloads.corrections.grammar import Grammar, as_typed_here
from workloads.corrections.repairs import Repair, repairs
from workloads.stops import MISSING, Stop, Usage

_MOST = 8  # mistakes of a command that are corrected

Check = Callable[[Sequence[str]], object]  # raises the Stop that a command of these words would end with, at once


class TypedCommand(Protocol):
    """The parser of the command that was typed."""

    #: Its module, which python -m starts.
    module: str
    #: A command that works.
    example: str

    def grammar(self) -> Grammar:
        """What it takes."""


class Proposal(NamedTuple):
    """What to type in place of a command that ended with an error."""

    #: A command as `python -m` takes it.
    line: str
    #: What to do before it works, such as `mend the file`; "" where it works at once.
    first: str = ""
    #: What else was wrong with the words that were typed.
    notes: tuple[str, ...] = ()
    #: The error to begin with in place of the one that came first, which is then a note: no correction helps against it.
    error: str = ""
    #: Whether a value of it works but is not what was meant, as nobody can know that.
    is_example: bool = False
    #: The kind and the name of what the first mistake is similar to: ("argument", "--batch").
    similar: tuple[str, str] = ("", "")


class ModuleCommand(NamedTuple):
    """A command line `python -m MODULE WORDS ...`, taken apart."""

    #: The module, such as workloads.matmul.
    module: str
    #: The words after it, without the quotes of a shell.
    words: list[str]


def split_command(line: str) -> ModuleCommand:
    """The module and the words of a line `python -m MODULE WORDS ...`."""
    _, _, module, *words = shlex.split(line)
    return ModuleCommand(module=module, words=words)


class Hints:
    """Finds a command that works in place of one that ended with a Stop."""

    def __init__(self, parser: TypedCommand, words: list[str], check: Check):
        self.parser = parser
        self.words = words
        self.grammar = parser.grammar()
        self._typed_words = [*words, *as_typed_here(words, self.grammar.flags)]
        self._check = check
        self._mistakes: dict[tuple[str, ...], Stop | None] = {}

    def best(self, stop: Stop) -> Proposal:
        """The typed words corrected one mistake after the other until they work, else a command that does."""
        words: Sequence[str] = self.words
        current = stop
        messages = [self.message(stop)]
        similar = (stop.similar, stop.right) if stop.similar else ("", "")
        is_example = False
        for _ in range(_MOST):
            if current.first:
                fixed = next(repairs(words, current, self.grammar), Repair(words)).words
                return Proposal(line=self.line(fixed), first=current.first, notes=tuple(messages[1:]), similar=similar)
            repair = self._next(words, current, messages)
            if repair is None:
                break
            if current is stop and repair.similar:
                similar = (repair.similar, repair.right)
            is_example = is_example or repair.is_example
            if repair.line:
                other = corrected_line(repair.line)
                is_example = is_example or other.is_example
                proposal = other._replace(is_example=is_example, similar=similar)
                return _with_messages(proposal, [*messages, *other.notes], len(messages) - 1, current)
            words = repair.words
            mistake = self.mistake(words)
            if mistake is None:
                notes = tuple(messages[1:])
                return Proposal(line=self.line(words), notes=notes, is_example=is_example, similar=similar)
            current = mistake
            if not self._is_in_an_example(mistake) and not self._is_of_correction(mistake, words):
                messages.append(self.message(mistake, words))
        return self._without_repair(stop, current, messages, similar)

    def _with_flags_of(self, command: str, words: Sequence[str]) -> str:
        """The line of another command with those of the words that it takes too."""
        other = hints_for(shlex.join(["python", "-m", command]))
        typed_flags = [name for name, _ in self.grammar.typed_values(words)]
        lacking = [name for name in typed_flags if other is None or name not in other.grammar.flags]
        return shlex.join(["python", "-m", command, *self.grammar.without(words, lacking)])

    def _next(self, words: Sequence[str], stop: Stop, messages: Sequence[str]) -> Repair | None:
        """The first repair of a Stop that gets further; None where none does."""
        if stop.command:
            return Repair(line=self._with_flags_of(stop.command, words), is_example=stop.is_example)
        # What was read or measured is not tried again: of its mistakes the wrong word has to go.
        unwanted = stop.wrong if self.mistake(words) is None and (stop.wrong or "-")[:1] != "-" else None
        for repair in repairs(words, stop, self.grammar):
            if repair.line:
                if self._works_elsewhere(repair):
                    return repair
                continue
            is_same = list(repair.words) == list(words) or unwanted in repair.words
            if is_same or (repair.alone and self._is_wrong_alone(repair.alone)):
                continue
            mistake = self.mistake(repair.words)
            if mistake is None:
                return repair
            is_repeated = self.message(mistake, repair.words) in messages
            if not repair.must_work and not is_repeated and self._is_further(mistake, repair, words, stop):
                return repair
        return None

    def _is_wrong_alone(self, words: Sequence[str]) -> bool:
        """Whether one of these words is wrong where nothing else is typed, and nothing is like it."""
        mistake = self.mistake(words)
        return mistake is not None and mistake.wrong == words[-1] and not _is_known(mistake)

    def _works_elsewhere(self, repair: Repair) -> bool:
        """Whether another command takes the words, with their mistakes corrected; every one that a Stop proposes does."""
        if not repair.must_work:
            return True
        hints = hints_for(repair.line)
        return hints is not None and hints.mistake(hints.words) is None

    def _is_further(self, mistake: Stop, repair: Repair, before: Sequence[str], stop: Stop) -> bool:
        """Whether what is still wrong after a repair of words with a Stop is another mistake, in a word that was typed."""
        new_words = Counter(repair.words) - Counter(before)
        wrong = mistake.wrong or ""
        is_new = (
            any(wrong in word for word in new_words) and self._is_in_an_example(mistake) and mistake.code != MISSING
        )
        is_left = wrong != "" and wrong == stop.wrong and (not mistake.right or mistake.is_example)
        lacks_more = bool(mistake.lacking) and len(repair.words) < len(before)
        return not (is_left or ((is_new or lacks_more) and not stop.lacking))

    def _is_in_an_example(self, mistake: Stop) -> bool:
        """Whether a mistake is in a word that was put into the command, not typed."""
        wrong = mistake.wrong or ""
        return wrong[:1] not in ("", "-") and not any(wrong in word for word in self._typed_words)

    def _is_of_correction(self, mistake: Stop, words: Sequence[str]) -> bool:
        """Whether a mistake of corrected words is in one that was not typed, or names one: `train.py brings its own model`."""
        if mistake.code == MISSING:
            return False
        wrong = mistake.wrong or ""
        new_words = set(words).difference(self._typed_words)
        if wrong[:1] not in ("", "-"):
            return wrong in new_words
        named_words = {word.strip(",:;'") for word in str(mistake).split()}
        return not new_words.isdisjoint(named_words)

    def _without_repair(self, stop: Stop, current: Stop, messages: list[str], similar: tuple[str, str]) -> Proposal:
        """The first command that works of those that the Stops propose, then the example, then the help; an error that a missing
        thing causes comes first, as no correction helps against it."""
        line = ""
        for one in (stop, current):
            if one.tip is None:
                line = line or self.line(["-h"])
            elif one.tip and self.works(one.tip):
                line = line or one.tip
        if not line and self.parser.example and self.works(self.parser.example):
            line = self.parser.example
        line = line or self.line(["-h"])
        is_example = line == self.parser.example and line != self.line([])
        is_example = is_example or current.is_example
        proposal = Proposal(line=line, is_example=is_example, similar=similar)
        return _with_messages(proposal, messages, len(messages) - 1, current)

    def line(self, words: Sequence[str]) -> str:
        """The command with these words."""
        return self.grammar.line(words)

    def message(self, stop: Stop, words: Sequence[str] | None = None) -> str:
        """What is wrong with these words, by default those that were typed, with the flag at fault before it."""
        flag = stop.flag
        if not flag and stop.wrong:
            flag = self.grammar.flag_taking(self.words if words is None else words, stop.wrong)
        return f"{flag}: {stop}" if flag else str(stop)

    def mistake(self, words: Sequence[str]) -> Stop | None:
        """The Stop with which the command would end; None where it would not."""
        key = tuple(words)
        if key not in self._mistakes:
            self._mistakes[key] = self._checked(words)
        return self._mistakes[key]

    def _checked(self, words: Sequence[str]) -> Stop | None:
        if not {"-h", "--help"}.isdisjoint(words):
            return None
        silent = io.StringIO()
        try:
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
                self._check(words)
        except Stop as stop:
            return stop
        except OSError as error:  # of a path that the system refuses
            return Usage(str(error))
        return None

    def works(self, line: str) -> bool:
        """Whether a command line works, as far as it is one of this command."""
        is_of_this_command = line.split()[:3] == ["python", "-m", self.parser.module]
        return not is_of_this_command or self.mistake(split_command(line).words) is None


def _is_known(mistake: Stop) -> bool:
    """Whether a mistake says what was meant, and nothing has to be done first."""
    return mistake.right != "" and not mistake.is_example and not mistake.first


def _with_messages(proposal: Proposal, messages: Sequence[str], last: int, mistake: Stop) -> Proposal:
    """A proposal with what else is wrong; a thing that is missing is its error, as no correction helps against it."""
    if mistake.code != MISSING or last == 0:
        return proposal._replace(notes=tuple(messages[1:]))
    others = (*messages[:last], *messages[last + 1 :])
    return proposal._replace(notes=others, error=messages[last], similar=("", ""))


_collected: ContextVar[list[Hints] | None] = ContextVar("_collected", default=None)


def corrected_line(line: str) -> Proposal:
    """The line of a command of ours, corrected as if it had been typed, with what was wrong with it."""
    hints = hints_for(line)
    mistake = hints.mistake(hints.words) if hints else None
    if hints is None or mistake is None:
        return Proposal(line=line)
    best = hints.best(mistake)
    return best._replace(notes=(hints.message(mistake), *best.notes), similar=("", ""))


def hints_for(line: str) -> Hints | None:
    """The Hints of a command of ours, which is not carried out; None where it takes no words."""
    module, words = split_command(line)
    collected: list[Hints] = []
    before = _collected.set(collected)
    try:
        importlib.import_module(help_screen.starts(module)).main(words)
    finally:
        _collected.reset(before)
    return collected[0] if collected else None


def are_wanted(hints: Hints) -> bool:
    """Whether a command was started by `hints_for`, which then has its Hints, and is not to be carried out."""
    collected = _collected.get()
    if collected is None:
        return False
    collected.append(hints)
    return True
