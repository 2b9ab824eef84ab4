"""Records of measurements and the files that keep them. Imports only the ground and `kernels`."""

from workloads.records.files import SOURCES, Loaded, Refused, Writer, by_machine, decode, files_of, read, source_hash
from workloads.records.rows import (
    EPOCHS_OF,
    FITS,
    LATER,
    OF_PROCESS,
    SAMPLES,
    SCHEMA,
    SETUP,
    Gpu,
    Line,
    Machine,
    Measurement,
    Measurements,
    Row,
    Run,
    Samples,
    Settings,
    by_epochs,
    distinct,
    finite,
)
