"""The one Table: fitted to the terminal, or as Markdown or CSV; and what Markdown is made of."""

import csv
import itertools
import json
import pathlib
import re
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from workloads import terminal

_SHORT = 10  # columns that words keep when they wrap, and at least half of the longest
UNBROKEN = "\u00a0"  # a space at which no line ends
_SPACES = re.compile(rf"[^\S{UNBROKEN}]+")
_IN_MARKDOWN = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "|": "\\|", UNBROKEN: "&nbsp;"})
# A bracket behind which Markdown would see a link.
_BEFORE_LINK = re.compile(r"\](?=[(\[:])")
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
    return " ".join(_SPACES.split(str(value))).strip()


def text(value: object) -> str:
    """Text that Markdown shows as it is, also inside a table: no HTML, no link."""
    escaped = with_single_spaces(value).translate(_IN_MARKDOWN)
    parts = _BEFORE_LINK.split(escaped)
    return "&rbrack;".join(parts)


def named(heads: str | Iterable[str]) -> list[str]:
    """The heads of a table that are `one | two` or one by one."""
    return heads.split(" | ") if isinstance(heads, str) else list(heads)


def parsed(rows: str) -> list[list[str]]:
    """The cells of rows written as `one | two`, a line each; spaces around them do not count."""
    lines = rows.strip().splitlines()
    return [list(map(str.strip, line.split("|"))) for line in lines]


