"""Runs a Jupyter notebook as a script: its code cells one after the other, without IPython's magics."""

import json
import re
import sys
import types
from pathlib import Path

#: Magics above a cell of Python; below any other is another language.
MAGICS_OF_PYTHON = ("%%time", "%%capture")


def run(path: Path) -> None:
    """Runs the code cells in one module, `__main__`. The cells are the files `cell 1`, `cell 2` and so on."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    module = types.ModuleType("__main__")
    sys.modules["__main__"] = module
    number = 0
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        number += 1
        source = python_of_cell("".join(cell["source"]))
        exec(compile(source, f"cell {number}", "exec"), module.__dict__)


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
