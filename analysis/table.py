"""Markdown as lines: tables, lists, pictures, and rows in the words of people."""

import csv
import json
import pathlib
import re
import sys
from collections.abc import Iterable, Sequence

from analysis.stats import Estimate, of
from analysis.units import seconds
from workloads.records import Measurement


def text(value: object) -> str:
    """Text that Markdown shows as it is, also inside a table: no HTML, no link."""
    flat = re.sub(r"\](?=[(\[:])", "&rbrack;", " ".join(str(value).split()).replace("&", "&amp;"))
    return flat.replace("<", "&lt;").replace(">", "&gt;").replace("|", "\\|")


def named(heads: str | Iterable[str]) -> list[str]:
    """The heads of a table that are `one | two` or one by one."""
    return heads.split(" | ") if isinstance(heads, str) else list(heads)


def parsed(rows: str) -> list[list[str]]:
    """The cells of rows written as `one | two`, a line each; spaces around them do not count."""
    return [[cell.strip() for cell in row.split("|")] for row in rows.strip().splitlines()]


def table(
    heads: str | Iterable[str], rows: Iterable[Iterable[object]], left: int = 1, optional: str | Iterable[str] = ()
) -> list[str]:
    """A Markdown table and an empty line; `heads` and `optional` as `named` has them. The first `left` columns are words, the
    others numbers. `optional` columns are left out where they say nothing (a dash or nothing in every row)."""
    names, rest = named(heads), named(optional)
    cells = [list(row) for row in rows]
    if not cells:
        return ["Nothing was measured.", ""]
    empty = {i for i, name in enumerate(names) if name in rest and all(str(row[i]) in ("", "-") for row in cells)}
    names = [name for i, name in enumerate(names) if i not in empty]
    cells = [[cell for i, cell in enumerate(row) if i not in empty] for row in cells]
    left -= sum(i < left for i in empty)
    marks = ["---"] * left + ["---:"] * (len(names) - left)
    return [line(names), line(marks), *(line(text(c) for c in row) for row in cells), ""]


def columns(heads: str | Iterable[str], rows: Iterable[Sequence[str]], right: bool = False) -> list[str]:
    """Lines of text, the cells of a column under its head; all columns but the first flush right if `right`."""
    lines = [named(heads), *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    flush = [str.ljust, *[str.rjust if right else str.ljust] * (len(widths) - 1)]
    return ["  ".join(f(c, w) for f, c, w in zip(flush, cells, widths, strict=True)).rstrip() for cells in lines]


def cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would run as a formula has an apostrophe before it; numbers stay."""
    is_formula = isinstance(value, str) and re.match(r"[=+@\t\r-].", value, re.DOTALL) and not _NUMBER.fullmatch(value)
    return f"'{value}" if is_formula else value


_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")


def records(rows: list[dict], heads: Sequence[str], format_: str) -> None:
    """Prints records as json or csv."""
    if format_ == "json":
        print(json.dumps(rows, indent=1))
        return
    writer = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: cell(value) for name, value in row.items()} for row in rows)


def line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def listed(said: Iterable[object]) -> list[str]:
    """Sentences as a list and an empty line; nothing without any."""
    lines = [f"- {text(s)}" for s in said]
    return [*lines, ""] if lines else []


def image(name: str, says: str) -> list[str]:
    """The picture with what it says for those who cannot see it, and an empty line."""
    return [f"![{text(says)}]({name})", ""]


def portable(command: str) -> str:
    """A command in one line without folders of the machine that ran it: absolute paths keep their last name. Without
    backticks, which would end it on a page."""
    return re.sub(r"(?<![\w.])/(?:[^\s/]+/)*([^\s/]+)", r"\1", " ".join(command.replace("`", "").splitlines()))


def threads(m: "Measurement") -> str:
    return str(m.threads or "-")


def on(m: "Measurement", clock: str) -> Estimate | None:
    """Seconds on that clock."""
    samples = m.on(clock)
    return of(samples) if samples and samples.seconds else None


def time(e: Estimate | None) -> str:
    return seconds(e.value) if e else "-"


def width(e: Estimate | None) -> str:
    """Half the interval in percent."""
    return f"{100 * e.noise:.1f} %" if e else "-"


def status(m: "Measurement") -> str:
    """The status where it is not ok, with its reason."""
    return "" if m.ok else f"{m.status}: {m.reason}".removesuffix(": ")


def put_blocks(readme: pathlib.Path, blocks: dict[str, list[str]], run: str, command: str) -> None:
    """Replaces what stands between `<!-- KIND: COMMAND -->` and `<!-- /KIND -->`, where the command names the run, by the lines
    of that kind.

    Raises: ValueError when there is none; it says the first kind with `command`, which writes it.
    """
    page, found = readme.read_text(encoding="utf-8"), 0
    for kind, lines in blocks.items():
        marks = rf"(<!-- {kind}: [^\n]*{re.escape(str(pathlib.PurePath(run)))}/? [^\n]*-->\n).*?(<!-- /{kind} -->)"
        new = "".join(f"{line}\n" for line in lines).replace("\\", r"\\")
        page, n = re.subn(marks, rf"\g<1>{new}\g<2>", page, flags=re.DOTALL)
        found += n
    if not found:
        kind = next(iter(blocks))
        raise ValueError(
            f"{readme} has no lines to write between: <!-- {kind}: python -m {command} --> and <!-- /{kind} -->"
        )
    readme.write_text(page, encoding="utf-8")
