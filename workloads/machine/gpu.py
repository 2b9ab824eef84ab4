"""The GPUs here, or why there are none: facts, free memory, the driver and its libraries. Starts no GPU context."""

import contextlib
import ctypes
import dataclasses
import functools
import importlib.metadata
import importlib.util
import os
import uuid
from collections.abc import Mapping
from types import ModuleType
from typing import Any, Literal

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
    """Why there is no GPU to measure, by a look at the driver, CuPy and the devices that CUDA shows; None if there is one."""
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
    """The last line with words of an error's message; the name of its class if there is none."""
    lines = [line for line in str(error).splitlines() if line.strip(" =")]
    return lines[-1].strip() if lines else type(error).__name__


def _dotted(version: int) -> str:
    """A version of CUDA, which counts 13000 for 13.0, as people write it."""
    return f"{version // 1000}.{version % 1000 // 10}"


def driver_cuda() -> int | None:
    """The newest version of CUDA that the driver knows, as CUDA counts: 13000 is 13.0. None without a driver."""
    version = ctypes.c_int(0)
    try:
        error = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return None if error or version.value == 0 else version.value


@functools.cache
def nvml() -> Any:
    """The module pynvml, which asks NVIDIA's management library, started; None if it or the driver is missing."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except Exception:  # a missing package or library, a driver of another version: each has its own class
        return None
    return pynvml


def ask(name: str, *args: object) -> Any:
    """What NVML's function of this name returns for these arguments; None if NVML is missing or does not answer that for this
    GPU."""
    library = nvml()
    if library is None:
        return None
    try:
        return getattr(library, name)(*args)
    except (AttributeError, library.NVMLError):
        return None


@functools.cache
def handle(index: int) -> Any:
    """NVML's handle of the GPU that CuPy numbers `index`; None if NVML is missing.

    The two are matched by bus address, as NVML also sees GPUs that CUDA_VISIBLE_DEVICES hides, and has an order of its own.
    """
    import cupy

    return ask("nvmlDeviceGetHandleByPciBusId", cupy.cuda.runtime.deviceGetPCIBusId(index))


def only_handle(device: str, environment: Mapping[str, str] = os.environ) -> Any:
    """NVML's handle of the only GPU that a process with this environment sees; None if NVML is missing. Neither a CUDA context
    nor CuPy is started for it.

    device: its name, such as gpu:0, by whose number it is found where CUDA_VISIBLE_DEVICES does not name it.
    """
    first_visible = environment.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
    if first_visible.startswith(("GPU-", "MIG-")):
        return ask("nvmlDeviceGetHandleByUUID", first_visible)
    number = first_visible or device.partition(":")[2] or "0"
    return ask("nvmlDeviceGetHandleByIndex", int(number)) if number.isdigit() else None


def lacks(device: str, math: str) -> str:
    """Why the only GPU that this process sees cannot multiply in an arithmetic such as bfloat16, in words; "" if it can, or if
    NVML does not say which GPU it is."""
    major_and_minor = ask("nvmlDeviceGetCudaComputeCapability", only_handle(device))
    if not major_and_minor:
        return ""
    return lacking(".".join(map(str, major_and_minor)), math)


def driver() -> str:
    """The version of NVIDIA's driver; where NVML is missing the version of CUDA that it knows, as `CUDA 13.0`; "" without a
    driver."""
    version = _decoded(ask("nvmlSystemGetDriverVersion") or "")
    if version:
        return version
    cuda = driver_cuda()
    return f"CUDA {_dotted(cuda)}" if cuda else ""


def memory_available(index: int) -> int:
    """Bytes that may be allocated now on the GPU that CuPy numbers `index`, less MARGIN_BYTES."""
    import cupy

    runtime = cupy.cuda.runtime
    # NVML first, because asking the runtime starts a context in this process.
    memory = ask_gpu(index, "nvmlDeviceGetMemoryInfo")
    if memory:
        free_bytes = memory.free
    else:
        with cupy.cuda.Device(index):
            free_bytes, _ = runtime.memGetInfo()
    if runtime.getDevice() == index:
        # Unused memory in CuPy's pool counts as free: CuPy frees it before an allocation fails.
        free_bytes += cupy.get_default_memory_pool().free_bytes()
    return max(0, free_bytes - MARGIN_BYTES)


def gpus() -> tuple[Gpu, ...]:
    """The facts of every GPU that CuPy sees; () without a GPU, and where it cannot be used."""
    if no_gpu():
        return ()
    import cupy

    return tuple(_gpu(cupy.cuda.runtime, index) for index in range(cupy.cuda.runtime.getDeviceCount()))


def _gpu(runtime: ModuleType, index: int) -> Gpu:
    """The facts of one GPU. runtime: the module cupy.cuda.runtime."""
    properties = runtime.getDeviceProperties(index)
    limit_mw = ask_gpu(index, "nvmlDeviceGetPowerManagementLimit")
    gpu_uuid = ask_gpu(index, "nvmlDeviceGetUUID") or _uuid(properties.get("uuid", b""))
    return Gpu(
        name=_decoded(properties["name"]),
        uuid=_decoded(gpu_uuid),
        compute_capability=f"{properties['major']}.{properties['minor']}",
        multiprocessors=properties["multiProcessorCount"],
        memory_bytes=properties["totalGlobalMem"],
        l2_bytes=properties["l2CacheSize"],
        max_clock_hz=properties["clockRate"] * 1e3,
        memory_clock_hz=properties["memoryClockRate"] * 1e3,
        power_limit_w=limit_mw / 1e3 if limit_mw else None,
        # An idle link falls back in generation but not in width.
        pcie_generation=ask_gpu(index, "nvmlDeviceGetMaxPcieLinkGeneration") or None,
        pcie_width=ask_gpu(index, "nvmlDeviceGetCurrPcieLinkWidth") or None,
    )


def ask_gpu(index: int, name: str) -> Any:
    """What NVML's function of this name says of the GPU that CuPy numbers `index`; None if NVML is missing or does not answer."""
    return ask(name, handle(index)) if handle(index) else None


def _decoded(name: str | bytes) -> str:
    """A text that some versions of the libraries give as bytes."""
    return name.decode(errors="replace") if isinstance(name, bytes) else name


def _uuid(raw: bytes) -> str:
    """The UUID of a GPU, `GPU-...`, from the 16 bytes that CUDA's runtime gives; "" if CuPy has cut them at a zero byte."""
    return f"GPU-{uuid.UUID(bytes=raw)}" if len(raw) == 16 else ""


def software() -> dict[str, str]:
    """Name -> version, of cupy, cuda_runtime, cuda_driver, driver and cublas; {} without a driver or CuPy. A CuPy that does
    not load has the error in place of its version."""
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
    """The version of cuBLAS for this major version of CUDA, from its installed package or from the library itself; "" if there is
    neither. CuPy would start a context to say it."""
    package = "nvidia-cublas" if major >= 13 else f"nvidia-cublas-cu{major}"
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    try:
        get_property = ctypes.CDLL(f"libcublas.so.{major}").cublasGetProperty
    except (OSError, AttributeError):
        return ""
    numbers = []
    for property_number in range(3):  # major, minor, patch level
        number = ctypes.c_int(0)
        get_property(property_number, ctypes.byref(number))
        numbers.append(str(number.value))
    return ".".join(numbers)
