"""Syntax trees of Python sources of the user's own. Standard library only."""

import ast
import os
import re

_LONGEST_BYTES = 1 << 24  # that are read of a file
_BUILDS = {"Sequential", "Model", "Functional"}  # Keras's classes of models
_NAME_OF_BUILDER = re.compile(r"build|model|net|create|make")


def parsed(source: bytes | str) -> ast.Module:
    """The syntax tree of Python source. Raises: SyntaxError, also where ast.parse raises another error: for source that is nested
    too deeply, or that contains zero bytes."""
    try:
        return ast.parse(source)
    except (RecursionError, MemoryError) as error:
        raise SyntaxError("nested too deeply") from error
    except ValueError as error:
        raise SyntaxError(str(error)) from error


def function_without_fit(path: str) -> str:
    """`path:function` for the first function of a Python file that builds a model and needs no arguments.

    "" for a file that calls `fit` when it runs (it is a training script), and for one without such a function.
    """
    if not path.endswith(".py") or not os.path.isfile(path):
        return ""
    try:
        with open(path, "rb") as file:
            tree = parsed(file.read(_LONGEST_BYTES))
    except (OSError, SyntaxError):
        return ""
    if _runs_fit(tree):
        return ""
    for function in functions(tree):
        if builds_model(function) and not required_arguments(function):
            return f"{path}:{function.name}"
    return ""


def _runs_fit(tree: ast.Module) -> bool:
    """Whether a module calls `fit` when it runs: at its top level, or in a function whose name its top level has."""
    names_at_top: set[str] = set()
    for node in tree.body:
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names_at_top |= names_in(node)
    functions_with_fit = [function.name for function in functions(tree) if "fit" in names_in(function)]
    return not names_at_top.isdisjoint(["fit", *functions_with_fit])


def functions(tree: ast.Module) -> list[ast.FunctionDef]:
    """The functions at the top level of a module."""
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]


def model_variables(tree: ast.Module) -> list[str]:
    """The names of a module's variables that probably hold a model: `model`, and those to which a call of Sequential, Model or
    Functional is assigned."""
    variables: list[str] = []
    for node in tree.body:
        if not isinstance(node, ast.Assign):
            continue
        value_builds_model = not _BUILDS.isdisjoint(names_in(node.value))
        for target in node.targets:
            if isinstance(target, ast.Name) and (value_builds_model or target.id == "model"):
                variables.append(target.id)
    return variables


def required_arguments(function: ast.FunctionDef) -> list[str]:
    """The names of the arguments without a default, which a call of the function has to pass."""
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    without_default = positional[
        : len(positional) - len(arguments.defaults)
    ]  # defaults are those of the last arguments
    required = [argument.arg for argument in without_default]
    for argument, default in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if default is None:
            required.append(argument.arg)
    return required


def builds_model(function: ast.FunctionDef) -> bool:
    """Whether a function probably builds a model: its name says so, or its code has Sequential, Model or Functional."""
    if _NAME_OF_BUILDER.search(function.name):
        return True
    return not _BUILDS.isdisjoint(names_in(function))


def names_in(tree: ast.AST) -> set[str]:
    """All names in a piece of source: of variables, attributes, functions, classes and imports."""
    names: set[str] = set()
    for node in ast.walk(tree):
        for field in ("id", "attr", "name", "asname"):
            name = getattr(node, field, None)
            if name is not None:
                names.add(name)
    return names
