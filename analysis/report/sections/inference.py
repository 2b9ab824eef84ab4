"""The section on inference: seconds a batch on both devices, and the batch from which the GPU wins."""

from collections.abc import Iterable

import msgspec

from analysis.blocks import Block, listed, tabled
from analysis.labels import time, width
from analysis.metrics import VALUES
from analysis.stats import Estimate, faster
from analysis.table import Table
from analysis.text.sentences import CANT_TELL
from analysis.training import inference
from analysis.units import digits
from workloads.records import Measurement, Measurements

HEADS = "model | batch | how | a call, CPU | ± | a call, GPU | ± | samples a second, CPU | samples a second, GPU | GPU over CPU"
_ENERGY = VALUES["joules_per_sample"]
JOULES = f"{_ENERGY.name}, CPU | {_ENERGY.name}, GPU"


def section(measurements: Measurements, sentences: Iterable[str] = ()) -> list[Block]:
    """The section: these sentences, then a table, a line a model, batch and form of a call; [] without rows of inference."""
    cases = inference.cases(measurements)
    if not cases:
        return []
    lines = []
    for case, rows in cases.items():
        for batch in sorted({m.problem.batch for m in rows}):
            for call in inference.CALL_FORMS:
                line = _line(case, rows, call, batch)
                if line is not None:
                    lines.append(line)
    table = Table(f"{HEADS} | {JOULES}", lines, left=3, optional=JOULES)
    return [*listed(sentences), *tabled(table)]


class _DeviceCells(msgspec.Struct, frozen=True, kw_only=True):
    """The cells of one device in a line; dashes where it was not measured."""

    #: Seconds a call, with their unit, and the interval's width.
    call: tuple[str, str]
    #: Samples a second.
    rate: str
    #: Joules a sample.
    joules: str


def _line(
    case: inference.InferenceCase, rows: Measurements, call: inference.CallForm, batch: int
) -> tuple[str, ...] | None:
    """The cells of a model at a batch, answered by one form of a call: seconds and samples a second on both devices, and the
    GPU's speedup; None where neither device was measured.
    """
    cpu = inference.fastest_calls(rows, call, gpu=False, batch=batch)
    gpu = inference.fastest_calls(rows, call, gpu=True, batch=batch)
    if gpu is None and cpu is None:
        return None
    if gpu is None and call == inference.QUEUED:  # no call of a CPU is queued: it is the line of a resident call again
        return None
    speedup = _speedup(cpu[1], gpu[1]) if cpu and gpu else "-"
    left = _device_cells(cpu, batch)
    right = _device_cells(gpu, batch)
    calls = (*left.call, *right.call)
    return (case.name, str(batch), call.words, *calls, left.rate, right.rate, speedup, left.joules, right.joules)


def _device_cells(side: tuple[Measurement, Estimate] | None, batch: int) -> _DeviceCells:
    """The cells of one device. side: its fastest row and the seconds of a call; None where it was not measured."""
    if side is None:
        return _DeviceCells(call=(time(None), width(None)), rate="-", joules="-")
    row, seconds = side
    joules = row.values.get(_ENERGY.key)
    return _DeviceCells(
        call=(time(seconds), width(seconds)),
        rate=digits(batch / seconds.value),
        joules="-" if joules is None else digits(joules),
    )


def _speedup(cpu: Estimate, gpu: Estimate) -> str:
    """The CPU's seconds over the GPU's; "can't tell" where their intervals overlap."""
    if faster(cpu, gpu) == "neither":
        return CANT_TELL
    return digits(cpu.value / gpu.value)
