"""The parent's side: a user's training script, run in a process of its own up to its `fit`, which is described or timed."""

import os
import select
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from workloads import options
from workloads.frameworks import grid
from workloads.frameworks.user_fit import fit_places
from workloads.harness.dispatch import Broken
from workloads.machine import processes
from workloads.records import Measurement, script_files
from workloads.records.messages import Doing, Failed
from workloads.records.script_files import ScriptTraining
from workloads.records.script_fit import DescribedScript, ScriptOrder, Timing
from workloads.records.settings import FOLDER

Answer = TypeVar("Answer", DescribedScript, Measurement)
_TICK_S = 0.5  # seconds between two looks at the process
_TIME_FACTOR = 5  # an error proposes so many times the time limit that was too short


def described(script: str, arguments: Sequence[str], time_limit_s: float, fit: str = "") -> DescribedScript:
    """Runs a user's script in a child process up to a call of `fit`, and describes that call and its model.

    script: a file or the name of a module. arguments: words that the script gets. time_limit_s: for the script up to its fit.
    fit: where the wanted call stands, as `41` or `3.2` (cell and line of a notebook); "" for the first one.
    Raises: Usage for a script that is not there, fails before that fit or has none, and for a model that cannot be described;
    Missing without Keras, and where the fit is not reached in time.
    """
    script_files.require(script)
    grid.require_keras()
    order = ScriptOrder(script=script, path=_path(script), fit=fit)
    answer = _run_script(order, arguments, DescribedScript, time_limit_s=time_limit_s)
    places = fit_places.places(answer.fit.script)
    number = script_files.fit_number(answer.fit.place)
    others = tuple(place for place in places if place != number)
    return replace(answer, fit=replace(answer.fit, other_fits=others))


def timed(training: ScriptTraining, timing: Timing, announce: Callable[[Doing], None]) -> Measurement:
    """Runs a user's script in a child process up to a call of `fit`, and times that fit with the script's own model and data.

    training: the script, its arguments and the wanted fit. announce: called with what the child does now, when that changes.
    Raises: Broken for a script that does not come to that fit, or whose fit fails.
    """
    order = ScriptOrder(script=training.script, path=_path(training.script), fit=training.fit, timing=timing)
    try:
        return _run_script(order, training.arguments, Measurement, announce=announce)
    except options.Stop as stop:
        raise Broken(str(stop)) from stop


def _path(script: str) -> str:
    """The absolute path of a script, looked for in the folder that the command was typed in; "" for the name of a module."""
    if not script_files.is_script(script):
        return ""
    return str(Path(os.environ.get(FOLDER) or os.getcwd(), script).resolve())


def _run_script(
    order: ScriptOrder,
    arguments: Sequence[str],
    kind: type[Answer],
    *,
    time_limit_s: float = 0,
    announce: Callable[[Doing], None] = lambda doing: None,
) -> Answer:
    """Runs a script in a child process and returns its answer, which is of the type `kind`.

    order: what the child does with the script. arguments: words that the script gets. time_limit_s: 0 for no limit. announce:
    called with what the child does now.
    Raises: Usage for a script that fails, or ends without the wanted fit; Missing where the time limit passes.
    """
    script = order.script
    folder = Path(order.path).parent if order.path else Path(os.environ.get(FOLDER) or os.getcwd())
    with tempfile.TemporaryDirectory() as temporary:
        answer = Path(temporary, "answer.json")
        words = [str(answer), msgspec.json.encode(order).decode(), *arguments]
        process = _ScriptProcess(words, folder, Path(temporary))
        ended = process.wait(time_limit_s, announce)
        if answer.exists():
            return _read(answer.read_bytes(), kind, printed=process.stdout)
        if ended is None:
            message = f"{script} has called no fit within {time_limit_s:g} s"
            right = f"--time-limit {_TIME_FACTOR * time_limit_s:g}"
            raise options.Missing(message, wrong="--time-limit", right=right)
        printed = process.stdout.read_text(encoding="utf-8", errors="replace")
        printed += process.stderr.read_text(encoding="utf-8", errors="replace")
    if ended == 0 and order.fit:
        raise script_files.no_such_fit(script, order.fit, fit_places.places(script))
    if ended == 0:
        raise script_files.without_fit(script)
    raise options.Usage(
        f"{script} ended before any fit with {processes.ending(ended, printed)}", first=f"mend {script}"
    )


class _ScriptProcess:
    """A child process that runs a script by the module script_run. When it ends, so does every process that it has started."""

    def __init__(self, words: list[str], folder: Path, logs: Path):
        """words: ANSWER, ORDER and the script's arguments, as script_run takes them. folder: the one to run in. logs: the folder
        for files with what it prints."""
        #: Files with what it prints.
        self.stdout = logs / "stdout.txt"
        self.stderr = logs / "stderr.txt"
        self._mark = processes.new_mark()
        environment = {**processes.environment(), processes.MARK: self._mark}
        environment.setdefault("MPLBACKEND", "Agg")  # a window would wait for somebody to close it
        reading, self._alive = os.pipe()  # the child ends when this process no longer has `_alive`
        self._messages, messages = os.pipe()
        module = "workloads.frameworks.user_fit.script_run"
        with self.stdout.open("wb") as printed, self.stderr.open("wb") as errors:
            self._child = subprocess.Popen(
                [sys.executable, "-P", "-m", module, str(reading), str(messages), *words],
                cwd=folder,
                env=environment,
                pass_fds=(reading, messages),
                stdin=subprocess.DEVNULL,
                stdout=printed,
                stderr=errors,
                start_new_session=True,
            )
        os.close(reading)
        os.close(messages)

    def wait(self, time_limit_s: float, announce: Callable[[Doing], None]) -> int | None:
        """Waits until the process ends and returns its exit code; None where time_limit_s, if not 0, passed before. Then it is
        ended.

        announce: called with each message of what the process does.
        """
        deadline = time.monotonic() + time_limit_s
        try:
            while self._child.poll() is None:
                self._pass_on(announce)
                if time_limit_s and time.monotonic() > deadline:
                    return None
            return self._child.returncode
        finally:
            processes.end_group(self._child, self._mark)
            os.close(self._alive)
            os.close(self._messages)

    def _pass_on(self, announce: Callable[[Doing], None]) -> None:
        """Waits up to _TICK_S seconds for messages of the process and calls `announce` with each. A message is one line of JSON,
        so short that it is written in one piece."""
        ready, _, _ = select.select([self._messages], [], [], _TICK_S)
        if not ready:
            return
        lines = os.read(self._messages, 1 << 16).splitlines()
        if not lines:  # the process has closed its end
            time.sleep(_TICK_S)
        for line in lines:
            announce(msgspec.json.decode(line, type=Doing))


def _read(answer: bytes, kind: type[Answer], printed: Path) -> Answer:
    """The record of the type `kind` in the JSON of an answer. A DescribedScript gets the number of lines that the script printed.

    printed: the file with what it printed.
    Raises: the error that the child answered with in place of the record.
    """
    try:
        record = msgspec.json.decode(answer, type=kind)
    except msgspec.ValidationError:
        failed = msgspec.json.decode(answer, type=Failed)
        raise failed.error.stop(None) from None
    if isinstance(record, DescribedScript):
        lines = len(printed.read_bytes().splitlines())
        return record.with_effects(replace(record.fit.effects, printed=lines))  # type: ignore[return-value]
    return record
