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
TensorFlow, memory, disk, and what else keeps this machine busy. Exit code 1 when something is broken; having no GPU
is normal."""


def run(checks: "tuple[Callable[[], list[Finding]], ...] | None" = None) -> "list[Finding]":
    """Every check's findings. A check that fails itself is a problem, and the others go on. Takes 5 to 15 seconds."""
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
    made.add_argument("--format", choices=("table", "json"), default="table", help="what stdout gets (table)")
    return made


def _body(args: argparse.Namespace) -> int:
    found = run()
    if args.format == "json":
        print(json.dumps([dataclasses.asdict(one) for one in found], indent=1))
        return _code(found)
    print(table(found))
    levels = [one.level for one in found]
    counts = ", ".join(f"{levels.count(level)} {level}" for level in dict.fromkeys(levels))
    print(f"\n{'not ready' if 'problem' in levels else 'ready'}: {counts}")
    return _code(found)


def _code(found: "list[Finding]") -> int:
    return options.FAILED if any(one.level == "problem" for one in found) else options.OK


def main(argv: list[str] | None = None) -> int:
    return options.command(parser(), argv, _body)


if __name__ == "__main__":
    sys.exit(main())
