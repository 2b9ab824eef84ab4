"""Records of measurements and the files that keep them. Imports only the ground and `kernels`."""

from analysis.metrics import METRICS, Metric
from workloads.records.files import (
    SOURCES,
    Loaded,
    NoRows,
    Refused,
    Writer,
    by_machine,
    decode,
    files_of,
    read,
    read_files,
    source_hash,
    study_folder,
)
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
