"""Chart of the input pipeline: seconds of a step by the bytes of its batch, with the fitted laws and CuPy's copies."""

from collections.abc import Iterable

import numpy as np

from analysis import labels
from analysis.report.charts.chart import Axis, Chart, Trace, View, line, marks, rounded
from analysis.stats import Estimate, group_by, median_of
from analysis.table import Table
from analysis.text import input_pipeline
from analysis.training import pipeline_costs
from analysis.training.pipeline_costs import PipelineCost
from analysis.units import percent, seconds, size
from kernels.problems import InputPipeline
from workloads.records import Measurement, Measurements

#: A row with its seconds of a step.
Row = tuple[Measurement, Estimate]
#: Points of a law's line.
_POINTS = 12


def pipeline_chart(measurements: Measurements) -> list[Chart]:
    """The chart of the input pipeline: seconds of a step with next to no arithmetic against the bytes of its batch, a view a
    device and type of samples; [] without fits. Each view also has the step whose data are on the device already.
    """
    laws = pipeline_costs.fits(measurements)
    if not laws:
        return []
    rows = pipeline_costs.timed_rows(measurements)
    views = []
    for device, dtype in dict.fromkeys((law.device, law.dtype) for law in laws):
        label = f"{labels.device(device)}, {dtype}"
        view = View(
            label=label,
            x=Axis(title=f"bytes of a {dtype} batch", unit="byte"),
            y=Axis(title=f"step with next to no arithmetic, {labels.device(device)}", unit="s"),
            traces=_traces(measurements, device, dtype),
            says=input_pipeline.view_sentence(laws, device, dtype),
        )
        views.append(view)
    cells = []
    for law in laws:
        cells += [_cells(law, row, step) for row, step in _rows_of(law, rows)]
    return [
        Chart(
            name="feeding",
            title=input_pipeline.CHART,
            views=views,
            numbers=Table("device | way | type | samples | bytes | measured | by the law | off by", cells, left=3),
            picture="feeding.svg",
            chooses="Device and type",
        )
    ]


def _traces(measurements: Measurements, device: str, dtype: str) -> list[Trace]:
    """The fits of a device and type with their measured points, and CuPy's copies of about as many bytes."""
    laws = pipeline_costs.fits(measurements)
    rows = pipeline_costs.timed_rows(measurements)
    traces: list[Trace] = []
    drawn = 0
    for law in laws:
        is_of_view = law.dtype == dtype or law.variant == InputPipeline.RESIDENT
        if law.device == device and is_of_view:
            traces += _law_traces(law, _rows_of(law, rows), drawn)
            drawn += 1
    least = min(law.low for law in laws)
    most = max(law.high for law in laws)
    near = []
    for row in pipeline_costs.copies(measurements, device):
        if least / 2 <= row.problem.nbytes <= 2 * most:
            near.append(row)
    return traces + _copies(near, drawn)


def _rows_of(law: PipelineCost, rows: Iterable[Row]) -> list[Row]:
    """The rows of a law's device, variant and type, by rising bytes."""
    key = (law.device, law.variant, law.dtype)
    same = [(row, step) for row, step in rows if (row.device, row.variant, row.problem.dtype) == key]
    return sorted(same, key=lambda pair: pair[0].problem.nbytes)


def _law_traces(law: PipelineCost, rows: list[Row], number: int) -> list[Trace]:
    """The measured steps of one kind of input pipeline as points, and its fit as a line, drawn for samples of the size of a
    CIFAR-10 image. number: which kind, from 0; it gives color and marker.
    """
    look = marks(number)
    points = []
    says = []
    for row, step in rows:
        problem = row.problem
        points.append((problem.nbytes, step))
        data = f"{problem.batch:,} x {problem.width:,} values, {size(problem.nbytes)}"
        says.append(f"{law.variant}, {data}: {seconds(step.value)}")
    measured = line(law.variant, points, look["color"], says, marker=look["marker"], line=False, hollow=True)
    sizes = np.geomspace(law.low, law.high, _POINTS).tolist()
    image = input_pipeline.image_bytes(law.dtype)
    times = [law.seconds(nbytes / image, nbytes).value for nbytes in sizes]
    words = [f"{law.variant}, {size(n)}: {seconds(time)} by the law" for n, time in zip(sizes, times, strict=True)]
    fitted = Trace(
        name=f"{law.variant}, law",
        x=[rounded(nbytes) for nbytes in sizes],
        y=[rounded(time) for time in times],
        color=look["color"],
        dash=look["dash"],
        says=words,
        legend=False,
    )
    return [measured, fitted]


def _copies(rows: Measurements, number: int) -> list[Trace]:
    """CuPy's copies by bytes, a line for each kind of host memory. number: how many looks are taken by other traces."""
    traces = []
    by_memory = group_by(rows, lambda row: row.problem.host_memory)
    for i, (memory, copies) in enumerate(by_memory.items()):
        copies = sorted(copies, key=lambda row: row.problem.nbytes)
        points = [(row.problem.nbytes, median_of(row.on("host-latency"))) for row in copies]
        says = [f"CuPy copies {size(n)} from {memory} memory: {seconds(time.value)}" for n, time in points]
        traces.append(line(f"CuPy, {memory}", points, says=says, **marks(number + i)))
    return traces


def _cells(law: PipelineCost, row: Measurement, step: Estimate) -> tuple[str, ...]:
    """The cells of one measured step in the chart's table: measured and fitted seconds, and the error of the fit."""
    problem = row.problem
    by_law = law.seconds(problem.batch, problem.nbytes).value
    off = abs(by_law / step.value - 1)
    return (
        labels.device(row.device),
        law.variant,
        problem.dtype,
        f"{problem.batch:,}",
        size(problem.nbytes),
        seconds(step.value),
        seconds(by_law),
        percent(round(off, 3)),
    )
