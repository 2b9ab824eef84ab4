"""Corrects the words of a command: flags or values replaced, left out or given to the flag that takes them, and what stands for a
value that is not known. It imports the standard library and the ground of `workloads`."""

import argparse
import itertools
import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from workloads import REPORTS
from workloads.corrections import runs
from workloads.corrections.likeness import DASHES, closest, usual_name
from workloads.corrections.other_flags import MIXED
from workloads.stops import MISSING, Stop
from workloads.terminal import near

PLACE = "crossover-results"  # the folder that a hint names where another cannot be written
QUOTES = "“”„‟‘’‚‛«»"  # typographic ones, which come from pages too
_PLAIN_LETTERS = str.maketrans({"×": "x", "✕": "x", "−": "-", "\N{NO-BREAK SPACE}": " ", **dict.fromkeys(QUOTES, "")})

# By a flag or by what it takes, where neither its default nor its help shows a value.
_EXAMPLES = {
    "--backends": "numpy",
    "--model": "cifar10-cnn",
    "--save": "before",
    "--threads": "1",
    "BYTES": "64KiB",
    "CALL": "step",
    "DEV": "cpu",
    "DIR": PLACE,
    "ID": "S4",
    "KIND": "pinned",
    "MODE": "resident",
    "MONEY": "3.50",
    "N": "10",
    "PART": "copies",
    "RULE": "slower>5%",
    "S": "60",
    "TYPE": "float32",
    "WAY": "both",
    "WHERE": "auto",
    "WORD": "on",
    "WORKLOAD": "matmul",
}
_WHOLE_NUMBERS = ("N", "BYTES")  # what flags take that take these
_BY_ITSELF = ("auto", "default", "any", "none")  # what other programs take for no value
_IN_MANY_FLAGS = ("all", "yes", "no", "true", "false", "on", "off", *_BY_ITSELF)
_LISTING = (
    "CALL",
    "DEV",
    "LAYOUT",
    "MODE",
    "OP",
    "STATE",
    "TYPE",
    "WAY",
    "WORD",
)  # flags whose help begins with the words that they take
_NAMES_OF_RUNS = ("RUN", "OLD", "NEW")  # in the usage of commands
# `such as 50000`, `like 64k`, `(32)`, `(default 64:2048:x2)` in a flag's help.
_SHOWN = re.compile(r"\b(?:such as|like) '?([\w.:+*>%-]+)|\((?:default:? )?(?!none)([\w.:-]+)\)")


Flags = Mapping[str, argparse.Action]  # a parser's flags by every name


def split(words: Sequence[str], passes_on: bool) -> tuple[list[str], list[str]]:
    """The words of a command; `--` and the words behind it, if the command passes them on to another program."""
    place = list(words).index("--") if passes_on and "--" in words else len(words)
    return list(words[:place]), list(words[place:])


def with_two_dashes(word: str, flags: Flags) -> str:
    """A flag that was typed with one dash, or one that a page printed for two, with both; any other word as it is."""
    dashed = re.match(rf"(?:-|[{DASHES[1:]}]-?)([a-z][\w-]+)", word)
    if dashed and f"--{dashed[1]}" in flags:
        return f"--{dashed[1]}{word[dashed.end() :]}"
    return word


def corrected(words: Sequence[str], stop: Stop, flags: Flags, *, takes_runs: bool = False) -> list[str]:
    """The words of a command with `stop.right` in place of `stop.wrong`.

    stop.wrong: flags, which go with what they take; a word, in a list of words too; None where something lacks, which comes last.
    stop.right: words as a shell takes them; "" where the wrong word is to be left out. A flag that takes no other then gets
    `stop.fallback`, else the value that its help shows; it goes only where there is none.
    takes_runs: whether the command takes runs without a flag; they stay where an unknown flag before them is left out.
    """
    wrong, right = stop.wrong, stop.right
    if wrong is None:
        return [*words, *shlex.split(right)]
    names = wrong.split()
    if names and flags.keys() >= set(names):
        return _with_flags_replaced(words, names, shlex.split(right), flags)
    if not right:
        return _without_value(words, stop, flags, takes_runs=takes_runs)
    if right.startswith("--") and wrong in words:
        return _as_flag(words, wrong, right, flags)
    if not wrong:
        return [right if word == "" else word for word in words]
    if stop.flag not in flags:
        return [_with_part_replaced(word, wrong, right) for word in words]
    replaced: list[str] = []
    for group in _groups(words, flags):
        if flags.get(_name(group)) is flags[stop.flag]:
            group = [_with_part_replaced(word, wrong, right) for word in group]
        replaced += group
    return replaced


