"""What every problem has, and checks of the fields that one is made of."""

import msgspec


class Base(msgspec.Struct, frozen=True):
    """What is asked of any problem, as one answers that has nothing of it: no arithmetic, no bytes, no direction.

    rated: the count that its rate is of. products: whether libraries do it on tensor cores, as multiply-adds of two operands.
    result_bytes: of what it gives, where its operands may come from the host. patience_s: seconds to wait for a row of it beyond
    any other's.
    """

    flops = bytes_moved = property(lambda self: None)
    rated = property(lambda self: "flops")
    dtype = math = model = operation = direction = property(lambda self: "")
    locked_bytes = result_bytes = patience_s = property(lambda self: 0)
    members = property(lambda self: ())
    once = products = property(lambda self: False)

    @property
    def operand_bytes(self) -> int:
        return self.footprint_bytes - self.result_bytes

    @property
    def out(self) -> str:
        """The type of its result."""
        return self.dtype


def check_counts(**counts: int) -> None:
    """Raises ValueError for a count that is no whole number of at least 1."""
    for name, value in counts.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")


def check_word(what: str, word: str, known: tuple[str, ...]) -> None:
    """Raises ValueError for a word that is not among the known ones."""
    if word not in known:
        raise ValueError(f"unknown {what} {word!r}; known: {', '.join(known)}")


def alignment(*sizes: int) -> int:
    """The largest of 8, 4 and 1 that divides every size."""
    return next(of for of in (8, 4, 1) if not any(size % of for size in sizes))
