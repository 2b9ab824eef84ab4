"""Where a script calls `fit` of a Keras model, as far as its text says."""

import ast
import contextlib
from pathlib import Path

from workloads.frameworks.user_fit import notebook
from workloads.records import source_trees

#: Arguments that Keras's fit has, and that of other libraries has not.
_ARGUMENTS = {"epochs", "batch_size", "validation_data", "validation_split", "steps_per_epoch", "callbacks", "verbose"}


def places(script: str) -> tuple[str, ...]:
    """Where a script calls `fit` of a Keras model, in the words that the flag --fit takes.

    They are lines of a script, as `41`, or of a notebook as `3.2`, the second line of its third code cell. () for a file that
    cannot be read.
    """
    path = Path(script)
    with contextlib.suppress(OSError, SyntaxError, ValueError, KeyError):
        if path.suffix == ".ipynb":
            return _notebook_places(path)
        return tuple(str(line) for line in lines(path.read_text(encoding="utf-8")))
    return ()


def may_call_fit(script: str, place: str) -> bool:
    """Whether a call of a method `fit` spans this place of a script, in the words that the flag --fit takes: `41`, `3.2`."""
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
    """The calls of any object's method `fit` in a text of Python."""
    calls = []
    for node in ast.walk(source_trees.parsed(source)):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "fit":
            calls.append(node)
    return calls


def _notebook_places(path: Path) -> tuple[str, ...]:
    """Where the code cells of a notebook call `fit` of a Keras model: `3.2` for the second line of the third code cell."""
    places_of_cells: list[str] = []
    for number, source in enumerate(notebook.code_cells(path.read_bytes()), 1):
        places_of_cells += [f"{number}.{line}" for line in lines(notebook.python_of_cell(source))]
    return tuple(places_of_cells)


def lines(source: str) -> list[int]:
    """The numbers of the lines in a text of Python that call `fit` of what is likely a Keras model.

    It is one where a call has an argument that only Keras's fit has, or where another call of the same object's `fit` has.
    """
    calls = _calls(source)
    receivers = {_receiver(call) for call in calls if _has_argument_of_keras(call)}
    return sorted({call.lineno for call in calls if _receiver(call) in receivers})


def _has_argument_of_keras(call: ast.Call) -> bool:
    return any(keyword.arg in _ARGUMENTS for keyword in call.keywords)


def _receiver(call: ast.Call) -> str:
    """The expression in front of `.fit`, as a text that is the same for equal expressions."""
    assert isinstance(call.func, ast.Attribute)
    return ast.dump(call.func.value)
