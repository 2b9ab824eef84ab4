"""A check that can fail: equality where the arithmetic is exact, so that NaN fails by itself."""

import msgspec
import numpy as np


class OutputCheck(msgspec.Struct, frozen=True):
    """How an output compares with the expected one."""

    #: `exact`: equality; `bound`: a largest error; else the rule in words.
    how: str
    passed: bool
    #: None where a rule has no error.
    max_error: float | None = None


WRONG = OutputCheck("exact", False, float("inf"))


def equal(expected: np.ndarray, output: np.ndarray) -> OutputCheck:
    """A check that shape, type and every value are the expected ones; its error is the largest difference."""
    if output.shape != expected.shape or output.dtype != expected.dtype:
        return WRONG
    passed = bool(np.array_equal(output, expected))
    with np.errstate(all="ignore"):
        error = 0.0 if passed else float(np.max(np.abs(output.astype(np.float64) - expected.astype(np.float64))))
    return OutputCheck("exact", passed, error)
