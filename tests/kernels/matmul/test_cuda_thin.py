"""Our matmul for few rows without a GPU: where its sums go, read off the source and worked out against PTX's layouts; its tiles,
their model, and what it loads."""

import itertools
import math
import re

import cuda_on_cpu
import numpy as np
import pytest
from cuda_on_cpu import Encoder
from cuda_sources import c, fragment
from msgspec.structs import replace
from nvrtc import spilled

from kernels.cuda import loader, thin_tiles
from kernels.cuda.thin_tiles import Thin
from kernels.problems import Matmul

FILE = "matmul/cuda_thin"
#: Halves of a 1,024-column product in clusters of two.
HALVED = Thin(consumers=1, rows=64, columns=16, cluster_k=2, stages=20)


@pytest.mark.parametrize(("sums", "cluster_k", "expected"), [(8, 2, 4), (8, 8, 1), (32, 4, 8)])
def test_every_block_adds_as_many_sums(sums, cluster_k, expected):
    text = re.search(r"constexpr int SHARE = (.*?);", loader.source(FILE))[1]
    assert c(text, THREAD_SUMS=sums, CLUSTER_K=cluster_k) == expected
    form = Thin(consumers=2, rows=64, columns=2 * sums, cluster_k=cluster_k)
    assert form.share_bytes == expected * 256 * 4


