"""Sums over GPUs and copies between them without a GPU: the kernel itself runs on the CPU, a thread a GPU, over a fake CuPy."""

import gc
import os

import fake_peers
import numpy as np
import pytest

from kernels import reference
from kernels.problems import AllReduce, PeerCopy


@pytest.fixture
def gpus(monkeypatch, built):
    """(collective_cupy, peer_cupy, the fake host) of two GPUs that reach each other."""
    with fake_peers.imported(monkeypatch, built) as modules:
        yield modules


def right(run, problem, inputs) -> bool:
    value = run()
    run.synchronize()
    return reference.check(problem, inputs, run.on_host(value)).passed


@pytest.mark.parametrize("nbytes", [8, 8200])  # one thread of a block; three blocks, the last of which is not full
def test_the_one_shot_sum_is_right_every_call(gpus, nbytes):
    collective, _, _ = gpus
    problem = AllReduce(nbytes)
    whole = problem.inputs(3, True)
    run = collective.one_shot(problem, *whole)
    assert all(right(run, problem, whole) for _ in range(3))
    for _ in range(5):  # with nobody waiting in between
        run()
    assert right(run, problem, whole)


def test_calls_alternate_between_halves_of_an_inbox(gpus):
    """So that a GPU that is a call ahead writes over nothing that is still to be read."""
    collective, _, _ = gpus
    problem = AllReduce(8)
    run = collective.one_shot(problem, *problem.inputs(3, True))
    (inboxes, _), *_ = run.synchronize.__defaults__
    for call in (1, 2, 3):
        run()
        run.synchronize()
        numbers = [(inbox >> np.uint64(32)).astype(int)[:, 1 - gpu].tolist() for gpu, inbox in enumerate(inboxes)]
        even, odd = call // 2 * 2, (call + 1) // 2 * 2 - 1
        assert numbers == [[[[even] * 2], [[odd] * 2]]] * 2


def test_all_gpus_get_the_same_bits(monkeypatch, built):
    """1 + 2^-8 + 2^-9 is 1 + 2^-7 in bfloat16's eight bits; cut off, or rounded after each addition, it is 1."""
    with fake_peers.imported(monkeypatch, built, count=3) as (collective, _, _):
        problem = AllReduce(16, "0,1,2", "bfloat16")
        whole = problem.inputs(3, True)
        run = collective.one_shot(problem, *whole)
        assert right(run, problem, whole) and right(run, problem, whole)
        data = problem.inputs(1)[0].copy()
        data[:, :2] = [[1.0, -1.0], [2.0**-8, 3.0], [2.0**-9, np.inf]]
        run = collective.one_shot(problem, data)
        value = run()
        run.synchronize()
        out = run.on_host(value)
        assert (out.view(np.uint16) == out.view(np.uint16)[0]).all()
        assert out[0, :2].astype(np.float32).tolist() == [1 + 2.0**-7, np.inf]


def test_a_sum_in_place_replaces_the_array(gpus):
    collective, _, _ = gpus
    problem = AllReduce(4096, form="in-place")
    whole = problem.inputs(3, True)
    run = collective.one_shot(problem, *whole)
    value = run()
    run.synchronize()
    assert reference.check(problem, whole, run.on_host(value)).passed
    run()
    run.synchronize()
    assert (run.on_host(value) == 2 * whole[0].sum(axis=0)).all()


@pytest.mark.parametrize("variant", ["one_shot_graph", "one_shot_early_graph", "nccl_graph"])
def test_a_recorded_sum_counts_its_calls(gpus, variant):
    collective, _, _ = gpus
    problem = AllReduce(64)
    whole = problem.inputs(3, True)
    run = getattr(collective, variant)(problem, *whole)
    gc.collect()  # what the graphs hold addresses of must still be there
    assert run.passes == 32 and right(run, problem, whole) and right(run, problem, whole)
    with pytest.raises(ValueError, match="a place of its own"):
        getattr(collective, variant)(AllReduce(64, form="in-place"), *whole)


@pytest.mark.parametrize("form", AllReduce.FORMS)
def test_nccl_is_called_as_a_group(gpus, form):
    collective, _, _ = gpus
    problem = AllReduce(4096, form=form)
    whole = problem.inputs(3, True)
    assert right(collective.nccl(problem, *whole), problem, whole)


def test_a_missing_gpu_is_an_error(gpus):
    collective, _, host = gpus
    collective.LONGEST_NS = 20_000_000
    problem = AllReduce(8)
    run = collective.one_shot(problem, *problem.inputs(3, True))
    run()
    host.streams[1].waiting.clear()
    for _ in range(2):
        with pytest.raises(RuntimeError, match=r"GPU 0 waited 0\.02 s for GPU 1 and gave up"):
            run.synchronize()
        run()


def test_what_cannot_be_done_is_refused(gpus):
    collective, _, _ = gpus
    for problem, why in (
        (AllReduce(2 << 20), "at most 1048576 bytes"),
        (AllReduce(12), "whole 8 bytes of float32 or bfloat16"),
        (AllReduce(64, dtype="float16"), "whole 8 bytes of float32 or bfloat16"),
        (AllReduce(64, "0,1,2"), "it takes 3 GPUs, and this process sees 2"),
    ):
        with pytest.raises(ValueError, match=why):
            collective.one_shot(problem, *problem.inputs(1))


def test_gpus_without_peer_access_copy_through_the_host(monkeypatch, built):
    with fake_peers.imported(monkeypatch, built, reach=False) as (collective, peer, _):
        problem, copy = AllReduce(64), PeerCopy(0, 1, 64)
        for kernel, of in ((collective.one_shot, problem), (peer.direct, copy)):
            with pytest.raises(ValueError, match="GPU 0 has no direct access to the memory of GPU 1"):
                kernel(of, *of.inputs(1))
        assert right(peer.staged(copy, *copy.inputs(1)), copy, copy.inputs(1))


def test_without_nccl_its_rows_say_what_installs_it(gpus):
    import cupy

    collective, _, _ = gpus
    cupy.cuda.nccl.available = False
    with pytest.raises(ValueError, match="NCCL does not load; install it with: pip install nvidia-nccl-cu13"):
        collective.nccl(AllReduce(64), *AllReduce(64).inputs(1))


def test_multicast_is_off_before_nccl_starts(gpus, monkeypatch):
    collective, _, _ = gpus
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "2")
    collective.nccl(AllReduce(64), *AllReduce(64).inputs(1))
    assert os.environ["NCCL_NVLS_ENABLE"] == "0"


@pytest.mark.parametrize(("source", "target"), [(0, 1), (1, 0)])
@pytest.mark.parametrize("nbytes", [5, (18 << 20) + 3])  # the larger one goes around the four slots
def test_copies_arrive_whole(gpus, source, target, nbytes):
    _, peer, host = gpus
    one, both = PeerCopy(source, target, nbytes), PeerCopy(source, target, nbytes, 2)
    for kernel, problem in ((peer.direct, one), (peer.staged, one), (peer.direct, both)):
        data = problem.inputs(3)
        run = kernel(problem, *data)
        assert right(run, problem, data) and right(run, problem, data)
        assert host.current == 0
    with pytest.raises(ValueError, match="one way"):
        peer.staged(both, *both.inputs(1))
