"""The page that people open: one HTML file with everything in it, the answer first. Charts by plotly's own JavaScript, inlined;
without JavaScript the pictures and the tables stay."""

import base64
import gzip
import importlib.util
import json
import pathlib
from typing import TYPE_CHECKING

import msgspec

from analysis import beside, calculator, comparison, facts, questions
from analysis.report import (
    budgets,
    cells,
    charts,
    charts_crossover,
    charts_jobs,
    charts_movement,
    charts_roofline,
    charts_training,
    fold,
    ladder,
    layers,
    movement,
    rows,
    sections,
    training,
    trust,
)
from analysis.report.material import Material
from analysis.units import count, join, size

if TYPE_CHECKING:
    from analysis.report.charts import Chart
    from workloads.results import Loaded

NAME = "report.html"
INSTALL = "python -m pip install jinja2 plotly"
_HERE = pathlib.Path(__file__).parent
_SCRIPTS = ("page_units.js", "page_charts.js", "page_crossover.js", "page_calculator.js", "page_rows.js", "page.js")


class Section(msgspec.Struct, frozen=True):
    """A section of the page: `body` is HTML."""

    name: str
    title: str
    body: str


def has_libraries() -> bool:
    """Whether jinja2 and plotly, which bring the template engine and the charts' JavaScript, are installed."""
    return all(importlib.util.find_spec(name) for name in ("jinja2", "plotly"))


def plotly_js() -> str:
    """Plotly's JavaScript as the installed package brings it: gzip in base64, a third of its size, which page.js unpacks."""
    found = importlib.util.find_spec("plotly")
    text = (pathlib.Path(found.origin).parent / "package_data" / "plotly.min.js").read_bytes()
    return base64.b64encode(gzip.compress(text, 9, mtime=0)).decode()


class _Page:
    """Gathers sections and the charts in them."""

    def __init__(self, of: "Material", pictures: pathlib.Path | None):
        import jinja2

        self.of, self.pictures = of, pictures
        self.templates = jinja2.Environment(
            loader=jinja2.FileSystemLoader(_HERE), autoescape=True, trim_blocks=True, lstrip_blocks=True
        )
        self.parts = self.templates.get_template("parts.html.j2").module
        self.charts: dict[str, Chart] = {}
        self.sections: list[Section] = []

    def safe(self, text: str):
        import markupsafe

        return markupsafe.Markup(text)

    def picture(self, name: str) -> str:
        """The SVG as a data URI; "" where it was not drawn."""
        path = self.pictures / name if self.pictures and name else None
        if path is None or not path.is_file():
            return ""
        return "data:image/svg+xml;base64," + base64.b64encode(path.read_bytes()).decode()

    def draw(self, found: "list[Chart]") -> str:
        """The figures of charts, each with its sentence and its table."""
        made = []
        for c in found:
            self.charts[c.name] = c
            table = fold.table(c.heads, c.rows, f"The numbers of this chart: {c.title}", is_open=False)
            made.append(str(self.parts.chart(c, self.safe(table), self.picture(c.picture))))
        return "".join(made)

    def add(self, name: str, title: str, *bodies: str) -> None:
        """A section, if there is anything in it."""
        if any(b.strip() for b in bodies):
            self.sections.append(Section(name, title, "\n".join(bodies)))

    def still(self, name: str, says: str, folded: bool) -> str:
        """A picture that no chart stands for."""
        src, alt = self.picture(name), fold.escaped(says)
        image = f'<img class="kept" src="{src}" alt="{alt}" loading="lazy">' if src else ""
        return (
            f'<details class="more"><summary>Picture: {alt}</summary>{image}</details>' if image and folded else image
        )


