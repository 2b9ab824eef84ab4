"""Syntax trees of Python sources of the user's own."""

import ast


def parsed(source: bytes | str) -> ast.Module:
    """The tree of a source. Raises: SyntaxError, also for a source that is nested too deeply or holds zero bytes."""
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deeply") from error
    except ValueError as error:
        raise SyntaxError(str(error)) from error
