"""This machine: its facts, its software, its free memory. Nothing here is measured and nothing is ever set."""

import functools
import importlib
import importlib.metadata
import os
import platform
import re
import subprocess
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from kernels.registry import BACKENDS
from workloads import ROOT
from workloads.machine import clock, cpu, gpu
from workloads.records import SOURCES, Machine, source_hash

HOST_MARGIN_BYTES = 256 << 20
LAYERS = ("omp", "tbb", "workqueue")  # Numba's threading layers, best first: workqueue halves small products
_LAYER_FILES = {"omp": "omppool", "tbb": "tbbpool", "workqueue": "workqueue"}
# OpenBLAS's names for AVX2 kernels. It uses them if OPENBLAS_CORETYPE says so, or if it does not know the CPU.
AVX2_KERNELS = ("Haswell", "Zen")
# Source: OpenBLAS's driver/others/openblas_env.c and dynamic.c, oneMKL's developer guide, BLIS's ConfigurationHowTo.
BLAS_VARIABLES = (
    *("OPENBLAS_L2_SIZE", "OPENBLAS_BLOCK_FACTOR", "GOTO_BLOCK_FACTOR", "OPENBLAS_THREAD_TIMEOUT"),
    *("MKL_ENABLE_INSTRUCTIONS", "MKL_CBWR", "MKL_DEBUG_CPU_TYPE", "BLIS_ARCH_TYPE"),
)
# Software that results depend on -> its distribution; software that is not installed is left out.
_PACKAGES = {
    "llvmlite": "llvmlite",
    "scipy": "scipy",
    **{backend.version: backend.package for backend in BACKENDS.values() if backend.package},
}


def describe() -> Machine:
    """The facts of this machine. Starts no GPU context. Never a hostname."""
    blocks = cpu.cpuinfo()
    names = cpu.features(blocks) or _numpy_features()
    cpus = cpu.affinity()
    _, threads_a_core = cpu.cores(cpus, blocks)
    total, _ = cpu.memory()
    gpus = gpu.gpus()
    maker = cpu.maker(blocks)
    simd = cpu.simd(names)
    cores = usable_cores()
    return Machine(
        key=key(maker, simd, cores, [card.name for card in gpus]),
        cpu=cpu.model(blocks),
        vendor=maker,
        simd=simd,
        cores=cores,
        threads_a_core=threads_a_core,
        memory_bytes=memory_bytes(total, cpu.memory_limit()),
        caches_bytes=cpu.caches(cpus),
        gpus=gpus,
        driver=gpu.driver() if gpus else "",
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        virtual=cpu.virtual(names),
    )


def key(maker: str, simd: str, cores: int, gpus: list[str]) -> str:
    """The folder name of a machine: `nvidia-h200`, `nvidia-h200-x4`, without a GPU `intel-avx512-2c`."""
    if not gpus:
        return _slug(f"{maker} {simd} {cores}c")
    memory_size = re.compile(r"\d+ ?GB( HBM\w*)?", re.IGNORECASE)
    products = "-and-".join(sorted({_slug(memory_size.sub(" ", name)) for name in gpus}))
    return products + (f"-x{len(gpus)}" if len(gpus) > 1 else "")


