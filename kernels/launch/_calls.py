"""Which calls a kernel makes."""

import functools
from collections.abc import Callable

from kernels.problems import Launch


def only(*calls: str, who: str = "") -> Callable:
    """Makes a kernel refuse all other calls, `who` (its own name) as the subject of the sentence."""

    def mark(bind: Callable) -> Callable:
        @functools.wraps(bind)
        def checked(problem: Launch, *arrays):
            if problem.call not in calls:
                raise ValueError(f"{who or bind.__name__} has no {problem.call}; it has {', '.join(calls)}")
            return bind(problem, *arrays)

        checked.calls = calls
        return checked

    return mark
