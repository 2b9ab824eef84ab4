"""Whether a user's own model is where its name says, before a process is started that takes ten seconds to find out.

Nothing of the user's is imported or run: modules are looked for as Python's finders do, functions by reading the source.
"""

# What cannot be decided so is let through; the worker (workloads.frameworks.user_model) has the last word.

import ast
import json
import os
import sys
import zipfile
from importlib.machinery import ModuleSpec, PathFinder

# What a module may make names or submodules with that its source does not spell.
_MAKES_NAMES = {"globals", "locals", "vars", "exec", "eval", "setattr", "__getattr__", "__path__", "modules"}


def missing(name: str) -> str:
    """Why `package.module:function` or `file.keras` cannot be a model, as far as its files say; "" where they do not."""
    return _of_file(name) if name.endswith(".keras") else _of_function(name)


def _of_file(name: str) -> str:
    if not os.path.isfile(name):
        return f"there is no file {name}"
    if not zipfile.is_zipfile(name):
        return f"{name} is no Keras model: a .keras file is a zip archive, as model.save writes it"
    try:
        with zipfile.ZipFile(name) as file:
            config = json.loads(file.read("config.json"))
    except KeyError:
        return f"{name} is no Keras model: it has no config.json"
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        return f"{name} is no Keras model that can be read: {error}"
    if _holds_lambda(config):
        return (
            f"{name} holds a Lambda layer, whose code a file may not bring along (Keras's safe mode): build the model in "
            "Python and name its function as package.module:function"
        )
    return ""


def _holds_lambda(config) -> bool:
    inner = config.values() if isinstance(config, dict) else config if isinstance(config, list) else ()
    return (isinstance(config, dict) and config.get("class_name") == "Lambda") or any(map(_holds_lambda, inner))


def _of_function(name: str) -> str:
    module, _, function = name.partition(":")
    here, found = os.getcwd(), ""
    spec: ModuleSpec | None = None
    for part in module.split("."):
        source = _source(spec)
        if spec is not None and spec.submodule_search_locations is None:
            return "" if _may_make_names(source) else f"there is no module {found}.{part}: {found} is no package"
        parent, found = spec, f"{found}.{part}".lstrip(".")
        spec = _spec(found, here, parent)
        if spec is None:
            if parent is not None and parent.origin is not None and _may_make_names(source):
                return ""
            return f"there is no module {found} (looked in {here} and the installed packages)"
    source = _source(spec)
    if source is None or _may_make_names(source) or function in _names(source):
        return ""
    return f"{module} has no function {function}"


def _spec(name: str, here: str, parent: ModuleSpec | None) -> ModuleSpec | None:
    """The module's spec, its parents not imported: the folder that the command was typed in comes first, as in the worker."""
    if parent is not None:  # by its last word: finders of nested folders without __init__ want their parents imported
        return PathFinder.find_spec(name.rpartition(".")[2], parent.submodule_search_locations)
    own = PathFinder.find_spec(name, [here])
    finders = (finder.find_spec(name, None) for finder in sys.meta_path if hasattr(finder, "find_spec"))
    return own or next((spec for spec in finders if spec is not None), None)


def _source(spec: ModuleSpec | None) -> ast.Module | None:
    """The parsed source; None of what has none, is built in, or does not parse, which the worker says better."""
    if spec is None or spec.origin is None or not spec.has_location or not spec.origin.endswith(".py"):
        return None
    try:
        with open(spec.origin, "rb") as file:
            return ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return None


def _may_make_names(tree: ast.Module | None) -> bool:
    if tree is None:
        return True
    return bool(_MAKES_NAMES & _words(tree)) or any(
        alias.name == "*" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    )


def _words(tree: ast.Module) -> set[str]:
    """Every name and attribute that the source spells, read or bound."""
    fields = {ast.Name: "id", ast.Attribute: "attr", ast.FunctionDef: "name", ast.ClassDef: "name"}
    return {getattr(node, fields[type(node)]) for node in ast.walk(tree) if type(node) in fields}


def _names(tree: ast.Module) -> set[str]:
    """Every name that the source binds, wherever: one bound in a function alone is the worker's to refuse."""
    found = {
        node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return found | {
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
