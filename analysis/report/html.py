"""The page that people open: one HTML file with everything in it, the answer first. Charts by plotly's own JavaScript, inlined;
without JavaScript the pictures and the tables stay."""

import importlib.util
import pathlib

import msgspec

from analysis.report import body, calculator, html_blocks, pictures, replacing, rows
from analysis.report.charts import crossover
from analysis.report.html_page import Page
from analysis.report.material import Material
from analysis.report.sections import all_numbers, differences, head, method
from analysis.report.templates import parts
from analysis.text import crossings, questions
from analysis.units import join
from workloads.records import Measurement, command_lines


def head_values(page: Page) -> dict:
    """Values for the fields of web/page.html.j2 above the answer: machine, title, files, commands."""
    heads = [head.head(run) for run in page.runs]
    key = heads[0].key
    if page.several:
        key = " beside ".join(run.name for run in page.runs)
    files: dict[str, None] = {}
    commands: dict[str, None] = {}
    for run_head in heads:
        files |= dict.fromkeys(run_head.files)
        commands |= dict.fromkeys(run_head.commands)
    return {
        "key": key,
        "title": head.title(page.runs),
        "heads": heads,
        "files": join(files) or "no file",
        "commands": list(commands),
    }


def add_answer(page: Page) -> None:
    """Adds the answer of each run; of several runs also their differences. `parts()` are the macros of web/parts.html.j2."""
    answers = [(run, parts().answer(run.answer)) for run in page.runs]
    page.add("answer", "The answer", parts().by_run(answers))
    page.add("beside", differences.HEADING, html_blocks.html_of(differences.section(page.runs)))


def add_questions(page: Page) -> None:
    """Adds the questions that newcomers ask, each with every run's answer and a link to the section that says more."""
    titles = {section["name"]: section["title"] for section in page.sections}
    answers: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for run in page.runs:
        for one in questions.answered(run.analysis):
            answers.setdefault((one.question, one.section), []).append((run.letter, one.answer))
    if answers:
        page.add("questions", "Questions newcomers ask", parts().questions(answers, titles))


def crossover_figure(page: Page) -> str:
    """HTML of the crossover's chart with its slider; "" where there are no two lines to compare. The sentence above it is the
    first answer of the first run that has one.
    """
    if not crossover.is_drawn(page.runs):
        return ""
    with_answers = [run for run in page.runs if crossover.shown(run.analysis.crossovers)]
    if with_answers:
        run = with_answers[0]
        sentence = crossover.verdict(crossover.shown(run.analysis.crossovers)[0])
    else:
        run = page.runs[0]
        sentence = crossings.no_gpu_sentence(run.rows, run.analysis.machine)
    if page.several:
        sentence = f"{run.letter}: {sentence}"
    (chart,) = pictures.merged_charts(("crossover",), page.runs)
    return parts().crossover(sentence, page.numbers(chart), page.picture(chart.picture), page.several)


def add_sections(page: Page) -> None:
    """Adds the sections between the answer and the calculator, each with its figures."""
    for section in body.SECTIONS:
        figures = crossover_figure(page) if section.name == "crossover" else page.draw(*section.charts)
        page.add(section.name, section.title, figures, page.part(section))


def add_calculator(page: Page) -> list[dict]:
    """Adds the calculator, if any run has tables for it. Returns the tables for the page's scripts, run by run."""
    by_run = []
    for run in page.runs:
        tools = calculator.tools(run.rows, run.analysis.crossovers, run.analysis.profile)
        if tools:
            by_run.append({"run": run.label, "tools": tools})
    if by_run:
        page.add("calculator", "Try your own size", parts().calculator(page.several))
    return by_run


def add_rows(page: Page) -> None:
    """Adds the section that draws the samples of a row, and the table of all numbers. The scripts build both from `embedded`;
    without JavaScript a plain table stays.
    """
    with_rows = [run for run in page.runs if run.rows]
    if not with_rows:
        return
    hint = _hint(with_rows[0].ordered[0])
    page.add("distributions", "The distribution of any row", parts().distributions(hint))
    table = all_numbers.table(page.runs, skipped=False)
    still = html_blocks.table(table.heads, table.rows, "All numbers", is_open=False)
    labels = [run.label for run in page.runs]
    page.add("numbers", "All numbers", parts().numbers(labels, still, hint))


def _hint(m: Measurement) -> str:
    """An example of what to type into the page's search to find a row: `fit cifar10-cnn cpu`."""
    return " ".join((m.variant, m.problem.model or m.problem.op, m.device))


def add_method(page: Page) -> None:
    """Adds the section on how it was measured, with the formulas behind the numbers of the operations that the runs have."""
    every: list[Measurement] = []
    for run in page.runs:
        every += run.rows
    formulas = html_blocks.html_of(method.formulas(every))
    page.add("method", body.METHOD.title, page.part(body.METHOD), formulas)


def embedded(runs: list[Material]) -> dict:
    """All rows as data for the page's scripts (web/rows.js), in the order of the table: run by run, skipped ones last.

    Returns: heads and cells, the table's text; numbers, the indices of its numeric columns; names, how many columns at the left
        identify a row; records, the numbers of each row; runs, the Run lines; labels of the runs, where there are several.
    """
    every = sum(len(run.rows) for run in runs)
    most = rows.QUANTILES if every <= rows.MANY else rows.FEWER
    several = len(runs) > 1
    table = all_numbers.table(runs)
    without_numbers = ("run", *rows.WORDS)
    labels: list[str] = []
    records: list[dict] = []
    run_lines: list[dict] = []
    for run in runs:
        letter = {"run": run.letter} if several else {}
        if several:
            labels.append(run.label)
        for m, judged in zip(run.ordered, run.judged, strict=True):
            records.append(letter | rows.record(m, judged, most))
        for line in run.analysis.loaded.runs:
            command = command_lines.portable(line.command)
            run_lines.append(letter | msgspec.to_builtins(line) | {"command": command})
    return {
        "heads": table.heads,
        "numbers": [i for i, name in enumerate(table.heads) if name not in without_numbers],
        "names": table.heads.index("time") + 1,
        "labels": labels,
        "cells": table.rows,
        "records": records,
        "runs": run_lines,
    }


NAME = "report.html"
INSTALL = "python -m pip install jinja2 markdown-it-py plotly"


def has_libraries() -> bool:
    """Whether the template engine, the Markdown parser and plotly, which brings the charts' JavaScript, are installed."""
    return all(importlib.util.find_spec(name) for name in ("jinja2", "markdown_it", "plotly"))


def write(every: list[Material], path: pathlib.Path, folder: pathlib.Path | None) -> pathlib.Path:
    """Writes the HTML page of the runs. Returns its path. folder: where the SVG pictures are, which are shown without JavaScript;
    None without pictures.
    """
    page = Page(every, folder)
    add_answer(page)
    add_sections(page)
    tools = add_calculator(page)
    add_rows(page)
    add_method(page)
    add_questions(page)
    data = {"tools": tools, "crossover": crossover.data(page.runs), "rows": embedded(page.runs)}
    replacing.write(path, page.render(data, **head_values(page)).encode())
    return path
