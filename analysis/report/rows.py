"""A row on the page: its cells in the table of all numbers, its numbers for downloads, quantiles for its distribution."""

import math
from typing import Any

import msgspec
import numpy as np

from analysis import labels
from analysis.metrics import COLUMNS
from analysis.report.charts.chart import rounded
from analysis.roofline.bounds import Judged
from analysis.stats import is_gpu, median_of
from analysis.table import named
from analysis.text import rows
from workloads.records import Measurement, Samples, visits

#: Quantiles of a row at most, over all its clocks.
QUANTILES = 50
#: The same on pages with more rows than MANY.
FEWER = 20
MANY = 1000
#: Columns without numbers.
WORDS = named("kernel | problem | how | math | device | status, flags | check")
#: Values of a row's settings that a record leaves out.
_DEFAULTS = {"mode": "resident", "cache": "warm", "process": "warm"}


def _names(*keys: str) -> list[str]:
    """The heads of columns of METRICS."""
    return [COLUMNS[key].name for key in keys]


_CLOCKS = [*_names("device_median_s", "throughput_median_s"), "contention"]
_RATES = [*_names("flops_per_s", "roof_fraction"), "status, flags"]
NUMBERS = [
    *("kernel", "problem", "how"),
    *_names("math", "device", "threads"),
    *_names("median_s", "noise"),
    *_CLOCKS,
    *_RATES,
]
# Columns that are left out where they say nothing (a dash or nothing in every row).
OPTIONAL = ["how", *_names("math", "threads"), *_CLOCKS, *_RATES]


def is_concurrent(m: Measurement) -> bool:
    """Whether several processes ran the same training at once in this row."""
    return m.experiment.companion == "fits"


def number_row(m: Measurement, judged: Judged) -> tuple[object, ...]:
    """The cells of a row under the heads NUMBERS. judged: the row against its roof. The time of a training that ran several
    times at once is a contention, not a throughput.
    """
    host = labels.on(m, "host-latency")
    throughput = labels.time(labels.on(m, "host-throughput"))
    no_time = labels.time(None)
    if is_concurrent(m):
        queued = no_time
        contention = throughput
    else:
        queued = throughput
        contention = no_time
    doubts = "; ".join(filter(None, (labels.status(m), *m.flags, judged.flag)))
    return (
        m.kernel,
        labels.problem(m.problem),
        rows.how(m),
        m.problem.math or "-",
        m.device,
        labels.threads(m),
        labels.time(host),
        labels.width(host),
        labels.time(labels.on(m, "device")),
        queued,
        contention,
        rows.rate(m),
        judged.share,
        doubts,
    )


def order(m: Measurement) -> tuple[object, ...]:
    """The key by which the rows of a page are sorted: operation, arithmetic and size, then device and kernel."""
    problem = m.problem
    settings = m.settings
    size = (problem.op, problem.math, getattr(problem, "n", 0), labels.shape(problem))
    kernel = (is_gpu(settings.device), m.kernel, settings.mode, settings.threads or 0)
    others = (problem.direction or problem.operation, getattr(problem, "nbytes", 0), getattr(problem, "count", 0))
    return *size, *kernel, others


def record(m: Measurement, judged: Judged, most: int = QUANTILES) -> dict[str, Any]:
    """The numbers of a row by name, for the page's scripts and for downloads. They are named as in result files and in
    analysis.roofline.frame; empty and default values are left out. most: quantiles of its samples at most, over all its clocks.
    """
    settings = m.settings
    unusual = {}
    for name, default in _DEFAULTS.items():
        value = getattr(settings, name)
        if value != default:
            unusual[name] = value
    numbers = {
        "kernel": m.kernel,
        "problem": msgspec.to_builtins(m.problem),
        "device": settings.device,
        "threads": settings.threads or None,
        **unusual,
        "switches": settings.switches,
        "status": m.status,
        "reason": m.reason,
        "clocks": _clocks(m, most),
        "roof_fraction": rounded(judged.fraction.value) if judged.fraction else None,
        "phases_s": _finite(m.phases_s),
        "values": _finite(m.values),
        "flags": [*m.flags, *filter(None, [judged.flag])],
        "check": m.check,
        "max_error": m.max_error,
        "notes": m.notes,
        "at": m.at,
    }
    return {name: value for name, value in numbers.items() if value not in ({}, [], "", None)}


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    """The numbers that are finite, rounded, as JSON knows no others."""
    return {name: rounded(value) for name, value in numbers.items() if math.isfinite(value)}


def _clocks(m: Measurement, most: int) -> dict[str, dict[str, Any]]:
    """Clock -> what it timed (see `_clock`), for the clocks with samples. They share `most` quantiles, at least two each."""
    timed = [samples for samples in m.samples if samples.seconds]
    return {samples.clock: _clock(samples, visits.span(m), max(2, most // len(timed))) for samples in timed}


def _clock(samples: Samples, span: str, most: int) -> dict[str, Any]:
    """The samples of one clock: median with its interval in seconds a call, their number, why sampling stopped, and up to `most`
    quantiles in rising order. span: words after the reason, on the time between visits.
    """
    middle = median_of(samples)
    n = len(samples.seconds)
    indices = np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(int))
    quantiles = np.sort(samples.seconds)[indices]
    return {
        "median_s": rounded(middle.value),
        "low_s": rounded(middle.low),
        "high_s": rounded(middle.high),
        "samples": n,
        "calls": samples.calls,
        "stopped": samples.stop_reason + span,
        "quantiles_s": [float(f"{value:.4g}") for value in quantiles],
    }
