"""The ladder as a section of the page."""

from typing import TYPE_CHECKING

from analysis import ladder
from analysis.report.cells import table, text

if TYPE_CHECKING:
    from collections.abc import Iterable

    from workloads.records import Machine, Measurement


TITLES = {"matmul": "From three loops to the library", "conv": "From seven loops to the library"}


def section(measurements: "Iterable[Measurement]", machine: "Machine | None", op: str = "matmul") -> list[str]:
    """A table for each device, arithmetic and thread count, a line a rung at each size, and what each rung changed; nothing
    where no teaching rung was measured."""
    found = ladder.ladders(measurements, machine, op)
    if not found:
        return []
    about = "Our own kernels, the simplest first, beside the fastest library there and under the measured peak."
    lines = [f"## {TITLES[op]}", "", about, ""]
    for one in found:
        rows = [(ladder.problem_name(p), *cells) for p in one.problems for cells in ladder.cells(one, p)]
        lines += [f"### {text(ladder.title(one))}", "", *table(("problem", *ladder.HEADS), rows, 2, ladder.HEADS[2:])]
        lines += [*(f"- {text(line)}" for line in ladder.sentences(one)), ""]
    return lines
