"""Seconds of shapes between the measured ones: a curve through the rows of one kind, read in the logarithm of the shape.

A measured shape gets its own seconds back.
"""

# Another shape gets the seconds of a straight law in FLOPs and bytes, times how far the rows around it lie above the law: a plane
# through the logarithms of the nearest rows.

import dataclasses
import functools
import math
from collections.abc import Iterable, Sequence

import numpy as np

from analysis.stats import Estimate, best_by, least_squares

#: Rows that a plane is laid through.
NEAREST = 8
#: Keeps a plane level where its rows lie on a line (ridge regression).
_RIDGE = 0.3
#: Relative error below which no reading lies: times of two processes never agree better.
_LEAST_ERROR = 0.02
#: Share of a curve's rows whose error from the others its interval covers.
_QUANTILE = 0.9
#: Logarithm of the widest interval either side of a value: a factor of a million says that nothing is known, and stays finite.
_WIDEST = math.log(1e6)
#: Usual error of curves through 2 to 6 rows, as a logarithm for each unit of distance: nine of ten products and convolutions
#: keep it (stored rows of CPUs and a GPU, drawn at random).
_USUAL_ERROR = 0.8
#: Rows of a curve that the usual error weighs as.
_USUAL_ERROR_ROWS = 4
#: The factor by which similar problems differ at most: nine of ten of cuDNN's convolutions on an H200 from cuBLAS's products,
#: most of TensorFlow's products on a Xeon from NumPy's. Of held-out rows 94 of 100 lie in intervals cut
#: with it, 95 in uncut ones.
UNLIKE = 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class MeasuredShape:
    """A row of a curve."""

    #: Logarithms of the sizes that the curve is read along.
    coordinates: tuple[float, ...]
    seconds: float
    #: Work that the straight law counts.
    flops: float
    nbytes: float


def measured_pass(nbytes: float, seconds: float) -> MeasuredShape:
    """A measured pass over memory, which is described by its bytes alone."""
    return MeasuredShape(coordinates=(math.log(nbytes),), seconds=seconds, flops=0.0, nbytes=nbytes)


class StraightLaw:
    """seconds = constant_s + flops x flop_s + bytes x byte_s: the nonnegative numbers of the least relative squares.

    has_constant: whether a call without work takes time.
    """

    def __init__(self, rows: Sequence[MeasuredShape], has_constant: bool):
        columns = np.array([(row.flops, row.nbytes, float(has_constant)) for row in rows])
        seconds = np.array([row.seconds for row in rows])
        self.flop_s, self.byte_s, self.constant_s = least_squares(columns, seconds).tolist()
        no_row_is_longer_for_its_work = self.flop_s == 0 and self.byte_s == 0
        if no_row_is_longer_for_its_work:
            self.byte_s = 1e-3 * float(seconds.min()) / max(row.nbytes for row in rows)

    def seconds(self, flops: float, nbytes: float) -> float:
        return self.constant_s + flops * self.flop_s + nbytes * self.byte_s


