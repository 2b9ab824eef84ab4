"""One value in place of several flags, as other tools have one for each number of a shape or a range: -m 64 -n 64 -k 32 is
--shapes 64x64x32, --min 8 --max 64 is --sizes 8:64:x2. Standard library only."""

import re
from collections.abc import Iterator, Sequence

from workloads.corrections.grammar import Grammar, name_of, values_of
from workloads.corrections.nearest import DASHES, plain, synonyms

_PART = re.compile("[A-Z]|first|last|step|factor")  # in the form of a value, NxHxWxC:KxRxS
_RANGES = ("first:last:+step", "first:last:xfactor")


def joined(words: Sequence[str], grammar: Grammar) -> Iterator[tuple[list[str], bool]]:
    """(the words with one flag for the parts of its value, whether an example stands for one that was not typed)."""
    forms = [("--sizes", form) for form in _RANGES]
    if "--shapes" in grammar.flags:
        forms.append(("--shapes", str(grammar.flags["--shapes"].metavar)))
    for flag, form in forms:
        parts = _PART.findall(form)
        numbers, others = _numbers_typed(words, flag, parts, grammar)
        shown = re.findall(r"\d+", " ".join(grammar.example(flag))) if flag == "--shapes" else []
        usual = dict(zip(parts, shown, strict=False)) if shown else {"factor": "2"}
        lacking = set(parts) - numbers.keys()
        if flag in grammar.flags and len(numbers) > 1 and usual.keys() >= lacking:
            every = [{**usual, **numbers}[part] for part in parts]
            value = _PART.sub("{}", form).format(*every)
            yield [*others, flag, value], bool(lacking - {"factor"})


def _numbers_typed(
    words: Sequence[str], flag: str, parts: Sequence[str], grammar: Grammar
) -> tuple[dict[str, str], list[str]]:
    """(part -> its number among unknown flags, or in a value of the flag that has too few of them; the other words)."""
    numbers: dict[str, str] = {}
    others: list[str] = []
    for group in grammar.groups(words):
        typed = re.findall(r"\d+[kmg]?i?b?", ",".join(values_of(group)), re.IGNORECASE)
        meant: list[str] = []
        if name_of(group) in (flag, flag[:-1]) and 1 < len(typed) < len(parts):
            meant = list(parts[4 - len(typed) : 4])  # 32x32x3 is one image, 8x32x32x3 are eight
        elif group[0][:1] in DASHES and name_of(group) not in grammar.flags and typed:
            meant = _parts_meant(plain(name_of(group)), parts)
            typed += typed[-1:]  # 3 is a window of 3 x 3
        numbers |= dict(zip(meant, typed, strict=False))
        if not meant:
            others += group
    return numbers, others


def _parts_meant(name: str, parts: Sequence[str]) -> list[str]:
    """The parts that a flag of another tool stands for: R and S of --kernel-size."""
    for part in (name, name.upper(), *synonyms(name)):
        if part in parts:
            return [part]
        if part.isupper() and set(part) <= set(parts):
            return list(part)
    return []
