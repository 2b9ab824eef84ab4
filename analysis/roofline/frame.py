"""Measurements as a tidy table, a row each: what notebooks, exports and the report read."""

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from analysis.roofline.bounds import judge
from analysis.roofline.bounds import roofs as roofs_of
from analysis.stats import exact, middle, of, quick_seconds
from workloads.records import by_machine

if TYPE_CHECKING:
    import pandas

    from kernels.problems import Problem
    from workloads.records import Measurement

COLUMNS = (
    "dtype",
    "math",
    "mode",
    "reuse",
    "device",
    "threads",
    "cache",
    "switches",
    "median_s",
    "low_s",
    "high_s",
    "device_median_s",
    "throughput_median_s",
    "first_call_s",
    "flops",
    "bytes_moved",
    "flops_per_s",
    "bytes_per_s",
    "roof_fraction",
    "joules_per_sample",
    "noise",
    "status",
    "reason",
    "flags",
)
_WHOLE = ("reuse", "threads")  # counts of FLOPs and bytes can pass 2^63, so they are floats
_TEXT = ("dtype", "math", "mode", "device", "cache", "switches", "status", "reason", "flags")


def frame(measurements: "Iterable[Measurement]", roofs=None) -> "pandas.DataFrame":
    """A row a measurement: op backend variant, the problems' own fields (m n k; operation nbytes; ...), then COLUMNS.

    `median_s low_s high_s noise` are host latency, `throughput_median_s` host throughput (k queued calls).
    `flops_per_s`, `bytes_per_s` and `roof_fraction` use the device clock on a GPU where there is one, else host
    latency. `switches` are a framework's, name=text. Whole numbers are Int64, so absent is <NA>, not 0; flags are joined
    by a space, "above-roof" among them.
    """
    import pandas

    measurements = list(measurements)
    roofs = roofs_of(measurements) if roofs is None else tuple(roofs)
    own = list(dict.fromkeys(f for m in measurements for f in problem_fields(m.problem)))
    of_device = {d: tuple(r for r in roofs if r.device == d) for d in {m.device for m in measurements}}
    records = [_record(m, of_device[m.device]) for m in measurements]
    table = pandas.DataFrame(records, columns=["op", "backend", "variant", *own, *COLUMNS])
    words = {f for f in own if any(isinstance(r.get(f), str) for r in records)}
    types = {c: "Int64" for c in (*own, *_WHOLE) if c not in words}
    types |= {c: "float64" for c in COLUMNS if c not in (*_WHOLE, *_TEXT)}
    return table.astype(types)


def load(*runs: str | os.PathLike) -> "pandas.DataFrame":
    """Result files, run folders or machine folders as one DataFrame; with several machines, `machine` comes first.

    Raises: FileNotFoundError when a run has no result file.
    """
    import pandas

    tables = {
        key: frame(part.measurements, roofs_of(part.every, part.runs[-1].machine if part.runs else None))
        for key, part in by_machine(*runs).items()
    }
    if len(tables) == 1:
        return next(iter(tables.values()))
    return pandas.concat(tables, names=["machine"]).reset_index("machine").reset_index(drop=True)


def problem_fields(problem: "Problem") -> list[str]:
    """The problem's own fields, without those that every row has a column for."""
    return [f for f in problem.__struct_fields__ if f not in COLUMNS]


def _record(m: "Measurement", roofs) -> dict:
    p, s = m.problem, m.settings
    flops, moved = p.flops, p.bytes_moved
    host, best = _median(m, "host-latency"), quick_seconds(m)
    judged = judge(m, roofs, exact(best) if best else None)
    if judged.flag:  # only the whole interval tells it for certain
        judged = judge(m, roofs)
    return {
        "op": p.op,
        "backend": m.backend,
        "variant": m.variant,
        **{f: getattr(p, f) for f in problem_fields(p)},
        "dtype": p.dtype or None,
        "math": p.math or None,
        "mode": s.mode,
        "reuse": s.reuse,
        "device": s.device,
        "threads": s.threads,
        "cache": s.cache,
        "switches": " ".join(f"{name}={text}" for name, text in sorted(s.switches.items())),
        "median_s": host and host.value,
        "low_s": host and host.low,
        "high_s": host and host.high,
        "device_median_s": _middle(m, "device"),
        "throughput_median_s": _middle(m, "host-throughput"),
        "first_call_s": m.phases_s.get("first_call"),
        "flops": flops,
        "bytes_moved": moved,
        "flops_per_s": flops / best if flops and best else None,
        "bytes_per_s": moved / best if moved and best else None,
        "roof_fraction": _value(judged.fraction),
        "joules_per_sample": m.values.get("joules_per_sample"),
        "noise": host and host.noise,
        "status": m.status,
        "reason": m.reason,
        "flags": " ".join((*m.flags, judged.flag) if judged.flag else m.flags),
    }


def _median(m: "Measurement", clock: str):
    samples = m.on(clock)
    return of(samples) if samples and samples.seconds else None


def _middle(m: "Measurement", clock: str):
    samples = m.on(clock)
    return middle(samples) if samples and samples.seconds else None


def _value(estimate):
    return estimate.value if estimate else None
