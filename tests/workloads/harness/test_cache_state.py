"""Cold calls: what empties the caches, that it comes before every call and is not timed, and what has no cold rows."""

import sys
import threading
import types
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from fake_gpu import write

from kernels import registry
from kernels.problems import Launch, Matmul, Peak, Stream
from workloads.harness import cache_state, copy_modes, one_row
from workloads.harness.timing import Limits
from workloads.records import Row, Settings

COLD = Settings(cache="cold")
KERNEL = registry.Kernel("matmul", "numpy", "fake", lambda problem, a, b: lambda: a @ b, ("cpu",))


def problem_and_inputs():
    problem = Matmul(3, 4, 5)
    return problem, problem.inputs(1, True)


@pytest.fixture
def small(monkeypatch):
    """A machine with two CPUs, each with a cache of 64 KiB of its own; -> the bytes that each thread reads."""
    monkeypatch.setattr(cache_state.cpu, "affinity", lambda: frozenset({0}))
    monkeypatch.setattr(cache_state, "_pin_thread", lambda cpu: None)
    monkeypatch.setattr(cache_state.cpu, "caches", lambda cpus: {"L1d": 1 << 12, "L2": 1 << 16})
    monkeypatch.setattr(cache_state, "last_caches", len)
    cache_state.cpu_flush.cache_clear()
    yield
    cache_state.cpu_flush.cache_clear()


def test_every_cpu_reads_four_last_caches_pinned(small, monkeypatch):
    read = []

    class Part(np.ndarray):
        def sum(self):
            read.append((threading.get_ident(), self.nbytes, float(np.asarray(self).min())))

    monkeypatch.setattr(cache_state.np, "ones", lambda size: np.full(size, 1.0).view(Part))
    stayed = []
    monkeypatch.setattr(cache_state, "_pin_thread", stayed.append)
    flush = cache_state.cpu_flush(frozenset({2, 5, 7}))
    assert len({thread for thread, *_ in read}) == 3  # once when it was made, each thread one part
    read.clear()
    flush()
    assert sorted(nbytes for _, nbytes, _ in read) == [4 << 16] * 3
    assert {least for *_, least in read} == {1.0}  # touched pages, not the kernel's page of zeros
    assert sorted(stayed) == [2, 5, 7]


def test_last_caches_are_counted_by_sharing_cpus(tmp_path, monkeypatch):
    folder = "sys/devices/system/cpu/cpu{}/cache/index{}/{}"
    files = {}
    for cpu in range(8):
        for index, (level, shared) in enumerate([("1", f"{cpu}"), ("2", f"{cpu}"), ("3", "0-3" if cpu < 4 else "4-7")]):
            files |= {folder.format(cpu, index, "level"): level, folder.format(cpu, index, "shared_cpu_list"): shared}
    monkeypatch.setattr(cache_state.cpu, "ROOT", write(tmp_path, files))
    assert cache_state.last_caches(frozenset(range(8))) == 2
    assert cache_state.last_caches(frozenset({1, 2})) == 1
    assert cache_state.last_caches(frozenset({40, 41})) == 1  # nothing is known of them


def test_a_machine_without_known_caches_is_refused(small, monkeypatch):
    monkeypatch.setattr(cache_state.facts, "memory_available", lambda: 1 << 19)
    room = r"takes 512 KiB to read, and at most a quarter of what is free, 512 KiB"
    with pytest.raises(ValueError, match=room):
        cache_state.cpu_flush(frozenset({0, 1}))
    monkeypatch.setattr(cache_state.cpu, "caches", lambda cpus: {})
    with pytest.raises(ValueError, match="how large this CPU's caches are is not known"):
        cache_state.cpu_flush(frozenset({0, 1}))


def many_passes(problem, *arrays):
    run = lambda: arrays[0]  # noqa: E731
    run.passes = 64 if problem.op == "stream" else 1
    return run


@pytest.mark.parametrize(
    ("problem", "settings", "words"),
    [
        (Matmul(3, 4, 5), Settings("gpu:0", mode="roundtrip", cache="cold"), "cold rows are resident"),
        (Launch("elementwise"), COLD, "of matmul, conv, stream; a launch has none"),
        (Peak("float32", 1 << 20), COLD, "of matmul, conv, stream; a peak has none"),
        (Stream("copy", 1 << 12), COLD, "makes 64 passes over its data, of which only the first would be cold"),
    ],
)
def test_what_has_no_cold_row(small, problem, settings, words):
    kernel = registry.Kernel(problem.op, "numpy", "fake", many_passes, ("cpu",))
    with pytest.raises(ValueError, match=words):
        copy_modes.prepare(kernel, problem, settings, problem.inputs(1))


