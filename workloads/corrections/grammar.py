"""What a command takes, and its words with one of them replaced, moved or left out. Standard library only."""

import argparse
import itertools
import os
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from workloads import REPORTS, stored_runs
from workloads.corrections.nearest import DASHES, nearest
from workloads.terminal import near

PLACE = "crossover-results"  # the folder that a hint names where another cannot be written
_QUOTES = "“”„‟‘’‚‛«»"  # typographic ones, which come from pages
_PLAIN_LETTERS = str.maketrans({"×": "x", "✕": "x", "−": "-", "\N{NO-BREAK SPACE}": " ", **dict.fromkeys(_QUOTES, "")})
# A value by what a flag takes, where neither its default nor its help shows one.
_EXAMPLES = {
    "BYTES": "64KiB",
    "DIR": PLACE,
    "ID": "S4",
    "KIND": "pinned",
    "MONEY": "3.50",
    "N": "10",
    "NAME": "before",
    "RULE": "slower>5%",
    "S": "60",
    "WAY": "both",
}
_BY_FLAG = {"--model": "cifar10-cnn", "--backends": "numpy", "--threads": "1"}
# `such as 50000`, `like 64k`, `(32)`, `(default 64:2048:x2)` in a flag's help.
_SHOWN = re.compile(r"\b(?:such as|like) '?(?!words)([\w.:+*>%-]+)|\((?:default:? )?(?!none)([\w.:-]+)\)")
# What flags take whose help begins with the words for it.
_LISTING = ("CALL", "DEV", "KIND", "LAYOUT", "MODE", "OP", "PART", "STATE", "TYPE", "WAY", "WORD", "WORKLOAD")
_RUNS = ("RUN", "OLD", "NEW")
_MANY = 1_000


