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
_APART = 101 * _PAGE + _PAGE // 8  # bytes between two inputs: of what a page and the drawn values repeat, another part

Arrays = tuple[np.ndarray, ...]  # a problem's inputs on the host

_rows: collections.OrderedDict[str, tuple[Any, dict[str, int]]] = collections.OrderedDict()
_values: dict[tuple[str, int], np.ndarray] = {}  # (dtype, seed) -> N(0,1) values as many as a problem has wanted
_there: dict[tuple[str, int], Any] = {}  # their bytes on this process's GPU


def inputs(problem: Problem, seed: int) -> Arrays:
    """The problem's N(0,1) inputs: large ones are views of one array for each dtype, at the same places for every row of it.

    Nothing may write to them. Where the array has to grow, all rows are let go, as they hold the old one.
    """
    if problem.op not in _SHARED:
        return problem.inputs(seed)
    ends = [0]

    def place(shape: tuple[int, ...]) -> slice:
        begin, count, item = ends[-1], math.prod(shape), ITEM_BYTES[problem.dtype]
        ends.append(begin + (-(-count * item // _PAGE) * _PAGE + _APART) // item)
        return slice(begin, begin + count)

    def counted(shape: tuple[int, ...], *_) -> np.ndarray:
        place(shape)
        return np.empty(0, np.float32)

    problem.inputs(seed, False, counted)
    of = problem.dtype, seed
    if ends[-1] > len(_values.get(of, ())):
        _values.pop(of, None)  # before the larger one is made
        clear()
        _values[of] = random_array((ends[-1],), problem.dtype, seed, False)
    ends = [0]
    return problem.inputs(seed, False, lambda shape, *_: _values[of][place(shape)].reshape(shape))


def on_device(cupy, array: np.ndarray):
    """The array on the current GPU: of shared values the same part of their one copy there, else a copy of its own."""
    for of, values in _values.items():
        begin = array.ctypes.data - values.ctypes.data
        if 0 <= begin < values.nbytes:
            if of not in _there:
                _there[of] = cupy.asarray(values.view(np.uint8))
            return _there[of][begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    return cupy.asarray(array)


def find(key: str):
    """The bound call kept for a row's key, now the most recently used; None if it was evicted."""
    if key not in _rows:
        return None
    _rows.move_to_end(key)
    return _rows[key][0]


def keep(row: Row, bound) -> None:
    _rows[row.key] = bound, _costs(row)


def make_room(row: Row, free: Callable[[str], int] = facts.memory_available) -> None:
    """Evicts the least recently used rows until they and this one take at most SHARE of what is free without them."""
    gone = []
    for where, cost in _costs(row).items():
        while _rows:
            held = sum(costs.get(where, 0) for _, costs in _rows.values())
            if held + cost <= SHARE * (free(where) + held):
                break
            gone.append(_rows.popitem(last=False))
    if gone:
        gone.clear()
        gc.collect()


def clear() -> bool:
    """Evicts all rows; True if there was one."""
    had = bool(_rows)
    _rows.clear()
    _there.clear()
    gc.collect()
    return had


def _costs(row: Row) -> dict[str, int]:
    """Bytes that a bound row holds at most, by where they are. A framework does not tell what its GPU has free."""
    on_gpu = row.on_gpu and row.backend not in FRAMEWORKS
    copies = row.mode != "resident" or row.problem.op == "transfer"
    where = [row.device] if on_gpu else ["cpu"]
    if on_gpu and copies:
        where.append("cpu")
    return dict.fromkeys(where, row.problem.footprint_bytes)
