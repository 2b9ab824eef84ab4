"""Measures the project's structure: sizes of files, folders and functions, import cycles, import contracts.

`make bench NAME=house` prints the figures and tests/test_house.py holds them to the limits in pyproject.toml.
"""

import ast
import collections
import functools
import graphlib
import pathlib
import re
import subprocess
import sys
import tomllib

from kernels import registry

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRODUCT = ("kernels", "workloads", "analysis")
CONSOLE = "crossover.py"  # the one module beside the packages
CODE = {".py", ".cu", ".cuh", ".h", ".js", ".css", ".j2", ".html"}
# Functions that become machine code: their arguments are pointers and sizes, their length is that of the loop they unroll.
_COMPILED = {"njit", "jit", "vectorize", "intrinsic", "overload"}


def limits() -> dict:
    """The table [tool.house] of pyproject.toml."""
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["house"]


def files(package: str) -> list[pathlib.Path]:
    """A package's source files of any language, caches left out."""
    found = (ROOT / package).rglob("*")
    return sorted(p for p in found if p.suffix in CODE and "__pycache__" not in p.parts)


def lines(path: pathlib.Path) -> int:
    return len(path.read_text(errors="replace").splitlines())


@functools.cache
def operations() -> list[str]:
    """The operations that have kernels: the folders of kernels/ with a file that a backend names."""
    folders = sorted(path for path in registry.FOLDER.iterdir() if path.is_dir())
    return [
        folder.name
        for folder in folders
        if any(path.stem.split("_")[0] in registry.BACKENDS for path in folder.glob("*.py"))
    ]


@functools.cache
def tree(path: pathlib.Path) -> ast.Module:
    """A Python file's syntax, parsed once."""
    return ast.parse(path.read_text())


@functools.cache
def modules() -> dict[str, pathlib.Path]:
    """Dotted name -> file, of the product's Python."""
    python = [path for package in PRODUCT for path in files(package) if path.suffix == ".py"]
    python.append(ROOT / CONSOLE)
    return {".".join(p.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): p for p in python}


def imports(known: dict[str, pathlib.Path]) -> dict[str, set[str]]:
    """What each module imports of the others, anywhere in its file; packages' `__init__` are not followed."""
    graph: dict[str, set[str]] = {}
    for module, path in known.items():
        names: set[str] = set()
        for node in ast.walk(tree(path)):
            if isinstance(node, ast.Import):
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        graph[module] = {n for n in names if n in known and n != module and known[n].name != "__init__.py"}
    return graph


def circle(graph: dict[str, set[str]]) -> list[str]:
    """Modules that import each other in a circle; none where there is no such circle."""
    try:
        graphlib.TopologicalSorter(graph).prepare()
    except graphlib.CycleError as error:
        return sorted(set(error.args[1]))
    return []


def folders() -> dict[str, int]:
    """Folder -> its Python modules, without `__init__` and `__main__`."""
    own = (p for p in modules().values() if p.name not in ("__init__.py", "__main__.py"))
    return dict(collections.Counter(str(p.parent.relative_to(ROOT)) for p in own))


def functions(path: pathlib.Path) -> list[tuple[str, int, int]]:
    """(name, lines, parameters) of a file's functions, but for those that are compiled and those that hold such a one."""
    found = []
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not compiled(node):
            a = node.args
            counted = [n.arg for n in (*a.posonlyargs, *a.args, *a.kwonlyargs) if n.arg not in ("self", "cls")]
            found.append((node.name, (node.end_lineno or 0) - node.lineno + 1, len(counted)))
    return found


def compiled(function: ast.AST) -> bool:
    """Whether a function becomes machine code, or holds one that does."""
    names = {
        name.id if isinstance(name, ast.Name) else getattr(name, "attr", "")
        for node in ast.walk(function)
        for decorator in getattr(node, "decorator_list", [])
        for name in ast.walk(decorator)
    }
    return bool(names & _COMPILED)


def sentences(docstring: str) -> int:
    """How many sentences a docstring has; dots inside names, numbers and code do not end one."""
    text = re.sub(r"`[^`]*`", "x", " ".join(docstring.split()))
    return len(re.findall(r"[.!?](?=\s+[A-Z(\"']|$)", text)) or 1


def broken_contracts() -> tuple[int, str]:
    """How many import contracts of pyproject.toml are broken, and what import-linter prints of them."""
    words = [sys.executable, "-c", "import importlinter.cli as c; c.lint_imports_command()", "--no-cache"]
    made = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    found = re.search(r"(\d+) kept, (\d+) broken", made.stdout)
    return (int(found[2]) if found else 1), made.stdout + made.stderr
