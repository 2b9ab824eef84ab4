"""A row of a GPU whose times are added up by hand: its clocks, its queue, its flags."""

import types

import pytest
from fake_cupy import ISSUE, PAGEABLE, WAIT
from fake_visits import GPU, RESET, WORK, exactly, matmul, visited

from kernels import registry
from kernels.problems import Matmul
from workloads.harness import bound_rows, cache_state, one_row, telemetry
from workloads.records import Row, Settings


def test_a_visit_has_every_clock_of_a_gpu(gpu, seen, monkeypatch):
    m = visited(monkeypatch, matmul(gpu))
    assert (m.status, m.check, m.visit, m.values) == ("ok", "exact", 1, {"gpu_clock_hz": 1.9e9})
    clocks = {s.clock: s for s in m.samples}
    assert list(clocks) == ["host-latency", "host-throughput", "device"]
    waited, queued, worked = clocks.values()
    assert waited.seconds == (exactly(ISSUE + WORK + WAIT),) * 10 and waited.calls == 54  # 0.75 ms / 14 µs
    assert queued.seconds == (pytest.approx(WORK, rel=1e-2),) * 10 and queued.seconds[0] > WORK
    assert worked.seconds == (exactly(WORK),) * 10 and worked.calls == 75
    assert all(s.block == (0,) * 10 for s in clocks.values())
    assert seen == [("gpu:0", False, False), "begin", "settle", "look", "look", "look", "settle"]
    assert all(released and not late for _, released, late in gpu.held)
    # Both inputs were copied and waited for, what binding queued was waited for, and so was the call.
    copies = 2 * (ISSUE + WAIT) + (A + B) / PAGEABLE
    assert m.phases_s == {"first_call": exactly(copies + WAIT + ISSUE + WORK + WAIT)}
    before = gpu.calls
    again = visited(monkeypatch, matmul(gpu), number=2)
    # warmed up for 20 ms, not sized again
    assert gpu.calls - before == 2000 + 10 * sum(s.calls for s in clocks.values())
    assert again.samples == m.samples and again.phases_s == {}


def test_nothing_is_loaded_behind_a_held_stream(gpu, seen, monkeypatch):
    kernel, firsts = matmul(gpu), []

    def loads(problem, *inputs):
        run, loaded = kernel.bind(problem, *inputs), []

        def first():
            if not loaded:
                loaded.append(1)
                firsts.append(any(operation.hold for operation in gpu.current.waiting))
            return run()

        return first

    visited(monkeypatch, registry.Kernel("matmul", "cupy", "fake", loads, ("gpu",)))
    assert firsts == [False, False]


def test_a_held_up_call_is_sized_anew(gpu, seen, monkeypatch):
    row = Row("matmul/cupy/fake", Matmul(4, 5, 6), GPU)
    visited(monkeypatch, matmul(gpu))
    one_row._known[row.key].call_s |= {"host-latency": 20e-3, "host-throughput": 11e-6}
    two, three = (visited(monkeypatch, matmul(gpu), number=i) for i in (2, 3))
    assert [s.calls for s in two.samples] == [1, 68, 75] and [s.calls for s in three.samples] == [54, 68, 75]


def test_a_gpu_row_records_the_gpus_state(gpu, seen, monkeypatch):
    held = Settings("gpu:0", switches={"load": "held"})
    states = [visited(monkeypatch, matmul(gpu), settings=settings).notes["gpu_state"] for settings in (GPU, held)]
    monkeypatch.setattr(telemetry, "watch", lambda device, link, framework: types.SimpleNamespace(**cold))
    readings = telemetry.Readings(values={}, flags=("cold-clocked",))
    cold = {"begin": list, "before_block": list, "readings": lambda: readings}
    states.append(visited(monkeypatch, matmul(gpu), Matmul(4, 5, 7)).notes["gpu_state"])
    assert states == ["burst", "held", "cold-clocked"]


def test_long_calls_are_queued_without_a_hold(gpu, seen, monkeypatch):
    m = visited(monkeypatch, matmul(gpu, 1.25e-3), visit_s=75e-3)
    assert m.on("device").calls == 6 and m.on("device").seconds[0] == pytest.approx(1.25e-3, rel=1e-3)
    assert len(gpu.held) == 1, "one call was held, to tell"
    bound_rows.clear()
    again = visited(monkeypatch, matmul(gpu, 1.25e-3), number=2, visit_s=75e-3)
    assert len(gpu.held) == 1 and again.on("device").calls == 6


def test_a_pass_is_what_counts(gpu, seen, monkeypatch):
    one, four = (visited(monkeypatch, matmul(gpu, passes=p), Matmul(4, 5, p)) for p in (1, 4))
    for a, b in zip(one.samples, four.samples, strict=True):
        assert b.seconds == tuple(pytest.approx(s / 4, rel=1e-5) for s in a.seconds) and b.calls == 4 * a.calls, a.clock


@pytest.mark.parametrize(
    ("about", "settings", "clocks"),
    [
        ({"waits": True}, GPU, ["host-latency"]),
        ({"allocates": True}, GPU, ["host-latency", "host-throughput"]),
        ({}, Settings("gpu:0", mode="roundtrip"), ["host-latency"]),
        ({"before": lambda: None}, GPU, ["host-latency", "device"]),
        ({"before": lambda: None, "waits": True}, GPU, ["host-latency"]),
    ],
)
def test_an_inapplicable_clock_is_left_out(gpu, seen, monkeypatch, about, settings, clocks):
    assert [s.clock for s in visited(monkeypatch, matmul(gpu, **about), settings=settings).samples] == clocks


def test_an_unseen_end_of_holding_flags_the_row(gpu, seen, monkeypatch):
    assert visited(monkeypatch, matmul(gpu, host_s=60e-3)).flags == ("hold-ended",)


def test_a_cold_rows_flush_is_on_no_clock(gpu, seen, monkeypatch):
    flushes = []
    monkeypatch.setattr(cache_state, "flush", lambda kernel, device: lambda: flushes.append(1) or gpu.launch(RESET))
    m = visited(monkeypatch, matmul(gpu), settings=Settings("gpu:0", cache="cold"))
    assert [s.clock for s in m.samples] == ["host-latency", "device"]
    assert m.on("host-latency").seconds[0] == exactly(ISSUE + WORK + WAIT)
    assert m.on("device").seconds[0] == exactly(WORK)
    # A flush and its wait are 54 µs, a call 14: 0.75 ms hold 11 of both; on the device 64 µs: 12.
    assert [s.calls for s in m.samples] == [11, 12]
    assert len(flushes) >= 10 * (11 + 12)


A, B, C = 4 * 6 * 4, 6 * 5 * 4, 4 * 5 * 4  # bytes of Matmul(4, 5, 6)