def _with_part_replaced(word: str, wrong: str, right: str) -> str:
    """A word, or the part of a list with commas, replaced; no folder of a path."""
    if word == wrong:
        return right
    return re.sub(rf"(?<![\w./-]){re.escape(wrong)}(?![\w./-])", lambda _: right, word)


def without(words: Sequence[str], names: Sequence[str], flags: Flags) -> list[str]:
    """The words of a command without these flags and what they take."""
    unwanted = [flags.get(name, name) for name in names]
    left: list[str] = []
    for group in _groups(words, flags):
        if flags.get(_name(group), _name(group)) not in unwanted:
            left += group
    return left


def with_one_flag_changed(words: Sequence[str], name: str, flags: Flags) -> list[list[str]]:
    """The words with a value that works in place of those of one flag, then the words without one flag; in the order that the
    flags are typed in. name: the flag, or "" for any."""
    typed_flags: dict[str, list[str]] = {}
    for typed_name, action, values in by_flag(words, flags):
        if not name or action is flags.get(name):
            typed_flags[typed_name] = values
    changed = []
    for typed_name, values in typed_flags.items():
        value = example(flags[typed_name])
        if value and value != values:
            changed.append(_with_flags_replaced(words, [typed_name], [typed_name, *value], flags))
    for typed_name in typed_flags:
        changed.append(without(words, [typed_name], flags))
    return changed


def _with_flags_replaced(words: Sequence[str], names: Sequence[str], right: list[str], flags: Flags) -> list[str]:
    """The words with `right` in place of these flags and what they take; at the end where none of the flags is there."""
    unwanted = [flags[name] for name in names]
    before: list[str] = []
    after: list[str] = []
    part = before
    for group in _groups(words, flags):
        if flags.get(_name(group)) in unwanted:
            part = after
        else:
            part += group
    return [*before, *right, *after]


def _name(group: Sequence[str]) -> str:
    """The flag of a group of words, or a word that no flag takes."""
    return group[0].partition("=")[0]


def _values(group: Sequence[str]) -> list[str]:
    """The words that the flag of a group takes."""
    _, equals, joined = group[0].partition("=")
    return [joined] if equals else list(group[1:])


def by_flag(words: Sequence[str], flags: Flags) -> Iterator[tuple[str, argparse.Action, list[str]]]:
    """(name, flag, what it takes) of every known flag among the words, in their order."""
    for group in _groups(words, flags):
        if _name(group) in flags:
            yield _name(group), flags[_name(group)], _values(group)


def flag_taking(words: Sequence[str], value: str, flags: Flags) -> str:
    """The flag that takes this word, or a list with commas that has it; "" where none does, or several do."""
    names = []
    for name, _, values in by_flag(words, flags):
        listed = [*values, *",".join(values).split(",")]
        if value in listed:
            names.append(name)
    return names[0] if len(names) == 1 else ""


def flag_without_word(words: Sequence[str], flags: Flags) -> str:
    """The first flag that takes one word, of any kind, and has an empty one; "" without one."""
    for name, action, values in by_flag(words, flags):
        if action.choices is None and action.nargs in (None, "?") and values == [""]:
            return name
    return ""


def second_value(words: Sequence[str], flags: Flags) -> tuple[str, list[str]]:
    """(a flag that takes one value and is there twice with different ones, these values); ("", []) without one."""
    by_action: dict[argparse.Action, list[str]] = {}
    for name, action, values in by_flag(words, flags):
        if action.nargs not in (None, "?"):
            continue
        taken = by_action.setdefault(action, [])
        taken += values
        if len(set(taken)) > 1:
            return name, taken
    return "", []


def numbers_beyond_one(words: Sequence[str], flags: Flags) -> tuple[str, list[str], list[str]]:
    """(a flag that takes one number and has several behind it, these numbers, the words without all but the first); ("", [], [])
    without one."""
    groups = list(_groups(words, flags))
    for position, group in enumerate(groups):
        action = flags.get(_name(group))
        first = _values(group)
        if action is None or action.nargs is not None or len(first) != 1 or not first[0].isdecimal():
            continue
        end = position + 1
        while end < len(groups) and groups[end][0].isdecimal() and not os.path.exists(groups[end][0]):
            end += 1
        more = [one[0] for one in groups[position + 1 : end]]
        if more:
            left = groups[: position + 1] + groups[end:]
            return _name(group), [*first, *more], list(itertools.chain.from_iterable(left))
    return "", [], []


