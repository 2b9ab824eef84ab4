"""What of a graph's operations waits for what: those that nothing waits for run beside the rest, as far as there are cores."""

import math
from typing import TYPE_CHECKING

import msgspec

from analysis import fusion
from analysis.estimate import middle
from kernels.problems import Problem, Stream

if TYPE_CHECKING:
    from analysis.fusion import Kernel
    from analysis.profile import Profile

_NEAR = 2  # powers of two that passes may differ by whose best rate is asked for


class Path(msgspec.Struct, frozen=True):
    """What a graph whose operations may run at once needs at least: seconds of those that wait for each other; how many of its
    operations need not be waited for; and seconds for which all together keep every core or the memory busy."""

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


def aside_of_the_rest(k: "Kernel") -> bool:
    """Whether no other operation of the step waits for a kernel: the gradients of weights, and the updates by them."""
    return k.part == "optimizer" or k.name.endswith((" wgrad", " bias_grad"))


def last_learned(kernels: "list[Kernel]") -> tuple[str, ...]:
    """The names of a step's last kernels: the gradient of the first layer's weights, and their update."""
    first = next((k.name.rpartition(" ")[0] for k in kernels if k.name.endswith(" wgrad")), None)
    return tuple(k.name for k in kernels if first and aside_of_the_rest(k) and k.name.startswith(f"{first} ")
                 and k.name.endswith((" wgrad", " kernel")))  # fmt: skip


def _best_rate(problem: Problem, of: "Profile", device: str) -> float | None:
    """FLOP/s of the best product of any kind on the device; of a pass bytes/s of the best one on about as many bytes."""
    moved = isinstance(problem, Stream)
    about = round(math.log2(problem.bytes_moved) / _NEAR) * _NEAR if moved else 0
    key = ("best", device, problem.op, problem.dtype, about)
    if key not in of.kept:
        rates = []
        for m in of.rows.get(("stream" if moved else "matmul", device), ()):
            samples = m.on("device") or m.on("host-latency")
            near = not moved or abs(math.log2(m.problem.bytes_moved) - about) <= _NEAR
            if samples and near and (moved or m.problem.dtype == problem.dtype):
                rates.append((m.problem.bytes_moved if moved else m.problem.flops) / middle(samples))
        of.kept[key] = max(rates, default=None)
    return of.kept[key]
