"""The process of a script: runs it as `python train.py` does, up to a `fit`, and writes what that call says or takes.

`python -P -m workloads.frameworks.user_fit.script_run PIPE MESSAGES ANSWER ORDER ARGUMENT ...`, in the script's folder: ANSWER
gets a DescribedScript, a Measurement or a Failed for the ScriptOrder, or nothing where the script ends without that `fit`.
"""

import contextlib
import gc
import importlib.util
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
from workloads.frameworks import training_row
from workloads.frameworks.tracing import user_files
from workloads.frameworks.tracing.refusal import change_of
from workloads.frameworks.tracing.step_inputs import BATCH_S
from workloads.frameworks.user_fit import fit_call, fit_hook, notebook, weight_limit
from workloads.frameworks.user_fit.cut_data import CutData
from workloads.frameworks.user_fit.side_effects import SideEffectsHook
from workloads.harness import announce
from workloads.harness.dispatch import Broken, described
from workloads.machine import processes
from workloads.records import Measurement, other_libraries, script_files
from workloads.records.messages import Doing, Failed, failure
from workloads.records.script_fit import ScriptOrder, Timing

_PACKAGES = ("analysis", "kernels", "workloads")


class ScriptRun:
    """One run of a user's script in this process, which ends when the script calls the wanted `fit`."""

    def __init__(self, answer: Path, order: ScriptOrder):
        """answer: the file that gets the answer. order: the script, which of its fits is wanted, and whether it is timed."""
        self.answer = answer
        self.order = order
        self.name = order.script
        #: The script's file; of a module it is known when the module was looked for.
        self.path = Path(order.path)

    def run(self) -> None:
        """Runs the script with `fit` of Keras's models replaced. Does not return where the script calls the wanted `fit`, or
        raises: then the answer is written and the process ended."""
        ours = _remove_our_packages(str(self.path.parent) if self.order.path else os.getcwd())

        def replacement(original: Callable) -> Callable:
            """The function that the script gets in place of Keras's own `fit`."""

            def fit(*positional: Any, **named: Any) -> Any:
                """Does one step of a fit before the wanted one; of the wanted one writes the answer and ends the process."""
                place = self.place(traceback.extract_stack())
                if self.order.fit and self.order.fit != script_files.fit_number(place):
                    return _fit_one_step(original, positional, named)
                _restore_packages(ours)
                self.end(self.answer_to_fit(original, place, positional, named))

            return fit

        self.hook = fit_hook.install(replacement, weight_limit.install)
        self.side_effects = SideEffectsHook()
        try:
            self.run_file()
        except notebook.NoNotebook as error:
            message = f"{self.name} is no notebook that can be read: {error}"
            self.end(Failed(error=failure(options.Usage(message, first=f"mend {self.name}"))))
        except Exception as error:
            _restore_packages(ours)
            self.end(Failed(error=failure(self.script_error(error))))

    def run_file(self) -> None:
        """Runs the script as Python does: a module, a notebook or a file."""
        if not self.order.path:
            self.run_module()
        elif self.path.suffix == ".ipynb":
            notebook.run(self.path)
        else:
            runpy.run_path(str(self.path), run_name="__main__")

    def run_module(self) -> None:
        """Runs the script as a module, as `python -m` does: of a package its `__main__`. Sets `path` to its file.

        Raises: ModuleNotFoundError where there is no such module; any error of the module.
        """
        spec = importlib.util.find_spec(self.name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(f"{self.name}.__main__")
        if spec is None or spec.origin is None:
            raise ModuleNotFoundError(f"there is no module {self.name} in {os.getcwd()}")
        self.path = Path(spec.origin)
        runpy.run_module(self.name, run_name="__main__", alter_sys=True)

    def answer_to_fit(self, original: Callable, place: str, positional: tuple, named: dict[str, Any]) -> msgspec.Struct:
        """What the process answers when the script has called the wanted `fit`: a DescribedScript, or a Measurement where the fit
        is timed, or a Failed with the error.

        original: Keras's own `fit`. place: where in the script it is called, as `line 41`. positional, named: the arguments of
        the call; the first of them is the model.
        """
        effects = self.side_effects.effects()
        where = f"{self.name}, fit at {place}"
        try:
            bound = inspect.signature(original).bind(*positional, **named)
            bound.apply_defaults()
            arguments = bound.arguments
            model, *_ = positional
            fit_call.require_keras_step(model)
            with self.limited_to_batch_time(where):
                data = fit_call.call_data(arguments)
            source = user_files.hash_of_modules(str(self.path), place, *sys.argv[1:])
            if self.order.timing is not None:
                type(model).fit = original
                return self.timed(
                    self.order.timing, model, CutData(arguments, data=data.training, batch=data.training.batch), source
                )
            gc.disable()  # a trace makes objects by the million and lets few go
            strategy = self.hook.strategies[-1] if self.hook.strategies else ""
            answer = fit_call.described(model, arguments, data, where=(self.name, place), strategy=strategy)
            return answer.from_files(source).with_effects(effects)
        except Broken as error:
            change = change_of(error) or f"mend {self.name}"
            return Failed(error=failure(options.Usage(f"{where}: {error}", first=change)))
        except Exception as error:
            return Failed(error=failure(options.Usage(f"{where}: {described(error)}", first=f"mend {self.name}")))

    def timed(self, timing: Timing, model: Any, cut: CutData, source: str) -> Measurement:
        """Times the fit of the script's own model with its own data.

        timing: the row, and how long it is timed. cut: the data, of which fits of any number of steps can be made. source: the
        hash of the user's files.
        Raises: Broken with the user's own line that fails.
        """
        row = timing.row
        phases = {"build": 0.0}
        if not row.on_gpu:
            phases |= {"import": self.hook.importing_s, "device_start": 0.0}
        values: dict[str, float] = {}
        notes = {user_files.SOURCE: source}
        fields = training_row.fields_of_fit(row, model, cut, timing.limits, notes=notes, phases=phases, values=values)
        return row.result(status="ok", **fields, phases_s=phases, values=values)

    @contextlib.contextmanager
    def limited_to_batch_time(self, where: str) -> Iterator[None]:
        """A `with` block that must end within BATCH_S seconds: else the process is ended with an error as its answer. where: the
        script and the place in it, for the error."""
        late = options.Missing(f"{where}: its data gave no batch within {BATCH_S} s", first=f"mend {self.name}")
        timer = threading.Timer(BATCH_S, self.end, [Failed(error=failure(late))])
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()

    def end(self, record: msgspec.Struct) -> NoReturn:
        """Writes the answer and ends the process at once, so that nothing of the script runs any more.

        What the script has printed is flushed before: the process that started this one counts its lines.
        """
        with contextlib.suppress(Exception):
            sys.stdout.flush()
        self.answer.write_bytes(msgspec.json.encode(record))
        os._exit(options.OK)

    def place(self, stack: traceback.StackSummary) -> str:
        """The place in the script that a traceback leads to, as `line 41` or `cell 3, line 2`: of the innermost frame in the
        script."""
        for frame in reversed(stack):
            if frame.filename == str(self.path):
                return f"line {frame.lineno}"
            if notebook.is_cell(frame.filename):
                return f"{frame.filename}, line {frame.lineno}"
        return "an unknown line"

    def script_error(self, error: Exception) -> options.Usage:
        """The error to report where the script raised before its `fit`: with the place in the script, and what to change.

        A script that imports another library than TensorFlow, which is not installed, has an error of its own.
        """
        library = other_libraries.library_imported(self.path) if isinstance(error, ModuleNotFoundError) else ""
        if library:
            return script_files.another_library(self.name, library)
        if isinstance(error, SyntaxError):
            place = f", line {error.lineno}" if error.lineno else ""
            if notebook.is_cell(error.filename or ""):
                place = f", {error.filename}{place}"
        else:
            place = f", {self.place(traceback.extract_tb(error.__traceback__))}"
        reason = str(error) if isinstance(error, Broken) else described(error)
        change = change_of(error) or f"mend {self.name}"
        return options.Usage(f"{self.name}{place}, before any fit: {reason}", first=change)


def _fit_one_step(original: Callable, positional: tuple, named: dict[str, Any]) -> Any:
    """Does a single step of a fit that comes before the wanted one, without its callbacks, and returns what that fit does.

    original: Keras's `fit`. positional, named: the arguments of the script's call.
    """
    bound = inspect.signature(original).bind(*positional, **named)
    first = bound.arguments.get("initial_epoch", 0)
    bound.arguments |= {"epochs": first + 1, "steps_per_epoch": 1, "callbacks": None}
    return original(*bound.args, **bound.kwargs)


def _remove_our_packages(folder: str) -> dict[str, types.ModuleType]:
    """Removes this project's packages from the imported modules and its folder from sys.path, as a script may have modules of the
    same names. Returns the removed modules. folder: the script's, which Python searches first."""
    names = [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]
    sys.path[:] = [folder, *(path for path in sys.path if path != str(ROOT))]
    return {name: sys.modules.pop(name) for name in names}


def _restore_packages(modules: dict[str, types.ModuleType]) -> None:
    """Puts this project's modules back in place of the script's modules of the same names, so that we can import again."""
    for name in [name for name in sys.modules if name.partition(".")[0] in _PACKAGES]:
        del sys.modules[name]
    sys.modules.update(modules)
    sys.path.insert(0, str(ROOT))


def main() -> None:
    """Runs the script of the order on the command line, which is: the number of a pipe whose end means that the parent has ended,
    the number of a pipe for messages to it, the file for the answer, a ScriptOrder as JSON, and the script's arguments."""
    processes.end_with_parent(int(sys.argv[1]))
    messages = int(sys.argv[2])
    answer = Path(sys.argv[3])
    order = msgspec.json.decode(sys.argv[4], type=ScriptOrder)
    sys.argv = [order.path or order.script, *sys.argv[5:]]

    def send(doing: Doing) -> None:
        os.write(messages, msgspec.json.encode(doing) + b"\n")

    announce.send_to(send)
    ScriptRun(answer, order).run()


if __name__ == "__main__":
    main()
