"""Result files in a notebook: `load` gives a pandas table, `read` the records."""

from analysis.roofline.frame import frame, load
from workloads.records import Loaded, Machine, Measurement, Row, Run, Samples, Settings, by_machine, read

__all__ = (
    "Loaded",
    "Machine",
    "Measurement",
    "Row",
    "Run",
    "Samples",
    "Settings",
    "by_machine",
    "frame",
    "load",
    "read",
)
