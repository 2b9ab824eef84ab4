"""Where a script calls `fit` of a Keras model, as far as its text says."""

import ast
import contextlib
from pathlib import Path

from workloads.frameworks.user_fit import notebook
from workloads.records import source_trees

#: Arguments that Keras's fit has, and that of other libraries has not.
_ARGUMENTS = {"epochs", "batch_size", "validation_data", "validation_split", "steps_per_epoch", "callbacks", "verbose"}


def places(script: str) -> tuple[str, ...]:
    """The places as --fit takes them: lines of a script, `3.2` for the second line of a notebook's third code cell. () of a
    file that cannot be read."""
    path = Path(script)
    with contextlib.suppress(OSError, SyntaxError, ValueError, KeyError):
        if path.suffix == ".ipynb":
            return _notebook_places(path)
        return tuple(str(line) for line in lines(path.read_text(encoding="utf-8")))
    return ()


def may_call_fit(script: str, place: str) -> bool:
    """Whether a call of something's `fit` reaches over this place, as --fit takes it."""
    path = Path(script)
    cell, _, line = place.rpartition(".")
    if path.suffix == ".ipynb":
        cells = notebook.code_cells(path.read_bytes())
        number = int(cell) if cell.isdecimal() else 0
        source = notebook.python_of_cell(cells[number - 1]) if 0 < number <= len(cells) else ""
    else:
        source = "" if cell else path.read_text(encoding="utf-8")
    ranges = [range(call.lineno, (call.end_lineno or call.lineno) + 1) for call in _calls(source)]
    return line.isdecimal() and any(int(line) in lines_of_call for lines_of_call in ranges)


def _calls(source: str) -> list[ast.Call]:
    """The calls of something's `fit`."""
    calls = []
    for node in ast.walk(source_trees.parsed(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
            calls.append(node)
    return calls


def _notebook_places(path: Path) -> tuple[str, ...]:
    every: list[str] = []
    for number, source in enumerate(notebook.code_cells(path.read_bytes()), 1):
        every += [f"{number}.{line}" for line in lines(notebook.python_of_cell(source))]
    return tuple(every)


def lines(source: str) -> list[int]:
    """The lines with a call of `fit` that has an argument of Keras's, or the receiver of one that has."""
    calls = _calls(source)
    receivers = {_receiver(call) for call in calls if _has_argument_of_keras(call)}
    return sorted({call.lineno for call in calls if _receiver(call) in receivers})


def _has_argument_of_keras(call: ast.Call) -> bool:
    return any(keyword.arg in _ARGUMENTS for keyword in call.keywords)


def _receiver(call: ast.Call) -> str:
    """What is before `.fit`, as text."""
    assert isinstance(call.func, ast.Attribute)
    return ast.dump(call.func.value)
