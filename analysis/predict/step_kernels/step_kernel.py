"""A kernel of a training step, and how many launches and operations of the graph some kernels come to."""

from collections.abc import Iterable

import msgspec

from kernels.problems import Problem


class StepKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel of a training step: it carries out one operation of the graph, or several that are fused."""

    #: Its operations, in words: `dense1 bias to relu`.
    name: str
    #: The part of a step's budget that it counts in: matmul, conv, element-wise or optimizer.
    part: str
    #: The problem whose rows price it; None of what takes no time beside its launch.
    problem: Problem | None
    #: Operations of the graph that it carries out.
    operations: int = 1
    #: Why another problem stands for its own, or why it has none, in words; "" if the problem is its own.
    why: str = ""
    #: Small kernels that it comes to; 0 of what launches nothing.
    launches: int = 1
    #: The layer of its operation, of several that of the first.
    layer: str = ""
    #: How often a step runs it, one run after the other: more than once in a loop.
    times: int = 1
    #: fprop, dgrad or wgrad of a product, else the name of its pass: `relu_grad`, `adam kernel`.
    direction: str = ""
    #: What is priced roughly about it, in words; "" where rows are of its kind.
    rough: str = ""


def is_backward(direction: str) -> bool:
    """Whether an operation is a gradient, or the sum of gradients where branches meet."""
    return direction.endswith("grad") or direction.partition(" ")[0] == "gradient_sum"


def launches(kernels: Iterable[StepKernel]) -> int:
    """How many kernels a step launches."""
    return sum(kernel.launches * kernel.times for kernel in kernels)


def operations_outside_loops(kernels: Iterable[StepKernel]) -> int:
    """How many operations of the graph a step carries out outside loops."""
    return sum(kernel.operations * kernel.times for kernel in kernels if kernel.times <= 1)


def operations_in_loops(kernels: Iterable[StepKernel]) -> int:
    """How many operations of the graph a step carries out in loops, each time step counted."""
    return sum(kernel.operations * kernel.times for kernel in kernels if kernel.times > 1)
