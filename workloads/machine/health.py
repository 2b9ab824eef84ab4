"""Checks of python -m workloads.doctor that libraries, GPU, disk and memory are there and work, and the result of a check."""

import dataclasses
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from workloads import REPORTS, ROOT

OLDEST_PYTHON = (3, 11)
# import name -> distribution, as in pyproject.toml
_SAME_NAME = ("numpy", "numba", "pandas", "scipy", "ml_dtypes", "rich", "msgspec", "psutil", "threadpoolctl")
DEPENDENCIES = {**{name: name for name in _SAME_NAME}, "pynvml": "nvidia-ml-py"}
FREE_DISK_BYTES = 200 << 20  # far more than a suite's result files and report
FREE_MEMORY_BYTES = 2 << 30
_LONGEST_LINE = 200  # characters of a child's output that are shown
CHILD_LIMIT_S = 90.0
_THREAD_LIMITS = ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS")
_CUPY = """
import cupy, numpy
kernel = cupy.RawKernel('extern "C" __global__ void twice(const int* x, int* y, int n) {'
                        ' int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = 2 * x[i] + 1; }', 'twice')
x = cupy.arange(1000, dtype=cupy.int32)
y = cupy.zeros_like(x)
kernel((4,), (256,), (x, y, numpy.int32(1000)))
print((cupy.asnumpy(y) == 2 * numpy.arange(1000) + 1).all())
"""
_TENSORFLOW = """
import tensorflow as tf
print(len(tf.config.list_physical_devices('GPU')))
"""


@dataclasses.dataclass(frozen=True)
class CheckResult:
    """The result of one check.

    A dataclass of the standard library, so that the doctor can still speak when msgspec is what is missing.
    """

    #: Name of the check.
    check: str
    #: ok, warn or problem.
    level: str
    #: The state of what was checked, in words.
    state: str
    #: Why a fault matters.
    why: str = ""
    #: A command that mends it.
    fix: str = ""

    def as_json(self) -> dict[str, str]:
        """The fields as --format json prints them."""
        return {"check": self.check, "level": self.level, "seen": self.state, "why": self.why, "fix": self.fix}


class Fault(NamedTuple):
    """A fault that a check may see."""

    #: Whether it is there.
    exists: bool
    #: Why it matters.
    why: str
    #: A command that mends it.
    fix: str


def diagnosis(check: str, state: str, faults: Sequence[Fault], level: str = "warn") -> CheckResult:
    """The result of a check: ok, or if one of these faults exists the first that does.

    check: its name. state: the state of what was checked, in words. level: of a fault: warn or problem.
    """
    for fault in faults:
        if fault.exists:
            return CheckResult(check=check, level=level, state=state, why=fault.why, fix=fault.fix)
    return CheckResult(check=check, level="ok", state=state)


def _problem(check: str, state: str, *, why: str, fix: str) -> CheckResult:
    """The result of a check that has seen a problem."""
    return CheckResult(check=check, level="problem", state=state, why=why, fix=fix)


def pip(words: str) -> str:
    """The command that installs packages into this Python."""
    return f"{sys.executable} -m pip install {words}"


def python() -> Iterator[CheckResult]:
    """Checks that Python is new enough."""
    too_old = Fault(
        exists=sys.version_info < OLDEST_PYTHON,
        why="the sources need Python 3.11 or newer",
        fix="PYTHON=python3.12 make run",
    )
    yield diagnosis("python", f"{platform.python_version()} ({platform.machine()})", [too_old], level="problem")


def dependencies() -> Iterator[CheckResult]:
    """Checks that the packages in DEPENDENCIES can be imported: a problem for each that cannot, and one result for all that
    can."""
    from importlib import metadata

    versions = []
    for module, package in DEPENDENCIES.items():
        try:
            importlib.import_module(module)
            versions.append(f"{package} {metadata.version(package)}")
        except Exception as error:  # a broken binary raises anything at import
            state = f"{package}: {type(error).__name__}: {error}".splitlines()[0]
            yield _problem("dependencies", state, why="every command needs it", fix=pip(package))
    if versions:
        yield CheckResult(check="dependencies", level="ok", state=", ".join(versions))


def packages() -> Iterator[CheckResult]:
    """Checks that the package `kernels` is this checkout's: Hugging Face ships a top-level package of the same name."""
    import kernels

    is_foreign = Path(kernels.__file__ or "").resolve().parent.parent != ROOT.resolve()
    state = "kernels, workloads and analysis are this checkout's"
    if is_foreign:
        state = f"`kernels` is {kernels.__file__}"
    fault = Fault(exists=is_foreign, why="another package of that name is found first", fix=f"cd {ROOT}")
    yield diagnosis("packages", state, [fault], level="problem")