class Grammar(
    NamedTuple
):  # every --help imports this module, and dataclasses take as long to import as it takes in all
    """What a command takes."""

    #: Its module, which python -m starts: `workloads.matmul`.
    module: str
    #: Its flags by every name.
    flags: Mapping[str, argparse.Action]
    #: The flags that its -h shows, the most needed first.
    brief_flags: Sequence[str]
    #: Whether it takes runs without a flag.
    takes_runs: bool
    #: Whether the words after `--` are for another program.
    passes_on: bool

    def line(self, words: Sequence[str]) -> str:
        """The command with these words."""
        return shlex.join(["python", "-m", self.module, *words])

    def split(self, words: Sequence[str]) -> tuple[list[str], list[str]]:
        """The words of the command; `--` and the words behind it, if the command passes them on."""
        place = list(words).index("--") if self.passes_on and "--" in words else len(words)
        return list(words[:place]), list(words[place:])

    def groups(self, words: Sequence[str]) -> list[list[str]]:
        """The words, those that a flag takes together with it; an unknown flag takes all up to the next one, or up to a run."""
        groups: list[list[str]] = []
        room = 0  # words that the last flag may still take
        for word in words:
            if room and self.takes_runs and groups[-1][0] not in self.flags and is_run(word):
                room = 0
            if re.match(r"-\D", word):
                groups.append([word])
                room = 0 if "=" in word else self._most_values(word)
            elif room:
                groups[-1].append(word)
                room -= 1
            else:
                groups.append([word])
        return groups

    def _most_values(self, flag: str) -> int:
        nargs = self.flags[flag].nargs if flag in self.flags else "*"
        if nargs in ("+", "*"):
            return _MANY
        return 0 if nargs == 0 else 1

    def typed_values(self, words: Sequence[str]) -> list[tuple[str, list[str]]]:
        """(name, what it takes) of every known flag among the words, in their order."""
        typed = [(name_of(group), values_of(group)) for group in self.groups(words)]
        return [(name, values) for name, values in typed if name in self.flags]

    def flag_taking(self, words: Sequence[str], value: str) -> str:
        """The flag that takes this word, or a list with commas that has it; "" where none does, or several do."""
        names: list[str] = []
        if not value:
            return ""
        for name, values in self.typed_values(words):
            if value in [*values, *",".join(values).split(",")]:
                names.append(name)
        return names[0] if len(names) == 1 else ""

    def without(self, words: Sequence[str], names: Sequence[str]) -> list[str]:
        """The words without these flags and what they take."""
        unwanted = [self.flags.get(name, name) for name in names]
        groups = self.groups(words)
        return _joined(group for group in groups if self.flags.get(name_of(group), name_of(group)) not in unwanted)

    def with_flags_replaced(self, words: Sequence[str], names: Sequence[str], right: Sequence[str]) -> list[str]:
        """The words with others in place of these flags and what they take; at the end where none of the flags is there."""
        unwanted = [self.flags.get(name, name) for name in names]
        before: list[str] = []
        after: list[str] = []
        part = before
        for group in self.groups(words):
            if self.flags.get(name_of(group), name_of(group)) in unwanted:
                part = after
            else:
                part += group
        return [*before, *right, *after]

    def with_value_replaced(self, words: Sequence[str], wrong: str, right: str, flag: str = "") -> list[str]:
        """The words with another value in place of a wrong one, also in a list with commas; "" leaves it out, with its flag if it
        has no other value. flag: whose value it is, "" for any."""
        replaced: list[str] = []
        for group in self.groups(words):
            if flag in self.flags and self.flags.get(name_of(group)) is not self.flags[flag]:
                replaced += group
                continue
            others = [_with_part_replaced(word, wrong, right) for word in group]
            left = [word for word, typed in zip(others, group, strict=True) if word or not typed]
            is_bare_flag = len(left) == 1 and len(group) > 1 and group[0] in self.flags
            is_cut_short = left[:1] != group[:1] and left[:1] == [f"{name_of(group)}="]
            replaced += [] if is_bare_flag or is_cut_short else left
        return replaced

    def with_group_replaced(self, words: Sequence[str], group: list[str], right: Sequence[str]) -> list[str]:
        """The words with others in place of a flag and what it takes."""
        return _joined(right if one == group else one for one in self.groups(words))

    def with_runs_first(self, words: Sequence[str]) -> list[str]:
        """The words, those that no flag takes before the flags."""
        return _joined(sorted(self.groups(words), key=lambda group: group[0][:1] == "-"))

    def words_listed(self, flag: str) -> list[str]:
        """The words that a flag takes: its choices, or those that its help begins with, `cpu, gpu, all (cpu)`."""
        action = self.flags[flag]
        if action.choices:
            return [str(choice) for choice in action.choices]
        if action.metavar not in _LISTING:
            return []
        listed = re.split(r" //|[(;]", action.help or "")[0]
        return re.findall(r"[a-z][\w-]*", listed.partition(": ")[2] or listed)

    def flag_listing(self, word: str, names: Sequence[str] = ()) -> list[str]:
        """A flag with this word as its value, [--device, cpu], by the words that the flag takes; [] without.

        names: the flags to look at, by default all.
        """
        for name in names or self.flags:
            listed = self.words_listed(name) if name.startswith("--") else []
            meant = nearest(word, listed, 0.99)
            if meant and not listed_in_many(meant):
                return [name, meant]
        return []

    def example(self, flag: str) -> list[str]:
        """The words that a flag takes in an example that can be typed here; none where it takes or shows no value."""
        action = self.flags[flag]
        shown = _example_value(action) or next(iter(self.words_listed(flag)), "")
        if action.nargs == 0 or not shown:
            return []
        return [near(shown)] if os.path.isabs(shown) else shown.split()


def name_of(group: Sequence[str]) -> str:
    """The flag of a group of words, or a word that no flag takes."""
    return group[0].partition("=")[0]


def values_of(group: Sequence[str]) -> list[str]:
    """The words that the flag of a group takes."""
    _, equals, joined = group[0].partition("=")
    return [joined] if equals else list(group[1:])


def _joined(groups: Iterable[Sequence[str]]) -> list[str]:
    return list(itertools.chain.from_iterable(groups))


