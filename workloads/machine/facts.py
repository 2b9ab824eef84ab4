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
_NO_QUOTA_CPUS = 1 << 30
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
    cpuinfo = cpu.cpuinfo()
    features = cpu.features(cpuinfo) or _numpy_features()
    cpus = cpu.affinity()
    gpus = gpu.gpus()
    maker = cpu.maker(cpuinfo)
    simd = cpu.simd(features)
    cores = usable_cores()
    return Machine(
        key=key(maker, simd, cores, [card.name for card in gpus]),
        cpu=cpu.model(cpuinfo),
        vendor=maker,
        simd=simd,
        cores=cores,
        threads_a_core=cpu.cores(cpus, cpuinfo).threads_a_core,
        memory_bytes=memory_bytes(cpu.memory().total, cpu.memory_limit()),
        caches_bytes=cpu.caches(cpus),
        gpus=gpus,
        driver=gpu.driver() if gpus else "",
        os=f"{platform.system()} {platform.release()} {platform.machine()}",
        virtual=cpu.virtual(features),
    )


def key(maker: str, simd: str, cores: int, gpus: list[str]) -> str:
    """The name of a machine's folder: `nvidia-h200`, `nvidia-h200-x4`, without a GPU `intel-avx512-2c`.

    maker, simd: of the CPU, as `machine.cpu` says them. gpus: the driver's names of the GPUs, whose memory sizes are left out.
    """
    if not gpus:
        return _slug(f"{maker} {simd} {cores}c")
    memory_size = re.compile(r"\d+ ?GB( HBM\w*)?", re.IGNORECASE)
    products = sorted({_slug(memory_size.sub(" ", name)) for name in gpus})
    name = "-and-".join(products)
    return f"{name}-x{len(gpus)}" if len(gpus) > 1 else name


def _slug(words: str) -> str:
    """The words in lower case, with a dash for anything but letters and digits: `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-")


def _numpy_features() -> set[str]:
    """The names of the CPU's features in lower case, as NumPy knows them; for systems without /proc/cpuinfo."""
    from numpy._core._multiarray_umath import __cpu_features__

    return {name.lower() for name, here in __cpu_features__.items() if here}


def usable_cores() -> int:
    """Number of physical cores that this process may use: those of its affinity, and no more than a cgroup's quota of CPU time is
    worth."""
    return min(cpu.cores(cpu.affinity(), cpu.cpuinfo()).number, _whole_quota())


def usable_threads() -> int:
    """Number of hardware threads that this process may use; more than `usable_cores` only where a core has several."""
    return min(len(cpu.affinity()), _whole_quota())


def _whole_quota() -> int:
    """The CPUs that a cgroup's quota of CPU time is worth, rounded down, one at least; a very large number without a quota."""
    return max(1, int(cpu.quota_cpus() or _NO_QUOTA_CPUS))


def threads_to_try(fast: bool = False) -> tuple[int, ...]:
    """The thread counts to measure by default, rising: 1, 2, 4, ..., the number of cores, and the number of hardware threads if
    that is larger. fast: 1 in place of the powers of two."""
    cores = usable_cores()
    counts = {cores, max(cores, usable_threads())}
    powers = 1 if fast else cores.bit_length()
    for exponent in range(powers):
        counts.add(1 << exponent)
    return tuple(sorted(counts))


no_gpu = gpu.no_gpu


def gpu_problem() -> str:
    """Why there is no GPU to measure, in words, with what to type where typing helps; "" if there is one."""
    lacking = gpu.no_gpu()
    return lacking.words if lacking else ""


def memory_bytes(total: int, room: cpu.Room | None) -> int:
    """The machine's memory in bytes, from what the kernel reports as total and the memory of this process's cgroup.

    A limit above the total counts in a virtual machine, whose memory may grow on use; on a real machine it promises memory that
    does not exist.
    """
    if room is None or (room.limit > total and not _virtual()):
        return total
    return room.limit


@functools.cache
def _virtual() -> bool:
    """Whether this is a virtual machine."""
    return cpu.virtual(cpu.features(cpu.cpuinfo()))


def memory_available(device: str = "cpu") -> int:
    """Bytes that may be allocated now on a device (`cpu`, `gpu:0`, ...), less a margin. Takes well under a millisecond on the
    CPU.

    In a virtual machine whose memory grows on use, the cgroup's limit counts in place of what the kernel reports, as in
    `memory_bytes`.
    """
    if device != "cpu":
        return gpu.memory_available(int(device.partition(":")[2] or 0))
    host = cpu.memory()
    room = cpu.memory_limit()
    if room is None:
        available = host.available
    elif room.limit > host.total and _virtual():
        available = room.left
    else:
        available = min(host.available, room.left)
    return max(0, available - HOST_MARGIN_BYTES)


def version(package: str) -> str:
    """The installed version of a distribution, which is not imported; "" if it is not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def blas() -> dict[str, str]:
    """Facts of the BLAS library that NumPy uses: `blas` (name and version), `blas_kernels` (the architecture for which it
    chose its kernels), `blas_threads`; the first alone where the library cannot be asked."""
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
    """Whether a BLAS library computes with kernels for AVX2 on a CPU with AVX-512, which may halve its speed.

    library: its facts, as `blas` gives them.
    """
    return library.get("blas_kernels") in AVX2_KERNELS and "avx512f" in cpu.features(cpu.cpuinfo())


def blas_variables() -> list[str]:
    """The names of the environment variables that are set and change the speed of a BLAS library, but for OPENBLAS_CORETYPE,
    whose effect `lesser_blas` finds."""
    return [name for name in BLAS_VARIABLES if name in os.environ]


@functools.cache
def numba_layer() -> str:
    """The threading layer that Numba will use: the one that the environment names, else the first that can be imported; "" if
    none can."""
    named = os.environ.get("NUMBA_THREADING_LAYER", "")
    if named in LAYERS:
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
    """Name -> version, of the software that results depend on; what is not installed is left out. TensorFlow and Keras are not
    imported for it."""
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
    """The commit of the project's sources: $CROSSOVER_COMMIT, else git's HEAD with `+changes` where files differ from it, else
    `unknown`."""
    named = os.environ.get("CROSSOVER_COMMIT")
    if named:
        return marked(named, source_hash())  # with `+dirty` where the sources are others
    try:
        top, head = _git("rev-parse", "--show-toplevel", "HEAD").split()
        if Path(top).resolve() != ROOT.resolve():  # unpacked inside somebody else's repository
            return "unknown"
        return f"{head}+changes" if _git("status", "--porcelain") else head
    except (OSError, subprocess.SubprocessError, ValueError):
        return "unknown"


def marked(commit: str, sources: str, digits: int = 40) -> str:
    """The commit, shortened to so many digits, with a mark where the sources differ from it.

    commit: `1a2b3c`, or with a mark `1a2b3c+changes`, which stays. Without one it gets `+dirty` if git knows the commit and its
    sources have another hash than `sources`.
    """
    name, _, mark = commit.partition("+")
    if not mark and sources_of(commit) not in ("", sources):
        mark = "dirty"
    return f"{name[:digits]}+{mark}" if mark else name[:digits]


@functools.cache
def sources_of(commit: str) -> str:
    """The hash of the project's sources (records.source_hash) in a commit; "" if git does not know the commit."""
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
    """What `git` with these arguments prints for this checkout. Raises: OSError; SubprocessError."""
    command = ["git", "-C", str(ROOT), *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=10, check=True).stdout.strip()
