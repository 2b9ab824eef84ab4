"""What the host does for a step, by hand."""

import pytest
from made_profile import CALL, LATENCY, LINK, STEP
from msgspec.structs import replace

from analysis.predict import host_parts
from analysis.predict.profile import Profile
from analysis.stats import exact
from kernels import networks
from kernels.problems import Training
from workloads.records import Row, Settings, settings


def test_two_measurements_decide_how_sure_an_operation_is(monkeypatch):
    """10 µs by formulas of more operations, 4 µs by a chain of one more addition: within a factor of 2.5."""
    monkeypatch.setattr(host_parts, "operation_overhead", lambda profile, device: exact(10e-6))
    profile = Profile([])
    monkeypatch.setattr(profile, "constant", lambda name, device, clock: exact(4e-6))
    launch = host_parts.launched_operation(profile, "gpu:0")
    assert (launch.value, launch.low, launch.high) == pytest.approx((10e-6, 4e-6, 25e-6))


def test_steps_in_one_call_share_its_cost(whole):
    """A step takes 400 µs with a call of 100 µs: 16 steps share 300 µs, so 15 of 16 parts of it go."""
    one, several = (host_parts.dispatch_of(whole, "cpu", "op by op", steps_a_call=n).value for n in (1, 16))
    assert one == pytest.approx(STEP["cpu", "off"])
    assert several == pytest.approx(STEP["cpu", "off"] - (STEP["cpu", "off"] - CALL) * 15 / 16, rel=0.01)


MLP = Training("mlp-784-100x2-10", 32, 2048)
GPU = Settings("gpu:0")


@pytest.mark.parametrize("batch", [1, 32])
def test_a_batch_and_its_labels_are_two_copies(whole, batch):
    """Of samples of one number the labels are two thirds of the bytes."""
    network = networks.Network("m", "", (1,), 1, (networks.Layer("d", "dense", 1),))
    copies = host_parts.copies_of_batch(
        whole, network, batch, settings.checked_keras(Row("training/keras/fit", MLP, GPU))
    )
    call = LATENCY + 4 / LINK
    assert copies["transfer calls"].value == pytest.approx(2 * call, rel=1e-6)
    nbytes = batch * 4 + batch * 8
    assert copies["transfer bytes"].value == pytest.approx((nbytes - 2 * 4) / LINK, rel=1e-3)


def test_resident_samples_are_not_copied(whole):
    resident = replace(GPU, switches={"residence": "resident"})
    assert (
        host_parts.copies_of_batch(
            whole, networks.find(MLP.model), 32, settings.checked_keras(Row("training/keras/fit", MLP, resident))
        )
        == {}
    )
