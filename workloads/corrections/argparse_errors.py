"""The errors for what argparse refuses, with the correction of the words that were typed. It imports the standard library and the
ground of `workloads`."""

import argparse
import dataclasses
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from workloads import REPORTS, corrections, help_screen, hints
from workloads.corrections import runs
from workloads.corrections.likeness import DASHES, closest
from workloads.stops import Usage
from workloads.terminal import near

_NUMBERS = ("N", "BYTES", "S", "F")  # what flags take whose words have digits
_YES, _NO = ("yes", "true", "on"), ("no", "false", "off")
# What other programs call by a flag of its own.
_MEANT_FLAGS = {"cpu-only": "--device cpu", "no-gpu": "--device cpu", "no-cuda": "--device cpu", "xla": "--jit on"}

_SKIPPING = ("skip", "exclude", "except", "without", "not", "ignore")


def unknown_choice(message: str) -> tuple[str, str]:
    """(the flag, the value) of argparse's message on a value that is none of the flag's choices; ("", "") of another message."""
    flag = re.match(r"argument (?:.*/)?(-[\w-]+)", message)
    choice = re.search(r"choice: '(.*?)' \(", message)
    return (flag[1], choice[1]) if flag and choice else ("", "")


@dataclasses.dataclass(frozen=True, kw_only=True)
class TypedWords:
    """The words of a command that argparse refused, and what the command takes."""

    #: The words after the command.
    words: Sequence[str]
    #: The command's module, such as `workloads.matmul`.
    module: str
    #: Its flags by every name.
    flags: corrections.Flags
    #: The names of the flags that its -h shows, the most needed first.
    needs: Sequence[str]
    #: Whether the words after `--` are for another program.
    passes_on: bool

    def line(self, words: Sequence[str]) -> str:
        """The command with these words."""
        return shlex.join(["python", "-m", self.module, *words])

    def error(self, message: str) -> Usage:
        """The error for a message of argparse."""
        extra = re.match(r"unrecognized arguments: (\S+)", message)
        if extra:
            return self._unexpected(extra[1])
        lacking = re.match(r"the following arguments are required: (.*)", message)
        if lacking:
            names = lacking[1].split(", ")
            misplaced = self._misplaced_value(names)
            if misplaced:
                return misplaced
            error = Usage(message, right=" ".join(map(self._stand_in, names)), instead=self._with_two_runs(names))
            error.is_example = True
            return error
        flag = re.match(r"argument (?:.*/)?(-[\w-]+)", message)
        if flag is None:
            return Usage(message)
        return self._wrong_value(flag[1], self.flags[flag[1]], message.partition(": ")[2])

    def _wrong_value(self, name: str, action: argparse.Action, message: str) -> Usage:
        """The error for a flag without a value, with one that it cannot take, or beside a flag that excludes it; `message` is
        argparse's."""
        example = corrections.example(action)
        right = shlex.join([name, *example]) if example else ""
        if re.match("ignored explicit argument", message):
            return Usage(f"{name} takes no value", wrong=name, right=name)
        if re.match("not allowed with argument", message):
            return Usage(f"{name}: {message}", wrong=name)
        if re.match("expected .*argument", message):
            like = f", such as {shlex.join(example)}" if example else ""
            error = Usage(f"{name} takes a value{like}", wrong=name, right=right)
        else:
            error = Usage(f"{name}: {message}", wrong=name, right=right)
        error.is_example = bool(right)
        return error

    def _misplaced_value(self, names: Sequence[str]) -> Usage | None:
        """The error for a value of a flag that lacks, which was typed without the flag or after another one; None without one."""
        for name in names:
            action = self.flags.get(name)
            choices = action.choices if action is not None and action.choices else ()
            for position, word in enumerate(self.words):
                if word not in choices:
                    continue
                before = self.words[position - 1] if position else ""
                if before[:1] == "-" and before not in self.flags:
                    return Usage(f"unexpected argument {before!r}", wrong=before, right=name, similar="argument")
                return Usage(f"{word!r} is typed after its flag: {name} {word}", wrong=word, right=f"{name} {word}")
        return None

    def _unexpected(self, word: str) -> Usage:
        """The error for a word that no flag takes, or a flag that is not known."""
        name = word.partition("=")[0]
        command = self._command_meant(name)
        if command:
            instead = shlex.join(["python", "-m", command, *self.words[1:]])
            return Usage(f"{word!r} is no argument; a command is typed with a dot", instead=instead)
        if name[0] in DASHES or "=" in word:
            return self._unknown_flag(word)
        return self._stray(word)

    def _stray(self, word: str) -> Usage:
        """The error for a word without dashes that no flag takes."""
        flags = self.flags
        position = self.words.index(word)
        before = self.words[position - 1] if position else ""
        need = self._first_need(word).partition(" ")[0]
        needless = word.lower() in _YES + _NO or (word.isdecimal() and need in self.words)
        if before in flags and flags[before].nargs == 0 and needless:
            unwanted = position - 1 if word.lower() in _NO else position
            left = [*self.words[:unwanted], *self.words[position + 1 :]]
            return Usage(f"{before} takes no value", instead=self.line(left))
        if corrections.script_before([word]) and not {"--model", "--script"} & flags.keys():
            instead = shlex.join(["python", "-m", "analysis.explain", word])
            return Usage(f"{word!r} is a script, which {hints.name_typed('analysis.explain')} takes", instead=instead)
        flag = corrections.flag_named(word, flags)
        if flag:
            return Usage(f"{word!r} is a flag: it is typed {flag}", wrong=word, right=flag)
        right = corrections.flag_listing(word, flags) or self._first_need(word)
        return Usage(f"unexpected argument {word!r}", wrong=word, right=right)

    def _unknown_flag(self, word: str) -> Usage:
        """The error for a flag that is not known, or a word with `=`."""
        message, flags = f"unexpected argument {word!r}", self.flags
        name, _, value = word.partition("=")
        position = self.words.index(word) if word in self.words else len(self.words)
        following = self.words[position + 1 : position + 2]
        value = value or " ".join(one for one in following if one[:1] not in DASHES)
        bare = name.lstrip(DASHES)
        if bare in _SKIPPING and position < len(self.words):
            instead = self._all_but(position)
            if instead:
                return Usage(f"{message}; what is to be measured is named with --only", instead=instead)
        meant_flag = _MEANT_FLAGS.get(bare, "")
        if meant_flag.split(" ")[0] not in flags:
            meant_flag = corrections.flag_listing(bare, flags)
        if meant_flag and (f"{name}s" not in flags or not value):  # as --size, which is --sizes too
            return Usage(message, wrong=word, right=meant_flag)
        similar = corrections.flag_of_letter(bare, value, flags, self.needs) or closest(name, flags)
        if similar:
            return Usage(message, wrong=name, right=similar, similar="argument")
        if self.passes_on and corrections.script_before(self.words[:position]):
            line = self.line([*self.words[:position], "--", *self.words[position:]])
            return Usage(f"{message}; what the script takes comes after --", instead=line)
        if name in ("-o", "--output", "--out", "--outfile"):
            return Usage(f"{message}: what this prints goes into a file by > {value or 'FILE'}", wrong=name)
        others = help_screen.commands_with(name, self.module)
        if others:
            message += f", a flag of {' and '.join(map(hints.name_typed, others[:2]))}"
        error = Usage(message, wrong=name)
        error.leaves_out = True
        return error

    def _all_but(self, position: int) -> str:
        """The command with --only and all words but those behind the flag at this place, as `--skip conv`; "" where it has no
        --only, or takes no such word."""
        if "--only" not in self.flags:
            return ""
        listed = re.findall(r"\w+", (self.flags["--only"].help or "").partition(":")[2].partition(";")[0])
        end = position + 1
        while end < len(self.words) and self.words[end][:1] not in DASHES:
            end += 1
        skipped = [closest(word, listed) for word in " ".join(self.words[position + 1 : end]).replace(",", " ").split()]
        others = [word for word in listed if word not in skipped]
        if not skipped or "" in skipped or not others:
            return ""
        return self.line([*self.words[:position], "--only", *others, *self.words[end:]])

    def _command_meant(self, name: str) -> str:
        """The command that a word names where this one only lists the others; "" for none."""
        if self.module not in help_screen.OVERVIEWS:
            return ""
        return help_screen.similar_command(name, self.module)

    def _first_need(self, word: str) -> str:
        """The first flag of `needs` with a word that was typed without one; "" where it takes no such word."""
        if "--script" in self.flags and corrections.script_before([word]):
            return shlex.join(["--script", word])
        flag = f"--{next(iter(self.needs), '')}"
        action = self.flags.get(flag)
        has_digit = any(character.isdigit() for character in word)
        if action is None or action.nargs == 0 or (action.metavar in _NUMBERS and not has_digit):
            return ""
        try:
            takes_word = not callable(action.type) or action.type(word) is not None
        except (Usage, argparse.ArgumentTypeError):
            takes_word = False
        if not takes_word:
            return ""
        if flag == "--model" and word.isdecimal():
            return ""
        return shlex.join([flag, word])

    def _with_two_runs(self, lacking: Sequence[str]) -> str:
        """The command with two runs that can be compared, where the only run that was typed is or holds the example of NEW; "" of
        any other run."""
        if list(lacking) != ["NEW"]:
            return ""
        new = near(runs.run_named("NEW"))
        for position, word in enumerate(self.words):
            folder = Path(word) if os.path.exists(word) else REPORTS / word
            if Path(new).resolve().is_relative_to(folder.resolve()):
                others = self.words[position + 1 :]
                return self.line([*self.words[:position], near(runs.run_named("OLD")), new, *others])
        return ""

    def _stand_in(self, lacking: str) -> str:
        """What may stand for a required argument: a run, or a flag with a value."""
        name = lacking.split("/")[-1]
        action = self.flags.get(name)
        if action is None:
            return shlex.quote(near(runs.run_named(lacking)))
        return shlex.join([name, *corrections.example(action)])
