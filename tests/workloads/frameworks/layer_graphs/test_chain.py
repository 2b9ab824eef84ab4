"""Layers in chains, whose slope is a layer's time."""

import pytest

from workloads.frameworks.layer_graphs import chain
from workloads.harness.dispatch import Broken
from workloads.harness.timing import Limits


def clock_of(count: int, fixed_s: float, call_s: float, noise=lambda: 0.0):
    """The clock of chains of so many calls, of a known cost."""
    return lambda chains: chains * (fixed_s + count * call_s + noise())


def test_the_slope_of_a_known_cost():
    short, long = clock_of(2, 1e-3, 5e-5), clock_of(10, 1e-3, 5e-5)
    samples = chain.slope_samples(short, long, longer=8, limits=Limits(), before=lambda: None)
    assert samples.seconds == pytest.approx([5e-5] * 5)
    assert samples.block_sizes == (1,) * 5 and samples.calls % 8 == 0


def test_a_call_lost_in_noise_has_no_time():
    short, long = clock_of(2, 1e-3, 0.0), clock_of(10, 1e-3, 0.0)
    with pytest.raises(Broken, match="8 more calls take no longer than the noise"):
        chain.slope_samples(short, long, longer=8, limits=Limits(), before=lambda: None)


@pytest.mark.parametrize(("call_s", "calls"), [(0.0, 64), (1e-6, 64), (1e-3, 4), (1.0, 2)])
def test_a_chain_is_longer_by_some_milliseconds(call_s, calls):
    assert chain.longer_by(call_s) == calls
