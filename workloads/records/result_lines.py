"""The lines of a result file, one JSON object each: the run that wrote it, then a measurement for each row or visit of a row.

A visit is what one row got in one round of a sweep; a row's visits are joined on reading.
"""

from collections.abc import Iterable

import msgspec

from workloads import terminal
from workloads.records import regular_files
from workloads.records.rows import Line, Measurement, Run, sound
from workloads.records.visits import together

_LONGEST_REASON = 2000  # characters that are read of a row's reason
_decoder = msgspec.json.Decoder(Line)


class RowLines(msgspec.Struct, frozen=True, kw_only=True):
    """The newest lines of one row in a result file: its visits, or one measurement of the row as a whole."""

    #: The run that made them; None where the file has no readable line of a run.
    run: Run | None
    #: Visits in the order of their rounds, or one line without a round.
    lines: list[Measurement]


class DecodedLines(msgspec.Struct, frozen=True, kw_only=True):
    """The lines of a result file, decoded."""

    #: The runs that wrote the file, in the order of their lines.
    runs: list[Run]
    #: Key of a row -> its newest lines.
    rows: dict[str, RowLines]
    #: Number of lines that cannot be read, blank ones not counted.
    bad_lines: int

    @property
    def measurements(self) -> list[Measurement]:
        """One Measurement for each row: its visits joined, or its last line."""
        return [together(row.lines) for row in self.rows.values()]


def decode(lines: Iterable[bytes]) -> DecodedLines:
    """The runs and rows of a result file's lines.

    A visit continues the visits before it if its round is a later one. Any other line of a row replaces the row's lines before
    it.
    """
    runs: list[Run] = []
    rows: dict[str, RowLines] = {}
    bad_lines = 0
    for text in lines:
        line = decoded_line(text)
        if line is None:
            if text.strip():
                bad_lines += 1
            continue
        if isinstance(line, Run):
            runs.append(line)
            continue
        key = line.key
        before = rows.get(key)
        if before and 0 < before.lines[-1].visit < line.visit:
            before.lines.append(line)
            continue
        rows.pop(key, None)  # so that the row moves to the end: rows stand in the order of their newest lines
        rows[key] = RowLines(run=runs[-1] if runs else None, lines=[line])
    return DecodedLines(runs=runs, rows=rows, bad_lines=bad_lines)


def decoded_line(text: bytes) -> Run | Measurement | None:
    """The record of one line; None if it is no JSON of a Run or Measurement, or has numbers that nobody can have measured."""
    try:
        line = _decoder.decode(regular_files.without_byte_order_mark(text))
    except (ValueError, RecursionError):  # msgspec.DecodeError is a ValueError
        return None
    if not sound(line):
        return None
    if isinstance(line, Measurement) and len(line.reason) > _LONGEST_REASON:
        return msgspec.structs.replace(line, reason=terminal.shorten(line.reason, _LONGEST_REASON))
    return line
