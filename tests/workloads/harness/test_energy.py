"""Joules of samples by the counters of a machine."""

from types import SimpleNamespace

import pytest
from fake_gpu import FakeNvml, use_nvml, write

from workloads.harness import energy


def test_joules_use_the_counters_at_hand(monkeypatch, tmp_path):
    """By a clock that a call moves by a second, on a board that uses 250 J in each."""
    state, waits = SimpleNamespace(now=0.0, joules=1000.0), []

    def call():
        state.now += 1
        state.joules += 250

    monkeypatch.setattr(energy, "WINDOW_S", 2.5)
    monkeypatch.setattr(energy, "time", SimpleNamespace(perf_counter=lambda: state.now))
    used = energy.used(lambda: state.joules, call, lambda: waits.append(state.now), 5)
    assert used == {"joules_per_sample": 50.0, "watts": 250.0}  # three calls of 5 samples a window, 750 J in 3 s
    assert waits == [0, 3, 3, 6, 6, 9]
    assert energy.used(lambda: 7.0, call, lambda: None, 5) == {}
    assert energy.used(lambda: None, call, lambda: None, 5) == {}

    def millijoules(handle):
        return {"the GPU-abc": 5_000, "number 1": 7_000}[handle]

    by_uuid, by_index = (lambda uuid: f"the {uuid}"), (lambda i: f"number {i}")
    energy_of = {"nvmlDeviceGetTotalEnergyConsumption": millijoules}
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetHandleByUUID=by_uuid, nvmlDeviceGetHandleByIndex=by_index, **energy_of))
    for visible in ("GPU-abc", "1"):
        counter = energy.counter("gpu:0", {"CUDA_VISIBLE_DEVICES": visible})
        assert (counter.read(), counter.words) == ({"GPU-abc": 5.0, "1": 7.0}[visible], "NVML, whole board")
    assert energy.counter("gpu:1", {}).read() == 7.0
    use_nvml(monkeypatch, FakeNvml(nvmlDeviceGetHandleByIndex=lambda i: "h"))
    with pytest.raises(energy.NoCounter, match="no energy: NVML"):
        energy.counter("gpu:0", {})
    use_nvml(monkeypatch, None)
    with pytest.raises(energy.NoCounter, match="no energy: NVML"):
        energy.counter("gpu:0", {})
    folder = "sys/class/powercap/intel-rapl:"
    packages = {"0/name": "package-0\n", "0/energy_uj": "9000000\n", "0/max_energy_range_uj": "10000000"}
    packages |= {"1/name": "package-1", "1/energy_uj": "0", "1/max_energy_range_uj": "10000000"}
    others = {"0:0/name": "core", "0:0/energy_uj": "5", "2/name": "psys", "2/energy_uj": "1"}
    write(tmp_path, {folder + name: text for name, text in (packages | others).items()})
    monkeypatch.setattr(energy.cpu, "ROOT", tmp_path)
    counter = energy.counter("cpu")
    assert (counter.read(), counter.words) == (0.0, "RAPL, CPU packages")
    write(tmp_path, {f"{folder}0/energy_uj": "1000000", f"{folder}1/energy_uj": "500000"})
    assert counter.read() == pytest.approx(2.5)  # 2 J past the end of the first, 0.5 J of the second
    write(tmp_path, {f"{folder}0/energy_uj": "4000000"})
    assert counter.read() == pytest.approx(5.5)  # since the first reading
    monkeypatch.setattr(energy.cpu, "ROOT", tmp_path / "nothing")
    with pytest.raises(energy.NoCounter, match="no energy: RAPL"):
        energy.counter("cpu")
