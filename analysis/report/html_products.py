"""Products and convolutions on the page: where the GPU wins, the roofline, every kernel, layers, the teaching ladder."""

from typing import TYPE_CHECKING

from analysis import crossing_words
from analysis.report import charts, charts_crossover, charts_roofline, fold, ladder, layers, sections

if TYPE_CHECKING:
    from analysis.report.html_page import Page


def crossover(page: "Page") -> None:
    """The chart with its controls, and the answers in tables."""
    figure = ""
    if charts_crossover.is_drawn(page.runs):
        first = next((of for of in page.runs if charts_crossover.shown(of.answers)), page.of)
        answers = charts_crossover.shown(first.answers)
        heads, found = charts_crossover.table(page.runs)
        table = fold.table(heads, found, "The numbers of this chart: time of a call at every size", is_open=False)
        says = (
            charts_crossover.verdict(answers[0])
            if answers
            else crossing_words.no_gpu_sentence(first.rows, first.machine)
        )
        figure = str(
            page.parts.crossover(
                " ".join(filter(None, (f"{first.letter}:" * page.several, says))),
                page.safe(table),
                page.picture("crossover.svg"),
                charts_crossover.says(first.answers),
                page.several,
            )
        )
    page.add(
        "crossover",
        "Where the GPU wins",
        figure,
        page.told(lambda of: sections.crossover_section(of.rows, of.answers, False)),
    )


def roofline(page: "Page") -> None:
    """The ceilings and what stands under them."""
    drawn = page.draw(lambda of: charts_roofline.chart(of.rows, of.roofs))
    told = page.told(lambda of: sections.roofline_section(of.rows, of.roofs, False)) if drawn else ""
    page.add("roofline", "How far from the hardware's limit", drawn, told)


def kernels(page: "Page") -> None:
    """Every kernel by size, and the ladders of our own."""
    page.add(
        "kernels",
        "Kernels",
        page.draw(lambda of: charts.rates(of.rows, of.roofs)),
        page.told(lambda of: sections.kernels_section(of.rows, of.roofs, False)),
    )
    for op, title in ladder.TITLES.items():
        page.add(f"ladder-{op}", title, page.told(lambda of, op=op: ladder.section(of.rows, of.machine, op)))


def by_layer(page: "Page") -> None:
    """Convolutions and the products of layers, each with its pictures."""
    for op, (title, _, stem) in layers.SECTIONS.items():
        stills = "".join(
            page.still(f"{of.prefix}{name}.svg", f"{of.letter}: {says}" if page.several else says, "-" not in name)
            for of in page.runs
            for name, says in layers.pictures_of(of.layers[op])
        )
        page.add(stem, title, stills, page.told(lambda of, op=op: layers.section(of.layers[op], {})))
