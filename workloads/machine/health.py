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
CHILD_LIMIT_S = 90.0
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
    """The result of a check with the first of these faults that exists; level ok without."""
    for fault in faults:
        if fault.exists:
            return CheckResult(check=check, level=level, state=state, why=fault.why, fix=fault.fix)
    return CheckResult(check=check, level="ok", state=state)


def _problem(check: str, state: str, *, why: str, fix: str) -> CheckResult:
    return CheckResult(check=check, level="problem", state=state, why=why, fix=fix)


def pip(words: str) -> str:
    """The command that installs packages into this Python."""
    return f"{sys.executable} -m pip install {words}"


def python() -> Iterator[CheckResult]:
    old = Fault(sys.version_info < OLDEST_PYTHON, "the sources need Python 3.11 or newer", "PYTHON=python3.12 make run")
    yield diagnosis("python", f"{platform.python_version()} ({platform.machine()})", [old], level="problem")


def dependencies() -> Iterator[CheckResult]:
    """A finding for each package that cannot be imported, and one for all that can."""
    from importlib import metadata

    good = []
    for module, package in DEPENDENCIES.items():
        try:
            importlib.import_module(module)
            good.append(f"{package} {metadata.version(package)}")
        except Exception as error:  # a broken binary raises anything at import
            state = f"{package}: {type(error).__name__}: {error}".splitlines()[0]
            yield _problem("dependencies", state, why="every command needs it", fix=pip(package))
    if good:
        yield CheckResult("dependencies", "ok", ", ".join(good))


def packages() -> Iterator[CheckResult]:
    """Whether `kernels` is this checkout's: Hugging Face ships a top-level package of the same name."""
    import kernels

    foreign = Path(kernels.__file__ or "").resolve().parent.parent != ROOT.resolve()
    state = f"`kernels` is {kernels.__file__}" if foreign else "kernels, workloads and analysis are this checkout's"
    fault = Fault(foreign, "another package of that name is found first", f"cd {ROOT}")
    yield diagnosis("packages", state, [fault], level="problem")