def test_a_kernels_reset_precedes_the_flush(monkeypatch):
    order = []

    def bind(problem, a, b):
        def run():
            order.append("run")
            return a @ b

        run.before = lambda: order.append("reset")
        return run

    monkeypatch.setattr(cache_state, "flush", lambda kernel, device: lambda: order.append("flush"))
    problem, inputs = problem_and_inputs()
    kernel = registry.Kernel("matmul", "numpy", "fake", bind, ("cpu",))
    one_row._latency_take(copy_modes.prepare(kernel, problem, COLD, inputs))(2)
    assert order == ["reset", "flush", "run"] * 2
    order.clear()
    one_row._latency_take(copy_modes.prepare(kernel, problem, Settings(), inputs))(1)
    assert order == ["reset", "run"]
    assert copy_modes.prepare(KERNEL, problem, Settings(), inputs).before is None


@pytest.mark.parametrize("device", ["cpu", "gpu:0"])
@pytest.mark.parametrize("backend", ["numpy", "cupy", "tensorflow"])
def test_the_flush_is_the_devices(monkeypatch, device, backend):
    for name in ("cpu_flush", "_cupy", "_tensorflow"):
        monkeypatch.setattr(cache_state, name, lambda *_, name=name: name)
    kernel = registry.Kernel("conv", backend, "fake", None, ("cpu", "gpu"))
    right = {"cpu": "cpu_flush", "gpu:0": {"tensorflow": "_tensorflow"}.get(backend, "_cupy")}[device]
    assert cache_state.flush(kernel, device) == right


def test_cupy_reads_four_times_the_second_level_cache(monkeypatch):
    bound = {}
    device = types.SimpleNamespace(attributes={"L2CacheSize": 60 << 20})
    made = types.SimpleNamespace(cuda=types.SimpleNamespace(Device=lambda: device), ones=lambda *given: given)
    monkeypatch.setitem(sys.modules, "cupy", made)
    reader = types.SimpleNamespace(bind=lambda problem, data: bound.update(problem=problem, data=data) or "read")
    monkeypatch.setattr(cache_state.registry, "find", {"stream/cupy/wide": reader}.__getitem__)
    assert cache_state._cupy.__wrapped__() == "read"
    assert (bound["problem"].operation, bound["problem"].bytes_moved) == ("read", 240 << 20)
    assert bound["data"] == (60 << 20, np.float32)


@pytest.mark.parametrize(("size", "failed"), [(60 << 20, 0), (0, 0), (60 << 20, 100)])
def test_tensorflow_asks_the_driver_for_the_cache(monkeypatch, size, failed):
    def attribute(place, which, device):
        assert which == 38 and device.value == 0
        place._obj.value = size
        return 0

    driver = types.SimpleNamespace(cuInit=lambda flags: failed, cuDeviceGet=lambda place, index: 0)
    driver.cuDeviceGetAttribute = attribute
    monkeypatch.setattr(cache_state.ctypes, "CDLL", lambda name: driver)
    if size and not failed:
        assert cache_state._l2_bytes() == size
        return
    with pytest.raises(ValueError, match=rf"does not say how large the GPU's cache is \(error {failed}\)"):
        cache_state._l2_bytes()


def test_a_cold_rows_calls_are_flushed(small, monkeypatch):
    flushed = []
    monkeypatch.setattr(cache_state, "flush", lambda kernel, device: lambda: flushed.append(device))
    row = Row("matmul/numpy/blas", Matmul(8, 8, 8), msgspec.structs.replace(COLD, threads=1))
    limits = Limits(visit_s=1e-4, rounds=1, max_noise=1.0, max_time=1e-3)
    m = one_row.measure(row, limits, 1)
    assert (m.status, m.check, [s.clock for s in m.samples]) == ("ok", "exact", ["host-latency"])
    assert len(flushed) >= len(m.samples[0].seconds) * m.samples[0].calls > 0 and set(flushed) == {"cpu"}
    before = len(flushed)
    one_row.measure(msgspec.structs.replace(row, settings=Settings(threads=1)), limits, 1)
    assert len(flushed) == before


def test_a_copys_result_is_all_its_bytes(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", SimpleNamespace(asnumpy=np.asarray))
    two, one = np.array([1, 256], np.uint16), np.array([7], np.uint8)
    assert copy_modes._bytes_on_host(two).tolist() == [1, 0, 0, 1]
    assert copy_modes._bytes_on_host((two, one)).tolist() == [1, 0, 0, 1, 7]
