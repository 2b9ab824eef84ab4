"""Does every device of a fleet deliver what it should? Each against its own stored baseline, and against the others like it."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from workloads import options

if TYPE_CHECKING:
    from analysis.fleet.judgment import Judged

QUESTION = "Is every device of a fleet as fast as it should be?"
EXAMPLE = "python -m analysis.fleet RUN --fail-on 'slower>3%'"
LONG = """Each device of RUN (a fleet's folder, or one run with several devices) against itself in a saved baseline (a GPU by its
UUID, a CPU by its node), and from 8 alike on against their median and spread. A device is called slow when the whole interval of
a quantity lies more than 3 % below (of a CPU: more than its processes differ by). Exit code 4 when --fail-on finds one."""


def parser() -> options.Parser:
    """The command line of python -m analysis.fleet."""
    made = options.parser(
        "analysis.fleet",
        LONG,
        EXAMPLE,
        "python -m analysis.fleet RUN --save NAME",
        question=QUESTION,
        needs="against fail-on save",
    )
    made.add_argument("run", metavar="RUN", help="a run's folder, or a saved name")
    options.add(
        made,
        f"""
--against RUN   the baseline (default: the newest saved that has the device)
--fail-on RULE  exit 4 when a device is below by more than this, or rows failed: 'slower>3%%'
--save NAME     keep the run as the baseline NAME
--format {{{",".join(options.FORMATS)}}} =table  what stdout gets (table)
-v --verbose    the devices that are as they should be too""",
    )
    return made


def judge(args: argparse.Namespace) -> "Judged":
    """Judges the devices of RUN against the baselines that the arguments name.

    Raises: Usage when there is no such run, when it is no fleet's, and when none of its lines names a machine.
    """
    from analysis.fleet import devices, judgment

    try:
        found = devices.devices(args.run)
        against = [args.against] if args.against else devices.saved()
        if args.against:
            devices.devices(args.against)
    except ValueError as error:
        raise options.Usage(f"{error}; compare two of them", "python -m analysis.compare -h") from error
    if not found:
        raise options.Usage(f"no line of {args.run} that can be read says what machine its rows came from")
    share = judgment.LEAST if args.fail_on is None else min(args.fail_on, judgment.LEAST)
    return judgment.judge(found, [r for r in against if os.path.realpath(r) != os.path.realpath(args.run)], share)


def _body(args: argparse.Namespace) -> int:
    """Prints the sentences on the devices (on stderr with csv and json), then the table; returns the exit code."""
    from analysis import table
    from analysis.fleet import judgment
    from analysis.text import machines as fleet
    from workloads import records
    from workloads.records import baselines

    if args.save is not None:
        baselines.require_free(args.save)
    judged, for_people = judge(args), args.format in ("table", "md")
    for line in fleet.lines(judged, args.verbose):
        print("- " * (args.format == "md") + line, file=sys.stdout if for_people else sys.stderr)
    if not for_people:
        table.records(judgment.records(judged), judgment.HEAD, args.format)
    if args.fail_on is not None:
        if fleet.broken(judged) or any(f.below.value > args.fail_on for f in judged.flagged):
            return options.REGRESSION
        if not judged.findings:
            raise options.Missing(
                "nothing to judge these devices by", f"python -m analysis.fleet {args.run} --save before"
            )
    if args.save:
        apart = any(device.node for device in judged.devices)
        kept = baselines.save(args.save, records.files_of(args.run), apart)
        print(f"saved as the baseline {args.save!r}: {kept}", file=sys.stderr)
    return options.OK


main = options.entry(parser, _body)
