"""Times between measured shapes: a curve through rows of one kind, read in the logarithm of the shape.

A measured shape gets its own time back.
"""

# A curve holds seconds against a form (a straight law in FLOPs and bytes, fitted to the rows); what is interpolated is how far
# each row lies off its form, by a weighted plane through the nearest rows.

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from analysis.stats import Estimate, best_by, least_squares

NEAREST = 8  # rows that a plane is laid through
_RIDGE = 0.3  # regularization: keeps the plane level if its rows lie on a line
_LEAST_ERROR = 0.02  # relative: times of two processes never agree better
_QUANTILE = 0.9
# The logarithm of the widest interval either side of a value: a factor of a million says that nothing is known, and stays finite.
_WIDEST = math.log(1e6)
# The usual error of curves through 2 to 6 rows: of nine of ten products and convolutions, as a logarithm for each unit of
# distance (stored rows of CPUs and a GPU, drawn at random). Then as how many rows of a curve that counts.
_USUAL, _COUNTS_AS = 0.8, 4
# The factor by which similar problems differ at most: nine of ten of cuDNN's convolutions on an H200 from cuBLAS's products, most
# of TensorFlow's products on a Xeon from NumPy's. Of held-out rows 94 of 100 lie in intervals cut with it, 95 in uncut ones.
UNLIKE = 4


@dataclasses.dataclass(frozen=True)
class Point:
    """One measured shape: `at` its features as logarithms, seconds, and the work that its form counts."""

    at: tuple[float, ...]
    seconds: float
    flops: float
    nbytes: float


def of_bytes(nbytes: float, seconds: float) -> Point:
    """The point of a pass over memory, which is described by its bytes alone."""
    return Point((math.log(nbytes),), seconds, 0.0, nbytes)


class Curve:
    """Rows of one kind, and their straight law (form) in seconds: floor + flops * a_flop + bytes * a_byte. `off`: logarithm of
    each row's seconds over the form. `works`: the power of each feature that the work grows with."""

    def __init__(self, points: tuple[Point, ...], floored: bool, works: tuple[float, ...]):
        self.points, self.works = points, works
        self.a_flop, self.a_byte, self.floor = _form(points, floored)
        self.exact = {p.at: p.seconds for p in points}
        self.at = np.array([p.at for p in points])
        self.off = np.array([math.log(p.seconds / self.form(p.flops, p.nbytes)) for p in points])

    def form(self, flops: float, nbytes: float) -> float:
        """Seconds by the straight law that lies nearest to all rows."""
        return self.floor + flops * self.a_flop + nbytes * self.a_byte

    def seconds(self, at: tuple[float, ...], flops: float, nbytes: float) -> Estimate:
        """Seconds of a shape. The interval is the error of this curve's rows when each is predicted from the others. It grows
        with the distance to the nearest row and is cut to the bounds that the rows give."""
        if (known := self.exact.get(at)) is not None:
            return Estimate(known, known * math.exp(-_LEAST_ERROR), known * math.exp(_LEAST_ERROR))
        shape = np.array(at)
        off, distance = self._read(shape, _nearest(self.at, shape, range(len(self.at))))
        value = self.form(flops, nbytes) * math.exp(off)
        slope, spacing = self.error
        half = min(_WIDEST, max(_LEAST_ERROR, slope * max(distance, spacing / 2)))
        # a row repeated until it covers the shape takes no less than it; repeated, the shape takes no less than the row
        larger = (shape - self.at) * self.works
        seconds = np.array([p.seconds for p in self.points])
        log_fewer = np.maximum(-larger, 0.0).sum(axis=1)
        log_more = np.maximum(larger, 0.0).sum(axis=1)
        slack = math.exp(min(_WIDEST, slope * spacing)) * UNLIKE
        low = float((seconds / np.exp(log_fewer)).max()) / slack
        high = float((seconds * np.exp(log_more)).min()) * slack
        predicted = Estimate(value, value * math.exp(-half), value * math.exp(half))
        return predicted.within(Estimate(value, low, high))

    def seconds_of_bytes(self, nbytes: float) -> Estimate:
        """Seconds of a pass over so many bytes."""
        return self.seconds((math.log(nbytes),), 0.0, nbytes)

    @functools.cached_property
    def error(self) -> tuple[float, float]:
        """(relative error, as a logarithm for each unit of distance to the nearest row; median distance of neighboring rows).
        Nine of ten rows predicted from the others have at most this error. With few rows it is mixed with the usual error."""
        n = len(self.points)
        if n < 3:
            return _USUAL, 0.0
        errors, distances = [], []
        for i, nearest in enumerate(_nearest_of_others(self.at)):
            off, distance = self._read(self.at[i], nearest)
            errors.append(abs(off - self.off[i]))
            distances.append(distance)
        spacing = float(np.median(distances)) or 1.0
        slope = float(np.quantile(errors, _QUANTILE)) / spacing
        return (n * slope + _COUNTS_AS * _USUAL) / (n + _COUNTS_AS), spacing

    def _read(self, at: np.ndarray, nearest: np.ndarray) -> tuple[float, float]:
        """(log of seconds over the form, distance to the nearest row) of a shape, by the plane through its `nearest` rows. These
        are indices, the nearest first."""
        d = _distances(self.at[nearest], at)
        weight = 1 / (1 + (d / d[0]) ** 4)
        weight = weight / weight.sum()
        x, y = self.at[nearest] - at, self.off[nearest]
        mean_x, mean_y = weight @ x, weight @ y
        dx, dy = x - mean_x, y - mean_y
        gram = (dx * weight[:, None]).T @ dx
        slope = np.linalg.solve(gram + _RIDGE * np.eye(len(at)), (dx * weight[:, None]).T @ dy)
        off = mean_y - float(mean_x @ slope)
        return float(min(max(off, y.min()), y.max())), float(d[0])


