"""The one Table: fitted to the terminal, or as Markdown or CSV; and what Markdown is made of."""

import csv
import itertools
import json
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence

from workloads import terminal

_SHORT = 10  # columns that words keep when they wrap, and at least half of the longest
UNBROKEN = "\u00a0"  # a space at which no line ends
_SPACES = re.compile(rf"[^\S{UNBROKEN}]+")
_IN_MARKDOWN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "\\|", UNBROKEN: "&nbsp;"})
_NUMBER = re.compile(r"[+-]?[\d.]+(e[+-]?\d+)?")


class Styled(str):
    """A cell that stands out on a terminal."""

    #: A style of terminal.paint.
    style = ""


class Best(Styled):
    """A cell that wins its row."""

    style = "best"


class Faster(Styled):
    """A cell of a row that became faster."""

    style = "good"


class Slower(Styled):
    """A cell of a row that became slower."""

    style = "bad"


def with_single_spaces(value: object) -> str:
    """Text without ends of lines, as the words of a page are."""
    return _SPACES.sub(" ", str(value)).strip()


def text(value: object) -> str:
    """Text that Markdown shows as it is, also inside a table: no HTML, no link."""
    flat = with_single_spaces(value).translate(_IN_MARKDOWN)
    return re.sub(r"\](?=[(\[:])", "&rbrack;", flat)


def named(heads: str | Iterable[str]) -> list[str]:
    """The heads of a table that are `one | two` or one by one."""
    return heads.split(" | ") if isinstance(heads, str) else list(heads)


def parsed(rows: str) -> list[list[str]]:
    """The cells of rows written as `one | two`, a line each; spaces around them do not count."""
    return [[cell.strip() for cell in row.split("|")] for row in rows.strip().splitlines()]


