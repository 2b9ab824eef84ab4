"""Inside a worker: the row of a user's script. The script runs in a process of its own, which times its fit."""

import os

from workloads.frameworks import tensors
from workloads.frameworks.user_fit import script
from workloads.harness import announce
from workloads.harness.dispatch import Broken
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row
from workloads.records.script_files import ScriptTraining
from workloads.records.script_fit import Timing


def measure(row: Row, training: ScriptTraining, limits: Limits) -> Measurement:
    """Runs a user's script in a process of its own and times its fit. `failed` where the script does not come to that fit.

    A GPU's start is timed here, in this process and afterwards: in the script's process it is a part of whatever uses the GPU
    first.
    """
    announce.starting(f"running {os.path.basename(training.script)} up to its fit")
    try:
        measurement = script.timed(training, Timing(row=row, limits=limits), announce.pass_on)
    except Broken as error:
        return row.result("failed", str(error), cause=error.cause)
    if row.on_gpu and measurement.ok:
        measurement.phases_s.update(tensors.begin(row.device, row.threads))
    return measurement
