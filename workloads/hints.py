"""Finds a command that works in place of one that ended with an error, in the form that the user typed: `crossover matmul` or
`python -m workloads.matmul`. Standard library only."""

import contextlib
import importlib
import io
import os
import re
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from pathlib import PurePath
from typing import NamedTuple, Protocol

from workloads import corrections, help_screen
from workloads.stops import MISSING, USAGE, Stop, Usage
from workloads.terminal import near, quoted_controls

SCRIPT = "crossover"  # the console command that starts every other
_OURS = re.compile(
    r"(?<!\S)python -m (?:crossover(?=\s|$)|(?:workloads|analysis)(?:\.(?P<name>\w+)(?P<quick> --quick)?)?)"
)
_MOST = 6  # mistakes of a command that are corrected

Check = Callable[[Sequence[str]], object]  # raises the Stop that a command of these words would end with, at once


class TypedCommand(Protocol):
    """The parser of the command that was typed."""

    #: Its module, which python -m starts.
    module: str
    #: A command that works.
    example: str

    def flag_names(self) -> list[str]:
        """Every name of its flags."""

    def corrected(self, words: Sequence[str], stop: Stop) -> list[str]:
        """The words without the mistake of a Stop."""

    def without(self, words: Sequence[str], flags: Sequence[str]) -> list[str]:
        """The words of a command without these flags and their values."""

    def puts_example(self, words: Sequence[str], stop: Stop) -> bool:
        """Whether `corrected` puts a value that works in place of one that is not known."""

    def flag_at_fault(self, words: Sequence[str], stop: Stop) -> str:
        """The flag that takes the wrong word of a Stop; "" where no flag does."""

    def with_one_flag_changed(self, words: Sequence[str], flag: str) -> list[list[str]]:
        """The words with another value for one flag, then without one; "" for any flag."""


class Proposal(
    NamedTuple
):  # every --help imports this module, and dataclasses take as long to import as it takes in all
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
        self.check = check

    def best(self, stop: Stop) -> Proposal:
        """The typed command corrected, else what the Stop proposes, else the typed command with one flag changed or left out,
        else the command's example, else its help."""
        words = self.words
        notes: list[str] = []
        current = stop
        is_example = False
        leaves_out = False
        for _ in range(_MOST):
            line = self._by_another_command(words, current)
            if line:
                other = corrected_line(line)
                is_example = is_example or current.is_example or other.is_example
                return other._replace(notes=(*notes, *other.notes), is_example=is_example)
            fixed = self.parser.corrected(words, current)
            if current.first:
                return Proposal(line=self.line(fixed), first=current.first, notes=tuple(notes))
            if fixed == words:
                break
            is_example = self.parser.puts_example(words, current) or is_example
            leaves_out = leaves_out or self._leaves_out(current, before=words, after=fixed)
            words = fixed
            mistake = self.mistake(words)
            if mistake is None:
                has_new_words = not Counter(words) <= Counter(self.words)
                is_example = leaves_out or (is_example and has_new_words)
                return Proposal(line=self.line(words), notes=tuple(notes), is_example=is_example)
            note = self.message(mistake, words)
            if note not in notes and not self._is_of_an_example(mistake):
                notes.append(note)
            current = mistake
        changed = self._with_one_flag_changed(words, current) if stop.tip == "" else []
        if changed:
            return Proposal(line=self.line(changed), notes=tuple(notes), is_example=True)
        proposed = self._proposed_by(stop, current)
        lists_commands = proposed == self.line([])  # as the overview of all commands does
        is_example = is_example or current.is_example or (proposed == self.parser.example and not lists_commands)
        if current is stop or current.code != MISSING:
            return Proposal(line=proposed, notes=tuple(notes), is_example=is_example)
        error = self.message(current, words)
        typed_mistake = self.message(stop)
        if stop.similar:  # its correction is in no command, as none helps
            typed_mistake += f"; a similar {stop.similar} exists: {stop.right!r}"
        others = [typed_mistake, *[note for note in notes if note != error]]
        return Proposal(line=proposed, notes=tuple(others), error=error, is_example=is_example)

    def _by_another_command(self, words: Sequence[str], stop: Stop) -> str:
        """The line of another command that a Stop proposes in place of these words; "" where it proposes none."""
        if stop.command:
            return shlex.join(["python", "-m", stop.command, *words])
        return "" if self._is_of_this_command(stop.instead) else stop.instead

    def _leaves_out(self, stop: Stop, *, before: Sequence[str], after: Sequence[str]) -> bool:
        """Whether a correction leaves out something typed that nothing here does, and puts nothing in its place."""
        return stop.leaves_out and not self._is_of_an_example(stop) and not corrections.has_new_words(after, before)

    def _is_of_an_example(self, mistake: Stop) -> bool:
        """Whether a mistake is in a word that was put into the command, not typed."""
        wrong = mistake.wrong or "-"
        return not wrong.startswith("-") and not any(wrong in word for word in self.words)

    def _with_one_flag_changed(self, words: Sequence[str], stop: Stop) -> list[str]:
        """The first command that works with one flag of the words changed or left out; [] where none does, and where the Stop
        knows better what to type."""
        if stop.code != USAGE or stop.tip != "":
            return []
        flag = self.parser.flag_at_fault(words, stop)
        for changed in self.parser.with_one_flag_changed(words, flag):
            if self.mistake(changed) is None:
                return changed
        return []

    def _proposed_by(self, *stops: Stop) -> str:
        """The first command that works of those that Stops propose, then the example, then the help."""
        for stop in stops:
            if stop.tip is None:
                return self.line(["-h"])
            if stop.tip and self.works(stop.tip):
                return stop.tip
        example = self.parser.example
        return example if example and self.works(example) else self.line(["-h"])

    def line(self, words: Sequence[str]) -> str:
        return shlex.join(["python", "-m", self.parser.module, *words])

    def message(self, stop: Stop, words: Sequence[str] | None = None) -> str:
        """What is wrong with these words, by default those that were typed, with the flag at fault before it."""
        flag = self.parser.flag_at_fault(self.words if words is None else words, stop)
        return f"{flag}: {stop}" if flag else str(stop)

    def mistake(self, words: Sequence[str]) -> Stop | None:
        """The Stop with which the command would end; None where it would not."""
        if not {"-h", "--help"}.isdisjoint(words):
            return None
        silent = io.StringIO()
        try:
            with contextlib.redirect_stdout(silent), contextlib.redirect_stderr(silent):
                self.check(words)
        except Stop as stop:
            return stop
        except OSError as error:  # of a path that the system refuses
            return Usage(str(error))
        return None

    def works(self, line: str) -> bool:
        """Whether a command line works, as far as it is one of this command."""
        if not self._is_of_this_command(line):
            return True
        return self.mistake(split_command(line).words) is None

    def _is_of_this_command(self, line: str) -> bool:
        return line.split()[:3] == ["python", "-m", self.parser.module]


