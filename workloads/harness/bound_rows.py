"""State of a worker between visits: bound rows, evicted least recently used first, and the data that they share."""

import collections
import gc
import math
from collections.abc import Callable
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
_PAGE = 4096
# Bytes between two inputs: a page and the drawn values repeat, so that the next input begins at another part of both.
_SPACING = 101 * _PAGE + _PAGE // 8

Arrays = tuple[np.ndarray, ...]  # a problem's inputs on the host

_rows: collections.OrderedDict[str, tuple[Any, dict[str, int]]] = collections.OrderedDict()
_values: dict[tuple[str, int], np.ndarray] = {}  # (dtype, seed) -> N(0,1) values as many as a problem has wanted
_device_bytes: dict[tuple[str, int], Any] = {}  # their bytes on this process's GPU


def inputs(problem: Problem, seed: int) -> Arrays:
    """The problem's N(0,1) inputs: large ones are views of one array for each dtype, at the same places for every row of it.

    Nothing may write to them. Where the array has to grow, all rows are let go, as they hold the old one.
    """
    if problem.op not in _SHARED:
        return problem.inputs(seed)
    item_bytes = ITEM_BYTES[problem.dtype]
    next_begin = 0

    def place(shape: tuple[int, ...]) -> slice:
        nonlocal next_begin
        begin = next_begin
        count = math.prod(shape)
        whole_pages = -(-count * item_bytes // _PAGE) * _PAGE
        next_begin = begin + (whole_pages + _SPACING) // item_bytes
        return slice(begin, begin + count)

    def counted(shape: tuple[int, ...], *_) -> np.ndarray:
        place(shape)
        return np.empty(0, np.float32)

    problem.inputs(seed, False, counted)
    drawn = problem.dtype, seed
    if next_begin > len(_values.get(drawn, ())):
        _values.pop(drawn, None)  # before the larger one is made
        clear()
        _values[drawn] = random_array((next_begin,), problem.dtype, seed, False)
    next_begin = 0
    return problem.inputs(seed, False, lambda shape, *_: _values[drawn][place(shape)].reshape(shape))


def on_device(cupy, array: np.ndarray):
    """The array on the current GPU: of shared values the same part of their one copy on it, else a new copy."""
    for drawn, values in _values.items():
        begin = array.ctypes.data - values.ctypes.data
        if 0 <= begin < values.nbytes:
            if drawn not in _device_bytes:
                _device_bytes[drawn] = cupy.asarray(values.view(np.uint8))
            part = _device_bytes[drawn][begin : begin + array.nbytes]
            return part.view(array.dtype).reshape(array.shape)
    return cupy.asarray(array)


def find(key: str):
    """The bound call of a row's key, now the most recently used; None if it was evicted."""
    if key not in _rows:
        return None
    _rows.move_to_end(key)
    return _rows[key][0]


def keep(row: Row, bound) -> None:
    """Stores the bound call of a row as the most recently used."""
    _rows[row.key] = bound, _costs(row)


def make_room(row: Row, free: Callable[[str], int] = facts.memory_available) -> None:
    """Evicts the least recently used rows until they and this one take at most SHARE of what is free without them."""
    evicted = []
    for device, cost in _costs(row).items():
        while _rows:
            bound_bytes = sum(costs.get(device, 0) for _, costs in _rows.values())
            if bound_bytes + cost <= SHARE * (free(device) + bound_bytes):
                break
            evicted.append(_rows.popitem(last=False))
    if evicted:
        evicted.clear()
        gc.collect()


def clear() -> bool:
    """Evicts all rows; True if there was one."""
    had_rows = bool(_rows)
    _rows.clear()
    _device_bytes.clear()
    gc.collect()
    return had_rows


def _costs(row: Row) -> dict[str, int]:
    """Device -> the bytes that a bound row takes on it at most. A framework does not say what its GPU has free."""
    on_gpu = row.on_gpu and row.backend not in FRAMEWORKS
    copies = row.mode != "resident" or row.problem.op == "transfer"
    devices = [row.device] if on_gpu else ["cpu"]
    if on_gpu and copies:
        devices.append("cpu")
    return dict.fromkeys(devices, row.problem.footprint_bytes)
