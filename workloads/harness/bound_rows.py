"""What a worker process keeps between visits: rows bound to their data, of which the least recently used are evicted, and the
data that they share."""

import collections
import dataclasses
import gc
import math
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

from kernels.problems import Problem
from kernels.problems.arrays import ITEM_BYTES, random_array
from kernels.registry import FRAMEWORKS
from workloads.machine import facts
from workloads.records import Row

SHARE = 0.25  # of the memory that would be free without them, for bound rows
# Their inputs may be large; other problems' are small, or placed by their kernels.
_SHARED = ("matmul", "conv", "stream")
_PAGE = 4096  # bytes
# Bytes between two inputs: a page and the drawn values repeat, so that the next input begins at another part of both.
_SPACING = 101 * _PAGE + _PAGE // 8

Arrays = tuple[np.ndarray, ...]  # a problem's inputs on the host


@dataclasses.dataclass(frozen=True, kw_only=True)
class StoredRow:
    """A row that stays bound to its data."""

    #: The call with its data, as its caller stored it.
    bound: Any
    #: Device, such as cpu or gpu:0 -> bytes that the row takes on it at most.
    device_bytes: dict[str, int]


class _Places:
    """Gives arrays their places in one long array, one behind the other, with a distance between them."""

    def __init__(self, item_bytes: int):
        """item_bytes: bytes of an element."""
        self._item_bytes = item_bytes
        #: Elements of the long array up to the next place.
        self.length = 0

    def next(self, shape: tuple[int, ...]) -> slice:
        """The elements of the long array for an array of this shape."""
        begin = self.length
        count = math.prod(shape)
        page_bytes = math.ceil(count * self._item_bytes / _PAGE) * _PAGE
        self.length = begin + (page_bytes + _SPACING) // self._item_bytes
        return slice(begin, begin + count)


#: Key -> row, the least recently used first.
_rows: collections.OrderedDict[str, StoredRow] = collections.OrderedDict()
#: (dtype, seed) -> N(0,1) values, as many as the largest problem has wanted.
_values: dict[tuple[str, int], np.ndarray] = {}
#: (dtype, seed) -> CuPy array with the bytes of these values on this process's GPU.
_device_bytes: dict[tuple[str, int], Any] = {}


def inputs(problem: Problem, seed: int) -> Arrays:
    """The problem's inputs on the host, filled with N(0,1) values.

    Products, convolutions and streams get views of one array for each dtype and seed, the same for every problem, so that
    nothing may write to them. If that array has to grow, all bound rows are evicted, as they use the old one.
    """
    if problem.op not in _SHARED:
        return problem.inputs(seed)
    item_bytes = ITEM_BYTES[problem.dtype]
    wanted = _Places(item_bytes)

    def count_elements(shape: tuple[int, ...], *_: object) -> np.ndarray:
        """Reserves the place of an input; the array that it returns is not used."""
        wanted.next(shape)
        return np.empty(0, np.float32)

    problem.inputs(seed, False, count_elements)  # asks for each input by its shape
    dtype_and_seed = problem.dtype, seed
    if wanted.length > len(_values.get(dtype_and_seed, ())):
        _values.pop(dtype_and_seed, None)  # freed before the larger one is allocated
        clear()
        _values[dtype_and_seed] = random_array((wanted.length,), problem.dtype, seed, False)
    values = _values[dtype_and_seed]
    places = _Places(item_bytes)

    def view(shape: tuple[int, ...], *_: object) -> np.ndarray:
        """The input with this shape, as a part of the shared values."""
        return values[places.next(shape)].reshape(shape)

    return problem.inputs(seed, False, view)


def on_device(cupy: ModuleType, array: np.ndarray) -> Any:
    """A CuPy array on the current GPU with the content of a host array.

    The shared values that `inputs` gives have one copy on the GPU, of which the result is a view; any other array is copied.
    """
    for dtype_and_seed, values in _values.items():
        begin_byte = array.ctypes.data - values.ctypes.data
        if 0 <= begin_byte < values.nbytes:  # the array is a part of these values
            if dtype_and_seed not in _device_bytes:
                _device_bytes[dtype_and_seed] = cupy.asarray(values.view(np.uint8))
            part = _device_bytes[dtype_and_seed][begin_byte : begin_byte + array.nbytes]
            return part.view(array.dtype).reshape(array.shape)
    return cupy.asarray(array)


def find(key: str) -> Any:
    """What was stored for the row with this key, which becomes the most recently used; None if it was evicted."""
    if key not in _rows:
        return None
    _rows.move_to_end(key)
    return _rows[key].bound


def keep(row: Row, bound: Any) -> None:
    """Stores a row's call with its data, as the most recently used."""
    _rows[row.key] = StoredRow(bound=bound, device_bytes=_device_needs(row))


def make_room(row: Row, free_bytes: Callable[[str], int] = facts.memory_available) -> None:
    """Evicts the least recently used rows until they and this row together take at most SHARE of the memory that would be free
    without them.

    free_bytes: device, such as cpu or gpu:0 -> bytes that are free on it now.
    """
    evicted = []
    for device, row_bytes in _device_needs(row).items():
        while _rows:
            bound_bytes = sum(stored.device_bytes.get(device, 0) for stored in _rows.values())
            if bound_bytes + row_bytes <= SHARE * (free_bytes(device) + bound_bytes):
                break
            evicted.append(_rows.popitem(last=False))
    if evicted:
        evicted.clear()
        gc.collect()


def clear() -> bool:
    """Evicts all bound rows, and the copy of shared data on the GPU. True if there was a row."""
    had_rows = bool(_rows)
    _rows.clear()
    _device_bytes.clear()
    gc.collect()
    return had_rows


def _device_needs(row: Row) -> dict[str, int]:
    """Device, such as cpu or gpu:0 -> bytes that a bound row takes on it at most.

    A row that a framework computes on a GPU counts as if it took them on the host: what is free on its GPU is not known.
    """
    on_gpu = row.on_gpu and row.backend not in FRAMEWORKS
    has_host_copy = row.mode != "resident" or row.problem.op == "transfer"
    devices = [row.device] if on_gpu else ["cpu"]
    if on_gpu and has_host_copy:
        devices.append("cpu")
    return dict.fromkeys(devices, row.problem.footprint_bytes)