@pytest.mark.parametrize(("consumers", "each", "cluster_k"), [(1, 4, 2), (2, 16, 4), (3, 2, 4)])
def test_other_blocks_sums_have_their_places(consumers, each, cluster_k):
    text = loader.source(FILE)
    width = 4 if each % 4 == 0 else 2
    place = re.search(r"int share_at\(.*return (.*); }", text)[1]
    order = re.search(r"share_at\((rank - .*?), q, thread\)", text)[1]
    names = {"SHARE": each, "WIDTH": width, "THREADS": 128 * consumers}
    for to in range(cluster_k):
        others = [c(order, rank=rank, to=to) for rank in range(cluster_k) if rank != to]
        assert others == [*range(cluster_k - 1)]
        places = itertools.product(others, range(each // width), range(128 * consumers))
        begins = sorted(c(place, other=other, q=q, thread=thread, **names) for other, q, thread in places)
        assert begins == [*range(0, (cluster_k - 1) * each * 128 * consumers * 4, width * 4)]


@pytest.mark.parametrize(("rows", "columns"), [(64, 16), (128, 32), (64, 64)])
def test_every_result_is_stored_once(rows, columns):
    text = loader.source(FILE).partition("void store(")[2]
    lower = re.search(r"lower = (.*);", text)[1]
    line = re.search(r"#else\n +const int line = (.*);", text)[1]
    at_n, at_m = re.search(r"at_n = column \+ (.*), at_m = (.*);", text).groups()
    stored = {}
    for thread, sum_ in itertools.product(range(128), range(rows // 64 * columns // 2)):
        names = {"COLUMNS": columns, "sum": sum_, "e": sum_ % (columns // 2)}
        names |= {"warp": thread // 32, "lane": thread % 32, "g": thread % 32 // 4}
        names |= {"lower": c(lower, **names)}
        names |= {"line": c(line, **names)}
        place = (c(at_n, **names), c(at_m, **names))
        many, few = fragment(thread, names["e"])
        assert place == (many + sum_ // (columns // 2) * 64, few)
        stored[place] = thread
    assert len(stored) == rows * columns


def test_what_tiles_take():
    """A stage is 64 + 16 lines of 128 bytes; each block sends half of 64 x 16 sums of four bytes to the other."""
    assert (HALVED.tile, HALVED.threads, HALVED.stage_bytes, HALVED.share_bytes) == ((16, 64), 160, 10240, 2048)
    assert HALVED.shared_bytes == 20 * (10240 + 16) + 16 + 2048
    assert HALVED.filled().stages == 22
    for m, item_bytes in itertools.product((1, 17, 64), (2, 4)):
        for form in thin_tiles.forms(m, 4096, item_bytes):
            assert form.shared_bytes <= 232448 < form.shared_bytes + form.stage_bytes + 16
            assert form.columns >= m and form.stages >= 4
    assert {form.cluster_k for form in thin_tiles.forms(8, 192, 2)} == {1, 2}, "no block without a part of k"


def test_clusters_are_limited_by_tiles_and_hardware():
    assert [HALVED.clusters(n, 132) for n in (64, 65, 66 * 64, 6400)] == [1, 2, 66, 66]
    assert [replace(HALVED, cluster_k=size).clusters(100_000, 132) for size in (1, 2, 4, 8)] == [132, 66, 30, 15]


@pytest.mark.parametrize(("columns", "rounds"), [(1024, 1), (6400, 2)])
def test_the_model_adds_start_stages_and_exchange(columns, rounds):
    """16 tiles of 64 columns are one round of 66 clusters, 100 are two. A block has 8 of a tile's 16 stages, of 10.24 kB, and
    sends 2.048 kB of sums in each round."""
    stages = 8 * rounds
    multiprocessor = stages * thin_tiles.STAGE_MICROSECONDS + stages * 10.24 / thin_tiles.READ_KB_PER_MICROSECOND
    memory = columns * 2.048 / thin_tiles.MEMORY_KB_PER_MICROSECOND
    exchange = rounds * thin_tiles.EXCHANGE_MICROSECONDS + rounds * 2.048 / thin_tiles.SEND_KB_PER_MICROSECOND
    expected = thin_tiles.START_MICROSECONDS + math.hypot(multiprocessor, memory) + exchange
    assert HALVED.microseconds(columns, 1024, multiprocessors=132, item_bytes=2) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("shape", "fastest"),
    [
        # (warpgroups, columns of each, blocks of a cluster) that were the fastest on an H200
        ((64, 8192, 8192), (2, 64, 2)),
        ((16, 4096, 1024), (1, 64, 1)),
        ((8, 28672, 8192), (2, 128, 1)),
    ],
)
def test_the_model_chooses_the_fastest(shape, fastest):
    tiles = thin_tiles.chosen(*shape, multiprocessors=132, item_bytes=2)
    assert (tiles.consumers, tiles.rows, tiles.cluster_k) == fastest


@pytest.mark.parametrize(
    ("shape", "dtype", "layout", "reason"),
    [
        ((65, 4096, 512), "bfloat16", "nn", "64 rows at most in nn or nt"),
        ((8, 4096, 512), "bfloat16", "tn", "64 rows at most in nn or nt"),
        ((8, 4092, 512), "bfloat16", "nn", "rows on 16 bytes"),
        ((8, 4096, 508), "bfloat16", "nt", "rows on 16 bytes"),
        ((8, 4096, 512), "float32", "nn", "tf32, float16 and bfloat16, not float32"),
    ],
)
def test_what_it_cannot_do_it_says(shape, dtype, layout, reason, monkeypatch):
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=132)("_thin", "matmul")
    problem = Matmul(*shape, dtype, layout=layout)
    operands = [cuda_on_cpu.empty(s, np.uint16 if dtype == "bfloat16" else np.float32) for s in problem.operand_shapes]
    with pytest.raises(ValueError, match=reason):
        module.thin(problem, *operands)


@pytest.mark.parametrize(
    ("layout", "b_map"),
    [
        # (columns, rows) of the matrix, bytes of a row, (columns, rows) of a box
        ("nn", ([4096, 512], [8192], [64, 64])),
        ("nt", ([512, 4096], [1024], [64, 128])),
    ],
)
def test_what_is_loaded_and_launched(layout, b_map, monkeypatch):
    """32 tiles of 128 columns in clusters of two."""
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=132)("_thin", "matmul")
    encoded, launched, macros = [], [], {}

    class Recorder(Encoder):
        def _encode(self, *arguments):
            answer = super()._encode(*arguments)
            encoded.append(self.asked[3:6])
            return answer

        cuTensorMapEncodeTiled = _encode

    def load(file, kernel, **named):
        macros.update(named)
        return Function(lambda grid, block, arguments: launched.append((grid, block, arguments)))

    driver = Recorder()
    monkeypatch.setattr(loader, "_driver", lambda: driver)
    monkeypatch.setattr(loader, "compile_kernel", load)
    tiles = replace(HALVED, consumers=2)
    monkeypatch.setattr(thin_tiles, "chosen", lambda *sizes, **more: tiles)
    problem = Matmul(16, 4096, 512, "bfloat16", layout=layout)
    run = module.thin(problem, *(cuda_on_cpu.empty(s, np.uint16) for s in problem.operand_shapes))
    assert run().shape == (16, 4096)
    assert encoded == [b_map, ([512, 16], [1024], [64, 16])]
    assert macros["B_STORED_KN"] == (layout == "nn")
    ((blocks,), (threads,), arguments) = launched[0]
    assert (blocks, threads, *arguments[3:]) == (64, 288, 16, 4096, 512)


class Function:
    """A compiled kernel that records its launches."""

    def __init__(self, call):
        self.call = call
        self.max_dynamic_shared_size_bytes = 0

    def __call__(self, *arguments):
        return self.call(*arguments)


HUNGRIEST = [
    ('"bf16"', 0, {"CONSUMERS": 3, "ROWS": 64, "COLUMNS": 64, "STAGES": 6}),
    ('"bf16"', 0, {"CONSUMERS": 2, "ROWS": 128, "COLUMNS": 64, "STAGES": 4}),
    ('"tf32"', 1, {"CONSUMERS": 2, "ROWS": 128, "COLUMNS": 64, "STAGES": 5}),
]


@pytest.mark.parametrize(("type_", "tf32", "form"), HUNGRIEST)
def test_no_register_spills(type_, tf32, form):
    more = {"CLUSTER_K": 4, "B_STORED_KN": 1}
    assert spilled(FILE, {"TYPE": type_, "TF32": tf32, **form, **more}) == 0
