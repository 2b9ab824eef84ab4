"""The page's templates (web/*.j2): their values are escaped as text, unless `safe` marks them as HTML.

Text from result files is always escaped: HTML, links and pictures in it are not parsed.
"""

import functools
import pathlib
from typing import TYPE_CHECKING, Any

from analysis.table import with_single_spaces

if TYPE_CHECKING:
    import jinja2
    from markdown_it import MarkdownIt
    from markupsafe import Markup

WEB = pathlib.Path(__file__).parent / "web"


@functools.cache
def _code_marks() -> "MarkdownIt":
    """A parser of text with code between backticks; all other markup stays text."""
    from markdown_it import MarkdownIt

    return MarkdownIt("zero", {"html": False}).enable("backticks")


def safe(html: str) -> "Markup":
    """HTML that the templates leave as it is."""
    import markupsafe

    return markupsafe.Markup(html)


def inline(words: object) -> "Markup":
    """The HTML of words: what stands between backticks becomes code, all else is text."""
    return safe(_code_marks().renderInline(with_single_spaces(words)))


@functools.cache
def templates() -> "jinja2.Environment":
    """The templates of the page (web/*.j2). They escape all values, and have `inline` as a filter."""
    import jinja2

    loader = jinja2.FileSystemLoader(WEB)
    environment = jinja2.Environment(loader=loader, autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["inline"] = inline
    return environment


def parts() -> Any:
    """The macros of parts.html.j2, by name."""
    return templates().get_template("parts.html.j2").module
