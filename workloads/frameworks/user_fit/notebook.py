"""Runs a Jupyter notebook as a script: its code cells one after the other, without IPython's magics."""

import json
import re
import sys
import types
from pathlib import Path

#: Magics above a cell of Python; below any other is another language.
MAGICS_OF_PYTHON = ("%%time", "%%capture")


class NoNotebook(ValueError):
    """A file is no notebook that can be read; the message says why."""


def run(path: Path) -> None:
    """Runs the code cells in one module, `__main__`. The cells are the files `cell 1`, `cell 2` and so on.

    Raises: NoNotebook; what a cell raises.
    """
    sources = code_cells(path.read_bytes())
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for number, source in enumerate(sources, 1):
        exec(compile(python_of_cell(source), f"cell {number}", "exec"), module.__dict__)


def code_cells(content: bytes) -> list[str]:
    """The texts of the code cells of a notebook, of nbformat 3 or 4.

    Raises: NoNotebook.
    """
    try:
        document = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise NoNotebook(f"it is not JSON in UTF-8: {error}") from error
    if not isinstance(document, dict):
        raise NoNotebook("its JSON is not an object with cells")
    language = _language(document)
    if language and language.lower() != "python":
        raise NoNotebook(f"its language is {language}, not Python")
    sources: list[str] = []
    for cell in _cells(document):
        if not isinstance(cell, dict):
            raise NoNotebook("one of its cells is not an object")
        if cell.get("cell_type") == "code":
            sources.append(_text(cell, number=len(sources) + 1))
    return sources


def _language(document: dict) -> str:
    """The language that a notebook says it is in; "" where it says none."""
    part: object = document
    for name in ("metadata", "kernelspec", "language"):
        part = part.get(name) if isinstance(part, dict) else None
    return part if isinstance(part, str) else ""


def _cells(document: dict) -> list:
    """The cells of a notebook; of nbformat 3, those of its worksheets."""
    if "worksheets" not in document:
        return _list_of_cells(document)
    worksheets = document["worksheets"]
    if not isinstance(worksheets, list):
        raise NoNotebook("its worksheets are not a list")
    cells: list = []
    for worksheet in worksheets:
        cells += _list_of_cells(worksheet)
    return cells


def _list_of_cells(part: object) -> list:
    """The cells of a notebook of nbformat 4, or of a worksheet."""
    cells = part.get("cells") if isinstance(part, dict) else None
    if not isinstance(cells, list):
        raise NoNotebook("it has no list of cells")
    return cells


def _text(cell: dict, number: int) -> str:
    """The text of a code cell, which nbformat 3 calls its input. number: of the cell among those of code."""
    source = cell.get("source", cell.get("input"))
    text = ""
    for line in source if isinstance(source, list) else [source]:
        if not isinstance(line, str):
            raise NoNotebook(f"the source of code cell {number} is not text")
        text += line
    if "\0" in text or any("\ud800" <= character <= "\udfff" for character in text):
        raise NoNotebook(f"the source of code cell {number} has characters that Python does not take")
    return text


def is_cell(file: str) -> bool:
    """Whether a file of a stack is a cell of a notebook."""
    return re.fullmatch(r"cell \d+", file) is not None


def python_of_cell(source: str) -> str:
    """A cell with `pass` in place of its magics, line for line; empty for a cell of another language."""
    lines = source.splitlines()
    magic = lines[0].split()[0] if lines and lines[0][:2] == "%%" else ""
    if magic and magic not in MAGICS_OF_PYTHON:
        return ""
    return "\n".join(_without_magic(line) for line in lines)


def _without_magic(line: str) -> str:
    statement = line.lstrip()
    if statement[:1] not in ("%", "!"):
        return line
    indentation = line[: len(line) - len(statement)]
    return f"{indentation}pass"
