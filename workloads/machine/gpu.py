"""The GPUs here, or why there are none: facts, free memory, the driver and its libraries. Starts no GPU context."""

import ctypes
import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
from typing import Literal

from kernels import registry
from workloads.records import Gpu
from workloads.records.rows import lacking

MARGIN_BYTES = 512 << 20  # the context's growth, cuBLAS's workspaces (32 MiB a handle on Hopper), loaded kernels


@dataclasses.dataclass(frozen=True, kw_only=True)
class NoGpu:
    """Why there is no GPU to measure."""

    #: `broken`: a driver, library or device is there and does not work.
    kind: Literal["no-driver", "not-installed", "no-device", "broken"]
    #: The same in words, with what to type where typing helps.
    words: str
    #: The command that mends it, or tells more.
    fix: str = "nvidia-smi"


def no_gpu() -> NoGpu | None:
    """Why there is no GPU to measure; None when there is one."""
    cuda = driver_cuda()
    if cuda is None:
        return NoGpu(kind="no-driver", words="no NVIDIA driver")
    try:
        import cupy
    except ImportError as error:
        if importlib.util.find_spec("cupy") is None:
            lacking = registry.NotInstalled("cupy")
            return NoGpu(kind="not-installed", words=str(lacking), fix=lacking.command)
        return NoGpu(kind="broken", words=f"CuPy does not load: {_last_line(error)}")
    if cupy.is_available():
        return None
    try:
        cupy.cuda.runtime.getDeviceCount()
    except Exception as error:  # CuPy's own class, or whatever a broken CUDA installation raises
        if "InsufficientDriver" in str(error):
            words = (
                f"insufficient driver: it knows CUDA {_dotted(cuda)}, this CuPy needs a newer one; "
                "update the driver or install the CuPy of an older CUDA"
            )
            return NoGpu(kind="broken", words=words)
        if "NoDevice" not in str(error):
            return NoGpu(kind="broken", words=f"the CUDA runtime does not start: {_last_line(error)}")
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
    why = "" if hidden is None else f": CUDA_VISIBLE_DEVICES={hidden!r} hides them"
    return NoGpu(kind="no-device", words=f"a driver but no device{why}")


def _last_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip(" =")]
    return lines[-1].strip() if lines else type(error).__name__


def _dotted(version: int) -> str:
    """`13.0` for CUDA's version number 13000."""
    return f"{version // 1000}.{version % 1000 // 10}"


def driver_cuda() -> int | None:
    """The CUDA version the driver knows (13000 is 13.0), by cuDriverGetVersion; None without a driver."""
    version = ctypes.c_int(0)
    try:
        failed = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if failed or version.value == 0 else version.value


@functools.cache
def nvml():
    """NVIDIA's management library (pynvml), started; None when it or the driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # a missing package or library, a driver of another version: each has its own class
        return None
    return pynvml


def ask(name: str, *args):
    """The answer of one NVML function; None when NVML is not there or does not answer that on this GPU."""
    library = nvml()
    if library is None:
        return None
    try:
        return getattr(library, name)(*args)
    except (AttributeError, library.NVMLError):
        return None


@functools.cache
def handle(index: int):
    """NVML's handle of the GPU that CuPy calls `index`; None without one.

    Matched by bus address: NVML sees GPUs that CUDA_VISIBLE_DEVICES hides and counts in its own order.
    """
    import cupy

    return ask("nvmlDeviceGetHandleByPciBusId", cupy.cuda.runtime.deviceGetPCIBusId(index))


def only_handle(device: str, environment=os.environ):
    """NVML's handle of the only GPU that this process sees, without starting a context or CuPy: by its UUID, or by its number
    where no UUID was known."""
    first = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if first.startswith(("GPU-", "MIG-")):
        return ask("nvmlDeviceGetHandleByUUID", first)
    number = first or device.partition(":")[2] or "0"
    return ask("nvmlDeviceGetHandleByIndex", int(number)) if number.isdigit() else None


def lacks(device: str, math: str) -> str:
    """Why the only GPU that this process sees does not multiply in an arithmetic; "" where it does, or nothing tells."""
    capability = ask("nvmlDeviceGetCudaComputeCapability", only_handle(device))
    return lacking(".".join(map(str, capability)), math) if capability else ""


def driver() -> str:
    """The driver's version, or the CUDA version that it knows where NVML is missing; empty without a driver."""
    cuda = driver_cuda()
    return _decoded(ask("nvmlSystemGetDriverVersion") or "") or (f"CUDA {_dotted(cuda)}" if cuda else "")


