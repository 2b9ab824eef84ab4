"""Measures what its parent asks for, command after command, in worker processes that they share: TensorFlow is imported once.

A line of stdin is a workload's command as a JSON list of words, with the folder of its rows; what is being done and the end of
each command, failures too, go to stdout as workloads.records.messages, until stdin closes.
"""

import importlib
import os
import sys
import traceback
from collections.abc import Callable

import msgspec

from workloads import help_screen, options
from workloads.harness import announce, sweep
from workloads.records.messages import Doing, Done, failure
from workloads.session import MeasuringPlan


def plan_of(words: list[str]) -> MeasuringPlan:
    """The plan of a measuring command. words: its module, such as workloads.matmul, then its flags.

    Raises: options.Stop for flags that make no plan.
    """
    module, *flags = words
    return importlib.import_module(help_screen.starts(module)).parse(flags)


def measure(words: list[str], workers: sweep.Workers) -> sweep.Outcome:
    """Measures the rows of a command. Only rows of its own operation: no roofs, and no sizes added around a crossover.

    words: as `plan_of` takes them. workers: processes to measure in, which stay for the next command.

    Raises: options.Stop for a command that cannot be run.
    """
    plan = plan_of(words)
    operation = plan.command_line.name
    run = sweep.header(plan.measuring.command, plan.measuring.seed)
    rows = [row for row in plan.rows(run.machine) if row.problem.op == operation]
    return sweep.sweep(rows, plan.measuring, operation, run, processes=workers)


def reason(outcome: sweep.Outcome) -> str:
    """Why no row has a time; "" if some row has one."""
    measurements = outcome.measurements
    if any(m.ok for m in measurements):
        return ""
    return measurements[0].reason if measurements else "no row was begun in time"


def main() -> int:
    """Measures the commands that come on stdin until it closes. Returns the exit code: of a signal that ended one, else 0."""
    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message

    def send(message: Doing | Done) -> None:
        """Writes a message for the parent; called when a row begins, and at the end of each command."""
        messages.write(msgspec.json.encode(message) + b"\n")

    announce.send_to(send)
    with sweep.workers() as workers:
        return _serve(workers, send)


def _serve(workers: sweep.Workers, send: Callable[[Done], None]) -> int:
    """As `main`, in these worker processes. send: writes the message that a command has ended, with its error if it failed."""
    for line in sys.stdin.buffer:
        try:
            outcome = measure(msgspec.json.decode(line, type=list[str]), workers)
        except Exception as error:
            traceback.print_exc()
            send(Done(error=failure(error)))
            continue
        if outcome.stopped in options.SIGNALED:
            return options.SIGNALED[outcome.stopped]
        send(Done(reason=reason(outcome)))
    return options.OK


if __name__ == "__main__":
    sys.exit(main())
