"""The page that people open: one HTML file with everything in it, the answer first. Charts by plotly's own JavaScript, inlined;
without JavaScript the pictures and the tables stay."""

import importlib.util
import pathlib

import msgspec

from analysis.report import body, calculator, html_blocks, pictures, replacing, rows
from analysis.report.charts import crossover as charts_crossover
from analysis.report.html_page import Page
from analysis.report.material import Material
from analysis.report.sections import all_numbers, differences, method
from analysis.report.sections.head import head as head_of
from analysis.report.sections.head import title
from analysis.report.templates import parts
from analysis.text import crossings, questions
from analysis.units import join
from workloads.records import Measurement, command_lines


def head(page: Page) -> dict:
    """Values for the page's head, above the answer: machine, title, files, commands."""
    heads = list(map(head_of, page.runs))
    return {
        "key": " beside ".join(of.name for of in page.runs) if page.several else heads[0].key,
        "title": title(page.runs),
        "heads": heads,
        "files": join(dict.fromkeys(file for one in heads for file in one.files)) or "no file",
        "commands": list(dict.fromkeys(command for one in heads for command in one.commands)),
    }


def answer(page: Page) -> None:
    """Adds the answer of each run, and the differences between the runs."""
    page.add("answer", "The answer", parts().by_run([(of, parts().answer(of.said)) for of in page.runs]))
    page.add("beside", differences.HEADING, html_blocks.html_of(differences.section(page.runs)))


def ask(page: Page) -> None:
    """Adds the questions of newcomers with each run's answer."""
    titles = {s["name"]: s["title"] for s in page.sections}
    found: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for of in page.runs:
        for question, section, said in questions.answered(of.analysis):
            found.setdefault((question, section), []).append((of.letter, said))
    if found:
        page.add("questions", "Questions newcomers ask", parts().questions(found, titles))


def crossover(page: Page) -> str:
    """The crossover's figure with its controls; "" where there are no two lines to compare."""
    if not charts_crossover.is_drawn(page.runs):
        return ""
    first = next((of for of in page.runs if charts_crossover.shown(of.analysis.crossovers)), page.of)
    answers = charts_crossover.shown(first.analysis.crossovers)
    (chart,) = pictures.over_each_other(("crossover",), page.runs)
    says = (
        charts_crossover.verdict(answers[0])
        if answers
        else crossings.no_gpu_sentence(first.rows, first.analysis.machine)
    )
    said = f"{first.letter}: {says}" if page.several else says
    return parts().crossover(said, page.numbers(chart), page.picture(chart.picture), page.several)


def sections(page: Page) -> None:
    for of in body.SECTIONS:
        figure = crossover(page) if of.name == "crossover" else page.draw(*of.charts)
        page.add(of.name, of.title, figure, page.part(of))


def calculate(page: Page) -> list[dict]:
    """Adds the calculator where any run has tables; returns these tables, run by run."""
    found = []
    for run in page.runs:
        tools = calculator.tools(run.rows, run.analysis.crossovers, run.analysis.profile)
        if tools:
            found.append({"run": run.label, "tools": tools})
    if found:
        page.add("calculator", "Try your own size", parts().calculator(page.several))
    return found


def list_rows(page: Page) -> None:
    """Adds the distributions and all numbers; without JavaScript these are a table."""
    if not any(of.rows for of in page.runs):
        return
    hint = _hint(next(m for of in page.runs for m in of.ordered))
    page.add("distributions", "The distribution of any row", parts().distributions(hint))
    told = all_numbers.table(page.runs, skipped=False)
    still = html_blocks.table(told.heads, told.rows, "All numbers", is_open=False)
    labels = [of.label for of in page.runs]
    page.add("numbers", "All numbers", parts().numbers(labels, still, hint))


def _hint(m: Measurement) -> str:
    """Words that find a row: `fit cifar10-cnn cpu`."""
    return " ".join((m.variant, m.problem.model or m.problem.op, m.device))


def how_measured(page: Page) -> None:
    formulas = method.formulas([m for of in page.runs for m in of.rows])
    page.add("method", body.METHOD.title, page.part(body.METHOD), html_blocks.html_of(formulas))


def embedded(runs: list[Material]) -> dict:
    """Data of all rows for the page's scripts: heads, cells (text), records (numbers), and the Run lines. Rows are in the order
    of the table, run by run, skipped ones last. numbers: indices of numeric columns; names: how many first columns identify a
    row; labels: the runs' labels, where there are several."""
    every = sum(len(of.rows) for of in runs)
    most = rows.QUANTILES if every <= rows.MANY else rows.FEWER
    several = len(runs) > 1
    table = all_numbers.table(runs)
    return {
        "heads": table.heads,
        "numbers": [i for i, head in enumerate(table.heads) if head not in ("run", *rows.WORDS)],
        "names": table.heads.index("time") + 1,
        "labels": [of.label for of in runs] if several else [],
        "cells": table.rows,
        "records": [
            ({"run": of.letter} if several else {}) | rows.record(m, judged, most)
            for of in runs
            for m, judged in zip(of.ordered, of.judged, strict=True)
        ],
        "runs": [
            ({"run": of.letter} if several else {})
            | msgspec.to_builtins(r)
            | {"command": command_lines.portable(r.command)}
            for of in runs
            for r in of.analysis.loaded.runs
        ],
    }


NAME = "report.html"
INSTALL = "python -m pip install jinja2 markdown-it-py plotly"


def has_libraries() -> bool:
    """Whether the template engine, the Markdown parser and plotly, which brings the charts' JavaScript, are installed."""
    return all(importlib.util.find_spec(name) for name in ("jinja2", "markdown_it", "plotly"))


def write(every: list[Material], path: pathlib.Path, folder: pathlib.Path | None) -> pathlib.Path:
    """Writes the page. folder: that of the SVGs shown without JavaScript; None without SVGs."""
    page = Page(every, folder)
    answer(page)
    sections(page)
    tools = calculate(page)
    list_rows(page)
    how_measured(page)
    ask(page)
    data = {"tools": tools, "crossover": charts_crossover.data(page.runs), "rows": embedded(page.runs)}
    replacing.write(path, page.render(data, **head(page)).encode())
    return path
