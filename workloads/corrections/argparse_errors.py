"""The errors for what argparse refuses, with the correction of the words that were typed. It imports the standard library and the
ground of `workloads`."""

import argparse
import itertools
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from workloads import REPORTS, corrections, help_screen, hints
from workloads.corrections import other_flags, runs, shape_parts
from workloads.corrections.likeness import DASHES, closest, misspelled
from workloads.stops import Usage
from workloads.terminal import near

_NUMBERS = ("N", "BYTES", "S", "F")  # what flags take whose words have digits
_USUAL_BATCH = 32  # as the help of --batch has it
_YES, _NO = ("yes", "true", "on"), ("no", "false", "off")
# What other programs call by a flag of its own.
_MEANT_FLAGS = {"cpu-only": "--device cpu", "no-gpu": "--device cpu", "no-cuda": "--device cpu", "xla": "--jit on"}
_FILES = (".csv", ".json", ".md", ".txt", ".html", ".log")

_SKIPPING = ("skip", "exclude", "except", "without", "not", "ignore")


def unknown_choice(message: str) -> tuple[str, str]:
    """(the flag, the value) of argparse's message on a value that is none of the flag's choices; ("", "") of another message."""
    flag = re.match(r"argument (?:.*/)?(-[\w-]+)", message)
    choice = re.search(r"choice: '(.*?)' \(", message)
    return (flag[1], choice[1]) if flag and choice else ("", "")


