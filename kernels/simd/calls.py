"""Calls with little overhead: for a short product, Python's checks of the arguments would cost more than the work."""

import numba


def direct(function, *arguments):
    """A function without arguments that calls a Numba function with these; their types are resolved once, here."""
    function.compile(kinds := tuple(map(numba.typeof, arguments)))
    entry = function.overloads[kinds].entry_point
    return lambda: entry(*arguments)
