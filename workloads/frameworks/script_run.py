"""The process of a script: runs it as `python train.py` does, up to its first `fit`, and writes what that call says.

`python -P -m workloads.frameworks.script_run PIPE ANSWER NAME SCRIPT ARGUMENT ...`, in the folder of SCRIPT. ANSWER gets a
DescribedScript or a Failed; nothing is written for a script that ends without `fit`.
"""

import contextlib
import gc
import inspect
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from workloads import ROOT, options
from workloads.frameworks import fit_call, fit_hook, notebook
from workloads.frameworks.tracing.refusal import change_of
from workloads.harness.dispatch import Broken, described
from workloads.machine import processes
from workloads.records.messages import Failed, failure

BATCH_S = 20  # seconds that the data may take for one batch
_PACKAGES = ("analysis", "kernels", "workloads")


class ScriptRun:
    """One run of a script."""

    def __init__(self, answer: Path, name: str, path: Path):
        self.answer = answer
        self.name = name
        self.path = path

    def run(self) -> None:
        """Runs the script; does not return if it calls `fit`."""
        ours = _without_our_packages()

        def replacement(original: Callable) -> Callable:
            def fit(*positional: Any, **named: Any) -> NoReturn:
                place = self.place(traceback.extract_stack())
                _restore_packages(ours)
                self.end(self.call(original, place, positional, named))

            return fit

        fit_hook.install(replacement)
        try:
            if self.path.suffix == ".ipynb":
                notebook.run(self.path)
            else:
                runpy.run_path(str(self.path), run_name="__main__")
        except notebook.NoNotebook as error:
            message = f"{self.name} is no notebook that can be read: {error}"
            self.end(Failed(error=failure(options.Usage(message, first=f"mend {self.name}"))))
        except Exception as error:
            self.end(Failed(error=failure(self.script_error(error))))

    def call(self, original: Callable, place: str, positional: tuple, named: dict[str, Any]) -> msgspec.Struct:
        """A DescribedScript, or a Failed."""
        where = f"{self.name}, fit at {place}"
        try:
            arguments = inspect.signature(original).bind(*positional, **named)
            arguments.apply_defaults()
            model, *_ = positional
            fit_call.require_keras_step(model)
            with self.time_for_batch(where):
                data = fit_call.call_data(arguments.arguments)
            gc.disable()  # a trace makes objects by the million and lets few go
            return fit_call.described(model, arguments.arguments, data, where=(self.name, place))
        except Broken as error:
            change = change_of(error) or f"mend {self.name}"
            return Failed(error=failure(options.Usage(f"{where}: {error}", first=change)))
        except Exception as error:
            return Failed(error=failure(options.Usage(f"{where}: {described(error)}", first=f"mend {self.name}")))

    @contextlib.contextmanager
    def time_for_batch(self, where: str) -> Iterator[None]:
        """Ends the process if what is done inside takes longer than a batch may."""
        late = options.Missing(f"{where}: its data gave no batch within {BATCH_S} s", first=f"mend {self.name}")
        timer = threading.Timer(BATCH_S, self.end, [Failed(error=failure(late))])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def end(self, record: msgspec.Struct) -> NoReturn:
        """Writes the answer and ends the process at once: nothing of the script runs any more."""
        self.answer.write_bytes(msgspec.json.encode(record))
        os._exit(options.OK)

    def place(self, stack: traceback.StackSummary) -> str:
        """The innermost place of a stack that is in the script: `line 41`, `cell 3, line 2`."""
        for frame in reversed(stack):
            if frame.filename == str(self.path):
                return f"line {frame.lineno}"
            if notebook.is_cell(frame.filename):
                return f"{frame.filename}, line {frame.lineno}"
        return "an unknown line"

    def script_error(self, error: Exception) -> options.Usage:
        """The error for a script that raises before `fit`."""
        if isinstance(error, SyntaxError):
            place = f"line {error.lineno}" if error.lineno else "an unknown line"
            if notebook.is_cell(error.filename or ""):
                place = f"{error.filename}, {place}"
        else:
            place = self.place(traceback.extract_tb(error.__traceback__))
        return options.Usage(f"{self.name}, {place}, before any fit: {described(error)}", first=f"mend {self.name}")


def _without_our_packages() -> dict[str, types.ModuleType]:
    """Takes our packages out of the way of the script's, which may have the same names."""
    names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    sys.path[:] = [path for path in sys.path if path != str(ROOT)]
    return {name: sys.modules.pop(name) for name in names}


def _restore_packages(modules: dict[str, types.ModuleType]) -> None:
    """Puts our packages back, in the place of the script's."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]:
        del sys.modules[name]
    sys.modules.update(modules)
    sys.path.insert(0, str(ROOT))


def main() -> None:
    processes.end_with_parent(int(sys.argv[1]))
    answer = Path(sys.argv[2])
    name = sys.argv[3]
    path = Path(sys.argv[4])
    sys.argv = sys.argv[4:]
    sys.path.insert(0, str(path.parent))
    ScriptRun(answer, name, path).run()


if __name__ == "__main__":
    main()
