"""Seconds of one row, on the clock of the source that it is read for."""

from analysis.predict.profile import CONSTANT_FILTERS, GRAPH, LIBRARIES, clock
from analysis.stats import quick_median
from kernels import registry
from workloads.records import Measurement, Samples


def whole_seconds(row: Measurement, source: str) -> float | None:
    """Median seconds of a row's call with its overhead; None unless the row is of that source: LIBRARIES or a variant of
    TensorFlow's rows. Passes over memory by our own kernels count as a library's, as all are limited by memory."""
    samples = _library_samples(row) if source == LIBRARIES else _tensorflow_samples(row, source)
    return quick_median(samples) if samples else None


def _library_samples(row: Measurement) -> Samples | None:
    """The samples of a row of a library, or of our own pass over memory, on the GPU's clock or, on a CPU, of calls that are
    waited for; None for other rows."""
    written_here = row.problem.op == "stream" and row.backend in registry.WRITTEN_HERE
    if row.backend not in registry.LIBRARIES and not written_here:
        return None
    on_device = row.on("device")
    if on_device or row.on_gpu:
        return on_device
    return row.on("host-latency")


def _tensorflow_samples(row: Measurement, source: str) -> Samples | None:
    """The samples of a row of TensorFlow in a variant (such as function or jit), on the clock that frameworks are read on; None
    for other rows."""
    if row.backend != "tensorflow" or row.variant != source:
        return None
    if source == CONSTANT_FILTERS and row.problem.op != "conv":
        return None
    return row.on(clock(row.device))


def is_in_graph(row: Measurement) -> bool:
    """Whether a row timed many operations in one TensorFlow graph, so that it gives the time of one without a call's overhead."""
    return row.label == f"tensorflow/{GRAPH}"