def write(
    of: "Material",
    path: pathlib.Path,
    pictures: pathlib.Path | None,
    pairs: "list[tuple[str, str, Loaded, Loaded]]" = (),
) -> pathlib.Path:
    """Writes the page. pictures: the folder of the SVGs that show without JavaScript. pairs: runs set beside each other."""
    page = _Page(of, pictures)
    others = [
        (new, Material(after)) for old, new, _, after in pairs if after.runs and after.runs[-1].machine.key == new
    ]
    _answer(page)
    _beside(page, pairs)
    _crossover(page, others)
    _roofline(page, others)
    for build in (_kernels, _layers, _memory, _transfers, _launches, _training, _small):
        build(page)
    tools = calculator.tools(of.rows, of.answers, of.profile)
    if tools:
        intro = (
            "<p>Times are read off tables of what was measured here, on straight lines between the sizes in the logarithm; "
            "beyond them the last line goes on, and the answer is gray and says so.</p>"
        )
        page.add("calculator", "Try your own size", intro, str(page.parts.calculator()))
    _rows(page)
    _method(page)
    _questions(page)
    embedded = {
        "charts": {n: {"views": c.views} for n, c in page.charts.items()},
        "tools": tools,
        "crossover": charts_crossover.data(of.answers, of.rows, others),
        "rows": rows.embedded(of),
    }
    text = page.templates.get_template("page.html.j2").render(
        **_head(of),
        sections=[msgspec.structs.replace(s, body=page.safe(s.body)) for s in page.sections],
        data=page.safe(as_json(embedded)),
        css=page.safe(_file("page.css")),
        plotly=plotly_js(),
        scripts=[page.safe(_script(_file(name))) for name in _SCRIPTS],
    )
    path.write_text(text, encoding="utf-8")
    return path


