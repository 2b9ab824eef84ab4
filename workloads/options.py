"""Parts that every command line shares: size grammar, flags, errors and exit codes. Standard library only."""

import argparse
import contextlib
import errno
import importlib.util
import os
import shlex
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from workloads import ROOT, corrections, help_screen, hints, terminal
from workloads.corrections import PLACE, argparse_errors, runs, separators  # other modules take them from here
from workloads.corrections.likeness import closest
from workloads.corrections.quantities import (  # noqa: F401  # other modules take them from here
    BYTES,
    COUNTS,
    MOST_SIZES,
    SECONDS,
    number,
    positive,
    sizes,
)
from workloads.corrections.rules import regression  # noqa: F401  # other modules take it from here
from workloads.corrections.runs import stored_run  # noqa: F401  # other modules take them from here
from workloads.hints import (  # noqa: F401  # other modules take them from here
    SCRIPT,
    Hints,
    Proposal,
    by_script,
    python,
    started_as,
    typed,
)
from workloads.stops import (  # noqa: F401  # other modules take them from here
    FAILED,
    HELP_WORDS,
    INTERRUPTED,
    MISSING,
    OK,
    REGRESSION,
    SIGNALED,
    TERMINATED,
    UNSEEN,
    USAGE,
    Missing,
    Stop,
    Terminated,
    TooFewFiles,
    TooLittleMemory,
    Usage,
    require_address_space,
    require_open_files,
)
from workloads.terminal import near

MODES = ("resident", "roundtrip", "roundtrip-pageable", "roundtrip-pinned")
FORMATS = ("table", "md", "csv", "json")
#: What a command's flags become: its frozen plan, None where it takes no flags.
PlanType = TypeVar("PlanType")
_LONGEST_MESSAGE = 4000  # characters of an error line
_FEW = 8  # up to so many known words are listed even if one is similar
# What the names of files end in that people type where a folder is written.
_FILE_ENDINGS = (
    *(".csv", ".tsv", ".json", ".jsonl", ".ndjson", ".yaml", ".yml", ".xml", ".xlsx", ".parquet"),
    *(".md", ".txt", ".log", ".html", ".htm", ".pdf", ".svg", ".png", ".jpg"),
)
# What every command needs, pyproject.toml's dependencies: package -> the name by which it is imported.
PACKAGES = {
    "ml_dtypes": "ml_dtypes",
    "msgspec": "msgspec",
    "numba": "numba",
    "numpy": "numpy",
    "nvidia-ml-py": "pynvml",
    "pandas": "pandas",
    "psutil": "psutil",
    "rich": "rich",
    "scipy": "scipy",
    "threadpoolctl": "threadpoolctl",
}


@contextlib.contextmanager
def usage_errors(tip: str = "") -> Iterator[None]:
    """Turns a ValueError of its block into a Usage; `tip` is a command that works."""
    try:
        yield
    except ValueError as error:
        from kernels.problems.arrays import UnknownName

        if isinstance(error, UnknownName):
            raise unknown(error.kind, error.word, error.known) from error
        raise Usage(str(error), tip) from error


def unknown(
    what: str, word: str, known: Iterable[str], where: str = "", more: str = "", *, likeness: float = 0.65
) -> Usage:
    """The error for a word that is not known: those that are (`more`: others that may be written), and the most similar one,
    else the first."""
    names = list(known)
    similar = closest(word, names, likeness)
    listed = f"; known: {', '.join(names)}{more}" if not similar or len(names) <= _FEW else ""
    kind = what if similar in names else ""
    message = f"unknown {what} {word!r}{where}{listed}"
    if similar and not kind:  # several, which an alias means
        message += f"; {word} is {' and '.join(similar.split(','))} here"
    error = Usage(message, wrong=word, right=similar, similar=kind)
    error.fallback = names[0] if names else ""
    error.leaves_out = not similar
    return error


def words(values: Sequence[str] | None) -> list[str]:
    """The words of a flag that takes several, separated by blanks or commas; none when the flag was not given.

    Raises: Usage where it was given without a word.
    """
    if not values:
        return []
    named = [word for word in ",".join(values).split(",") if word]
    if not named:
        raise Usage(f"{' '.join(values)!r} names nothing; leave the flag out or name something")
    return named


