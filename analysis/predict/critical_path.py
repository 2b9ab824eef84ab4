"""What of a graph's operations waits for what: those that nothing waits for run beside the rest, as far as there are cores."""

import math

import msgspec

from analysis.predict import fusion
from analysis.predict.fusion import Kernel
from analysis.predict.profile import Profile, once
from analysis.stats import middle
from kernels.problems import Problem, Stream

Timed = list[tuple[Kernel, float]]
_SHORT = 8000 / 3e9  # seconds: so many cycles
_NEAR = 2  # powers of two that passes may differ by whose best rate is asked for


class Path(msgspec.Struct, frozen=True):
    """What a graph whose operations may run at once needs at least: seconds of the longest line of those that wait for each
    other; how many of its operations other threads dispatch meanwhile; and seconds for which all together keep every core or
    the memory busy: those of the line at the best rates that are known, those beside it at their own on the cores that are
    left."""

    seconds: float
    aside: int
    busy: float


def fully_used(problem: Problem, of: "Profile", device: str) -> float:
    """Seconds of a kernel at the best rate that any reaches; infinite where no row tells one."""
    best = _best_rate(problem, of, device)
    if best is None:
        return math.inf
    return (
        problem.bytes_moved * fusion.passes(problem.operation) if isinstance(problem, Stream) else problem.flops
    ) / best


def aside_of_the_rest(k: Kernel) -> bool:
    """Whether no other operation of the step waits for a kernel: the gradients of weights, and the updates by them."""
    return k.part == "optimizer" or k.name.endswith((" wgrad", " bias_grad"))


def longest(timed: Timed, each: float) -> Timed:
    """The longest line of kernels that wait for each other, the dispatch of each operation (`each` seconds) counted. The step
    goes forward, then backward; the gradient of a layer's weights can begin when that of its output is there, the update of a
    variable when its gradient is, and nothing waits for either.

    timed: the kernels of a graph that is not compiled with their seconds, forward in the order of the layers.
    """
    layers: dict[str, list] = {k.layer: [] for k, _ in timed}
    for k, seconds in timed:
        layers[k.layer].append((k, seconds))
    begun = [(k, s) for k, s in timed if not (aside_of_the_rest(k) or _backward(k))]
    lines = []
    for own in reversed(layers.values()):
        back, learned = [(k, s) for k, s in own if _backward(k)], [(k, s) for k, s in own if aside_of_the_rest(k)]
        here = [*begun, *((k, s) for k, s in back if _what(k) != "dgrad")]
        begun = [*begun, *back]
        for variable in dict.fromkeys(_variable(k) for k, _ in learned):
            lines.append([*here, *((k, s) for k, s in learned if _variable(k) == variable)])
    return max([*lines, begun], key=lambda line: sum(s + each * k.operations for k, s in line))


def concurrent_dispatches(timed: Timed, line: Timed, inline: bool = True) -> int:
    """Operations that other threads dispatch while those of the line run: long ones alone, as the thread that finds a short
    one ready runs it at once; all, unless short ones run `inline`.

    Source: TensorFlow's executor.cc and its kernel costs (kOpIsExpensiveThresholdCycles).
    """
    there = {k.name for k, _ in line}
    if not inline:
        return sum(k.operations for k, _ in timed if k.name not in there)
    each = [(k, s / _arrays(k)) for k, s in timed if k.name not in there]
    return sum(_arrays(k) for k, seconds in each if seconds > _SHORT)


def _arrays(k: Kernel) -> int:
    """Operations of a kernel that are on whole arrays."""
    return min(k.operations, fusion.FORMULAS.get(k.problem.operation, 1)) if isinstance(k.problem, Stream) else 1


def _what(k: Kernel) -> str:
    """What a kernel does: `dgrad`, `relu_grad`, `adam kernel`."""
    return k.name[len(k.layer) + 1 :]


def _variable(k: Kernel) -> str:
    """The variable that is learned by a kernel which nothing waits for."""
    return {"wgrad": "kernel", "bias_grad": "bias"}.get(_what(k), _what(k).rpartition(" ")[2])


def _backward(k: Kernel) -> bool:
    """Whether a kernel that others wait for is of the way back."""
    what = _what(k)
    return not aside_of_the_rest(k) and (what == "dgrad" or what.endswith("_grad") or what.startswith("gradient_sum"))


def _best_rate(problem: Problem, of: "Profile", device: str) -> float | None:
    """FLOP/s of the best product of any kind on the device; of a pass bytes/s of the best one on about as many bytes."""
    moved = isinstance(problem, Stream)
    about = round(math.log2(problem.bytes_moved) / _NEAR) * _NEAR if moved else 0
    return _best(of, device, "" if moved else problem.dtype, about)


@once
def _best(of: "Profile", device: str, dtype: str, about: int) -> float | None:
    """Of products of a dtype; without one, of passes."""
    rates = []
    for m in of.rows.get(("matmul" if dtype else "stream", device), ()):
        near = m.problem.dtype == dtype if dtype else abs(math.log2(m.problem.bytes_moved) - about) <= _NEAR
        if near and (samples := m.on("device") or m.on("host-latency")):
            rates.append((m.problem.flops if dtype else m.problem.bytes_moved) / middle(samples))
    return max(rates, default=None)