def memory_available(index: int) -> int:
    """Bytes that may be allocated now on a GPU, MARGIN_BYTES kept back."""
    import cupy

    runtime = cupy.cuda.runtime
    # NVML first, because asking the runtime starts a context in this process.
    memory = ask_of(index, "nvmlDeviceGetMemoryInfo")
    if memory:
        free = memory.free
    else:
        with cupy.cuda.Device(index):
            free, _ = runtime.memGetInfo()
    # Unused memory in CuPy's pool counts as free: CuPy frees it before an allocation fails.
    pooled = cupy.get_default_memory_pool().free_bytes() if runtime.getDevice() == index else 0
    return max(0, free + pooled - MARGIN_BYTES)


def gpus() -> tuple[Gpu, ...]:
    """The facts of every GPU that CuPy sees; none when `no_gpu()` says why."""
    if no_gpu():
        return ()
    import cupy

    return tuple(_gpu(cupy.cuda.runtime, index) for index in range(cupy.cuda.runtime.getDeviceCount()))


def _gpu(runtime, index: int) -> Gpu:
    properties = runtime.getDeviceProperties(index)
    watts = ask_of(index, "nvmlDeviceGetPowerManagementLimit")
    uuid = ask_of(index, "nvmlDeviceGetUUID") or _uuid(properties.get("uuid", b""))
    return Gpu(
        name=_decoded(properties["name"]),
        uuid=_decoded(uuid),
        compute_capability=f"{properties['major']}.{properties['minor']}",
        multiprocessors=properties["multiProcessorCount"],
        memory_bytes=properties["totalGlobalMem"],
        l2_bytes=properties["l2CacheSize"],
        max_clock_hz=properties["clockRate"] * 1e3,
        memory_clock_hz=properties["memoryClockRate"] * 1e3,
        power_limit_w=watts / 1e3 if watts else None,
        # An idle link falls back in generation but not in width.
        pcie_generation=ask_of(index, "nvmlDeviceGetMaxPcieLinkGeneration") or None,
        pcie_width=ask_of(index, "nvmlDeviceGetCurrPcieLinkWidth") or None,
    )


def ask_of(index: int, name: str):
    """The answer of one NVML function on the GPU that CuPy calls `index`; None as `ask`."""
    return ask(name, handle(index)) if handle(index) else None


def _decoded(name: str | bytes) -> str:
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _uuid(raw: bytes) -> str:
    """`GPU-...` from the runtime's 16 bytes; empty when they were cut at a zero byte."""
    digits = raw.hex()
    return f"GPU-{digits[:8]}-{digits[8:12]}-{digits[12:16]}-{digits[16:20]}-{digits[20:]}" if len(raw) == 16 else ""


def software() -> dict[str, str]:
    """cupy, cuda_runtime, cuda_driver, driver, cublas with their versions; empty without a driver or CuPy."""
    if driver_cuda() is None or importlib.util.find_spec("cupy") is None:
        return {}
    try:
        import cupy

        runtime = cupy.cuda.get_local_runtime_version()
    except Exception as error:  # a CuPy that does not load must not keep the CPU from being measured
        return {"cupy": f"does not load: {_last_line(error)}"}
    return {
        "cupy": cupy.__version__,
        "cuda_runtime": _dotted(runtime),
        "cuda_driver": _dotted(driver_cuda() or 0),
        "driver": driver(),
        "cublas": _cublas(runtime // 1000),
    }


def _cublas(major: int) -> str:
    """cuBLAS's version, from its wheel or from the library: asking through CuPy would start a context."""
    try:
        return importlib.metadata.version("nvidia-cublas" if major >= 13 else f"nvidia-cublas-cu{major}")
    except importlib.metadata.PackageNotFoundError:
        pass
    try:
        ask_library = ctypes.CDLL(f"libcublas.so.{major}").cublasGetProperty
    except (OSError, AttributeError):
        return ""
    parts = [ctypes.c_int(0) for _ in range(3)]
    for which, part in enumerate(parts):
        ask_library(which, ctypes.byref(part))
    return ".".join(str(part.value) for part in parts)
