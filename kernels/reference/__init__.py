"""Expected results, and how a kernel's output is compared with them. Imports the problems alone."""

import numpy as np

from kernels.problems import AllReduce, Conv, Launch, Matmul, Peak, PeerCopy, Problem, Stream, Transfer
from kernels.reference import conv, matmul, stream
from kernels.reference.exact import OutputCheck, equal
from kernels.reference.matmul import operands
from kernels.reference.stream import stream_answer


def check(
    problem: Problem, inputs: tuple[np.ndarray, ...], output: np.ndarray, bound: float | None = None
) -> OutputCheck:
    """How a kernel's output on whole-number inputs compares with the answer, its shape and dtype included.

    `bound`: the largest error allowed of a convolution whose algorithm rounds (Winograd, FFT); without it all is exact.
    """
    output = np.asarray(output)
    if isinstance(problem, Matmul):
        return matmul.check(problem, inputs, output)
    if isinstance(problem, Conv):
        return conv.check(problem, inputs, output, bound or 0.0)
    if isinstance(problem, Stream):
        return stream.check(problem, inputs, output)
    if isinstance(problem, Transfer):
        return equal(np.concatenate(inputs * (2 if problem.direction == "both" else 1)), output)
    if isinstance(problem, Launch):
        return equal(launch_answer(problem, inputs), output)
    if isinstance(problem, Peak):
        return _check_peak(problem, output)
    if isinstance(problem, PeerCopy):
        return equal(np.concatenate(inputs), output)
    if isinstance(problem, AllReduce):  # every GPU has the whole sum: of so few whole numbers it is exact in any type
        total = inputs[0].astype(np.float32).sum(axis=0).astype(inputs[0].dtype)
        return equal(np.broadcast_to(total, inputs[0].shape), output)
    raise TypeError(f"no reference for {type(problem).__name__}")


def _check_peak(problem: Peak, output: np.ndarray) -> OutputCheck:
    """With x <- 1 * x + 1 from 0 every value counts its own multiply-adds: their sum must be the FLOPs claimed, and at
    most a trip of the loop more (5 % is allowed)."""
    counts = output.astype(np.float64).ravel()
    flops = 2 * float(counts.sum())
    passed = counts.size > 0 and bool(np.all(counts == counts[0])) and problem.flops <= flops <= 1.05 * problem.flops
    return OutputCheck(
        "exact", passed, abs(flops - problem.flops) / problem.flops if np.isfinite(flops) else float("inf")
    )


def launch_answer(problem: Launch, inputs: tuple[np.ndarray, ...]) -> np.ndarray:
    """x + count for `elementwise`, the product for `matmul`, the value for `copy`; nothing for `empty`; the optimizer's
    steps for `step` and `epoch`."""
    match problem.call:
        case "elementwise":
            return inputs[0] + np.float32(problem.count)
        case "matmul":
            return (inputs[0].astype(np.int64) @ inputs[1].astype(np.int64)).astype(np.float32)
        case "copy" | "predict":  # the model that predicts has weight 1 and shift 0
            return inputs[0]
        case "step" | "epoch" | "train_on_batch":
            return np.array([problem.count], np.int64)
        case _:
            return np.empty(0)
