"""What is here: the commands, the backends that are ready on this machine, and what to type next."""

import argparse
import ast
import sys
import textwrap
from collections import defaultdict
from collections.abc import Iterator

from workloads import ROOT, options

EXAMPLE = "python -m workloads"
LONG = "Shows the commands, which backends are ready with what library and threads, and what to type next."
_WIDTH = 104


def commands() -> Iterator[tuple[str, str]]:
    """(module, the first sentence of its docstring) of every command; nothing is imported."""
    for package in ("workloads", "analysis"):
        for path in sorted([*(ROOT / package).glob("[!_]*.py"), *(ROOT / package).glob("*/__main__.py")]):
            if '__name__ == "__main__"' in path.read_text():
                module = ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
                places = (path.with_name("command.py"), path) if path.stem == "__main__" else (path,)
                source = next(p for p in places if p.exists()).read_text()
                yield module, _sentence(ast.get_docstring(ast.parse(source)) or "")


def _sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def backends() -> list[tuple[str, str, str]]:
    """(backend, ready or absent, library versions and threads or the reason) in the order of the registry."""
    from kernels.registry import BACKENDS
    from workloads.machine import facts

    software = facts.software()
    return [(name, *_state(name, software)) for name in BACKENDS]


def _state(name: str, software: dict[str, str]) -> tuple[str, str]:
    from kernels import registry
    from workloads.machine import facts

    if registry.BACKENDS[name].devices == ("gpu",) and (problem := facts.gpu_problem()):
        return "absent", problem
    if registry.BACKENDS[name].version not in software:
        return "absent", str(registry.NotInstalled(name))
    if name == "keras" and "tensorflow" not in software:
        return "absent", f"Keras {software['keras']} without TensorFlow; install it with: {_pip(name)}"
    return "ready", _about(name, software)


def _pip(backend: str) -> str:
    from kernels.registry import BACKENDS

    return f"{sys.executable} -m pip install {BACKENDS[backend].install}"


def _about(name: str, software: dict[str, str]) -> str:
    """A ready backend's versions and threads in words."""
    from kernels.registry import BACKENDS

    of = defaultdict(str, software)
    match name:
        case "numpy":
            return f"NumPy {of['numpy']}, {of['blas']} {of['blas_kernels']}, {_threads(of['blas_threads'])}"
        case "numba":
            return f"Numba {of['numba']}, layer {of['numba_layer']}, {_threads(of['numba_threads'])}"
        case "cupy":
            return f"CuPy {of['cupy']}, CUDA {of['cuda_runtime']}, cuBLAS {of['cublas']}, driver {of['driver']}"
        case "cuda":
            return f"our own kernels, compiled by NVRTC through CuPy {of['cupy']}"
        case "keras":
            return f"Keras {of['keras']} on TensorFlow {of['tensorflow']}"
        case _:
            return f"{name} {of[BACKENDS[name].version]}"


def _threads(count: str) -> str:
    return f"{count or 'unknown'} thread{'s' * (count != '1')}"


def overview() -> str:
    """The whole page as text."""
    from workloads.machine import facts

    here = facts.describe()
    lines = [f"Crossover on {here.key}: {here.cpu}, {here.cores} cores, {here.memory_bytes / 2**30:.0f} GiB"]
    lines += [f"  {gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, {gpu.multiprocessors} SMs" for gpu in here.gpus]
    lines += ["", "Backends"]
    lines += [f"  {name:10} {state:7} {about}" for name, state, about in backends()]
    found = list(commands())
    lines += ["", "Commands"]
    width = max((len(module) for module, _ in found), default=0)
    for module, about in found:
        lines.append(f"  python -m {module:{width}}  {textwrap.shorten(about, _WIDTH - width, placeholder=' ...')}")
    return "\n".join([*lines, "", "Next", *next_steps([module for module, _ in found])])


def next_steps(modules: list[str]) -> list[str]:
    """What to type, by this interpreter: the examples of the commands that are here."""
    steps = {"workloads.doctor": "", "workloads.matmul": " --sizes 64:1024:x2 --fast", "workloads.suite": ""}
    about = {
        "workloads.doctor": "is this machine ready?",
        "workloads.matmul": "where does the GPU win? A minute",
        "workloads.suite": "everything, with a report",
    }
    here = [module for module in steps if module in modules]
    return [f"  {options.python()} -m {module}{steps[module]}   # {about[module]}" for module in here]


def _body(args: argparse.Namespace) -> int:
    print(overview())
    return options.OK


def main(argv: list[str] | None = None) -> int:
    return options.command(options.parser("workloads", LONG, EXAMPLE), argv, _body)


if __name__ == "__main__":
    sys.exit(main())
