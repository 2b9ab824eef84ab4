"""The words of a command that may be meant by words that ended with a Stop, the likeliest first. workloads/hints.py parses each
before it is shown. It imports the standard library and the ground of `workloads`."""

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from workloads import help_screen, stored_runs
from workloads.corrections import shape_parts
from workloads.corrections.grammar import Grammar, as_typed_here, is_run, listed_in_many, name_of, values_of
from workloads.corrections.nearest import DASHES, NEARLY_THE_SAME, nearest, plain, synonyms
from workloads.corrections.refusals import reason
from workloads.stops import Stop

_TIME_UNITS = {"second": "s", "sec": "s", "minute": "min", "min": "min", "hour": "h"}
_NUMBERS = ("N", "BYTES", "S", "F")  # what flags take that take numbers
_TEXT_FILES = (".csv", ".json", ".md", ".txt", ".html", ".log")
_SCRIPTS = (".py", ".ipynb")
_SKIPPING = ("skip", "exclude", "except", "without")
_FUNCTION_OR_MODEL = re.compile(r".*(\.py:\w+|\.keras)")


class Repair(NamedTuple):
    """Words that may be meant."""

    #: The words of the command.
    words: Sequence[str] = ()
    #: In place of them the whole line of another command.
    line: str = ""
    #: Whether a value of it is only an example, or something typed is left out.
    is_example: bool = False
    #: The kind of `right`, as argument or model, where it is similar to what was typed.
    similar: str = ""
    #: The word in place of the wrong one.
    right: str = ""
    #: A flag and its value that must not be wrong by themselves, as far as they say of what kind the value is.
    alone: Sequence[str] = ()
    #: Whether it is wanted only where nothing else is wrong.
    must_work: bool = False


def repairs(words: Sequence[str], stop: Stop, grammar: Grammar) -> Iterator[Repair]:
    """What may be meant by words that end with a Stop, the likeliest first."""
    typed, passed_on = grammar.split(words)
    proposed = shlex.split(stop.instead)
    if proposed and proposed[2:3] != [grammar.module]:
        yield Repair(line=stop.instead, is_example=stop.is_example)
        return
    if proposed:
        others = [] if "--" in proposed or "--model" in proposed else passed_on
        yield Repair([*proposed[3:], *others], is_example=stop.is_example)
        return
    for repair in _Repairs(typed, stop, grammar).candidates():
        others = passed_on[1:] if "--" in repair.words else passed_on
        yield repair if repair.line else repair._replace(words=[*repair.words, *others])


