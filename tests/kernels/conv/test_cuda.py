"""Our CUDA convolutions without a GPU: the sources themselves run on the CPU, what tiles take, registers; for Hopper the walk
of the copy engine, its maps and filters as it wants them."""

import functools
import itertools
import re

import cuda_on_cpu
import numpy as np
import pytest
import slow_cases
from awkward_shapes import AWKWARD_CONVS
from cuda_on_cpu import Encoder
from msgspec.structs import replace
from nvrtc import spilled

from kernels import reference
from kernels.cuda import autotuner, conv_tiles, loader, tiles
from kernels.problems import Conv

PLAIN, TENSOR, WGMMA = "conv/cuda", "conv/cuda_tensor", "conv/cuda_wgmma"
PROBLEMS = [
    Conv(*shape, stride, pad)
    for shape in AWKWARD_CONVS
    for stride, pad in ((1, "same"), (2, "same"), (3, 4), (2, 1))
    if pad != 1 or shape[1] > 1
]


def test_phases_and_tile_needs_by_hand():
    """3 x 3 / 2 with a zero above and to the left: even pixels meet tap 1 alone, odd ones taps 2 and 0."""
    problem = Conv(1, 8, 8, 1, 1, 3, 3, 2, 1, direction="dgrad")
    sizes = [
        (p.gather.to_y, p.gather.to_x, p.gather.r, p.gather.s, p.gather.top, p.gather.left)
        for p in conv_tiles.phases(problem)
    ]
    assert sizes == [(0, 0, 1, 1, 0, 0), (0, 1, 1, 2, 0, 0), (1, 0, 2, 1, 0, 0), (1, 1, 2, 2, 0, 0)]
    assert [list(range(3))[p.rows] for p in conv_tiles.phases(problem)] == [[1], [1], [2, 0], [2, 0]]
    assert [p.gather.taps for p in conv_tiles.phases(Conv(1, 4, 4, 1, 1, 1, 1, 2, direction="dgrad"))] == [1]
    for forms, (m, n, k), wgrad in itertools.product(FORMS, ((9, 7, 75), (1600, 40, 950424)), (0, 1)):
        plans = conv_tiles.plans(forms, m, n, k, wgrad=wgrad, multiprocessors=132)
        assert 1 < len({str(plan) for plan in plans}) == len(plans) <= 4
        assert all(plan.leaves_none_empty(k) and plan.steps(k) >= 4 for plan in plans if plan.parts > 1)
        assert any(plan.parts > 1 for plan in plans) == (m == 1600)
    # 13 tiles: a wave of 2 blocks on each of 132 multiprocessors
    assert [
        plan.parts for plan in conv_tiles.plans(conv_tiles.GROUPS[:1], 1600, 40, 950424, wgrad=1, multiprocessors=132)
    ] == [20]
    # a `reduce` is dearer than what it saves; two waves are quicker than one; 79 parts would leave some empty
    for size, parts in (((1280, 640, 128), 1), ((12800, 64, 2048), 7), ((640, 64, 6560), 69)):
        assert conv_tiles.plans(conv_tiles.WARPS[:1], *size, wgrad=0, multiprocessors=132)[0].parts == parts
    assert conv_tiles.WARPS[0].shared_bytes(False) == 4 * 4 * (128 * 20 + 16 * 64)
    assert conv_tiles.WARPS[0].shared_bytes(True) == 4 * 4 * (128 * 16 + 16 * 64)
    assert conv_tiles.TENSORS[0].shared_bytes(False) == 2 * 4 * (128 * 40 + 32 * 136)
    assert conv_tiles.TENSORS[0].shared_bytes(True) == 2 * 4 * (32 * 136 + 32 * 136)
    group = conv_tiles.ConvGroups(consumers=2, rows=64, columns=256, stages=4, staged=2, blocks=1)
    assert (group.tile, group.threads) == ((128, 256), 288)
    assert group.shared_bytes == 4 * (128 + 256) * 128 + 2 * 2 * 8192 + 4 * 16
    for of in (*conv_tiles.WARPS, *conv_tiles.TENSORS):
        for wgrad in (False, True):
            table = 16 * (of.stages * of.deep if wgrad else of.tile_m)  # of pixels
            assert (of.shared_bytes(wgrad) + table + 1024) * of.blocks <= 228 << 10
    for of in conv_tiles.GROUPS:
        assert of.shared_bytes <= tiles.HOPPER_SHARED_BYTES and (of.shared_bytes + 1024) * of.blocks <= 228 << 10
        # on each quarter of a multiprocessor, which has 512 registers a lane
        warps = -(-of.threads // 32 * of.blocks // 4)
        assert of.rows // 64 * of.columns // 2 <= 512 // warps // 8 * 8 - 32  # sums, and what else a thread needs
    for path in (PLAIN, TENSOR):
        assert "try_wait" not in loader.source(path) and "while (" not in loader.source(path)


@pytest.mark.parametrize("path", [PLAIN, TENSOR, WGMMA])
def test_a_phase_started_early_ends_in_order(path):
    """What comes after the last phase then finds the results of all."""
    body = loader.source(path).rpartition('extern "C"')[2].partition("\n}\n")[0]
    assert body.rstrip().endswith("previous_is_done();") and body.count("previous_is_done();") == 1


def test_only_phases_after_the_first_start_early(monkeypatch):
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=2)()._implicit_gemm
    problem = Conv(1, 9, 9, 4, 4, 3, 3, 2, direction="dgrad")
    a, b = (cuda_on_cpu.filled(x) for x in problem.inputs(1, True))
    out = cuda_on_cpu.empty(problem.out_shape, np.float32)
    products, _ = module.implicit_products(problem, a, b, out=out)
    assert [product.early for product in products] == [False, True, True, True]