class Curve:
    """The rows of one kind and their straight law.

    has_constant: whether the law has a constant, as for library rows.
    work_powers: the power of each size that the work grows with.
    """

    def __init__(self, rows: tuple[MeasuredShape, ...], has_constant: bool, work_powers: tuple[float, ...]):
        self.rows = rows
        self.law = StraightLaw(rows, has_constant)
        self.work_powers = work_powers
        self.measured_s = {row.coordinates: row.seconds for row in rows}
        self.coordinates = np.array([row.coordinates for row in rows])
        self.above_law = np.array([math.log(row.seconds / self.law.seconds(row.flops, row.nbytes)) for row in rows])

    def seconds(self, coordinates: tuple[float, ...], flops: float, nbytes: float) -> Estimate:
        """Seconds of a shape. The interval is the error of this curve's rows when each is predicted from the others. It grows
        with the distance to the nearest row and is cut to the bounds that the rows give."""
        measured_s = self.measured_s.get(coordinates)
        if measured_s is not None:
            return Estimate(measured_s, measured_s * math.exp(-_LEAST_ERROR), measured_s * math.exp(_LEAST_ERROR))
        shape = np.array(coordinates)
        nearest = _nearest(self.coordinates, shape, range(len(self.rows)))
        above_law, distance = self._plane(shape, nearest)
        value = self.law.seconds(flops, nbytes) * math.exp(above_law)
        slope, spacing = self.error
        half = min(_WIDEST, max(_LEAST_ERROR, slope * max(distance, spacing / 2)))
        predicted = Estimate(value, value * math.exp(-half), value * math.exp(half))
        slack = math.exp(min(_WIDEST, slope * spacing)) * UNLIKE
        low, high = self._bounds(shape)
        return predicted.within(Estimate(value, low / slack, high * slack))

    def _bounds(self, shape: np.ndarray) -> tuple[float, float]:
        """(least, most) seconds of a shape by each row. A row repeated until it covers the shape takes no less than the shape;
        the shape, repeated until it covers the row, takes no less than the row."""
        log_more_work = (shape - self.coordinates) * self.work_powers
        row_repeats = np.exp(np.maximum(log_more_work, 0.0).sum(axis=1))
        shape_repeats = np.exp(np.maximum(-log_more_work, 0.0).sum(axis=1))
        seconds = np.array([row.seconds for row in self.rows])
        return float((seconds / shape_repeats).max()), float((seconds * row_repeats).min())

    def seconds_of_bytes(self, nbytes: float) -> Estimate:
        """Seconds of a pass over so many bytes."""
        return self.seconds((math.log(nbytes),), 0.0, nbytes)

    @functools.cached_property
    def error(self) -> tuple[float, float]:
        """(relative error, as a logarithm for each unit of distance to the nearest row; median distance of neighboring rows).
        Nine of ten rows predicted from the others have at most this error. With few rows it is mixed with the usual error."""
        count = len(self.rows)
        if count < 3:
            return _USUAL_ERROR, 0.0
        errors = []
        distances = []
        for row, nearest in enumerate(_nearest_of_others(self.coordinates)):
            above_law, distance = self._plane(self.coordinates[row], nearest)
            errors.append(abs(above_law - self.above_law[row]))
            distances.append(distance)
        spacing = float(np.median(distances)) or 1.0
        slope = float(np.quantile(errors, _QUANTILE)) / spacing
        mixed = (count * slope + _USUAL_ERROR_ROWS * _USUAL_ERROR) / (count + _USUAL_ERROR_ROWS)
        return mixed, spacing

    def _plane(self, shape: np.ndarray, nearest: np.ndarray) -> tuple[float, float]:
        """(logarithm of a shape's seconds over the law, distance to the nearest row), by the weighted plane through the rows of
        these indices, the nearest first. It never leaves the range of its rows."""
        distances = _distances(self.coordinates[nearest], shape)
        weights = 1 / (1 + (distances / distances[0]) ** 4)
        weights = weights / weights.sum()
        x = self.coordinates[nearest] - shape
        y = self.above_law[nearest]
        mean_x = weights @ x
        mean_y = weights @ y
        dx = x - mean_x
        dy = y - mean_y
        weighted_dx = dx * weights[:, None]
        gram = weighted_dx.T @ dx
        slope = np.linalg.solve(gram + _RIDGE * np.eye(len(shape)), weighted_dx.T @ dy)
        at_shape = mean_y - float(mean_x @ slope)
        return float(min(max(at_shape, y.min()), y.max())), float(distances[0])


def _distances(rows: np.ndarray, shape: np.ndarray) -> np.ndarray:
    """The distance of each row to a shape."""
    return np.sqrt(((rows - shape) ** 2).sum(axis=1))


def _nearest(rows: np.ndarray, shape: np.ndarray, candidates: Sequence[int]) -> np.ndarray:
    """Indices of the at most NEAREST rows nearest to a shape, the nearest first, of rows equally far the first one first."""
    indices = np.array(candidates)
    order = np.argsort(_distances(rows[indices], shape), kind="stable")
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


def curve(
    rows: Iterable[MeasuredShape], has_constant: bool = True, work_powers: tuple[float, ...] = (1.0,)
) -> Curve | None:
    """The curve through rows, the fastest of each shape; None without any. The arguments are those of Curve."""
    fastest = best_by(rows, lambda row: row.coordinates, lambda row: row.seconds)
    if not fastest:
        return None
    return Curve(tuple(fastest.values()), has_constant, work_powers)
