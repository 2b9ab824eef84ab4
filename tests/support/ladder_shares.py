"""Writes what pages quote of stored ladders of products: a rung's rate, and its shares of the library and of the peak.

`<!-- share: RUN | LADDER | PROBLEM | RUNG -->` stands before them and `<!-- /share -->` behind, in words of the report's tables.
"""

import functools
import pathlib
import re
import sys

import house

from analysis.analysis import Analysis
from analysis.crossover import ladder
from workloads.records import read

SHARE = re.compile(r"(<!-- share: ([^|>]+) \| ([^|>]+) \| ([^|>]+) \| ([^|>]+) -->).*?<!-- /share -->", re.DOTALL)


@functools.cache
def shares(run: str) -> dict[tuple[str, str, str], str]:
    """(title of the ladder, problem, rung) -> rate and shares, of a run in reports/."""
    analysis = Analysis.from_loaded(read(house.ROOT / "reports" / run))
    found = {}
    for one in analysis.ladders["matmul"]:
        for problem in one.problems:
            for rung, rate, of_library, of_peak, *_ in ladder.cells(one, problem):
                key = ladder.title(one), ladder.problem_name(problem), rung
                found[key] = f"{rate}, {of_library} of the library, {of_peak} of the peak"
    return found


def filled(page: str) -> str:
    """A page with the shares that its marks name."""

    def quoted(mark: re.Match) -> str:
        start, run, *key = mark.groups()
        return f"{start}{shares(run)[tuple(key)]}<!-- /share -->"

    return SHARE.sub(quoted, page)


def main(pages: list[str]) -> int:
    for page in map(pathlib.Path, pages):
        page.write_text(filled(page.read_text(encoding="utf-8")), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
