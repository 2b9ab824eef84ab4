"""Whether what measurements stand on is there and works: what python -m workloads.doctor looks at, and the Finding it makes."""

import dataclasses
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from workloads import ROOT

OLDEST_PYTHON = (3, 11)
# import name -> distribution, as in pyproject.toml
DEPENDENCIES = {
    "numpy": "numpy",
    "numba": "numba",
    "pandas": "pandas",
    "scipy": "scipy",
    "ml_dtypes": "ml_dtypes",
    "rich": "rich",
    "msgspec": "msgspec",
    "psutil": "psutil",
    "threadpoolctl": "threadpoolctl",
    "pynvml": "nvidia-ml-py",
}
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

from workloads import ROOT
print(len(tf.config.list_physical_devices('GPU')))
"""


@dataclasses.dataclass(frozen=True)
class Finding:
    """One thing looked at: its level (ok, warn, problem), what was seen, why it matters, what to type next.

    A dataclass of the standard library, so that the doctor can still speak when msgspec is what is missing.
    """

    check: str
    level: str
    seen: str
    why: str = ""
    fix: str = ""


def pip(words: str) -> str:
    return f"{sys.executable} -m pip install {words}"


def python() -> list[Finding]:
    if sys.version_info < OLDEST_PYTHON:
        return [
            Finding(
                "python",
                "problem",
                platform.python_version(),
                "the sources need Python 3.11 or newer",
                "PYTHON=python3.12 make run",
            )
        ]
    return [Finding("python", "ok", f"{platform.python_version()} ({platform.machine()})")]


def dependencies() -> list[Finding]:
    """One finding for all that can be imported, one for each that cannot."""
    from importlib import metadata

    good, bad = [], []
    for module, package in DEPENDENCIES.items():
        try:
            importlib.import_module(module)
            good.append(f"{package} {metadata.version(package)}")
        except Exception as error:  # a broken binary raises anything at import
            bad.append(
                Finding(
                    "dependencies",
                    "problem",
                    f"{package}: {type(error).__name__}: {error}".splitlines()[0],
                    "every command needs it",
                    pip(package),
                )
            )
    return bad + ([Finding("dependencies", "ok", ", ".join(good))] if good else [])


def packages() -> list[Finding]:
    """Is `kernels` ours? Hugging Face ships a top-level package of the same name."""
    import kernels

    folder = Path(kernels.__file__ or "").resolve().parent.parent
    if folder != ROOT.resolve():
        why = "another package of that name is found first"
        return [Finding("packages", "problem", f"`kernels` is {kernels.__file__}", why, f"cd {ROOT}")]
    return [Finding("packages", "ok", "kernels, workloads and analysis are this checkout's")]


def blas() -> list[Finding]:
    from workloads.machine import facts

    found = facts.blas()
    threads, cores, most = int(found.get("blas_threads", 0)), facts.usable_cores(), facts.usable_threads()
    seen = f"{found['blas']} {found.get('blas_kernels', '')}, {threads or 'unknown'} threads, {cores} cores"
    names = [n for n in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS") if n in os.environ]
    if 0 < threads < cores:
        fix = f"unset {' '.join(names)}" if names else pip("--force-reinstall numpy")
        return [Finding("blas", "warn", seen, "fewer threads than cores make the CPU look slow", fix)]
    if threads > most:
        return [
            Finding(
                "blas",
                "warn",
                seen,
                "more threads than this process may use stand in each other's way",
                f"export OPENBLAS_NUM_THREADS={most}",
            )
        ]
    if tuned := facts.blas_variables():
        why = "they choose blocks or kernels: its rates are not those that others see"
        return [Finding("blas", "warn", f"{seen}; set: {' '.join(tuned)}", why, f"unset {' '.join(tuned)}")]
    if facts.lesser_blas(found):
        fix = "unset OPENBLAS_CORETYPE" if "OPENBLAS_CORETYPE" in os.environ else "export OPENBLAS_CORETYPE=SkylakeX"
        return [Finding("blas", "warn", seen, "kernels for AVX2 make a CPU with AVX-512 look up to twice as slow", fix)]
    return [Finding("blas", "ok", seen)]


def gpu() -> list[Finding]:
    """The GPU or why there is none, and who else uses it."""
    from workloads.machine import gpu as nvidia

    problem = nvidia.problem()
    if problem == "no NVIDIA driver":
        return [Finding("gpu", "ok", f"none: {problem}", "GPU rows are skipped; everything else works")]
    if problem:
        broken = not problem.startswith(("cupy is not installed", "a driver but no device"))
        fix = problem.rpartition(": ")[2] if "pip install" in problem else "nvidia-smi"
        return [Finding("gpu", "problem" if broken else "warn", problem, "GPU rows are skipped", fix)]
    found = []
    for index, one in enumerate(nvidia.gpus()):
        seen = f"{one.name}, {one.memory_bytes / 2**30:.0f} GiB, driver {nvidia.driver()}"
        handle = nvidia.handle(index)
        others = nvidia.ask("nvmlDeviceGetComputeRunningProcesses", handle) if handle else None
        if others:
            who = "1 other process computes" if len(others) == 1 else f"{len(others)} other processes compute"
            found.append(
                Finding(
                    f"gpu:{index}",
                    "warn",
                    f"{seen}; {who} on it",
                    "they share its clock, memory and bandwidth",
                    "nvidia-smi",
                )
            )
        else:
            found.append(Finding(f"gpu:{index}", "ok", seen))
    return found


def cupy() -> list[Finding]:
    """Compiles and runs one tiny kernel, in a child process, as a broken GPU can take its process along."""
    from workloads.machine import gpu as nvidia

    if nvidia.problem():
        return []
    code, out, err = child(_CUPY)
    if code == 0 and out.strip() == "True":
        return [Finding("cupy", "ok", "compiles, and a tiny kernel gives the right answer")]
    seen = "a tiny kernel gives a wrong answer" if code == 0 else _ending(code, err)
    return [Finding("cupy", "problem", seen, "no GPU kernel can be measured", pip("'cupy-cuda12x[ctk]'"))]


def tensorflow() -> list[Finding]:
    """Is TensorFlow there, does it start, and does it see the GPU? Asked in a child process."""
    from workloads.machine import facts
    from workloads.machine import gpu as nvidia

    if not (version := facts.version("tensorflow")):
        return [Finding("tensorflow", "warn", "not installed", "training rows are skipped", pip("tensorflow"))]
    settings = {"TF_FORCE_GPU_ALLOW_GROWTH": "true", "TF_CPP_MIN_LOG_LEVEL": "0", "TF_CPP_VMODULE": "dso_loader=1"}
    code, out, err = child(_TENSORFLOW, settings)
    if code != 0:
        return [
            Finding(
                "tensorflow",
                "problem",
                f"{version}: {_ending(code, err)}",
                "training rows will fail",
                pip("--force-reinstall tensorflow"),
            )
        ]
    count = int(out.split()[-1])
    if count == 0 and not nvidia.problem():
        missing = sorted(set(re.findall(r"Could not load dynamic library '([^']+)'", err)))
        seen = f"{version} sees no GPU; missing: {', '.join(missing) or 'it does not say what'}"
        why = "a model would train on the CPU beside an idle GPU"
        return [Finding("tensorflow", "warn", seen, why, pip("'tensorflow[and-cuda]'"))]
    gpus = f"{count or 'no'} GPU{'s' * (count > 1)}"
    return [Finding("tensorflow", "ok", f"{version} with Keras {facts.version('keras')} starts; it sees {gpus}")]


Answer = tuple[int | None, str, str]


def child(code: str, variables: dict[str, str] | None = None, limit_s: float = CHILD_LIMIT_S) -> Answer:
    """(exit code, stdout, stderr) of Python code in a process of its own; exit code None when its time was up."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        try:
            done = subprocess.run(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **(variables or {})},
                timeout=limit_s,
                check=False,
            )
            status = done.returncode
        except subprocess.TimeoutExpired:
            status = None
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode(errors="replace"))
    return status, texts[0], texts[1]


