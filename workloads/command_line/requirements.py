"""The packages that every command needs. Standard library only."""

import importlib.util
import shlex
import sys
from collections.abc import Sequence

from workloads import ROOT
from workloads.command_line.invocation import python
from workloads.stops import Missing
from workloads.terminal import near

#: pyproject.toml's dependencies: package -> the name by which it is imported.
PACKAGES = {
    "ml_dtypes": "ml_dtypes",
    "msgspec": "msgspec",
    "numba": "numba",
    "numpy": "numpy",
    "nvidia-ml-py": "pynvml",
    "pandas": "pandas",
    "psutil": "psutil",
    "rich": "rich",
    "scipy": "scipy",
    "threadpoolctl": "threadpoolctl",
}


def require_packages() -> None:
    """Raises: Missing, which names all packages that are not installed."""
    missing = missing_packages()
    if missing:
        raise missing


def missing_packages(command_words: Sequence[str] = ()) -> Missing | None:
    """The error that names all packages that are not installed; None where all are.

    command_words: the command after `python`, such as ["-m", "workloads.matmul"]. The error proposes it with the Python of the
    checkout's environment where that is another one than this; else it proposes to install the packages.
    """
    names = [package for package, module in PACKAGES.items() if importlib.util.find_spec(module) is None]
    if not names:
        return None
    message = f"not installed: {', '.join(names)}"
    checkout_python = ROOT / ".venv" / "bin" / "python"
    if command_words and checkout_python.exists() and str(checkout_python) != sys.executable:
        return Missing(message, tip=shlex.join([near(checkout_python), *command_words]))
    return Missing(message, tip=f"{python()} -m pip install {' '.join(names)}")
