"""Syntax trees of Python sources of the user's own. Standard library only."""

import ast
import os
import re

_LONGEST_BYTES = 1 << 24  # that are read of a file
# Words of a function that builds a model, in its name or its code.
_BUILDS = {"Sequential", "Model", "Functional"}
_CALLED_SO = re.compile(r"build|model|net|create|make")


def parsed(source: bytes | str) -> ast.Module:
    """The tree of a source. Raises: SyntaxError, also for a source that is nested too deeply or holds zero bytes."""
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deeply") from error
    except ValueError as error:
        raise SyntaxError(str(error)) from error


def function_without_fit(path: str) -> str:
    """`path:function` of the first function that builds a model in a Python file that trains none when it runs; "" of a script,
    and of a file without such a function."""
    if not path.endswith(".py") or not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            tree = parsed(file.read(_LONGEST_BYTES))
    except (OSError, SyntaxError):
        return ""
    builders = [node.name for node in functions(tree) if builds_model(node) and not required_arguments(node)]
    return f"{path}:{builders[0]}" if builders and not _runs_fit(tree) else ""


def _runs_fit(tree: ast.Module) -> bool:
    """Whether a module calls `fit` when it runs: at its top level, or in a function that its top level names."""
    spelled_at_top: set[str | None] = set()
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            spelled_at_top |= spelled(node)
    fitting = [function.name for function in functions(tree) if "fit" in spelled(function)]
    return not spelled_at_top.isdisjoint(["fit", *fitting])


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions of a module."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def model_variables(tree: ast.Module) -> list[str]:
    """The variables of a module that hold a model: they are called `model`, or their value is built by Keras's words for one."""
    variables = []
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        builds = not _BUILDS.isdisjoint(spelled(node.value))
        for target in node.targets:
            if isinstance(target, ast.Name) and (builds or target.id == "model"):
                variables.append(target.id)
    return variables


def required_arguments(function: ast.FunctionDef) -> list[str]:
    """The arguments that a function cannot be called without."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    needed = positional[: len(positional) - len(arguments.defaults)]
    by_keyword = zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [argument.arg for argument in needed] + [argument.arg for argument, value in by_keyword if value is None]


def builds_model(function: ast.FunctionDef) -> bool:
    """Whether a function builds a model, as far as its name or its code says."""
    if _CALLED_SO.search(function.name):
        return True
    return not _BUILDS.isdisjoint(spelled(function))


def spelled(tree: ast.AST) -> set[str | None]:
    """The names that a source spells."""
    fields = ("id", "attr", "name", "asname")
    names: set[str | None] = set()
    for node in ast.walk(tree):
        names.update(getattr(node, field, None) for field in fields)
    return names
