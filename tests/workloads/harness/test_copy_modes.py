"""Every GPU clock on a GPU whose times are added up by hand, and the copy modes by what they copy and wait for."""

import types

import fake_cupy
import numpy as np
import pytest
from fake_cupy import ISSUE, PAGEABLE, PINNED, WAIT
from fake_visits import GPU, RESET, WORK, call, exactly, matmul, prepared, row, visited

from kernels import reference, registry
from kernels.cuda import autotuner, blocking_kernel
from kernels.problems import Launch, Matmul, Transfer
from workloads.harness import copy_modes, one_row, telemetry, timing, warming
from workloads.harness.timing import Limits
from workloads.records import Row, Settings


def test_issue_is_host_time_with_an_unfilled_queue(gpu, stream):
    longest = []

    def run():
        call(gpu)()
        longest.append(len(stream.waiting))

    assert timing.issue(run, stream.synchronize)(250) == exactly(250 * ISSUE)
    assert gpu.calls == 250 and max(longest) == timing.ISSUED_CALLS == 100 and not stream.waiting
    assert gpu.now == exactly(3 * (ISSUE + WAIT) + 250 * WORK)  # three waits, none of them timed


def test_the_device_clock_uses_events_around_calls(gpu, stream):
    gpu.launch(1.0)  # somebody else's work before
    assert timing.device(call(gpu), stream)(4) == exactly(4 * WORK)
    stream.synchronize()
    assert timing.device(call(gpu), stream)(4) == exactly(ISSUE + 4 * WORK)  # the begin is an idle GPU's
    assert timing.device(call(gpu, host_s=29e-6), stream)(4) == exactly(3 * 30e-6 + 30e-6 + WORK)  # gaps of the host
    assert gpu.calls == 12 and not stream.waiting


def test_events_are_on_the_clocks_stream(gpu, stream):
    import cupy

    cupy.cuda.Stream().use()
    take = timing.device_after(lambda: gpu.queue(stream, WORK), lambda: gpu.queue(stream, RESET), stream)
    assert take(2) == exactly(2 * WORK)
    assert timing.device(lambda: gpu.queue(stream, WORK), stream)(2) == exactly(ISSUE + 2 * WORK)


def test_held_calls_leave_no_gaps(gpu, stream):
    take = timing.blocked(call(gpu, host_s=29e-6), stream)
    assert take(4) == exactly(4 * WORK) and gpu.calls == 4
    assert gpu.now == exactly(ISSUE + ISSUE + 4 * 30e-6 + ISSUE + 4 * WORK + WAIT)  # let go when all were issued
    assert [(released, late) for _, released, late in gpu.held] == [(True, False)] and not hasattr(take, "flags")
    assert blocking_kernel.HOLD_NS == 50_000_000


@pytest.mark.parametrize(("launches", "batches"), [(1, [200, 200, 50]), (4, [50] * 9), (1000, [1] * 450)])
def test_held_batches_fit_the_launch_queue(gpu, stream, launches, batches):
    sizes = []

    def wait(self, *given):
        sizes.append(gpu.calls - sum(sizes))
        return fake_cupy.Gpu.wait(self, *given)

    gpu.wait = types.MethodType(wait, gpu)
    assert timing.blocked(call(gpu), stream, launches)(450) == exactly(450 * WORK) and gpu.calls == 450
    assert sizes == batches and len(gpu.held) == len(batches)


def test_an_unseen_end_of_holding_shortens_the_queue(gpu, stream):
    """Calls of 1 ms on the host: 100 and 50 of them are longer than the hold, 25 are not."""
    take = timing.blocked(call(gpu, host_s=1e-3), stream)
    assert take(100) == exactly(100 * WORK)
    assert gpu.calls == 100 + 50 + 4 * 25 and [late for *_, late in gpu.held] == [True, True] + [False] * 4
    assert take(100) == exactly(100 * WORK) and gpu.calls == 350 and not hasattr(take, "flags"), "and so from then on"


def test_a_queue_without_one_held_call_is_reported(gpu, stream):
    take = timing.blocked(call(gpu, host_s=60e-3), stream)
    # The hold began at 1 µs and ended 50 ms later; the call was issued at 60.003 ms.
    assert take(1) == exactly(60.003e-3 + WORK - 50.001e-3) and take.flags == ("hold-ended",)