def as_json(found: object) -> str:
    """JSON that no HTML parser sees anything in."""
    text = json.dumps(msgspec.to_builtins(found), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _script(text: str) -> str:
    return text.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _file(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _head(of: "Material") -> dict:
    """What stands above the answer."""
    loaded, run = of.loaded, of.loaded.runs[-1] if of.loaded.runs else None
    bad, timed = sections.noisy(of.rows)
    word = "noisy" if bad > sections.NOISY_SHARE * timed else "clean"
    why = f"{bad} of {count(timed, 'timed row')} flagged or with an interval wider than ±{100 * sections.NOISY_WIDTH:.0f} %"
    machine = "The result file has no line that says what machine it came from."
    if run:
        machine = f"{facts.machine_words(run.machine)}, {size(run.machine.memory_bytes)} of memory" + (
            ", virtual" if run.machine.virtual else ""
        )
    files = dict.fromkeys("/".join(pathlib.Path(f).parts[-2:]) for f in loaded.files)
    return {
        "key": run.machine.key if run else "an unknown machine",
        "machine": machine,
        "badge": {"word": word, "why": why},
        "dates": join(sorted({r.started_at[:10] for r in loaded.runs})),
        "commit": run.commit if run else "",
        "counted": f"{count(len(of.rows), 'row')} of {count(len(files), 'file')}",
        "files": join(files) or "no file",
        "commands": list(dict.fromkeys(cells.portable(r.command) for r in loaded.runs)),
    }


def _answer(page: _Page) -> None:
    said = page.of.said
    page.add(
        "answer",
        "The answer",
        '<ol class="answer">' + "".join(f"<li>{fold.inline(cells.text(s))}</li>" for s in said) + "</ol>"
        if said
        else "<p>Nothing was measured that answers.</p>",
    )


def _beside(page: _Page, pairs: "list[tuple[str, str, Loaded, Loaded]]") -> None:
    bodies = []
    for old, new, before, after in pairs:
        found = comparison.comparison(before, after)
        said = [(cells.text(s), []) for s in beside.sentences(found, old, new)]
        shown = (
            fold.table(beside.HEADS, beside.rows(found), f"Rows that {old} and {new} share", is_open=False)
            if found.rows
            else ""
        )
        bodies += [f"<h3>{fold.escaped(new)} beside {fold.escaped(old)}</h3>", fold.items(said), shown]
    page.add("beside", "Beside the other runs", *bodies)


def _crossover(page: _Page, others: "list[tuple[str, Material]]") -> None:
    of = page.of
    text = fold.markdown(sections.crossover_section(of.rows, of.answers, False))
    shown = charts_crossover.shown(of.answers)
    figure = ""
    if shown:
        heads, found = charts_crossover.table(of.answers)
        table = fold.table(heads, found, "The numbers of this chart: time of a call at every size", is_open=False)
        says = charts_crossover.verdict(shown[0])
        figure = str(
            page.parts.crossover(
                says, page.safe(table), page.picture("crossover.svg"), charts_crossover.says(of.answers)
            )
        )
    page.add("crossover", "Where the GPU wins", figure, text)


def _roofline(page: _Page, others: "list[tuple[str, Material]]") -> None:
    of = page.of
    found = charts_roofline.chart(of.rows, of.roofs, others)
    text = sections.roofline_section(of.rows, of.roofs, False) if found else []
    page.add("roofline", "How far from the hardware's limit", page.draw(found), fold.markdown(text))


def _layers(page: _Page) -> None:
    for op, found in page.of.layers.items():
        title, _, stem = layers.SECTIONS[op]
        stills = "".join(page.still(f"{name}.svg", says, "-" not in name) for name, says in layers.pictures_of(found))
        page.add(stem, title, stills, fold.markdown(layers.section(found, {})))


def _kernels(page: _Page) -> None:
    of = page.of
    page.add(
        "kernels",
        "Kernels",
        page.draw(charts.rates(of.rows, of.roofs)),
        fold.markdown(sections.kernels_section(of.rows, of.roofs, False)),
    )
    for op, title in ladder.TITLES.items():
        page.add(f"ladder-{op}", title, fold.markdown(ladder.section(of.rows, of.machine, op)))


def _memory(page: _Page) -> None:
    of = page.of
    page.add(
        "memory",
        "Memory: how fast at every level",
        page.draw(charts_movement.memory(of.rows, of.machine)),
        fold.markdown(movement.memory_section(of.rows, of.machine, [], of.roofs)),
    )


def _transfers(page: _Page) -> None:
    of = page.of
    text = movement.copies_section(of.rows, of.roofs, [])
    page.add(
        "transfers",
        "Copies between host and GPU",
        page.draw(charts_movement.copies(of.rows)),
        fold.markdown(_without(text, "### What small data sets")),
    )


def _launches(page: _Page) -> None:
    page.add(
        "launches",
        "Launches and framework constants",
        fold.markdown(movement.launches_section(page.of.rows, page.of.roofs)),
    )


def _training(page: _Page) -> None:
    of = page.of
    found = [
        *charts_training.along(of.trainings),
        *charts_training.steps(of.budgets),
        *charts_training.foretold(of.foretold),
        *charts_jobs.break_even(of.pairs),
    ]
    text = training.section(of.rows, {})
    for heading in ("### Small data sets", "### The articles beside"):
        text = _without(text, heading)
    page.add(
        "training",
        "Training with Keras",
        page.draw(found),
        fold.markdown(budgets.section(of.budgets, of.rows)),
        fold.markdown(text),
    )


def _small(page: _Page) -> None:
    of = page.of
    text = training.section(of.rows, {})
    copying = movement.copies_section(of.rows, of.roofs, [])
    told = [line for heading in ("### Small data sets", "### The articles beside") for line in _only(text, heading)]
    page.add(
        "small-data",
        "Small data sets: is it the copying?",
        page.draw(charts_jobs.small(of.small, of.budgets)),
        fold.markdown(told),
        fold.markdown(_only(copying, "### What small data sets")),
    )


def _only(lines: list[str], heading: str) -> list[str]:
    """The lines of a part that begins with that ### heading."""
    start = next((i for i, line in enumerate(lines) if line.startswith(heading)), None)
    if start is None:
        return []
    end = next((i for i in range(start + 1, len(lines)) if lines[i].startswith("#")), len(lines))
    return lines[start:end]


def _without(lines: list[str], heading: str) -> list[str]:
    part = _only(lines, heading)
    start = lines.index(part[0]) if part else 0
    return lines[:start] + lines[start + len(part) :]


def _rows(page: _Page) -> None:
    of = page.of
    if not of.rows:
        return
    page.add("distributions", "The distribution of any row", str(page.parts.distributions()))
    told = [row for m, row in zip(of.ordered, rows.words(of), strict=True) if m.status != "skipped"]
    still = fold.table(rows.HEADS, told, "All numbers", is_open=False)
    page.add("numbers", "All numbers", str(page.parts.numbers(len(of.rows), page.safe(still))))


def _method(page: _Page) -> None:
    of = page.of
    page.add("trust", "How far to trust this", fold.markdown(trust.section(of.rows)))
    page.add(
        "method",
        "How it was measured",
        fold.markdown(sections.details_section(of.left_out)),
        fold.markdown(sections.how_section(of.loaded)),
        fold.markdown(sections.formulas()),
    )


def _questions(page: _Page) -> None:
    of = page.of
    found = questions.answered(questions.Asked(of.rows, of.answers, of.roofs, of.pairs, of.machine))
    titles = {s.name: s.title for s in page.sections}
    if found:
        page.add("questions", "Questions newcomers ask", str(page.parts.questions(found, titles)))
