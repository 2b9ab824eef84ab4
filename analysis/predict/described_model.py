"""Models by the words of `--model`: which are there, and the layers of a user's own one, which `python -m workloads.describe`
builds and answers with in JSON."""

import subprocess
import sys

import msgspec

from kernels.networks import Network
from workloads import options
from workloads.machine import processes
from workloads.records import model_files, settings
from workloads.records.messages import Failed


def require(model: str) -> None:
    """Raises Usage for a model that is not known or not there, as far as that shows without building it."""
    if settings.is_user_model(model):
        model_files.require(model)
    else:
        settings.network(model, own=True)


def described(model: str, time_limit_s: float) -> Network:
    """The layers of a user's own model, built in another process.

    Raises: the Usage or Missing with which that process failed; Missing where it gave no answer.
    """
    flags = ("--format", "json", "--time-limit", f"{time_limit_s:g}", "--model", model)
    command = [sys.executable, "-m", "workloads.describe", *flags]
    ended = subprocess.run(command, env=processes.environment(), capture_output=True)
    try:
        if ended.returncode == options.OK:
            return msgspec.json.decode(ended.stdout, type=Network)
        failed = msgspec.json.decode(ended.stdout, type=Failed)
    except msgspec.DecodeError as error:
        ending = processes.ending(ended.returncode, ended.stderr.decode(errors="replace"))
        message = f"{model} cannot be described: its process ended with {ending}"
        raise options.Missing(message, options.HELP) from error
    raise failed.error.stop(options.HELP)
