"""Calls with little overhead: for a short product, Python's checks of the arguments would cost more than the work."""

from collections.abc import Callable
from typing import Any

import numba


def direct(function, *arguments) -> Callable[[], Any]:
    """A call without arguments of a Numba function with these arguments. It is compiled for their types here, so that a call
    looks up nothing."""
    function.compile(kinds := tuple(map(numba.typeof, arguments)))
    entry = function.overloads[kinds].entry_point
    return lambda: entry(*arguments)
