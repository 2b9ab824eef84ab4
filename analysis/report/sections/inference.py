"""The section on inference: seconds a batch on both devices, and the batch from which the GPU wins."""

from collections.abc import Iterable

from analysis.blocks import Block, listed, tabled
from analysis.labels import time, width
from analysis.metrics import VALUES
from analysis.stats import faster
from analysis.table import Table
from analysis.text.sentences import CANT_TELL
from analysis.training import inference
from analysis.units import digits
from workloads.records import Measurements

HEADS = "model | batch | how | a call, CPU | ± | a call, GPU | ± | samples a second, CPU | samples a second, GPU | GPU over CPU"
_ENERGY = VALUES["joules_per_sample"]
JOULES = f"{_ENERGY.name}, CPU | {_ENERGY.name}, GPU"


def section(measurements: Measurements, sentences: Iterable[str] = ()) -> list[Block]:
    """The sentences, then a line a model, batch and way; nothing without inference rows."""
    found = inference.cases(measurements)
    if not found:
        return []
    rows = [
        line
        for case, own in found.items()
        for batch in sorted({m.problem.batch for m in own})
        for way in inference.CALL_FORMS
        if (line := _line(case, own, way, batch))
    ]
    return [*listed(sentences), *tabled(Table(f"{HEADS} | {JOULES}", rows, 3, JOULES))]


def _line(
    case: inference.InferenceCase, rows: Measurements, way: inference.CallForm, batch: int
) -> tuple[str, ...] | None:
    """The cells of a line: seconds and samples a second on both devices, the GPU's speedup; None where neither was measured."""
    both = cpu, gpu = [inference.side(rows, way, on_gpu, batch) for on_gpu in (False, True)]
    if not gpu and (way == inference.QUEUED or not cpu):  # a CPU queues nothing: that is its one call's time again
        return None
    took = [cell(one and one[1]) for one in both for cell in (time, width)]
    rates = [digits(batch / one[1].value) if one else "-" for one in both]
    joules = [digits(one[0].values[_ENERGY.key]) if one and _ENERGY.key in one[0].values else "-" for one in both]
    times = digits(cpu[1].value / gpu[1].value) if cpu and gpu else "-"
    if cpu and gpu and faster(cpu[1], gpu[1]) == "neither":
        times = CANT_TELL
    return (case.name, str(batch), way.words, *took, *rates, times, *joules)
