"""Rewrites what is measured under reports/ from schema 2 to schema 3, once: `python tests/support/migrate.py`.

A run has schema 3. Samples name the sizes of their blocks, not the block of each sample. Problems, settings and an ok status
are left out where they have their default. Phases, values and series have nine digits; so have rows of benches and saved
predictions (.ndjson), which have no spaces. Samples stay byte for byte.
"""

import itertools
import json
import pathlib
import re
import sys
import typing

import msgspec

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2]))

from kernels.problems import Problem
from workloads.records import Measurement, Settings
from workloads.records.rows import shortened

REPORTS = pathlib.Path(__file__).resolve().parents[2] / "reports"
FLAT = r"\{[^{}]*\}"
PROBLEM = re.compile(rf'"problem":(?P<fields>{FLAT})')
SETTINGS = re.compile(rf'"settings":(?P<fields>\{{"device":.*?"switches":{FLAT}\}})')
SAMPLES = re.compile(r'"samples":\[\{.*?\}\]')
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|\s+|.')
BLOCK = re.compile(r'"block":\[(?P<numbers>[\d,]*)\]')


def defaults(kind: type[msgspec.Struct]) -> dict:
    """The fields of a record that have a default which JSON can hold, with it."""
    values = {}
    for field in msgspec.structs.fields(kind):
        if field.default_factory is not msgspec.NODEFAULT:
            values[field.name] = field.default_factory()
        elif field.default not in (msgspec.NODEFAULT, msgspec.UNSET):
            values[field.name] = field.default
    return values


SETTINGS_DEFAULTS = defaults(Settings)
PROBLEM_DEFAULTS = {kind.__struct_config__.tag: defaults(kind) for kind in typing.get_args(Problem)}


def without_defaults(text: str, usual: dict) -> str:
    fields = json.loads(text)
    left = {name: value for name, value in fields.items() if name not in usual or value != usual[name]}
    if compact(fields) != text:
        raise ValueError(f"written otherwise: {text}")
    return compact(left)


def compact(value) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def problem(match: re.Match) -> str:
    kind = json.loads(match["fields"])["type"]
    return '"problem":' + without_defaults(match["fields"], PROBLEM_DEFAULTS[kind])


def settings(match: re.Match) -> str:
    return '"settings":' + without_defaults(match["fields"], SETTINGS_DEFAULTS)


def block_sizes(match: re.Match) -> str:
    numbers = [int(number) for number in match["numbers"].split(",")]
    if numbers != sorted(numbers):
        raise ValueError(f"blocks are not in order: {match[0]}")
    sizes = [0] * (numbers[-1] + 1)
    for number, same in itertools.groupby(numbers):
        sizes[number] = len(list(same))
    return '"block_sizes":[' + ",".join(map(str, sizes)) + "]"


def line(text: str) -> str:
    if text.startswith('{"type":"run","schema":2,'):
        return text.replace('{"type":"run","schema":2,', '{"type":"run","schema":3,', 1)
    changed = BLOCK.sub(block_sizes, SETTINGS.sub(settings, PROBLEM.sub(problem, text)))
    require_same_samples(json.loads(text), json.loads(changed))
    if "ours" in json.loads(text):
        return changed
    row = msgspec.json.decode(changed, type=Measurement)
    short = msgspec.json.encode(shortened(row)).decode() + "\n"
    assert SAMPLES.findall(short) == SAMPLES.findall(changed)
    return short


def nine_digits(match: re.Match) -> str:
    """A token of JSON: text as it is, no space, a number of nine digits if it is then shorter."""
    token = match[0]
    if token.isspace():
        return ""
    if token[0] not in "-0123456789" or not ("." in token or "e" in token):
        return token
    return min(token, repr(float(f"{float(token):.9g}")), key=len)


def require_same_samples(old: dict, new: dict) -> None:
    """Raises AssertionError where a number of the row, or the block of a sample, is not what it was."""
    if "ours" in old:  # a pair of a bench
        old, new = old["ours"], new["ours"]
    for before, after in zip(old.get("samples", ()), new.get("samples", ()), strict=True):
        numbers = [number for number, size in enumerate(after["block_sizes"]) for _ in range(size)]
        assert numbers == before.pop("block")
        del after["block_sizes"]
    for row in (old, new):
        row["settings"] = SETTINGS_DEFAULTS | row["settings"]
        row["problem"] = PROBLEM_DEFAULTS[row["problem"]["type"]] | row["problem"]
    assert old == new


def main() -> int:
    rows = [*REPORTS.glob("*/*/*/*.jsonl"), *REPORTS.glob("*/bench-training.ndjson")]
    for file in rows:
        lines = file.read_text(encoding="utf-8").splitlines(keepends=True)
        file.write_text("".join(map(line, lines)), encoding="utf-8")
    for file in REPORTS.glob("*/*.ndjson"):
        lines = file.read_text(encoding="utf-8").splitlines()
        shorter = [TOKEN.sub(nine_digits, text) + "\n" for text in lines]
        file.write_text("".join(shorter), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
