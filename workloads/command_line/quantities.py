"""The grammar of numbers in flags: sizes and their ranges, bytes, seconds, shares; and what a word that is none means. Standard
library only."""

import argparse
import re
from collections.abc import Mapping, Sequence

from workloads import terminal
from workloads.stops import Usage

MOST_SIZES = 10_000
COUNTS = {"": 1, "k": 10**3, "m": 10**6}
SECONDS = {"": 1, "s": 1, "ms": 1e-3, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_UNIT_NAMES = {"percent": "%", "pct": "%"}  # that do not begin as the unit does
_BEFORE_NUMBERS = "±~<>=≤≥+- "  # what people write before a limit
BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", 1):
    BYTES |= dict.fromkeys((_letter, f"{_letter}b", f"{_letter}ib"), 1 << 10 * _power)

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?(?:e\+?\d{1,2})?)(?:(?:\^|\*\*)(\d{1,2})|([kmgt])i?b?)?", re.IGNORECASE)
_TOO_LARGE = 1 << 60
_BETWEEN = re.compile(r":|\.\.|(?<=\w)[-–—~](?=\w)|\bto\b")  # what stands between the ends of a range
# Ranges as Python has them, and with commas: range(64, 1024, 64), 64,4096,x2.
_CALL = re.compile(r"(?:np\.|numpy\.)?a?range\((\w+), *(\w+)(?:, *(\w+))?\)")
_WITH_COMMAS = re.compile(r"(\w+),(\w+),([x*+]\w+)")
_MOST_FACTOR = 16  # a bare third number up to this is a factor, else what is added


def number(text: str, units: dict[str, int] = COUNTS) -> int:
    """A whole number: `512`, `2^9`, `50k` (50,000); in the units BYTES also `4KiB`, `64kb`, `64k` (65,536) and `1.5GiB`.

    Raises: Usage for anything else, for numbers below 1 and for numbers that are too large.
    """
    if re.fullmatch(r"\d{16,}[a-z]{0,3}", text.lower()):
        raise _too_large(text)
    part = re.fullmatch(r"(\d{1,9}\.\d{1,2})([kmgt]i?b)", text.lower())
    if part and units is BYTES:
        return number(str(int(float(part[1]) * units[part[2]])))
    match = re.fullmatch(r"-?(\d{1,15})(?:\^(\d{1,2})|([a-z]{0,3}))", text.lower().replace("_", ""))
    if not match or (match[3] or "") not in units:
        raise _no_size(text, units)
    base, power, unit = match.groups()
    value = int(base) ** int(power) if power else int(base) * units[unit]
    if value >= 1 << 60 and not text.startswith("-"):
        raise _too_large(text)
    if text.startswith("-") or value < 1:
        raise Usage(
            f"{text!r} is out of range: numbers here start at 1",
            wrong=text,
            right=meant_number(text, units),
        )
    return value


def _too_large(text: str) -> Usage:
    return Usage(f"{text!r} is too large: numbers here are below 2^60", wrong=text)


def _no_size(text: str, units: dict[str, int]) -> Usage:
    like = "whole number; write one like 512, 2^9 or 50k"
    if units is not COUNTS:
        like = "number of bytes; write one like 512, 64k, 64kb or 64KiB"
    elif re.fullmatch(r"\d+[kmgt]?i?b(?:ytes?)?", text.lower()):
        like = "whole number, as bytes are not counted here; write one like 512, 2^9 or 50k"
    is_share = text.endswith("%") or re.fullmatch(r"0?\.\d+", text)
    right = "" if is_share else meant_number(text, units)
    return Usage(f"{text!r} is no {like}", wrong=text, right=right)