def _with_part_replaced(word: str, wrong: str, right: str) -> str:
    """A word, or the part of a list with commas, replaced; no folder of a path."""
    if word == wrong:
        return right
    if not right:
        name, equals, values = word.rpartition("=")
        return f"{name}{equals}" + ",".join(part for part in values.split(",") if part != wrong)
    return re.sub(rf"(?<![\w./-]){re.escape(wrong)}(?![\w./-])", lambda _: right, word)


def listed_in_many(word: str) -> bool:
    """Whether many flags take this word, so that it says nothing of which."""
    return word.lower() in ("all", "yes", "no", "true", "false", "on", "off", "auto", "default", "any", "none")


def is_run(word: str) -> bool:
    """Whether a word is a path that is there, or the name of a machine whose rows are stored."""
    return bool(word) and (os.path.exists(word) or os.path.exists(REPORTS / word))


def _example_value(action: argparse.Action) -> str:
    """A value that a flag takes: its default, the first of its choices, or one that its help shows; "" where these have none."""
    if isinstance(action.default, list):
        return " ".join(action.default)
    if action.default is not None:
        return str(action.default)
    if action.choices:
        return str(next(iter(action.choices)))
    if action.metavar in _RUNS:
        return stored_runs.run_named(str(action.metavar))
    shown = _SHOWN.search("%".join((action.help or "").split("%%")))
    if shown:
        return shown[1] or shown[2]
    by_name = [_BY_FLAG[name] for name in action.option_strings if name in _BY_FLAG]
    return by_name[0] if by_name else _EXAMPLES.get(str(action.metavar), "")


def as_typed_here(words: Sequence[str], flags: Mapping[str, object]) -> list[str]:
    """The words as they are typed here: with the letters of a keyboard, two dashes before a flag, / in a path, a blank or one =
    between a flag and its value, blanks between flags, a range or a number as one word."""
    plain: list[str] = []
    for word in words:
        if not os.path.lexists(word):
            word = word.translate(_PLAIN_LETTERS)
        plain += re.split(r",(?=--[a-z])", word)
    typed: list[str] = []
    for word in map(_with_slashes, plain):
        before = typed[-1] if typed else ""
        dashed = re.fullmatch(rf"(?:-|[{DASHES[1:]}]-?)([a-z][\w-]+)(.*)", word)
        joined = re.fullmatch(r"(--[a-z-]*[a-z])(?::|(?=\d))(\w[\w.%:-]*)", word)
        if dashed and f"--{dashed[1]}" in flags:
            typed.append(f"--{dashed[1]}{dashed[2]}")
        elif before in flags and word[:1] == "=":
            typed += [word[1:]] if word[1:] else []
        elif word[-1:] in ("=", ":") and word[:-1] in flags and word != plain[-1]:
            typed.append(word[:-1])
        elif joined and joined[1] in flags and word not in flags:
            typed += [joined[1], joined[2]]
        else:
            typed.append(word)
    for place in range(1, len(typed)):
        if typed[place] == "000" and typed[place - 1].isdecimal():
            return [*typed[: place - 1], f"{typed[place - 1]}000", *typed[place + 1 :]]
    for place in range(1, len(typed) - 1):
        first = typed[place - 1]
        last = typed[place + 1]
        if typed[place] in ("to", "..", "...", "-", ":") and first[:1].isdigit() and last[:1].isdigit():
            return [*typed[: place - 1], f"{first}:{last}", *typed[place + 2 :]]
    return typed


def _with_slashes(word: str) -> str:
    """A path as Windows writes it, `models\\net.py:build`, with the slashes of this system; any other word as it is."""
    is_path = re.fullmatch(r"(?:[A-Za-z]:)?[\w .-]*(?:\\[\w .:-]+)+", word)
    if not is_path or os.path.lexists(word):
        return word
    slashed = "/".join(word.split("\\"))
    drive = re.match(r"([A-Za-z]):/", slashed)
    return f"/mnt/{drive[1].lower()}/{slashed[3:]}" if drive else slashed
