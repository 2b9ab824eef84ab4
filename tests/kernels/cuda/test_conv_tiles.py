"""Tiles of convolutions: their stages by hand."""

import pytest

from kernels.cuda import conv_tiles
from kernels.problems import Conv


def test_stages_of_convolutions_by_the_models():
    warps = conv_tiles.ConvWarps(
        tile_m=128, tile_n=64, warp_m=64, warp_n=32, deep=16, thread_m=8, thread_n=8, stages=4, blocks=3
    )
    tensors = conv_tiles.ConvTensors(tile_m=128, tile_n=64, warp_m=64, warp_n=32, deep=64, stages=3, blocks=2)
    groups = conv_tiles.ConvGroups(consumers=2, rows=64, columns=192, stages=4, staged=2, blocks=1)
    assert warps.stage(0) == pytest.approx(1024 * (1 + 16 / 128 + 16 / 64))
    assert tensors.stage(0) == pytest.approx(512 * (0.28 + 36 / 128 + 36 / 64))
    assert [groups.stage(wgrad) for wgrad in (0, 1)] == pytest.approx([153.6 + 256 + 192, 153.6 + 512 + 192])
    assert (groups.threads, warps.unit, tensors.unit) == (288, (8, 8), (64, 32))


def test_a_convolution_as_a_product_of_gathered_pixels():
    """9 x 7 pixels under 3 x 2 taps, stride 2 and a ring of zeros: 5 x 4 results."""
    problem = Conv(2, 9, 7, 3, 5, 3, 2, stride=2, pad=1)
    assert tuple(conv_tiles.gather(problem)) == (9, 7, 3, 2, 5, 4, 5, 3, 2, 2, 1, 1, 5, 4, 1, 0, 0)
    assert conv_tiles.gather(problem, c=8).c == 8
    assert (conv_tiles.gather(problem).pixels, conv_tiles.gather(problem).taps) == (40, 6)
    products = [phase.gather for phase in conv_tiles.phases(problem)]
    assert [(of.p, of.q, of.r, of.s, of.to_y, of.to_x) for of in products] == [
        (5, 4, 1, 1, 0, 0),
        (5, 3, 1, 1, 0, 1),
        (4, 4, 2, 1, 1, 0),
        (4, 3, 2, 1, 1, 1),
    ]
