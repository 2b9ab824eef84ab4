"""Expected results that take more than a line, and how a kernel's output is compared with them. Imports the problems alone."""

import numpy as np

from kernels.problems import Conv, Matmul, Peak, Problem, Stream
from kernels.reference import conv, matmul, stream
from kernels.reference.exact import OutputCheck, equal
from kernels.reference.matmul import operands
from kernels.reference.stream import stream_answer


def check(
    problem: Problem, inputs: tuple[np.ndarray, ...], output: np.ndarray, bound: float | None = None
) -> OutputCheck:
    """Whether a kernel's output is right, its shape and dtype included.

    inputs: the problem's whole-number inputs, for which nearly all answers are exact.
    bound: the largest error allowed of a convolution whose algorithm rounds (Winograd, FFT); without it all is exact.
    """
    output = np.asarray(output)
    if isinstance(problem, Matmul):
        return matmul.check(problem, inputs, output)
    if isinstance(problem, Conv):
        return conv.check(problem, inputs, output, bound or 0.0)
    if isinstance(problem, Stream):
        return stream.check(problem, inputs, output)
    if isinstance(problem, Peak):
        return _check_peak(problem, output)
    return equal(problem.expected(*inputs), output)


def _check_peak(problem: Peak, output: np.ndarray) -> OutputCheck:
    """A check of the multiply-adds that a peak kernel claims. With x <- 1 * x + 1 from 0 every value counts its own: their
    sum must be the FLOPs claimed, and at most a trip of the loop more (5 % is allowed)."""
    counts = output.astype(np.float64).ravel()
    flops = 2 * float(counts.sum())
    passed = counts.size > 0 and bool(np.all(counts == counts[0])) and problem.flops <= flops <= 1.05 * problem.flops
    return OutputCheck(
        "exact", passed, abs(flops - problem.flops) / problem.flops if np.isfinite(flops) else float("inf")
    )
