"""The critical path of a step whose operations may run at once: the longest chain of kernels that wait for each other."""

from collections.abc import Sequence

import msgspec

from analysis.predict.best_rates import least_seconds
from analysis.predict.passes import operation_overhead
from analysis.predict.profile import Profile
from analysis.predict.step_kernels.step_kernel import StepKernel, is_backward
from analysis.stats import Estimate

#: The stages of a step: WEIGHTS are gradients of weights and updates, for which no other layer waits.
FORWARD = "forward"
BACKWARD = "backward"
WEIGHTS = "weights"


class TimedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel with the seconds of all its runs in a step."""

    kernel: StepKernel
    seconds: Estimate
    #: Seconds of a run at the memory's bandwidth; 0 where a cache holds its arrays.
    memory_s: float = 0.0


class Path(msgspec.Struct, frozen=True, kw_only=True):
    """The critical path of a graph whose operations may overlap."""

    #: Of the longest chain of operations that wait for each other.
    seconds: float
    #: Seconds for which all operations together keep every core or the memory busy, those of the chain at the best known rates.
    busy: float


def critical_path(kernels: Sequence[TimedKernel], profile: Profile, device: str) -> Path:
    """The longest chain of a step's kernels that wait for each other, and the seconds in which the device is fully busy. kernels:
    of a step on a CPU that is not compiled."""
    overhead = operation_overhead(profile, device)
    chain = longest_chain(kernels, overhead.value if overhead else 0.0)
    names = {timed.kernel.name for timed in chain}
    busy = 0.0
    for timed in kernels:
        if timed.kernel.name in names:
            best_s = max(timed.memory_s, least_seconds(profile, timed.kernel.problem, device))
            busy += min(timed.seconds.value, best_s * timed.kernel.times)
        else:
            busy += timed.seconds.value
    return Path(seconds=sum(timed.seconds.value for timed in chain), busy=busy)


def longest_chain(kernels: Sequence[TimedKernel], overhead_s: float) -> list[TimedKernel]:
    """The kernels of the chain that takes longest. Each operation adds `overhead_s` of dispatch.

    A step goes forward, then backward. The gradient of a layer's weights waits for the gradient of the layer's output, the update
    of a variable for the variable's gradient; nothing waits for either.

    kernels: of a graph that is not compiled, forward in the order of the layers.
    """
    reached = [timed for timed in kernels if _stage(timed.kernel) == FORWARD]
    layers: dict[str, list[TimedKernel]] = {}
    for timed in kernels:
        layers.setdefault(timed.kernel.layer, []).append(timed)
    chains = []
    for layer in reversed(layers.values()):
        backward = [timed for timed in layer if _stage(timed.kernel) == BACKWARD]
        weights = [timed for timed in layer if _stage(timed.kernel) == WEIGHTS]
        # the gradient of the layer's input is for the layer before it; its weights do not wait for that
        output_gradient = [timed for timed in backward if timed.kernel.direction != "dgrad"]
        for variable in dict.fromkeys(_variable(timed.kernel) for timed in weights):
            same_variable = [timed for timed in weights if _variable(timed.kernel) == variable]
            chains.append([*reached, *output_gradient, *same_variable])
        reached = [*reached, *backward]
    chains.append(reached)
    return max(chains, key=lambda chain: _chain_seconds(chain, overhead_s))


def _stage(kernel: StepKernel) -> str:
    """FORWARD, BACKWARD, or WEIGHTS for gradients of weights and updates of variables."""
    if kernel.part == "optimizer" or kernel.direction in ("wgrad", "bias_grad"):
        return WEIGHTS
    return BACKWARD if is_backward(kernel.direction) else FORWARD


def _variable(kernel: StepKernel) -> str:
    """The variable that a kernel updates or whose gradient it is: `kernel`, `bias` ..."""
    if kernel.direction == "wgrad":
        return "kernel"
    if kernel.direction == "bias_grad":
        return "bias"
    return kernel.direction.rpartition(" ")[2]


def _chain_seconds(chain: Sequence[TimedKernel], overhead_s: float) -> float:
    """Seconds of a chain's kernels one after the other, with the overhead of their operations."""
    return sum(timed.seconds.value + overhead_s * timed.kernel.operations * timed.kernel.times for timed in chain)