_collected: ContextVar[list[Hints] | None] = ContextVar("_collected", default=None)


def corrected_line(line: str) -> Proposal:
    """The line of a command of ours, corrected as if it had been typed, with what was wrong with it."""
    hints = hints_for(line)
    mistake = hints.mistake(hints.words) if hints else None
    if hints is None or mistake is None:
        return Proposal(line=line)
    best = hints.best(mistake)
    return best._replace(notes=(hints.message(mistake), *best.notes))


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


def python() -> str:
    """The word to type for this interpreter: `python` if that runs it, else its path, relative if it lies below here."""
    on_path = shutil.which("python") or ""
    is_same_file = os.path.realpath(on_path) == os.path.realpath(sys.executable)
    is_same_folder = os.path.dirname(on_path) in sys.executable
    if on_path and is_same_file and is_same_folder:
        return "python"
    return shlex.quote(near(sys.executable))


def started_as() -> str:
    """The words before a command's short name as the user typed them: `crossover`, the path to it, or `python -m crossover`; ""
    of a command that was started as `python -m workloads.matmul`."""
    program = PurePath(sys.argv[0])
    if program.stem != SCRIPT:
        return ""
    if program.suffix:  # crossover.py, or the module crossover.explain, which is not there
        return f"{python()} -m {SCRIPT}"
    on_path = shutil.which(SCRIPT)
    same = on_path is not None and os.path.realpath(on_path) == os.path.realpath(program)
    return SCRIPT if same else shlex.quote(near(program))


def name_typed(command: str) -> str:
    """The name of a command of ours in the form that was typed: `matmul` after `crossover`, else `workloads.matmul`."""
    return command.rpartition(".")[2] if started_as() else command


def by_script(command: str) -> str:
    """A command of ours as the console command takes it, if that started this process."""
    start = started_as()
    if not start:
        return command

    def short(match: re.Match) -> str:
        if match["name"] is None:
            return start
        if match["name"] == "suite" and match["quick"] and "suite" not in sys.argv[1:2]:
            return f"{start} run"
        return f"{start} {match['name']}{match['quick'] or ''}"

    return _OURS.sub(short, command)


def program(command: str) -> str:
    """The beginning of a command in its usage, as it was typed: `crossover run` starts workloads.suite --quick."""
    quick = " --quick" if command == "workloads.suite" and started_as() and sys.argv[1:2] == ["run"] else ""
    return by_script(f"python -m {command}{quick}")


def typed(command: str) -> str:
    """A command of ours as it can be typed here and in the form that was typed: `crossover matmul ...`, or
    `python -m workloads.matmul ...` with the interpreter that works. Variables may stand before it."""
    command = quoted_controls(command)
    return re.sub(r"(?<!\S)python(?= -m )", lambda _: python(), by_script(command))
