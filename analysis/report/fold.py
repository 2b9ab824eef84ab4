"""The Markdown sections as HTML for the page: the same words and numbers, long tables and lists folded, tables to be sorted.

What comes from result files is text wherever it stands: HTML, links and pictures in it are not parsed.
"""

import html
import re
from collections.abc import Iterable, Sequence

from analysis.units import count

OPEN_ROWS, OPEN_ITEMS = 12, 6  # longer tables are closed, of longer lists the rest is
_CAPTION, _LONG = 120, 30
_NUMBER = re.compile(r"^[-+<]?\d")


def escaped(value: object) -> str:
    """Text that HTML shows as it is."""
    return html.escape(str(value), quote=True)


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


def markdown(lines: Iterable[str], level: int = 3) -> str:
    """The HTML of Markdown lines of analysis.report.sections and its like: headings (one # each, ## the page has already),
    lists, tables, paragraphs. A table is called by the line before it that ends with a colon, else by its heading."""
    made: list[str] = []
    heading = lead = ""
    for kind, block in _blocks(lines):
        if lead and kind != "t":
            made.append(_block([lead], ""))
        if kind == "h":
            heading = block[0].lstrip("# ")
            made.append(f"<h{level}>{inline(heading)}</h{level}>" if block[0].startswith("###") else "")
        elif kind == "t":
            made.append(_block(block, _plain(lead) or heading))
            heading = ""
        elif not _is_caption(block):
            made.append(_block(block, ""))
        lead = block[0] if _is_caption(block) else ""
    return "\n".join(filter(None, [*made, _block([lead], "") if lead else ""]))


def _blocks(lines: Iterable[str]) -> list[tuple[str, list[str]]]:
    """(kind, lines) of what stands together."""
    found: list[tuple[str, list[str]]] = []
    apart = True
    for text in lines:
        kind = _kind(text)
        if kind and (apart or kind == "h" or found[-1][0] != kind):
            found.append((kind, [text]))
        elif kind:
            found[-1][1].append(text)
        apart = not kind or kind == "h"
    return found


def _is_caption(block: list[str]) -> bool:
    """Whether a block before a table says what the table is of."""
    return len(block) == 1 and _kind(block[0]) == "p" and block[0].endswith(":") and len(block[0]) <= _CAPTION


def _kind(text: str) -> str:
    if not text.strip():
        return ""
    if text.startswith("#"):
        return "h"
    if text.startswith("!["):
        return ""  # a picture, which the chart stands for
    return "t" if text.startswith("| ") else "l" if re.match(r"\s*- ", text) else "p"


def _block(lines: list[str], about: str) -> str:
    kind = _kind(lines[0])
    if kind == "t":
        return _table(lines, about)
    if kind == "l":
        return items(_nested(lines))
    return "".join(f"<p>{inline(text)}</p>" for text in lines)


def _nested(lines: list[str]) -> list[tuple[str, list[str]]]:
    """(item, the items indented under it)."""
    found: list[tuple[str, list[str]]] = []
    for text in lines:
        said = re.sub(r"^\s*- ", "", text)
        if text.startswith(" ") and found:
            found[-1][1].append(said)
        else:
            found.append((said, []))
    return found


def items(said: Sequence[tuple[str, list[str]]]) -> str:
    """A list, what is beyond OPEN_ITEMS folded, and what is indented under an item in a fold of its own."""
    shown, rest = list(said[:OPEN_ITEMS]), list(said[OPEN_ITEMS:])
    if len(rest) <= 1:
        shown, rest = shown + rest, []
    made = "<ul>" + "".join(map(_item, shown)) + "</ul>"
    if rest:
        inner = "".join(map(_item, rest))
        made += f'<details class="more"><summary>{len(rest)} more</summary><ul>{inner}</ul></details>'
    return made


def _item(item: tuple[str, list[str]]) -> str:
    text, under = item
    if not under:
        return f"<li>{inline(text)}</li>"
    inner = "".join(f"<li>{inline(one)}</li>" for one in under)
    summary = f"<summary>{inline(text)} <small>{len(under)}</small></summary>"
    return f'<li><details class="more">{summary}<ul>{inner}</ul></details></li>'


def _table(lines: list[str], about: str) -> str:
    heads, _, *rows = [_cells(line) for line in lines]
    named = ", ".join(_plain(h) for h in heads[:5]) + (" ..." if len(heads) > 5 else "")
    return table(heads, rows, about.rstrip(":") if 0 < len(about) <= _CAPTION else named, cell=inline)


def _cells(line: str) -> list[str]:
    return (
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|").strip())] if line.strip("| ") else []
    )


def _plain(text: str) -> str:
    return re.sub(r"[`*]", "", html.unescape(text)).strip()


def inline(text: object) -> str:
    """A line's HTML: commands between backticks become code, bold bold; entities and escapes are undone, all else is text."""
    parts = re.split(r"(`[^`]*`)", str(text))
    return "".join(f"<code>{_text(part[1:-1])}</code>" if i % 2 else _bold(_text(part)) for i, part in enumerate(parts))


def _text(text: str) -> str:
    return escaped(html.unescape(re.sub(r"\\([|*_`\\])", r"\1", text)))


def _bold(text: str) -> str:
    return re.sub(r"\*\*(clean|noisy)\*\*", r"<strong>\1</strong>", text)


def only(lines: list[str], *headings: str) -> list[str]:
    """The lines of the parts that begin with those ### headings."""
    return [line for heading in headings for line in _part(lines, heading)]


def without(lines: list[str], *headings: str) -> list[str]:
    """The lines without these parts."""
    for heading in headings:
        part = _part(lines, heading)
        start = lines.index(part[0]) if part else 0
        lines = lines[:start] + lines[start + len(part) :]
    return lines


def _part(lines: list[str], heading: str) -> list[str]:
    start = next((i for i, line in enumerate(lines) if line.startswith(heading)), None)
    if start is None:
        return []
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith("#")), len(lines))
    return lines[start:end]
