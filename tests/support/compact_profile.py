"""`make profile` writes the profiles that come with the package from reports/: the rows that predictions read, and no more."""

# Of products, convolutions and passes a prediction reads the median alone, of whole models their epochs and fits too.
# tests/analysis/explain/test_profiles.py holds the files to reports/.

import gzip
import pathlib
import sys

import msgspec
from msgspec.structs import replace

from analysis.explain.doubts import SHARES
from analysis.predict import profile
from analysis.stats import quick_median
from kernels import registry
from workloads import ROOT, records
from workloads.records import Measurement, Samples

MACHINES = ("nvidia-h200",)
BY_MEDIAN = ("matmul", "conv", "stream")
OF_MODELS = ("training", "inference", "feeding")


def is_read(m: Measurement) -> bool:
    """Whether predictions read the row."""
    op = m.problem.op
    if op == "training":  # a process's start counts, whatever its fit came to
        return True
    if not (m.ok and m.samples):
        return False
    if op in BY_MEDIAN:
        usual = m.backend in registry.LIBRARIES or m.backend == "tensorflow" or op == "stream"
        return usual and (m.mode, m.process) == ("resident", "warm")
    return op in ("inference", "feeding", "launch", "peak", "transfer")


def by_median(samples: Samples) -> Samples:
    """The samples as a single one, their median."""
    return replace(samples, seconds=(quick_median(samples),), block_sizes=(1,), stop_reason="")


def compact(m: Measurement) -> Measurement:
    """The row without what no prediction reads."""
    samples = tuple(replace(taken, is_by_process=False) for taken in m.samples)
    m = replace(m, check="", max_error=None, notes={}, samples=samples)
    if m.problem.op in OF_MODELS:
        seconds = {name: values for name, values in m.series.items() if name.partition(" ")[0].endswith("_s")}
        return replace(m, series=seconds)
    doubts = {name: m.values[name] for name in SHARES.values() if name in m.values}
    m = replace(m, phases_s={}, values=doubts, series={})
    if m.problem.op in BY_MEDIAN:
        return replace(m, samples=tuple(by_median(s) for s in m.samples), at="")
    return m


def lines(machine: str) -> bytes:
    """The lines of a stored profile, from the result files of the machine under reports/: its newest run, then the rows."""
    loaded = records.read(ROOT / "reports" / machine)
    kept = [loaded.last, *(compact(m) for m in loaded.measurements if is_read(m))]
    return b"".join(msgspec.json.encode(line) + b"\n" for line in kept)


def main() -> int:
    for machine in MACHINES:
        path: pathlib.Path = profile.stored(machine)
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(gzip.compress(lines(machine), mtime=0))
        print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1e3:.0f} kB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
