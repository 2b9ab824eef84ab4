"""Loads CUDA C: a `.cu` file beside the kernels that launch it, compiled by NVRTC for the GPU at hand and kept for the
process.

Its first line names the architectures that it must compile for; what several files share is a `.cuh` in include/.
"""

import ctypes
import functools
import pathlib
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import cupy

#: The kernels package.
FOLDER = pathlib.Path(__file__).parent.parent
#: Threads of a block of stream/cupy.cu.
STREAM_THREADS = 256
#: cudaMemcpyKind, from driver_types.h.
H2D = 1
D2H = 2
D2D = 3
#: CUtensorMapDataType, from cuda.h; the copy engine rounds what it reads as TFLOAT32.
UINT16 = 1
FLOAT32 = 7
TFLOAT32 = 11
#: CUtensorMapInterleave: none.
INTERLEAVE_NONE = 0
#: CUtensorMapSwizzle of lines of 64 and of 128 bytes.
SWIZZLES = {64: 2, 128: 3}
#: CUtensorMapL2promotion: 128 bytes.
L2_PROMOTION_128B = 2
#: CUtensorMapFloatOOBfill: zeros.
FILL_ZEROS = 0
#: Bytes of a CUtensorMap.
MAP_BYTES = 128
#: Bytes on which it begins; the driver asks for 64 at least.
_MAP_ALIGNMENT = 128
#: CUlaunchAttributeID, from cuda.h.
_PROGRAMMATIC_STREAM_SERIALIZATION = 6

_compiling: dict[str, threading.Lock] = {}
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$')


def source(file: str) -> str:
    """The text of the CUDA source kernels/<file>.cu with its own #include lines expanded, each header once.

    NVRTC could read them from disk, but CuPy caches compiled code by the text it was given, and would not see that an
    included file has changed. `#line` has the compiler name file and line as they are on disk.
    """
    expanded: set[str] = set()

    def with_includes(name: str) -> str:
        """The text of one file under kernels/, headers expanded. Called for the .cu and then for each header met for the
        first time."""
        expanded.add(name)
        lines = []
        for number, line in enumerate((FOLDER / name).read_text(encoding="utf-8").splitlines(), start=1):
            include = _INCLUDE.match(line)
            if include is None:
                lines.append(line)
                continue
            header = f"cuda/include/{include[1]}"
            header_text = ""
            if header not in expanded:
                header_text = f'#line 1 "{header}"\n{with_includes(header)}'
            lines.append(f'{header_text}#line {number + 1} "{name}"')
        return "\n".join(lines) + "\n"

    return with_includes(f"{file}.cu")


@functools.cache
def compile_kernel(file: str, kernel: str, _arch: str = "", **macros: str | int) -> "cupy.RawKernel":
    """The kernel of that name in the CUDA source kernels/<file>.cu, compiled with `macros` defined; call it with (grid,
    block, arguments).

    _arch: the architecture to compile for, if not the GPU at hand's: sm_90a has instructions that sm_90 leaves out.
    """
    import cupy

    # not by -D: for each new list of options CuPy has an empty program compiled, to learn the compiler's version
    defined = [f"#define {name} {value}\n" for name, value in macros.items()]
    text = "".join(defined) + f'#line 1 "{file}.cu"\n' + source(file)
    options = ("-std=c++17", f"-arch={_arch}") if _arch else ("-std=c++17",)
    raw_kernel = cupy.RawKernel(text, kernel, options=options)
    with _compiling.setdefault(text, threading.Lock()):  # of threads that want it at once one compiles it
        raw_kernel.compile()
    return raw_kernel


def require_capability(least: int, only: bool = False) -> None:
    """Raises ValueError where the GPU at hand has a lesser compute capability than `least` (80 is 8.0), or with `only`
    another one."""
    import cupy

    have = int(cupy.cuda.Device().compute_capability)
    if have < least or (only and have > least):
        newer = "" if only else " or newer"
        raise ValueError(f"needs a GPU of compute capability {least / 10}{newer}, this one has {have / 10}")