def folder(text: str) -> str:
    """The folder that a flag names, which may not be there yet.

    Raises: Usage for a file, and for a name that ends like a file's.
    """
    path = Path(text)
    if os.path.isfile(text):  # False below a folder that may not be entered, where pathlib raises
        raise Usage(f"{text!r} is a file; it names a folder", wrong=text, right=PLACE)
    if path.suffix.lower() in _FILE_ENDINGS and not os.path.isdir(text):
        message = f"{text!r} looks like a file; it names a folder"
        raise Usage(message, wrong=text, right=str(path.with_suffix("")))
    return text


class _Extend(argparse.Action):
    """argparse's action "extend", but what is typed replaces the default."""

    def __call__(self, parser, namespace, values, option_string=None):
        before = getattr(namespace, self.dest)
        typed_before = [] if before is self.default else before
        setattr(namespace, self.dest, [*typed_before, *values])


class Parser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one `error:` line and one command that works, with exit code 2. `-h` is one screen: the
    `brief_flags` and the examples; `--help` is all flags."""

    #: The command's module, which `python -m` starts.
    module = ""
    #: A command that works, shown after errors that name no other.
    example = ""
    #: The question that the command answers.
    question = ""
    #: The flags that -h shows, such as "--sizes".
    brief_flags: tuple[str, ...] = ()
    #: The words that were parsed last.
    words: tuple[str, ...] = ()
    #: Whether the words after `--` are for another program.
    passes_on = False

    def __init__(self, **settings: Any):
        super().__init__(**settings)
        self.register("action", "extend", _Extend)

    def parse_args(self, args=None, namespace=None):
        """The flags, the `command` as it was typed, and the words that are `passed_on` to another program.

        Raises: Usage.
        """
        words, others = corrections.split(sys.argv[1:] if args is None else args, self.passes_on)
        flags = super().parse_args(words, namespace)
        flags.command = command_line(self.module, args)
        if self.passes_on:
            flags.passed_on = tuple(others[1:])
        return flags

    def parse_known_args(self, args=None, namespace=None):
        self.words = tuple(sys.argv[1:] if args is None else args)
        for word in self.words:
            dashed = corrections.with_two_dashes(word, self._option_string_actions)
            if dashed != word:
                raise Usage(f"{word!r}: a flag's name begins with two dashes", wrong=word, right=dashed)
            slashed = corrections.with_slashes(word)
            if slashed:
                raise Usage(f"{word}: a path has / between its parts here", wrong=word, right=slashed)
            plain = corrections.with_plain_letters(word)
            if plain != word and not os.path.lexists(word):
                raise Usage(f"{word!r} has letters of a printed page; it is typed {plain!r}", wrong=word, right=plain)
        self._refuse_help_in_words()
        self._refuse_command_or_function()
        self._refuse_separators()
        self._refuse_function_without_colon()
        self._refuse_range_in_words()
        self._refuse_placeholders()
        self._refuse_second_values()
        self._refuse_empty_values()
        return super().parse_known_args(args, namespace)

    def _get_value(self, action, arg_string):
        """The value of a flag's word. Raises: Usage, which knows the flag; what argparse raises."""
        try:
            return super()._get_value(action, arg_string)
        except Usage as error:
            error.flag = action.option_strings[-1] if action.option_strings else ""
            raise

    def _refuse_help_in_words(self) -> None:
        """Raises Usage for `help` as the first or last word, and for the flags that other systems have for it."""
        for position, word in enumerate(self.words):
            inside = 0 < position < len(self.words) - 1
            if word in HELP_WORDS and not (word == "help" and inside) and not os.path.exists(word):
                raise Usage(f"{word!r}: the help of a command is typed -h", instead=self._line(["-h"]))

    def _refuse_command_or_function(self) -> None:
        """Raises Usage for the name of another command as the first word, and for a function in place of a script."""
        mistake = self._typed_words().command_or_function()
        if mistake:
            raise mistake

    def _refuse_separators(self) -> None:
        """Raises Usage for a flag that something but a blank or one = separates from its value, or from the next flag."""
        separate = separators.separated(self.words, self._option_string_actions)
        if separate == list(self.words):
            return
        wrong = next((word for word in self.words if word not in separate), "=")
        message = f"{wrong!r}: a flag and its value are typed --flag VALUE or --flag=VALUE, with blanks between flags"
        raise Usage(message, instead=self._line(separate))

    def _refuse_function_without_colon(self) -> None:
        """Raises Usage for a function of a file as a word of its own: --model mine.py build."""
        for position, word in enumerate(self.words[2:], 2):
            flag, file = self.words[position - 2 : position]
            if flag == "--model" and file.endswith(".py") and word.isidentifier() and not os.path.exists(word):
                instead = self._line([*self.words[: position - 1], f"{file}:{word}", *self.words[position + 1 :]])
                raise Usage(f"a function of a file is typed {file}:{word}", instead=instead)

    def _refuse_range_in_words(self) -> None:
        """Raises Usage for a range in several words, such as `64 to 4096`."""
        position = corrections.range_in_words(self.words)
        if position is None:
            return
        joined = f"{self.words[position]}:{self.words[position + 2]}"
        instead = self._line([*self.words[:position], joined, *self.words[position + 3 :]])
        raise Usage(f"a range is one word: {joined}", instead=instead)

    def _refuse_placeholders(self) -> None:
        """Raises Usage for names that stand for runs in the usage of the command, and were typed as they are there."""
        names = [str(action.metavar) for action in self._actions if not action.option_strings]
        typed_names = [name for name in names if name in self.words and not os.path.lexists(name)]
        if not typed_names:
            return
        folders = {name: near(runs.run_named(name)) for name in typed_names}
        verb = "stands for a folder of a run" if len(folders) == 1 else "stand for folders of runs"
        instead = self._line([folders.get(word, word) for word in self.words])
        raise Usage(f"{' and '.join(folders)} {verb}", instead=instead)

    def _refuse_second_values(self) -> None:
        """Raises Usage for a flag that takes one value and has two."""
        flags = self._option_string_actions
        name, values = corrections.second_value(self.words, flags)
        if name:
            message = f"{name} takes one value, not {' and '.join(values)}"
            raise Usage(message, wrong=name, right=shlex.join([name, values[-1]]))
        name, values, left = corrections.numbers_beyond_one(self.words, flags)
        if name and values[-1] == "000":
            whole = "".join(values)
            instead = self._line([whole if word == values[0] else word for word in left])
            raise Usage(f"a number is one word: {whole}", instead=instead)
        if name:
            numbers = f"{', '.join(values[:-1])} and {values[-1]}"
            message = f"{name} takes one number, not {numbers}; type the command once for each"
            raise Usage(message, instead=self._line(left))

    def _refuse_empty_values(self) -> None:
        """Raises Usage for a flag that takes one word and has an empty one, as of a variable of a shell that is not set."""
        name = corrections.flag_without_word(self.words, self._option_string_actions)
        if name:
            error = Usage("'' names nothing; leave the flag out or name something", wrong="")
            error.flag = name
            error.is_example = True
            raise error

    def _line(self, words: Iterable[str]) -> str:
        """The command with these words."""
        return shlex.join(["python", "-m", self.module, *words])

    def error(self, message: str):
        """Raises the Usage for a message of argparse."""
        flag, value = argparse_errors.unknown_choice(message)
        if flag:
            raise unknown("value", value, self._option_string_actions[flag].choices or ())
        raise self._typed_words().error(message)

    def _typed_words(self) -> argparse_errors.TypedWords:
        """The words that were parsed last, and what this command takes."""
        return argparse_errors.TypedWords(
            words=self.words,
            module=self.module,
            flags=self._option_string_actions,
            brief_flags=self.brief_flags,
            passes_on=self.passes_on,
            takes_runs=any(not action.option_strings for action in self._actions),
        )

    def flag_names(self) -> list[str]:
        """Every name of its flags."""
        return list(self._option_string_actions)

    def corrected(self, words: Sequence[str], stop: Stop) -> list[str]:
        """The words of a command without the mistake of a Stop; the same words where it cannot be corrected."""
        if stop.instead:
            return self._with_words_passed_on(shlex.split(stop.instead)[3:], words)
        if stop.wrong is None and not stop.right:
            return list(words)
        runs_taken = [action for action in self._actions if not action.option_strings]
        takes_runs = bool(runs_taken)
        typed_words, others = corrections.split(words, self.passes_on)
        if stop.names_run and stop.is_example and runs_taken:
            others_remain = corrections.has_run_like(typed_words, stop.right)
            if runs_taken[0].nargs == "*" or (runs_taken[0].nargs == "+" and others_remain):
                return [*[word for word in typed_words if word != stop.wrong], *others]
        flags = self._option_string_actions
        return [*corrections.corrected(typed_words, stop, flags, takes_runs=takes_runs), *others]

    def _with_words_passed_on(self, corrected_words: list[str], typed_words: Sequence[str]) -> list[str]:
        """Corrected words with what was typed for another program, after `--`, at their end."""
        _, others = corrections.split(typed_words, self.passes_on)
        replaces_script = "--model" in corrected_words  # which takes no words of its own
        if replaces_script or not others or corrected_words[-len(others) :] == others:
            return corrected_words
        return [*corrected_words, *(others[1:] if "--" in corrected_words else others)]

    def puts_example(self, words: Sequence[str], stop: Stop) -> bool:
        """Whether `corrected` puts a value that works in place of one that is not known."""
        if stop.is_example:
            return corrections.has_new_words(self.corrected(words, stop), words)
        flags = self._option_string_actions
        if not stop.wrong or stop.right or stop.instead or corrections.value_of_another_flag(words, stop, flags):
            return False
        return corrections.has_new_words(self.corrected(words, stop), words)

    def flag_at_fault(self, words: Sequence[str], stop: Stop) -> str:
        """The flag that takes the wrong word of a Stop; "" where no flag does, or several do."""
        if stop.flag or not stop.wrong:
            return stop.flag
        return corrections.flag_taking(words, stop.wrong, self._option_string_actions)

    def with_one_flag_changed(self, words: Sequence[str], flag: str) -> list[list[str]]:
        """The words with another value for one flag, then without one; "" for any flag."""
        typed_words, others = corrections.split(words, self.passes_on)
        changed = corrections.with_one_flag_changed(typed_words, flag, self._option_string_actions)
        return [[*one, *others] for one in changed]

    def without(self, words: Sequence[str], flags: Sequence[str]) -> list[str]:
        """The words of a command without these flags and their values."""
        typed_words, others = corrections.split(words, self.passes_on)
        return [*corrections.without(typed_words, flags, self._option_string_actions), *others]