def blas() -> Iterator[CheckResult]:
    """Whether NumPy's BLAS uses as many threads as there are cores, and the kernels for this CPU."""
    from workloads.machine import facts

    library = facts.blas()
    threads = int(library.get("blas_threads", 0))
    cores = facts.usable_cores()
    most = facts.usable_threads()
    state = f"{library['blas']} {library.get('blas_kernels', '')}, {threads or 'unknown'} threads, {cores} cores"
    limits = [n for n in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS") if n in os.environ]
    more_threads = f"unset {' '.join(limits)}" if limits else pip("mkl")  # OpenBLAS as NumPy brings it has 64
    tuned = " ".join(facts.blas_variables())
    if tuned:
        state += f"; set: {tuned}"
    core = "unset OPENBLAS_CORETYPE" if "OPENBLAS_CORETYPE" in os.environ else "export OPENBLAS_CORETYPE=SkylakeX"
    yield diagnosis(
        "blas",
        state,
        [
            Fault(0 < threads < cores, "fewer threads than cores make the CPU look slow", more_threads),
            Fault(
                threads > most,
                "more threads than this process may use stand in each other's way",
                f"export OPENBLAS_NUM_THREADS={most}",
            ),
            Fault(
                bool(tuned), "they choose blocks or kernels: its rates are not those that others see", f"unset {tuned}"
            ),
            Fault(
                facts.lesser_blas(library), "kernels for AVX2 make a CPU with AVX-512 look up to twice as slow", core
            ),
        ],
    )


def gpu() -> Iterator[CheckResult]:
    """Findings on the GPU, or why there is none; other processes on it; whether cuDNN still has kernels for it."""
    from workloads.machine import facts
    from workloads.machine.gpu import ask_of, driver, gpus

    lacking = facts.no_gpu()
    if lacking and lacking.kind == "no-driver":
        yield CheckResult("gpu", "ok", f"none: {lacking.words}", "GPU rows are skipped; everything else works")
    elif lacking:
        level = "problem" if lacking.kind == "broken" else "warn"
        yield CheckResult(check="gpu", level=level, state=lacking.words, why="GPU rows are skipped", fix=lacking.fix)
    for index, card in enumerate(gpus()):
        state = f"{card.name}, {card.memory_bytes / 2**30:.0f} GiB, driver {driver()}"
        others = ask_of(index, "nvmlDeviceGetComputeRunningProcesses") or []
        if others:
            state += f"; others compute on it: {len(others)}"
        shared = Fault(bool(others), "they share its clock, memory and bandwidth", "nvidia-smi")
        yield diagnosis(f"gpu:{index}", state, [shared])
        cudnn = facts.version("nvidia-cudnn-cu12")
        if cudnn and float(card.compute_capability) < 7.5 and [int(n) for n in cudnn.split(".")[:2]] >= [9, 11]:
            state = f"{cudnn} has no kernels for {card.name}"  # source: the support matrices of cuDNN 9.10 and 9.11
            yield _problem("cudnn", state, why="convolutions fail on this GPU", fix=pip("'nvidia-cudnn-cu12<9.11'"))


def cupy() -> Iterator[CheckResult]:
    """Compiles and runs one tiny kernel, in a child process, as a broken GPU can take its process along."""
    from workloads.machine import facts

    if facts.gpu_problem():
        return
    code, out, err = child(_CUPY)
    right = out.strip() == "True"
    state = f"compiles, and a tiny kernel gives {'the right' if right else 'a wrong'} answer"
    if code != 0:
        state = _ending(code, err)
    fault = Fault(code != 0 or not right, "no GPU kernel can be measured", pip("'cupy-cuda12x[ctk]'"))
    yield diagnosis("cupy", state, [fault], level="problem")


def tensorflow() -> Iterator[CheckResult]:
    """Whether TensorFlow is installed, starts, and sees the GPU; tried in a child process."""
    from workloads.machine import facts

    version = facts.version("tensorflow")
    if not version:
        why = "training rows are skipped"
        yield CheckResult(check="tensorflow", level="warn", state="not installed", why=why, fix=pip("tensorflow"))
        return
    settings = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
    code, out, err = child(_TENSORFLOW, settings)
    count = int(out.split()[-1]) if code == 0 else 0
    if code != 0:
        state = f"{version}: {_ending(code, err)}"
        fix = pip("--force-reinstall tensorflow")
        yield _problem("tensorflow", state, why="training rows will fail", fix=fix)
    elif count == 0 and not facts.gpu_problem():
        missing = sorted(set(re.findall(r"Could not load dynamic library '([^']+)'", err)))
        state = f"{version} sees no GPU; missing: {', '.join(missing) or 'it does not say what'}"
        why = "a model would train on the CPU beside an idle GPU"
        fix = pip("'tensorflow[and-cuda]'")
        yield CheckResult(check="tensorflow", level="warn", state=state, why=why, fix=fix)
    else:
        gpus = f"{count or 'no'} {'GPUs' if count > 1 else 'GPU'}"
        yield CheckResult("tensorflow", "ok", f"{version} with Keras {facts.version('keras')} starts; it sees {gpus}")


def child(code: str, variables: dict[str, str] | None = None) -> tuple[int | None, str, str]:
    """(exit code, stdout, stderr) of Python code in a process of its own; exit code None when its time was up."""
    command = [sys.executable, "-c", code]
    env = {**os.environ, **(variables or {})}
    try:
        done = subprocess.run(
            command, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=CHILD_LIMIT_S, errors="replace"
        )
    except subprocess.TimeoutExpired:
        return None, "", ""
    return done.returncode, done.stdout, done.stderr


def _ending(code: int | None, err: str) -> str:
    if code is None:
        return f"gave no answer within {CHILD_LIMIT_S:.0f} s"
    last = (err.strip().splitlines() or ["it said nothing"])[-1][:200]
    return f"its process was ended by signal {-code}: {last}" if code < 0 else last


def disk() -> Iterator[CheckResult]:
    folder = REPORTS
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free
    if not os.access(folder, os.W_OK):
        elsewhere = "python -m workloads.matmul -o $HOME/crossover-results"
        yield _problem("disk", f"{folder} may not be written", why="results have nowhere to go", fix=elsewhere)
        return
    full = Fault(free < FREE_DISK_BYTES, "a full disk ends a run early", f"df -h {folder}")
    yield diagnosis("disk", f"{free / 2**30:.1f} GiB free for results", [full])


def memory() -> Iterator[CheckResult]:
    from workloads.machine import facts

    free = facts.memory_available("cpu")
    little = Fault(free < FREE_MEMORY_BYTES, "larger sizes will be skipped", "ps aux --sort -rss | head")
    yield diagnosis("memory", f"{free / 2**30:.1f} GiB free", [little])


def governor() -> Iterator[CheckResult]:
    """The frequency governors in use; only read, never set."""
    from workloads.machine import cpu

    governors, slow = cpu.governors()
    state = "none visible, as in most VMs"
    if slow:
        state = ", ".join(slow)
    elif governors:
        state = ", ".join(governors)
    lag = "the clock lags behind the work: short kernels look slow"
    remedy = "sudo cpupower frequency-set -g performance"
    yield diagnosis("governor", state, [Fault(bool(slow), lag, remedy)])
