"""The sentence of a finding, by its kind."""

from collections.abc import Callable

from analysis.finding import Finding
from analysis.text.explanation import changes, doubts, framework, price, reasons, turning_point, verdict

SENTENCES: dict[str, Callable[[Finding], str]] = {}
for topic in (verdict, reasons, turning_point, price, changes, doubts, framework):
    SENTENCES |= topic.SENTENCES


def sentence(finding: Finding) -> str:
    """The finding in words."""
    return SENTENCES[finding.kind](finding)
