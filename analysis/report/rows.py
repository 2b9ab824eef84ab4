"""Every row as the page embeds it: a line of words for the table, numbers for downloads, quantiles for its distribution."""

import math
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from analysis.bounds import Judged
from analysis.estimate import of
from analysis.report import cells, sections
from analysis.report.charts import rounded

if TYPE_CHECKING:
    from analysis.report.material import Material
    from workloads.records import Measurement, Samples

QUANTILES = 50  # of a row at most, over all its clocks
_FEWER, _MANY = 20, 1000  # of each row where there are many
_WORDS = ("kernel", "problem", "how", "math", "device", "status, flags", "check")  # columns that are not of numbers
_DEFAULTS = {"mode": "resident", "reuse": 1, "cache": "warm", "process": "warm"}


def embedded(runs: "list[Material]") -> dict:
    """heads, cells (the words of each row), records (its numbers) and the lines of the runs; rows in the order of the table,
    run by run, skipped ones last. numbers: which columns are of numbers; names: how many of the first ones tell a row from all
    others, and its time; labels: the runs by name, where there are several."""
    every = sum(len(of.rows) for of in runs)
    most = QUANTILES if every <= _MANY else _FEWER
    several = len(runs) > 1
    heads, cells_ = table(runs)
    return {
        "heads": list(heads),
        "numbers": [i for i, head in enumerate(heads) if head not in ("run", *_WORDS)],
        "names": heads.index("time") + 1,
        "labels": [of.label for of in runs] if several else [],
        "cells": cells_,
        "records": [
            ({"run": of.letter} if several else {}) | record(m, judged, most)
            for of in runs
            for m, judged in zip(of.ordered, of.judged, strict=True)
        ],
        "runs": [
            ({"run": of.letter} if several else {}) | msgspec.to_builtins(r) | {"command": cells.portable(r.command)}
            for of in runs
            for r in of.loaded.runs
        ],
    }


def table(runs: "list[Material]") -> tuple[tuple[str, ...], list[list[str]]]:
    """(the columns of the table of all numbers, the cells of every row): what was run, its numbers, how its answer was checked;
    of several runs the run first. Columns that say nothing anywhere are left out."""
    several = len(runs) > 1
    heads = (*(("run",) if several else ()), *sections.NUMBERS, "check")
    found = [
        [*([of.letter] if several else []), *map(str, row), m.check or "-"]
        for of in runs
        for m, row in zip(of.ordered, of.numbers, strict=True)
    ]
    shown = [
        i
        for i, head in enumerate(heads)
        if head not in sections.OPTIONAL or any(row[i] not in ("", "-") for row in found)
    ]
    return tuple(heads[i] for i in shown), [[row[i] for i in shown] for row in found]


def record(m: "Measurement", judged: Judged, most: int = QUANTILES) -> dict:
    """The row's numbers under the names of the result files and of analysis.frame; without what is empty or usual."""
    s = m.settings
    made = {"kernel": m.kernel, "problem": msgspec.to_builtins(m.problem), "device": s.device}
    made |= {"threads": s.threads} if s.threads else {}
    made |= {name: getattr(s, name) for name, usual in _DEFAULTS.items() if getattr(s, name) != usual}
    made |= {"switches": s.switches} if s.switches else {}
    made |= {"status": m.status} | ({"reason": m.reason} if m.reason else {})
    taken = [x for x in m.samples if x.seconds]
    if taken:
        made["clocks"] = {x.clock: _clock(x, max(2, most // len(taken))) for x in taken}
    if judged.fraction:
        made["roof_fraction"] = rounded(judged.fraction.value)
    flags = [*m.flags, *([judged.flag] if judged.flag else [])]
    rest = {
        "phases_s": _finite(m.phases_s),
        "values": _finite(m.values),
        "flags": flags,
        "check": m.check,
        "max_error": m.max_error,
        "notes": m.notes,
        "at": m.at,
    }
    return made | {name: value for name, value in rest.items() if value not in ({}, [], "", None)}


def _finite(numbers: dict[str, float]) -> dict[str, float]:
    return {name: rounded(value) for name, value in numbers.items() if math.isfinite(value)}


def _clock(samples: "Samples", most: int) -> dict:
    """Seconds a call: the median with its interval, how many samples, why they ended, quantiles from least to most."""
    middle, n = of(samples), len(samples.seconds)
    at = np.sort(samples.seconds)[np.unique(np.linspace(0, n - 1, min(most, n)).round().astype(int))]
    return {
        "median_s": rounded(middle.value),
        "low_s": rounded(middle.low),
        "high_s": rounded(middle.high),
        "samples": n,
        "calls": samples.calls,
        "stopped": samples.stop_reason,
        "quantiles_s": [float(f"{v:.4g}") for v in at],
    }
