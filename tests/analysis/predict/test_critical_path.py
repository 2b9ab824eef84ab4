"""Which kernels of a step wait for each other, and how long they keep the cores busy, by hand."""

import made_profile
import pytest
from fake_measurements import GPU_MACHINE, row
from made_profile import BYTES

from analysis.predict import critical_path, profile
from analysis.predict.critical_path import TimedKernel, longest_chain
from analysis.predict.step_kernels import fusion
from analysis.predict.step_kernels.step_kernel import StepKernel
from analysis.stats import exact
from kernels import networks
from kernels.problems import Matmul, Stream

PRODUCT = Matmul(8, 8, 8)
UPDATE = Stream("adam", 28 * 1000, "float32")


def two_layers(b_wgrad):
    """Two layers: forward 1 + 2 s, the loss 0.5 and its gradient 0.5, then back."""
    seconds = {
        ("a", "fprop"): 1.0,
        ("a", "wgrad"): 5.0,
        ("b", "fprop"): 2.0,
        ("b", "dgrad"): 3.0,
        ("b", "wgrad"): b_wgrad,
        ("mse", "loss"): 0.5,
        ("mse", "loss_grad"): 0.5,
        ("a", "adam kernel"): 1.0,
        ("b", "adam kernel"): 4.0,
        ("b", "bias_grad"): 1e-6,
        ("b", "adam bias"): 2.0,
    }
    kernels = []
    for (layer, direction), layer_s in seconds.items():
        is_update = direction.startswith("adam")
        kernel = StepKernel(
            name=f"{layer} {direction}",
            part="optimizer" if is_update else "matmul",
            problem=UPDATE if is_update else PRODUCT,
            operations=28 if is_update else 1,
            layer=layer,
            direction=direction,
        )
        kernels.append(TimedKernel(kernel=kernel, seconds=exact(layer_s)))
    return kernels


@pytest.mark.parametrize(
    ("b_wgrad", "overhead_s", "chain_s"),
    [
        (20.0, 0.0, 4.0 + 20.0 + 4.0),
        (0.1, 0.0, 4.0 + 3.0 + 5.0 + 1.0),
        (5.0, 0.0, 4.0 + 5.0 + 4.0),
        (4.0, 0.01, 4.0 + 3.0 + 5.0 + 1.0),
    ],
)
def test_the_longest_line_ends_with_any_layers_weights(b_wgrad, overhead_s, chain_s):
    """Forward, loss and its gradient are 4 s. Then the second layer's weights, or the first one's after the second's dgrad."""
    chain = longest_chain(two_layers(b_wgrad), overhead_s)
    assert sum(timed.seconds.value for timed in chain) == pytest.approx(chain_s)
    names = [timed.kernel.name for timed in chain]
    assert ("b dgrad" in names) == ("a wgrad" in names) != ("b wgrad" in names) and "b adam bias" not in names


def test_an_operation_counts_its_dispatch():
    # each operation a second: the first layer's line has the dgrad more
    assert "a wgrad" in [timed.kernel.name for timed in longest_chain(two_layers(8.5), 10.0)]
    assert "b wgrad" in [timed.kernel.name for timed in longest_chain(two_layers(8.5), 0.0)]


def test_the_path_runs_at_its_best_rate():
    """The line's pass runs at a hundredth of the best rate that any pass reaches; the product beside it keeps all cores busy."""
    rows = [
        row("stream/tensorflow/function", Stream(op, n, "float32"), n / rate)
        for op, rate in (("relu_grad", BYTES["cpu"] / 100), ("add", BYTES["cpu"]))
        for n in made_profile.SIZES
    ]
    whole = profile.Profile([*rows, *made_profile.launches()], GPU_MACHINE)
    network = networks.find("mlp-784-100x2-10")
    kernels = {k.name: k for k in fusion.op_by_op(networks.step(network, 32), "cpu")}
    line, aside = kernels["dense1 relu_grad"], kernels["dense1 wgrad"]
    timed = [TimedKernel(kernel=line, seconds=exact(1e-2)), TimedKernel(kernel=aside, seconds=exact(3e-4))]
    path = critical_path.critical_path(timed, whole, "cpu")
    best = line.problem.bytes_moved / BYTES["cpu"]
    assert path.busy == pytest.approx(3e-4 + best * 2 / 3, rel=0.4)


def test_kernels_beside_the_path_cost_at_most_once(monkeypatch):
    """On the path: 10 s, three times at 2 s each at best, and 3 s, of which its bytes take 9. Beside it: 4 s."""
    kernels = [
        StepKernel(name=name, part="matmul", problem=Matmul(8, 8, 8), times=times)
        for name, times in (("a", 3), ("b", 1), ("c", 1))
    ]
    timed = [
        TimedKernel(kernel=kernel, seconds=exact(seconds), memory_s=memory_s)
        for kernel, seconds, memory_s in zip(kernels, (10.0, 3.0, 4.0), (1.0, 9.0, 0.0), strict=True)
    ]
    monkeypatch.setattr(critical_path, "longest_chain", lambda timed, overhead_s: timed[:2])
    monkeypatch.setattr(critical_path, "least_seconds", lambda profile, problem, device: 2.0)
    path = critical_path.critical_path(timed, profile.Profile([]), "cpu")
    assert (path.seconds, path.busy) == (13.0, 6.0 + 3.0 + 4.0)
