"""Output of a command while its rows finish: table lines on a terminal, csv lines, or JSON at the end."""

import csv
import json
import sys
from typing import TYPE_CHECKING, ClassVar, Protocol

from analysis import labels, table, units

if TYPE_CHECKING:
    from workloads.records import Machine, Measurement


def number(value: float | None, digits: int = 3) -> str:
    """So many significant digits without an exponent: 0.0123, 1.23, 123, 12300; a dash for None."""
    return "-" if value is None or value != value else units.digits(value, digits)


def scaled(estimate, units: float = 1.0) -> str:
    """An Estimate times `units`; a dash for none."""
    return number(estimate.value * units if estimate else None)


def timed(seconds, units: float) -> tuple[str, str]:
    """An Estimate in so many units a second, and its interval's half-width in percent."""
    return scaled(seconds, units), half_width(seconds)


def half_width(seconds) -> str:
    """Half an Estimate's interval in percent; above 999 % the number says nothing more."""
    return number(100 * seconds.noise, 2) if seconds.noise < 10 else ">999"


def where(m) -> str:
    """The device of a row and the threads that it names: `cpu x4`, `gpu:0`."""
    return f"{m.device} x{m.threads}" if m.threads else m.device


class Printer(Protocol):
    """Prints rows as they are complete."""

    def shown(self, m: "Measurement", /) -> None:
        """Takes in a row."""

    def finish(self) -> None:
        """Prints what comes after the last row."""


class Lines:
    """Prints a line for each `wanted` row under HEAD (columns and widths of a table.Printed), and at the end what those columns
    of ABOUT mean that are shown. A narrow terminal drops the columns of LEAST first. This base class shows no share of a roof,
    as its rows are the roofs."""

    HEAD = "kernel 19< | problem 21< | where 6< | time 8 | ±% 4 | rate 11 | notes 5<"
    LEAST = "±%"
    #: Column, or a mark in it -> what it means.
    ABOUT: ClassVar[dict[str, str]] = {}

    def __init__(self, markdown: bool = False):
        self._table = table.Printed(self.HEAD, markdown, self.LEAST)

    def wanted(self, m) -> bool:
        """Skipped rows have no line: the sweep's end says each reason once."""
        return m.status != "skipped"

    def shown(self, m) -> None:
        if self.wanted(m):
            self._table.show(self.cells(m))

    def cells(self, m) -> list[str]:
        from analysis import stats

        p = m.problem
        if p.operation:
            problem = f"{p.operation} {units.size(p.nbytes)} {p.dtype}"
        else:
            problem = p.math or labels.problem(p)
        head = [m.label, problem, where(m)]
        seconds = stats.seconds_of(m)
        if seconds is None:
            return [*head, m.status, "", "", m.reason]
        numbers = [units.seconds(seconds.value), half_width(seconds), units.rate(p, seconds.value)]
        return [*head, *numbers, " ".join([*m.settings.switches.values(), *m.flags])]

    def finish(self) -> None:
        if self._table.begun and self.ABOUT:
            shown = (f"{name}: {words}" for name, words in self.ABOUT.items() if name not in self._table.hidden)
            print("; ".join(shown))


class Rows:
    """Prints csv lines as rows finish, or the JSON array at the end, with DESIGN's column names: the rows of one operation; the
    roofs measured beside them are in `roof_fraction`."""

    def __init__(self, format_: str, op: str, machine: "Machine | None" = None):
        self.format = format_
        self._op = op
        self._machine = machine
        self._columns: list[str] | None = None
        self._all: list[Measurement] = []

    def shown(self, measurement: "Measurement") -> None:
        self._all.append(measurement)
        if self.format == "json" or measurement.problem.op != self._op:
            return
        from analysis.roofline.frame import frame
        from analysis.roofline.roofs import BEST_MATMUL, roofs_of

        settled = [r for r in roofs_of(self._all, self._machine) if r.note != BEST_MATMUL]  # which may still grow
        row = frame([measurement], settled)
        if self._columns is None:
            self._columns = list(row.columns)
            self._line(self._columns)
        self._line(list(_records(row)[0].values()))

    def _line(self, cells: list) -> None:
        csv.writer(sys.stdout, lineterminator="\n").writerow(map(table.cell, cells))
        sys.stdout.flush()

    def finish(self) -> None:
        if self.format == "json":
            print(json.dumps(_records(framed(self._all, self._machine, self._op)), indent=1))


def framed(measurements: "list[Measurement]", here: "Machine | None", op: str):
    """The rows of one operation as a DataFrame, under the roofs measured with them."""
    from analysis.analysis import Analysis
    from analysis.roofline.frame import frame

    return frame([m for m in measurements if m.problem.op == op], Analysis.from_rows(measurements, here).roofs)


def _records(table) -> list[dict]:
    """The rows of a DataFrame as Python has them: None for what is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