def with_plain_letters(word: str) -> str:
    """A word without the letters that pages have for others: typographic quotes, and × for x."""
    return word.translate(_PLAIN_LETTERS)


def with_slashes(word: str) -> str:
    """A path as Windows writes it, `models\\net.py:build`, with the slashes of this system; "" of any other word."""
    is_path = re.fullmatch(r"(?:[A-Za-z]:)?[\w .-]*(?:\\[\w .:-]+)+", word)
    if not is_path or os.path.lexists(word):
        return ""
    slashed = "/".join(word.split("\\"))
    drive = re.match(r"([A-Za-z]):/", slashed)
    return f"/mnt/{drive[1].lower()}/{slashed[3:]}" if drive else slashed


def range_in_words(words: Sequence[str]) -> int | None:
    """The place of the first of three words that mean a range, 64 to 4096; None without them."""
    for position, word in enumerate(words[:-2]):
        between, last = words[position + 1 : position + 3]
        if between in ("to", "..", "...", "-", ":") and word[:1].isdigit() and last[:1].isdigit():
            return position
    return None


def flag_listing(word: str, flags: Flags) -> str:
    """The flag with this word as its value, `--device cpu`, if a flag's list of values has the word; "" without."""
    if word.lower() in _IN_MANY_FLAGS:
        return ""
    policy = MIXED.get(word.lower(), "")
    if policy and "--precision" in flags:
        return f"--precision {policy}"
    for name, action in flags.items():
        listed = action.choices or ()
        if action.metavar in _LISTING:
            listed = re.findall(r"[\w-]+", (action.help or "").partition("(")[0])
        meant = closest(word, listed, 0.99)
        if meant and meant in (word.lower(), usual_name(word.lower())) and name.startswith("--"):
            return f"{name} {meant}"
    return ""


def flag_named(word: str, flags: Flags) -> str:
    """The flag that a word without dashes names, and that takes no value: `fast` is --fast; "" where none is named so."""
    name = f"--{word.lower()}"
    action = flags.get(name)
    return name if action is not None and action.nargs == 0 else ""


def flag_of_letter(letter: str, value: str, flags: Flags, brief_flags: Sequence[str]) -> str:
    """The flag that a single letter stands for: one that begins with it and takes the value that follows, or none where none
    follows; `brief_flags` come first, those whose list has the value before them. "" without one."""
    if len(letter) != 1:
        return ""
    names = [name for name in (*brief_flags, *flags) if name.startswith(f"--{letter}")]
    fitting = [name for name in names if (flags[name].nargs == 0) != bool(value)]
    if value.isdecimal():
        fitting = [name for name in fitting if flags[name].metavar in _WHOLE_NUMBERS]
    listing = [name for name in fitting if value and flag_listing(value, {name: flags[name]})]
    return next(iter([*listing, *fitting]), "")


def passed_on(words: Sequence[str], flags: Flags) -> tuple[list[str], list[str]]:
    """(the words of a command, those without a flag first and without unknown flags; the unknown flags and what they take, which
    are for another program)."""
    runs_named: list[str] = []
    before: list[str] = []
    after: list[str] = []
    for group in _groups(words, flags, takes_runs=True):
        is_unknown = group[0][:1] == "-" and _name(group) not in flags
        if is_unknown:
            after += group
        elif group[0][:1] == "-":
            before += group
        else:
            runs_named += group
    return [*runs_named, *before], after


def behind_first_run(words: Sequence[str], position: int, flags: Flags) -> list[str]:
    """The words with the run at this place moved behind the first one; [] where it is no run, or the only one."""
    if not is_run(words[position]):
        return []
    place = 0
    for group in _groups(words[:position], flags):
        place += len(group)
        if group[0][:1] != "-" and is_run(group[0]):
            return [*words[:place], words[position], *words[place:position], *words[position + 1 :]]
    return []


def script_before(words: Sequence[str]) -> str:
    """The training script among these words; "" without one."""
    return next((word for word in words if word.endswith((".py", ".ipynb"))), "")


def value_of_another_flag(words: Sequence[str], stop: Stop, flags: Flags) -> str:
    """The flag that the wrong word of a Stop is a value or the name of, with this value; "" without, or if that flag is there."""
    if not stop.wrong or stop.right or stop.code == MISSING or (stop.wrong in words and stop.wrong[:1] == "-"):
        return ""
    right = flag_named(stop.wrong, flags) or flag_listing(stop.wrong, flags)
    flag = flags.get(right.split(" ")[0])
    typed = [action for _, action, _ in by_flag(words, flags)]
    return "" if flag is None or flag in typed else right


