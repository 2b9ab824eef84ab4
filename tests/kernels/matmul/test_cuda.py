"""Our CUDA matmuls without a GPU: index arithmetic, swizzles, descriptors and fragments, read off the sources and worked out
against PTX's layouts; what their tiles take; registers; the choice of tiles; tensor maps."""

import functools
import importlib
import itertools
import math
import re
import types

import cuda_on_cpu
import numpy as np
import pytest
import slow_cases
from cuda_sources import DIRECT, TENSOR, WARP, WGMMA, c, found
from nvrtc import spilled

from kernels import reference
from kernels.cuda import autotuner, conv_tiles, loader, matmul_tiles, tiles
from kernels.matmul import LADDER
from kernels.problems import Matmul


@pytest.mark.parametrize("path", [TENSOR, WGMMA])
@pytest.mark.parametrize(("units_m", "units_n", "group"), [(1, 1, 1), (7, 5, 3), (16, 8, 16), (3, 40, 8), (33, 2, 4)])
def test_every_tile_is_placed_once_group_by_group(path, units_m, units_n, group):
    names = {"units_m": units_m, "units_n": units_n, "group": group}
    text = loader.source(path)
    first, high, within = re.search(r"const int first = (.*), high = (.*), within = (.*);", text).groups()
    m, n = found(path, r"\n    m = (.*);\n"), found(path, r"\n    n = (.*);\n")
    order = []
    for unit in range(units_m * units_n):
        a = {**names, "unit": unit}
        a |= {"first": c(first, **a), "within": c(within, **a)}
        a["high"] = c(high, **a)
        order.append((c(m, **a), c(n, **a)))
    assert sorted(order) == [(i, j) for i in range(units_m) for j in range(units_n)]
    high = min(group, units_m)
    assert order[: high * units_n] == [(i, j) for j in range(units_n) for i in range(high)]  # a group, column by column


