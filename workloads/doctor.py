"""Says whether this machine is ready to measure: what was seen, why it matters, what to type next."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from workloads import options

if TYPE_CHECKING:
    from workloads.readiness import Finding

EXAMPLE = "python -m workloads.doctor"
LONG = """Checks what the measurements stand on: libraries and their threads, the GPU and why it is or is not used,
TensorFlow, memory, disk, what else keeps this machine busy, and whether a few timings are true. With RUN it asks that of stored
rows instead. Exit code 1 when something is broken; having no GPU is normal."""


def run(checks: "tuple[Callable[[], list[Finding]], ...] | None" = None) -> "list[Finding]":
    """Every check's findings. A check that fails itself is a problem, and the others go on. Takes 10 to 20 seconds."""
    from workloads import readiness

    found: list[Finding] = []
    for check in readiness.CHECKS if checks is None else checks:
        try:
            found += check()
        except Exception as error:
            seen = f"the check itself failed: {type(error).__name__}: {error}"
            why = "what it looks at is broken or missing"
            found.append(readiness.Finding(check.__name__, "problem", seen, why, "make test"))
    return found


def table(found: "list[Finding]") -> str:
    """The findings as text: a line each, and for what is not ok the reason and the next command."""
    lines = []
    for one in found:
        lines.append(f"{one.level:8} {one.check:14} {one.seen}")
        if one.level != "ok":
            lines += [f"{'':24}why: {one.why}", f"{'':24}try: {one.fix}"]
    return "\n".join(lines)


def parser() -> options.Parser:
    """The command line of python -m workloads.doctor."""
    made = options.parser("workloads.doctor", LONG, EXAMPLE)
    made.add_argument(
        "runs", nargs="*", metavar="RUN", help="result files, run folders or saved names to look at instead"
    )
    made.add_argument("--format", choices=("table", "json"), default="table", help="what stdout gets (table)")
    return made


def stored(runs: list[str]) -> "list[Finding]":
    """What the checks see in stored rows, machine by machine.

    Raises: Usage when there are none.
    """
    from workloads import checks, records
    from workloads.readiness import Finding

    try:
        machines = records.by_machine(*runs)
    except OSError as error:
        example = "python -m workloads.matmul --sizes 64:1024:x2 -o DIR"
        raise options.Usage(f"no result file in {' '.join(runs)}", example) from error
    found: list[Finding] = []
    for loaded in machines.values():
        here = loaded.runs[-1].machine if loaded.runs else None
        where = here.key if here else "a machine that no line names"
        said = f"{len(loaded.measurements)} rows of {where}, {len(checks.CHECKS)} things looked for in each"
        found += [Finding("rows", "ok", said), *checks.findings(loaded.measurements, here)]
        if loaded.bad_lines:
            lost = f"{loaded.bad_lines} lines of {where} cannot be read"
            found.append(
                Finding("bad lines", "warn", lost, "their rows are lost", "python -m workloads.matmul --resume -o DIR")
            )
    return found


def _body(args: argparse.Namespace) -> int:
    found = stored(args.runs) if args.runs else run()
    if args.format == "json":
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
        return _code(found)
    print(table(found))
    levels = [one.level for one in found]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in dict.fromkeys(levels))
    good, bad = ("sound", "not sound") if args.runs else ("ready", "not ready")
    print(f"\n{bad if 'problem' in levels else good}: {counts}")
    return _code(found)


def _code(found: "list[Finding]") -> int:
    return options.FAILED if any(one.level == "problem" for one in found) else options.OK


def main(argv: list[str] | None = None) -> int:
    return options.command(parser(), argv, _body)


if __name__ == "__main__":
    sys.exit(main())
