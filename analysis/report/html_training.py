"""Trainings on the page: what a step takes, what was foretold, when a GPU has paid back; small data sets by themselves."""

from typing import TYPE_CHECKING

from analysis.report import budgets, charts_jobs, charts_training, fold, movement, training

if TYPE_CHECKING:
    from analysis.report.html_page import Page
    from analysis.report.material import Material

_SMALL = ("### Small data sets", "### The articles beside")


def trainings(page: "Page") -> None:
    """Charts along every size, the budgets, the tables."""
    page.add(
        "training",
        "Training with Keras",
        page.draw(
            lambda of: charts_training.along(of.trainings),
            lambda of: charts_training.steps(of.budgets),
            lambda of: charts_training.foretold(of.foretold),
            lambda of: charts_jobs.break_even(of.pairs),
        ),
        page.told(lambda of: budgets.section(of.budgets, of.rows, of.said)),
        page.told(lambda of: fold.without(training.section(of.rows, {}), *_SMALL)),
    )


def small(page: "Page") -> None:
    """The study of small data sets: whether it is the copying."""

    def told(of: "Material") -> list[str]:
        return [
            *fold.only(training.section(of.rows, {}), *_SMALL),
            *fold.only(movement.copies_section(of.rows, of.roofs, []), movement.SMALL),
        ]

    page.add(
        "small-data",
        "Small data sets: is it the copying?",
        page.draw(lambda of: charts_jobs.small(of.small, of.budgets)),
        page.told(told),
    )