class TypedWords(NamedTuple):  # as hints.Proposal
    """The words of a command that argparse refused, and what the command takes."""

    #: The words after the command.
    words: Sequence[str]
    #: The command's module, such as `workloads.matmul`.
    module: str
    #: Its flags by every name.
    flags: corrections.Flags
    #: The names of the flags that its -h shows, the most needed first.
    brief_flags: Sequence[str]
    #: Whether the words after `--` are for another program.
    passes_on: bool
    #: Whether it takes runs without a flag.
    takes_runs: bool = False

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
            instead = self._with_two_runs(names)
            lacks_second = None if instead else self._second_run_lacks(names)
            if lacks_second:
                return lacks_second
            error = Usage(message, right=" ".join(map(self._stand_in, names)), instead=instead)
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
        negative = self._negative_behind(name)
        if negative:
            return Usage(f"{name}: {negative!r} is below 0", wrong=negative, right=negative[1:])
        if re.match("expected .*argument", message):
            like = f", such as {shlex.join(example)}" if example else ""
            error = Usage(f"{name} takes a value{like}", wrong=name, right=right)
        else:
            error = Usage(f"{name}: {message}", wrong=name, right=right)
        error.is_example = bool(right)
        return error

    def _negative_behind(self, name: str) -> str:
        """The word behind a flag that begins with a minus and a digit, -5ms, which argparse takes for a flag; "" without one."""
        place = self.words.index(name) + 1 if name in self.words else len(self.words)
        following = "".join(self.words[place : place + 1])
        return following if re.match(r"-\.?\d", following) else ""

    def _misplaced_value(self, names: Sequence[str]) -> Usage | None:
        """The error for a value of a flag that lacks, which was typed without the flag or after another one; None without one."""
        for name in names:
            action = self.flags.get(name)
            choices = action.choices if action is not None and action.choices else ()
            for position, word in enumerate(self.words):
                if word.lstrip(DASHES) in choices and word[:1] in DASHES:
                    right = f"{name} {word.lstrip(DASHES)}"
                    return Usage(f"unexpected argument {word!r}", wrong=word, right=right)
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

    def command_or_function(self) -> Usage | None:
        """The error for a second command, or for a function in place of a script; None without either."""
        return self._second_command() or self._function_as_script()

    def _second_command(self) -> Usage | None:
        """The error for the name of another command as the first word behind switches; None without one. What is shown is that
        command with the words behind it where it takes them, else this one without it."""
        switches = list(itertools.takewhile(self._is_switch, self.words))
        if self.module in help_screen.OVERVIEWS or len(switches) == len(self.words):
            return None
        name, *others = self.words[len(switches) :]
        if not name.isidentifier():  # no command's name; to list the commands all their files are read
            return None
        modules = {module.rpartition(".")[2]: module for module in help_screen.commands()}
        command = modules.get(name, "")
        is_run = corrections.is_run(name) or (self.takes_runs and bool(runs.called(name)))
        if not command or is_run or name in self._parts_of_only():
            return None
        message = f"{name!r} is a command of its own; one command is typed at a time"
        line = shlex.join(["python", "-m", command, *others])
        if command != self.module and self._is_taken_by_another(line):
            return Usage(message, instead=line)
        error = Usage(message, instead=self.line([*switches, *others]))
        error.leaves_out = command != self.module
        return error

    def _function_as_script(self) -> Usage | None:
        """The error for a function of a file as a script, --script mine.py:build; None without one."""
        if "--model" not in self.flags:
            return None
        for name, values in self._typed_values():
            if name == "--script" and re.fullmatch(r"\S+\.py:[A-Za-z_]\w*", " ".join(values)):
                right = shlex.join(["--model", *values])
                return Usage(f"{values[0]!r} is a function, which is typed {right}", wrong="--script", right=right)
        return None

    def _is_switch(self, word: str) -> bool:
        """Whether a word is a flag that takes no value."""
        return word in self.flags and self.flags[word].nargs == 0

    def _stray(self, word: str) -> Usage:
        """The error for a word without dashes that no flag takes."""
        flags = self.flags
        position = self.words.index(word)
        before = self.words[position - 1] if position else ""
        by_content = self._python_file(word)
        if by_content:
            return by_content
        if "--profile" in flags and corrections.is_run(word):
            right = shlex.join(["--profile", word])
            return Usage(f"{word!r} is typed after its flag: {right}", wrong=word, right=right)
        together = corrections.behind_first_run(self.words, position, flags)
        if together:
            return Usage(f"{word!r}: all runs come together, before the flags", instead=self.line(together))
        if not self.takes_runs and runs.has_result_file(word):
            instead = shlex.join(["python", "-m", "analysis.report", word])
            message = f"{word!r} is a run, which {hints.name_typed(self.module)} does not take"
            return Usage(message, instead=instead)
        need = self._first_need(word).partition(" ")[0]
        needless = word.lower() in _YES + _NO or (word.isdecimal() and need in self.words)
        if before in flags and flags[before].nargs == 0 and needless:
            unwanted = position - 1 if word.lower() in _NO else position
            left = [*self.words[:unwanted], *self.words[position + 1 :]]
            return Usage(f"{before} takes no value", instead=self.line(left))
        if self._is_layer_class(word):
            return Usage(f"{word!r} is typed after its flag: --layer {word}", wrong=word, right=f"--layer {word}")
        listed = self._parts_of_only()
        meant_part = closest(word, listed, 0.8) if listed else ""
        if meant_part:
            return Usage(f"unexpected argument {word!r}", wrong=word, right=f"--only {meant_part}")
        flag = corrections.flag_named(word, flags)
        if flag:
            return Usage(f"{word!r} is a flag: it is typed {flag}", wrong=word, right=flag)
        right = corrections.flag_listing(word, flags) or self._first_need(word)
        message = f"unexpected argument {word!r}"
        if Path(word).suffix in _FILES and "--format" in flags:
            return Usage(f"{message}; what this prints goes into a file by > {word}", wrong=word)
        return Usage(message, wrong=word, right=right)

    def _python_file(self, word: str) -> Usage | None:
        """The error for a Python file or a notebook that no flag takes, by what the file does: a script, or functions of which
        one builds a model. None of any other word, and of a script where --script takes it."""
        if not corrections.script_before([word]):
            return None
        from workloads.records import source_trees

        function = source_trees.function_without_fit(word)
        if function:
            named = f"--model {shlex.quote(function)}"
            message = f"{word!r} calls no fit itself; its model is typed {named}"
            if "--model" in self.flags:
                return self._named_function(word, function, message)
            return Usage(message, instead=self._by_other_command("analysis.explain", ["--model", function], word))
        if "--script" in self.flags:
            return None
        message = f"{word!r} is a script, which {hints.name_typed('analysis.explain')} takes"
        return Usage(message, instead=self._by_other_command("analysis.explain", [word], word))

    def _named_function(self, word: str, function: str, message: str) -> Usage:
        """The error for a file in place of its function, without a number behind it: nobody knows what that counts."""
        place = self.words.index(word)
        others = list(self.words[place + 1 :])
        number = others[0] if others and others[0].isdecimal() else ""
        if not number:
            return Usage(message, wrong=word, right=f"--model {shlex.quote(function)}")
        message += f"; {number} is left out: a batch is typed --batch {number}"
        error = Usage(message, instead=self.line([*self.words[:place], "--model", function, *others[1:]]))
        error.is_example = True
        return error

    def _by_other_command(self, command: str, subject: Sequence[str], word: str) -> str:
        """Another command with its subject in place of a typed word, and with all typed flags that it has."""
        start = ["python", "-m", command]
        other = hints.hints_for(shlex.join([*start, *subject]))
        if other is None:
            return shlex.join([*start, *subject])
        names = {typed.partition("=")[0] for typed in self.words if typed[:1] in DASHES}
        lacking = sorted(names - set(other.parser.flag_names()))
        position = self.words.index(word)
        others = other.parser.without([*self.words[:position], *self.words[position + 1 :]], lacking)
        return shlex.join([*start, *subject, *others])

    def _is_layer_class(self, word: str) -> bool:
        """Whether a word may be the class of a layer, for a command that times one: Conv2D, but no ResNet50."""
        if "--layer" not in self.flags or not word[:1].isupper() or not word.isidentifier():
            return False
        from kernels import networks

        return not closest(word, networks.names(), 0.8)

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
        usual = self._part_of_shape() or self._by_usual_name(name, value) or self._definition(name, value)
        if usual:
            return usual
        meant_flag = _MEANT_FLAGS.get(bare, "")
        if meant_flag.split(" ")[0] not in flags:
            meant_flag = corrections.flag_listing(bare, flags)
        if (
            meant_flag and not value.isdecimal() and (f"{name}s" not in flags or not value)
        ):  # as --size, which is --sizes too
            return Usage(message, wrong=word, right=meant_flag)
        similar = "" if "=" in value else corrections.flag_of_letter(bare, value, flags, self.brief_flags)
        if not similar and not self._why_needless(bare):
            similar = self._similar_flag(name, value)
        if similar:
            return Usage(message, wrong=name, right=similar, similar="argument")
        by_value = corrections.flag_listing(value, flags)
        if by_value:
            return Usage(f"{message}: {value} is typed {by_value}", wrong=name, right=by_value.partition(" ")[0])
        if self.passes_on and corrections.script_before(self.words[:position]):
            before, after = corrections.passed_on(self.words, flags)
            return Usage(f"{message}; what the script takes comes after --", instead=self.line([*before, "--", *after]))
        is_text_file = Path(value).suffix in _FILES and "--format" in flags
        if is_text_file or name in ("-o", "--output", "--out", "--outfile"):
            message = f"{message}: what this prints goes into a file by > {value or 'FILE'}"
            return Usage(message, instead=self.line(self._with_format_of(name, value)))
        return self._flag_of_no_use(name, bare, message)

    def _similar_flag(self, name: str, value: str) -> str:
        """The flag that is meant by an unknown one: of those that take a value if one follows, else of those that take none; any
        flag where its name is nearly the same. "" without one."""
        fitting = [flag for flag, action in self.flags.items() if (action.nargs == 0) != bool(value)]
        taking = [flag for flag in fitting if self.flags[flag].metavar == name.lstrip(DASHES).upper()]
        return closest(name, fitting) or next(iter(taking), "") or misspelled(name, self.flags)

    def _with_format_of(self, name: str, file: str) -> list[str]:
        """The words without an unknown flag for an output file, and with the --format that its ending names."""
        words = self._without_flag(name)
        action = self.flags.get("--format")
        ending = Path(file).suffix.lstrip(".")
        is_typed = any(flag == "--format" for flag, _ in self._typed_values())
        if action is None or is_typed or ending not in (action.choices or ()):
            return words
        return [*words, "--format", ending]

    def _flag_of_no_use(self, name: str, bare: str, message: str) -> Usage:
        """The error for an unknown flag that is like none here: of another command that takes all the words, or left out."""
        others = help_screen.commands_with(name, self.module)
        words = ["--fast" if word == "--quick" else word for word in self.words]  # as crossover run begins
        has_model = "--model" in words and not self.takes_runs
        for other in self._with_all_flags(others)[:2]:
            line = shlex.join(["python", "-m", other, *words])
            if self._is_taken_by_another(line, only_one=len(others) == 1 and has_model):
                error = Usage(f"{message}, a flag of {hints.name_typed(other)}", instead=line)
                error.is_example = words != list(self.words)
                return error
        parts = [reason for reason in map(self._why_needless, [bare, *re.split("[-_]", bare)]) if reason]
        if parts:
            message += f"; {parts[0]}"
        elif others:
            message += f", a flag of {' and '.join(map(hints.name_typed, others[:2]))}"
        else:
            message += f"; {hints.name_typed(self.module)} has no flag like it"
        error = Usage(message, wrong=name)
        error.leaves_out = True
        return error

    def _with_all_flags(self, commands: Sequence[str]) -> Sequence[str]:
        """Those of some commands that declare all typed flags that this one lacks; all of them where none does."""
        declaring = list(commands)
        for word in self.words:
            name = word.partition("=")[0]
            if word[:2] == "--" and name not in self.flags:
                with_flag = help_screen.commands_with(name, self.module)
                declaring = [command for command in declaring if command in with_flag]
        return declaring or commands

    def _is_taken_by_another(self, line: str, only_one: bool = False) -> bool:
        """Whether a line of another command works as it is; `only_one`: whether that command has all its flags, where no other
        has the unknown one, so that a wrong value in it is corrected."""
        other = hints.hints_for(line)
        if other is None:
            return False
        names = {word.partition("=")[0] for word in other.words if word[:1] == "-"}
        has_flags = names <= set(other.parser.flag_names())
        return has_flags and (only_one or other.mistake(other.words) is None)

    def _part_of_shape(self) -> Usage | None:
        """The error for flags that are parts of a shape or a range here; None where none are."""
        with_shape, lacks_part = shape_parts.joined(self.words, self.flags)
        if not with_shape:
            return None
        flag_and_shape = " ".join(with_shape[-2:])
        part = next(word for word in self.words if word[:1] in DASHES and word not in with_shape)
        error = Usage(
            f"unexpected argument {part!r}; its number is part of {flag_and_shape}", instead=self.line(with_shape)
        )
        error.is_example = lacks_part
        return error

    def _by_usual_name(self, name: str, value: str) -> Usage | None:
        """The error for an unknown flag that other programs have: what it means here; None of any other flag."""
        message, flags = f"unexpected argument {name!r}", self.flags
        usual_name = "-".join(name.lstrip(DASHES).lower().split("_"))
        if usual_name in other_flags.VERSION:
            return Usage(f"{message}: the version is typed without a command", instead="python -m crossover --version")
        known_name = "" if misspelled(name, flags) else misspelled(usual_name, other_flags.OTHER_NAMES)
        here = other_flags.OTHER_NAMES.get(usual_name) or other_flags.OTHER_NAMES.get(known_name, "")
        if usual_name.startswith("list-"):
            here = other_flags.OTHER_NAMES["list"]
        if here in flags:
            return Usage(message, wrong=name, right=here, similar="argument")
        if usual_name in other_flags.GPU_NUMBERS and value.isdecimal() and "--device" in flags:
            words = self._without_flag(name)
            right = ["--device", f"gpu:{value}"]
            return Usage(f"{message}; a GPU is named {shlex.join(right)}", instead=self.line([*words, *right]))
        if usual_name in other_flags.MACHINES and value and "--profile" in flags:
            return Usage(message, wrong=name, right="--profile", similar="argument")
        if usual_name in other_flags.TIME_UNITS and value.isdecimal() and "--stop-after" in flags:
            right = ["--stop-after", f"{value}{other_flags.TIME_UNITS[usual_name]}"]
            return Usage(message, instead=self.line([*self._without_flag(name), *right]))
        if usual_name in other_flags.MIXED and not value and "--precision" in flags:
            return Usage(message, wrong=name, right=f"--precision {other_flags.MIXED[usual_name]}")
        if usual_name == "steps-per-epoch" and value.isdecimal() and "--samples" in flags:
            batches = [values[0] for flag, values in self._typed_values() if flag == "--batch" and values]
            batch = int(batches[0]) if batches and batches[0].isdecimal() else _USUAL_BATCH
            right = ["--samples", str(int(value) * batch)]
            line = self.line([*self._without_flag(name), *right])
            return Usage(f"{message}; an epoch is told by its samples, {value} steps of {batch}", instead=line)
        if self.takes_runs and usual_name in other_flags.RUNS and corrections.is_run(value):
            return Usage(f"{message}; a run is typed without a flag", instead=self.line(self._without_name(name)))
        return None

    def _definition(self, name: str, value: str) -> Usage | None:
        """The error for an unknown flag whose value names a flag of this command, `--axis sizes=64`; None of any other."""
        defined, equals, defined_value = value.partition("=")
        flag = closest(defined, self.flags) if equals else ""
        if not flag or not defined_value:
            return None
        instead = self.line([*self._without_flag(name), flag, defined_value])
        return Usage(f"unexpected argument {name!r}; {value} is typed {flag} {defined_value}", instead=instead)

    def _why_needless(self, bare: str) -> str:
        """Why this command has no flag like this one of other programs; "" of any other flag."""
        usual_name = "-".join(bare.lower().split("_"))
        for names, needed_flag, reason in other_flags.NEEDLESS:
            if usual_name in names and needed_flag in self.flags:
                return reason
        return ""

    def _typed_values(self) -> list[tuple[str, list[str]]]:
        """Every flag that was typed, with its values."""
        return [(name, values) for name, _, values in corrections.by_flag(self.words, self.flags)]

    def _without_flag(self, name: str) -> list[str]:
        """The words without an unknown flag and the value behind it."""
        position = next(i for i, word in enumerate(self.words) if word.partition("=")[0] == name)
        end = position + 1
        if "=" not in self.words[position] and self.words[end : end + 1] and self.words[end][:1] not in DASHES:
            end += 1
        return [*self.words[:position], *self.words[end:]]

    def _without_name(self, name: str) -> list[str]:
        """The words with the value of an unknown flag, and without the flag."""
        position = next(i for i, word in enumerate(self.words) if word.partition("=")[0] == name)
        _, equals, joined = self.words[position].partition("=")
        return [*self.words[:position], *([joined] if equals else []), *self.words[position + 1 :]]

    def _parts_of_only(self) -> list[str]:
        """The words that --only takes, as its help lists them; [] without that flag."""
        if "--only" not in self.flags:
            return []
        return re.findall(r"\w+", (self.flags["--only"].help or "").partition(":")[2].partition(";")[0])

    def _all_but(self, position: int) -> str:
        """The command with --only and all words but those behind the flag at this place, as `--skip conv`; of a typed --only,
        its words but those. "" where it has no --only, or takes no such word."""
        listed = self._parts_of_only()
        end = position + 1
        while end < len(self.words) and self.words[end][:1] not in DASHES:
            end += 1
        skipped = [closest(word, listed) for word in " ".join(self.words[position + 1 : end]).replace(",", " ").split()]
        before = corrections.without(self.words[:position], ["--only"], self.flags)
        after = corrections.without(self.words[end:], ["--only"], self.flags)
        named: list[str] = []
        for name, values in self._typed_values():
            if name == "--only":
                named += ",".join(values).split(",")
        others = [word for word in named or listed if word not in skipped]
        if not skipped or "" in skipped or not others:
            return ""
        return self.line([*before, "--only", *others, *after])

    def _command_meant(self, name: str) -> str:
        """The command that a word names where this one only lists the others; "" for none."""
        if self.module not in help_screen.OVERVIEWS:
            return ""
        return help_screen.similar_command(name, self.module)

    def _first_need(self, word: str) -> str:
        """The first of `brief_flags` with a word that was typed without one; "" where it takes no such word."""
        if "--script" in self.flags and corrections.script_before([word]):
            return shlex.join(["--script", word])
        flag = next(iter(self.brief_flags), "")
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

    def _second_run_lacks(self, lacking: Sequence[str]) -> Usage | None:
        """The error where the only run that was typed is there: only its user knows what to compare it with, but that a run of
        another machine is compared with one that is stored. None otherwise."""
        typed_runs = [word for word in self.words if word[:1] != "-" and corrections.is_run(word)]
        if list(lacking) != ["NEW"] or len(typed_runs) != 1:
            return None
        place = self.words.index(typed_runs[0]) + 1
        instead = self.line([*self.words[:place], "later", *self.words[place:]])
        message = f"compare takes two runs, and NEW is missing after {typed_runs[0]}"
        if runs.is_stored(typed_runs[0]):  # of another machine: compare puts one of its other runs for the name
            error = Usage(message, instead=instead)
            error.is_example = True
            return error
        return Usage(message, instead=instead, first="measure the same again with --save later")

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
