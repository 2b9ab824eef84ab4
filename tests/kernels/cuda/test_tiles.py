"""The cost models that rank tiles of CUDA kernels, and what each tile takes: worked out by hand on tiles with unequal sides."""

import pytest

from kernels.cuda import conv_tiles, matmul_tiles, tiles
from kernels.cuda.matmul_tiles import Groups, Tensors, Warps
from kernels.cuda.tiles import TilePlan
from kernels.problems import Conv

WARPS = Warps(
    tile_m=64, tile_n=128, warp_m=64, warp_n=32, deep=16, thread_m=8, thread_n=8, stages=4, slices=1, blocks=4
)
DEEP = Warps(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=3, slices=1, blocks=4)
TENSORS = Tensors(tile_m=64, tile_n=128, warp_m=64, warp_n=32, line=128, stages=3, blocks=2)
GROUPS = Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1)
CLUSTER = Groups(
    consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=2, cluster_n=1, pingpong=0, cluster_k=2
)


def test_tiles_cover_a_product():
    """300 x 100 in tiles of 64 x 128 are five rows of one; 1,000 x 300 in clusters of 256 x 128 four rows of three."""
    assert (TENSORS.count(300, 100), TENSORS.group(), TENSORS.threads, TENSORS.slots(132)) == (5, 32, 128, 264)
    assert (CLUSTER.count(1000, 300), CLUSTER.group(), CLUSTER.threads) == (12, 8, 384)
    assert (CLUSTER.cluster, CLUSTER.sharing, CLUSTER.in_cluster, [*CLUSTER.parts(16)]) == (4, 2, True, [2])
    assert (CLUSTER.shares(), CLUSTER.slots(132)) == ((128, 64), 60)  # 30 clusters of four at once, of two parts
    assert Groups(consumers=2, rows=64, columns=256, stages=4, staged=2, cluster_m=2, cluster_n=1).slots(
        132
    ) == 66 and [*GROUPS.parts(3)] == [1, 2, 3]
    assert (
        Groups(consumers=2, rows=128, columns=192, stages=4, staged=2, cluster_m=1, cluster_n=1, pingpong=1).tile
        == (128, 192)
        != Groups(consumers=2, rows=128, columns=192, stages=4, staged=2, cluster_m=1, cluster_n=1).tile
        == (256, 192)
    )
    assert tiles.traffic(2, (64 + 128, 64 * 128), (8 + 4, 8 * 4)) == "0.023 L2, 0.38 shared"


@pytest.mark.parametrize(
    ("of", "nbytes"),
    [
        (WARPS, 4 * 4 * 16 * (68 + 132)),
        (
            Warps(
                tile_m=128,
                tile_n=256,
                warp_m=64,
                warp_n=64,
                deep=4,
                thread_m=8,
                thread_n=16,
                stages=2,
                slices=2,
                blocks=1,
            ),
            4 * 128 * 256,
        ),  # the sums of half of the slices
        (
            Groups(consumers=2, rows=64, columns=160, stages=5, staged=1, cluster_m=1, cluster_n=1),
            5 * ((128 + 192) * 128 + 16) + 2 * 8192,
        ),
    ],
)
def test_bytes_of_shared_memory(of, nbytes):
    assert of.shared_bytes == nbytes


@pytest.mark.parametrize(
    ("layout", "nbytes", "registers"),
    [
        ("nn", 3 * (64 * 144 + 128 * 136), 32 + 4 * 4 + 2 * 8 + 8),
        ("nt", 3 * (64 * 144 + 128 * 144), 32 + 4 * 4 + 4 * 8 + 8),
        ("tn", 3 * (128 * 72 + 128 * 136), 32 + 2 * 4 + 2 * 8 + 8),
    ],
)
def test_a_layout_sets_padding_and_registers(layout, nbytes, registers):
    assert TENSORS.shared_bytes(layout, 2) == nbytes
    assert DEEP.registers(layout) == registers
    assert WARPS.registers(layout) == 64 + 16 + 16 + 8  # a short stage: two of k, whatever the layout


def test_as_many_blocks_as_there_are_registers_for():
    """64 x 128 in 256 threads: 120 registers are there twice, 136 once."""
    assert [matmul_tiles.warps(layout)[4].blocks for layout in ("nn", "nt")] == [2, 1]
    assert [of.blocks for of in matmul_tiles.warps("nn")[:4]] == [1, 3, 4, 4]
    assert matmul_tiles.warps("nn", single=False)[3].blocks == 8
    assert [of.by_items().blocks for of in (WARPS, matmul_tiles.WARPS[0])] == [3, 1]