def _ending(code: int | None, err: str) -> str:
    if code is None:
        return f"gave no answer within {CHILD_LIMIT_S:.0f} s"
    last = (err.strip().splitlines() or ["it said nothing"])[-1][:200]
    return f"its process was ended by signal {-code}: {last}" if code < 0 else last


def disk() -> list[Finding]:
    folder = ROOT / "reports"
    while not folder.exists():
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        return [
            Finding(
                "disk",
                "problem",
                f"{folder} may not be written",
                "results have nowhere to go",
                "python -m workloads.matmul -o $HOME/crossover-results",
            )
        ]
    free = shutil.disk_usage(folder).free
    seen = f"{free / 2**30:.1f} GiB free for results"
    if free < FREE_DISK_BYTES:
        return [Finding("disk", "warn", seen, "a full disk ends a run early", f"df -h {folder}")]
    return [Finding("disk", "ok", seen)]


def memory() -> list[Finding]:
    from workloads.machine import facts

    free = facts.memory_available("cpu")
    seen = f"{free / 2**30:.1f} GiB free"
    if free < FREE_MEMORY_BYTES:
        return [Finding("memory", "warn", seen, "larger sizes will be skipped", "ps aux --sort -rss | head")]
    return [Finding("memory", "ok", seen)]


def governor(root: Path = Path("/")) -> list[Finding]:
    """The frequency governors in use; only read, never set."""
    from workloads.machine import cpu

    if slow := cpu.slow_governors(root):
        return [
            Finding(
                "governor",
                "warn",
                ", ".join(slow),
                "the clock lags behind the work: short kernels look slow",
                "sudo cpupower frequency-set -g performance",
            )
        ]
    return [Finding("governor", "ok", ", ".join(cpu.governors(root)) or "none visible, as in most VMs")]
