"""Records of measurements and the files that keep them. Imports only the ground and `kernels`."""

from analysis.metrics import METRICS, Metric
from workloads.records.reading import Loaded, by_machine, read, read_files
from workloads.records.result_lines import decode
from workloads.records.rows import (
    SAMPLES,
    SCHEMA,
    Fits,
    Gpu,
    Line,
    Machine,
    Measurement,
    Measurements,
    Method,
    Row,
    Run,
    Samples,
    Settings,
    distinct,
    finite,
    shortened,
)
from workloads.records.run_files import NoRows, files_of, study_folder
from workloads.records.schemas import Refused
from workloads.records.sources import SOURCES, source_hash
from workloads.records.writer import Writer
