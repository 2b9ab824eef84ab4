"""Tiles of products: what they take and how long they last, by hand."""

import pytest

from kernels.cuda import matmul_tiles
from kernels.cuda.matmul_tiles import Groups, Tensors, Warps

WARPS = Warps(
    tile_m=64, tile_n=128, warp_m=64, warp_n=32, deep=16, thread_m=8, thread_n=8, stages=4, slices=1, blocks=4
)
DEEP = Warps(tile_m=64, tile_n=64, warp_m=32, warp_n=32, deep=32, thread_m=4, thread_n=8, stages=3, slices=1, blocks=4)
TENSORS = Tensors(tile_m=64, tile_n=128, warp_m=64, warp_n=32, line=128, stages=3, blocks=2)
GROUPS = Groups(consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=1, cluster_n=1)


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
