"""The HTML page under construction: its sections, their charts, the templates, and the data for its scripts."""

import base64
import gzip
import importlib.resources
import pathlib
from typing import Any

import msgspec

from analysis.report import body, html_blocks, pictures
from analysis.report.charts.chart import Chart
from analysis.report.material import Material
from analysis.report.templates import WEB, parts, safe, templates
from workloads import terminal

_SCRIPTS = ("units.js", "charts.js", "crossover.js", "calculator.js", "rows.js", "page.js")


class Page:
    """The HTML page under construction. Sections are added one after the other, then `render` gives the whole page."""

    def __init__(self, runs: "list[Material]", folder: pathlib.Path | None):
        """folder: where the SVG pictures are; None without pictures."""
        self.runs = runs
        self.folder = folder
        #: Whether the page is about several runs.
        self.several = len(runs) > 1
        #: Name -> the chart, of those that a section shows; the page's scripts draw them.
        self.charts: dict[str, Chart] = {}
        #: The sections for the template, each with the keys name, title and body.
        self.sections: list[dict[str, str]] = []

    def picture(self, name: str) -> str:
        """The SVG picture of that file name as a data URI; "" where there is none."""
        path = self.folder / name if self.folder and name else None
        if path is None or not path.is_file():
            return ""
        return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()

    def draw(self, *names: str) -> str:
        """HTML of the charts of these names (pictures.CHARTS), each with its sentence and its table. Several runs are drawn in
        one chart.
        """
        figures = []
        for chart in pictures.merged_charts(names, self.runs):
            self.charts[chart.name] = chart
            figures.append(parts().chart(chart, self.numbers(chart), self.picture(chart.picture)))
        return "".join(figures)

    def numbers(self, chart: Chart) -> str:
        """HTML of a chart's table, folded."""
        return html_blocks.table(chart.numbers.heads, chart.numbers.rows, "The numbers of this chart", is_open=False)

    def part(self, section: body.Section) -> str:
        """HTML of a section's blocks, run by run; each under its run's name where there are several."""
        level = 4 if self.several else 3
        by_run = []
        for run in self.runs:
            blocks = body.blocks(section, run)
            by_run.append((run, html_blocks.html_of(blocks, section.title, level)))
        return parts().by_run(by_run)

    def add(self, name: str, title: str, *bodies: str) -> None:
        """Adds a section of these pieces of HTML; nothing if all are empty. name: its address on the page."""
        if any(part.strip() for part in bodies):
            self.sections.append({"name": name, "title": title, "body": safe("\n".join(bodies))})

    def render(self, data: dict[str, Any], **shown: object) -> str:
        """The whole page as HTML, without control characters that names of files may have.

        Args:
            data: what the page's scripts read besides the charts, by the names that they use.
            shown: values for the template's fields above the sections.
        """
        charts = {name: {"views": chart.views} for name, chart in self.charts.items()}
        scripts = [_file(name).replace("</script", "<\\/script").replace("<!--", "<\\!--") for name in _SCRIPTS]
        page = templates().get_template("page.html.j2")
        html = page.render(
            **shown,
            sections=self.sections,
            data=safe(as_json({"charts": charts} | data)),
            css=safe(_file("page.css")),
            plotly=plotly_js(),
            scripts=list(map(safe, scripts)),
        )
        return terminal.printable(html)


def as_json(data: object) -> str:
    """JSON that can stand inside an HTML script element: <, > and & are escaped, and two line separators that JavaScript
    knows.
    """
    text = msgspec.json.encode(data).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def plotly_js() -> str:
    """Plotly's JavaScript as the installed package brings it: gzip in base64, a third of its size, which page.js unpacks."""
    text = importlib.resources.files("plotly").joinpath("package_data", "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()


def _file(name: str) -> str:
    return (WEB / name).read_text(encoding="utf-8")
