"""A stored GPU driven by this machine's host: factors and rescaled predictions worked out by hand."""

import msgspec
import pytest
from fake_measurements import row

from analysis.predict import borrowed_gpu, step_parts
from analysis.stats import Estimate, exact
from kernels.problems import Training


class Host:
    """A profile that knows constants and CPU trainings alone."""

    def __init__(self, constants: dict[str, float], imports: dict[str, float]):
        self.constants = constants
        self.trainings = [
            row("training/keras/fit", Training("lenet", 32, 64), 1e-3, device=device, phases_s={"import": seconds})
            for device, seconds in imports.items()
        ]

    def constant(self, name: str, device: str) -> Estimate | None:
        assert device == "cpu"
        value = self.constants.get(name)
        return None if value is None else Estimate(value, 0.5 * value, 3 * value)


def test_a_host_slows_by_the_geometric_mean():
    """8 over 2 and 3 over 3: 4 and 1, so 2. What one alone knows, or took no time, does not count."""
    here = Host({"keras-step": 8.0, "tf-function-call": 3.0, "keras-epoch": 5.0, "tf-op-eager": 1.0}, {})
    there = Host({"keras-step": 2.0, "tf-function-call": 3.0, "tf-op-eager": 0.0}, {})
    factor = borrowed_gpu.host_factor(here, there)
    assert msgspec.structs.astuple(factor) == pytest.approx((2.0, 1.0, 4.0))
    assert borrowed_gpu.host_factor(here, Host({}, {})) is None


def test_a_start_slows_by_cpu_trainings_imports():
    here, there = Host({}, {"cpu": 6.0, "gpu:0": 99.0}), Host({}, {"cpu": 4.0})
    assert borrowed_gpu.start_factor(here, there) == exact(1.5)
    assert borrowed_gpu.start_factor(here, Host({}, {"gpu:0": 4.0})) is None


def test_host_seconds_grow_device_and_link_seconds_stay(whole):
    from analysis.predict import prediction
    from workloads.records import Settings

    made = prediction.predict(Training("cifar10-cnn", 32, 2048), Settings("gpu:0"), whole)
    parts = {
        "dispatch": exact(3e-3),
        "launches": exact(1e-3),
        "transfer bytes": exact(2e-3),
        "matmul": exact(1e-3),
        "conv": exact(9e-3),
        step_parts.HIDDEN: exact(-4e-3),
    }
    plain = msgspec.structs.replace(
        made,
        parts=parts,
        step_s=Estimate(12e-3, 6e-3, 24e-3),
        start_s=exact(10.0),
        compile_s=exact(4.0),
        epoch_s=exact(0.5),
        fit_s=exact(0.25),
        setup_s=exact(0.125),
    )
    slow = borrowed_gpu.rescaled(plain, exact(2.0), exact(3.0))
    kept = {name: slow.parts[name].value for name in ("transfer bytes", "matmul", "conv")}
    assert kept == {"transfer bytes": 2e-3, "matmul": 1e-3, "conv": 9e-3}
    assert (slow.parts["dispatch"].value, slow.parts["launches"].value) == pytest.approx((6e-3, 2e-3))
    assert slow.step_s.value == pytest.approx(sum(e.value for e in slow.parts.values()))
    assert slow.step_s.value == pytest.approx(2e-3 + max(8e-3, 10e-3))  # the device still takes longer than the host
    assert (slow.step_s.low, slow.step_s.high) == pytest.approx((6e-3, 24e-3))  # as uncertain as before, in proportion
    once = (slow.start_s, slow.compile_s, slow.epoch_s, slow.fit_s, slow.setup_s)
    assert [e.value for e in once] == pytest.approx([30.0, 8.0, 1.0, 0.5, 0.25])
    assert borrowed_gpu.rescaled(plain, exact(2.0)).start_s.value == pytest.approx(20.0)


def test_missing_parts_come_from_the_stored_cpu(whole):
    from analysis.predict import prediction
    from workloads.records import Settings

    made = prediction.predict(Training("cifar10-cnn", 32, 2048), Settings("cpu"), whole)
    none = exact(0.0)
    mine = msgspec.structs.replace(made, start_s=none, compile_s=exact(5.0), epoch_s=none)
    stored = msgspec.structs.replace(
        made, start_s=Estimate(4.0, 3.0, 5.0), compile_s=exact(9.0), epoch_s=Estimate(0.2, 0.1, 0.4)
    )
    taken = borrowed_gpu.completed(mine, stored, exact(2.0), exact(3.0))
    assert msgspec.structs.astuple(taken.start_s) == pytest.approx((12.0, 4.5, 30.0))
    assert msgspec.structs.astuple(taken.epoch_s) == pytest.approx((0.4, 0.1, 1.6))
    assert taken.compile_s == exact(5.0) and taken.partial[-1].endswith("'s CPU has it")
    assert borrowed_gpu.completed(stored, stored, exact(2.0)) is stored
