"""HTML from the Markdown of sections: the same words and numbers, long tables and lists folded, tables to be sorted."""

import html
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.report.templates import inline, markdown, parts, safe

if TYPE_CHECKING:
    from markdown_it.tree import SyntaxTreeNode
    from markupsafe import Markup

OPEN_ROWS, OPEN_ITEMS = 12, 6  # longer tables are closed; of longer lists the rest is
_CAPTION, _LONG = 120, 30
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


def html_of(lines: Iterable[str], title: str = "", level: int = 3) -> "Markup":
    """The HTML of a section's Markdown: headings, lists, tables, paragraphs. A table is called by the line before
    it that ends with a colon, else by its heading, the first one by the section's title."""
    from markdown_it.tree import SyntaxTreeNode

    made: list[str] = []
    about = title
    blocks = SyntaxTreeNode(markdown().parse("\n".join(lines))).children
    for block, after in zip(blocks, [*blocks[1:], None], strict=False):
        words = "" if block.type in ("table", "bullet_list") else _words(block)
        if block.type == "table":
            made.append(_table(block, about))
            about = ""
        elif block.type == "bullet_list":
            made.append(items([_item(one) for one in block.children]))
        elif block.type == "heading":
            about = words
            made.append(f"<h{level}>{inline(words)}</h{level}>")
        elif after is not None and after.type == "table" and words.endswith(":") and len(words) <= _CAPTION:
            about = words
        else:
            made += [f"<p>{inline(line)}</p>" for line in words.split("\n")]
    return safe("\n".join(filter(None, made)))


def _words(block: "SyntaxTreeNode") -> str:
    """The Markdown of a heading's, a paragraph's or a cell's words."""
    return block.children[0].content


def _item(item: "SyntaxTreeNode") -> tuple[str, list[str]]:
    """(its words, those of the items indented under it)."""
    first, *rest = item.children
    return _words(first), [_words(one.children[0]) for below in rest for one in below.children]


def items(said: Sequence[tuple[str, list[str]]]) -> "Markup":
    """A list; items beyond OPEN_ITEMS are folded, and so are the items indented under another."""
    shown = OPEN_ITEMS if len(said) > OPEN_ITEMS + 1 else len(said)
    return parts().items(said[:shown], said[shown:])


def _table(block: "SyntaxTreeNode", about: str) -> "Markup":
    heads, *rows = [[_words(cell) for cell in row.children] for part in block.children for row in part.children]
    plain = [re.sub(r"[`*]", "", html.unescape(text)).strip() for text in (about.rstrip(":"), *heads)]
    named = ", ".join(plain[1:6]) + (" ..." if len(heads) > 5 else "")
    cells = ([*map(inline, row)] for row in rows)
    return table([*map(inline, heads)], cells, plain[0] if 0 < len(about) <= _CAPTION else named)