def blas() -> Iterator[CheckResult]:
    """Checks that NumPy's BLAS uses as many threads as there are cores, and the kernels for this CPU."""
    from workloads.machine import facts

    library = facts.blas()
    threads = int(library.get("blas_threads", 0))
    cores = facts.usable_cores()
    most_threads = facts.usable_threads()
    state = f"{library['blas']} {library.get('blas_kernels', '')}, {threads or 'unknown'} threads, {cores} cores"
    tuning = " ".join(facts.blas_variables())
    if tuning:
        state += f"; set: {tuning}"
    limits = [name for name in _THREAD_LIMITS if name in os.environ]
    more_threads = f"unset {' '.join(limits)}" if limits else pip("mkl")  # OpenBLAS as NumPy brings it has at most 64
    other_kernels = "export OPENBLAS_CORETYPE=SkylakeX"
    if "OPENBLAS_CORETYPE" in os.environ:
        other_kernels = "unset OPENBLAS_CORETYPE"
    too_few = Fault(exists=0 < threads < cores, why="fewer threads than cores make the CPU look slow", fix=more_threads)
    too_many = Fault(
        exists=threads > most_threads,
        why="more threads than this process may use stand in each other's way",
        fix=f"export OPENBLAS_NUM_THREADS={most_threads}",
    )
    is_tuned = Fault(
        exists=bool(tuning),
        why="they choose blocks or kernels: its rates are not those that others see",
        fix=f"unset {tuning}",
    )
    lesser_kernels = Fault(
        exists=facts.lesser_blas(library),
        why="kernels for AVX2 make a CPU with AVX-512 look up to twice as slow",
        fix=other_kernels,
    )
    yield diagnosis("blas", state, [too_few, too_many, is_tuned, lesser_kernels])


def gpu() -> Iterator[CheckResult]:
    """Checks that there is a GPU; for each GPU that no other program computes on it, and that the installed cuDNN has kernels for
    it."""
    from workloads.machine import facts
    from workloads.machine.gpu import ask_gpu, driver, gpus

    lacking = facts.no_gpu()
    if lacking and lacking.kind == "no-driver":
        why = "GPU rows are skipped; everything else works"
        yield CheckResult(check="gpu", level="ok", state=f"none: {lacking.words}", why=why)
    elif lacking:
        level = "problem" if lacking.kind == "broken" else "warn"
        yield CheckResult(check="gpu", level=level, state=lacking.words, why="GPU rows are skipped", fix=lacking.fix)
    for index, card in enumerate(gpus()):
        state = f"{card.name}, {card.memory_bytes / 2**30:.0f} GiB, driver {driver()}"
        others = ask_gpu(index, "nvmlDeviceGetComputeRunningProcesses") or []
        if others:
            state += f"; others compute on it: {len(others)}"
        shared = Fault(exists=bool(others), why="they share its clock, memory and bandwidth", fix="nvidia-smi")
        yield diagnosis(f"gpu:{index}", state, [shared])
        cudnn = facts.version("nvidia-cudnn-cu12")
        if cudnn and _lacks_cudnn_kernels(card.compute_capability, cudnn):
            state = f"{cudnn} has no kernels for {card.name}"
            yield _problem("cudnn", state, why="convolutions fail on this GPU", fix=pip("'nvidia-cudnn-cu12<9.11'"))


def _lacks_cudnn_kernels(compute_capability: str, cudnn_version: str) -> bool:
    """Whether a version of cuDNN such as 9.11.0 has no kernels for GPUs of a compute capability such as 7.0.

    Source: the support matrices of cuDNN 9.10 and 9.11.
    """
    major_and_minor = [int(number) for number in cudnn_version.split(".")[:2]]
    return float(compute_capability) < 7.5 and major_and_minor >= [9, 11]


def cupy() -> Iterator[CheckResult]:
    """Checks that CuPy compiles and runs a tiny kernel; in a child process, as a broken GPU can take its process along. Nothing
    where there is no GPU."""
    from workloads.machine import facts

    if facts.gpu_problem():
        return
    done = run_python(_CUPY)
    is_right = done.stdout.strip() == "True"
    if done.exit_code != 0:
        state = _ending(done)
    else:
        state = f"compiles, and a tiny kernel gives {'the right' if is_right else 'a wrong'} answer"
    fault = Fault(
        exists=done.exit_code != 0 or not is_right,
        why="no GPU kernel can be measured",
        fix=pip("'cupy-cuda12x[ctk]'"),
    )
    yield diagnosis("cupy", state, [fault], level="problem")


