"""Inside a worker: the traced step of a model, in the notes of a Measurement."""

import gc

import msgspec

from workloads.frameworks import tensors
from workloads.frameworks.tracing import step
from workloads.frameworks.tracing.refusal import change_of
from workloads.frameworks.tracing.user_files import OpenedFiles
from workloads.frameworks.user_fit import weight_limit
from workloads.harness.dispatch import Broken
from workloads.records import Measurement, Row

#: The notes that hold the Network with its traced step, and the hash of each file that it depends on.
NETWORK, FILES = "network", "files"
#: The note of a refusal that says what to change.
CHANGE = "change"


def answer(row: Row, step_inputs: dict[str, str]) -> Measurement:
    """Traces the training step of the row's model in this process.

    The result has no samples: its notes hold the Network and the files that it depends on, as JSON. Where the model cannot be
    traced it is `failed`, and its note CHANGE says what the user has to change.
    step_inputs: `data`, the user's function that returns the samples, and `length` of each side that the model leaves open; both
    may be missing.
    """
    tensors.begin(row.device, row.threads, row.library)
    gc.disable()  # a trace makes objects by the million and lets few go: looking for garbage took a sixth of its time
    weight_limit.install()
    opened = OpenedFiles()
    data, length = step_inputs.get("data", ""), int(step_inputs.get("length", "0"))
    try:
        with opened.noting():
            traced = step.traced(row.problem.model, row.problem.batch, data, length)
    except Broken as error:
        return row.result("failed", str(error), cause=error.cause, notes={CHANGE: change_of(error)})
    notes = {NETWORK: msgspec.json.encode(traced).decode(), FILES: msgspec.json.encode(opened.hashes()).decode()}
    return row.result("ok", notes=notes)
