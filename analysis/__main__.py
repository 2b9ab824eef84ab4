"""Lists every command, by the question it answers."""

import sys

from workloads import help_screen, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

EXAMPLE = "python -m analysis.explain --case S4 nvidia-h200"
LONG = "Lists every command by the question it answers, those that understand measurements first."


def main(argv: list[str] | None = None) -> int:
    command_parser = CommandParser(module="analysis", description=LONG, examples=(EXAMPLE,))
    return running.run_command(command_parser, argv, make_plan=running.no_plan, carry_out=_run)


def _run(plan: None) -> int:
    command = f"{options.python()} -m COMMAND -h"
    last_line = terminal.Line("To see what a command takes: ", command=command)
    terminal.show([*help_screen.overview("analysis"), last_line])
    return options.OK


if __name__ == "__main__":
    sys.exit(main())
