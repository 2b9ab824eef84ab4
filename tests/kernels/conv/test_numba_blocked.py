"""Our convolution in Numba: windows and phases by hand, and every direction exact on any shape, vector and number of
threads."""

import msgspec
import numpy as np
import pytest
from tile_code import need

from kernels import registry
from kernels.conv import _pixel_blocks as pixel_blocks
from kernels.conv import numba_blocked as conv_numba_blocked
from kernels.conv import numba_wgrad as conv_numba_wgrad
from kernels.problems import Conv
from kernels.reference import conv as reference_conv

WAYS = Conv.DIRECTIONS
AWKWARD = [
    Conv(3, 1, 1, 5, 7, 3, 3, pad="same"),
    Conv(2, 1, 1, 17, 33, 1, 1),
    Conv(2, 9, 8, 3, 5, 3, 3, 3, 4),
    Conv(2, 6, 11, 1, 4, 5, 2, 1, "same"),
    Conv(2, 13, 12, 3, 40, 3, 3, 2, "same"),
    Conv(1, 8, 8, 16, 35, 2, 3, 3),
    Conv(3, 5, 5, 4, 6, 1, 1, 3, 4),
    Conv(2, 7, 9, 6, 50, 1, 1, 2, 1),
    Conv(2, 9, 7, 6, 9, 3, 2, 2, "valid", 3),
    Conv(5, 8, 8, 20, 70, 3, 3, 1, "same", 2),
    Conv(3, 6, 6, 37, 16, 1, 1),
    Conv(2, 5, 6, 6, 9, 1, 1, groups=3),
    Conv(2, 20, 20, 64, 33, 5, 5, 2, 2),
]


#: How blocked convolutions in float32 are cut for tiles of 14 pixels.
TILE_14 = {"item_bytes": 4, "tile": 14, "most_pixels": 1568, "least_blocks": 1}


def directed(problem: Conv, way: str) -> Conv:
    return msgspec.structs.replace(problem, direction=way)


def exact(problem: Conv, run) -> None:
    """Twice the right answer, the second time over garbage."""
    for _ in range(2):
        out = run()
        assert reference_conv.check(problem, exact.inputs, out).passed, problem
        out.fill(np.nan)


def bound(problem: Conv, variant: str, vector: int = 0):
    exact.inputs = problem.inputs(3, True)
    if variant == "direct":
        return registry.find("conv/numba/direct").bind(problem, *exact.inputs)
    return conv_numba_blocked.bound(problem, *exact.inputs, vector_bytes=vector, constant_filters=variant == "held")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize(
    ("variant", "vector"), [("direct", 0), pytest.param("blocked", 64, marks=pytest.mark.slow), ("blocked", 32)]
)
def test_awkward_shapes_are_exact(variant, vector, count, way, threads):
    need(vector)
    threads(count)
    for problem in AWKWARD:
        exact(directed(problem, way), bound(directed(problem, way), variant, vector))


