"""Layers on the page: tables of their rows and of whole steps."""

import fake_measurements as fake
import pytest
from fake_measurements import row
from result_files import write

from analysis import report
from analysis import table as cells
from analysis.blocks import markdown
from analysis.crossover import network_steps
from analysis.report import layers
from analysis.report.sections import layers as layer_section
from kernels.problems import Conv


@pytest.fixture(scope="module")
def rendered(tmp_path_factory):
    folder = tmp_path_factory.mktemp("layers")
    write(folder, fake.layers_run(batches=(1, 8, 128), maths=("float32", "tf32")))
    return report.render([folder], with_html=False)


def test_a_layers_table_omits_empty_columns(rendered):
    text = rendered.read_text()
    assert text.index("## Convolutions") < text.index("## Products of dense layers and other shapes")
    head = (
        "| layer | HxWxC:KxRxS | direction | precision | batch | multiples of | numpy | cudnn | cupy | tensorflow CPU | "
        "tensorflow GPU | fastest |"
    )
    found = text[text.index(head) :].split("\n\n")[0].splitlines()[2:]
    precisions = [line.split(" | ")[3] for line in found]
    assert precisions.count("float32") == 8 * 3 and set(precisions) == {"float32", "tf32"}
    expected = ["| a | c |", "| --- | ---: |"]
    assert cells.Table(("a", "b", "c"), [("x", "-", "1"), ("y", "", "2")], 2, ("b", "c")).md()[:2] == expected


def cells_of(lines: list[str], start: str) -> list[list[str]]:
    """The cells of the lines of a Markdown table that begin so."""
    rows = []
    for line in lines:
        if line.startswith(start):
            rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_each_side_is_a_column_of_steps():
    total = network_steps.Total(
        batch=8,
        math="float32",
        works=2,
        directions=("fprop", "wgrad"),
        flops=3_000_000_000,
        seconds={"CPU": 2e-3, "tensorflow CPU": 4e-3},
    )
    none = network_steps.Total(batch=16, math="float32", works=2, directions=("fprop",), flops=1, seconds={})
    of = layers.Layers(op="conv", totals=(("lenet", total), ("lenet", none)))
    lines = markdown(layer_section._totals_table(of))
    cells = cells_of(lines, "|")
    assert cells[0] == ["network", "precision", "batch", "directions", "convolutions", "GFLOP", "CPU", "tensorflow CPU"]
    assert cells[2:] == [["lenet", "float32", "8", "fprop wgrad", "2", "3.00", "2.00 ms", "4.00 ms"]]
    assert lines[0].startswith("All of them in one step")
    assert layer_section._totals_table(layers.Layers(op="conv", totals=(("lenet", none),))) == []


def test_cold_rows_stand_beside_warm_of_their_framework():
    problem = Conv(4, 9, 7, 3, 5, 3, 2)
    rows_of = [
        row("conv/numpy/im2col", problem, 1e-3, threads=1),
        row("conv/numpy/im2col", problem, 4e-3, threads=1, cache="cold"),
        row("conv/tensorflow/function", problem, 2e-3),
        row("conv/tensorflow/function", problem, 40e-3, cache="cold"),
    ]
    convolutions = layers.Layers(op="conv", rows=tuple(rows_of))
    tables = layer_section._framework_slowdowns(convolutions) + layer_section._cold_slowdowns(convolutions)
    lines = markdown(tables)
    cells = cells_of(lines, "| cpu")
    assert [(one[2], one[5]) for one in cells] == [
        ("tensorflow/function", "2.00"),
        ("numpy/im2col", "4.00"),
        ("tensorflow/function", "20.0"),
    ]
