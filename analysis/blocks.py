"""What a section of a page says, as records; Markdown is made of them here, HTML by the page.

A text is shown as it is, but for one mark: what stands between backticks is code.
"""

from collections.abc import Iterable, Sequence

import msgspec

from analysis import table
from analysis.table import Table


class Heading(msgspec.Struct, frozen=True, kw_only=True):
    """A heading inside a section."""

    text: str


class Paragraph(msgspec.Struct, frozen=True, kw_only=True):
    """One or more sentences."""

    text: str


class ListItem(msgspec.Struct, frozen=True, kw_only=True):
    """An item of a list."""

    text: str
    #: Items of a list of its own, under it.
    below: tuple[str, ...] = ()


class BulletList(msgspec.Struct, frozen=True, kw_only=True):
    """A list without numbers."""

    items: tuple[ListItem, ...]


class TableBlock(msgspec.Struct, frozen=True, kw_only=True):
    """A table that has rows."""

    table: Table
    #: What it is called; "" where the heading above it says that.
    caption: str = ""


Block = Heading | Paragraph | BulletList | TableBlock


def listed(sentences: Iterable[object]) -> list[Block]:
    """A list of these sentences; nothing without any."""
    items = tuple(ListItem(text=str(sentence)) for sentence in sentences)
    return [BulletList(items=items)] if items else []


def tabled(rows: Table, caption: str = "") -> list[Block]:
    """A table; nothing without rows."""
    return [TableBlock(table=rows, caption=caption)] if rows.rows else []


def titled(heading: str, *parts: str | Table | Sequence[Block]) -> list[Block]:
    """A heading and what stands under it: paragraphs, tables, blocks. Nothing if the last part is empty."""
    below: list[Block] = []
    for part in parts:
        if isinstance(part, str):
            last: Sequence[Block] = [Paragraph(text=part)] if part else []
        elif isinstance(part, Table):
            last = tabled(part)
        else:
            last = part
        below += last
    return [Heading(text=heading), *below] if last else []


def markdown(blocks: Iterable[Block]) -> list[str]:
    """The lines of Markdown of some blocks, with an empty line after each block."""
    lines: list[str] = []
    for block in blocks:
        match block:
            case Heading():
                lines += [f"### {table.text(block.text)}", ""]
            case Paragraph():
                lines += [table.text(block.text), ""]
            case BulletList():
                for item in block.items:
                    lines.append(f"- {table.text(item.text)}")
                    lines += [f"  - {table.text(text)}" for text in item.below]
                lines.append("")
            case TableBlock():
                if block.caption:
                    lines += [f"{table.text(block.caption)}:", ""]
                lines += block.table.md()
    return lines
