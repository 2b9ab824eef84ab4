"""HTML of blocks: the same words and numbers as in Markdown, long tables and lists folded, tables to be sorted."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.blocks import Block, BulletList, Heading, ListItem, Paragraph, TableBlock
from analysis.report.templates import inline, parts, safe

if TYPE_CHECKING:
    from markupsafe import Markup

#: Longer tables are closed.
OPEN_ROWS = 12
#: The items beyond these are closed.
OPEN_ITEMS = 6
#: Heads that name a table without a caption, at most.
_NAMED_HEADS = 5
#: Characters of words beyond which their column is wide.
_LONG = 30
#: Characters of a cell that counts as a number, at most.
_LONGEST_NUMBER = 40
_NUMBER = re.compile(r"^[-+<]?\d")


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], caption: str, is_open: bool | None = None
) -> "Markup":
    """HTML of a table that can be folded and sorted; columns of numbers are aligned right.

    Args:
        rows: the cells, as text or as HTML that `safe` marked.
        is_open: whether it is unfolded at first; None to unfold tables of up to OPEN_ROWS rows.
    """
    rows = list(rows)
    columns = [_column(rows, index) for index in range(len(heads))]
    styles = [_style(column) for column in columns]
    if heads[0] == "run":
        styles[0] = "run"
    if is_open is None:
        is_open = len(rows) <= OPEN_ROWS
    return parts().table(heads, styles, rows, caption, open=is_open)


def _column(rows: Sequence[Sequence[object]], index: int) -> list[str]:
    """The cells of one column as text."""
    return [str(row[index]) for row in rows]


def _style(column: list[str]) -> str:
    """The CSS class of a column: `n` for numbers, `wide` for long words, else ""."""
    if _is_numbers(column):
        return "n"
    longest = max(map(len, column), default=0)
    return "wide" if longest > _LONG else ""


def _is_numbers(column: Iterable[object]) -> bool:
    """Whether a column counts as numbers: most of its cells with content begin with one, and none is longer than
    _LONGEST_NUMBER.
    """
    cells = [str(cell) for cell in column if str(cell) not in ("", "-", "yes", "no")]
    numbers = sum(bool(_NUMBER.match(cell)) for cell in cells)
    longest = max(map(len, cells), default=0)
    return numbers > len(cells) / 2 and longest <= _LONGEST_NUMBER


def html_of(blocks: Iterable[Block], title: str = "", level: int = 3) -> "Markup":
    """HTML of a section's blocks.

    Args:
        title: of the section. It captions the first table, and the heading above a table captions that one, where they have no
            captions of their own.
        level: of the headings: 3 gives <h3>.
    """
    pieces: list[str] = []
    about = title
    for block in blocks:
        match block:
            case Heading():
                about = block.text
                pieces.append(f"<h{level}>{inline(block.text)}</h{level}>")
            case Paragraph():
                pieces.append(f"<p>{inline(block.text)}</p>")
            case BulletList():
                pieces.append(items(block.items))
            case TableBlock():
                pieces.append(_table(block, about))
                about = ""
    return safe("\n".join(pieces))


def items(listed: Sequence[ListItem]) -> "Markup":
    """HTML of a list. Items beyond OPEN_ITEMS are folded, unless it is a single one, and so are the items below another."""
    shown = OPEN_ITEMS if len(listed) > OPEN_ITEMS + 1 else len(listed)
    return parts().items(listed[:shown], listed[shown:])


def _table(block: TableBlock, heading: str) -> "Markup":
    """HTML of a table with its caption: its own, else the heading above it, else the heads of its first columns."""
    heads = block.table.heads
    more = " ..." if len(heads) > _NAMED_HEADS else ""
    caption = block.caption or heading or ", ".join(heads[:_NAMED_HEADS]) + more
    rows = [list(map(inline, row)) for row in block.table.rows]
    return table(list(map(inline, heads)), rows, caption)
