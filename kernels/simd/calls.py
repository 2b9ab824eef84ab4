"""Calls with little overhead: for a short product, Python's checks of the arguments would cost more than the work."""

import numba


def direct(function, *arguments):
    """The call of a compiled function with these arguments, whose types are resolved once, now."""
    function.compile(kinds := tuple(map(numba.typeof, arguments)))
    entry = function.overloads[kinds].entry_point
    return lambda: entry(*arguments)
