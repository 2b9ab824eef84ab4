"""Chart of the input pipeline: seconds of a step by the bytes of its batch, with the fitted laws and CuPy's copies."""

from collections.abc import Iterable

import numpy as np

from analysis import labels
from analysis.report.charts.chart import Axis, Chart, Trace, View, line, marks, rounded
from analysis.stats import Estimate, group_by, median_of
from analysis.table import Table
from analysis.text import input_pipeline
from analysis.training import pipeline_laws
from analysis.training.pipeline_laws import Law
from analysis.units import percent, seconds, size
from kernels.problems import InputPipeline
from workloads.records import Measurement, Measurements

Row = tuple[Measurement, Estimate]  # with its step
_LINE = 12  # points of a law's line


def feeding_chart(rows: Measurements) -> list[Chart]:
    """Seconds of a step against the bytes of its batch, a view a device and type; [] without laws. Each view also has data
    already resident on the device."""
    fitted, found = pipeline_laws.laws(rows), pipeline_laws.rows(rows)
    views = []
    for device, dtype in dict.fromkeys((law.device, law.dtype) for law in fitted):
        traces: list[Trace] = []
        for law in fitted:
            is_of_view = law.dtype == dtype or law.variant == InputPipeline.RESIDENT
            if law.device != device or not is_of_view:
                continue
            traces += _way(law, _own(law, found), len(traces) // 2)
        ends = min(x.low for x in fitted), max(x.high for x in fitted)
        traces += _copies(rows, device, len(traces) // 2, *ends)
        axes = (
            Axis(title=f"bytes of a {dtype} batch", unit="byte"),
            Axis(title=f"step with next to no arithmetic, {labels.device(device)}", unit="s"),
        )
        views.append(
            View(
                label=f"{labels.device(device)}, {dtype}",
                x=axes[0],
                y=axes[1],
                traces=traces,
                says=input_pipeline.view_sentence(fitted, device, dtype),
            )
        )
    numbers = [_row(law, *row) for law in fitted for row in _own(law, found)]
    table = Table("device | way | type | samples | bytes | measured | by the law | off by", numbers, 3)
    return (
        [
            Chart(
                name="feeding",
                title=input_pipeline.CHART,
                views=views,
                numbers=table,
                picture="feeding.svg",
                chooses="Device and type",
            )
        ]
        if views
        else []
    )


def _own(law: Law, found: Iterable[Row]) -> list[Row]:
    """The rows of a law's device, way and type, by rising bytes."""
    own = [(m, e) for m, e in found if (m.device, m.variant, m.problem.dtype) == (law.device, law.variant, law.dtype)]
    return sorted(own, key=lambda row: row[0].problem.nbytes)


def _way(law: Law, own: list[Row], number: int) -> list[Trace]:
    """The points of a way, and its law for samples of CIFAR-10's size."""
    color, marker, dash = marks(number).values()
    says = [
        f"{law.variant}, {p.batch:,} x {p.width:,} values, {size(p.nbytes)}: {seconds(e.value)}"
        for p, e in ((m.problem, e) for m, e in own)
    ]
    sizes = np.geomspace(law.low, law.high, _LINE).tolist()
    by_law = [law.seconds(n / input_pipeline.image_bytes(law.dtype), n).value for n in sizes]
    told = [f"{law.variant}, {size(n)}: {seconds(t)} by the law" for n, t in zip(sizes, by_law, strict=True)]
    seen = [(m.problem.nbytes, e) for m, e in own]
    measured = line(law.variant, seen, color, says, marker=marker, line=False, hollow=True)
    xs, ys = list(map(rounded, sizes)), list(map(rounded, by_law))
    return [measured, Trace(name=f"{law.variant}, law", x=xs, y=ys, color=color, dash=dash, says=told, legend=False)]


def _copies(rows: Measurements, device: str, number: int, low: int, high: int) -> list[Trace]:
    """CuPy's copies of batches of `low` to `high` bytes, a line a host memory."""
    made, near = [], [m for m in pipeline_laws.copies(rows, device) if low / 2 <= m.problem.nbytes <= 2 * high]
    for i, (memory, own) in enumerate(group_by(near, lambda m: m.problem.host_memory).items()):
        points = [
            (m.problem.nbytes, median_of(m.on("host-latency"))) for m in sorted(own, key=lambda m: m.problem.nbytes)
        ]
        says = [f"CuPy copies {size(n)} from {memory} memory: {seconds(e.value)}" for n, e in points]
        made.append(line(f"CuPy, {memory}", points, says=says, **marks(number + i)))
    return made


def _row(law: Law, m: Measurement, seen: Estimate) -> tuple:
    p = m.problem
    by_law = law.seconds(p.batch, p.nbytes).value
    off = abs(by_law / seen.value - 1)
    way = labels.device(m.device), law.variant, p.dtype, f"{p.batch:,}", size(p.nbytes)
    return *way, seconds(seen.value), seconds(by_law), percent(round(off, 3))
