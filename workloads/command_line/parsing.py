"""The parser of a command: argparse's, which also refuses what argparse would misread, and corrects the words that were typed.
Standard library only."""

import argparse
import os
import shlex
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from typing import Any, NoReturn

from workloads import help_screen
from workloads.command_line import invocation
from workloads.corrections.grammar import Grammar
from workloads.corrections.refusals import refusal
from workloads.stops import HELP_WORDS, Usage


class _Extend(argparse.Action):
    """argparse's action "extend", but typed words replace the default instead of following it."""

    def __call__(
        self, parser: argparse.ArgumentParser, namespace: Namespace, values: Any, option_string: str | None = None
    ) -> None:
        """Stores the words that were typed after the flag; argparse calls it once for each time that the flag is typed."""
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
            prog=invocation.program(module),
            description=f"{question} {description}".strip(),
            epilog=help_screen.examples(map(invocation.typed, examples)),
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
        words, others = self.grammar().split(typed_words)
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
        self._refuse_help_in_words()
        self._refuse_values_without_effect()
        return super().parse_known_args(args, namespace)

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
        for word in (*self.words[:1], *self.words[-1:]):
            if word in HELP_WORDS and not os.path.exists(word):
                raise Usage(f"{word!r}: the help of a command is typed -h", instead=self.grammar().line(["-h"]))

    def _refuse_values_without_effect(self) -> None:
        """Raises Usage for a flag that takes one word and has two, or an empty one, as of a shell's variable that is not set."""
        typed_values: dict[argparse.Action, list[str]] = {}
        for name, values in self.grammar().typed_values(self.words):
            action = self._option_string_actions[name]
            if action.nargs not in (None, "?"):
                continue
            every = typed_values.setdefault(action, [])
            every += values
            if len(set(every)) > 1:
                message = f"{name} takes one value, not {' and '.join(every)}"
                raise Usage(message, wrong=name, right=shlex.join([name, every[-1]]))
            if values == [""] and action.choices is None:
                error = Usage("'' names nothing; leave the flag out or name something", wrong="")
                error.flag = name
                raise error

    def error(self, message: str) -> NoReturn:
        """Raises the Usage for a message of argparse, which calls this."""
        raise refusal(message, self.words, self.grammar())

    def grammar(self) -> Grammar:
        """What the command takes."""
        return Grammar(
            module=self.module,
            flags=self._option_string_actions,
            brief_flags=self.brief_flags,
            takes_runs=any(not action.option_strings for action in self._actions),
            passes_on=self.passes_on,
        )


def typed_command_line(module: str, argv: Sequence[str] | None) -> str:
    """The line of a command as it was typed, for the record and for the line that resumes it.

    argv: the words after the module; None for those of this process.
    """
    words = sys.argv[1:] if argv is None else argv
    return shlex.join(["python", "-m", module, *words])
