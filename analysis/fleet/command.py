"""Does every device of a fleet deliver what it should? Each against its own stored baseline, and against the others like it."""

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

from workloads import help_screen, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

if TYPE_CHECKING:
    from analysis.fleet.devices import Device
    from analysis.fleet.judgment import FleetJudgment
    from analysis.fleet.plan import FleetPlan

QUESTION = "Is every device of a fleet as fast as it should be?"
EXAMPLE = "python -m analysis.fleet RUN --fail-on 'slower>3%'"
LONG = """Each device of RUN (a fleet's folder, or one run with several devices) against itself in a saved baseline (a GPU by its
UUID, a CPU by its node), and from 8 alike on against their median and spread. A device is called slow when the whole interval of
a quantity lies more than 3 % below (of a CPU: more than its processes differ by). Exit code 4 when --fail-on finds one."""


def parser() -> CommandParser:
    """The command line of python -m analysis.fleet."""
    command_line = CommandParser(
        module="analysis.fleet",
        description=LONG,
        examples=(EXAMPLE, "python -m analysis.fleet RUN --save NAME"),
        question=QUESTION,
        brief_flags=("--against", "--fail-on", "--save"),
    )
    command_line.add_argument("run", metavar="RUN", help="a run's folder, or a saved name")
    command_line.add_argument(
        "--against",
        metavar="RUN",
        help=help_screen.help_text("the baseline", rest=" (default: the newest saved that has the device)"),
    )
    command_line.add_argument(
        "--fail-on",
        metavar="RULE",
        type=options.regression,
        help="exit 4 when a device is below by more than this, or rows failed: 'slower>3%%', 3%% (the same), slower",
    )
    command_line.add_argument("--save", metavar="NAME", help="keep the run as the baseline NAME")
    command_line.add_argument("--format", choices=options.FORMATS, default="table", help="what stdout gets (table)")
    command_line.add_argument("-v", "--verbose", action="store_true", help="the devices that are as they should be too")
    return command_line


def judge(plan: "FleetPlan") -> "FleetJudgment":
    """Judges the devices of a run against the baselines that the plan names.

    Raises: Usage when there is no such run, when it is no fleet's, and when none of its lines names a machine.
    """
    from analysis.fleet import devices, judgment

    try:
        judged_devices = devices.devices(plan.run)
    except ValueError as error:
        raise options.Usage(f"{plan.run}: {error}; compare two of them", "python -m analysis.compare -h") from error
    if not judged_devices:
        raise options.Usage(f"no line of {plan.run} that can be read says what machine its rows came from")
    share = judgment.LEAST if plan.fail_on is None else min(plan.fail_on, judgment.LEAST)
    if plan.against:
        _require_baseline(plan, judged_devices, share)
    baselines = [plan.against] if plan.against else devices.saved()
    others = [run for run in baselines if os.path.realpath(run) != os.path.realpath(plan.run)]
    return judgment.judge(judged_devices, others, share)


def _require_baseline(plan: "FleetPlan", judged_devices: "tuple[Device, ...]", share: float) -> None:
    """Raises Usage where the baseline is not there: a similar one is proposed, else to leave the flag out. Also where it is of
    several runs of one machine: one of them that has the devices is proposed."""
    from analysis.fleet import devices
    from workloads.records import baselines
    from workloads.records.run_files import NoRun

    name = plan.against
    try:
        devices.devices(name)
    except NoRun as error:
        saved = baselines.names()
        listed = f"saved: {', '.join(saved)}" if saved else "none is saved here; --save keeps one"
        message = f"no baseline or run {name!r}; {listed}"
        if error.similar:
            raise options.Usage(message, wrong=name, right=error.right, similar="baseline") from error
        raise options.Usage(message, wrong="--against") from error
    except ValueError as error:
        right = _run_inside(plan, judged_devices, share)
        several = options.Usage(f"--against {name}: {error}; name one of them", wrong="--against", right=right)
        several.is_example = True
        raise several from error


def _run_inside(plan: "FleetPlan", judged_devices: "tuple[Device, ...]", share: float) -> str:
    """`--against RUN` with the first run in the baseline's folder that has some of the devices; "" without one. share: the
    smallest loss that is claimed.
    """
    from analysis.fleet import judgment
    from workloads import records

    folders = {records.study_folder(file) for file in records.files_of(plan.against)}
    for folder in sorted(folders):
        is_same = os.path.realpath(folder) == os.path.realpath(plan.run)
        if not is_same and judgment.judge(judged_devices, [folder], share).findings:
            return shlex.join(["--against", options.near(folder)])
    return ""


def _show(plan: "FleetPlan", judged: "FleetJudgment") -> None:
    """Prints the sentences on the devices (on stderr with csv and json), then the table."""
    from analysis import table
    from analysis.fleet import judgment
    from analysis.text import machines

    mark = "- " if plan.format == "md" else ""
    out = sys.stdout if plan.for_people else sys.stderr
    terminal.show([terminal.Line(line, label=mark) for line in machines.lines(judged, plan.verbose)], out)
    if not plan.for_people:
        table.records(judgment.records(judged), judgment.HEAD, plan.format)


def _verdict(plan: "FleetPlan", judged: "FleetJudgment") -> int:
    """The exit code by the rule of --fail-on: 4 when a device is below its baseline by more than the rule's share, or rows of
    it were lost or failed; else 0.

    Raises: Missing when there is a rule and no device could be judged.
    """
    from analysis.text import machines

    if plan.fail_on is None:
        return options.OK
    too_slow = any(finding.below.value > plan.fail_on for finding in judged.flagged)
    if machines.broken(judged) or too_slow:
        return options.REGRESSION
    _require_judged(plan, judged)
    return options.OK


def _require_judged(plan: "FleetPlan", judged: "FleetJudgment") -> None:
    """Raises Missing where there is a rule and nothing to judge the devices by."""
    if plan.fail_on is None or judged.findings:
        return
    right = "" if plan.save else "--save before"
    raise options.Missing("nothing to judge these devices by", wrong="--fail-on --against", right=right)


def _save(plan: "FleetPlan", judged: "FleetJudgment") -> None:
    """Saves the run as a baseline under the plan's name. A run of several nodes gets a folder for each."""
    from workloads import records
    from workloads.records import baselines

    by_node = any(device.node for device in judged.devices)
    folder = baselines.save(plan.save, records.files_of(plan.run), by_node)
    print(f"saved as the baseline {plan.save!r}: {folder}", file=sys.stderr)


def _plan(flags: argparse.Namespace) -> "FleetPlan":
    from analysis.fleet.plan import FleetPlan

    return FleetPlan.from_flags(flags)


def _run(plan: "FleetPlan") -> int:
    """Judges the devices of the plan's run and prints what was found. Saves the run as a baseline if the plan asks for it and
    no device is too slow. Returns the exit code.
    """
    judged = judge(plan)
    _show(plan, judged)
    code = _verdict(plan, judged)
    if plan.save and code == options.OK:
        _save(plan, judged)
    return code


def _check(plan: "FleetPlan") -> None:
    _require_judged(plan, judge(plan))


main = running.main_function(parser, make_plan=_plan, carry_out=_run, check=_check)
