"""The commands that make a run from nothing."""

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis.report import cells

if TYPE_CHECKING:
    from workloads.records import Run

_STOPPED = re.compile(r" --stop-after[ =]\S+| --resume(?= |$)")


def commands(runs: "Iterable[Run]") -> list[str]:
    """The commands in the order they were run, each once: what went on where it had stopped is the same command, without the
    flags for that. Only a further command that adds to files which are there by then says --resume."""
    found: dict[str, str] = {}
    begun: set[tuple[str, str]] = set()
    for run in sorted(runs, key=lambda r: r.started_at):
        command = _STOPPED.sub("", cells.portable(run.command))
        if command in found:
            continue
        folder = re.search(r" -o[ =]?(\S+)", command)
        place = (command.partition(" --")[0].partition(" -o")[0], folder[1] if folder else "")
        found[command] = f"{command} --resume" if folder and place in begun else command
        begun.add(place)
    return list(found.values())