@pytest.mark.parametrize(
    ("of", "share", "cycles"),
    [
        (WARPS, (10, 20, 1, 3), 4 * (20 * 1235.2 + 128)),
        (WARPS, (1, 20, 1, 3), 20 * 1235.2 * 1.3 + 128),  # four warps where 5.2 keep it busy
        (WARPS, (10, 20, 2, 3), 7 * (20 * 1235.2 + (512 + 3 * 512 + 1500) / 4)),
        (TENSORS, (5, 10, 1, 4), 10 * 1024 + 1024),
        (TENSORS, (1, 10, 1, 4), 10 * 750 + 512),  # stages arrive no faster
        (TENSORS, (5, 10, 2, 4), 10 * 1536 + 1536 + 3 * 1536 + 3000),
        (GROUPS, (200, 16, 1, 132), 2 * (16 * 611.84 + 512)),
        (GROUPS, (50, 16, 2, 132), 16 * 611.84 + 512 + 3072 + 4 * 1500),
        (
            Groups(consumers=2, rows=128, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1, pingpong=1),
            (100, 16, 1, 132),
            16 * (640 + 99.84) + 128,
        ),  # ping-pong, alone
        (
            Groups(
                consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1, pingpong=0, cluster_k=2
            ),
            (30, 16, 2, 132),
            16 * 611.84 + 512 + 32768 / 14 + 3000,
        ),
    ],
)
def test_cycles_by_the_models(of, share, cycles):
    """A stage of WARPS: 1,024 cycles of multiply-adds, 19.4 % for loads and 1.25 % for waiting. Of TENSORS: 512 of products. Of
    GROUPS: 512 of products, 35.84 for power, 64 for barriers."""
    assert of.cycles(*share) == pytest.approx(cycles)


def test_lines_that_lie_across_two_arrive_later():
    stage = 32768 / 30 + 35.84 + 64
    assert GROUPS.cycles(200, 16, 1, 132, aligned=False) == pytest.approx(2 * (16 * stage + 512))


def test_a_split_plan_has_whole_tiles_first():
    """1,280 x 1,280 are 100 tiles: 64 fill all multiprocessors, the other 36 are split in two."""
    plan = TilePlan(tiles=GROUPS, parts=2)
    assert (plan.steps(1000), TilePlan(tiles=GROUPS).steps(1000)) == (8, 16)
    assert [plan.leaves_none_empty(k) for k in (64, 65, 1000)] == [False, True, True]
    assert (plan.whole(1280, 1280, 64), plan.units(1280, 1280, 64)) == (64, 136)
    assert (TilePlan(tiles=GROUPS).whole(1280, 1280, 64), TilePlan(tiles=GROUPS).units(1280, 1280, 64)) == (100, 100)
    assert (
        TilePlan(tiles=CLUSTER, parts=2).whole(1280, 1280, 64),
        TilePlan(tiles=CLUSTER, parts=2).units(1280, 1280, 64),
    ) == (0, 100)
    whole, rest = GROUPS.cycles(64, 16, 1, 64), GROUPS.cycles(36, 8, 2, 64)
    assert plan.cycles(1280, 1280, 1000, 64) == pytest.approx(whole + rest)
    assert (str(plan), str(TilePlan(tiles=GROUPS))) == (f"{GROUPS} split-k=2", str(GROUPS))


def test_few_plans_and_two_per_tile_are_timed():
    wide, tall = (
        Tensors(tile_m=32, tile_n=64, warp_m=16, warp_n=32, line=128, stages=4, blocks=3),
        Tensors(tile_m=64, tile_n=32, warp_m=16, warp_n=32, line=128, stages=4, blocks=3),
    )
    costs = {
        TilePlan(tiles=wide): 5.0,
        TilePlan(tiles=wide, parts=2): 3.0,
        TilePlan(tiles=tall): 1.0,
        TilePlan(tiles=tall, parts=2): 2.0,
    }
    forms = [
        [TilePlan(tiles=wide), TilePlan(tiles=wide, parts=2)],
        [],
        [TilePlan(tiles=tall, parts=2), TilePlan(tiles=tall)],
        [TilePlan(tiles=wide)],
        [TilePlan(tiles=wide)],
    ]
    assert tiles.best_plans(forms, costs.__getitem__) == [
        TilePlan(tiles=tall),
        TilePlan(tiles=wide, parts=2),
        TilePlan(tiles=wide),
    ]


@pytest.mark.parametrize(
    ("m", "n", "k", "parts"),
    [
        (50, 70, 32, [1]),  # a short sum
        (3, 1000, 4096, [16, 1, 1]),
        (1000, 6, 4096, [16, 1]),
        (3, 1000, 512, [2, 1, 1]),  # at least 16 of k a thread
        (9, 1000, 4096, []),
        (3, 1000, 1 << 15, []),
        (1 << 16, 1 << 15, 8, []),
    ],
)
def test_thin_products_are_split_over_few_blocks(m, n, k, parts):
    assert [plan.parts for plan in matmul_tiles.direct(m, n, k, 132)] == parts


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