class _Repairs:
    """The repairs of one mistake in the words of a command."""

    def __init__(self, words: list[str], stop: Stop, grammar: Grammar):
        self.words = words
        self.stop = stop
        self.grammar = grammar
        self.flags = grammar.flags
        self.typed_flags = [name for name, _ in grammar.typed_values(words)]

    def candidates(self) -> Iterator[Repair]:
        """How the words are typed here; what the Stop knows; what the place of the mistake takes; an example."""
        stop = self.stop
        wrong = stop.wrong or ""
        typed_here = as_typed_here(self.words, self.flags)
        if typed_here != self.words:
            yield Repair(typed_here)
        if stop.right and not stop.is_example:
            yield self._by_stop()
        flag = stop.flag or (self.grammar.flag_taking(self.words, wrong) if wrong else "")
        names = wrong.split()
        last: Iterator[Repair] = iter(())
        if names and self.flags.keys() >= set(names):
            flag = names[0]
            if not stop.right:
                yield Repair(self.grammar.without(self.words, names), is_example=stop.is_example)
        elif any(group[0] == wrong and wrong[:1] in DASHES for group in self.grammar.groups(self.words)):
            yield from self._for_unknown_flag(wrong)
        elif wrong and flag:
            yield from self._for_value(flag, wrong)
            last = self._without_value(flag, wrong)
        elif wrong:
            yield from self._for_stray_word(wrong)
            last = self._without_stray_word(wrong)
        if stop.lacking:
            yield from self._for_lacking(stop.lacking)
        if stop.right and stop.is_example:
            yield self._by_stop()
        yield from last
        if stop.tip == "":
            yield from self._with_one_flag_changed(flag)

    def _by_stop(self) -> Repair:
        """The words with what the Stop has in place of the wrong ones."""
        stop, words = self.stop, self.words
        wrong = stop.wrong
        right = shlex.split(stop.right)
        names = (wrong or "").split()
        if wrong is None:
            changed = [*words, *right]
        elif names and self.flags.keys() >= set(names):
            changed = self.grammar.with_flags_replaced(words, names, right)
        elif stop.right.startswith("--") and wrong in words:
            changed = self._with_word_replaced(wrong, right)
        else:
            changed = self.grammar.with_value_replaced(words, wrong, stop.right, stop.flag)
        return Repair(changed, is_example=stop.is_example, similar=stop.similar, right=stop.right)

    def _with_word_replaced(self, word: str, right: Sequence[str]) -> list[str]:
        place = self.words.index(word)
        return [*self.words[:place], *right, *self.words[place + 1 :]]

    def _for_lacking(self, names: Sequence[str]) -> Iterator[Repair]:
        """For required words: a value of the flag that was typed without it, else an example."""
        right: list[str] = []
        for name in names:
            if name not in self.flags:
                has_run = name == "NEW" and any(map(is_run, self.words))  # to which the command then names a partner
                right.append(name if has_run else stored_runs.run_to_type(name))
                continue
            for word in self.words:
                listing = self.grammar.flag_listing(word.lstrip(DASHES), [name])
                before = self.words[self.words.index(word) - 1]
                if listing and before[:1] == "-" and before not in self.flags:
                    yield Repair(self._with_word_replaced(before, [name]), similar="argument", right=name)
                elif listing:
                    yield Repair(self._with_word_replaced(word, listing))
            right += [name, *self.grammar.example(name)]
        yield Repair(self.grammar.with_runs_first([*self.words, *right]), is_example=True)

    def _for_unknown_flag(self, word: str) -> Iterator[Repair]:
        """For a flag that is not known: one like it, by its name or its value; another command; the words without it."""
        name, equals, joined = word.partition("=")
        group = next(one for one in self.grammar.groups(self.words) if one[0] == word)
        following = self.words[self.words.index(word) + 1 :][:1]
        value = joined or "".join(one for one in following if one[:1] not in DASHES)
        without = Repair(self.grammar.with_group_replaced(self.words, group, []), is_example=True)
        if plain(name) == "version":
            yield Repair(line="python -m crossover --version")
        is_for_script = self.grammar.passes_on and any(one.endswith(_SCRIPTS) for one in self.words)
        for changed, lacks_number in shape_parts.joined(self.words, self.grammar):
            yield Repair(changed, is_example=lacks_number)
        for right in self._with_value_translated(name, value):
            yield Repair(self.grammar.with_group_replaced(self.words, group, right))
        if is_for_script:
            yield self._passed_on()
        if reason(word, self.grammar):
            yield from self._by_other_commands(name)
            yield without
        yield from self._renamed(name, value)
        listing = self.grammar.flag_listing(name.lstrip(DASHES))
        if listing and not value.isdecimal():
            rest = [] if Path(value).suffix in _TEXT_FILES else values_of(group)
            yield Repair(self.grammar.with_group_replaced(self.words, group, [*listing, *rest]))
        listing = self.grammar.flag_listing(value) if value else []
        if listing:
            yield Repair(self._with_word_replaced(word, [f"{listing[0]}{equals}{joined}"]))
        if self.grammar.takes_runs and is_run(value) and not equals:
            yield Repair(self._with_word_replaced(word, []))
        yield from self._by_other_commands(name)
        if Path(value).suffix in _TEXT_FILES and "--format" in self.flags:
            listing = self.grammar.flag_listing(Path(value).suffix[1:], ["--format"])
            yield Repair(self.grammar.with_group_replaced(self.words, group, listing))
        yield without

    def _with_value_translated(self, name: str, value: str) -> Iterator[list[str]]:
        """A flag with its value in place of another tool's: --no-gpu, --minutes 5, --gpu 1, --axis sizes=64."""
        listed = self.grammar.words_listed("--only") if "--only" in self.flags else []
        if plain(name) in _SKIPPING and value and "--only" not in self.typed_flags:
            yield ["--only", *[one for one in listed if one not in value.split(",")]]
        for pair in synonyms(name):
            flag, _, meant = pair.partition(" ")
            if meant and not value and f"--{flag}" in self.flags:
                yield [f"--{flag}", meant]
        unit = _TIME_UNITS.get(plain(name).removesuffix("s"), "")
        if unit and value.isdecimal() and "--stop-after" in self.flags:
            yield ["--stop-after", f"{value}{unit}"]
        if value.isdecimal() and "--device" in self.flags and re.match("gpu|cuda|device", plain(name)):
            yield ["--device", f"gpu:{value}"]
        defined, equals, defined_value = value.partition("=")
        flag = nearest(re.sub(r"\[.*", "", defined), self.flags) if equals else ""
        if flag:
            yield [flag, defined_value]

    def _renamed(self, name: str, value: str) -> Iterator[Repair]:
        """The words with a known flag in place of an unknown one: of those that take a value if one follows, else of those that
        take none; one that a single letter stands for; any that is nearly the same."""
        fitting = [flag for flag, action in self.flags.items() if (action.nargs == 0) != bool(value)]
        letter = name.lstrip(DASHES)
        by_letter = [
            flag
            for flag in (*self.grammar.brief_flags, *fitting)
            if len(letter) == 1 and flag.startswith(f"--{letter}")
        ]
        listing = [flag for flag in by_letter if value and self.grammar.flag_listing(value, [flag])]
        like_name = nearest(name, fitting) or nearest(name, self.flags, NEARLY_THE_SAME)
        for flag in (like_name, *listing, *by_letter):
            if flag and (flag in fitting or not value):
                words = [flag + word[len(name) :] if word.partition("=")[0] == name else word for word in self.words]
                yield Repair(words, similar="argument", right=flag)

    def _by_other_commands(self, flag: str) -> Iterator[Repair]:
        """The other commands that have all flags that this one lacks, with the same words."""
        words = ["--fast" if word == "--quick" else word for word in self.words]  # as crossover run begins
        lacking = {word.partition("=")[0] for word in self.words if word[:2] == "--"} - self.flags.keys()
        having = [help_screen.commands_with(name, self.grammar.module) for name in lacking]
        for command in help_screen.commands_with(flag, self.grammar.module):
            if all(command in commands for commands in having):
                yield Repair(line=shlex.join(["python", "-m", command, *words]), must_work=True)

    def _passed_on(self) -> Repair:
        """The words with the unknown flags behind `--`, for a script."""
        before: list[str] = []
        after: list[str] = []
        for group in self.grammar.groups(self.words):
            if group[0][:1] == "-" and name_of(group) not in self.flags:
                after += group
            else:
                before += group
        return Repair([*self.grammar.with_runs_first(before), "--", *after])

    def _for_stray_word(self, word: str) -> Iterator[Repair]:
        """For a word that no flag takes: a flag, a value of one, a file, another command, a value of a flag that is needed."""
        words = self.words
        place = words.index(word) if word in words else len(words)
        before = words[place - 1] if 0 < place < len(words) else ""
        is_behind_switch = before in self.flags and self.flags[before].nargs == 0
        if is_behind_switch and listed_in_many(word):
            is_off = "off" in (word.lower(), *synonyms(word))
            yield Repair([*words[: place - 1 if is_off else place], *words[place + 1 :]])
        if is_run(word):
            yield Repair(self.grammar.with_runs_first(words))
        name, equals, value = word.partition("=")
        flag = nearest(name, self.flags, NEARLY_THE_SAME) if equals else ""
        if flag:
            yield Repair(self._with_word_replaced(word, [f"{flag}={value}"]))
        for right in self._by_itself(word):
            yield Repair(self._with_word_replaced(word, right))
        yield from self._as_subject(word)
        if not self.stop.right:
            yield from self._as_command(word)
        if not self.stop.right and (before in self.flags or not self.grammar.flag_taking(words, before)):
            is_path = re.search(r"/|\.[a-z]+$", word)
            yield from () if is_path else self._with_need(word)
        if self.grammar.takes_runs:
            yield Repair([*words[:place], *words[place + 1 :]], is_example=True, must_work=True)

    def _by_itself(self, word: str) -> Iterator[list[str]]:
        """The flag with this word, or of this name, by what the word is: fast is --fast, cpu is --device cpu."""
        flag = nearest(word, self.flags, NEARLY_THE_SAME)
        if flag and self.flags[flag].nargs == 0:
            yield [flag]
        others = [name for name in self.flags if name not in self.typed_flags]
        listing = self.grammar.flag_listing(word, others)
        if listing:
            yield listing
        yield from self._by_file(word)

    def _with_need(self, word: str) -> Iterator[Repair]:
        """The words with a flag that the command needs before one that no flag takes."""
        for flag in self.grammar.brief_flags:
            action = self.flags[flag]
            takes_numbers = action.metavar in _NUMBERS
            if action.nargs == 0 or action.metavar in ("DIR", "FILE") or flag in self.typed_flags:
                continue
            if takes_numbers == word[:1].isdigit():
                changed = self._with_word_replaced(word, [flag, word])
                yield Repair(changed, is_example=flag != self.grammar.brief_flags[0], alone=[flag, word])

    def _without_stray_word(self, word: str) -> Iterator[Repair]:
        """The words without one that no flag takes, or with an example of a run in its place."""
        words = self.words
        place = words.index(word) if word in words else len(words)
        left = [*words[:place], *words[place + 1 :]]
        yield from self._as_command(word)
        for name in ("OLD", "NEW") if self.grammar.takes_runs and not word.isdecimal() else ():
            run = stored_runs.run_to_type(name)
            if run not in words:
                yield Repair([*words[:place], run, *words[place + 1 :]], is_example=True)
        yield Repair(left, is_example=True)

    def _as_subject(self, word: str) -> Iterator[Repair]:
        """Another command for the file or the run that was typed, with the other words."""
        others = [one for one in self.words if one != word]
        is_alone = not (self.grammar.takes_runs and any(map(is_run, others)))
        if self.grammar.module != "analysis.explain" and self._by_explain(word) and is_alone:
            yield Repair(line=shlex.join(["python", "-m", "analysis.explain", *self._by_explain(word), *others]))
        if not self.grammar.takes_runs and stored_runs.has_result_file(word):
            yield Repair(line=shlex.join(["python", "-m", "analysis.report", word, *others]))

    def _as_command(self, word: str) -> Iterator[Repair]:
        """The command that a word names, with the other words."""
        others = [one for one in self.words if one != word]
        is_name = re.fullmatch(r"[a-z]\w*(\.\w+)?", word)
        command = help_screen.similar_command(word, self.grammar.module) if is_name else ""
        if command:
            yield Repair(line=shlex.join(["python", "-m", command, *others]), must_work=True)

    def _by_file(self, word: str) -> Iterator[list[str]]:
        """The flags with this word that a file or a run is typed with here, by what it is."""
        rights: list[list[str]] = []
        if (word.endswith(_SCRIPTS) and os.path.isfile(word)) or _FUNCTION_OR_MODEL.fullmatch(word):
            rights = [self._by_explain(word), ["--script", word]]
        elif is_run(word):
            rights = [["--profile", word]]
        elif Path(word).suffix in _TEXT_FILES and "-o" in self.flags and self.flags["-o"].metavar == "FILE":
            rights = [["-o", word]]
        for right in rights:
            if right and right[0] in self.flags and right[0] not in self.typed_flags:
                yield right

    def _by_explain(self, word: str) -> list[str]:
        """What the command explain takes for a file of Python: a script, or --model with the function that builds the model."""
        if _FUNCTION_OR_MODEL.fullmatch(word):
            return ["--model", word]
        if not word.endswith(_SCRIPTS) or not os.path.isfile(word):
            return []
        from workloads.records import source_trees

        function = source_trees.function_without_fit(word)
        return ["--model", function] if function else [word]

    def _for_value(self, flag: str, value: str) -> Iterator[Repair]:
        """For a value that its flag does not take: the flag that takes it."""
        left = self.grammar.with_value_replaced(self.words, value, "", flag)
        for right in self._by_itself(value):
            yield Repair([*left, *right])

    def _without_value(self, flag: str, value: str) -> Iterator[Repair]:
        """The words without a wrong value, where its flag has others, else with an example for the flag."""
        left = self.grammar.with_value_replaced(self.words, value, "", flag)
        if flag in [name for name, _ in self.grammar.typed_values(left)]:
            yield Repair(left, is_example=True)
        example = self.grammar.example(flag) if flag in self.flags else []
        if example and value not in example:
            yield Repair(self.grammar.with_flags_replaced(self.words, [flag], [flag, *example]), is_example=True)

    def _with_one_flag_changed(self, at_fault: str) -> Iterator[Repair]:
        """The words with an example for one flag, then without one, the flag at fault first."""
        names = list(dict.fromkeys(name for name in (at_fault, *self.typed_flags) if name in self.flags))
        for name in names:
            example = self.grammar.example(name)
            if example:
                changed = self.grammar.with_flags_replaced(self.words, [name], [name, *example])
                yield Repair(changed, is_example=True, must_work=True)
        for name in names:
            yield Repair(self.grammar.without(self.words, [name]), is_example=True, must_work=True)
