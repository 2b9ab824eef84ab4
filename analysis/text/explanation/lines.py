"""The lines of an answer: how wide they are, and the name of a point before its sentences."""

from collections.abc import Iterable

from workloads import terminal

WIDTH = 80
INDENT = 6  # of a point's sentences, as wide as its name with a space


def line_count(lines: Iterable[str]) -> int:
    """How many lines of a terminal with WIDTH columns these take."""
    return sum(len(terminal.wrapped(line, WIDTH)) for line in lines)


def fits(sentence: str) -> bool:
    """Whether a sentence of a point is a single line."""
    return INDENT + len(sentence) <= WIDTH


def labeled(name: str, sentences: Iterable[str]) -> list[str]:
    """The sentences of one point of an answer, such as Why, with its name before the first and as much room before the others."""
    lines: list[str] = []
    for sentence in sentences:
        label = "" if lines else name
        lines.append(terminal.Line(sentence, label=f"{label:<{INDENT}}"))
    return lines
