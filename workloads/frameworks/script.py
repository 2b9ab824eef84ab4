"""The parent's side: a user's training script, run in a process of its own up to its first `fit`."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import msgspec

from workloads import options
from workloads.frameworks import grid
from workloads.machine import processes
from workloads.records import script_files
from workloads.records.messages import Failed
from workloads.records.script_fit import DescribedScript


def described(script: str, arguments: Sequence[str], time_limit_s: float) -> DescribedScript:
    """The first fit of a script and the layers of its model.

    Raises: Usage for a script that is not there, fails before fit or has none, and for a model that cannot be described;
    Missing without Keras, and where no fit came in time.
    """
    script_files.require(script)
    grid.require_keras()
    path = Path(script).resolve()
    with tempfile.TemporaryDirectory() as folder:
        answer = Path(folder, "answer.json")
        log = Path(folder, "printed.txt")
        ended = _run([str(answer), script, str(path), *arguments], path.parent, log, time_limit_s)
        if answer.exists():
            return _read(answer.read_bytes())
        printed = log.read_text(encoding="utf-8", errors="replace")
    if ended is None:
        message = f"{script} has called no fit within {time_limit_s:g} s"
        raise options.Missing(message, wrong="--time-limit", right=f"--time-limit {5 * time_limit_s:g}")
    if ended == 0:
        raise script_files.without_fit(script)
    raise options.Usage(
        f"{script} ended before any fit with {processes.ending(ended, printed)}", first=f"mend {script}"
    )


def _run(words: list[str], folder: Path, log: Path, time_limit_s: float) -> int | None:
    """The exit code of script_run with these words; None where it took too long. All that it started is ended."""
    mark = processes.new_mark()
    environment = {**processes.environment(), processes.MARK: mark}
    environment.setdefault("MPLBACKEND", "Agg")  # a window would wait for somebody to close it
    reading, writing = os.pipe()  # the child ends when this process no longer has `writing`
    command = [sys.executable, "-P", "-m", "workloads.frameworks.script_run", str(reading), *words]
    with log.open("wb") as printed:
        child = subprocess.Popen(
            command,
            cwd=folder,
            env=environment,
            pass_fds=(reading,),
            stdin=subprocess.DEVNULL,
            stdout=printed,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(time_limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            processes.end_group(child, mark)
            os.close(reading)
            os.close(writing)


def _read(answer: bytes) -> DescribedScript:
    """Raises: the error that the answer tells of."""
    try:
        return msgspec.json.decode(answer, type=DescribedScript)
    except msgspec.ValidationError:
        failed = msgspec.json.decode(answer, type=Failed)
    raise failed.error.stop(None)
