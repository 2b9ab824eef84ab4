"""The page's templates (web/*.j2): their values are escaped as text, unless `safe` marks them as HTML.

Text from result files is always escaped: HTML, links and pictures in it are not parsed.
"""

import functools
import pathlib
from typing import TYPE_CHECKING, Any

from analysis.table import text

if TYPE_CHECKING:
    import jinja2
    from markdown_it import MarkdownIt
    from markupsafe import Markup

WEB = pathlib.Path(__file__).parent / "web"
_PARSED = ("heading", "list", "table", "backticks", "escape", "entity")


@functools.cache
def markdown() -> "MarkdownIt":
    """A parser of the Markdown that sections use; all other markup stays text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable(list(_PARSED))


def safe(html: str) -> "Markup":
    """HTML that the templates leave as it is."""
    import markupsafe

    return markupsafe.Markup(html)


def inline(line: object) -> "Markup":
    """A line's HTML: commands between backticks become code; entities and escapes are undone, all else is text."""
    return safe(markdown().renderInline(str(line)))


@functools.cache
def templates() -> "jinja2.Environment":
    """The templates of the page. Filters: `inline` of Markdown, `said` of a sentence."""
    import jinja2

    loader = jinja2.FileSystemLoader(WEB)
    made = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    made.filters |= {"inline": inline, "said": lambda sentence: inline(text(sentence))}
    return made


def parts() -> Any:
    """The macros of parts.html.j2, by name."""
    return templates().get_template("parts.html.j2").module