def element_wise_kernel(real: str, formula: str, arrays: int, nbytes: int) -> tuple["cupy.RawKernel", int]:
    """(the element-wise kernel of stream/cupy.cu, compiled; its blocks) that computes `formula` for arrays of `nbytes` each.

    One load a thread where one array is read and two an array where two are: most on an H200 (copy 4.27 TB/s against 4.13
    with two, triad 4.39 against 4.37 with one).
    real: C's type of the values. formula: in C, of the values `a` and `b`. arrays: how many are read, 1 or 2.
    """
    compiled = compile_kernel("stream/cupy", "stream", REAL=real, FORMULA=formula, HAS_B=arrays - 1, FLIGHT=arrays)
    bytes_of_a_block = STREAM_THREADS * arrays * 16
    return compiled, -(-nbytes // bytes_of_a_block)


@functools.cache
def _driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def attribute(name: str) -> int:
    """An attribute of the GPU at hand by CUDA's name: MultiProcessorCount, MaxSharedMemoryPerBlockOptin (bytes)."""
    import cupy

    return cupy.cuda.Device().attributes[name]


def map_room() -> np.ndarray:
    """Zeroed bytes for a CUtensorMap, aligned as the driver wants it."""
    room = np.zeros(MAP_BYTES + _MAP_ALIGNMENT, np.uint8)
    begin = -room.ctypes.data % _MAP_ALIGNMENT
    return room[begin : begin + MAP_BYTES]


def swizzle(line_bytes: int) -> tuple[int, int, int, int]:
    """The arguments of cuTensorMapEncode* that say how lines of so many bytes lie in shared memory: (interleave, swizzle, L2
    promotion, fill)."""
    return INTERLEAVE_NONE, SWIZZLES[line_bytes], L2_PROMOTION_128B, FILL_ZEROS


def tensor_map(
    address: int, shape: tuple[int, int], pitch: int, box: tuple[int, int], *, item: int = UINT16
) -> np.ndarray:
    """A CUtensorMap, passed to a kernel by value, by which the copy engine (TMA) reads or writes a matrix. In shared memory a
    box lies in lines of 128 bytes, or of 64, swizzled.

    address: the first item's.
    shape: rows and columns.
    pitch: items from row to row.
    box: rows and columns of one copy; outside the matrix zeros are read and nothing is written.
    item: a CUtensorMapDataType.
    Raises: ValueError for what the engine cannot do: a matrix or a row that does not begin on 16 bytes.
    """
    rows, columns = shape
    box_rows, box_columns = box
    size = 2 if item == UINT16 else 4
    on_16_bytes = address % 16 == 0 and pitch * size % 16 == 0
    if not on_16_bytes or not pitch >= columns >= 1 or rows < 1:
        raise ValueError(
            f"TMA needs rows on 16 bytes: no map of {rows} x {columns} at {address:#x}, {pitch} items a row"
        )
    dimensions = 2
    whole_map = map_room()
    error = _driver().cuTensorMapEncodeTiled(
        ctypes.c_void_p(whole_map.ctypes.data),
        item,
        dimensions,
        ctypes.c_void_p(address),
        (ctypes.c_uint64 * dimensions)(columns, rows),
        (ctypes.c_uint64 * (dimensions - 1))(pitch * size),
        (ctypes.c_uint32 * dimensions)(box_columns, box_rows),
        (ctypes.c_uint32 * dimensions)(1, 1),  # every item
        *swizzle(box_columns * size),
    )
    if error:
        raise ValueError(
            f"cuTensorMapEncodeTiled: error {error} for {rows} x {columns}, {pitch} items a row, boxes of {box}"
        )
    return whole_map.view(f"V{MAP_BYTES}")


class _Attribute(ctypes.Structure):
    """CUlaunchAttribute, whose value is a union of 64 bytes."""

    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Launch(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = (
        ("grid_x", ctypes.c_uint),
        ("grid_y", ctypes.c_uint),
        ("grid_z", ctypes.c_uint),
        ("block_x", ctypes.c_uint),
        ("block_y", ctypes.c_uint),
        ("block_z", ctypes.c_uint),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def overlapping(
    compiled: "cupy.RawKernel",
    blocks: int,
    threads: int,
    arguments: Sequence,
    shared_bytes: int = 0,
    on: "cupy.cuda.Stream | None" = None,
    early: bool = True,
) -> Callable[[], None]:
    """A call that launches a compiled kernel through the driver with these arguments, CuPy arrays and NumPy scalars, which it
    keeps alive.

    CuPy's own launch has no attributes and looks at its arguments on every call.
    shared_bytes: dynamic shared memory of a block. on: the stream (None: the current one).
    early: its blocks start while those of the launch before it end (programmatic dependent launch, from Hopper on); the
    kernel itself says `griddepcontrol.wait` before it touches what an earlier kernel writes, and before it ends.
    """
    import cupy

    values = []
    for argument in arguments:
        is_on_gpu = isinstance(argument, cupy.ndarray)
        values.append(np.array(argument.data.ptr) if is_on_gpu else np.ascontiguousarray(argument))
    addresses = (ctypes.c_void_p * len(values))(*(value.ctypes.data for value in values))
    attribute = _Attribute(id=_PROGRAMMATIC_STREAM_SERIALIZATION, pad=0, value=1)
    launch = _Launch(
        grid_x=blocks,
        grid_y=1,
        grid_z=1,
        block_x=threads,
        block_y=1,
        block_z=1,
        shared_bytes=shared_bytes,
        stream=on.ptr if on else None,
        attributes=ctypes.pointer(attribute),
        count=1 if early else 0,
    )
    passed = (ctypes.byref(launch), ctypes.c_void_p(compiled.kernel.ptr), addresses, None)
    call = _driver().cuLaunchKernelEx

    def run(keep=(arguments, values, attribute)):
        if not on:
            launch.stream = cupy.cuda.get_current_stream().ptr
        if error := call(*passed):
            raise RuntimeError(f"cuLaunchKernelEx: error {error}")

    return run