def _without_value(words: Sequence[str], stop: Stop, flags: Flags, *, takes_runs: bool) -> list[str]:
    """The words of a command without a value. A flag that takes no other gets another value, or goes where there is none; a value
    that is another flag's goes there."""
    value = stop.wrong or ""
    moved = value_of_another_flag(words, stop, flags)
    left: list[str] = []
    for head, *values in _groups(words, flags, takes_runs):
        name, equals, joined = head.partition("=")
        if value in (head, name):
            continue
        if stop.flag in flags and flags.get(name) is not flags[stop.flag]:
            left += [head, *values]
            continue
        if equals:
            values = [joined]
        others = [rest for rest in map(_without_part, values, [value] * len(values)) if rest]
        if values and not others and not moved:
            others = _in_place_of(value, flags.get(name), stop.fallback)
        if values and not others:
            continue
        left += [f"{name}={others[0]}"] if equals else [head, *others]
    return [*left, *moved.split()]


def _in_place_of(value: str, flag: argparse.Action | None, fallback: str) -> list[str]:
    """The words that a flag gets in place of a wrong value; none where it shows no other, and of an unknown flag."""
    if flag is None or (value.lower() in _BY_ITSELF and flag.default is None):
        return []
    right = [fallback] if fallback and flag.default is None else example(flag)
    return [] if value in right else right


def example(flag: argparse.Action) -> list[str]:
    """The words that a flag takes in an example that can be typed here; none where it shows no value."""
    shown = _example_value(flag)
    return [near(shown)] if os.path.isabs(shown) else shown.split()


def _without_part(word: str, value: str) -> str:
    """A list with commas without one of its words."""
    if value == word:
        return ""
    return ",".join(part for part in word.split(",") if part != value)


def _as_flag(words: Sequence[str], wrong: str, right: str, flags: Flags) -> list[str]:
    """The words with a flag and its value in place of a word that no flag takes."""
    places = [i for i, word in enumerate(words) if word == wrong]
    place = min(places, key=lambda i: words[max(i, 1) - 1] in flags)
    return [*words[:place], *shlex.split(right), *words[place + 1 :]]


def _groups(words: Sequence[str], flags: Flags, takes_runs: bool = False) -> list[list[str]]:
    """The words, those that a flag takes together with it; an unknown flag takes all words up to the next one, or up to the
    first run where the command `takes_runs`."""
    groups: list[list[str]] = []
    room = 0  # words that the last flag may still take
    for word in words:
        if room and takes_runs and groups[-1][0] not in flags and is_run(word):
            room = 0
        if re.match(r"-\D", word):
            groups.append([word])
            room = 0 if "=" in word else _most_values(word, flags)
        elif room:
            groups[-1].append(word)
            room -= 1
        else:
            groups.append([word])
    return groups


def has_new_words(words: Sequence[str], before: Sequence[str]) -> bool:
    """Whether some of these words, or of the parts of their lists, were not there before, or fewer times."""
    parts = Counter(re.split("[ ,=]+", " ".join(words)))
    parts_before = Counter(re.split("[ ,=]+", " ".join(before)))
    del parts[""]
    return not parts <= parts_before


def has_run_like(words: Sequence[str], run: str) -> bool:
    """Whether a run is among these words, as any path to it."""
    return any(os.path.realpath(word) == os.path.realpath(run) for word in words)


def is_run(word: str) -> bool:
    """Whether a word is a path that is there, or the name of a machine whose rows are stored."""
    return bool(word) and (os.path.exists(word) or os.path.exists(REPORTS / word))


def _most_values(flag: str, flags: Flags) -> int:
    many = 1_000
    if flag not in flags:
        return many
    nargs = flags[flag].nargs
    if nargs in ("+", "*"):
        return many
    return 0 if nargs == 0 else 1


def _example_value(action: argparse.Action) -> str:
    """A value that a flag takes: its default, the first of its choices, or one that its help shows; "" where these have none."""
    if action.nargs == 0:
        return ""
    if isinstance(action.default, list):
        return " ".join(action.default)
    if action.default is not None:
        return str(action.default)
    if action.choices:
        return str(next(iter(action.choices)))
    if action.metavar in _NAMES_OF_RUNS:
        return runs.run_named(str(action.metavar))
    shown = _SHOWN.search("%".join((action.help or "").split("%%")))
    if shown:
        return shown[1] or shown[2]
    names = [*action.option_strings, str(action.metavar)]
    known = [_EXAMPLES[name] for name in names if name in _EXAMPLES]
    return known[0] if known else ""
