"""What it takes to feed a training, on the page."""

from collections.abc import Iterable

from analysis.table import listed
from analysis.text import feeding as words
from workloads.records import Measurement


def section(measurements: Iterable[Measurement]) -> list[str]:
    """The answer and the laws; empty without rows of the study."""
    rows = list(measurements)
    found = words.laws(rows)
    return [*listed(words.sentences(rows)), *(found.md() if found.rows else [])]