def _slug(words: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _numpy_features() -> set[str]:
    """The CPU features that NumPy knows, in lower case: where there is no /proc/cpuinfo."""
    from numpy._core._multiarray_umath import __cpu_features__

    return {name.lower() for name, here in __cpu_features__.items() if here}


def usable_cores() -> int:
    """Physical cores that this process may use: its affinity's, and no more than a cgroup quota pays for."""
    count, _ = cpu.cores(cpu.affinity(), cpu.cpuinfo())
    return min(count, _whole_quota())


def usable_threads() -> int:
    """Hardware threads that this process may use; above `usable_cores` only where cores have several."""
    return min(len(cpu.affinity()), _whole_quota())


def _whole_quota() -> int:
    return max(1, int(cpu.quota_cpus() or 1 << 30))


def threads_to_try(fast: bool = False) -> tuple[int, ...]:
    """1, 2, 4, ... (`fast`: 1 alone) and all cores, and then all hardware threads where there are more of them."""
    cores = usable_cores()
    powers = {1 << i for i in range(1 if fast else cores.bit_length())}
    return tuple(sorted(powers | {cores, max(cores, usable_threads())}))


no_gpu = gpu.no_gpu


def gpu_problem() -> str:
    """Why there is no GPU to measure, with what to type where typing helps; empty when there is one."""
    lacking = gpu.no_gpu()
    return lacking.words if lacking else ""


def memory_bytes(total: int, room: cpu.Room | None) -> int:
    """Memory of the machine, from the kernel's total and the cgroup's limit."""
    if room is None or (room.limit > total and not _virtual()):
        return total
    return room.limit


@functools.cache
def _virtual() -> bool:
    return cpu.virtual(cpu.features(cpu.cpuinfo()))


def memory_available(device: str = "cpu") -> int:
    """Bytes that may be allocated now on `cpu` or `gpu:0`, a margin kept back. Well under a millisecond on the cpu.

    A VM's memory may grow on use up to its cgroup's limit: a limit above MemTotal then counts, and not what the kernel
    reports. On a real machine such a limit promises memory that is not there.
    """
    if device != "cpu":
        return gpu.memory_available(int(device.partition(":")[2] or 0))
    total, available = cpu.memory()
    room = cpu.memory_limit()
    if room:
        available = room.left if room.limit > total and _virtual() else min(available, room.left)
    return max(0, available - HOST_MARGIN_BYTES)


def version(package: str) -> str:
    """The installed version of a distribution, nothing imported; empty when it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def blas() -> dict[str, str]:
    """NumPy's BLAS: blas (name and version), blas_kernels (the architecture it chose), blas_threads."""
    import numpy as np
    import threadpoolctl

    loaded = [library for library in threadpoolctl.threadpool_info() if library["user_api"] == "blas"]
    if not loaded:
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return {"blas": f"{built.get('name', 'unknown')} {built.get('version', '')}".strip()}
    # SciPy brings another BLAS; the file of NumPy's is in a folder next to NumPy's.
    next_to_numpy = [library for library in loaded if Path(library["filepath"]).parent.name.startswith("numpy")]
    library = (next_to_numpy or loaded)[0]
    return {
        "blas": f"{library['internal_api']} {library['version']}",
        "blas_kernels": str(library.get("architecture", "")),
        "blas_threads": str(library["num_threads"]),
    }


def lesser_blas(library: dict[str, str]) -> bool:
    """Whether a BLAS, as `blas` describes it, computes with AVX2 kernels on a CPU with AVX-512: up to half the rate."""
    return library.get("blas_kernels") in AVX2_KERNELS and "avx512f" in cpu.features(cpu.cpuinfo())


def blas_variables() -> list[str]:
    """The variables set here that change the speed of a BLAS, except OPENBLAS_CORETYPE: `lesser_blas` sees its effect."""
    return [name for name in BLAS_VARIABLES if name in os.environ]


@functools.cache
def numba_layer() -> str:
    """Numba's threading layer that will be used: the first of $NUMBA_THREADING_LAYER_PRIORITY or LAYERS that loads."""
    if (named := os.environ.get("NUMBA_THREADING_LAYER")) in LAYERS:
        return named
    wanted = os.environ.get("NUMBA_THREADING_LAYER_PRIORITY", "").split() or LAYERS
    for layer in wanted:
        try:
            importlib.import_module(f"numba.np.ufunc.{_LAYER_FILES[layer]}")
        except (ImportError, KeyError):
            continue
        return layer
    return ""


def numba_threads() -> int:
    """The threads that Numba uses by default."""
    import numba

    return int(numba.config.NUMBA_NUM_THREADS)


def software() -> dict[str, str]:
    """Names and versions of the software behind the results. TensorFlow and Keras are never imported."""
    versions = {"python": platform.python_version(), "os": f"{platform.system()} {platform.release()}"}
    versions |= {"numpy": version("numpy")} | blas()
    numba = version("numba")
    if numba:
        versions |= {"numba": numba, "numba_layer": numba_layer(), "numba_threads": str(numba_threads())}
    versions |= {name: version(package) for name, package in _PACKAGES.items()}
    versions |= gpu.software()
    return {name: value for name, value in versions.items() if value}


def now() -> str:
    """The time in UTC, to the second."""
    return datetime.fromtimestamp(clock.moment(), UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def commit() -> str:
    """The commit that measures: $CROSSOVER_COMMIT, else git's HEAD, else `unknown`; with `+changes` when files differ."""
    named = os.environ.get("CROSSOVER_COMMIT")
    if named:
        return marked(named, source_hash())
    try:
        top, head = _git("rev-parse", "--show-toplevel", "HEAD").split()
        if Path(top).resolve() != ROOT.resolve():  # unpacked inside somebody else's repository
            return "unknown"
        return head + ("+changes" if _git("status", "--porcelain") else "")
    except (OSError, subprocess.SubprocessError, ValueError):
        return "unknown"


def marked(commit: str, sources: str, digits: int = 40) -> str:
    """The commit in at most so many digits, with the mark that it has after a `+`; else with `+dirty` where git knows it and its
    sources have another hash."""
    name, _, mark = commit.partition("+")
    if not mark and sources_of(commit) not in ("", sources):
        mark = "dirty"
    return f"{name[:digits]}+{mark}" if mark else name[:digits]


@functools.cache
def sources_of(commit: str) -> str:
    """The source hash of a commit; empty where git does not know it."""
    if not re.fullmatch("[0-9a-f]{7,40}", commit):
        return ""
    with tempfile.TemporaryDirectory() as folder:
        try:
            packed = subprocess.run(["git", "-C", ROOT, "archive", commit, *SOURCES], capture_output=True, check=True)
            subprocess.run(["tar", "-x", "-C", folder], input=packed.stdout, capture_output=True, check=True)
        except (OSError, subprocess.SubprocessError):
            return ""
        return source_hash(Path(folder))


def _git(*words: str) -> str:
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
