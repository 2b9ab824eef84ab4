"""Models by the words of `--model`: which are there, and the operations of a user's own one, which `python -m workloads.describe`
traces and answers with in JSON."""

import subprocess
import sys
from collections.abc import Sequence
from typing import TypeVar

import msgspec

from kernels.networks import Network
from workloads import options
from workloads.machine import processes
from workloads.records import model_files, settings
from workloads.records.messages import Failed
from workloads.records.script_fit import DescribedScript

Record = TypeVar("Record", Network, DescribedScript)


def require(model: str) -> None:
    """Raises Usage for a model name that is unknown, or a file that is not there. The model is not built."""
    if settings.is_user_model(model):
        model_files.require(model)
    else:
        settings.network(model, or_user_model=True)


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A user's model that another process is to build and trace."""

    #: file.py:function or file.keras.
    model: str
    #: Samples of a step, unless its data bring their own batches.
    batch: int
    #: A function that gives the samples; "" to make them up.
    data: str = ""
    #: The length in place of input sizes that are None; 0 where none is given.
    length: int = 0


def described(request: ModelRequest, time_limit_s: float) -> Network:
    """A user's own model with the operations of its training step, traced in another process.

    Raises: the Usage or Missing with which that process failed; Missing where it gave no answer.
    """
    words = [f"--model={request.model}", "--operations", "--batch", str(request.batch)]
    if request.data:
        words += ["--data", request.data]
    if request.length:
        words += ["--length", str(request.length)]
    return _answer(request.model, words, time_limit_s, Network)


def described_script(script: str, arguments: Sequence[str], time_limit_s: float, fit: str) -> DescribedScript:
    """The first fit of a training script, or the one at `fit`, and its model with the operations of a step; the script runs in
    another process.

    Raises: as `described`.
    """
    words = ["--script", script]
    if fit:
        words += ["--fit", fit]
    if arguments:
        words += ["--", *arguments]
    return _answer(script, words, time_limit_s, DescribedScript)


def _answer(name: str, words: list[str], time_limit_s: float, record: type[Record]) -> Record:
    """The JSON answer of `python -m workloads.describe` with these further words, decoded as a record. name: of the model, for
    errors.

    Raises: as `described`.
    """
    command = [sys.executable, "-m", "workloads.describe", "--format", "json", "--time-limit", f"{time_limit_s:g}"]
    command += words
    ended = subprocess.run(command, env=processes.environment(), capture_output=True)
    try:
        if ended.returncode == options.OK:
            return msgspec.json.decode(ended.stdout, type=record)
        failed = msgspec.json.decode(ended.stdout, type=Failed)
    except msgspec.DecodeError as error:
        ending = processes.ending(ended.returncode, ended.stderr.decode(errors="replace"))
        message = f"{name} cannot be described: its process ended with {ending}"
        raise options.Missing(message, None) from error
    raise failed.error.stop(None)
