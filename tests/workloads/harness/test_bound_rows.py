"""What a worker keeps between visits: which rows are let go, and that shared data is N(0,1) at places that stay."""

import inspect
import pathlib
import types

import msgspec
import numpy as np
import planting
import pytest

from kernels import registry
from kernels.problems import Conv, Matmul, Stream, Transfer
from workloads import ROOT
from workloads.harness import bound_rows, one_row
from workloads.harness.timing import Limits
from workloads.harness.worker import Order
from workloads.records import Row, Settings

LIMITS = Limits(visit_s=1e-4, rounds=2)
COUNTING = '''
BINDS = []

@kernel
def counting(problem, a, b):
    """A right product that counts how often it is bound, and to what."""
    BINDS.append((a, b))

    def run():
        return a @ b

    run.notes = {"bound": str(len(BINDS))}
    return run

@kernel
def hungry(problem, a, b):
    """Out of memory while another row is kept."""
    from workloads.harness import bound_rows

    if bound_rows._rows:
        raise MemoryError
    return lambda: a @ b

@kernel
def wrong(problem, a, b):
    """Off by one."""
    return lambda: a @ b + 1
'''
planted = planting.kernels_from("kept", COUNTING)


@pytest.fixture(autouse=True)
def nothing_kept(monkeypatch):
    monkeypatch.setattr(one_row, "_known", {})
    bound_rows.clear()
    bound_rows._values.clear()
    yield
    bound_rows.clear()
    bound_rows._values.clear()


def row(n: int, variant: str = "counting", **settings) -> Row:
    return Row(f"matmul/numpy/{variant}", Matmul(n, n, n), Settings(**{"threads": 1, **settings}))


def visited(of: Row, number: int = 1):
    return one_row.obey(Order("visit", of, LIMITS, 1, number))


def test_the_result_is_checked_at_the_first_visit(planted, monkeypatch):
    checks, checked = [], one_row.checked
    monkeypatch.setattr(one_row, "checked", lambda *given: checks.append(given[1]) or checked(*given))
    monkeypatch.setattr(one_row.timing, "host", lambda run: lambda calls: (run(), calls * 1e-6)[1])  # under any load
    moments = iter((100.004, 100.016, 101.0))
    monkeypatch.setattr(one_row, "moment", moments.__next__)
    one, two = visited(row(8), 1), visited(row(8), 2)
    assert (one.status, one.visit, two.status, two.visit) == ("ok", 1, "ok", 2) and len(checks) == 1
    assert (one.check, two.check) == ("exact", "") and "first_call" in one.phases_s and two.phases_s == {}
    assert one.notes["bound"] == two.notes["bound"] == "2"  # once for the check, once to be timed
    assert set(one.samples[0].block) == set(two.samples[0].block) == {0}
    assert (one.series["visit_at_s"], two.series["visit_at_s"]) == ((100.0,), (100.02,))  # to a hundredth of a second
    bound_rows.clear()
    three = visited(row(8), 3)
    assert three.notes["bound"] == "3" and len(checks) == 1 == len({m.samples[0].calls for m in (one, two, three)})


def test_a_planted_kernel_stands_outside_the_project(planted):
    kernel = registry.find("matmul/numpy/counting")
    assert not pathlib.Path(inspect.getsourcefile(inspect.unwrap(kernel.bind))).is_relative_to(ROOT)
    assert not [*registry.FOLDER.rglob("*_planted.py")]


def test_a_whole_row_joins_its_visits(planted):
    m = one_row.obey(Order("measure", row(8), LIMITS))
    assert (m.visit, m.visits, m.check, m.samples[0].stop_reason) == (0, 2, "exact", "2 visits")
    assert set(m.samples[0].block) == {0, 1}


def test_a_row_out_of_memory_retries_alone(planted):
    visited(row(8))
    assert visited(row(8, "hungry")).status == "ok" and bound_rows.find(row(8).key) is None
    one, two = visited(row(8, "wrong"), 1), visited(row(8, "wrong"), 2)
    assert (one.status, two.status, one.samples, two.samples) == ("wrong", "wrong", (), ())
    assert one.max_error == 1.0 and bound_rows.find(row(8, "wrong").key) is None


def sized(nbytes: int, **settings) -> Row:
    return Row("stream/numba/loop", Stream("copy", nbytes), Settings(**settings))


