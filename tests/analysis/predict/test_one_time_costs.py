"""What building and compiling a model takes."""

import math

import pytest

from analysis.predict import one_time_costs
from analysis.predict.step_kernels.step_kernel import StepKernel
from kernels.problems import Matmul, Stream


def test_products_of_whole_numbers_count_no_compilation():
    """2 x 3 x 4 of float32 are log2(24); a product of whole numbers is priced by its bytes, as a Stream is."""
    product = StepKernel(name="dense", part="matmul", problem=Matmul(2, 3, 4))
    by_bytes = StepKernel(name="whole numbers", part="matmul", problem=Stream("copy", 1 << 20))
    assert one_time_costs.compiled_work([product, by_bytes], "compiled") == pytest.approx(math.log2(24))