def parser(
    *,
    module: str,
    description: str = "",
    examples: Sequence[str],
    question: str = "",
    brief_flags: Sequence[str] = (),
) -> Parser:
    """A parser for `python -m MODULE`, with no flag but -h and --help.

    examples: command lines that work; the first is also shown after errors. question: what the command answers, in a sentence.
    brief_flags: the flags that -h shows; --help shows all.
    """
    command_parser = Parser(
        prog=hints.program(module),
        description=f"{question} {description}".strip(),
        epilog=help_screen.examples(map(typed, examples)),
        allow_abbrev=False,
        add_help=False,
        formatter_class=help_screen.Formatter,
    )
    command_parser.module = module
    command_parser.example = examples[0]
    command_parser.question = question
    command_parser.brief_flags = tuple(brief_flags)
    about = "-h: one screen; --help: every flag"
    command_parser.add_argument("-h", "--help", action=help_screen.Help, nargs=0, dest=argparse.SUPPRESS, help=about)
    return command_parser


def refuse(flags: object, names: Iterable[str], why: str) -> None:
    """Raises Usage, which says why, for those of these flags that have a value; the command works without them."""
    typed_names = [name for name in names if getattr(flags, name, None) not in (None, ())]
    refused = " ".join("--" + "-".join(name.split("_")) for name in typed_names)
    if refused:
        raise Usage(f"{why}; leave {refused} out", wrong=refused)