@pytest.mark.parametrize("size", [2, 4])
def test_loaded_rows_lie_in_different_banks(size):
    beside = re.search(r"\(TF32 && K_ACROSS \? (\d) : (\d)\) \* PIECE;", loader.source(TENSOR))
    floats, halves = map(int, beside.groups())
    for line in {of.line for of in matmul_tiles.TENSORS}:
        assert len({row * (line + 16) // 16 % 8 for row in range(8)}) == 8  # 8 rows of 16 bytes fill all 32 banks
    for tile in {side for of in matmul_tiles.TENSORS for side in of.tile}:
        pitch = tile * size + 16 * (floats if size == 4 else halves)
        words = {(k * pitch + n * size) // 4 % 32 for k in range(4) for n in range(8)} if size == 4 else set()
        assert len(words) == 32 if size == 4 else len({row * pitch // 16 % 8 for row in range(8)}) == 8


def test_a_warps_threads_use_different_banks():
    text = loader.source(WARP)
    lane_n, lane_m = re.search(r"const int lane_n = THIN \? lane : (.*), lane_m = THIN \? 0 : (.*);", text).groups()
    lanes = [(c(lane_m, lane=lane), c(lane_n, lane=lane)) for lane in range(32)]
    assert sorted(lanes) == [(m, n) for m in range(8) for n in range(4)]
    for half in (lanes[:16], lanes[16:]):  # 4 rows of A and 4 pieces of B in a half warp, each wanted by 4
        assert len({m for m, _ in half}) == len({n for _, n in half}) == 4
    turn, put = found(WARP, r"turn = (line / 4 % 4 \* 4);"), found(WARP, r"LIES \? (l \^ line / 4 % 4 \* 4) :")
    across = int(found(WARP, r"ACROSS = K_ALONG && !LIES \? (\d) :"))
    for of in (*matmul_tiles.WARPS, *matmul_tiles.SMALL):
        for tile in of.tile:  # a warp's items that are turned: so many k's of the lines beside each other
            banks = {(l * (tile + 4) + line) % 32 for l in range(across) for line in range(32 // across)}
            assert len(banks) == (32 if tile > 4 else 16) and tile % 4 == 0
        assert (of.warp_m, of.warp_n) in ((8 * of.thread_m, 4 * of.thread_n), (of.thread_m, 32 * of.thread_n))
        for line, l in itertools.product(range(64), range(0, of.deep // of.slices, 4)):  # a four lies where it is read
            assert c(put, line=line, l=l) == l ^ c(turn, line=line) < of.deep
        for half, side in itertools.product((lanes[:16], lanes[16:]), (0, 1)):
            lines = {4 * lane[side] for lane in half} if of.warp_m > of.thread_m else set(range(0, 128, 4))
            assert len({(line * of.deep + c(turn, line=line)) // 4 % 8 for line in lines}) == 4  # times 16 bytes


@pytest.mark.parametrize("of", {(of.thread_m, of.thread_n): of for of in matmul_tiles.WARPS}.values(), ids=str)
def test_every_product_is_added_once(of):
    order = []
    i, j = re.search(r"const int i = (.*), j = (.*);", loader.source(WARP)).groups()
    for e in range(of.thread_m * of.thread_n):
        row = c(i, e=e, THREAD_N=of.thread_n)
        order.append((row, c(j, e=e, THREAD_N=of.thread_n, i=row)))
    assert sorted(order) == [(i, j) for i in range(of.thread_m) for j in range(of.thread_n)]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(order))


def test_what_tiles_take_of_a_multiprocessor():
    first = matmul_tiles.Warps(
        tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=16, thread_m=8, thread_n=16, stages=4, slices=1, blocks=2
    )  # 4 stages of 16 k's of 132 floats twice
    assert (first.threads, first.shared_bytes) == (128, 4 * 4 * 16 * (132 + 132))
    sliced = matmul_tiles.Warps(
        tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=8, thread_m=8, thread_n=16, stages=2, slices=2, blocks=1
    )  # C's tile is more than its ring
    assert (sliced.threads, sliced.shared_bytes) == (256, 128 * 128 * 4)
    assert (
        matmul_tiles.Warps(
            tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=8, thread_m=8, thread_n=16, stages=2, slices=4, blocks=1
        ).shared_bytes
        == 2 * 128 * 128 * 4
    )  # two add to two
    taken = [matmul_tiles.TENSORS[i].shared_bytes(*how) for i, *how in ((0, "nn", 2), (0, "nn", 4), (1, "nt", 2))]
    assert taken == [4 * (128 * 80 + 32 * 136 * 2), 4 * (128 * 80 + 16 * 136 * 4), 3 * (128 * 144 + 256 * 144)]
    group = matmul_tiles.Groups(consumers=2, rows=64, columns=256, stages=4, staged=2, cluster_m=2, cluster_n=1)
    assert (group.tile, group.threads) == ((128, 256), 384)
    assert group.shared_bytes == 4 * (128 + 256) * 128 + 2 * 2 * 8192 + 4 * 16
    assert matmul_tiles.Groups(
        consumers=2, rows=128, columns=128, stages=6, staged=2, cluster_m=2, cluster_n=1, pingpong=1
    ).tile == (128, 128)
    for of in matmul_tiles.GROUPS:
        assert of.fits("nt") and of.shared_bytes <= 232448
        # registers of a thread at the launch, all that a block may share out again
        given = 65536 // of.threads // 8 * 8
        changed = re.findall(rf"CONSUMERS == {of.consumers}\).*u32 (\d+);", loader.source(WGMMA)) or [given] * 2
        loading, each = map(int, changed)
        assert loading + of.consumers * each <= given * (1 + of.consumers), "it would wait for registers for ever"
        assert of.rows // 64 * of.columns // 2 <= min(each, 255) - 32
    assert matmul_tiles.Groups(consumers=2, rows=128, columns=192, stages=3, staged=2, cluster_m=1, cluster_n=2).fits(
        "nn"
    )
    assert not matmul_tiles.Groups(
        consumers=2, rows=128, columns=192, stages=3, staged=2, cluster_m=2, cluster_n=1
    ).fits("nn")
    assert not matmul_tiles.Groups(
        consumers=2, rows=64, columns=256, stages=5, staged=1, cluster_m=1, cluster_n=1
    ).fits("nt")  # 5 places of 48 KiB
    taken = [of.shared_bytes * of.blocks for of in matmul_tiles.WARPS]
    taken += [of.shared_bytes(way, 4) * of.blocks for of in matmul_tiles.TENSORS for way in ("nn", "nt", "tn")]
    assert max(taken) <= 228 << 10
    # a cluster's tile is 256 x 256, of which 66 are at work at once: of 165 the first 132 go whole, and each of the others in two
    plan = tiles.TilePlan(tiles=group, parts=2)
    size = 11 * 256, 15 * 256, 132
    assert ([group.slots(n) for n in (132, 133)], plan.whole(*size), plan.units(*size)) == ([66, 66], 132, 132 + 2 * 33)
    assert (tiles.TilePlan(tiles=group).whole(*size), tiles.TilePlan(tiles=group).units(*size)) == (165, 165)
    assert (plan.whole(256, 256, 132), plan.units(256, 257, 133)) == (0, 4)


def test_plans_are_ranked_by_waves_and_bytes():
    of = matmul_tiles.Groups(
        consumers=2, rows=128, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1, pingpong=1
    )
    # a stage: 128 x 128 x 64 / 2048 = 512 cycles of products (a quarter more while the other warpgroup has no tile), as many for
    # 32 KiB from the L2, of which 7 % beside, and 64 for barriers; 128 to leave
    each, alone = 512 * 1.07 + 64, 512 * 1.32 + 64
    assert of.cycles(1, 1, 1, 132) == pytest.approx(alone + 128)
    # a second wave for one tile, or for its two parts, whose sums leave and come again: three times 65,536 bytes by 64 a cycle,
    # and 128 of each thread, 16 in the time of half a first stage; a full wave at the power limit takes 12 % more
    assert of.cycles(133, 8, 1, 132) == pytest.approx(2 * (8 * each + 128))
    assert of.cycles(1320, 8, 1, 132) == pytest.approx(11.2 * (8 * each + 128))
    split, adding = tiles.TilePlan(tiles=of, parts=2), 3 * 1024 + 8 * 1500
    whole, part = 1.12 * (8 * alone + 128), 4 * alone + 128
    assert split.cycles(128, 128 * 133, 512, 132) == pytest.approx(whole + part + adding)
    assert tiles.TilePlan(tiles=of).cycles(128, 128 * 133, 512, 132) == of.cycles(133, 8, 1, 132)
    warps = matmul_tiles.Warps(
        tile_m=128, tile_n=128, warp_m=64, warp_n=64, deep=16, thread_m=8, thread_n=16, stages=4, slices=1, blocks=2
    )
    # two tiles on each multiprocessor: 128 x 128 x 16 / 128 = 2048 cycles each stage, 0.4 (1/8 + 1/16) of them to read, 4 / 64 to
    # fetch, 0.05 / 2 to wait; C leaves in 1024 cycles, of which two blocks hide half
    slower = 1 + 0.075 + 0.0625 + 0.025
    assert warps.cycles(264, 10, 1, 132) == pytest.approx(2 * (10 * 2048 * slower + 512))
    # one block of four warps alone keeps it less busy
    assert warps.cycles(1, 1, 1, 132) == pytest.approx(2048 * slower * 5.2 / 4 + 512)
    blocks = {layout: [of.blocks for of in matmul_tiles.warps(layout)] for layout in ("tn", "nn", "nt")}
    assert blocks["tn"] == [of.blocks for of in matmul_tiles.WARPS]
    assert blocks["nt"][4] == 1  # 64 + 4 x (8 + 8) + 8 registers
    assert blocks["nt"][:3] == blocks["tn"][:3]  # short stages are turned
    tensors = matmul_tiles.TENSORS[-1]  # 32 x 32, 4 stages of 128 bytes of k: three of them take 1500 cycles to come
    assert tensors.cycles(1, 5, 1, 132) == pytest.approx(5 * 500 + 32 * 32 * 4 / 64)
    # two parts leave and come again: three times C's 4096 bytes, and as long as two times a first stage
    assert tensors.cycles(1, 5, 2, 132) == pytest.approx(5 * 500 + 4 * 64 + 2 * 1500)
    assert of.cycles(1, 1, 2, 132) == pytest.approx(alone + 128 + adding)
    assert min(blocks["nt"]) == 1 and all(x <= y for x, y in zip(blocks["nt"], blocks["nn"], strict=True))
    one, parts = tiles.TilePlan(tiles=of), tiles.TilePlan(tiles=of, parts=5)
    assert parts.steps(3072) == 10 and one.steps(3072) == 48
    assert parts.leaves_none_empty(320) and not parts.leaves_none_empty(256)
    for m, n, k, layout in [(128, 3000, 3072, "nt"), (8192, 8192, 8192, "nn"), (1, 1, 1, "tn"), (32, 1024, 4096, "nn")]:
        for forms in (matmul_tiles.groups(layout, 2), matmul_tiles.TENSORS, matmul_tiles.warps(layout)):
            plans = tiles.plans(forms, m, n, k, multiprocessors=132)
            assert 1 < len(plans) <= 4 and len({str(plan) for plan in plans}) == len(plans)
            assert all(plan.leaves_none_empty(k) for plan in plans)
            assert any(plan.parts > 1 for plan in plans) == (k > 1000 and m < 200)
    few = (1, 9, 99), (9, 4, 33), (8, 9, 33), (9, 9, 32), (9, 9, 33), (1, 9, 1 << 15), (1 << 16, 1 << 15, 1)
    assert [len(matmul_tiles.direct(*size, 132)) for size in few] == [3, 3, 2, 1, 0, 0, 0]
    # 47 blocks of 64 columns leave room for 8 times as many, 16 threads with 16 k's each for 5
    parts = [[plan.parts for plan in matmul_tiles.direct(*size, 132)] for size in ((1, 3000, 1400), (3000, 1, 30000))]
    assert parts == [[5, 1, 1], [8, 1, 1]]
    assert matmul_tiles.direct(4096, 4096, 32, 132)[0].parts == 1, "a thread has a short sum alone"
    # a last wave of 24 of 132 is split; of 44 what that gains is within what the model is wrong by; few waves; few stages
    sizes = [(of, 1536, 3000, 8192), (of, 2816, 4096, 2048), (tensors, 128, 3000, 65536), (tensors, 32, 32, 2048)]
    assert [tiles.plans([form], *size, multiprocessors=132)[0].parts for form, *size in sizes] == [5, 1, 2, 8]


def test_a_launch_has_whole_clusters(monkeypatch):
    module, blocks = cuda_on_cpu.bindings(monkeypatch, multiprocessors=133)("_wgmma", "matmul"), []
    monkeypatch.setattr(loader, "compile_kernel", lambda *given, **macros: types.SimpleNamespace())
    monkeypatch.setattr(loader, "_driver", cuda_on_cpu.Encoder)
    monkeypatch.setattr(loader, "overlapping", lambda of, count, *given, **how: blocks.append(count))
    for n, parts in ((8, 1), (264, 1), (2048, 1), (4096, 1), (256, 5)):
        a = cuda_on_cpu.empty((n, n), np.uint16)
        plan = tiles.TilePlan(
            tiles=matmul_tiles.Groups(consumers=2, rows=64, columns=256, stages=4, staged=2, cluster_m=2, cluster_n=1),
            parts=parts,
        )
        module.call(
            Matmul(n, n, n, "bfloat16", layout="nt"), plan, [module.aligned(a)] * 2, c=module.aligned(a), result=a
        )
    assert blocks == [2, 8, 128, 132, 10]
    # of 128 x 128 in clusters of two along k two blocks a tile, as many as there are: none takes a second one
    plan = tiles.TilePlan(
        tiles=matmul_tiles.Groups(
            consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1, pingpong=0, cluster_k=2
        ),
        parts=2,
    )
    a = cuda_on_cpu.empty((1664, 1664), np.uint16)
    module.call(
        Matmul(1664, 1664, 1664, "bfloat16", layout="nt"), plan, [module.aligned(a)] * 2, c=module.aligned(a), result=a
    )
    assert blocks[-1] == 13 * 13 * 2


def test_rungs_have_the_tiles_they_name(monkeypatch):
    # 12 tiles leave room for 11 parts on 132 multiprocessors: of 48 stages nine would have 5, one 3 and the last none
    def bound(problem, a, b, groups, parts=1, early=False):
        return tiles.TilePlan(tiles=groups, parts=parts), early

    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=132)("_wgmma_rungs", "matmul")
    monkeypatch.setattr(module, "_bound", bound)
    names = [name.removeprefix("cuda/") for name in LADDER if name.startswith("cuda/wgmma_")]
    given = [(Matmul(512, n, 3072, "bfloat16"), None, None) for n in (768, 256)]
    plans, early = zip(*(getattr(module, name)(*of) for of in given for name in names), strict=True)
    assert [plan.parts for plan in plans[7::8]] == [10, 12] and all(plan.leaves_none_empty(3072) for plan in plans)
    words = [set(), *(set(str(plan).split()) for plan in plans[:8])]
    assert " | ".join(" ".join(sorted(now - before)) for before, now in itertools.pairwise(words)) == (
        "64x128 cluster=1x1 cooperative staged=1 stages=2 | staged=2 stages=8 | 128x128 stages=6 | 128x256 stages=4 | "
        "cluster=2x1 | 128x128 cluster=1x2 ping-pong stages=6 |  | 128x256 cluster=1x1 cooperative split-k=10 stages=4"
    )
    assert [(plan.tiles.consumers, begun) for plan, begun in zip(plans[:8], early, strict=False)] == (
        [(1, False)] * 2 + [(2, False)] * 4 + [(2, True)] * 2
    )


def test_thin_products_are_also_read_from_memory(monkeypatch):
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=132)("", "matmul")
    monkeypatch.setattr(module, "fastest_plan", lambda file, problem, plans, call: [type(plan.tiles) for plan in plans])
    every = [Matmul(300, 280, 16), Matmul(1, 30000, 64), Matmul(300, 280, 33), Matmul(1, 9, 9, batch=3)]
    tried = [module.warp_tiled(problem, *problem.inputs(3, True)) for problem in every]
    assert [of.count(matmul_tiles.Direct) for of in tried] == [1, 3, 0, 0] and [*map(len, tried[:3])] == [4] * 3


@pytest.mark.parametrize(
    ("path", "some"),
    [
        *((WARP, matmul_tiles.WARPS), (DIRECT, matmul_tiles.DIRECT), (TENSOR, matmul_tiles.TENSORS)),
        *((WGMMA, matmul_tiles.GROUPS), ("conv/cuda", conv_tiles.WARPS)),
        *(("conv/cuda_tensor", conv_tiles.TENSORS), ("conv/cuda_wgmma", conv_tiles.GROUPS)),
    ],
    ids=str,
)
def test_every_field_is_a_macro_of_its_source(path, some):
    defined = set(re.findall(r"^#define (\w+)", loader.source(path).partition("#endif")[0], re.MULTILINE))
    assert {*some[0].macros(), *(["WGRAD"] if path.startswith("conv") else [])} <= defined
    assert len({str(of) for of in some}) == len(some), "their names tell them apart"


READ = [
    {"ALONG": along, "VECTOR": vector, "VECTOR_A": whole}
    for along, vector, whole in itertools.product((0, 1), (0, 1), (0, 1, 2))
    if whole != 1 or along + vector == 2
]
VECTORS, ACROSS = ("VECTOR", "VECTOR_A", "VECTOR_B"), (("nt", ("tf32", 0)), ("tt", ("tf32", 0)))


def stored(layout: str, **more) -> dict:
    return {"A_STORED_KM": int(layout[0] == "t"), "B_STORED_KN": int(layout[1] == "n"), **more}


TRIED = [
    *(
        (WARP, of if vector else of.by_items(), stored(layout) | dict.fromkeys(VECTORS, vector))
        for layout in ("nn", "nt", "tn", "tt")
        for single in ((True,) if layout == "tt" else (True, False))  # A turned by a copy, B as it lies
        for of in matmul_tiles.warps(layout, single)
        for vector in (0, 1)
    ),
    *(
        (TENSOR, of, stored(layout, BYTES_A=row, BYTES_B=row, VECTOR=int(row > 2), TF32=tf32, TYPE='"f16"'))
        for of in matmul_tiles.TENSORS
        for tf32, row, layout in (
            *itertools.product((0, 1), (16,), ("nn", "nt", "tn")),
            *((0, 2, "nn"), (0, 2, "tn"), (0, 4, "nt"), (0, 8, "nn"), (1, 4, "nn"), (1, 4, "nt"), (1, 8, "tn")),
        )
    ),
    *(
        (WGMMA, of, stored(layout) | {"TYPE": f'"{ptx}"', "TF32": int(ptx == "tf32"), "BIAS_RELU": bias})
        for layout, (ptx, bias) in (*itertools.product(("nn", "nt", "tn"), (("bf16", 0), ("f16", 1))), *ACROSS)
        for of in matmul_tiles.groups(layout, 4 if ptx == "tf32" else 2)
    ),
    *(
        (
            DIRECT,
            of.fitted(few, bool(read["ALONG"]), bool(read["VECTOR"])),
            read | {"TF32": 0, "HALVES": halves, "TYPE": '"bf16"' if few % 4 else '"f16"'},
        )
        for of, read, halves in itertools.product(matmul_tiles.DIRECT, READ, (0, 1))
        for few in (1, 2, 3, 4, 6, 8)
        if few <= of.few and (read["VECTOR_A"] < 2 or few % 4 == 0)
    ),
]


@pytest.mark.parametrize(
    ("file", "of", "more"), slow_cases.every(16, TRIED), ids=lambda v: str(v) if isinstance(v, tiles.Tiles) else ""
)
def test_sums_stay_in_registers(file, of, more):
    """But for one, where rows do not begin on 16 bytes: they are fetched item by item, beside sums that fill the others."""
    by_items = file == TENSOR and more["BYTES_A"] < 16
    assert spilled(file, {**of.macros(), **more}) <= 4 * by_items


# one item, no multiple of anything, more than one tile either way, k for more than a round of the ring; of rows on 16 bytes too
SHAPES = [(1, 1, 1), (17, 33, 65), (127, 1, 31), (131, 137, 35), (72, 136, 72), (9, 16, 328), (9, 15, 327)]
FEW = [(1, 68, 1030), (3, 70, 1028), (2, 5, 17), (67, 3, 259), (40, 17, 1), (68, 4, 260)]
FEW += [(8, 68, 268), (7, 69, 267), (70, 6, 130), (9, 21, 33)]
FEW += [(68, 4, 260, 1, 0), (68, 4, 260, 0, 1)]  # one of both operands begins an item further
RUNGS = [
    *(("", rung, "", "float32") for rung in ("naive", "coalesced", "tiled", "register_tiled")),
    *(
        ("", "warp_tiled", tiles.TilePlan(tiles=of), layout)
        for i, of in enumerate(matmul_tiles.WARPS)
        for j, layout in enumerate(("nn", "nt", "tn"))
        if (i + j) % 3 == 0 or i in (2, 5, 7, 8)  # each form once; all layouts of short and long stages, of few rows
    ),
    *(("", "warp_tiled", tiles.TilePlan(tiles=matmul_tiles.WARPS[-1], parts=2), layout) for layout in ("nn", "tn")),
    ("", "warp_tiled", tiles.TilePlan(tiles=matmul_tiles.DIRECT[0]), "nn"),
    ("_wgmma", "wgmma", tiles.TilePlan(tiles=matmul_tiles.DIRECT[0]), "nn bfloat16"),
    *(
        ("", "direct_call", tiles.TilePlan(tiles=of, parts=3 if i == 1 else 1), f"{layout} {math}")
        for i, of in enumerate(matmul_tiles.DIRECT)
        for layout, math in itertools.product(("nn", "nt", "tn"), ("float32", "bfloat16", "tf32", "float16"))
        if (i, layout) == (1, "nt") or (math != "float16" and (i < 2 or math != "tf32"))
    ),
    *(("", "warp_tiled", tiles.TilePlan(tiles=matmul_tiles.WARPS[3]), f"{way} copied") for way in ("nn", "nt", "tn")),
    *(
        ("", "warp_tiled", tiles.TilePlan(tiles=matmul_tiles.warps(way, single=False)[i]), f"{way} many")
        for i, way in zip(range(len(matmul_tiles.SMALL)), ["nn", "nt", "tn"] * 3, strict=False)
    ),
    *(
        ("_tensor", "tensor_core", tiles.TilePlan(tiles=of, parts=3 if i == 6 else 1), f"{layout} {math}")
        for i, of in enumerate(matmul_tiles.TENSORS)
        for j, layout in enumerate(("nn", "nt", "tn"))
        for l, math in enumerate(("bfloat16", "tf32"))
        if ((i + j) % 3 == 0 and (i + l) % 2 == 0) or i in (3, 6)
    ),
]


@pytest.mark.parametrize(("of", "rung", "tile", "math"), slow_cases.every(8, RUNGS), ids=str)
def test_kernels_run_on_the_cpu_are_right(of, rung, tile, math, built, monkeypatch):
    """The very source, thread by thread, its tensor-core instructions as the PTX ISA has them; bindings and all."""
    monkeypatch.setattr(loader, "compile_kernel", functools.partial(cuda_on_cpu.load, built))
    layout, _, how = math.partition(" ") if math[:2] in ("nn", "nt", "tn") else ("nn", "", "")
    math = how if how in ("float16", "bfloat16", "tf32") else "float32"
    monkeypatch.setattr(autotuner, "fastest", lambda gpu, file, problem, candidates: str(tile))
    monkeypatch.setattr(tiles, "plans", lambda *given, **how: [tile])
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=2)(of, "matmul")  # some tiles go whole beside split ones
    if how == "copied":  # what is read 16 times: of some shapes both, of others one
        monkeypatch.setattr(module, "_LAUNCH_S", 0)
        monkeypatch.setattr(module, "_BY_ITEMS", 4 / 15.5 * module._FLOPS_S / module._BYTES_S)
    dtype = "float32" if math == "tf32" else math
    for m, n, k, *further in [*SHAPES, *FEW * str(tile).startswith("direct")]:
        problem = Matmul(m, n, k, dtype, math, layout=layout, batch=3 if how == "many" else 1)
        inputs = problem.inputs(3, True)
        items = [x.view(np.uint16) if x.itemsize == 2 else x for x in inputs]
        given = list(map(cuda_on_cpu.filled, items, further or (0, 0)))
        more = (tile, *given, cuda_on_cpu.empty(problem.out_shape, given[0].dtype)) if rung == "direct_call" else given
        run = getattr(module, rung)(problem, *more)
        for _ in range(2):  # the second call may not lean on the first one's result
            out = run()
            assert reference.check(problem, inputs, np.array(out).view(inputs[0].dtype)).passed, problem
            out.view(np.uint8)[...] = 0xFF


FAULTS = {  # what stands in the kernel, what is put instead, and how it is found
    "a store one row past the edge": (r"row < high &&", "row <= high &&", "wrote beside"),
    "loads past the edge": (r"first \+ TILE <= size", "first < size", "read beside"),
    "a wait for one stage too few": (r'"n"\(STAGES - 2\)', '"n"(STAGES - 1)', "passed"),
    "a barrier before the wait": (r"(arrived\(\);)(\s+)(__syncthreads\(\);)(?=\s+next)", r"\3\2\1", "passed"),
    "no barrier after the wait": (r"(arrived\(\);)\s+__syncthreads\(\);(?=\s+next)", r"\1", "passed"),
    "no barrier before the ring is written": (r"if \(!VECTOR\) __syncthreads\(\);", "", "passed"),
    "a stage fetched over one that is read": (r"STAGES - 1(?=; s\+\+| < steps)", "STAGES", "passed"),
}


@pytest.mark.parametrize(("old", "new", "how"), FAULTS.values(), ids=FAULTS)
def test_faults_planted_in_a_kernel_are_found(old, new, how, built, tmp_path, monkeypatch):
    right = ("", "warp_tiled", tiles.TilePlan(tiles=matmul_tiles.WARPS[-1]), "nn")
    text, count = re.subn(old, new, loader.source(WARP))
    assert right in RUNGS and count
    monkeypatch.setattr(loader, "source", lambda file: text)
    with pytest.raises(AssertionError, match=how):
        test_kernels_run_on_the_cpu_are_right(*right, tmp_path, monkeypatch)


@pytest.mark.parametrize("shape", [(700, 3), (2, 2049), (1, 65), (130, 1), (67, 131)])
def test_unaligned_rows_are_copied_to_16_bytes(shape, built, monkeypatch):
    monkeypatch.setattr(loader, "compile_kernel", functools.partial(cuda_on_cpu.load, built))
    cuda_on_cpu.bindings(monkeypatch, multiprocessors=16)
    rows = importlib.import_module("kernels.cuda.rows")
    values = np.arange(1, 1 + math.prod(shape), dtype=np.float32).reshape(shape)
    there, back = cuda_on_cpu.filled(values), cuda_on_cpu.empty(shape, np.float32)
    to, turned, source = rows.aligned(there), rows.transposed(there), rows.aligned(back, is_result=True)
    for copied, whole in ((to, values), (turned, values.T)):
        copied.copy()
        np.testing.assert_array_equal(copied.array, np.pad(whole, [(0, 0), (0, -whole.shape[1] % 4)]))  # zeros beside
        assert copied.pitch == copied.array.shape[1] and source.pitch == to.pitch
    source.array[...] = to.array
    source.copy()
    np.testing.assert_array_equal(back, values)
    whole = cuda_on_cpu.filled(np.zeros((4, 8), np.float32))
    assert rows.aligned(whole) == rows.Placed(whole, 8)


@pytest.mark.parametrize("size", [(1 << 31, 1, 1), (1, 1 << 31, 1), (1, 1, 1 << 31)])
@pytest.mark.parametrize(("of", "rung", "dtype"), [("", "tiled", "float32"), ("_tensor", "tensor_core", "bfloat16")])
def test_more_rows_than_32_bits_count_are_refused(of, rung, dtype, size, monkeypatch):
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=16)(of, "matmul")
    with pytest.raises(ValueError, match="counted in 32 bits"):
        getattr(module, rung)(Matmul(*size, dtype), None, None)
