"""STREAM operations by NumPy's calls, which CuPy has too."""

from collections.abc import Callable

from kernels.problems import Stream


def library(xp, problem: Stream, arrays: tuple, out) -> Callable:
    """The call of one function for each operator, of the module `xp`, into `out`: the triad takes two."""
    three = arrays[0].dtype.type(3)

    def run():
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
