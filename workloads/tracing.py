"""Traces warm steps of a fit with TensorFlow's own profiler, in turns with fits that are not traced, in a worker."""

import math
import pathlib
import tempfile
import time
from collections.abc import Callable

import msgspec

from workloads import trace, xspace
from workloads.handlers import Broken
from workloads.trace import Trace

FEWEST, MOST, SECONDS = 6, 60, 0.7  # steps and seconds of a traced fit
ROUNDS = 4  # of traced and untraced fits in turn; the quickest of each count: what disturbs only adds


def require(switches: dict[str, str]) -> None:
    """Raises ValueError for switches whose steps cannot be told in a trace."""
    if switches["trace"] == "on":
        if switches["keras_backend"] != "tensorflow":
            raise ValueError(f"traces are by TensorFlow's profiler; Keras runs on {switches['keras_backend']}")
        if switches["steps_per_execution"] != "1" or switches["strategy"] != "none":
            raise ValueError("a traced step is one call on one device: no steps_per_execution, no strategy")


def traced(fit: Callable[[int, int], object], batch: int, held: int, optimizer: str) -> Trace:
    """The trace of a Trainer's warm fit.

    Args:
        fit: fit(samples, epochs). batch, held: samples of a step, and those that there are. optimizer: its name in the graph.

    Raises: xspace.Untold where the trace has no steps.
    """

    def timed(steps: int) -> float:
        begin = time.perf_counter()
        fit(steps * batch, 1)
        return time.perf_counter() - begin

    most = held // batch
    few = 2
    if most < FEWEST:
        raise xspace.Untold(f"{most} steps are too few to trace: {FEWEST}")
    timed(FEWEST)
    each = max(1e-6, (timed(FEWEST) - timed(few)) / (FEWEST - few))
    steps = max(FEWEST, min(most, MOST, math.ceil(SECONDS / each)))
    short, long, written = [], [], []
    _written(lambda: timed(few))  # the profiler's own start, a GPU's tracing library among it
    for _ in range(ROUNDS):
        short.append(timed(few))
        long.append(timed(steps))
        written.append(_written(lambda: timed(steps)))
    _, quickest = min(written)
    step_s = max(1e-9, min(long) - min(short)) / (steps - few)
    return msgspec.structs.replace(xspace.steps_of(xspace.parsed(quickest), optimizer), step_s=step_s)


def also(fit: Callable, batch: int, held: int, optimizer: str) -> dict[str, dict]:
    """The trace as notes and values of a row, or why there is none."""
    try:
        made = traced(fit, batch, held, optimizer)
    except xspace.Untold as error:
        return {"notes": {trace.UNTOLD: str(error)}}
    except Exception as error:  # a profiler may raise anything; the training stands without its trace
        return {"notes": {trace.UNTOLD: f"{type(error).__name__}: {' '.join(str(error).split())[:240]}"}}
    return {
        "notes": {trace.NOTE: trace.kept(made)},
        "values": {"trace_step_s": made.step_s, "traced_step_s": made.traced_s},
    }


def _written(work: Callable[[], float]) -> tuple[float, bytes]:
    """(what some work gives, the trace of it as TensorFlow's profiler writes it).

    Raises: Broken where there is no trace.
    """
    import tensorflow

    options = tensorflow.profiler.experimental.ProfilerOptions(
        host_tracer_level=2, python_tracer_level=0, device_tracer_level=1
    )
    with tempfile.TemporaryDirectory() as folder:
        tensorflow.profiler.experimental.start(folder, options)
        try:
            given = work()
        finally:
            tensorflow.profiler.experimental.stop()
        files = sorted(pathlib.Path(folder).rglob("*.xplane.pb"))
        if not files:
            raise Broken("TensorFlow's profiler left no trace")
        return given, files[-1].read_bytes()
