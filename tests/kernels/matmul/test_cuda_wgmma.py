"""Our matmul for Hopper without a GPU: descriptors, swizzles and fragments, read off the source and worked out against PTX's
layouts; tensor maps; launches."""

import ctypes
import itertools
import re
import sys
import types

import cuda_on_cpu
import numpy as np
import pytest
from cuda_on_cpu import Encoder
from cuda_sources import DEEP, LINE, PLAIN, TENSOR, WARP, WGMMA, c, found, fragment

from kernels.cuda import loader, matmul_tiles, tiles
from kernels.problems import Matmul


def swizzled(at: int) -> int:
    """Where TMA and wgmma look for a byte under the 128-byte swizzle: bits 4 to 6 are xored with bits 7 to 9 (PTX ISA)."""
    return at ^ (at >> 7 & 7) << 4


def descriptor(at: int, along_k: bool) -> int:
    text = loader.source(WGMMA)
    leading, stride = re.search(r"leading = (.*), stride = (.*);", text).groups()
    names = {"at": at, "along": along_k, "DEEP": DEEP, "LINE": LINE}
    names |= {"leading": c(leading, **names), "stride": c(stride, **names)}
    return c(re.search(r"return (\(\(at .*);", text)[1], **names)


def test_descriptor_fields_lie_where_ptx_wants_them():
    # start address >> 4 in bits 0-13, leading offset >> 4 in 16-29, stride offset >> 4 in 32-45, swizzle 1 (128 bytes) in 62-63
    assert descriptor(0x8420, True) == 0x842 | 1 << 16 | (1024 >> 4) << 32 | 1 << 62
    assert descriptor(0x38000, False) == 0x3800 | (8192 >> 4) << 16 | (1024 >> 4) << 32 | 1 << 62
    assert descriptor(0x1000000 | 0x400, True) & 0x3FFF == 0x40  # an address in a cluster's window keeps its own part


