"""The suite on a node of a fleet, in a process of its own."""

import dataclasses
import json
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from workloads import options, terminal
from workloads.suite_parts import suite_steps
from workloads.suite_parts.suite_steps import SuitePlan, SuiteStep

if TYPE_CHECKING:
    from workloads.harness.sweep import Workers
    from workloads.records import Machine, Run
    from workloads.session import MeasuringPlan


def measure(folder: Path, parse: Callable[[list[str]], SuitePlan]) -> int:
    """Measures the suite on this node into a folder. Returns the exit code.

    The words of the suite's command are the first line of stdin, a JSON list; parse: makes a plan of them. What is being done and
    how it ended go to stdout as workloads.records.messages. The plan is written before any row, so that lost rows are known
    should the node die. Each GPU works alone; with --device all several also work together.
    """
    import msgspec

    from workloads.harness import announce
    from workloads.records.messages import Doing, Done, failure

    messages = os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what libraries print is no message

    def send(message: Doing | Done) -> None:
        """Writes a message for the parent; called when a step begins, and at the end."""
        messages.write(msgspec.json.encode(message) + b"\n")

    announce.send_to(send)
    try:
        _measure_node(folder, parse(json.loads(sys.stdin.buffer.readline())))
        send(Done())
    except options.Stop as stop:
        send(Done(reason=str(stop)))
    except Exception as error:
        traceback.print_exc()
        send(Done(error=failure(error)))
    return options.OK


def _measure_node(folder: Path, suite: SuitePlan) -> None:
    """Writes the plan of the rows that this node measures, then measures them. A part that cannot run here is left out.

    Raises: options.Stop for a command that cannot be run here.
    """
    import msgspec

    from workloads.fleet import cluster, nodes
    from workloads.harness import sweep
    from workloads.machine import facts

    measuring = dataclasses.replace(suite.measuring, resume=True)
    threading.Thread(target=_leave_with_parent, daemon=True).start()
    run = sweep.header(measuring.command, measuring.seed)
    planned = nodes.NodePlan(run, {})
    steps = []
    if not run.machine.gpus:
        terminal.note(f"no GPU ({facts.gpu_problem()}): its CPU is measured")
    for step in _node_steps(suite, run.machine):
        try:
            for file, rows in suite_steps.quietly(step.plan).rows_by_file(run.machine).items():
                planned.rows[file] = planned.rows.get(file, []) + rows
            steps.append(step)
        except options.Missing as missing:
            terminal.note(f"{step.name} left out: {missing}")
    (folder / cluster.PLAN).write_bytes(msgspec.json.encode(planned) + b"\n")
    if not measuring.dry_run:
        suite_steps.measure_steps(steps, measuring, run, folder=folder, measured_by=_measure_silently)


def _node_steps(suite: SuitePlan, here: "Machine") -> list[SuiteStep]:
    """The steps on a node, on the devices that were typed, else on the CPU and each GPU alone."""
    if not suite.measuring.devices:
        suite = dataclasses.replace(suite, shared={**suite.shared, "device": ["all"]})
    return suite_steps.planned_steps(suite, here, every_gpu=True)


def _leave_with_parent() -> None:
    """Ends this process when its stdin closes, which happens however the parent ends; its workers then end the same way."""
    while os.read(0, 1 << 16):  # not sys.stdin: a thread that waits in it does not let the process end
        pass
    os._exit(options.TERMINATED)


def _measure_silently(name: str, plan: "MeasuringPlan", run: "Run", processes: "Workers | None") -> int:
    """Measures a step, and prints neither its table nor its answer."""
    plan.measure(run, plan.rows(run.machine), processes=processes)
    return options.OK
