"""Seconds of one row, on the clock of the source that it is read for."""

from analysis.predict.profile import CONSTANT_FILTERS, GRAPH, LIBRARIES, clock
from analysis.stats import quick_median
from kernels import registry
from workloads.records import Measurement, Samples


def whole_seconds(row: Measurement, source: str) -> float | None:
    """Seconds of a row with the call around it; None if the row is of another source. Passes of this project count as a
    library's, as all are bound by memory."""
    samples = _library_samples(row) if source == LIBRARIES else _tensorflow_samples(row, source)
    return quick_median(samples) if samples else None


def _library_samples(row: Measurement) -> Samples | None:
    written_here = row.problem.op == "stream" and row.backend in registry.WRITTEN_HERE
    if row.backend not in registry.LIBRARIES and not written_here:
        return None
    on_device = row.on("device")
    if on_device or row.on_gpu:
        return on_device
    return row.on("host-latency")


def _tensorflow_samples(row: Measurement, source: str) -> Samples | None:
    if row.backend != "tensorflow" or row.variant != source:
        return None
    if source == CONSTANT_FILTERS and row.problem.op != "conv":
        return None
    return row.on(clock(row.device))


def is_in_graph(row: Measurement) -> bool:
    """Whether a row gives an operation's time directly as in a step that is not compiled and whose weights change."""
    return row.label == f"tensorflow/{GRAPH}"
