"""The number or range that was meant by a word that is none. Standard library only."""

import re
from collections.abc import Mapping

_NUMBER = re.compile(r"(\d{1,15}(?:\.\d{1,9})?(?:e\+?\d{1,2})?)(?:(?:\^|\*\*)(\d{1,2})|([kmgt])i?b?)?", re.IGNORECASE)
_TOO_LARGE = 1 << 60
_BETWEEN = re.compile(r":|\.\.|(?<=\w)[-–—~](?=\w)|\bto\b")  # what stands between the ends of a range
# Ranges as Python has them, and with commas: range(64, 1024, 64), 64,4096,x2.
_CALL = re.compile(r"(?:np\.|numpy\.)?a?range\((\w+), *(\w+)(?:, *(\w+))?\)")
_WITH_COMMAS = re.compile(r"(\w+),(\w+),([x*+]\w+)")
_MOST_FACTOR = 16  # a bare third number up to this is a factor, else what is added


def meant_number(word: str, units: Mapping[str, int], several: bool = False) -> str:
    """The number in a word that is no size; `several`: the range between its first two, where it has ends. "" without one."""
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