def sizes(texts: Sequence[str], units: dict[str, int] = COUNTS) -> list[int]:
    """Sizes in rising order, each once, from words like `256`, `256,512`, `50,000`, `64:8192:x2`, `512:4096:+512`, `2^6:2^13`.

    A range holds both its ends when its steps meet them; without a step it doubles.
    Raises: Usage with the word at fault.
    """
    every_size: set[int] = set()
    for text in texts:
        if right := meant_range(text, units):
            raise Usage(f"{text!r} is no size; a range is written {right}", wrong=text, right=right)
    bare = " ".join(texts).translate(dict.fromkeys(map(ord, "[](){}")))  # brackets say nothing
    text = re.sub(r"(:\S+) (?=[x+]\d)", r"\1:", bare)  # a step apart from its range: 64:4096 x2
    if units is BYTES:
        # a unit apart from its number: 256 MB
        text = re.sub(r"(?<=\d) (?=[kmgt]?i?b(?:[ ,:]|$))", "", text, flags=re.IGNORECASE)
    words = re.sub(r"(?<=\d),(?=0\d\d)", "", text).replace(",", " ").split()
    for word in words or [""]:
        try:
            more = _range(word, units) if ":" in word else (number(word, units),)
            if len(every_size) + len(more) > MOST_SIZES:
                raise Usage(f"{word!r} gives more than {MOST_SIZES} sizes; take a larger step")
        except Usage as error:
            right = meant_number(word, units, several=True)
            is_range = ":" in right and ":" not in word
            message = f"{word!r} is no size; a range is written {right}" if is_range else str(error)
            raise Usage(message, wrong=word, right=right) from error
        every_size.update(more)
    return sorted(every_size)


def _range(word: str, units: dict[str, int]) -> Sequence[int]:
    if word.count(":") > 2 or "" in word.split(":")[:2]:
        raise Usage(f"{word!r} is no range; one has two ends and maybe a step, like 64:4096:x2")
    parts = [*word.split(":"), "x2"]
    step = parts[2]
    start = number(parts[0], units)
    stop = number(parts[1], units)
    if start > stop:
        raise Usage(f"the range {word!r} is empty: it starts above its end")
    if step.startswith("+"):
        return range(start, stop + 1, number(step[1:], units))
    if not re.fullmatch(r"x\d{1,9}(\.\d{1,9})?", step) or float(step[1:]) < 1.01:
        like = "neither a factor of at least 1.01 like x2 nor an amount like +512"
        raise Usage(f"the step {step!r} in {word!r} is {like}")
    values, value = [], float(start)
    while round(value) <= stop:
        values.append(round(value))
        value *= float(step[1:])
    return values


def positive(text: str, units: dict[str, float] = SECONDS) -> float:
    """A number above 0, in seconds `90`, `1.5s`, `50ms` or `2min`. Its exponent has at most nine, or two digits below 0.

    Raises: Usage with the number that is meant; ArgumentTypeError without one.
    """
    match = re.fullmatch(r"(\d{0,15}\.?\d{1,9}(?:e-?\d|e-\d\d)?) ?([a-z%]*)", text.lower().replace(",", "."))
    if not match and re.fullmatch(r"(?=.*[1-9].*e)\d*\.?\d+e[+-]?\d+ ?[a-z%]*", text.lower()):
        raise argparse.ArgumentTypeError(f"{text!r} is too large or too small")
    if not match or not float(match[1]):
        message = f"{text!r} is no number above 0"
        bare = text.lstrip(_BEFORE_NUMBERS)
        is_number = re.fullmatch(r"[\d.]*[1-9][\d.]* ?[a-z%]*", bare)
        right = meant_seconds(text, units) or (bare if is_number and bare != text else "")
        if right:
            raise Usage(message, wrong=text, right=right)
        raise argparse.ArgumentTypeError(message)
    if match[2] not in units:
        typed_unit = _UNIT_NAMES.get(match[2], match[2])
        beginning = [unit for unit in units if unit and typed_unit.startswith(unit)]
        right = f"{match[1]}{max(beginning, key=len)}" if beginning else ""
        known = ", ".join(f"{match[1]}{unit}" for unit in units if unit)
        raise Usage(f"{text!r} has a unit that is not known; write one like {known}", wrong=text, right=right)
    return float(match[1]) * units[match[2]]


