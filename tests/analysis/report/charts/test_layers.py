"""Layers in a chart."""

import pytest
from fake_measurements import row
from fake_roofs import roof

from analysis.report import layers
from analysis.report.charts import layers as layer_charts
from kernels.problems import Conv


def test_a_layers_roof_is_its_fastest_library_rows():
    """100 GFLOP/s on the CPU, whatever a framework reaches; a device without a roof has none."""
    problem = Conv(4, 9, 7, 3, 5, 3, 2)
    roofs = [roof("compute", "float32", 100e9)]
    of = layers.Layers(op="conv", roofs=roofs)
    library = row("conv/numpy/im2col", problem, 1e-3, threads=1)
    framework = row("conv/tensorflow/function", problem, 1e-6)
    on_gpu = row("conv/cudnn/plan", problem, 1e-4, device="gpu:0")
    assert layer_charts._roofs_over([framework, library, on_gpu], of) == {"CPU": pytest.approx(100e9, rel=1e-3)}
    assert layer_charts._roofs_over([framework, on_gpu], of) == {}
