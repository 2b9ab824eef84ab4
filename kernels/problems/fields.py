"""Fields of a problem, checked when it is made."""


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
