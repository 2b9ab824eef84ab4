"""HTML of blocks: the same words and numbers as in Markdown, long tables and lists folded, tables to be sorted."""

import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.blocks import Block, BulletList, Heading, ListItem, Paragraph, TableBlock
from analysis.report.templates import inline, parts, safe

if TYPE_CHECKING:
    from markupsafe import Markup

OPEN_ROWS, OPEN_ITEMS = 12, 6  # longer tables are closed; of longer lists the rest is
_NAMED_HEADS = 5  # of a table without a name
_LONG = 30
_NUMBER = re.compile(r"^[-+<]?\d")


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], caption: str, is_open: bool | None = None
) -> "Markup":
    """A folding table with sortable columns; numbers are aligned right. Cells are text, or HTML marked `safe`. is_open: None
    opens tables of up to OPEN_ROWS rows."""
    rows = list(rows)
    sides = [_side([str(row[i]) for row in rows]) for i in range(len(heads))]
    sides[:1] = ["run"] if heads[0] == "run" else sides[:1]
    return parts().table(heads, sides, rows, caption, len(rows) <= OPEN_ROWS if is_open is None else is_open)


def _side(column: list[str]) -> str:
    """The style of a column: `n` for numbers, `wide` for long words, else ""."""
    return "n" if _is_numbers(column) else "wide" if max(map(len, column), default=0) > _LONG else ""


def _is_numbers(column: Iterable[object]) -> bool:
    """Whether most cells with content begin with a number, and none is longer than 40 characters."""
    said = [str(c) for c in column if str(c) not in ("", "-", "yes", "no")]
    return sum(bool(_NUMBER.match(c)) for c in said) > len(said) / 2 and max(map(len, said), default=0) <= 40


def html_of(blocks: Iterable[Block], title: str = "", level: int = 3) -> "Markup":
    """The HTML of a section's blocks. A table without a caption is called by the heading above it, the first one by the section's
    title."""
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
    """A list; items beyond OPEN_ITEMS are folded, and so are the items under another."""
    shown = OPEN_ITEMS if len(listed) > OPEN_ITEMS + 1 else len(listed)
    return parts().items(listed[:shown], listed[shown:])


def _table(block: TableBlock, heading: str) -> "Markup":
    """A section's table with its caption; without one and without a heading it is called by its first heads."""
    heads = block.table.heads
    more = " ..." if len(heads) > _NAMED_HEADS else ""
    caption = block.caption or heading or ", ".join(heads[:_NAMED_HEADS]) + more
    rows = [[inline(cell) for cell in row] for row in block.table.rows]
    return table([inline(head) for head in heads], rows, caption)