def test_the_stream_is_released_whatever_happens(gpu, stream):
    def breaks():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        timing.blocked(breaks, stream)(3)
    stream.synchronize()
    assert [(released, late) for _, released, late in gpu.held] == [(True, False)] and gpu.now < 1e-3


def test_the_autotuner_times_its_candidates_held(gpu, stream):
    """A first call loads the module, one is timed alone, then as many as fill a round, where that is more."""
    assert autotuner.device_seconds(call(gpu, host_s=20e-6)) == exactly(WORK)
    assert gpu.calls == 1 + 1 + autotuner._MOST_CALLS and len(gpu.held) == 2
    assert autotuner.device_seconds(call(gpu, seconds=autotuner._ROUND_S)) == exactly(autotuner._ROUND_S)
    assert gpu.calls == 2 * (1 + 1) + autotuner._MOST_CALLS and len(gpu.held) == 3


def test_copies_and_launches_tell_what_issuing_them_costs(gpu):
    kernel = types.SimpleNamespace(waits=False, allocates=False)
    for problem, count in ((Transfer("h2d", 8, "pinned"), 1), (Launch("empty", 50), 50)):
        held_with = []
        row = Row("x/cupy/y", problem, GPU)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(timing, "blocked", lambda run, stream, launches, to=held_with: to.append(launches) or len)
            takes = one_row._device_takes(kernel, row, prepared(gpu), 1e-6)
        assert list(takes) == ["host-throughput", "host-issue", "device"] and held_with == [count]
        assert takes["host-issue"](4) == exactly(4 * ISSUE)


def test_a_gpu_leaves_its_idle_clock_first(gpu):
    """Batches of 200 calls: 2.004 ms each, so ten fill 20 ms and 125 a quarter of a second."""
    warming.warm_up(prepared(gpu), row(), 14e-6, Limits())
    assert gpu.calls == 2000 and gpu.now == exactly(10 * (ISSUE + 200 * WORK + WAIT))
    gpu.calls, begin = 0, gpu.now
    warming.warm_up(prepared(gpu), row(switches={"load": "held"}), 14e-6, Limits())
    assert gpu.calls == 125 * 200 and gpu.now - begin == exactly(125 * (ISSUE + 200 * WORK + WAIT))
    gpu.calls = 0
    warming.warm_up(prepared(gpu, 0.1), row(), 0.1, Limits())
    assert gpu.calls == 0
    warming.warm_up(prepared(gpu, 0.1), row(switches={"load": "held"}), 0.1, Limits())
    assert gpu.calls == 3, "each waited for"
    warming.warm_up(prepared(gpu), row(device="cpu"), 14e-6, Limits())
    assert gpu.calls == 4 and not copy_modes.gpu_stream().waiting


def test_cores_reach_their_clock_once_per_thread_count(gpu, monkeypatch):
    monkeypatch.setattr(warming, "_warm_threads", 2)
    cpu = copy_modes.Prepared(call(gpu, host_s=0.4), None)
    usual = [(threads, 0.075, calls) for threads, calls in ((2, 0), (4, 3), (4, 3), (3, 3), (4, 3))]
    for threads, visit_s, calls in (*usual, (5, 0.03, 5), (6, 0.01, 6)):
        warming.ramp_up(cpu, threads, Limits(visit_s))
        assert gpu.calls == calls, "calls of 0.4 s: three make a second, two 20 visits of 30 ms"
    waited = []
    monkeypatch.setattr(warming, "_last_threads", None)
    monkeypatch.setattr(telemetry, "settle", lambda this_process: waited.append(this_process))
    for what in (("numpy", 2), ("numpy", 2), ("numpy", 1), ("numba", 1), ("numba", 1)):
        warming.wait_for_quiet(warming.Threads(*what))
    assert waited == [True, False, True, True, False]


