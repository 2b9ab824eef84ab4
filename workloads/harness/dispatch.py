"""Framework functions that a worker calls by name, each imported at its first call; the errors by which they refuse."""

import importlib
import re
from collections.abc import Callable

from workloads.records.rows import Cause

_COLORS = re.compile(r"\x1b\[[\d;]*m")  # Keras prints a part of its messages bold
HANDLERS = {
    "training": "workloads.frameworks.training_row:measure",
    "inference": "workloads.frameworks.inference_row:measure",
    "feeding": "workloads.frameworks.input_pipeline_row:measure",
    "layer": "workloads.frameworks.layer_graphs.layer_row:measure",
    "layers": "workloads.frameworks.layer_graphs.answer:answer",
    "training/keras/fit": "workloads.frameworks.trainers:KerasFit",
    "training/keras/resident": "workloads.frameworks.tf_loop:ResidentEpochs",
    "training/tensorflow/loop": "workloads.frameworks.tf_loop:TensorFlowLoop",
    "training/jax/keras_loop": "workloads.frameworks.jax_loop:JaxLoop",
    "prepare": "workloads.frameworks.work_windows:prepare",
    "window": "workloads.frameworks.work_windows:window",
    "trial": "workloads.frameworks.trials:trial",
    "trace": "workloads.frameworks.tracing.answer:answer",
    "tensorflow": "workloads.frameworks.tensors:prepared",
}


class CannotDo(Exception):
    """A kernel or framework refuses a row before it runs; an error of another type is a fault."""

    cause: Cause = ""


class Broken(Exception):
    """A framework did not do what the row says: the row is `failed` with this reason."""

    def __init__(self, reason: str, cause: Cause = ""):
        super().__init__(reason)
        self.cause = cause


def one_line(error: object, most: int = 240) -> str:
    """The message of an error as one printable line of at most `most` characters, without codes for terminal colors."""
    without_colors = "".join(_COLORS.split(str(error)))
    line = " ".join(without_colors.split())
    return "".join(filter(str.isprintable, line))[:most]


def described(error: BaseException) -> str:
    """The class and the message of an error, in one printable line: `ValueError: no such layer`."""
    return f"{type(error).__name__}: {one_line(error)}"


def handler(name: str) -> Callable:
    """The function or class that HANDLERS has for this name; its module is imported now, as a framework is slow to import.

    Raises: KeyError for another name.
    """
    module, _, function = HANDLERS[name].partition(":")
    return getattr(importlib.import_module(module), function)
