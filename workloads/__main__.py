"""Shows the commands, the backends that are ready on this machine, and what to type next."""

import sys
from collections import defaultdict
from collections.abc import Iterator

from kernels import registry
from workloads import help_screen, options, terminal
from workloads.command_line import running
from workloads.command_line.parsing import CommandParser

EXAMPLE = "python -m workloads"
LONG = "Shows the commands, which backends are ready with what library and threads, and what to type next."


def _state(name: str, software: dict[str, str]) -> tuple[str, str]:
    """Whether a backend is "ready" or "absent" on this machine, and its versions and threads, or why it is absent.

    name: of the backend, such as cupy. software: versions and settings of libraries by name, as facts.software returns them.
    """
    from workloads.machine import facts

    backend = registry.BACKENDS[name]
    gpu_problem = facts.gpu_problem() if backend.devices == ("gpu",) else ""
    if gpu_problem:
        return "absent", gpu_problem
    if backend.version not in software:  # the name of its library there
        return "absent", str(registry.NotInstalled(name))
    if name == "keras" and "tensorflow" not in software:
        pip = f"{sys.executable} -m pip install {backend.install}"
        return "absent", f"Keras {software['keras']} without TensorFlow; install it with: {pip}"
    template = _ABOUT.get(name, f"{name} {{{backend.version}}}")  # such as "scipy {scipy}"
    return "ready", template.format_map(defaultdict(str, software))


# A ready backend's versions and threads in words; of others its name and version.
_ABOUT = {
    "numpy": "NumPy {numpy}, {blas} {blas_kernels}, threads: {blas_threads}",
    "numba": "Numba {numba}, layer {numba_layer}, threads: {numba_threads}",
    "cupy": "CuPy {cupy}, CUDA {cuda_runtime}, cuBLAS {cublas}, driver {driver}",
    "cuda": "our own kernels, compiled by NVRTC through CuPy {cupy}",
    "keras": "Keras {keras} on TensorFlow {tensorflow}",
}


def here() -> Iterator[str]:
    """The lines about this machine: what it is, then each backend as soon as it is known."""
    from workloads.machine import facts

    machine = facts.describe()
    yield f"This machine ({machine.key}): {machine.cpu}, {machine.cores} cores, {machine.memory_bytes / 2**30:.0f} GiB"
    for gpu in machine.gpus:
        yield f"  {gpu.name}, {gpu.memory_bytes / 2**30:.0f} GiB, {gpu.multiprocessors} SMs"
    software = facts.software()
    for name in registry.BACKENDS:
        state, about = _state(name, software)
        yield terminal.Line(about, label=f"  {name:10}  {state}  ")


def _run(plan: None) -> int:
    """Prints the commands and what is ready here."""
    start = f"{options.python()} -m"
    next_commands = [
        terminal.Line("To see what a command takes: ", command=f"{start} COMMAND -h"),
        terminal.Line("To begin: ", command=f"{start} workloads.doctor"),
    ]
    terminal.show([*help_screen.overview("workloads"), *next_commands, ""])
    for line in here():
        terminal.show([line])
    return options.OK


def parser() -> CommandParser:
    """The command line of python -m workloads, which takes no words."""
    return CommandParser(module="workloads", description=LONG, examples=(EXAMPLE,))


main = running.main_function(parser, make_plan=running.no_plan, carry_out=_run)


if __name__ == "__main__":
    sys.exit(main())