A, B, C = 4 * 6 * 4, 6 * 5 * 4, 4 * 5 * 4  # bytes of Matmul(4, 5, 6)
COPIES = {
    "resident": [],
    "roundtrip": [("h2d", A, False), ("h2d", B, False), ("d2h", C, False)],
    "roundtrip-pinned": [("h2d", A, True), ("h2d", B, True), ("d2h", C, True)],
}
COPIES["roundtrip-pageable"] = COPIES["roundtrip"]
# Seconds of a call that is waited for. A pageable copy is waited for by itself.
LATENCY = {
    "resident": ISSUE + WORK + WAIT,
    **dict.fromkeys(("roundtrip", "roundtrip-pageable"), 4 * WAIT + 3 * ISSUE + (A + B + C) / PAGEABLE + WORK),
    "roundtrip-pinned": 3 * ISSUE + WORK + C / PINNED + WAIT,  # both copies are done when the kernel is issued
}


@pytest.mark.parametrize("mode", COPIES)
def test_a_copy_mode_copies_what_it_names(gpu, mode):
    problem = Matmul(4, 5, 6)
    inputs = tuple(x.copy() for x in problem.inputs(1, True))
    made = copy_modes.prepare(matmul(gpu), problem, Settings("gpu:0", mode=mode), inputs)
    stream = copy_modes.gpu_stream()
    stream.synchronize()
    gpu.copied.clear()
    begin = gpu.now
    seconds = timing.latency(made.run, made.synchronize)(1)
    assert gpu.copied == COPIES[mode] and seconds == exactly(LATENCY[mode]) == gpu.now - begin
    gpu.copied.clear()
    value = made.run()
    made.synchronize()
    answer = made.result(value)
    assert isinstance(answer, np.ndarray) and np.array_equal(answer, inputs[0] @ inputs[1])
    if mode == "roundtrip-pinned":
        value = made.run()
        value[...] = 0
        assert not value.any(), "four operations are queued, none is done"
        made.synchronize()
        assert np.array_equal(value, inputs[0] @ inputs[1])
    elif mode != "resident":  # what lies on the host now is taken
        inputs[0][:] += 1
        assert np.array_equal(made.result(made.run()), inputs[0] @ inputs[1])
    assert made.stream is stream and stream.non_blocking and (mode == "resident") == (len(gpu.copied) == 1)


def test_bfloat16_crosses_as_its_bits(gpu):
    def bind(problem, a):
        assert a.dtype == np.uint16

        def run():
            gpu.launch(WORK)
            return a

        return run

    problem = Matmul(4, 4, 4, "bfloat16")
    (x, _) = problem.inputs(1, True)
    made = copy_modes.prepare(registry.Kernel("matmul", "cupy", "bits", bind, ("gpu",)), problem, GPU, (x,))
    answer = made.result(made.run())
    assert answer.dtype == x.dtype and np.array_equal(answer, x)


def test_a_transfer_places_its_data_and_watches_links(gpu, seen, monkeypatch):
    def bind(problem, data):
        import cupy

        there = cupy.empty(data.shape, data.dtype)
        gpu.launch(1.0, lambda: None)  # it lays out what it needs

        def run():
            gpu.launch(WORK, lambda: np.copyto(there, data))
            return there, there

        return run

    problem = Transfer("h2d", 64, "pinned")
    (data,) = problem.inputs(1)
    kernel = registry.Kernel("transfer", "cupy", "fake", bind, ("gpu",))
    made = copy_modes.prepare(kernel, problem, GPU, (data,))
    assert not made.stream.waiting and gpu.now > 1.0, "what binding queued is done before anything is timed"
    assert np.array_equal(made.result(made.run()), np.concatenate([data, data]))
    monkeypatch.setattr(one_row, "checked", lambda *_: one_row.Known(reference.OutputCheck("exact", True, 0.0), 0.1))
    visited(monkeypatch, kernel, problem)
    assert seen[0] == ("gpu:0", True, False)


def test_the_stream_is_current_again_at_every_visit(gpu, seen, monkeypatch):
    import cupy

    kernel = matmul(gpu)
    visited(monkeypatch, kernel)
    cupy.cuda.Stream().use()  # a library chose its own
    m = visited(monkeypatch, kernel, number=2)
    assert gpu.current is copy_modes.gpu_stream() and m.on("device").seconds[0] == exactly(WORK)
    assert m.on("host-latency").seconds[0] == exactly(ISSUE + WORK + WAIT)
