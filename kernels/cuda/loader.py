"""Loads CUDA C: a `.cu` file beside the kernels that launch it, compiled by NVRTC for the GPU at hand and kept for the
process.

Its first line names the architectures that it must compile for; what several files share is a `.cuh` in include/.
"""

import ctypes
import functools
import pathlib
import re
import threading
from collections.abc import Sequence

import numpy as np

FOLDER = pathlib.Path(__file__).parent.parent  # the kernels package
STREAM_THREADS = 256
H2D, D2H, D2D = 1, 2, 3  # cudaMemcpyKind
# CUtensorMapDataType; -Interleave (none), -Swizzle (128 bytes; 2: 64), -L2promotion (128 bytes),
# -FloatOOBfill (0): the toolkit's cuda.h
UINT16, FLOAT32, TFLOAT32, SWIZZLED = 1, 7, 11, (0, 3, 2, 0)  # the copy engine rounds what it reads as TFLOAT32
MAP_BYTES = _MAP_ALIGNMENT = 128  # the driver asks for 64 at least
_PROGRAMMATIC_STREAM_SERIALIZATION = 6  # CUlaunchAttributeID

_compiling: dict[str, threading.Lock] = {}
_INCLUDE = re.compile(r'^#include "(\w+\.cuh)"$')


def source(file: str) -> str:
    """The text of kernels/<file>.cu with its includes expanded, each file once.

    NVRTC could read them from disk, but CuPy caches compiled code by the text it was given, and would not see that an included
    file has changed. `#line` has the compiler name file and line as they are here.
    """
    expanded: set[str] = set()

    def with_includes(name: str) -> str:
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
def load(file: str, kernel: str, _arch: str = "", **macros: str | int):
    """The kernel of that name in kernels/<file>.cu as a cupy.RawKernel, compiled with `macros` defined, for the GPU at
    hand or for `_arch` (sm_90a has instructions that sm_90 leaves out)."""
    import cupy

    # not by -D: for each new list of options CuPy has an empty program compiled, to learn the compiler's version
    defined = [f"#define {name} {value}\n" for name, value in macros.items()]
    text = "".join(defined) + f'#line 1 "{file}.cu"\n' + source(file)
    options = ("-std=c++17", f"-arch={_arch}") if _arch else ("-std=c++17",)
    made = cupy.RawKernel(text, kernel, options=options)
    with _compiling.setdefault(text, threading.Lock()):  # of threads that want it at once one compiles it
        made.compile()
    return made


def require(least: int, only: bool = False) -> None:
    """Raises ValueError where the GPU at hand has a lesser compute capability (80 is 8.0), or with `only` another one."""
    import cupy

    have = int(cupy.cuda.Device().compute_capability)
    if have < least or (only and have > least):
        newer = "" if only else " or newer"
        raise ValueError(f"needs a GPU of compute capability {least / 10}{newer}, this one has {have / 10}")


def stream(real: str, formula: str, arrays: int, nbytes: int):
    """(the element-wise kernel of stream/cupy.cu, its blocks) for arrays of `nbytes` each, of which it reads one or two.

    One load a thread where one array is read and two an array where two are: most on an H200 (copy 4.27 TB/s against 4.13
    with two, triad 4.39 against 4.37 with one).
    """
    macros = {"FORMULA": formula.replace(" ", ""), "HAS_B": arrays - 1, "FLIGHT": arrays}
    compiled = load("stream/cupy", "stream", REAL=real, **macros)
    return compiled, -(-nbytes // (STREAM_THREADS * arrays * 16))


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


def tensor_map(
    address: int, shape: tuple[int, int], pitch: int, box: tuple[int, int], item: int = UINT16
) -> np.ndarray:
    """A CUtensorMap, passed to a kernel by value, by which the copy engine (TMA) reads or writes a matrix of that shape.

    `address`: of its first item; `pitch`: items from row to row; `box`: rows and columns of what a copy takes, of which what lies
    outside is read as zero and not written; `item`: a CUtensorMapDataType. In shared memory a box lies in lines of 128 bytes, or
    of 64, swizzled.
    Raises: ValueError for what the engine cannot do: it begins on 16 bytes, and so does each of its rows.
    """
    (rows, columns), size = shape, 2 if item == UINT16 else 4
    if address % 16 or pitch * size % 16 or not pitch >= columns >= 1 or rows < 1:
        raise ValueError(
            f"TMA needs rows on 16 bytes: no map of {rows} x {columns} at {address:#x}, {pitch} items a row"
        )
    interleave, _, *others = SWIZZLED
    how = interleave, {128: 3, 64: 2}[box[1] * size], *others
    words = ctypes.c_uint64 * 2
    boxes, steps = (ctypes.c_uint32 * 2)(box[1], box[0]), (ctypes.c_uint32 * 2)(1, 1)
    made = map_room()
    failed = _driver().cuTensorMapEncodeTiled(
        *(ctypes.c_void_p(made.ctypes.data), item, 2, ctypes.c_void_p(address), words(columns, rows)),
        *((ctypes.c_uint64 * 1)(pitch * size), boxes, steps, *how),
    )
    if failed:
        raise ValueError(
            f"cuTensorMapEncodeTiled: error {failed} for {rows} x {columns}, {pitch} items a row, boxes of {box}"
        )
    return made.view(f"V{MAP_BYTES}")


class _Attribute(ctypes.Structure):  # CUlaunchAttribute, whose value is a union of 64 bytes
    _fields_ = (("id", ctypes.c_int), ("pad", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_char * 60))


class _Launch(ctypes.Structure):  # CUlaunchConfig
    _fields_ = (
        *((f"{what}_{axis}", ctypes.c_uint) for what in ("grid", "block") for axis in "xyz"),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(_Attribute)),
        ("count", ctypes.c_uint),
    )


def overlapping(compiled, blocks: int, threads: int, arguments: Sequence, shared_bytes: int = 0, on=None, early=True):
    """A call that launches the kernel with those arguments on that stream (None: the current one). early: its blocks start as
    those of the one before it end (programmatic dependent launch, from Hopper on); the kernel itself says `griddepcontrol.wait`
    before it touches what an earlier kernel writes, and before it ends.

    CuPy's own launch has no attributes and looks at its arguments each time. These are CuPy arrays and NumPy scalars; they are
    kept.
    """
    import cupy

    values = [np.array(x.data.ptr) if isinstance(x, cupy.ndarray) else np.ascontiguousarray(x) for x in arguments]
    addresses = (ctypes.c_void_p * len(values))(*(x.ctypes.data for x in values))
    attribute = _Attribute(_PROGRAMMATIC_STREAM_SERIALIZATION, 0, 1)
    launch = _Launch(blocks, 1, 1, threads, 1, 1, shared_bytes, on and on.ptr, ctypes.pointer(attribute), early)
    given = ctypes.byref(launch), ctypes.c_void_p(compiled.kernel.ptr), addresses, None
    call = _driver().cuLaunchKernelEx

    def run(keep=(arguments, values, attribute)):
        if not on:
            launch.stream = cupy.cuda.get_current_stream().ptr
        if failed := call(*given):
            raise RuntimeError(f"cuLaunchKernelEx: error {failed}")

    return run
