"""A row on the page: its cells in the table of all numbers, its numbers for downloads, quantiles for its distribution."""

import math

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

QUANTILES = 50  # of a row at most, over all its clocks
FEWER, MANY = 20, 1000  # quantiles of each row on pages with more rows than MANY
WORDS = named("kernel | problem | how | math | device | status, flags | check")  # columns without numbers
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


def number_row(m: Measurement, judged: Judged) -> tuple:
    """The cells of a row in NUMBERS."""
    host, queued, of_all = labels.on(m, "host-latency"), labels.on(m, "host-throughput"), None
    if is_concurrent(m):
        queued, of_all = None, queued
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
        *(labels.time(e) for e in (queued, of_all)),
        rows.rate(m),
        judged.share,
        doubts,
    )


def order(m: Measurement) -> tuple:
    p, s = m.problem, m.settings
    which = p.op, p.math, getattr(p, "n", 0), labels.shape(p)
    without_n = p.direction or p.operation, getattr(p, "nbytes", 0), getattr(p, "count", 0)
    return *which, is_gpu(s.device), m.kernel, s.mode, s.threads or 0, without_n


def record(m: Measurement, judged: Judged, most: int = QUANTILES) -> dict:
    """The row's numbers, named as in result files and analysis.roofline.frame; empty and default values are left out."""
    s, taken = m.settings, [x for x in m.samples if x.seconds]
    made = {
        "kernel": m.kernel,
        "problem": msgspec.to_builtins(m.problem),
        "device": s.device,
        "threads": s.threads or None,
        **{name: getattr(s, name) for name, usual in _DEFAULTS.items() if getattr(s, name) != usual},
        "switches": s.switches,
        "status": m.status,
        "reason": m.reason,
        "clocks": {x.clock: _clock(x, visits.span(m), max(2, most // len(taken))) for x in taken},
        "roof_fraction": rounded(judged.fraction.value) if judged.fraction else None,
        "phases_s": _finite(m.phases_s),
        "values": _finite(m.values),
        "flags": [*m.flags, *filter(None, [judged.flag])],
        "check": m.check,
        "max_error": m.max_error,
        "notes": m.notes,
        "at": m.at,
    }
    return {name: value for name, value in made.items() if value not in ({}, [], "", None)}


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    return {name: rounded(value) for name, value in numbers.items() if math.isfinite(value)}


def _clock(samples: "Samples", span: str, most: int) -> dict:
    """Seconds a call on one clock: median with its interval, number of samples, why sampling stopped, rising quantiles."""
    middle, n = median_of(samples), len(samples.seconds)
    at = np.sort(samples.seconds)[np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(int))]
    return {
        "median_s": rounded(middle.value),
        "low_s": rounded(middle.low),
        "high_s": rounded(middle.high),
        "samples": n,
        "calls": samples.calls,
        "stopped": samples.stop_reason + span,
        "quantiles_s": [float(f"{v:.4g}") for v in at],
    }