def test_the_least_recently_used_go_first():
    a, b, c, d = rows = [sized(1000 * n) for n in (96, 104, 80, 8)]
    for one in (a, b):
        bound_rows.make_room(one, lambda where: 1_000_000)
        bound_rows.keep(one, one.key)
    assert bound_rows.find(a.key) == a.key and bound_rows.find(d.key) is None  # b is the oldest now
    bound_rows.make_room(c, lambda where: 920_000)  # 200 kB are held: 280 are a quarter of 1120
    bound_rows.keep(c, c.key)
    assert [one.key in bound_rows._rows for one in rows] == [True, True, True, False]
    bound_rows.make_room(d, lambda where: 840_000)  # 280 held: 288 are more than a quarter of 1120, 184 are not
    assert [one.key in bound_rows._rows for one in rows] == [True, False, True, False]
    bound_rows.keep(sized(960), 1)
    bound_rows.make_room(sized(10**6), lambda where: 10**6)
    assert not bound_rows._rows
    gpu, copies, tf = sized(960, device="gpu:0"), sized(960, device="gpu:0", mode="roundtrip"), sized(960)
    tf = msgspec.structs.replace(tf, kernel="stream/tensorflow/function", settings=Settings("gpu:0"))
    assert bound_rows._device_needs(gpu) == {"gpu:0": 960} and bound_rows._device_needs(copies) == {
        "cpu": 960,
        "gpu:0": 960,
    }
    assert bound_rows._device_needs(tf) == {"cpu": 960}
    transfer = Row("transfer/cupy/memcpy", Transfer("h2d", 500, "pinned"), Settings("gpu:0"))
    assert bound_rows._device_needs(transfer) == {"cpu": 500, "gpu:0": 500}
    bound_rows.keep(sized(960), 1)
    bound_rows.make_room(gpu, lambda where: {"cpu": 0, "gpu:0": 10**6}[where])
    assert bound_rows._rows, "what lies on the host is not in the GPU's way"


@pytest.mark.parametrize(
    "problem",
    [
        Matmul(17, 33, 65),
        Matmul(16, 16, 16, "bfloat16"),
        Conv(2, 8, 8, 3, 4, 3, 3),
        Stream("adam", 1 << 16),
        Stream("maxpool_grad", 1 << 20),
    ],
    ids=lambda p: f"{p.op} {p.dtype}",
)
def test_shared_inputs_are_as_the_problems_own(problem):
    own, shared = problem.inputs(1), bound_rows.inputs(problem, 1)
    assert [(x.shape, x.dtype) for x in shared] == [(x.shape, x.dtype) for x in own]
    assert [x.ctypes.data % 4096 for x in shared] == [x.ctypes.data % 4096 for x in own], "the same place in a page"
    for x in shared:
        values = np.asarray(x, np.float64)
        assert values.flags.c_contiguous and np.isfinite(values).all() and 0.3 < values.std() < 1.3
    if problem.op == "stream" and problem.operation == "adam":
        assert (shared[3] >= 0).all() and (bound_rows._values["float64", 1] < 0).any()
    again = bound_rows.inputs(problem, 1)
    assert [x.ctypes.data for x in again[:2]] == [x.ctypes.data for x in shared[:2]]
    a, b = (np.asarray(x, np.float32).ravel()[:50] for x in shared[:2])
    assert not np.array_equal(a, b)


def test_device_inputs_share_one_copy():
    bound_rows.inputs(Matmul(64, 64, 64), 1)
    bound_rows.keep(sized(1000), 1)
    bound_rows.inputs(Matmul(32, 32, 32), 1)
    bound_rows.inputs(Transfer("h2d", 10**6), 1)
    assert bound_rows._rows
    bound_rows.inputs(Matmul(640, 64, 64), 1)
    assert not bound_rows._rows and len(bound_rows._values) == 1
    copies = []
    cupy = types.SimpleNamespace(asarray=lambda x: copies.append(x.nbytes) or np.array(x))
    inputs = bound_rows.inputs(Matmul(8, 9, 10, "float64"), 1)
    there = [bound_rows.on_device(cupy, x) for x in inputs]
    assert all(np.array_equal(a, b) and a.dtype == b.dtype for a, b in zip(there, inputs, strict=True))
    assert copies == [bound_rows._values["float64", 1].nbytes] and not np.shares_memory(there[0], inputs[0])
    own = np.ones(3, np.float32)
    assert np.array_equal(bound_rows.on_device(cupy, own), own) and copies[1:] == [12]
    bound_rows.inputs(Matmul(80, 9, 10, "float64"), 1)
    assert not bound_rows._device_bytes, "the copy goes with what it is of"