def tensorflow() -> Iterator[CheckResult]:
    """Checks that TensorFlow is installed, starts, and sees the GPU; started in a child process."""
    from workloads.machine import facts

    version = facts.version("tensorflow")
    if not version:
        why = "training rows are skipped"
        yield CheckResult(check="tensorflow", level="warn", state="not installed", why=why, fix=pip("tensorflow"))
        return
    settings = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
    done = run_python(_TENSORFLOW, settings)
    count = int(done.stdout.split()[-1]) if done.exit_code == 0 else 0
    if done.exit_code != 0:
        state = f"{version}: {_ending(done)}"
        fix = pip("--force-reinstall tensorflow")
        yield _problem("tensorflow", state, why="training rows will fail", fix=fix)
    elif count == 0 and not facts.gpu_problem():
        missing = sorted(set(re.findall(r"Could not load dynamic library '([^']+)'", done.stderr)))
        state = f"{version} sees no GPU; missing: {', '.join(missing) or 'it does not say what'}"
        why = "a model would train on the CPU beside an idle GPU"
        fix = pip("'tensorflow[and-cuda]'")
        yield CheckResult(check="tensorflow", level="warn", state=state, why=why, fix=fix)
    else:
        gpus = f"{count or 'no'} {'GPUs' if count > 1 else 'GPU'}"
        state = f"{version} with Keras {facts.version('keras')} starts; it sees {gpus}"
        yield CheckResult(check="tensorflow", level="ok", state=state)


class ChildResult(NamedTuple):
    """How a child process ended."""

    #: None: it was stopped after CHILD_LIMIT_S; negative: the number of the signal that ended it.
    exit_code: int | None
    stdout: str
    stderr: str


def run_python(code: str, variables: dict[str, str] | None = None) -> ChildResult:
    """Runs Python code in a child process, for at most CHILD_LIMIT_S seconds. variables: of its environment, on top of this
    process's."""
    command = [sys.executable, "-c", code]
    env = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHILD_LIMIT_S, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return ChildResult(exit_code=None, stdout="", stderr="")
    return ChildResult(exit_code=done.returncode, stdout=done.stdout, stderr=done.stderr)


def _ending(child: ChildResult) -> str:
    """How a child process failed, in words: the signal that ended it, and the last line that it printed to stderr."""
    if child.exit_code is None:
        return f"gave no answer within {CHILD_LIMIT_S:.0f} s"
    lines = child.stderr.strip().splitlines() or ["it said nothing"]
    last_line = lines[-1][:_LONGEST_LINE]
    if child.exit_code < 0:
        return f"its process was ended by signal {-child.exit_code}: {last_line}"
    return last_line


def disk() -> Iterator[CheckResult]:
    """Checks that results can be written to the disk, and that it has room for them."""
    folder = REPORTS
    while not folder.exists():
        folder = folder.parent
    free_bytes = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        elsewhere = "python -m workloads.matmul -o $HOME/crossover-results"
        yield _problem("disk", f"{folder} may not be written", why="results have nowhere to go", fix=elsewhere)
        return
    full = Fault(exists=free_bytes < FREE_DISK_BYTES, why="a full disk ends a run early", fix=f"df -h {folder}")
    yield diagnosis("disk", f"{free_bytes / 2**30:.1f} GiB free for results", [full])


def memory() -> Iterator[CheckResult]:
    """Checks that the host has memory for the usual sizes."""
    from workloads.machine import facts

    free_bytes = facts.memory_available("cpu")
    too_little = Fault(
        exists=free_bytes < FREE_MEMORY_BYTES, why="larger sizes will be skipped", fix="ps aux --sort -rss | head"
    )
    yield diagnosis("memory", f"{free_bytes / 2**30:.1f} GiB free", [too_little])


def governor() -> Iterator[CheckResult]:
    """Checks that no frequency governor lets the CPU's clock lag behind its work. Governors are read, never set."""
    from workloads.machine import cpu

    governors = cpu.governors()
    shown = governors.slow or governors.names
    slow = Fault(
        exists=bool(governors.slow),
        why="the clock lags behind the work: short kernels look slow",
        fix="sudo cpupower frequency-set -g performance",
    )
    yield diagnosis("governor", ", ".join(shown) or "none visible, as in most VMs", [slow])