class Table:
    """Heads and rows of cells, for a terminal or as Markdown."""

    def __init__(
        self,
        heads: str | Iterable[str],
        rows: Iterable[Iterable[object]] = (),
        left: int = 1,
        optional: str | Iterable[str] = (),
        least: str | Iterable[str] = (),
        last: bool = False,
    ):
        """heads: `one | two`, or one by one. rows: their cells. left: the number of columns of words, before those of numbers;
        `last`: the last column is words too. optional: heads of columns that are left out if every cell is empty or a dash.
        least: heads of columns that a narrow terminal does without, the first of these first."""
        every_head = named(heads)
        every_row = [_on_one_line(row) for row in rows]
        columns = [
            i for i, head in enumerate(every_head) if head not in named(optional) or _says_anything(every_row, i)
        ]
        self.heads = [every_head[i] for i in columns]
        self.rows = [_chosen(row, columns) for row in every_row]
        #: Columns that a narrow terminal does without.
        self._least = [self.heads.index(name) for name in named(least) if name in self.heads]
        #: Columns of words.
        self._words = set(range(sum(i < left for i in columns)))
        if last:
            self._words.add(len(self.heads) - 1)

    def text(self, most: int | None = None) -> list[str]:
        """The lines for a terminal of `most` columns (None: stdout's width; 0: unlimited). If more columns than those of `least`
        have no room, each row takes several lines instead: its first cell, then a line for each further one."""
        most = terminal.width() if most is None else most
        widths = self.fitted([_longest_cell(self.rows, i) for i in range(len(self.heads))], most)
        if len(widths) < len(self.heads) - len(self._least):
            return self._cell_lines(most)
        lines = self.head(widths, most)
        for row in self.rows:
            lines += self.lines(row, widths, most)
        return lines

    def _cell_lines(self, most: int) -> list[str]:
        """Each row as its first cell and, below it, a line `head: cell` for each further cell that is not empty. most: columns of
        the terminal."""
        lines: list[str] = []
        for first, *rest in self.rows:
            lines += terminal.wrapped(str(first), most)
            for name, cell in zip(self.heads[1:], rest, strict=True):
                if cell not in ("", "-"):
                    lines += terminal.wrapped(terminal.Line(f"{cell}", label=f"  {name}: "), most)
        return lines

    def head(self, widths: dict[int, int], most: int) -> list[str]:
        """The lines of the heads. widths: column -> its width; longer heads wrap, and their last lines are level. most: columns
        of the terminal, 0 for unlimited."""
        parts = [textwrap.wrap(head, widths.get(i, len(head))) for i, head in enumerate(self.heads)]
        height = max(len(parts[i]) for i in widths)
        columns = [[""] * (height - len(part)) + part[:height] for part in parts]
        lines: list[str] = []
        for cells in zip(*columns, strict=True):
            lines += self.lines(cells, widths, most)
        return lines

    def md(self) -> list[str]:
        """The Markdown lines, and an empty one; nothing without rows."""
        lines = [line(map(text, row)) for row in self.rows]
        return [*self.md_head(), *lines, ""] if lines else []

    def md_head(self) -> list[str]:
        """The two Markdown lines of the heads; columns of numbers are aligned to the right."""
        marks = ["---" if i in self._words else "---:" for i in range(len(self.heads))]
        return [line(self.heads), line(marks)]

    def fitted(self, cells: Sequence[int], most: int) -> dict[int, int]:
        """Column -> its width, for the columns that fit a terminal of `most` columns (0: unlimited). cells: the width of each
        column's longest cell.

        If there is too little room, first heads wrap, then the columns of `least` go, then columns of words get narrower, down to
        _SHORT or half of their longest cell; then columns go from the last but one. Room to spare is given back in the end.
        """
        whole = [max(width, len(head)) for width, head in zip(cells, self.heads, strict=True)]
        least = [max(width, *map(len, head.split())) for width, head in zip(cells, self.heads, strict=True)]
        widths = dict(enumerate(whole))

        def excess() -> int:
            """Columns of the terminal that are lacking; below 0 those to spare."""
            gaps = 2 * (len(widths) - 1)
            return sum(widths.values()) + gaps - most if most else 0

        def widen(to: Sequence[int]) -> None:
            for i in widths:
                widths[i] += max(0, min(to[i] - widths[i], -excess()))

        def wrappable() -> list[int]:
            words = [i for i in widths if i in self._words]
            return [i for i in words if widths[i] > max(_SHORT, cells[i] // 2)]

        if excess() > 0:
            widths = dict(enumerate(least))
        for column in self._least:
            if excess() > 0:
                del widths[column]
        while excess() > 0 and wrappable():
            widest = max(wrappable(), key=lambda i: widths[i])
            widths[widest] -= 1
        while excess() > 0 and len(widths) > 1:
            columns = list(widths)
            del widths[columns[-2 if len(columns) > 2 else -1]]
        if most:
            widen(least)
            widen(whole)
        return widths

    def lines(self, cells: Sequence[object], widths: dict[int, int], most: int) -> list[str]:
        """The lines of a row. widths: column -> its width. most: columns of the terminal, 0 for unlimited.

        A cell that is longer than its column takes the row's spare room, then continues on further lines. A last cell that would
        take more than two lines, or break inside a word, gets lines of its own below the row.
        """
        parts_of_cell = {i: [str(cells[i])] for i in widths}
        spare = most - sum(widths.values()) - 2 * (len(widths) - 1)
        for i in widths:
            cell = str(cells[i])
            excess = len(cell) - widths[i]
            if most and excess > 0:
                room = min(excess, max(0, spare))
                parts_of_cell[i] = textwrap.wrap(cell, widths[i] + room)
                spare -= room
        *_, last = widths
        last_cell = str(cells[last])
        below: list[str] = []
        breaks_a_word = " ".join(parts_of_cell[last]).split() != last_cell.split()
        if len(parts_of_cell[last]) > 2 or breaks_a_word:
            below = textwrap.wrap(last_cell, most, initial_indent="  ", subsequent_indent="  ", break_on_hyphens=False)
            parts_of_cell[last] = [""]
        lines = []
        for parts in itertools.zip_longest(*parts_of_cell.values(), fillvalue=""):
            padded = [self._padded(part, i, widths[i]) for i, part in zip(widths, parts, strict=True)]
            padded[-1] = padded[-1].rstrip()
            painted = [_painted(cells[i], part) for i, part in zip(widths, padded, strict=True)]
            lines.append("  ".join(painted).rstrip())
        return lines + below

    def _padded(self, part: str, column: int, width: int) -> str:
        """A part of a cell with blanks: words to the left of their column, numbers to the right."""
        return part.ljust(width) if column in self._words else part.rjust(width)


def _on_one_line(row: Iterable[object]) -> list[object]:
    """The cells of a row, each on one line."""
    return [terminal.on_one_line(str(cell)) if "\n" in str(cell) else cell for cell in row]


def _says_anything(rows: list[list[object]], column: int) -> bool:
    """Whether a column has a cell that is neither empty nor a dash."""
    return any(str(row[column]) not in ("", "-") for row in rows)


def _chosen(row: list[object], columns: list[int]) -> list[object]:
    """The cells of a row in these columns."""
    return [row[i] for i in columns]


def _longest_cell(rows: list[list[object]], column: int) -> int:
    """The number of characters of a column's longest cell; 0 without rows."""
    return max((len(str(row[column])) for row in rows), default=0)


def _painted(cell: object, part: str) -> str:
    """A part of a cell, in color if the cell stands out and the terminal has colors."""
    return terminal.paint(part, cell.style) if isinstance(cell, Styled) else part


class _PrintedHead(NamedTuple):  # --help of a command does without msgspec
    """A head of a printed table."""

    #: What stands over the column.
    name: str
    #: Columns of the terminal that its cells take.
    width: int
    #: Whether its cells are words, which begin where the column does.
    has_words: bool

    @classmethod
    def from_text(cls, head: str) -> "_PrintedHead":
        """The head of `kernel 24<` or `time 8`."""
        name, _, width = head.rpartition(" ")
        return cls(name=name, width=int(width.rstrip("<")), has_words="<" in width)


class Printed(Table):
    """A table whose rows are printed as they come, fitted to the terminal, or whole as Markdown. Its heads say how wide they
    are, and which are words (`kernel 24< | time 8`)."""

    def __init__(self, heads: str | Iterable[str], markdown: bool = False, least: str | Iterable[str] = ()):
        """heads: `kernel 24< | time 8`, or one by one: each with its width, and `<` for words. markdown: whether rows are printed
        as Markdown. least: heads of columns that a narrow terminal does without."""
        columns = [_PrintedHead.from_text(head) for head in named(heads)]
        super().__init__([column.name for column in columns], least=least)
        self._markdown = markdown
        self._most = 0 if markdown else terminal.width()
        self._words = {i for i, column in enumerate(columns) if column.has_words}
        self._widths = self.fitted([column.width for column in columns], self._most)
        #: Whether the heads are printed.
        self.begun = False
        #: Heads of the columns that the terminal has no room for.
        self.hidden = {head for i, head in enumerate(self.heads) if i not in self._widths}

    def show(self, cells: Sequence[object]) -> None:
        """Prints a row, and the heads before the first one."""
        if not self.begun:
            print(*(self.md_head() if self._markdown else self.head(self._widths, self._most)), sep="\n")
        self.begun = True
        row = _on_one_line(cells)
        lines = [line(map(text, row))] if self._markdown else self.lines(row, self._widths, self._most)
        print(*lines, sep="\n", flush=True)


def shown(parts: Iterable["str | Table"], markdown: bool = False) -> list[str]:
    """The lines of texts and tables one after the other, as Markdown or for the terminal."""
    lines: list[str] = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
        elif markdown:
            lines += part.md()[:-1]
        else:
            lines += part.text()
    return lines


def cell(value: object) -> object:
    """The value of a CSV cell. Text that a spreadsheet would run as a formula gets an apostrophe before it; numbers stay as they
    are."""
    is_formula = (
        isinstance(value, str) and re.match(r"[=+@\t\r\n＝＋－＠-].", value, re.DOTALL) and not _NUMBER.fullmatch(value)
    )
    return f"'{value}" if is_formula else value


def records(rows: list[dict], heads: Sequence[str], format_: str) -> None:
    """Prints rows, each name -> value, as "json" or "csv" (`format_`). heads: the names of the columns of csv."""
    if format_ == "json":
        print(json.dumps(rows, indent=1))
        return
    writer = csv.DictWriter(sys.stdout, heads, lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({name: cell(value) for name, value in row.items()})


def line(cells: Iterable[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def put_blocks(readme: pathlib.Path, blocks: dict[str, list[str]], run: str, command: str) -> None:
    """Replaces generated parts of a page. Such a part is the lines between `<!-- KIND: COMMAND -->` and `<!-- /KIND -->`, where
    COMMAND names the run.

    Args:
        blocks: kind -> the new lines; a kind that the page does not have is left out.
        command: writes the page, for the error.

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
    """The text of a page with the ends of its lines as they are.

    Raises: ValueError for a file that cannot be read or is no text in UTF-8.
    """
    from workloads.records import regular_files

    try:
        return b"".join(regular_files.lines(readme)).decode()
    except regular_files.Unreadable as error:
        raise ValueError(str(error)) from error
    except UnicodeDecodeError as error:
        raise ValueError(f"cannot read {readme}: it is no text in UTF-8") from error


def require_block(readme: pathlib.Path, kinds: Sequence[str], run: str, command: str) -> None:
    """Raises ValueError for a page that cannot be read, or that has no generated part of one of these kinds for the run (see
    put_blocks). The message shows the pair of lines of the first kind, with `command`, which writes it."""
    pair = f"<!-- {kinds[0]}: python -m {command} --> and <!-- /{kinds[0]} -->"
    try:
        page = page_text(readme)
    except ValueError as error:
        raise ValueError(f"{error}; --readme takes a page that has the lines {pair}") from error
    if not any(_marked(kind, run).search(page) for kind in kinds):
        raise ValueError(f"{readme} has no lines to write between: {pair}")


def _marked(kind: str, run: str) -> re.Pattern[str]:
    """The pattern of a page's generated part of a kind whose command names the run. Its groups: the first line, `end` (the
    characters that end a line) and `last` (the last line)."""
    path = re.escape(str(pathlib.PurePath(run)))
    return re.compile(rf"(<!-- {kind}: [^\n]*{path}/? [^\n]*-->(?P<end>\r?\n)).*?(?P<last><!-- /{kind} -->)", re.DOTALL)
