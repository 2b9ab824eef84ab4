"""The orders that a worker process carries out."""

import msgspec

from workloads.records import Row
from workloads.shared_flags import Limits


class Order(msgspec.Struct, frozen=True):
    """An order to a worker process, which answers with a Measurement."""

    #: `measure` a row in one go; `visit` it, after which it stays bound to its data; `trace` the step of its training; or a name
    #: in dispatch.HANDLERS.
    verb: str
    #: The row to measure.
    row: Row
    #: How long it is timed.
    limits: Limits = Limits()
    #: Seed of its inputs.
    seed: int = 1
    #: Number of the visit, from 1.
    visit: int = 0
    #: A planted slowdown of a visit, as timing.visit describes it.
    handicap: float = 0.0
    #: The inputs of the step to trace.
    step_inputs: dict[str, str] = {}
