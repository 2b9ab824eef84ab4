"""Our convolution for Hopper without a GPU: the walk of the copy engine, its maps, filters as it wants them, every wait's end."""

import itertools

import cuda_on_cpu
import msgspec
import numpy as np
import pytest
from cuda_on_cpu import Encoder
from test_conv_cuda import PROBLEMS

from kernels.cuda import conv_tiles, loader
from kernels.problems import Conv


@pytest.fixture
def wgmma(monkeypatch):
    return cuda_on_cpu.bindings(monkeypatch, multiprocessors=16)("_wgmma")


def walked(of: conv_tiles.Gather, box, pixels: int):
    """(image, row, column) of the pixels that the copy engine takes, from where the product's first one lies: along the row while
    the box has more, then in the next row, then in the next image (PTX ISA, im2col mode)."""
    (left, top), (right, bottom) = box
    x, y, n = -of.left, -of.top, 0
    for _ in range(pixels):
        yield n, y, x
        x += of.step
        if x > of.w - 1 + right:
            x, y = left, y + of.step
        if y > of.h - 1 + bottom:
            y, n = top, n + 1


@pytest.mark.parametrize("problem", PROBLEMS, ids=str)
def test_the_copy_engine_walks_the_pixels_of_the_product(problem, wgmma):
    dgrad = msgspec.structs.replace(problem, direction="dgrad")
    for of in (conv_tiles.gather(problem), *(phase.of for phase in conv_tiles.phases(dgrad))):
        pixels = itertools.product(range(of.n), range(of.p), range(of.q))
        wanted = [(n, y * of.step - of.top, x * of.step - of.left) for n, y, x in pixels]
        assert list(walked(of, wgmma.box(of), of.pixels)) == wanted


def test_a_map_of_images_counts_channels_first_and_then_columns(wgmma, monkeypatch):
    driver = Encoder()
    monkeypatch.setattr(loader, "_driver", lambda: driver)
    of = conv_tiles.gather(Conv(2, 12, 10, 16, 8, 5, 3, 2, 1))  # 5 x 4 pixels
    made = wgmma.im2col_map(0x7000, of, 128)
    # 16-bit items, c w h n and their pitches in bytes, corners along w and h, 64 channels of 128 pixels every 2
    expected = (1, 4, 0x7000, [16, 10, 12, 2], [32, 320, 3840], [-1, -1], [-2, -4], 64, 128, [1, 2, 2, 1], (0, 3, 3, 0))
    assert driver.asked == expected
    assert made.size == 1 and made.nbytes == 128 and made.tobytes() == b"\x5a" * 128
    monkeypatch.setattr(loader, "_driver", lambda: Encoder(1))
    with pytest.raises(ValueError, match="cuTensorMapEncodeIm2col: error 1"):
        wgmma.im2col_map(0x7000, of, 128)


@pytest.mark.parametrize(
    ("problem", "address", "reason"),
    [
        (Conv(1, 9, 9, 12, 8, 3, 3), 0x7000, "pixels on 16 bytes"),
        (Conv(1, 9, 9, 16, 8, 3, 3), 0x7008, "pixels on 16 bytes"),
        (Conv(1, 9, 9, 8, 8, 3, 3, 9, 3), 0x7000, "steps of 8 at most"),
        (Conv(1, 9, 9, 8, 8, 3, 3, 1, 129), 0x7000, "128 pixels"),
        (Conv(1, 300, 300, 8, 8, 257, 1, 1, 127), 0x7000, "256 taps"),
    ],
)
def test_images_that_the_copy_engine_cannot_walk_are_refused(problem, address, reason, wgmma):
    with pytest.raises(ValueError, match=reason):
        wgmma.im2col_map(address, conv_tiles.gather(problem), 128)


def test_filters_of_wgmma_have_each_tap_s_channels_in_whole_64s(wgmma):
    w = np.arange(2 * 1 * 65 * 3).reshape(2, 1, 65, 3)
    held = wgmma.chunked(w)
    assert held.shape == (3, 2 * 128)
    for k in range(3):
        for i in range(2):
            assert (held[k, i * 128 : i * 128 + 65] == w[i, 0, :, k]).all()
            assert not held[k, i * 128 + 65 : (i + 1) * 128].any()


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (Conv(1, 4, 4, 8, 8, 3, 3, layout="NCHW", dtype="bfloat16"), "for NHWC in one group, not for NCHW in 1"),
        (Conv(1, 4, 4, 8, 8, 3, 3, groups=2, dtype="bfloat16"), "for NHWC in one group, not for NHWC in 2"),
        (Conv(1, 4, 4, 8, 8, 3, 3), "convolves bfloat16 and float16, not float32"),
        (Conv(1 << 12, 256, 256, 8, 8, 3, 3, dtype="bfloat16"), "places are counted in 32 bits"),
    ],
)
def test_what_a_rung_cannot_do_it_says(problem, reason, wgmma):
    from kernels.conv import _implicit_gemm

    with pytest.raises(ValueError, match=reason):
        _implicit_gemm.refuse(problem, ("bfloat16", "float16"), "wgmma")