class Table:
    """Heads (`one | two` or one by one) and rows. The first `left` columns are words, the others numbers, but for the last one
    where `last` says so. `optional` columns are left out where they say nothing (a dash or nothing in every row), those of
    `least` where the terminal is too narrow, the first of these first."""

    def __init__(
        self,
        heads: str | Iterable[str],
        rows: Iterable[Iterable[object]] = (),
        left: int = 1,
        optional: str | Iterable[str] = (),
        least: str | Iterable[str] = (),
        last: bool = False,
    ):
        names, rest, cells = named(heads), named(optional), [_flat(row) for row in rows]
        empty = {i for i, name in enumerate(names) if name in rest and all(str(row[i]) in ("", "-") for row in cells)}
        self.heads = [name for i, name in enumerate(names) if i not in empty]
        self.rows = [[cell for i, cell in enumerate(row) if i not in empty] for row in cells]
        self._least = [self.heads.index(name) for name in named(least) if name in self.heads]
        self._words = {*range(left - sum(i < left for i in empty)), *([len(self.heads) - 1] if last else [])}

    def text(self, most: int | None = None) -> list[str]:
        """The lines for a terminal of so many columns (default: that of stdout; 0: unlimited). If columns other than those of
        `least` would be lost, each cell gets a line of its own under its row's first cell."""
        most = terminal.width() if most is None else most
        cells = [max((len(str(row[i])) for row in self.rows), default=0) for i in range(len(self.heads))]
        widths = self.fitted(cells, most)
        if len(widths) < len(self.heads) - len(self._least):
            lines = []
            for first, *rest in self.rows:
                named = zip(self.heads[1:], rest, strict=True)
                lines.append(str(first))
                lines += [
                    terminal.Line(f"{cell}", label=f"  {name}: ") for name, cell in named if cell not in ("", "-")
                ]
            return [part for line in lines for part in terminal.wrapped(line, most)]
        return [*self.head(widths, most), *(line for row in self.rows for line in self.lines(row, widths, most))]

    def head(self, widths: dict[int, int], most: int) -> list[str]:
        """The heads over columns of these widths, in several lines where they are longer."""
        parts = [textwrap.wrap(head, widths.get(i, len(head))) for i, head in enumerate(self.heads)]
        high = max(len(parts[i]) for i in widths)
        lines = zip(*([""] * (high - len(part)) + part[:high] for part in parts), strict=True)
        return [line for cells in lines for line in self.lines(cells, widths, most)]

    def md(self) -> list[str]:
        """The Markdown lines, and an empty one; nothing without rows."""
        lines = [line(map(text, row)) for row in self.rows]
        return [*self.md_head(), *lines, ""] if lines else []

    def md_head(self) -> list[str]:
        marks = ["---" if i in self._words else "---:" for i in range(len(self.heads))]
        return [line(self.heads), line(marks)]

    def fitted(self, cells: Sequence[int], most: int) -> dict[int, int]:
        """Column -> its width, for the columns that fit a terminal of so many columns (0: unlimited), given the widths of their
        cells. First heads wrap, then columns of `least` go, then words wrap."""
        whole = [max(wide, len(head)) for wide, head in zip(cells, self.heads, strict=True)]
        least = [max(wide, *map(len, head.split())) for wide, head in zip(cells, self.heads, strict=True)]
        kept = dict(enumerate(whole))

        def over() -> int:
            return sum(kept.values()) + 2 * (len(kept) - 1) - most if most else 0

        def widen(to: Sequence[int]) -> None:
            for i in kept:
                kept[i] += max(0, min(to[i] - kept[i], -over()))

        if over() > 0:
            kept = dict(enumerate(least))
        for column in self._least:
            if over() > 0:
                del kept[column]
        while over() > 0 and (long := [i for i in kept if i in self._words and kept[i] > max(_SHORT, cells[i] // 2)]):
            kept[max(long, key=lambda i: kept[i])] -= 1
        while over() > 0 and len(kept) > 1:
            del kept[list(kept)[-2 if len(kept) > 2 else -1]]
        if most:
            widen(least)
            widen(whole)
        return kept

    def lines(self, cells: Sequence[object], widths: dict[int, int], most: int) -> list[str]:
        """The lines of a row. A cell that is too long takes the row's spare room, then continues below. A last cell that would
        continue more than once, or break inside a word, gets lines of its own."""
        shown = {i: [str(cells[i])] for i in widths}
        spare = most - sum(widths.values()) - 2 * (len(widths) - 1)
        for i, (cell,) in shown.items():
            if most and (more := len(cell) - widths[i]) > 0:
                room = min(more, max(0, spare))
                shown[i], spare = textwrap.wrap(cell, widths[i] + room), spare - room
        *_, last = shown
        made, below = list[str](), list[str]()
        if len(shown[last]) > 2 or " ".join(shown[last]).split() != cell.split():
            below = textwrap.wrap(cell, most, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            shown[last] = [""]
        for parts in itertools.zip_longest(*shown.values(), fillvalue=""):
            padded = [(p.ljust if i in self._words else p.rjust)(widths[i]) for i, p in zip(shown, parts, strict=True)]
            padded[-1] = padded[-1].rstrip()
            painted = (_painted(cells[i], part) for i, part in zip(shown, padded, strict=True))
            made.append("  ".join(painted).rstrip())
        return made + below


def _flat(row: Iterable[object]) -> list[object]:
    """The cells of a row, each on one line."""
    return [terminal.on_one_line(str(cell)) if "\n" in str(cell) else cell for cell in row]


def _painted(cell: object, part: str) -> str:
    """A part of a cell as a terminal shows it."""
    return terminal.paint(part, cell.style) if isinstance(cell, Styled) else part


class Printed(Table):
    """A table whose rows are printed as they come, fitted to the terminal, or whole as Markdown. Its heads say how wide they
    are, and which are words (`kernel 24< | time 8`)."""

    def __init__(self, heads: str | Iterable[str], markdown: bool = False, least: str | Iterable[str] = ()):
        parts = [head.rpartition(" ") for head in named(heads)]
        super().__init__([name for name, _, _ in parts], least=least)
        self._most, self._markdown, self.begun = 0 if markdown else terminal.width(), markdown, False
        self._words = {i for i, (_, _, wide) in enumerate(parts) if wide.endswith("<")}
        self._widths = self.fitted([int(wide.rstrip("<")) for _, _, wide in parts], self._most)
        self.hidden = {head for i, head in enumerate(self.heads) if i not in self._widths}

    def show(self, cells: Sequence[object]) -> None:
        """Prints a row, the first one under the heads."""
        if not self.begun:
            print(*(self.md_head() if self._markdown else self.head(self._widths, self._most)), sep="\n")
        self.begun = True
        flat = _flat(cells)
        lines = [line(map(text, flat))] if self._markdown else self.lines(flat, self._widths, self._most)
        print(*lines, sep="\n", flush=True)


def shown(parts: Iterable["str | Table"], markdown: bool = False) -> list[str]:
    """The lines of sentences and tables, as Markdown or for the terminal."""
    each = ([p] if isinstance(p, str) else p.md()[:-1] if markdown else p.text() for p in parts)
    return list(itertools.chain.from_iterable(each))


def cell(value: object) -> object:
    """A cell of a CSV file: text that a spreadsheet would run as a formula has an apostrophe before it; numbers stay."""
    is_formula = (
        isinstance(value, str) and re.match(r"[=+@\t\r\n＝＋－＠-].", value, re.DOTALL) and not _NUMBER.fullmatch(value)
    )
    return f"'{value}" if is_formula else value


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


def put_blocks(readme: pathlib.Path, blocks: dict[str, list[str]], run: str, command: str) -> None:
    """Replaces the lines between `<!-- KIND: COMMAND -->` and `<!-- /KIND -->` by the lines of that kind, where COMMAND names
    the run.

    Raises: as `require_block`.
    """
    require_block(readme, list(blocks), run, command)
    page = page_text(readme)
    for kind, lines in blocks.items():
        for block in reversed(list(_marked(kind, run).finditer(page))):
            new = "".join(f"{line}{block['end']}" for line in lines)
            page = f"{page[: block.end(1)]}{new}{page[block.start('last') :]}"
    readme.write_bytes(page.encode())


def page_text(readme: pathlib.Path) -> str:
    """The text of a page, the ends of its lines as they are.

    Raises: ValueError for what is no regular file, and for one that is no text.
    """
    from workloads.records import regular_files

    try:
        return b"".join(regular_files.lines(readme)).decode()
    except regular_files.Unreadable as error:
        raise ValueError(str(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot read {readme}: it is no text in UTF-8") from error


def require_block(readme: pathlib.Path, kinds: Sequence[str], run: str, command: str) -> None:
    """Raises ValueError for a page that cannot be read and for one without lines of these kinds to write between; it shows the
    first kind's pair of lines with `command`, which writes it."""
    pair = f"<!-- {kinds[0]}: python -m {command} --> and <!-- /{kinds[0]} -->"
    try:
        page = page_text(readme)
    except ValueError as error:
        raise ValueError(f"{error}; --readme takes a page that has the lines {pair}") from error
    if not any(_marked(kind, run).search(page) for kind in kinds):
        raise ValueError(f"{readme} has no lines to write between: {pair}")


def _marked(kind: str, run: str) -> re.Pattern[str]:
    """The pattern of a block of this kind whose command names the run; its groups are the first line, its `end` and the `last`
    line."""
    path = re.escape(str(pathlib.PurePath(run)))
    return re.compile(rf"(<!-- {kind}: [^\n]*{path}/? [^\n]*-->(?P<end>\r?\n)).*?(?P<last><!-- /{kind} -->)", re.DOTALL)
