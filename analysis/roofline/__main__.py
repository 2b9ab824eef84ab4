"""`python -m analysis.roofline RUN...`: everything heavy is imported after parsing."""

import argparse
import sys
from typing import TYPE_CHECKING

from analysis.report import command
from workloads import options, terminal
from workloads.command_line import running

if TYPE_CHECKING:
    from analysis.report.plan import RooflinePlan
    from analysis.roofline.roofs import Roofs
    from workloads.records import Loaded, Measurements

#: Columns that a narrow terminal does without, the first of these first.
LEAST_COLUMNS = "flag | measured by | threads | ridge, FLOP per byte | FLOP per byte | of the data sheet | ± | the roof"
QUESTION = "How close do kernels come to the limit of the hardware?"


def main(argv: list[str] | None = None) -> int:
    """Prints the roofs and the rows under them and writes roofline.svg. Returns the exit status."""
    roofline_parser = command.parser(
        "analysis.roofline",
        does="Prints a machine's measured ceilings and how near its rows come to them.",
        makes="roofline.svg",
        question=QUESTION,
    )
    return running.run_command(roofline_parser, argv, make_plan=_plan, carry_out=_run)


def _plan(flags: argparse.Namespace) -> "RooflinePlan":
    from analysis.report.plan import RooflinePlan

    return RooflinePlan.from_flags(flags)


def _run(plan: "RooflinePlan") -> int:
    with command.refusals("analysis.roofline", plan.runs):
        return _roofline(plan)


def _roofline(plan: "RooflinePlan") -> int:
    """Prints the tables of a machine's roofs and writes the picture. Returns the exit status.

    Raises: ValueError for runs of several machines; options.Missing for runs without a measured roof, and without matplotlib.
    """
    from analysis.analysis import Analysis
    from analysis.compare.comparison import machine_keys
    from workloads import records

    loaded = records.read(*plan.runs)
    keys = machine_keys(loaded.runs)
    if len(keys) > 1:
        raise ValueError(f"these runs are of different machines ({', '.join(keys)}); one roofline shows one machine")
    roofs = Analysis.from_loaded(loaded).roofs
    _print_tables(loaded, roofs)
    if not any(roof.measured for roof in roofs):
        raise _no_roof(plan)
    command.require_matplotlib("no picture was drawn")
    _draw(plan, loaded.measurements, roofs)
    return options.OK


def _print_tables(loaded: "Loaded", roofs: "Roofs") -> None:
    """Prints the measured limits (roofs) of each device, then the products and layers with their shares of these, then rows that
    are faster than their roof."""
    from analysis.report.charts import roofline
    from analysis.report.sections.roofline import CEILINGS, ceilings
    from analysis.roofline.bounds import (
        CACHED_MARK,
        CACHED_WORDS,
        NO_KERNEL,
        NO_KERNEL_WORDS,
        is_above_roof,
        quick_judge,
    )
    from analysis.roofline.roofs import describe
    from analysis.table import Table

    products = roofline.products(loaded.measurements, roofs)
    layers = roofline.layer_rows(roofline.layer_points(loaded.measurements), roofs)
    tables = (
        (CEILINGS, ceilings(roofs)),
        (roofline.PRODUCTS, [row.cells for row in products]),
        (roofline.PRODUCTS, [row.cells for row in layers]),
    )
    for heads, cells in tables:
        if cells:
            print(*Table(heads, cells, left=2, least=LEAST_COLUMNS, last=True).text(), "", sep="\n")
    rows = [*products, *layers]
    if any(row.judged.is_marked for row in rows):
        terminal.show([terminal.Line(f"{CACHED_WORDS}.", label=f"{CACHED_MARK} ")])
    if any(row.flag == NO_KERNEL for row in rows):
        print(f"{NO_KERNEL}: {' '.join(NO_KERNEL_WORDS.split())}")
    for m in loaded.measurements:
        if quick_judge(m, roofs).flag or is_above_roof(m, roofs, loaded.machine):
            print(f"above its roof: {describe(m)}")


def _no_roof(plan: "RooflinePlan") -> options.Missing:
    """The error for runs without a measured roof: it names the rows that give one, and a stored run to look at instead."""
    stored = options.near(options.stored_run())
    wrong = plan.runs[0] if len(plan.runs) == 1 else None
    tip = f"python -m analysis.roofline {stored}"
    message = (
        f"no roof was measured in {', '.join(plan.runs)}: peak and stream rows do, and every new matmul or conv run"
    )
    missing = options.Missing(message, tip, wrong, stored if wrong else "")
    missing.is_example = True
    return missing


def _draw(plan: "RooflinePlan", measurements: "Measurements", roofs: "Roofs") -> None:
    """Writes roofline.svg and prints its path; nothing where there is nothing to draw."""
    from analysis.report import page
    from analysis.report.charts import roofline, svg

    charts = roofline.chart(list(measurements), roofs)
    if not charts:
        return
    folder = page.place(plan.runs, plan.out)
    folder.mkdir(parents=True, exist_ok=True)
    print(svg.save(svg.figure(charts[0].views[0], charts[0].title), folder / charts[0].picture))


if __name__ == "__main__":
    sys.exit(main())
