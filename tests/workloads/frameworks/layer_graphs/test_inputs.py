"""Shapes of a layer's inputs as people write them."""

import pytest

from workloads import options
from workloads.frameworks.layer_graphs import inputs


@pytest.mark.parametrize(
    ("text", "sides", "dtype"),
    [("32,32,3", (32, 32, 3), "float32"), ("32x32x3", (32, 32, 3), "float32"), ("200:int32", (200,), "int32")],
)
def test_shapes_of_inputs(text, sides, dtype):
    shape = inputs.parsed(text)
    assert (shape.sides, shape.dtype) == (sides, dtype)


@pytest.mark.parametrize("text", ["32;32", "a", "32,,3", "0,3", "3:float31"])
def test_what_is_no_shape_is_refused(text):
    with pytest.raises(options.Usage):
        inputs.parsed(text)
