"""The critical path of a step whose operations may run at once: the longest chain of kernels that wait for each other."""

from collections.abc import Sequence

import msgspec

from analysis.predict.best_rates import least_seconds
from analysis.predict.passes import operation_overhead
from analysis.predict.profile import Profile
from analysis.predict.step_kernels.step_kernel import StepKernel, is_backward
from analysis.stats import Estimate


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


def critical_path(timed: Sequence[TimedKernel], profile: Profile, device: str) -> Path:
    """The critical path through the kernels of a step."""
    overhead = operation_overhead(profile, device)
    chain = longest_chain(timed, overhead.value if overhead else 0.0)
    names = {one.kernel.name for one in chain}
    busy = 0.0
    for one in timed:
        if one.kernel.name in names:
            best_s = max(one.memory_s, least_seconds(profile, one.kernel.problem, device))
            busy += min(one.seconds.value, best_s * one.kernel.times)
        else:
            busy += one.seconds.value
    return Path(seconds=sum(one.seconds.value for one in chain), busy=busy)


def longest_chain(timed: Sequence[TimedKernel], overhead_s: float) -> list[TimedKernel]:
    """The kernels of the chain that takes longest, with `overhead_s` of dispatch for each operation.

    A step goes forward, then backward. The gradient of a layer's weights waits for the gradient of its output, the update of a
    variable for its gradient, and nothing waits for either.

    timed: the kernels of a graph that is not compiled, forward in the order of the layers.
    """
    layers: dict[str, list[TimedKernel]] = {}
    for one in timed:
        layers.setdefault(one.kernel.layer, []).append(one)
    reached = [one for one in timed if not is_last(one.kernel) and not is_backward(one.kernel.direction)]
    chains = []
    for layer in reversed(layers.values()):
        last = [one for one in layer if is_last(one.kernel)]
        backward = [one for one in layer if is_backward(one.kernel.direction) and not is_last(one.kernel)]
        output_gradient = [one for one in backward if one.kernel.direction != "dgrad"]
        for variable in dict.fromkeys(_variable(one.kernel) for one in last):
            same_variable = [one for one in last if _variable(one.kernel) == variable]
            chains.append([*reached, *output_gradient, *same_variable])
        reached = [*reached, *backward]
    chains.append(reached)
    return max(chains, key=lambda chain: _chain_seconds(chain, overhead_s))


def is_last(kernel: StepKernel) -> bool:
    """Whether no other layer waits for this kernel: true for gradients of weights and for updates."""
    return kernel.part == "optimizer" or kernel.direction in ("wgrad", "bias_grad")


def _variable(kernel: StepKernel) -> str:
    """The variable that a kernel updates or whose gradient it is: `kernel`, `bias` ..."""
    if kernel.direction == "wgrad":
        return "kernel"
    if kernel.direction == "bias_grad":
        return "bias"
    return kernel.direction.rpartition(" ")[2]


def _chain_seconds(chain: Sequence[TimedKernel], overhead_s: float) -> float:
    return sum(one.seconds.value + overhead_s * one.kernel.operations * one.kernel.times for one in chain)
