"""Corrects the words of a command: the known word that was meant, flags or values replaced or left out, and what stands for a
value or a run that is not known. Standard library only."""

import argparse
import difflib
import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path, PurePath

from workloads import REPORTS, ROOT
from workloads.terminal import near

DASHES = "-–—"  # the last two come from pages that print two dashes as one
QUOTES = "“”„‟‘’‚‛«»"  # typographic ones, which come from pages too
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,9}|e\d)?)(?:(?:\^|\*\*)(\d{1,2})|([kmgt])i?b?)?")
# Names that other tools give to what is known here by another word.
ALIASES = {
    "half": "float16",
    "single": "float32",
    "float": "float32",
    "double": "float64",
    "e4m3": "float8_e4m3",
    "mixed_half": "mixed_float16",
    "true": "on",
    "yes": "on",
    "false": "off",
    "no": "off",
    "cuda": "gpu",
    "precision": "dtypes",
    "markdown": "md",
    "text": "table",
    "yaml": "json",
    "toml": "json",
    "xml": "json",
    "html": "md",
    "tsv": "csv",
    "excel": "csv",
    "xlsx": "csv",
}
STORED_RUNS = "reports/nvidia-h200/suite", "reports/nvidia-h200/ladder"  # of one machine
LOCAL = REPORTS / "local"  # MACHINE/TIME/*.jsonl, and the saved baselines
SAVED = LOCAL / "saved"
PLACE = "crossover-results"  # the folder that a hint names where another cannot be written
# By a flag or by what it takes, where neither its default nor its help shows a value.
_EXAMPLES = {
    "--backends": "numpy",
    "--model": "cifar10-cnn",
    "--save": "before",
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
_TIMED = re.compile(rb'"seconds":\[\d')  # in a line of a result file
_NAMES_OF_RUNS = ("RUN", "OLD", "NEW")  # in the usage of commands
# `such as 50000`, `like 64k`, `(32)`, `(default 64:2048:x2)` in a flag's help.
_SHOWN = re.compile(r"\b(?:such as|like) '?([\w.:+*>%-]+)|\((?:default:? )?(?!none)([\w.:-]+)\)")


def closest(word: str, known: Iterable[str], likeness: float = 0.65) -> str:
    """The known word that is an alias of `word`, begins with it, contains it, or is most similar to it; "" without one."""
    by_small = {name.lower().lstrip("-"): name for name in known}
    plain = word.lower().lstrip(DASHES)
    small = usual_name(plain)
    if small in by_small:
        return by_small[small]
    containing = sorted((name for name in by_small if len(small) > 2 and small in name), key=len)
    beginning = [name for name in containing if name.startswith(small)]
    near = beginning or containing
    if not near and small == plain:  # what has another name here, and is not known, is like no other
        near = difflib.get_close_matches(small, by_small, 1, likeness)
    return by_small[near[0]] if near else ""


def usual_name(word: str) -> str:
    """A word without its device number, by the name that it has here: `cuda:0` is gpu, `bf16` bfloat16."""
    numbered = re.fullmatch(r"(b?)fp?(\d+)", word)
    if numbered:
        word = f"{numbered[1]}float{numbered[2]}"
    return ALIASES.get(word.partition(":")[0], word)


def similar_path(text: str) -> str:
    """The path that is there and most like this one; "" where none is."""
    path = PurePath(text)
    similar = Path(path.anchor)
    for part in path.relative_to(path.anchor).parts:
        near = part
        try:
            if not (similar / part).exists():
                near = closest(part, os.listdir(similar) if similar.is_dir() else (), 0.75)
        except OSError:  # a folder that may not be looked into
            near = ""
        if not near:
            return ""
        similar /= near
    return str(similar)


def meant_number(word: str, units: Mapping[str, int], several: bool = False) -> str:
    """The number in a word that is no size; `several`: the doubling range between its first two. "" without one."""
    digits = re.sub(r"(?<=\d)[.,'](?=\d{3}(?!\d))", "", word.lower())  # 50.000
    if "b" not in units:
        digits = re.sub(r"(?<=\d)[kmgt]?i?b(?:ytes?)?(?![a-z])", "", digits)  # 64MB, where no bytes are counted
    if re.search(r"\d{16}", digits):  # too large
        return ""
    numbers = []
    for base, power, unit in _SIZE.findall(digits):
        numbers.append(int(float(base) * units.get(unit, 1)) ** int(power or 1))
    ends = sorted({n for n in numbers[: 2 if several else 1] if 0 < n < 1 << 60})
    if numbers and not ends:
        return "1" if max(numbers) < 1 << 60 else ""
    return ":".join(map(str, ends)) + (":x2" if len(ends) > 1 else "")


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


def corrected(
    words: Sequence[str], wrong: str | None, right: str, flags: Flags, *, fallback: str = "", takes_runs: bool = False
) -> list[str]:
    """The words of a command with `right` in place of `wrong`.

    wrong: flags, which go with what they take; a word, in a list of words too; None where something lacks, which comes last.
    right: words as a shell takes them; "" where the wrong word is to be left out. A flag that takes no other then gets
    `fallback`, else the value that its help shows; it goes only where there is none.
    takes_runs: whether the command takes runs without a flag; they stay where an unknown flag before them is left out.
    """
    if wrong is None:
        return [*words, *shlex.split(right)]
    names = wrong.split()
    if names and flags.keys() >= set(names):
        return _with_flags_replaced(words, names, shlex.split(right), flags)
    if not right:
        return _without_value(words, wrong, flags, fallback=fallback, takes_runs=takes_runs)
    if right.startswith("--") and wrong in words:
        return _as_flag(words, wrong, right, flags)
    if not wrong:
        return [right if word == "" else word for word in words]
    part = re.compile(rf"(?<![\w.-]){re.escape(wrong)}(?![\w.-])")
    return [right if word == wrong else part.sub(lambda _: right, word) for word in words]


def without(words: Sequence[str], names: Sequence[str], flags: Flags) -> list[str]:
    """The words of a command without these flags and what they take."""
    unwanted = [flags.get(name, name) for name in names]
    left: list[str] = []
    for group in _groups(words, flags):
        if flags.get(_name(group), _name(group)) not in unwanted:
            left += group
    return left


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


def _by_flag(words: Sequence[str], flags: Flags) -> Iterator[tuple[str, argparse.Action, list[str]]]:
    """(name, flag, what it takes) of every known flag among the words, in their order."""
    for group in _groups(words, flags):
        if _name(group) in flags:
            yield _name(group), flags[_name(group)], _values(group)


def flag_taking(words: Sequence[str], value: str, flags: Flags) -> str:
    """The flag that takes this word, or a list with commas that has it; "" where none does, or several do."""
    names = []
    for name, _, values in _by_flag(words, flags):
        listed = [*values, *",".join(values).split(",")]
        if value in listed:
            names.append(name)
    return names[0] if len(names) == 1 else ""


def second_value(words: Sequence[str], flags: Flags) -> tuple[str, list[str]]:
    """(a flag that takes one value and has two different ones among the words, these values); ("", []) without one."""
    by_action: dict[argparse.Action, list[str]] = {}
    for name, action, values in _by_flag(words, flags):
        if action.nargs not in (None, "?"):
            continue
        taken = by_action.setdefault(action, [])
        taken += values
        if len(set(taken)) > 1:
            return name, taken
    return "", []


def _without_value(words: Sequence[str], value: str, flags: Flags, *, fallback: str, takes_runs: bool) -> list[str]:
    """The words of a command without a value. A flag that takes no other gets another value, or goes where there is none."""
    left: list[str] = []
    for head, *values in _groups(words, flags, takes_runs):
        name, equals, joined = head.partition("=")
        if value in (head, name):
            continue
        if equals:
            values = [joined]
        others = [rest for rest in map(_without_part, values, [value] * len(values)) if rest]
        if values and not others:
            others = _in_place_of(value, flags.get(name), fallback)
        if values and not others:
            continue
        left += [f"{name}={others[0]}"] if equals else [head, *others]
    return left


def _in_place_of(value: str, flag: argparse.Action | None, fallback: str) -> list[str]:
    """The words that a flag gets in place of a wrong value; none where it shows no other, and of an unknown flag."""
    if flag is None:
        return []
    right = [fallback] if fallback else example(flag)
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
    return [*words[:place], *right.split(" ", 1), *words[place + 1 :]]


def _groups(words: Sequence[str], flags: Flags, takes_runs: bool = False) -> list[list[str]]:
    """The words, those that a flag takes together with it; an unknown flag takes all words up to the next one, or up to the
    first run where the command `takes_runs`."""
    groups: list[list[str]] = []
    room = 0  # words that the last flag may still take
    for word in words:
        if room and takes_runs and groups[-1][0] not in flags and _is_run(word):
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


def _is_run(word: str) -> bool:
    """Whether a word is a path that is there, or the name of a machine whose rows are stored."""
    return os.path.exists(word) or (REPORTS / word).exists()


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
        return run_named(str(action.metavar))
    shown = _SHOWN.search("%".join((action.help or "").split("%%")))
    if shown:
        return shown[1] or shown[2]
    names = [*action.option_strings, str(action.metavar)]
    known = [_EXAMPLES[name] for name in names if name in _EXAMPLES]
    return known[0] if known else ""


def run_named(name: str) -> str:
    """The folder that stands for OLD, NEW or another name of a run in the usage of a command."""
    if name in ("OLD", "NEW"):
        new, old = _two_runs()
        return old if name == "OLD" else new
    return any_run()


def any_run() -> str:
    """The folder of this machine's newest run, else of one that comes with the project."""
    newest = next(local_files(), None)
    return str(newest.parent) if newest else stored_run()


def _two_runs() -> tuple[str, str]:
    """Two runs of one machine, the newer one first: this machine's two newest of one workload, else two that come with the
    project."""
    newer: dict[tuple[Path, str], Path] = {}  # (machine, workload) -> file
    for file in local_files():
        key = file.parent.parent, file.name
        if key in newer:
            return str(newer[key].parent), str(file.parent)
        newer[key] = file
    return stored_run(1), stored_run(0)


def local_folder() -> str:
    """The folder of this machine's runs, as the help of a flag has it: that of the checkout whose packages these are, else one in
    the user's data."""
    return "%%".join(near(LOCAL).split("%"))


def local_files(workload: str = "*") -> Iterator[Path]:
    """The result files of this machine that have a timed row, the newest first; of one workload where it is named."""
    files = [file for file in LOCAL.glob(f"*/*/{workload}.jsonl") if file.parent.parent != SAVED]
    for file in sorted(files, key=lambda file: file.stat().st_mtime, reverse=True):
        if _TIMED.search(file.read_bytes()):
            yield file


def stored_run(position: int = 0) -> str:
    """The folder of a run that comes with the project; the second is of the same machine as the first."""
    return str(ROOT / STORED_RUNS[position])
