"""Runs a Jupyter notebook as a script: its code cells one after the other, without IPython's magics."""

import json
import re
import sys
import types
from pathlib import Path

#: IPython's cell magics above which a cell is still Python; below any other is another language.
MAGICS_OF_PYTHON = ("%%time", "%%capture")


class NoNotebook(ValueError):
    """A file is no notebook that can be read; the message says why."""


def run(path: Path) -> None:
    """Runs the code cells of a notebook one after the other in one module, `__main__`. In tracebacks they are the files `cell 1`,
    `cell 2` and so on.

    Raises: NoNotebook; any error that a cell raises.
    """
    sources = code_cells(path.read_bytes())
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    for number, source in enumerate(sources, 1):
        exec(compile(python_of_cell(source), f"cell {number}", "exec"), module.__dict__)


def code_cells(content: bytes) -> list[str]:
    """The texts of the code cells of a notebook, in their order. content: the file's, of Jupyter's format 3 or 4.

    Raises: NoNotebook for a file that is none, or in another language than Python.
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
    """The programming language that a notebook's metadata name; "" where they name none."""
    part: object = document
    for name in ("metadata", "kernelspec", "language"):
        part = part.get(name) if isinstance(part, dict) else None
    return part if isinstance(part, str) else ""


def _cells(document: dict) -> list:
    """The cells of a notebook. In Jupyter's format 3 they are in worksheets.

    Raises: NoNotebook where the JSON has none.
    """
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
    """The list under the key `cells` of a notebook or worksheet.

    Raises: NoNotebook where there is none.
    """
    cells = part.get("cells") if isinstance(part, dict) else None
    if not isinstance(cells, list):
        raise NoNotebook("it has no list of cells")
    return cells


def _text(cell: dict, number: int) -> str:
    """The text of a code cell: its `source`, or in Jupyter's format 3 its `input`, as one text or a list of lines.

    number: of the cell among those of code, for the error.
    Raises: NoNotebook for a text that Python does not take.
    """
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
    """Whether the name of a file in a traceback is one that `run` gives to a cell: `cell 3`."""
    return re.fullmatch(r"cell \d+", file) is not None


def python_of_cell(source: str) -> str:
    """The text of a code cell with `pass` in place of each line that is an IPython magic (%) or shell command (!), so that line
    numbers stay. "" for a cell of another language."""
    lines = source.splitlines()
    if lines and lines[0][:2] == "%%":
        magic, *_ = lines[0].split()
        if magic not in MAGICS_OF_PYTHON:
            return ""
    return "\n".join(_without_magic(line) for line in lines)


def _without_magic(line: str) -> str:
    """A line of a cell; `pass`, as far indented, in place of a magic or shell command."""
    statement = line.lstrip()
    if statement[:1] not in ("%", "!"):
        return line
    indentation = line[: len(line) - len(statement)]
    return f"{indentation}pass"
