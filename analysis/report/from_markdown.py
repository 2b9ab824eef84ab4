"""HTML from the Markdown of sections: the same words and numbers, long tables and lists folded, tables to be sorted.

What comes from result files is text wherever it stands: HTML, links and pictures in it are not parsed.
"""

import functools
import html
import re
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from analysis.units import count

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.tree import SyntaxTreeNode

OPEN_ROWS, OPEN_ITEMS = 12, 6  # longer tables are closed, of longer lists the rest is
_CAPTION, _LONG = 120, 30
_NUMBER = re.compile(r"^[-+<]?\d")
_PARSED = ("heading", "list", "table", "backticks", "escape", "entity")


@functools.cache
def _parser() -> "MarkdownIt":
    """A parser of what the sections write; everything else is text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable(list(_PARSED))


def escaped(value: object) -> str:
    """Text that HTML shows as it is."""
    return html.escape(str(value), quote=True)


def inline(text: object) -> str:
    """A line's HTML: commands between backticks become code; entities and escapes are undone, all else is text."""
    return _parser().renderInline(str(text))


def table(
    heads: Sequence[object], rows: Iterable[Sequence[object]], caption: str, is_open: bool | None = None, cell=escaped
) -> str:
    """A table in a fold of its own; its columns can be sorted, those of numbers stand right. `cell`: a cell's HTML."""
    rows = list(rows)
    sides = [_side([str(row[i]) for row in rows]) for i in range(len(heads))]
    sides[:1] = [' class="run"'] if heads[0] == "run" else sides[:1]
    head = "".join(f'<th scope="col"{side}>{cell(h)}</th>' for h, side in zip(heads, sides, strict=True))
    body = "".join(
        "<tr>" + "".join(f"<td{side}>{cell(c)}</td>" for c, side in zip(row, sides, strict=True)) + "</tr>"
        for row in rows
    )
    shown = len(rows) <= OPEN_ROWS if is_open is None else is_open
    return (
        f'<details class="data"{" open" if shown else ""}><summary>{escaped(caption)} <small>{count(len(rows), "row")}</small>'
        f'</summary><div class="scroll" role="group" tabindex="0" aria-label="{escaped(caption)}"><table class="sorts"><thead>'
        f"<tr>{head}</tr></thead><tbody>{body}</tbody></table></div></details>"
    )


def _side(column: list[str]) -> str:
    """Numbers stand right; long words have room."""
    return ' class="n"' if _is_numbers(column) else ' class="wide"' if max(map(len, column), default=0) > _LONG else ""


def _is_numbers(column: Iterable[object]) -> bool:
    """Whether most cells that say something begin with a number, and none is long."""
    said = [str(c) for c in column if str(c) not in ("", "-", "yes", "no")]
    return sum(bool(_NUMBER.match(c)) for c in said) > len(said) / 2 and max(map(len, said), default=0) <= 40


def html_of(lines: Iterable[str], title: str = "", level: int = 3) -> str:
    """The HTML of a section's Markdown: headings, lists, tables, paragraphs. A table is called by the line before
    it that ends with a colon, else by its heading, the first one by the section's title."""
    from markdown_it.tree import SyntaxTreeNode

    made: list[str] = []
    about = title
    blocks = SyntaxTreeNode(_parser().parse("\n".join(lines))).children
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
    return "\n".join(filter(None, made))


def _words(block: "SyntaxTreeNode") -> str:
    """The Markdown of a heading's, a paragraph's or a cell's words."""
    return block.children[0].content


def _item(item: "SyntaxTreeNode") -> tuple[str, list[str]]:
    """(its words, those of the items indented under it)."""
    first, *rest = item.children
    return _words(first), [_words(one.children[0]) for below in rest for one in below.children]


def items(said: Sequence[tuple[str, list[str]]]) -> str:
    """A list, what is beyond OPEN_ITEMS folded, and what is indented under an item in a fold of its own."""
    shown, rest = list(said[:OPEN_ITEMS]), list(said[OPEN_ITEMS:])
    if len(rest) <= 1:
        shown, rest = shown + rest, []
    made = "<ul>" + "".join(map(_listed, shown)) + "</ul>"
    if rest:
        inner = "".join(map(_listed, rest))
        made += f'<details class="more"><summary>{len(rest)} more</summary><ul>{inner}</ul></details>'
    return made


def _listed(item: tuple[str, list[str]]) -> str:
    text, under = item
    if not under:
        return f"<li>{inline(text)}</li>"
    inner = "".join(f"<li>{inline(one)}</li>" for one in under)
    summary = f"<summary>{inline(text)} <small>{len(under)}</small></summary>"
    return f'<li><details class="more">{summary}<ul>{inner}</ul></details></li>'


def _table(block: "SyntaxTreeNode", about: str) -> str:
    heads, *rows = [[_words(cell) for cell in row.children] for part in block.children for row in part.children]
    plain = [re.sub(r"[`*]", "", html.unescape(text)).strip() for text in (about.rstrip(":"), *heads)]
    named = ", ".join(plain[1:6]) + (" ..." if len(heads) > 5 else "")
    return table(heads, rows, plain[0] if 0 < len(about) <= _CAPTION else named, cell=inline)
