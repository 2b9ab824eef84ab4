"""Layers timed by themselves: each layer's time and roof, from which batch the GPU wins, and their sum beside the step."""

import msgspec

from analysis import labels
from analysis.blocks import Block, Heading, Paragraph, listed, tabled, titled
from analysis.report.material import Material
from analysis.roofline.bounds import judge
from analysis.roofline.roofs import Roofs
from analysis.stats import NOTHING, Estimate, group_by, median_of
from analysis.table import Table
from analysis.text import crossings, layer_sums
from analysis.training import layer_sum
from analysis.units import percent, seconds
from workloads.records import Measurement

_DIRECTIONS = ("fprop", "wgrad", "dgrad", "backward")
_HEADS = "layer | kind | device | how | equal | batch | forward | dW | dX | both gradients | of its roof | bound by"
_ABOUT = (
    "A call of each layer, by the slope between two numbers of calls in one function. Op by op or compiled by XLA: what is "
    "faster stands here. The share is that of all directions together; the roof is that of the longest."
)


class LayerLine(msgspec.Struct, frozen=True, kw_only=True):
    """A layer at a batch on a device, compiled in one way."""

    #: A row of it, whichever direction.
    row: Measurement
    #: Direction -> seconds of a call.
    seconds: dict[str, Estimate]
    #: The share of its roofs that all directions reach together; None where no roof is known.
    share: float | None
    #: The kind and the name of the roof of its longest direction; "" where none is known.
    bound_by: str

    @property
    def step_s(self) -> float:
        """Seconds in a training step: forward, and both gradients at once where it has both."""
        every = {direction: one.value for direction, one in self.seconds.items()}
        gradients = every.get("backward", every.get("wgrad", 0.0) + every.get("dgrad", 0.0))
        return every.get("fprop", 0.0) + gradients


def section(run: Material) -> list[Block]:
    """The section on single layers of a model: what a call of each takes, from which batch the GPU wins it, and their sum
    beside the training step; [] without rows of layers.
    """
    rows = [m for m in run.rows if m.problem.op == "layer"]
    if not rows:
        return []
    blocks: list[Block] = []
    for model, model_rows in group_by(rows, lambda m: m.problem.model).items():
        lines = fastest_lines(model_rows, run.analysis.roofs)
        if lines:
            blocks += [Heading(text=model or "Layers alone"), *tabled(_table(lines))]
    if blocks:
        blocks.insert(0, Paragraph(text=_ABOUT))
    return [*blocks, *_crossovers(run), *_sums(run)]


def fastest_lines(rows: list[Measurement], roofs: Roofs) -> list[LayerLine]:
    """A line for each layer, batch, device and thread count that was timed. A layer may have been timed compiled by XLA and op
    by op: the line is of the one with more directions, and of the faster if both have as many.
    """
    places = group_by([m for m in rows if m.ok], lambda m: (m.problem.layer, m.problem.batch, m.device, m.threads))
    lines = []
    for place_rows in places.values():
        candidates = []
        for directions in group_by(place_rows, lambda m: m.keras.jit_compile).values():
            candidates.append(_line(directions, roofs))
        most = max(len(line.seconds) for line in candidates)
        complete = [line for line in candidates if len(line.seconds) == most]
        lines.append(min(complete, key=lambda line: line.step_s))
    return lines


def _line(rows: list[Measurement], roofs: Roofs) -> LayerLine:
    """The line of a layer. rows: one for each of its directions, all compiled in the same way."""
    by_direction: dict[str, Estimate] = {}
    bounds_s: list[float] = []
    bound_by = ""
    longest = NOTHING
    for m in rows:
        call = median_of(m.samples[0])
        by_direction[m.problem.direction] = call
        judged = judge(m, roofs, call)
        if judged.fraction is not None:
            bounds_s.append(judged.fraction.value * call.value)
        if judged.roof is not None and call.value > longest.value:
            longest = call
            bound_by = f"{judged.roof.kind} {judged.roof.name}"
    share = None
    if len(bounds_s) == len(by_direction):
        share = sum(bounds_s) / sum(call.value for call in by_direction.values())
    return LayerLine(row=rows[0], seconds=by_direction, share=share, bound_by=bound_by)


def _table(lines: list[LayerLine]) -> Table:
    """The table under _HEADS."""
    rows = []
    for line in lines:
        problem = line.row.problem
        calls = []
        for direction in _DIRECTIONS:
            call = line.seconds.get(direction)
            calls.append(seconds(call.value) if call else "-")
        how = "XLA" if line.row.keras.jit_compile == "on" else "op by op"
        rows.append(
            (
                problem.layer,
                problem.kind,
                labels.device(line.row.device),
                how,
                problem.count,
                problem.batch,
                *calls,
                percent(line.share) if line.share is not None else "-",
                line.bound_by or "-",
            )
        )
    return Table(_HEADS, rows, left=4, optional="dW | dX | both gradients | of its roof | bound by", last=True)


def _crossovers(run: Material) -> list[Block]:
    """A table: from which batch the GPU wins, a line a layer and direction."""
    rows = []
    for one in layer_sum.crossovers(run.rows, run.analysis.machine):
        batches = f"{one.answer.low_n}..{one.answer.high_n}"
        rows.append((one.model or "-", one.layer, one.direction, batches, crossings.verdict_words(one.answer)))
    heads = "model | layer | direction | batches | winner"
    return titled("From which batch the GPU wins a layer", Table(heads, rows, left=3, optional="model", last=True))


def _sums(run: Material) -> list[Block]:
    """For each model a comparison of the sum of its layers' times with its measured training step: a table and sentences; []
    without such rows.
    """
    blocks: list[Block] = []
    for one in layer_sum.sums(run.rows):
        head = layer_sums.head(one)
        blocks += [Paragraph(text=head), *tabled(layer_sums.table(one)), *listed(layer_sums.sentences(one))]
    return titled("Layers beside the training step", blocks)
