"""`python -m analysis.roofline RUN...`: everything heavy is imported after parsing."""

import argparse
import sys

from analysis.report import command
from workloads import options


def main(argv: list[str] | None = None) -> int:
    """Prints the roofs and the rows under them and writes roofline.svg. Returns the exit status."""
    made = command.parser(
        "analysis.roofline", "Prints a machine's measured ceilings and how near its rows come to them.", "roofline.svg"
    )
    return options.command(made, argv, lambda arguments: command.guarded("analysis.roofline", _roofline, arguments))


def _roofline(arguments: argparse.Namespace) -> int:
    from analysis.report import page, terminal
    from analysis.roofline.roofs import roofs

    loaded = page.read_one_machine(arguments.runs)
    ceilings = roofs(loaded.every, page.machine_of(loaded))
    terminal.print_roofline(loaded.measurements, ceilings)
    if not any(r.measured for r in ceilings):
        raise options.Missing("no peak, stream or matmul row in there", command.MEASURE)
    command.require_matplotlib("no picture was drawn")
    from analysis.report.charts import roofline
    from analysis.report.pictures import chart_views, style

    if not (charts := roofline.chart(list(loaded.measurements), ceilings)):
        return options.OK
    folder = page.place(arguments.runs, arguments.out)
    folder.mkdir(parents=True, exist_ok=True)
    print(style.save(chart_views.figure(charts[0].views[0], charts[0].title), folder / charts[0].picture))
    return options.OK


if __name__ == "__main__":
    sys.exit(main())
