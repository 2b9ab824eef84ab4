"""Bytes on the page: levels of memory, copies between host and GPU, what a call costs before any work."""

from typing import TYPE_CHECKING

from analysis.report import charts_movement, fold, movement

if TYPE_CHECKING:
    from analysis.report.html_page import Page


def memory(page: "Page") -> None:
    """Bandwidth by working set."""
    page.add(
        "memory",
        "Memory: how fast at every level",
        page.draw(lambda of: charts_movement.memory(of.rows, of.machine)),
        page.told(lambda of: movement.memory_section(of.rows, of.machine, [], of.roofs)),
    )


def transfers(page: "Page") -> None:
    """Copies with their fitted laws; what small data sets cost to copy has a section with their trainings."""
    page.add(
        "transfers",
        "Copies between host and GPU",
        page.draw(lambda of: charts_movement.copies(of.rows)),
        page.told(lambda of: fold.without(movement.copies_section(of.rows, of.roofs, []), movement.SMALL)),
    )


def launches(page: "Page") -> None:
    """Calls that do nothing."""
    page.add(
        "launches",
        "Launches and framework constants",
        page.told(lambda of: movement.launches_section(of.rows, of.roofs)),
    )
