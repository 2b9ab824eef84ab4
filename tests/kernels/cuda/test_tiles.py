"""The cost models that rank tiles of CUDA kernels, and what each tile takes: worked out by hand on tiles with unequal sides."""

import pytest

from kernels.cuda import tiles
from kernels.cuda.matmul_tiles import Groups, Tensors
from kernels.cuda.tiles import TilePlan

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