def _distances(rows: np.ndarray, at: np.ndarray) -> np.ndarray:
    """The distance of each row to a shape."""
    return np.sqrt(((rows - at) ** 2).sum(axis=1))


def _nearest(rows: np.ndarray, at: np.ndarray, candidates: Sequence[int]) -> np.ndarray:
    """Indices of the at most NEAREST rows nearest to a shape, the nearest first, of rows equally far the first one first."""
    indices = np.array(candidates)
    order = np.argsort(_distances(rows[indices], at), kind="stable")
    return indices[order[:NEAREST]]


def _nearest_of_others(rows: np.ndarray) -> list[np.ndarray]:
    """`_nearest` of every row among the other rows, in n log n by a k-d tree: reading every row against all others took minutes
    at 100,000 rows."""
    from scipy.spatial import cKDTree

    tree = cKDTree(rows)
    count = min(NEAREST + 1, len(rows))  # a row is its own nearest
    farthest = tree.query(rows, k=count)[0][:, -1]
    # a little farther, so that all rows as far as the last one are candidates: sizes that double are equally far
    around = tree.query_ball_point(rows, farthest * (1 + 1e-9), return_sorted=True)
    nearest = []
    for row, candidates in enumerate(around):
        others = [other for other in candidates if other != row]
        nearest.append(_nearest(rows, rows[row], others))
    return nearest


def _form(rows: tuple[Point, ...], floored: bool) -> tuple[float, float, float]:
    """(seconds a FLOP, seconds a byte, seconds at none), none negative, by the least squares of the relative errors; a constant
    only where it is `floored`."""
    seconds = np.array([p.seconds for p in rows])
    found = least_squares(np.array([(p.flops, p.nbytes, float(floored)) for p in rows]), seconds)
    if not found[:2].any():  # nothing but a constant shows: no row is longer for its work
        found[1] = 1e-3 * float(seconds.min()) / max(p.nbytes for p in rows)
    return tuple(found.tolist())


def curve(points: Iterable[Point], floored: bool = True, works: tuple[float, ...] = (1.0,)) -> Curve | None:
    """The curve through rows, the fastest of each shape; None without any. `floored`: library rows, whose form may have a
    constant."""
    rows = tuple(best_by(points, lambda p: p.at, lambda p: p.seconds).values())
    return Curve(rows, floored, works) if rows else None
