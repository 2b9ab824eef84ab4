"""Calls that cost little: what a short product would lose is what Python takes to look at its arguments."""

import numba


def direct(function, *arguments):
    """The call of a compiled function with these arguments, which are looked at once, now."""
    function.compile(kinds := tuple(map(numba.typeof, arguments)))
    entry = function.overloads[kinds].entry_point
    return lambda: entry(*arguments)
