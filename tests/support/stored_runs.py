"""Three small runs of real machines: their analyses, and how an estimate is compared with a known one.

`gpu`: products, peaks, copies and trainings of an H200 and its host. `cpu`: products of a machine without a GPU. `two-gpus`:
data-parallel trainings on two H200s. Rows of reports/, thinned; they stay as they are when reports/ changes.
"""

import pathlib

import pytest

from analysis.analysis import Analysis
from analysis.stats import Estimate
from workloads import records

FOLDER = pathlib.Path(__file__).parents[1] / "stored_runs"


def analysis(name: str) -> Analysis:
    """The analysis of the run `name`: gpu, cpu or two-gpus."""
    return Analysis.from_loaded(records.read(FOLDER / name))


def numbers(estimate: Estimate) -> tuple[float, float, float]:
    """(value, low, high) of an estimate."""
    return estimate.value, estimate.low, estimate.high


def near(value: float, low: float, high: float):
    """What an estimate's numbers are compared with: equal to four digits."""
    return pytest.approx((value, low, high), rel=5e-4)
