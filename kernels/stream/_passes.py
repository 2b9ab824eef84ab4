"""STREAM operations by NumPy's calls, which CuPy has too."""

import types
from collections.abc import Sequence

from kernels.problems import Stream
from kernels.registry import TimedCall


def library(xp: types.ModuleType, problem: Stream, arrays: Sequence, out) -> TimedCall:
    """The timed call of a STREAM operation by one function of the module `xp`, NumPy or CuPy, for each operator: the triad
    takes two.

    arrays: the one or two arrays read, xp's, of `problem.elements` values each.
    out: the array written, of as many values; of one for `read`, a sum.
    """
    three = arrays[0].dtype.type(3)

    def run():
        """Computes the problem's operation into `out`; the factor of scale and triad is 3."""
        match problem.operation:
            case "copy":
                xp.copyto(out, arrays[0])
            case "scale":
                xp.multiply(arrays[0], three, out=out)
            case "add":
                xp.add(arrays[0], arrays[1], out=out)
            case "triad":
                xp.multiply(arrays[1], three, out=out)
                xp.add(out, arrays[0], out=out)
            case _:
                xp.sum(arrays[0], out=out, keepdims=True)
        return out

    return run