@pytest.mark.parametrize("along_k", [True, False])
def test_wgmma_finds_every_item_where_tma_put_it(along_k):
    step = c(found(WGMMA, r"b \+ i \* \((B_ACROSS .*?)\), step"), B_ACROSS=not along_k, LINE=LINE)
    rows, base = 192, 0x4000
    for i in range(DEEP // 16):
        field = descriptor(base, along_k) + i * step
        start, leading, stride = ((field >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
        for row in range(rows):
            for k in range(16):
                if along_k:  # canonical layouts of the PTX ISA, 128-byte swizzle, items of 2 bytes
                    seen = start + row % 8 * 128 + row // 8 * stride + 2 * k
                    put = base + row * LINE + 2 * (16 * i + k)  # a box of rows lines, 64 of k each
                else:
                    seen = start + 2 * (row % 64) + row // 64 * leading + k % 8 * 128 + k // 8 * stride
                    # boxes of 64 of k, 64 rows each
                    put = base + row // 64 * DEEP * LINE + (16 * i + k) * LINE + 2 * (row % 64)
                assert swizzled(seen) == swizzled(put)


def own_row(row: int) -> int:
    """The operand's row that row 16 w + 8 h + g of A in registers stands for."""
    w, h, g = row // 16, row % 16 // 8, row % 8
    return 32 * h + 4 * w + g // 4 * 16 + g % 4


@pytest.mark.parametrize("width", [128, 64])
def test_results_leave_shared_memory_with_their_bias(width):
    """d of a warpgroup as wgmma's fragment has it, written by stmatrix, read by TMA through the swizzle: the same 64 x 64, or
    64 x 32 in lines of 64 bytes."""
    line, piece = re.search(r"const int line = (.*), piece = (lane / 16);", loader.source(WGMMA)).groups()
    address = found(WGMMA, r'"r"\(to \+ (line \* WIDTH .*? \* 16)\)')
    memory = {}
    for thread in range(128):
        names = {"thread": thread, "lane": thread % 32, "LINE": LINE, "WIDTH": width}
        names |= {"line": c(line, **names), "piece": c(piece, **names)}
        for q in range(width // 32):
            at, lane = c(address, **names, q=q), thread % 32
            for e in range(8):  # the row that this lane addresses is of matrix lane / 8, given by lanes 4 r .. 4 r + 3
                giver, register, half = thread // 32 * 32 + lane % 8 * 4 + e // 2, lane // 8, e % 2
                row, column = fragment(giver, 8 * q + register // 2 * 4 + register % 2 * 2 + half)
                assert memory.setdefault(at + 2 * e, (row, column)) == (row, column)
    at = {(row, column): row * width + 2 * column for row in range(64) for column in range(width // 2)}
    read = {
        of: swizzled(x) if width == 128 else x ^ (x >> 7 & 3) << 4 for of, x in at.items()
    }  # 64 bytes: bits 4 and 5
    assert len(memory) == len(read) and all(memory[x] == of for of, x in read.items())
    text = loader.source(WGMMA).partition("void add_bias")[2]
    start, at = (re.search(rf"{word} (.*);", text)[1] for word in (r"column \+= threadIdx.x", "int at ="))
    r, index = re.search(r"sum = d\[(.*)\]\[(.*)\];", text).groups()
    thread, i, e = np.ogrid[:128, : 192 // 4, : 128 // 32]  # 128 x 192
    own = c(index, i=i, e=e)
    assert (c(at, i=i, column=c(f"thread {start}", thread=thread)) == fragment(thread, own)[1]).all()
    assert len(np.unique(c(r, e=e) * 96 + own)) == 2 * 96, "each once"


def test_four_byte_results_leave_transposed_too():
    text = loader.source(WGMMA)
    along = re.search(r"v = d \+ (.*);\n +const int line = (.*), piece = (.*);\n.*to \+ (.*?)\), \"f\"", text).groups()
    turned = re.search(r"const int line = (.*), piece = (.*);\n.*to \+ (.*)\),\n +\"f\"\(d\[(.*)\]\)", text).groups()
    thread, e = np.ogrid[:128, :16]
    for part in range(4):
        names = {"thread": thread, "lane": thread % 32, "LINE": LINE, "c": part, "e": e - e % 2}
        names |= {"line": c(along[1], **names)}
        names |= {"piece": c(along[2], **names)}
        memory = c(along[3], **names) + 4 * (e % 2), *fragment(thread, c(along[0], **names) + e % 2)
        names |= {"e": e, "line": c(turned[0], **names | {"e": e})}
        names |= {"piece": c(turned[1], **names)}
        row, column = fragment(thread, c(turned[3], **names))
        for at, line, item in (
            (*memory[:2], memory[2] - 32 * part),
            (c(turned[2], **names), column - part // 2 * 64, own_row(row) - part % 2 * 32),
        ):
            assert (at == swizzled(line * LINE + 4 * item)).all() and len(np.unique(at)) == 128 * 16


def test_a_across_k_enters_registers_from_different_banks():
    row, k, piece = re.search(
        r"const int row = (.*), k = (.*), piece = (.*);\n +asm.*ld.shared", loader.source(WGMMA)
    ).groups()
    address = found(WGMMA, r'"r"\(at \+ (\(row \+ 8 \* i .*?)\) : "memory"\);\n +}\n +}')
    for i, r, e in itertools.product(range(4), range(2), range(4)):
        seen = []
        for thread in range(128):
            names = {"thread": thread, "g": thread % 32 // 4, "i": i, "r": r, "e": e, "LINE": LINE}
            names |= {"row": c(row, **names), "k": c(k, **names)}
            names |= {"piece": c(piece, **names)}
            seen.append(c(address, **names))
            # a0, a2: row g; a1, a3: g + 8; a2, a3: k + 4
            of = 64 * r + own_row(thread // 32 * 16 + thread % 32 // 4 + e % 2 * 8)
            # boxes of 32 of k, 32 rows each
            put = of // 32 * 32 * LINE + (8 * i + thread % 4 + e // 2 * 4) * LINE + 4 * (of % 32)
            assert seen[-1] == swizzled(put)
        assert all(len({at // 4 % 32 for at in seen[w : w + 32]}) == 32 for w in range(0, 128, 32))


@pytest.mark.parametrize(("consumers", "pieces", "blocks"), [(2, 2, 2), (1, 2, 2), (2, 1, 2), (2, 4, 4), (2, 2, 3)])
def test_clusters_along_k_add_each_piece_once(consumers, pieces, blocks):
    text = loader.source("matmul/cuda_wgmma")
    adder, place = (
        re.search(r"int adder\(.*return (.*); }", text)[1],
        re.search(r"int sent_to\(.*\n +return (.*);", text)[1],
    )
    order = re.search(r"sent_to\(consumer, piece, (own - .*)\) \+ thread", text)[1]
    names = {
        "PIECES": pieces,
        "CLUSTER_K": blocks,
        "PIECE_BYTES": 16384,
        "OWN_PIECES": -(-consumers * pieces // blocks),
    }
    got: dict[int, dict] = {
        block: {} for block in range(blocks)
    }  # by the adding block: place -> (consumer, piece, sender)
    for consumer, piece, own in itertools.product(range(consumers), range(pieces), range(blocks)):
        of = {**names, "consumer": consumer, "piece": piece}
        to = c(adder, **of)
        if to != own:
            at = c(place, **of, other=c(order, own=own, to=to))
            assert got[to].setdefault(at, (consumer, piece, own)) == (consumer, piece, own), "two in one place"
    for block, sent in got.items():
        own = {(x, y) for x, y, _ in sent.values()}
        assert 0 < len(own) <= names["OWN_PIECES"] and len(sent) == len(own) * (blocks - 1)
        for x, y in own:  # as they are read: of the first other, the second ..
            read = [sent[c(place, **names, consumer=x, piece=y, other=i)] for i in range(blocks - 1)]
            assert read == [(x, y, i) for i in range(blocks) if i != block]


def test_parts_within_a_cluster_are_sent():
    # in a cluster each of two blocks sends half of 65,536 bytes by 14 a cycle; lines across two of the L2's come by 30 a cycle,
    # and two blocks below each other load half of B each
    near = matmul_tiles.Groups(
        consumers=2, rows=64, columns=128, stages=6, staged=2, cluster_m=2, cluster_n=1, pingpong=0, cluster_k=2
    )
    stage = {True: 512 + 0.07 * 192 * 2 + 64, False: 192 * 128 / 30 + 0.07 * 192 * 2 + 64}
    for aligned, each in stage.items():
        estimated = tiles.TilePlan(tiles=near, parts=2).cycles(256, 128, 1024, 132, aligned=aligned)
        assert estimated == pytest.approx(8 * each + 512 + 32768 / 14 + 2 * 1500)
    assert (near.slots(132), [*near.parts(16)], [*near.parts(1)]) == (60, [2], [])


FEW = [((7, 1001, 999), "1 Groups 2 Direct 1 Tensors"), ((1, 1001, 999), "3 Direct 1 Tensors")]
FEW += [((64, 1001, 999), "2 Groups 2 Tensors"), ((65, 1001, 999), "4 Groups"), ((7, 1008, 1000), "2 Groups 2 Direct")]


@pytest.mark.parametrize(("shape", "kinds"), FEW)
def test_few_rows_are_read_without_copies_too(shape, kinds, monkeypatch):
    module = cuda_on_cpu.bindings(monkeypatch, multiprocessors=132)("_wgmma", "matmul")
    monkeypatch.setattr(
        module, "fastest_plan", lambda file, problem, plans, call: [type(x.tiles).__name__ for x in plans]
    )
    problem = Matmul(*shape, "bfloat16")
    tried = module.wgmma(problem, *(cuda_on_cpu.empty(s, np.uint16) for s in problem.operand_shapes))
    assert " ".join(f"{len([*same])} {kind}" for kind, same in itertools.groupby(tried)) == kinds


def test_four_byte_forms_have_whole_parts_and_registers():
    for layout in ("nt", "tt"):
        every = matmul_tiles.groups(layout, 4)
        assert len(every) > 9 and all(of.staged % 2 == 0 and of.shared_bytes <= 232448 for of in every)
    through = {str(of) for of in matmul_tiles.groups("tt", 4)}
    missing = {(of.rows, of.columns) for of in matmul_tiles.groups("nt", 4) if str(of) not in through}
    assert missing == {(128, 192), (64, 96), (64, 160), (128, 160)}, "too many sums; and parts of 32 columns"


@pytest.mark.parametrize("wgmma", [WGMMA, "conv/cuda_wgmma"])
def test_every_wait_gives_up(wgmma):
    text = loader.source(wgmma)
    wait = re.search(r"__device__ void wait\(.*?\n}", text, re.DOTALL)[0]
    assert text.count("try_wait") == wait.count("try_wait") == 2 and "while (" not in text
    assert wait.index("bra AGAIN") < wait.index("trap;") and "setp.lt.u64 early, now, 4000000000;" in wait
    for path in (WARP, TENSOR, PLAIN):
        assert "try_wait" not in loader.source(path) and "while (" not in loader.source(path)


def test_a_tensor_map_counts_columns_first(monkeypatch):
    driver = Encoder()
    monkeypatch.setattr(loader, "_driver", lambda: driver)
    loader.tensor_map(0x7000, (100, 30), 32, (64, 32))
    assert driver.asked[4:] == ([64], [32, 64], [1, 1], (0, 2, 2, 0))  # lines of 64 bytes have a swizzle of their own
    made = loader.tensor_map(0x7000, (100, 30), 32, (128, 64))
    # 16-bit items, two dimensions, no interleave, 128-byte swizzle, 128 bytes into the L2, zeros outside
    assert driver.asked == (1, 2, 0x7000, [30, 100], [64], [64, 128], [1, 1], (0, 3, 2, 0))
    # CuPy passes arrays of one item by value
    assert made.size == 1 and made.nbytes == 128 and made.tobytes() == b"\x5a" * 128
    monkeypatch.setattr(loader, "_driver", lambda: Encoder(1))
    with pytest.raises(ValueError, match="cuTensorMapEncodeTiled: error 1"):
        loader.tensor_map(0x7000, (100, 30), 32, (64, 64))
    for address, pitch in ((0x7008, 32), (0x7000, 33), (0x7000, 24)):  # rows that do not begin on 16 bytes
        with pytest.raises(ValueError, match="TMA needs rows on 16 bytes"):
            loader.tensor_map(address, (100, 30), pitch, (64, 64))


def test_driver_numbers_match_its_bindings():
    driver = pytest.importorskip("cuda.bindings.driver", reason="cuda-bindings is not installed (extra dev)")
    assert (
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_UINT16.value,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE.value,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B.value,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B.value,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE.value,
    ) == (loader.UINT16, *loader.swizzle(128))
    launch, attribute = loader._Launch, loader._Attribute
    places = (ctypes.sizeof(launch), launch.stream.offset, launch.attributes.offset, launch.count.offset)
    assert (*places, ctypes.sizeof(attribute), attribute.value.offset) == (56, 32, 40, 48, 72, 8)
    ids = driver.CUlaunchAttributeID
    known = ids.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION.value
    assert known == loader._PROGRAMMATIC_STREAM_SERIALIZATION


class Launcher:
    """Stands for libcuda: keeps what it was asked to launch, read while its addresses are good."""

    def __init__(self, answer: int = 0):
        self.answer, self.asked = answer, []

    def cuLaunchKernelEx(self, launch, function, addresses, extra):
        of, words = launch._obj, (ctypes.c_int64, ctypes.c_int32, ctypes.c_float, ctypes.c_uint8 * 128)
        values = [words[i].from_address(addresses[i]) for i in range(4)]
        how = of.attributes[0]
        shape = (of.grid_x, of.grid_y, of.grid_z, of.block_x, of.block_y, of.block_z)
        launch = (*shape, of.shared_bytes, of.stream, of.count)
        given = (*(v.value for v in values[:3]), bytes(values[3]))
        self.asked.append((launch, (how.id, how.value), function.value, *given, extra))
        return self.answer


@pytest.fixture
def launcher(monkeypatch):
    """Gives a launch of 12 blocks of 384 threads, its driver, and who says which stream is current."""
    array = type("ndarray", (), {"data": types.SimpleNamespace(ptr=0x7F0000001000)})
    current = types.SimpleNamespace(ptr=5)
    of_cuda = types.SimpleNamespace(get_current_stream=lambda: current)
    monkeypatch.setitem(sys.modules, "cupy", types.SimpleNamespace(ndarray=array, cuda=of_cuda))

    def make(answer: int = 0):
        driver = Launcher(answer)
        monkeypatch.setattr(loader, "_driver", lambda: driver)
        compiled = types.SimpleNamespace(kernel=types.SimpleNamespace(ptr=0xF00))
        box = np.frombuffer(b"\x5a" * 128, "V128")
        given = (array(), np.int32(-7), np.float32(1.5), box)
        return loader.overlapping(compiled, 12, 384, given, 9000), driver, current

    return make


def test_a_launch_passes_its_arguments_and_overlaps(launcher):
    run, driver, current = launcher()
    run()
    current.ptr = 77  # another stream is current at the next call
    run()
    of, *rest = zip(*driver.asked, strict=True)
    assert of == ((12, 1, 1, 384, 1, 1, 9000, 5, 1), (12, 1, 1, 384, 1, 1, 9000, 77, 1))
    assert [x[1] for x in rest] == [(6, 1), 0xF00, 0x7F0000001000, -7, 1.5, b"\x5a" * 128, None]


def test_a_launch_that_the_driver_refuses_is_said(launcher):
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx: error 701"):
        launcher(701)[0]()


def test_who_overlaps_waits_before_it_touches_memory():
    """The next kernel may be asked for at once; what the one before wrote is there only after the wait."""
    text = loader.source(WGMMA)
    body = text[text.index("\nmatmul(") :]
    assert body.count("griddepcontrol.wait;") == text.count("griddepcontrol.wait;") == 1
    # all threads: those that load and those that store
    assert body.index("griddepcontrol.wait;") < body.index("if (team == 0)")
