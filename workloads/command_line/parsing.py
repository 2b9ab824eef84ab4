"""The parser of a command: argparse's, which also refuses what argparse would misread, and corrects the words that were typed.
Standard library only."""

import argparse
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from workloads import corrections, help_screen, hints
from workloads.corrections import argparse_errors, runs, separators
from workloads.options import unknown
from workloads.stops import HELP_WORDS, Stop, Usage
from workloads.terminal import near


class _Extend(argparse.Action):
    """argparse's action "extend", but typed words replace the default instead of following it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        before = getattr(namespace, self.dest)
        typed_before = [] if before is self.default else before
        setattr(namespace, self.dest, [*typed_before, *values])


class CommandParser(argparse.ArgumentParser):
    """An ArgumentParser whose errors are one `error:` line and one command that works, with exit code 2. `-h` is one screen: the
    `brief_flags` and the examples; `--help` is all flags."""

    #: The words that were parsed last.
    words: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        module: str,
        examples: Sequence[str],
        description: str = "",
        question: str = "",
        brief_flags: Sequence[str] = (),
        passes_on: bool = False,
    ):
        """A parser for `python -m MODULE`, with no flag but -h and --help.

        examples: command lines that work; the first is also shown after errors that name no other. question: what the command
        answers, in a sentence. brief_flags: the flags that -h shows, such as "--sizes". passes_on: whether the words after `--`
        are for another program.
        """
        super().__init__(
            prog=hints.program(module),
            description=f"{question} {description}".strip(),
            epilog=help_screen.examples(map(hints.typed, examples)),
            allow_abbrev=False,
            add_help=False,
            formatter_class=help_screen.Formatter,
        )
        self.module = module
        self.example = examples[0]
        self.question = question
        self.brief_flags = tuple(brief_flags)
        self.passes_on = passes_on
        self.register("action", "extend", _Extend)
        about = "-h: one screen; --help: every flag"
        self.add_argument("-h", "--help", action=help_screen.Help, nargs=0, dest=argparse.SUPPRESS, help=about)

    def parse_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """The flags, with the `command` as it was typed, and with the words that are `passed_on` to another program.

        Raises: Usage.
        """
        typed_words = sys.argv[1:] if args is None else list(args)
        words, others = corrections.split(typed_words, self.passes_on)
        flags = super().parse_args(words, namespace)
        flags.command = typed_command_line(self.module, typed_words)
        if self.passes_on:
            flags.passed_on = tuple(others[1:])  # without the `--` before them
        return flags

    def parse_known_args(self, args: Iterable[str] | None = None, namespace: Any = None) -> Any:
        """As argparse's, once the words have none of the mistakes that argparse takes for values or reports misleadingly.

        Raises: Usage.
        """
        self.words = tuple(sys.argv[1:] if args is None else args)
        self._refuse_misspelled_words()
        self._refuse_help_in_words()
        self._refuse_command_or_function()
        self._refuse_separators()
        self._refuse_function_without_colon()
        self._refuse_range_in_words()
        self._refuse_placeholders()
        self._refuse_second_values()
        self._refuse_empty_values()
        return super().parse_known_args(args, namespace)

    def _refuse_misspelled_words(self) -> None:
        """Raises Usage for a flag with one dash, a path with backslashes, and letters that only printed pages have."""
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

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        """The value that a flag's type makes of a word; argparse calls it.

        Raises: Usage with the name of the flag; what argparse raises.
        """
        try:
            return super()._get_value(action, arg_string)
        except Usage as error:
            error.flag = action.option_strings[-1] if action.option_strings else ""
            raise

    def _refuse_help_in_words(self) -> None:
        """Raises Usage for `help` as the first or last word, and for the flags that other systems have for it."""
        for position, word in enumerate(self.words):
            is_inside = 0 < position < len(self.words) - 1
            if word == "help" and is_inside:  # the value of a flag
                continue
            if word in HELP_WORDS and not os.path.exists(word):
                raise Usage(f"{word!r}: the help of a command is typed -h", instead=self._line_with(["-h"]))

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
        raise Usage(message, instead=self._line_with(separate))

    def _refuse_function_without_colon(self) -> None:
        """Raises Usage for a function of a file as a word of its own: --model mine.py build."""
        for position, flag in enumerate(self.words[:-2]):
            file, function = self.words[position + 1 : position + 3]
            is_function = function.isidentifier() and not os.path.exists(function)
            if flag == "--model" and file.endswith(".py") and is_function:
                before, after = self.words[: position + 1], self.words[position + 3 :]
                instead = self._line_with([*before, f"{file}:{function}", *after])
                raise Usage(f"a function of a file is typed {file}:{function}", instead=instead)

    def _refuse_range_in_words(self) -> None:
        """Raises Usage for a range in several words, such as `64 to 4096`."""
        position = corrections.range_in_words(self.words)
        if position is None:
            return
        end = position + 3  # after the first size, a word such as `to`, and the last size
        joined = f"{self.words[position]}:{self.words[end - 1]}"
        instead = self._line_with([*self.words[:position], joined, *self.words[end:]])
        raise Usage(f"a range is one word: {joined}", instead=instead)

    def _refuse_placeholders(self) -> None:
        """Raises Usage for names that stand for runs in the usage of the command, and were typed as they are there."""
        names = [str(action.metavar) for action in self._actions if not action.option_strings]
        typed_names = [name for name in names if name in self.words and not os.path.lexists(name)]
        if not typed_names:
            return
        folders = {name: near(runs.run_named(name)) for name in typed_names}
        verb = "stands for a folder of a run" if len(folders) == 1 else "stand for folders of runs"
        instead = self._line_with([folders.get(word, word) for word in self.words])
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
            whole = "".join(values)  # of a number that was typed with blanks between thousands
            instead = self._line_with([whole if word == values[0] else word for word in left])
            raise Usage(f"a number is one word: {whole}", instead=instead)
        if name:
            numbers = f"{', '.join(values[:-1])} and {values[-1]}"
            message = f"{name} takes one number, not {numbers}; type the command once for each"
            raise Usage(message, instead=self._line_with(left))

    def _refuse_empty_values(self) -> None:
        """Raises Usage for a flag that takes one word and has an empty one, as of a variable of a shell that is not set."""
        name = corrections.flag_without_word(self.words, self._option_string_actions)
        if name:
            error = Usage("'' names nothing; leave the flag out or name something", wrong="")
            error.flag = name
            error.is_example = True
            raise error

    def _line_with(self, words: Iterable[str]) -> str:
        """The line of this command with these words, as a shell takes it."""
        return shlex.join(["python", "-m", self.module, *words])

    def error(self, message: str) -> NoReturn:
        """Raises the Usage for a message of argparse, which calls this."""
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
            return self._with_words_passed_on(hints.split_command(stop.instead).words, words)
        if stop.wrong is None and not stop.right:
            return list(words)
        runs_taken = [action for action in self._actions if not action.option_strings]
        takes_runs = bool(runs_taken)
        typed_words, others = corrections.split(words, self.passes_on)
        # A run that is not there is left out where the command works without it.
        if stop.names_run and stop.is_example and runs_taken:
            others_remain = corrections.has_run_like(typed_words, stop.right)
            if runs_taken[0].nargs == "*" or (runs_taken[0].nargs == "+" and others_remain):
                return [*[word for word in typed_words if word != stop.wrong], *others]
        flags = self._option_string_actions
        return [*corrections.corrected(typed_words, stop, flags, takes_runs=takes_runs), *others]

    def _with_words_passed_on(self, corrected_words: list[str], typed_words: Sequence[str]) -> list[str]:
        """Corrected words, followed by `--` and the typed words for another program unless they have these already."""
        _, others = corrections.split(typed_words, self.passes_on)
        if not others or corrected_words[-len(others) :] == others:
            return corrected_words
        if "--model" in corrected_words:  # in place of a script, whose words they were
            return corrected_words
        return [*corrected_words, *(others[1:] if "--" in corrected_words else others)]

    def puts_example(self, words: Sequence[str], stop: Stop) -> bool:
        """Whether `corrected` replaces a value that is not known by one that works but may not be what was meant."""
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
        """Variants of the words to try: with another value for the flag, then without it. flag: its name; "" for any flag."""
        typed_words, others = corrections.split(words, self.passes_on)
        changed = corrections.with_one_flag_changed(typed_words, flag, self._option_string_actions)
        return [[*one, *others] for one in changed]

    def without(self, words: Sequence[str], flags: Sequence[str]) -> list[str]:
        """The words of a command without these flags and their values."""
        typed_words, others = corrections.split(words, self.passes_on)
        return [*corrections.without(typed_words, flags, self._option_string_actions), *others]


def typed_command_line(module: str, argv: Sequence[str] | None) -> str:
    """The line of a command as it was typed, for the record and for the line that resumes it.

    argv: the words after the module; None for those of this process.
    """
    words = sys.argv[1:] if argv is None else argv
    return shlex.join(["python", "-m", module, *words])
