"""A decorator that names the calls a kernel makes."""

import functools
from collections.abc import Callable

from kernels.problems import Launch


def only(*calls: str) -> Callable:
    """A decorator: the kernel raises ValueError for calls of other names (the field `call` of Launch), and has the names as
    `calls`."""

    def mark(bind: Callable) -> Callable:
        """The kernel with that check in front of it."""

        @functools.wraps(bind)
        def checked(problem: Launch, *arrays):
            if problem.call not in calls:
                raise ValueError(f"{bind.__name__} has no {problem.call}; it has {', '.join(calls)}")
            return bind(problem, *arrays)

        checked.calls = calls
        return checked

    return mark