def no_plan(flags: Namespace) -> None:
    """The plan of a command that takes no flags."""


def command(
    command_parser: Parser,
    argv: Sequence[str] | None,
    plan: Callable[[Namespace], PlanType],
    run: Callable[[PlanType], int],
    *,
    check: Callable[[PlanType], object] = lambda plan: None,
) -> int:
    """Parses, makes the plan of the flags and runs it; turns a Stop into its one error line and exit code. The flags have the
    `command` as it was typed; lines for people wrap at the terminal's width. check: raises the Stop with which a plan would
    end at once; a command that is proposed must pass it."""

    def check_words(words: Sequence[str]) -> None:
        check(plan(command_parser.parse_args(words)))

    command_hints = Hints(command_parser, sys.argv[1:] if argv is None else list(argv), check_words)
    if hints.are_wanted(command_hints):
        return OK
    with terminal.wrapping() as out:
        try:
            with contextlib.suppress(ValueError):  # not the main thread: whoever owns it decides
                signal.signal(signal.SIGTERM, _terminated)
            with _flushing(out):
                return run(plan(_flags(command_parser, argv, out)))
        except Stop as stop:
            reason = lacking_packages(["-m", command_parser.module, *command_hints.words]) or stop
            _say(reason, command_hints)
            return reason.code
        except KeyboardInterrupt as stop:
            terminal.note(f"stopped {stop}".rstrip())
            return TERMINATED if isinstance(stop, Terminated) else INTERRUPTED
        except BrokenPipeError:  # the reader of our output left, as `| head` does
            terminal.discard(sys.stdout)
            return OK
        except MemoryError:
            _say(TooLittleMemory(), command_hints)
            return USAGE
        except OSError as error:
            if error.filename is None:
                terminal.discard(sys.stdout)
            refused = _refused_by_system(error, _printing_again(command_parser, command_hints))
            _say(refused, command_hints)
            return USAGE


