"""Seconds of shapes between the measured ones, interpolated in the logarithms of their sizes between rows of one kind.

A measured shape gets its own seconds back.
"""

# Another shape gets the seconds of a linear model in FLOPs and bytes, times a correction: how far the nearest rows lie above the
# model, by a plane through the logarithms of their corrections.

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
    """A measured time of a problem (product, convolution or pass over memory) of some shape."""

    #: Logarithms of the sizes between which times are interpolated.
    coordinates: tuple[float, ...]
    seconds: float
    #: Work that the linear model counts.
    flops: float
    nbytes: float


def measured_pass(nbytes: float, seconds: float) -> MeasuredShape:
    """The time of a pass over memory, whose shape is its bytes alone."""
    return MeasuredShape(coordinates=(math.log(nbytes),), seconds=seconds, flops=0.0, nbytes=nbytes)


class LinearModel:
    """seconds = constant_s + flops x flop_s + bytes x byte_s, with nonnegative numbers that have the least squared relative
    errors."""

    def __init__(self, rows: Sequence[MeasuredShape], has_constant: bool):
        """Fits the three numbers to measured shapes; without `has_constant`, a call without work takes no time."""
        columns = np.array([(row.flops, row.nbytes, float(has_constant)) for row in rows])
        seconds = np.array([row.seconds for row in rows])
        self.flop_s, self.byte_s, self.constant_s = least_squares(columns, seconds).tolist()
        no_row_is_longer_for_its_work = self.flop_s == 0 and self.byte_s == 0
        if no_row_is_longer_for_its_work:
            self.byte_s = 1e-3 * float(seconds.min()) / max(row.nbytes for row in rows)

    def seconds(self, flops: float, nbytes: float) -> float:
        """Seconds of so many FLOPs and bytes."""
        return self.constant_s + flops * self.flop_s + nbytes * self.byte_s


class Curve:
    """Interpolates seconds between measured shapes of one kind: a linear model in FLOPs and bytes, corrected by how far the
    nearest measured shapes lie above it."""

    def __init__(self, rows: tuple[MeasuredShape, ...], has_constant: bool, work_powers: tuple[float, ...]):
        """rows: the measured shapes, each once.
        has_constant: whether the model has a constant, as for rows of libraries, which contain a call.
        work_powers: the power of each size with which the work grows."""
        self.rows = rows
        self.model = LinearModel(rows, has_constant)
        self.work_powers = work_powers
        self.measured_s = {row.coordinates: row.seconds for row in rows}
        self.coordinates = np.array([row.coordinates for row in rows])
        #: log(measured seconds / the model's) of each row.
        self.log_corrections = np.array(
            [math.log(row.seconds / self.model.seconds(row.flops, row.nbytes)) for row in rows]
        )

    def seconds(self, coordinates: tuple[float, ...], flops: float, nbytes: float) -> Estimate:
        """Seconds of a shape (the logarithms of its sizes) with so much work. A measured shape gets its own time.

        The interval is the error with which this curve predicts each of its rows from the others. It grows with the distance to
        the nearest row, and is cut to what rows of more and of less work allow.
        """
        measured_s = self.measured_s.get(coordinates)
        if measured_s is not None:
            return Estimate(measured_s, measured_s * math.exp(-_LEAST_ERROR), measured_s * math.exp(_LEAST_ERROR))
        shape = np.array(coordinates)
        nearest = _nearest(self.coordinates, shape, range(len(self.rows)))
        log_correction, distance = self._plane(shape, nearest)
        value = self.model.seconds(flops, nbytes) * math.exp(log_correction)
        error_per_distance, spacing = self.error
        log_error = min(_WIDEST, max(_LEAST_ERROR, error_per_distance * max(distance, spacing / 2)))
        predicted = Estimate(value, value * math.exp(-log_error), value * math.exp(log_error))
        slack = math.exp(min(_WIDEST, error_per_distance * spacing)) * UNLIKE
        low, high = self._bounds(shape)
        return predicted.within(Estimate(value, low / slack, high * slack))

    def _bounds(self, shape: np.ndarray) -> tuple[float, float]:
        """(least, most) seconds of a shape that the rows allow: a row's problem, repeated until it covers the shape, takes no
        less than the shape; and the shape, repeated until it covers the row's problem, takes no less than the row."""
        log_more_work = (shape - self.coordinates) * self.work_powers
        row_repeats = np.exp(np.maximum(log_more_work, 0.0).sum(axis=1))
        shape_repeats = np.exp(np.maximum(-log_more_work, 0.0).sum(axis=1))
        seconds = np.array([row.seconds for row in self.rows])
        return float((seconds / shape_repeats).max()), float((seconds * row_repeats).min())

    def seconds_of_bytes(self, nbytes: float) -> Estimate:
        """Seconds of a pass over so many bytes of memory."""
        return self.seconds((math.log(nbytes),), 0.0, nbytes)

    @functools.cached_property
    def error(self) -> tuple[float, float]:
        """(error as a logarithm, for each unit of distance to the nearest row; median distance of neighboring rows). Nine of ten
        rows that are predicted from the others have at most this error. With few rows it is mixed with the usual error."""
        count = len(self.rows)
        if count < 3:
            return _USUAL_ERROR, 0.0
        errors = []
        distances = []
        for row, nearest in enumerate(_nearest_of_others(self.coordinates)):
            log_correction, distance = self._plane(self.coordinates[row], nearest)
            errors.append(abs(log_correction - self.log_corrections[row]))
            distances.append(distance)
        spacing = float(np.median(distances)) or 1.0
        error_per_distance = float(np.quantile(errors, _QUANTILE)) / spacing
        mixed = (count * error_per_distance + _USUAL_ERROR_ROWS * _USUAL_ERROR) / (count + _USUAL_ERROR_ROWS)
        return mixed, spacing

    def _plane(self, shape: np.ndarray, nearest: np.ndarray) -> tuple[float, float]:
        """(log(seconds of a shape / the linear model's), distance to the nearest row), by the plane through the corrections of
        some rows, near rows weighing more; it never leaves the range of these corrections. nearest: their indices, the nearest
        row first."""
        distances = _distances(self.coordinates[nearest], shape)
        weights = 1 / (1 + (distances / distances[0]) ** 4)
        weights = weights / weights.sum()
        x = self.coordinates[nearest] - shape
        y = self.log_corrections[nearest]
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
    """The Euclidean distance of each row (rows x coordinates) to a shape."""
    return np.sqrt(((rows - shape) ** 2).sum(axis=1))


def _nearest(rows: np.ndarray, shape: np.ndarray, candidates: Sequence[int]) -> np.ndarray:
    """Indices of the NEAREST rows (rows x coordinates) to a shape, or fewer, among the candidate indices; the nearest first, of
    rows equally far the first one first."""
    indices = np.array(candidates)
    order = np.argsort(_distances(rows[indices], shape), kind="stable")
    return indices[order[:NEAREST]]


def _nearest_of_others(rows: np.ndarray) -> list[np.ndarray]:
    """`_nearest` for every row among all other rows, as a list in the order of the rows. A k-d tree takes n log n: comparing all
    pairs took minutes at 100,000 rows."""
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
    """The curve through measured shapes, of each shape the fastest; None without any. The other arguments are those of Curve."""
    fastest = best_by(rows, lambda row: row.coordinates, lambda row: row.seconds)
    if not fastest:
        return None
    return Curve(tuple(fastest.values()), has_constant, work_powers)
