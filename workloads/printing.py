"""Output of a command while its rows finish: table lines on a terminal, csv lines, or JSON at the end."""

import csv
import json
import sys
from typing import TYPE_CHECKING, ClassVar, Protocol

from analysis import table, units

if TYPE_CHECKING:
    import pandas

    from analysis.stats import Estimate
    from workloads.records import Machine, Measurement


def number(value: float | None, digits: int = 3) -> str:
    """A number with so many significant digits and no exponent: 0.0123, 1.23, 123, 12300; a dash for None and NaN."""
    is_nan = value != value
    return "-" if value is None or is_nan else units.digits(value, digits)


def scaled(seconds: "Estimate | None", units_per_s: float = 1.0) -> str:
    """The text of a number of seconds in another unit, such as 1e6 units per second for µs; a dash for None."""
    return number(seconds.value * units_per_s if seconds else None)


def timed(seconds: "Estimate", units_per_s: float) -> tuple[str, str]:
    """The texts of a number of seconds in another unit, and of half the width of its 95 % interval in percent."""
    return scaled(seconds, units_per_s), half_width(seconds)


def half_width(estimate: "Estimate") -> str:
    """The text of half the width of an estimate's 95 % interval, in percent of it; `>999` where it is wider."""
    return number(100 * estimate.noise, 2) if estimate.noise < 10 else ">999"


def where(m: "Measurement") -> str:
    """The device of a row, with the number of threads if the row sets one: `cpu x4`, `gpu:0`."""
    return f"{m.device} x{m.threads}" if m.threads else m.device


class Printer(Protocol):
    """Prints rows as they finish: it is handed each complete row, then told that there are no more."""

    def add(self, m: "Measurement", /) -> None:
        """Takes in a complete row; prints it, or what it completes."""

    def finish(self) -> None:
        """Prints what comes after the last row."""


class Lines:
    """A table with a line for each row, and under it what the columns mean. This base class is the table of peak and stream."""

    #: Columns as table.Printed takes them: name and width in characters, `<` for a column aligned to the left.
    HEAD = "kernel 19< | problem 21< | where 6< | time 8 | ±% 4 | rate 11 | notes 5<"
    #: The columns that a narrow terminal drops, the first of these first.
    LEAST = "±%"
    #: Column, or a sign in one -> what it means, which is printed under the table.
    ABOUT: ClassVar[dict[str, str]] = {}

    def __init__(self, markdown: bool = False):
        self._table = table.Printed(self.HEAD, markdown, self.LEAST)

    def wanted(self, m: "Measurement") -> bool:
        """Whether a row has a line. A skipped one has none: the end of the sweep prints each reason once."""
        return m.status != "skipped"

    def add(self, m: "Measurement") -> None:
        """Prints the line of a complete row, if it has one."""
        if self.wanted(m):
            self._table.show(self.cells(m))

    def cells(self, m: "Measurement") -> list[str]:
        """The texts of a row's line, in the order of HEAD. A row without a time has its status and the reason."""
        from analysis import labels, stats

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
        """Prints what the columns mean, but for those that a narrow terminal dropped."""
        if self._table.begun and self.ABOUT:
            meanings = [f"{name}: {words}" for name, words in self.ABOUT.items() if name not in self._table.hidden]
            print("; ".join(meanings))


class Rows:
    """Prints the rows of one operation for programs: a csv line as each finishes, or a JSON array at the end. Roofs that are
    measured in the same sweep have no line; they are what the column `roof_fraction` is a share of."""

    def __init__(self, format_: str, op: str, machine: "Machine | None" = None):
        """format_: csv or json. op: the operation, such as matmul. machine: where the rows are measured."""
        self.format = format_
        self._op = op
        self._machine = machine
        self._columns: list[str] | None = None
        self._all: list[Measurement] = []

    def add(self, measurement: "Measurement") -> None:
        """Takes in a complete row. As csv it prints its line, before the first one also the columns' names."""
        self._all.append(measurement)
        if self.format == "json" or measurement.problem.op != self._op:
            return
        from analysis.roofline.frame import frame
        from analysis.roofline.roofs import BEST_MATMUL, roofs_of

        # The roof that is the fastest product so far may still grow: shares of it are in no line.
        roofs = [roof for roof in roofs_of(self._all, self._machine) if roof.note != BEST_MATMUL]
        table_of_one = frame([measurement], roofs)
        if self._columns is None:
            self._columns = list(table_of_one.columns)
            self._print_line(self._columns)
        (record,) = _records(table_of_one)
        self._print_line(list(record.values()))

    def _print_line(self, cells: list) -> None:
        """Prints a csv line at once, so that a program that reads it need not wait for the next."""
        csv.writer(sys.stdout, lineterminator="\n").writerow(map(table.cell, cells))
        sys.stdout.flush()

    def finish(self) -> None:
        """Prints the JSON array."""
        if self.format == "json":
            print(json.dumps(_records(framed(self._all, self._machine, self._op)), indent=1))


def framed(measurements: "list[Measurement]", here: "Machine | None", op: str) -> "pandas.DataFrame":
    """The rows of one operation, such as matmul, with the share that each reaches of the roofs among the measurements."""
    from analysis.analysis import Analysis
    from analysis.roofline.frame import frame

    return frame([m for m in measurements if m.problem.op == op], Analysis.from_rows(measurements, here).roofs)


def _records(table: "pandas.DataFrame") -> list[dict]:
    """The rows of a DataFrame as dicts by column, with None for what is missing."""
    return table.astype(object).where(table.notna(), None).to_dict("records")