def meant_number(word: str, units: Mapping[str, int], several: bool = False) -> str:
    """The number in a word that is no size; `several`: the range between its first two, where it has ends. "" without one."""
    bits = re.fullmatch(r"(\d+)([kmgt]?)i?bits?", word.lower())
    if bits and "b" in units:
        return str(int(bits[1]) * units[bits[2]] // 8)
    digits = re.sub(r"(?<=\d)[.,'](?=\d{3}(?!\d))", "", word)  # 50.000
    if "b" not in units:
        # 64MB, where no bytes are counted
        digits = re.sub(r"(?<=\d)[kmgt]?i?b(?:ytes?)?(?![a-z])", "", digits, flags=re.IGNORECASE)
    if re.search(r"\d{16}|\d\.\d+\.\d", digits):  # too large, or two points, 1.5.2
        return ""
    if "" in word.split(":")[:2]:  # an end lacks, and what stands there is the step
        digits = re.sub(r":[x*+]\w*$", "", digits)
    numbers = [(_value(match, units), match[0]) for match in _NUMBER.finditer(digits)]
    if not numbers or max(value for value, _ in numbers) >= _TOO_LARGE:
        return ""
    is_range = several and len(numbers) > 1 and _BETWEEN.search(digits)
    first_two = sorted(set(numbers[: 2 if is_range else 1]))
    written = [_written(value, text, units) for value, text in first_two]
    if len(written) == 1:
        return written[0]
    typed_step = digits[digits.rfind(numbers[2][1]) - 1 :] if len(numbers) == 3 else ""
    meant = ":".join([*written, _step(typed_step, units)])
    return meant if meant != word else ":".join([*written, _step("", units)])


def meant_seconds(text: str, units: Mapping[str, float]) -> str:
    """The seconds that several numbers with units mean, 1h30m, or numbers with colons, 1:30:00; "" of any other text."""
    clock = re.fullmatch(r"(?:(\d{1,3}):)?(\d{1,3}):(\d{2})", text)
    if clock and "min" in units:
        total = 3600.0 * int(clock[1] or 0) + 60 * int(clock[2]) + int(clock[3])
        return f"{total:g}s" if total else ""
    parts = re.findall(r"(\d{1,6}(?:\.\d{1,6})?) ?([a-z]+)", text.lower())
    is_whole = "".join(number + unit for number, unit in parts) == "".join(text.lower().split())
    if len(parts) < 2 or not is_whole or not {unit for _, unit in parts} <= units.keys():
        return ""
    total = sum(float(number) * units[unit] for number, unit in parts)
    return f"{total:g}s" if total else ""


def meant_range(text: str, units: Mapping[str, int]) -> str:
    """The range that is meant by one of Python, range(64, 1024, 64), or by one with commas, 64,4096,x2; "" for any other text."""
    match = _CALL.fullmatch(text) or _WITH_COMMAS.fullmatch(text)
    return ":".join([match[1], match[2], _step(match[3] or "", units)]) if match else ""


def _value(match: re.Match, units: Mapping[str, int]) -> int:
    base, power, unit = match.groups()
    return int(float(base) * units.get((unit or "").lower(), 1)) ** int(power or 1)


def _written(value: int, text: str, units: Mapping[str, int]) -> str:
    """A number as it was typed where that can be read, else in digits; at least 1."""
    if value < 1:
        return "1"
    match = re.fullmatch(r"\d+(?:\^\d+|([a-z]*))", text.lower())
    return text if match and (match[1] or "") in units else str(value)


def _step(typed: str, units: Mapping[str, int]) -> str:
    """A step as ranges here have it: what was typed for one, else x4 for bytes and x2 for other numbers."""
    match = re.search(r"([x*+]?)\D?(\d+)$", typed)
    if not match or int(match[2]) == 0 or (int(match[2]) == 1 and match[1] != "+"):
        return "x4" if "b" in units else "x2"
    kind, digits = match.groups()
    factor = kind in ("x", "*") or (not kind and int(digits) <= _MOST_FACTOR)
    return f"x{digits}" if factor else f"+{digits}"


def regression(text: str) -> float:
    """The share by which a row must be slower to count, of a rule like `slower>5%` or `5%`: 0.05; of `slower` 0."""
    match = re.fullmatch(r"(?:slower>)?(\d{1,4}(?:\.\d{1,6})?)%?|slower", text.replace(" ", ""))
    if not match:
        message = f"{text!r} is no rule; rules are like 'slower>5%', 5% or slower"
        number_in_rule = re.search(r"\d{1,4}(?:\.\d{1,6})?", text.replace(",", "."))
        if number_in_rule:
            raise Usage(message, wrong=text, right=f"slower>{number_in_rule[0]}%")
        raise argparse.ArgumentTypeError(message)
    share = float(match[1] or 0)
    if 0 < share < 1 and "%" not in text:
        ambiguous = Usage(
            f"{text!r} may be {share:g} % or a share; write the percent", wrong=text, right=f"slower>{100 * share:g}%"
        )
        ambiguous.is_example = True
        raise ambiguous
    if text == "slower" and terminal.output_file().endswith("%"):  # as after `slower>5%` without quotes
        raise Usage("the shell took >5% as a file for the output; quote 'slower>5%'", wrong=text, right="slower>5%")
    return share / 100
