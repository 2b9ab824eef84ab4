"""The HTML page under construction: its sections, their charts, the templates, and the data for its scripts."""

import base64
import gzip
import importlib.resources
import pathlib

import msgspec

from analysis.report import body, html_blocks, pictures
from analysis.report.charts.chart import Chart
from analysis.report.material import Material
from analysis.report.templates import WEB, parts, safe, templates
from workloads import terminal

_SCRIPTS = ("units.js", "charts.js", "crossover.js", "calculator.js", "rows.js", "page.js")


class Page:
    """Collects sections and the charts in them, of one run or of several. folder: that of the SVGs; None without."""

    def __init__(self, runs: "list[Material]", folder: pathlib.Path | None):
        self.runs = runs
        self.folder = folder
        self.several = len(runs) > 1
        self.charts: dict[str, Chart] = {}
        self.sections: list[dict] = []

    def picture(self, name: str) -> str:
        """The SVG as a data URI; "" where it was not drawn."""
        path = self.folder / name if self.folder and name else None
        if path is None or not path.is_file():
            return ""
        return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()

    def draw(self, *names: str) -> str:
        """The figures of charts, each with its sentence and its table; several runs are drawn in one figure."""
        figures = []
        for chart in pictures.merged_charts(names, self.runs):
            self.charts[chart.name] = chart
            figures.append(parts().chart(chart, self.numbers(chart), self.picture(chart.picture)))
        return "".join(figures)

    def numbers(self, chart: Chart) -> str:
        """The chart's table, folded."""
        return html_blocks.table(chart.numbers.heads, chart.numbers.rows, "The numbers of this chart", is_open=False)

    def part(self, section: body.Section) -> str:
        """A section as HTML, run by run; under each run's name where there are several."""
        level = 4 if self.several else 3
        by_run = []
        for run in self.runs:
            blocks = body.blocks(section, run)
            by_run.append((run, html_blocks.html_of(blocks, section.title, level)))
        return parts().by_run(by_run)

    def add(self, name: str, title: str, *bodies: str) -> None:
        """Adds a section of these pieces of HTML; none if all are empty."""
        if any(part.strip() for part in bodies):
            self.sections.append({"name": name, "title": title, "body": safe("\n".join(bodies))})

    def render(self, data: dict, **shown) -> str:
        """The whole page, without control characters of a file's names. data: the scripts' data besides the charts."""
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
    """JSON with escaped <, > and &, safe inside an HTML script element."""
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
