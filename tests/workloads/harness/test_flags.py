"""What a worker sees of what it timed: every flag and its fault."""

import types

import numpy as np
import pytest

from kernels import registry
from kernels.problems import Conv, Matmul
from workloads import ROOT
from workloads.harness import copy_modes, one_row
from workloads.harness import flags as probes
from workloads.harness.timing import Limits
from workloads.machine import facts
from workloads.records import Row, Settings


def prepared(run, stream=None, synchronize=lambda: None):
    return copy_modes.Prepared(run, np.asarray, synchronize if stream else None, stream)


@pytest.mark.parametrize(("left_s", "seen"), [(0.0, False), (15e-6, False), (1e-3, True)])
def test_work_left_on_the_device_after_the_wait(left_s, seen):
    clock = types.SimpleNamespace(now=0.0)

    def wait_for_all():
        clock.now += left_s

    def synchronize():
        clock.now += 7.0  # the work that the clocks wait for is not left over

    found = probes.unfinished(prepared(lambda: None, object(), synchronize), wait_for_all, lambda: clock.now)
    assert found == pytest.approx(left_s) and (found > max(probes._UNFINISHED_S, 0.1 * 1e-4)) == seen


def test_constant_inputs_and_slow_governors_reach_the_row(monkeypatch):
    arrays = np.full(10**6, 3.0, np.float32), Matmul(64, 64, 64).inputs(1)[0], np.ones(2)
    assert [probes.constant(one) for one in arrays] == [True, False, False]
    monkeypatch.setattr(probes, "slow_governor", lambda: True)
    monkeypatch.setattr(one_row, "_known", {})
    monkeypatch.setattr(one_row.bound_rows, "inputs", lambda problem, seed: (np.ones((8, 8), np.float32),) * 2)
    row = Row("matmul/numpy/operator", Matmul(8, 8, 8), Settings(threads=1))
    done = one_row.measure(row, Limits(0.001, 3, 1.0, 0.01), 1)
    assert {"slow-governor", "constant-inputs"} <= {*done.flags}
    assert abs(done.series["visit_at_s"][0] - one_row.moment()) < 600


def as_tf32(x: np.ndarray) -> np.ndarray:
    """float32 cut to the 10 bits of a TF32 mantissa."""
    return (x.astype(np.float32).view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


@pytest.mark.parametrize("shape", [(3, 5, 1), (64, 64, 64), (17, 33, 1024)])
@pytest.mark.parametrize("layout", ["nn", "nt", "tn"])
def test_tf32_shows_where_whole_numbers_hide_it(shape, layout):
    problem = Matmul(*shape, layout=layout)
    inputs = problem.inputs(1)

    def product(a, b):
        return (a.T if layout == "tn" else a) @ (b.T if layout == "nt" else b)

    assert not probes.rough(problem, inputs, lambda: product(*inputs))
    assert probes.rough(problem, inputs, lambda: product(*map(as_tf32, inputs)))
    assert not probes.rough(Matmul(*shape, math="tf32", layout=layout), inputs, lambda: product(*map(as_tf32, inputs)))
    whole = problem.inputs(1, whole_numbers=True)
    assert np.array_equal(product(*map(as_tf32, whole)), product(*whole))


def test_untrue_float64_and_unchecked_results_are_flagged():
    problem = Matmul(64, 64, 64, "float64")
    a, b = problem.inputs(1)
    assert not probes.rough(problem, (a, b), lambda: a @ b)
    assert probes.rough(problem, (a, b), lambda: (a.astype(np.float32) @ b.astype(np.float32)).astype(np.float64))

    def fetched():
        raise AssertionError("fetched")

    assert not probes.rough(Matmul(1 << 13, 1 << 12, 1), (), fetched)


@pytest.mark.parametrize(
    "problem",
    [
        Conv(3, 9, 8, 5, 7, 3, 3, pad="same"),
        Conv(2, 12, 12, 4, 6, 3, 2, stride=2, pad="valid"),
        Conv(2, 7, 7, 3, 4, 3, 3, pad=1, layout="NCHW"),
    ],
)
def test_tf32_in_a_convolution(problem):
    run = registry.find("conv/numpy/im2col").bind
    inputs = problem.inputs(1)
    assert not probes.rough(problem, inputs, run(problem, *inputs))
    assert probes.rough(problem, inputs, run(problem, *map(as_tf32, inputs)))


def test_another_checkouts_kernels(tmp_path):
    assert not probes.foreign(registry.FOLDER) and probes.foreign(tmp_path / "kernels")
    assert not probes.foreign(ROOT / "tests" / ".." / "kernels")


BLAS, OWN, NAIVE = "matmul/numpy/operator", "matmul/numba/parallel", "matmul/numpy/einsum"


@pytest.mark.parametrize(
    ("kernel", "how", "flags"),
    [
        (BLAS, {"lesser": True}, {"lesser-kernels"}),
        (BLAS, {}, set()),
        (NAIVE, {"lesser": True}, set()),  # its own loops
        (OWN, {"lesser": True}, set()),
        ("matmul/numpy/blas", {"variable": "OPENBLAS_L2_SIZE"}, {"blas-variables"}),
        ("matmul/mkl/gemm", {"variable": "MKL_CBWR"}, {"blas-variables"}),
        ("conv/numpy/im2col", {"variable": "OPENBLAS_BLOCK_FACTOR"}, {"blas-variables"}),
        (NAIVE, {"variable": "OPENBLAS_L2_SIZE"}, set()),
        (OWN, {"variable": "OPENBLAS_L2_SIZE"}, set()),
        (BLAS, {"variable": "OPENBLAS_NUM_THREADS"}, set()),
        (BLAS, {"took": 1}, {"few-threads"}),
        (BLAS, {"took": 0}, set()),
        (BLAS, {"threads": 4, "took": 4}, {"oversubscribed"}),
        (BLAS, {"threads": None}, set()),
    ],
)
def test_a_blas_is_flagged_for_variables_and_threads(monkeypatch, kernel, how, flags):
    for name in facts.BLAS_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    if name := how.get("variable"):
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(probes, "library_threads", lambda backend: how.get("took", 2))
    monkeypatch.setattr(probes, "slow_governor", lambda: False)
    monkeypatch.setattr(probes.facts, "usable_threads", lambda: 2)
    monkeypatch.setattr(probes.facts, "lesser_blas", lambda found: how.get("lesser", False))
    problem = Matmul(8, 8, 8)
    a, b = problem.inputs(1)
    made = registry.Kernel(*kernel.split("/"), None, ("cpu",))
    wanted = Row(kernel, problem, Settings(threads=how.get("threads", 2)))
    assert set(probes.raised(made, wanted, prepared(lambda: a @ b), (a, b), call_s=1e-5)) == flags


def test_a_result_in_host_memory_is_no_gpus(monkeypatch):
    monkeypatch.setattr(probes, "slow_governor", lambda: False)
    problem = Matmul(8, 8, 8)
    kernel = types.SimpleNamespace(backend="tensorflow", name="matmul/tensorflow/function")
    value = types.SimpleNamespace(device="/job:localhost/replica:0/task:0/device:CPU:0")
    a, b = problem.inputs(1)
    made = copy_modes.Prepared(lambda: value, lambda value: a @ b, lambda: None, None)
    on_gpu = Row(kernel.name, problem, Settings("gpu:0"))
    assert probes.raised(kernel, on_gpu, made, (a, b), call_s=1e-5) == ("ran-on-cpu",)
    value.device = "/job:localhost/replica:0/task:0/device:GPU:0"
    assert probes.raised(kernel, on_gpu, made, (a, b), call_s=1e-5) == ()
