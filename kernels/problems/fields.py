"""Fields and properties common to all problems, and checks of field values."""

from collections.abc import Collection

import msgspec
import numpy as np

from kernels.problems.arrays import MATHS, UnknownName


class Base(msgspec.Struct, frozen=True, omit_defaults=True):
    """Defaults of the properties that every problem has. Stored without default values."""

    #: FLOPs, and bytes that must at least move; None of a problem that has no such count.
    flops = bytes_moved = property(lambda self: None)
    #: Name of the count that its rate is computed from.
    rated = property(lambda self: "flops")
    #: "" of a problem without it.
    dtype = math = model = operation = direction = property(lambda self: "")
    #: Host memory that may not be paged out; bytes of a result, where the operands may come from the host; seconds to wait for a
    #: row of it beyond any other's.
    locked_bytes = result_bytes = patience_s = property(lambda self: 0)
    #: Numbers of the GPUs of this host at work, where there are several.
    members = property(lambda self: ())
    #: Whether it happens once in a process; whether it is multiply-adds of two operands, which libraries do on tensor cores.
    once = products = property(lambda self: False)

    @property
    def footprint_bytes(self) -> int:
        """Bytes of memory that it touches."""
        return self.bytes_moved

    @property
    def operand_bytes(self) -> int:
        return self.footprint_bytes - self.result_bytes

    @property
    def out(self) -> str:
        """The type of its result."""
        return self.dtype

    def expected(self, *inputs: np.ndarray) -> np.ndarray:
        """The exact result on whole-number inputs; results that take more than a line are in kernels/reference.

        Raises: TypeError for a problem that no kernel solves.
        """
        raise TypeError(f"no reference for {type(self).__name__}")


def check_counts(**counts: int) -> None:
    """Raises ValueError for a count that is no whole number of at least 1."""
    for name, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def check_word(what: str, word: str, known: Collection[str]) -> None:
    """Raises ValueError for a word that is not a known one."""
    if word not in known:
        raise UnknownName(what, word, known)


def check_gpus(gpus: str) -> None:
    """Raises ValueError for text that is not a list of GPUs."""
    if not all(word.isdigit() for word in gpus.split(",")):
        raise ValueError(f"gpus are whole numbers like 0,1, not {gpus!r}")


def fill_math(problem: Base) -> None:
    """Fills in the arithmetic `math` of a product where it is empty: the default of the operands' type.

    Raises: ValueError for a type or arithmetic that is not known.
    """
    check_word("dtype", problem.dtype, MATHS)
    msgspec.structs.force_setattr(problem, "math", problem.math or MATHS[problem.dtype][0])
    if problem.math not in MATHS[problem.dtype]:
        raise ValueError(f"{problem.dtype} operands cannot be multiplied in {problem.math!r}")


def alignment(*sizes: int) -> int:
    """The largest of 8, 4 and 1 that divides every size."""
    for divisor in (8, 4):
        if all(size % divisor == 0 for size in sizes):
            return divisor
    return 1