@contextlib.contextmanager
def _flushing(out: terminal.Wrapping) -> Iterator[None]:
    """Writes all of the output at the end of its block: a full disk is known only then."""
    try:
        yield
    finally:
        out.flush()


def _flags(command_parser: Parser, argv: Sequence[str] | None, out: terminal.Wrapping) -> Namespace:
    """The flags of a command, whose status line begins and whose lines wrap where they are for people.

    Raises: Usage, also where too few files may be opened or too little memory taken; Missing for packages that are not installed.
    """
    flags = command_parser.parse_args(argv)
    if not getattr(flags, "quiet", False):
        terminal.show_waiting(command_parser.question)
    out.wraps = {getattr(flags, "format", None), getattr(flags, "to", None)} <= {"table", None}
    require_open_files()
    require_address_space()
    require_packages()
    return flags


def _printing_again(command_parser: Parser, command_hints: Hints) -> str:
    """The command that prints what could not be written: a measuring one reads the rows that it has stored."""
    words = command_hints.words
    resuming = [*words, "--resume"]
    can_resume = "--resume" in command_parser.flag_names() and not {"--resume", "--dry-run"} & set(words)
    if can_resume and command_hints.mistake(resuming) is None:
        words = resuming
    return command_hints.line(words)


def _refused_by_system(error: OSError, command: str) -> Usage:
    """The error for a file, or for our output, that the system refused."""
    why = error.strerror or str(error)
    if error.errno == errno.EMFILE:
        return TooFewFiles()
    if error.filename is None:
        return Usage(f"cannot write the output: {why}; send it to another place", command)
    return Usage(f"cannot use {error.filename}: {why}")


def entry(
    parser: Callable[[], Parser],
    plan: Callable[[Namespace], PlanType],
    run: Callable[[PlanType], int],
    *,
    check: Callable[[PlanType], object] = lambda plan: None,
) -> Callable[..., int]:
    """A command's main(argv=None), which is `command` with these: the exit code."""
    return lambda argv=None: command(parser(), argv, plan, run, check=check)


def _terminated(signal_number: int, frame: object) -> None:
    raise Terminated


def _say(stop: Stop, command_hints: Hints) -> None:
    """Prints the error, a similar word where there is one, and a command that works: the one that was typed, corrected."""
    proposal = command_hints.best(stop)
    message = _shown(proposal.error or command_hints.message(stop))
    terminal.note(terminal.Line(message, label=f"{terminal.paint('error:', 'bad', sys.stderr)} "))
    if stop.similar and not proposal.error:
        terminal.note(terminal.Line(f"a similar {stop.similar} exists: {stop.right!r}", label="  tip: "))
    show(proposal)


def show(proposal: Proposal) -> None:
    """Prints what else was wrong with a command, and the command that works."""
    for note in proposal.notes:
        terminal.note(terminal.Line(_shown(note), label="  and: "))
    label = "try, for example" if proposal.is_example else "try"
    if proposal.first:
        label = f"{terminal.on_one_line(proposal.first)}, then"
    terminal.note(terminal.Line(label=f"  {label}: ", command=typed(proposal.line)))


def _shown(message: str) -> str:
    """A message in one line: of a long one, which holds a text of somebody's file, its beginning and its end."""
    return terminal.shorten(terminal.on_one_line(message), _LONGEST_MESSAGE)


def require_packages() -> None:
    """Raises lacking_packages, if there are any."""
    missing = lacking_packages()
    if missing:
        raise missing


def lacking_packages(words: Sequence[str] = ()) -> Missing | None:
    """The error that names all packages that are not installed; None where all are. words: the command after `python`, for which
    the Python of the checkout's environment is proposed, if that is another one."""
    lacking = [package for package, module in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if not lacking:
        return None
    message = f"not installed: {', '.join(lacking)}"
    checkout_python = ROOT / ".venv" / "bin" / "python"
    if words and checkout_python.exists() and str(checkout_python) != sys.executable:
        return Missing(message, shlex.join([near(checkout_python), *words]))
    return Missing(message, f"{python()} -m pip install {' '.join(lacking)}")


def command_line(module: str, argv: Sequence[str] | None) -> str:
    """The command as it was typed, for the record and for the line that resumes it."""
    typed_words = sys.argv[1:] if argv is None else argv
    return shlex.join(["python", "-m", module, *typed_words])