@pytest.mark.parametrize("path", [PLAIN, TENSOR, WGMMA])
def test_a_shape_has_the_fields_of_gather(path):
    (fields,) = re.findall(r"struct Shape \{ int (.*); \};", loader.source(path))
    assert tuple(fields.split(", ")) == conv_tiles.Gather._fields
    assert conv_tiles.gather(PROBLEMS[0]).passed.nbytes == 4 * len(conv_tiles.Gather._fields)
    assert conv_tiles.gather(PROBLEMS[0]).passed.size == 1  # CuPy passes arrays of one item by value


def test_loaded_rows_lie_in_different_banks():
    for of in conv_tiles.TENSORS:
        for line in (of.deep, of.tile_m, of.tile_n):
            # 8 rows of 16 bytes fill all 32 banks
            assert len({row * (line + 8) * 2 // 16 % 8 for row in range(8)}) == 8
    for of in conv_tiles.WARPS:
        assert len({m * (of.deep + 4) * 4 // 16 % 8 for m in range(8)}) == 8
        assert of.warp_m == 8 * of.thread_m and of.warp_n == 4 * of.thread_n


# Every tile; of what comes 16 bytes at a time both operands or neither, as the registers of a mixture lie between. How results
# leave is tried with the first tile: what is added up is the same.
TRIED = [
    *(
        (PLAIN, of, {"WGRAD": wgrad, "VECTOR_A": a, "VECTOR_B": b, "VECTOR": out})
        for of in conv_tiles.WARPS
        for wgrad, a, b in ((0, 1, 1), (0, 0, 1), (1, 1, 1), (1, 0, 0))
        for out in (0, b)[: 1 + b]
        if a or not wgrad or of.tile_m <= of.threads
    ),
    *((TENSOR, of, {"WGRAD": wgrad, "TYPE": '"f16"'}) for of in conv_tiles.TENSORS for wgrad in (0, 1)),
    *(
        (WGMMA, of, {"WGRAD": wgrad, "OUT": leaves, "TYPE": '"bf16"'})
        for i, of in enumerate(conv_tiles.GROUPS)
        for wgrad, leaves in ((0, 0), (1, 1), (0, 1), (0, 2), (0, 3))[: 2 if i else 5]
    ),
]


@pytest.mark.parametrize(
    ("file", "of", "more"), slow_cases.every(16, TRIED), ids=lambda v: str(v) if isinstance(v, tiles.Tiles) else ""
)
def test_sums_stay_in_registers(file, of, more):
    assert spilled(file, {**of.macros(), **more}) == 0


@pytest.fixture
def bound(monkeypatch):
    return cuda_on_cpu.bindings(monkeypatch, multiprocessors=16)


FORMS = (conv_tiles.WARPS, conv_tiles.TENSORS, conv_tiles.GROUPS)
WHOLE = [(1, 1, 1, 1, 1, 1, 1, 3, 4), (2, 5, 6, 3, 5, 3, 3, 1, "same"), (2, 6, 5, 1, 5, 5, 2, 2, "same")]
WHOLE += [(2, 6, 7, 16, 24, 3, 3, 2, 1), (1, 17, 17, 40, 40, 3, 3, 1, "same"), (3, 7, 7, 64, 40, 1, 1, 2, "valid")]
WHOLE += [(1, 5, 5, 15, 11, 3, 3, 1, 4), (2, 5, 7, 12, 20, 1, 1, 1, "valid")]
WAYS = ["wgrad", "dgrad", "fprop"] * 2 + ["wgrad"]  # of each form
LOADS = {conv_tiles.WARPS[0]: "0.047 L2, 0.5 shared", conv_tiles.TENSORS[0]: "0.016 L2, 0.031 shared"}  # by hand
AT, NARROW = next((i, t) for i, t in enumerate(conv_tiles.TENSORS) if t.tile_n == 32)
RUNGS = [
    *(("", "direct", "float32", conv_tiles.WARPS[0], way) for way in Conv.DIRECTIONS),
    *(("", "implicit_gemm", "float32", *form) for form in zip(conv_tiles.WARPS, WAYS, strict=False)),
    *(("_tensor", "tensor_core", "bfloat16", *form) for form in zip(conv_tiles.TENSORS, WAYS, strict=True)),
    *(("", "implicit_gemm", "float32", conv_tiles.WARPS[0], way) for way in Conv.DIRECTIONS if way != WAYS[0]),
    *(("_tensor", "tensor_core", "bfloat16", NARROW, way) for way in Conv.DIRECTIONS if way != WAYS[AT]),
]


@pytest.mark.parametrize(("of", "rung", "dtype", "tile", "way"), slow_cases.every(8, RUNGS), ids=str)
def test_kernels_run_on_the_cpu_are_right(of, rung, dtype, tile, way, bound, built, monkeypatch):
    """The very source, thread by thread, its tensor-core instructions as the PTX ISA has them; bindings and all."""
    monkeypatch.setattr(loader, "compile_kernel", functools.partial(cuda_on_cpu.load, built))
    module, parts, loads = bound(), set(), set()
    monkeypatch.setattr(conv_tiles, "TENSORS" if of else "WARPS", (tile,))  # one to build
    monkeypatch.setattr(conv_tiles, "_REDUCE_CYCLES", -1e12)  # a sum is split wherever it can be

    def some(gpu, file, problem, calls):
        parts.update(re.findall(r"split-k=(\d+)", next(iter(calls))))
        return next(iter(calls))

    monkeypatch.setattr(autotuner, "fastest", some)
    for number, shape in enumerate(WHOLE):
        monkeypatch.setattr(bound(""), "_COPY_FLOPS", number % 2 * 1e9)
        monkeypatch.setattr(bound(""), "_COPY_READS", 0)
        monkeypatch.setattr(bound("")._implicit_gemm, "_FEW_FILTERS", 0)
        problem = Conv(*shape, direction=way, dtype=dtype)
        inputs = problem.inputs(3, True)
        given = [cuda_on_cpu.filled(x.view(np.uint16) if dtype == "bfloat16" else x) for x in inputs]
        run = getattr(module, rung)(problem, *given)
        loads.add(getattr(run, "notes", {}).get("traffic"))
        for _ in range(2):  # the second call may not lean on the first one's result
            out = run()
            got = np.array(out).view(inputs[0].dtype)
            assert reference.check(problem, inputs, got).passed, (problem, getattr(run, "notes", ""))
            out.view(np.uint8)[...] = 0xFF
    assert rung == "direct" or tile.deep == 64 or parts, "no sum was split"
    assert rung == "direct" or tile not in LOADS or LOADS[tile] in loads


def unaligned(values: np.ndarray) -> np.ndarray:
    """The same values from an item past a multiple of 16 bytes on, as of a view."""
    view = cuda_on_cpu.empty((values.size + 1,), values.dtype)[1:].reshape(values.shape)
    view[...] = values
    assert view.data.ptr % 16 == values.itemsize
    return view


@pytest.mark.parametrize("way", Conv.DIRECTIONS)
def test_images_beginning_between_16_bytes_are_convolved(way, bound, built, monkeypatch):
    """They are fetched item by item: for wgrad by tiles no longer than a block has threads, each of which has one of a line."""
    monkeypatch.setattr(loader, "compile_kernel", functools.partial(cuda_on_cpu.load, built))
    offered = {}

    def some(gpu, file, problem, calls):
        offered.update((name.split()[0], name) for name in calls)
        return offered.get("64x64x16") or next(iter(calls))

    monkeypatch.setattr(autotuner, "fastest", some)
    problem = Conv(2, 7, 6, 8, 36, 3, 3, direction=way)
    inputs, found, short = problem.inputs(3, True), [], ("128x64x16", "64x64x16", "64x32x16")
    for put in (cuda_on_cpu.filled, unaligned):
        offered.clear()
        assert reference.check(problem, inputs, np.array(bound("").implicit_gemm(problem, *map(put, inputs))())).passed
        found.append(set(offered))
    if way == "wgrad":
        assert found == [{*short, "128x16x16"}, {*short, "128x128x16"}]
    else:
        assert found[0] == found[1] >= {"64x32x16", "128x16x16"}


@pytest.fixture
def wgmma(bound):
    return bound("_wgmma")


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
def test_the_copy_engine_walks_the_products_pixels(problem, wgmma):
    for of in (conv_tiles.gather(problem), *(p.gather for p in conv_tiles.phases(replace(problem, direction="dgrad")))):
        pixels = itertools.product(range(of.n), range(of.p), range(of.q))
        wanted = [(n, y * of.step - of.top, x * of.step - of.left) for n, y, x in pixels]
        assert list(walked(of, wgmma.box(of), of.pixels)) == wanted


def test_a_map_of_images_counts_channels_first(wgmma, monkeypatch):
    driver = Encoder()
    monkeypatch.setattr(loader, "_driver", lambda: driver)
    of = conv_tiles.gather(Conv(2, 12, 10, 16, 8, 5, 3, 2, 1))  # 5 x 4 pixels
    made = wgmma.im2col_map(0x7000, of, 128)
    # 16-bit items, c w h n and their pitches in bytes, corners along w and h, 64 channels of 128 pixels every 2
    expected = (1, 4, 0x7000, [16, 10, 12, 2], [32, 320, 3840], [-1, -1], [-2, -4], 64, 128, [1, 2, 2, 1], (0, 3, 2, 0))
    assert driver.asked == expected
    assert made.size == 1 and made.nbytes == 128 and made.tobytes() == b"\x5a" * 128
    monkeypatch.setattr(loader, "_driver", lambda: Encoder(1))
    with pytest.raises(ValueError, match="cuTensorMapEncodeIm2col: error 1"):
        wgmma.im2col_map(0x7000, of, 128)
    w = np.arange(2 * 1 * 65 * 3).reshape(2, 1, 65, 3)
    held = wgmma.chunked(w)
    assert held.shape == (3, 2 * 128)
    taps = held.reshape(3, 2, 128)
    assert (taps[..., :65] == w[:, 0].transpose(2, 0, 1)).all() and not taps[..., 65:].any()


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
def test_images_the_copy_engine_cannot_walk_are_refused(problem, address, reason, wgmma):
    with pytest.raises(ValueError, match=reason):
        wgmma.im2col_map(address, conv_tiles.gather(problem), 128)


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
