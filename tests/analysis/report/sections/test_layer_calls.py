"""Layers timed by themselves on the page: a line a layer, its share of the roofs, and the sum of a model beside its step."""

import pytest
from fake_measurements import by_later_epochs, page_of, row

from analysis.blocks import TableBlock
from analysis.report import body
from analysis.report.sections import layer_calls
from analysis.roofline.roofs import Roof
from analysis.stats import exact
from kernels.problems import LayerCall, Training

ROOFS = [Roof(device="cpu", kind="compute", name="float32", rate=exact(1e9), source="a row")]  # FLOP/s


def call(direction: str, seconds: float, *, jit: str = "off", batch: int = 4, device: str = "cpu", flops: int = 10**6):
    """A measured direction of a dense layer of lenet."""
    problem = LayerCall(
        layer="hidden", kind="Dense", direction=direction, batch=batch, input="8", model="lenet", flops=flops
    )
    return row("layer/keras/chain", problem, seconds, switches={"jit_compile": jit}, device=device)


def test_the_faster_call_with_all_directions_is_shown():
    """Op by op 2 + 4 ms, by XLA 1 + 2 ms; a third batch has only a forward pass by XLA, which is no match for both."""
    rows = [
        call("fprop", 2e-3),
        call("backward", 4e-3),
        call("fprop", 1e-3, jit="on"),
        call("backward", 2e-3, jit="on"),
    ]
    rows += [call("fprop", 2e-3, batch=8), call("wgrad", 1e-3, batch=8), call("fprop", 1e-4, batch=8, jit="on")]
    first, second = layer_calls.fastest_lines(rows, ROOFS)
    assert (first.row.keras.jit_compile, first.step_s) == ("on", pytest.approx(3e-3))
    assert (second.row.keras.jit_compile, second.step_s) == ("off", pytest.approx(3e-3))


def test_the_share_sums_directions_under_the_longest_roof():
    """1 ms and 2 ms at least, of 2 and 4 ms: half."""
    (line,) = layer_calls.fastest_lines([call("fprop", 2e-3), call("backward", 4e-3, flops=2 * 10**6)], ROOFS)
    assert (line.share, line.bound_by) == (pytest.approx(0.5), "compute float32")
    (unknown,) = layer_calls.fastest_lines([call("fprop", 2e-3, flops=0)], ROOFS)
    assert (unknown.share, unknown.bound_by) == (None, "")


def test_a_page_has_layers_crossovers_and_the_sum():
    """Two batches on both devices: the CPU takes 1 ms a sample, the GPU 4 ms; the step is that of batch 4."""
    training = row("training/keras/fit", Training("lenet", 4, 40), 13e-3, values={"jit_compile": 0.0})
    rows = [by_later_epochs(training, (0.0, 0.0, 13e-3))]
    for batch in (2, 8, 4):
        rows += [call("fprop", batch * 1e-3, batch=batch), call("fprop", 4e-3, batch=batch, device="gpu:0")]
    (section,) = (section for section in body.SECTIONS if section.name == "layer-calls")
    tables = [block.table for block in body.blocks(section, page_of(rows)) if isinstance(block, TableBlock)]
    layers, winners, parts = tables
    assert [(cells[0], cells[2], cells[layers.heads.index("batch")]) for cells in layers.rows] == [
        ("hidden", device, batch) for batch in (2, 8, 4) for device in ("CPU", "GPU")
    ]
    assert [cells[:3] for cells in winners.rows] == [["lenet", "hidden", "fprop"]]
    assert (parts.rows[0][0], parts.rows[0][-1]) == ("hidden", "31 %")  # 4 ms of 13


def test_no_rows_of_layers_no_section():
    assert layer_calls.section(page_of([row("training/keras/fit", Training("lenet", 4, 40), 1e-2)])) == []
