"""Measurements as a tidy table, a row each: what notebooks, exports and the report read."""

import os
from typing import TYPE_CHECKING

import msgspec

from analysis.labels import on
from analysis.metrics import COLUMNS
from analysis.roofline.bounds import quick_judge
from analysis.roofline.roofs import Roof, Roofs, roofs_of
from analysis.stats import group_by, quick_median, quick_seconds
from kernels.problems import Problem
from workloads.records import Measurement, Measurements, by_machine

if TYPE_CHECKING:
    import pandas

# Column `reuse`: a row's every call makes its own copies. Times of copies that serve several calls are derived from such rows.
USES_OF_A_COPY = 1


def frame(measurements: Measurements, roofs: Roofs | None = None) -> "pandas.DataFrame":
    """A row for each measurement: op, backend, variant, the fields of its problem (m n k; operation nbytes; ...), then the
    columns of metrics.COLUMNS. roofs: the limits of the devices; None: those that these measurements show.

    Whole numbers are Int64, so an absent one is <NA>, not 0. Counts of FLOPs and bytes can pass 2^63, so they are floats.
    """
    import pandas

    roofs = roofs_of(measurements) if roofs is None else roofs
    problem_columns: dict[str, None] = {}  # a set in the order of the measurements
    for m in measurements:
        problem_columns.update(dict.fromkeys(problem_fields(m.problem)))
    roofs_by_device: dict[str, list[Roof]] = group_by(roofs, lambda roof: roof.device)
    records = [_record(m, roofs_by_device.get(m.device, [])) for m in measurements]
    table = pandas.DataFrame(records, columns=["op", "backend", "variant", *problem_columns, *COLUMNS])
    types = {}
    for name in problem_columns:
        if not any(isinstance(record.get(name), str) for record in records):
            types[name] = "Int64"
    for column in COLUMNS.values():
        if column.unit != "text":
            types[column.key] = "Int64" if column.unit == "count" else "float64"
    return table.astype(types)


def load(*runs: str | os.PathLike) -> "pandas.DataFrame":
    """Result files, run folders or machine folders as one DataFrame, a row for each measurement. If they are of several machines,
    the column `machine` comes first.

    Raises: FileNotFoundError when a run has no result file.
    """
    import pandas

    parts = by_machine(*runs)
    tables = {key: frame(part.measurements, roofs_of(part.every, part.machine)) for key, part in parts.items()}
    if len(tables) == 1:
        return next(iter(tables.values()))
    return pandas.concat(tables, names=["machine"]).reset_index("machine").reset_index(drop=True)


def problem_fields(problem: Problem) -> list[str]:
    """The names of the problem's fields that are set and have no column that every row has."""
    return [f for f in problem.__struct_fields__ if f not in COLUMNS and getattr(problem, f) is not msgspec.UNSET]


def _record(m: Measurement, roofs: Roofs) -> dict[str, object]:
    """Column -> value of a measurement's row in the table. roofs: the limits of its device."""
    p, s = m.problem, m.settings
    flops, moved = p.flops, p.bytes_moved
    host_s = on(m, "host-latency")
    call_s = quick_seconds(m)
    judged = quick_judge(m, roofs)
    flags = [*m.flags, judged.flag] if judged.flag else m.flags
    flops_per_s = flops / call_s if flops and call_s else None
    bytes_per_s = moved / call_s if moved and call_s else None
    switches = [f"{name}={text}" for name, text in sorted(s.switches.items())]
    return {
        "op": p.op,
        "backend": m.backend,
        "variant": m.variant,
        **{f: getattr(p, f) for f in problem_fields(p)},
        "dtype": p.dtype or None,
        "math": p.math or None,
        "mode": s.mode,
        "reuse": USES_OF_A_COPY,
        "device": s.device,
        "threads": s.threads,
        "cache": s.cache,
        "switches": " ".join(switches),
        "median_s": host_s and host_s.value,
        "low_s": host_s and host_s.low,
        "high_s": host_s and host_s.high,
        "device_median_s": _median_s(m, "device"),
        "throughput_median_s": _median_s(m, "host-throughput"),
        "first_call_s": m.phases_s.get("first_call"),
        "flops": flops,
        "bytes_moved": moved,
        "flops_per_s": flops_per_s,
        "bytes_per_s": bytes_per_s,
        "roof_fraction": judged.fraction and judged.fraction.value,
        "joules_per_sample": m.values.get("joules_per_sample"),
        "noise": host_s and host_s.noise,
        "status": m.status,
        "reason": m.reason,
        "flags": " ".join(flags),
    }


def _median_s(m: Measurement, clock: str) -> float | None:
    """Median seconds on a clock; None without samples of it."""
    samples = m.on(clock)
    return quick_median(samples) if samples and samples.seconds else None
