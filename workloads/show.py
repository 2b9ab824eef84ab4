"""Prints measurements as they finish: a line a row, or, for tables, a line a size with the backends side by side."""

import argparse
import csv
import json
import os
import sys
from collections.abc import Callable, Iterable

from workloads import options
from workloads.records import Machine, Measurement, Row, Run, Settings


def number(value: float | None, digits: int = 3) -> str:
    """Three significant digits without an exponent: 0.0123, 1.23, 123, 12300; a dash for None."""
    if value is None or value != value:
        return "-"
    if value == 0:
        return "0"
    from math import floor, log10

    decimals = max(0, digits - 1 - floor(log10(abs(value))))
    return f"{value:.{decimals}f}"


class Rows:
    """Prints csv or md lines as rows finish and the JSON array at the end, with DESIGN's column names: the rows of one
    operation; the roofs measured beside them are in `roof_fraction`."""

    def __init__(self, format_: str, op: str, machine: Machine | None = None):
        self.format, self._op, self._machine = format_, op, machine
        self._columns: list[str] | None = None
        self._all: list[Measurement] = []

    def shown(self, measurement: Measurement) -> None:
        self._all.append(measurement)
        if self.format == "json" or measurement.problem.op != self._op:
            return
        from analysis.roofline.frame import frame

        table = frame([measurement], self._roofs())
        if self._columns is None:
            self._columns = list(table.columns)
            self._line(self._columns)
            if self.format == "md":
                print("|" + " --- |" * len(self._columns))
        self._line([text(v) for v in table.iloc[0].tolist()])

    def _roofs(self):
        from analysis.roofline import bounds

        every = bounds.roofs(self._all, self._machine)
        return every if self.format == "json" else [r for r in every if r.note != bounds.BEST_MATMUL]  # it still grows

    def _line(self, cells: list[str]) -> None:
        if self.format == "md":
            print("| " + " | ".join(c.replace("|", "\\|") for c in cells) + " |", flush=True)
        else:
            csv.writer(sys.stdout, lineterminator="\n").writerow(cells)
            sys.stdout.flush()

    def finish(self) -> None:
        if self.format == "json":
            from analysis.roofline.frame import frame

            table = frame([m for m in self._all if m.problem.op == self._op], self._roofs())
            print(json.dumps([plain(row) for row in table.to_dict("records")], indent=1))


def plain(row: dict) -> dict:
    """A frame's row as JSON has it: NumPy scalars as Python's, missing as null."""
    return {k: None if _missing(v) else v.item() if hasattr(v, "item") else v for k, v in row.items()}


def text(value) -> str:
    return "" if _missing(value) else str(value)


def _missing(value) -> bool:
    return value is None or type(value).__name__ == "NAType" or value != value  # pandas.NA has no truth


def session(
    args: argparse.Namespace,
    run: Run | None,
    command: str,
    op: str,
    rows: Callable,
    measure: Callable,
    table: Callable,
    said: Callable = lambda outcome: None,
) -> int:
    """The body of a workload's command: the plan for --dry-run, else rows as they finish, then what `said` prints
    under a table; the exit code. `run` is the suite's own Run line, where there is one."""
    from workloads import ends
    from workloads.harness import plan, sweep
    from workloads.machine import facts

    if args.dry_run:
        plan.dry_run(rows(args, facts.describe()), args)
        return 0
    check_flags(args)
    run = run or sweep.header(args, command)
    out = table(run.machine) if args.format == "table" else Rows(args.format, op, run.machine)
    outcome = measure(args, command, out.shown, run)
    out.finish()
    if args.format == "table":
        said(outcome)
    return beside(args, [outcome.path], ends.ended(outcome, args))


def refined(done: Iterable[Measurement], answers: Iterable, sizes: Iterable[int]) -> list[Row]:
    """The rows still needed to pin down the crossings of the answers: those that won on either side of each.

    At an added size only these run: both sides' best kernels of the bracket, and the resident GPU call that says why.
    `sizes`: those of other forms, which are taken where they are as good.
    """
    from analysis.crossover import crossover

    tried = {m.key for m in done}
    sizes, found = set(sizes), {}
    for answer in answers:
        for n in crossover.refine(answer, sizes):
            near = sorted(answer.points, key=lambda p: abs(p.n / n - 1))[:2]
            for side in (s for point in near for s in (point.cpu, point.gpu)):
                try:
                    problem = answer.family.at(n, side.math)
                except ValueError:  # channels that the groups do not divide, images smaller than the filter
                    continue
                modes = ["resident"] if side.device == "cpu" else dict.fromkeys([answer.form.mode, "resident"])
                for mode in modes:
                    chosen = Settings(device=side.device, threads=side.threads, mode=mode, cache=answer.form.cache)
                    row = Row(side.kernel, problem, chosen)
                    found[row.key] = row
    return [row for key, row in found.items() if key not in tried]


def check_flags(args: argparse.Namespace) -> None:
    """Raises Usage, before anything is measured, for a baseline to save that exists and for one to compare with that does not."""
    from analysis.compare import command as compare
    from workloads.records import baselines

    if args.fail_on is not None and not args.against:
        raise options.Usage(
            "--fail-on needs --against, which says what to compare with",
            "python -m workloads.matmul --sizes 256 --against before --fail-on 'slower>5%'",
        )
    if args.save:
        baselines.require_free(args.save)
    if args.against:
        compare.read(args.against)


def beside(args: argparse.Namespace, files: list, code: int) -> int:
    """Saves the result files as a baseline and compares them with another, as asked for; the exit code, worse than `code`
    where a row is."""
    from analysis.compare import command as compare
    from workloads.records import baselines

    if code not in (options.OK, options.FAILED):
        return code
    if args.save:
        kept = baselines.save(args.save, files)
        if not args.quiet:
            print(f"saved as the baseline {args.save!r}: {os.path.relpath(kept)}", file=sys.stderr)
    if args.against:
        regressed = compare.against(args.against, files, args.fail_on, args.format)
        return code or regressed
    return code


def frame(outcome, op: str):
    """The sweep's rows of one operation as a DataFrame, under the roofs measured with them.

    Raises: KeyboardInterrupt when a signal ended the sweep; the rows are in its file.
    """
    if outcome.stopped in ("SIGINT", "SIGTERM"):
        raise KeyboardInterrupt(f"stopped; what was measured is in {outcome.path}")
    from analysis.roofline import bounds
    from analysis.roofline import frame as frames

    roofs = bounds.roofs(outcome.measurements, outcome.run.machine)
    return frames.frame([m for m in outcome.measurements if m.problem.op == op], roofs)
