"""The schema (version of the file format) of a result file; the errors for a file that is not read or must not be written."""

import os
from collections.abc import Iterable

import msgspec

from workloads import SCHEMA, terminal
from workloads.options import Usage
from workloads.records import regular_files
from workloads.records.rows import LAST_READER

_LONGEST_SCHEMA = 40  # characters that are shown of a schema that is no number


class Refused(Usage):
    """A result file that must not be written, or cannot be read; the message says what to type instead."""


class OtherSchema(Refused):
    """A result file of another schema than this program reads."""


class _Header(msgspec.Struct, frozen=True, tag="run"):
    """The fields that the line of a run has in every version of the file format."""

    #: A whole number in files of this program; other programs' files may have anything.
    schema: object


_header_decoder = msgspec.json.Decoder(_Header)


def require_schema(path: str | os.PathLike, lines: Iterable[bytes]) -> None:
    """Raises OtherSchema if a line of the result file at `path` names another schema than this program reads.

    The lines are looked at one by one: those of another schema need not have the fields of today's records.
    """
    fault = other_schema(lines)
    if fault:
        raise OtherSchema(f"{path} {fault}")


def other_schema(lines: Iterable[bytes]) -> str:
    """The first schema among these lines of JSON that this program does not read, in words that follow the name of a file:
    `has schema 1, older than the 3 that this program reads`; "" if there is none."""
    for line in lines:
        try:
            header = _header_decoder.decode(regular_files.without_byte_order_mark(line))
        except (ValueError, RecursionError):  # not the line of a run: only those name a schema
            continue
        schema = header.schema
        if type(schema) is not int:  # not isinstance: True is no schema
            shown = terminal.shorten(msgspec.json.encode(schema).decode(), _LONGEST_SCHEMA)
            return f"has schema {shown}, not the {SCHEMA} that this program reads"
        if schema != SCHEMA:
            age = "newer" if schema > SCHEMA else "older"
            last_reader = ""
            if schema in LAST_READER:
                last_reader = f"; Crossover {LAST_READER[schema]} is the last that reads it"
            return f"has schema {schema}, {age} than the {SCHEMA} that this program reads{last_reader}"
    return ""