# Several chunks of channels, blocks of rows and of images, columns in several spans, pixels a page apart, tiles to the last row.
LARGE = [
    Conv(3, 14, 14, 200, 40, 3, 3, pad="same"),
    Conv(9, 7, 7, 70, 33, 3, 3, pad="same"),
    Conv(2, 60, 58, 8, 40, 3, 3),
    Conv(2, 7, 7, 1024, 20, 1, 1),
    Conv(2, 14, 14, 520, 1030, 1, 1, 2),
    Conv(130, 4, 4, 3, 8, 2, 2, 2),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("problem", LARGE, ids=str)
def test_blocks_and_chunks_come_together(problem, way, threads):
    threads(2)
    for variant in ("blocked", "held")[: 1 + (way != "wgrad")]:
        exact(directed(problem, way), bound(directed(problem, way), variant))


@pytest.mark.parametrize("vector", [64, 32])
def test_outputs_past_the_caches_are_exact(vector, monkeypatch):
    need(vector)
    monkeypatch.setattr(conv_numba_blocked, "_PAST_BYTES", 0)
    for problem in (Conv(3, 9, 9, 20, 48, 3, 3), Conv(5, 7, 7, 33, 80, 1, 1), Conv(1, 9, 9, 3, 16, 3, 3, 2)):
        exact(problem, bound(problem, "blocked", vector))


def test_nothing_beside_the_output_is_written():
    for way in WAYS:
        problem = directed(Conv(2, 7, 5, 5, 9, 3, 3, pad="same"), way)
        inputs = problem.inputs(3, True)
        room = np.full(int(np.prod(problem.out_shape)) + 200, 7, np.float32)
        compute = conv_numba_wgrad.gradient if way == "wgrad" else conv_numba_blocked.convolution
        for w in pixel_blocks.windows(problem):
            compute(w, *(array.reshape(-1) for array in inputs), room[100:-100])()
        assert reference_conv.check(problem, inputs, room[100:-100].reshape(problem.out_shape)).passed
        assert (room[:100] == 7).all() and (room[-100:] == 7).all()


def test_windows_are_scattered_and_cut_into_blocks():
    found = pixel_blocks.windows(Conv(1, 4, 4, 2, 3, 1, 1, 2, direction="dgrad"))
    assert [w.taps_down * w.taps_across for w in found] == [1, 0, 0, 0]
    (w,) = pixel_blocks.windows(Conv(8, 6, 6, 16, 32, 1, 1))
    assert (
        (flat := pixel_blocks.pixels_as_images(w))[:3] == (288, 1, 1)
        and flat.source_image == 16
        and flat.out_image == 32
    )
    (strided,) = pixel_blocks.windows(Conv(8, 6, 6, 16, 32, 1, 1, 2))
    w = pixel_blocks.unstrided(strided)
    assert (w.stride, w.height, w.width, w.source_row, w.source_pixel) == (1, 3, 3, 2 * 6 * 16, 32)
    assert pixel_blocks.pixels_as_images(w) == w  # a row of pixels does not end where the next begins
    (padded,) = pixel_blocks.windows(Conv(8, 6, 6, 16, 32, 1, 1, 1, 1))
    assert pixel_blocks.pixels_as_images(pixel_blocks.unstrided(padded)) == padded
    (w,) = pixel_blocks.windows(Conv(32, 7, 7, 64, 64, 3, 3, pad="same"))
    b = pixel_blocks.cut(w, 64, **TILE_14)
    # images of 49 pixels: an even number of them is a whole number of tiles of 14, a source has 9 x 9 pixels of 64 channels
    assert b.rows == 7 and b.images % 2 == 0 and b.copied and b.merged and b.size == b.images * 81 * 64 <= 65536
    (w,) = pixel_blocks.windows(Conv(32, 56, 56, 64, 64, 3, 3, pad="same"))
    b = pixel_blocks.cut(w, 64, **TILE_14)
    assert b.images == 1 and b.size == (b.rows + 2) * 58 * 64 <= 65536 and b.rows >= 8
    (w,) = pixel_blocks.windows(Conv(32, 14, 14, 1024, 256, 1, 1))
    assert pixel_blocks.cut(w, 512, **TILE_14).copied == 1  # pixels a page apart push each other out
    (w,) = pixel_blocks.windows(Conv(32, 14, 14, 512, 256, 1, 1))
    assert pixel_blocks.cut(w, 512, **TILE_14)[3:5] == (0, 1)


def test_a_gradient_of_the_weights_cannot_be_held():
    with pytest.raises(ValueError, match="none can be held"):
        bound(directed(AWKWARD[0], "wgrad"), "held")


@pytest.mark.parametrize(
    ("fields", "is_product"),
    [
        ({"c_in": 32}, True),
        ({"c_in": 33}, False),
        ({"c_in": 33, "c_out": 32, "direction": "dgrad"}, True),
        ({"c_in": 32, "c_out": 33, "direction": "dgrad"}, False),
        ({"c_in": 64, "c_out": 65, "direction": "wgrad"}, True),
        ({"c_in": 65, "c_out": 65, "direction": "wgrad"}, False),
        (
            {"c_in": 16, "c_out": 64, "direction": "wgrad"},
            False,
        ),  # 1,024 filters are one tile of 512 for each thread but one
        ({"c_in": 16, "c_out": 65, "direction": "wgrad"}, True),
        ({"groups": 2}, False),
        ({"stride": 2}, False),
        ({"pad": 1}, False),
        ({"r": 2}, False),
        ({"s": 2}, False),
    ],
)
def test_a_one_pixel_filter_is_a_product(monkeypatch, fields, is_product):
    monkeypatch.setattr(conv_numba_blocked.numba, "get_num_threads", lambda: 3)
    usual = {"n": 2, "h": 5, "w": 6, "c_in": 8, "c_out": 48, "r": 1, "s": 1}
    assert conv_numba_blocked._is_product(Conv(**(usual | fields))) is is_product
