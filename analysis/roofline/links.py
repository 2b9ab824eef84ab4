"""The link between host and device as a law: seconds = latency + bytes / bandwidth, in as few pieces as the data need."""

# Small copies cost a constant, large ones their bytes, and between the two engines and drivers change their ways, so one
# line over all sizes is wrong by tens of percent in the middle. The pieces are found from the data.

import functools
import itertools
import math
from collections.abc import Iterable

import msgspec
import numpy as np

from analysis.labels import short, width
from analysis.roofline import data_sheets
from analysis.stats import Estimate, Z, from_draws, group_by, median_of, plus_minus
from analysis.table import Table
from analysis.units import bytes_rate, count, percent, seconds, size
from workloads.records import Measurement, Measurements

CLOCKS = ("host-latency", "device")
TOLERANCE = 0.02  # a piece may be off by this much, or by the noise of its points where that is more
FEWEST = 4  # sizes for a law
_DRAWS = 200
_COPIERS = ("transfer/cupy/array", "transfer/tensorflow/dataset", "transfer/tensorflow/constant")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """A part of the law: seconds = latency_s + bytes * s_per_byte."""

    #: It holds from so many bytes on.
    low: float
    #: Up to so many bytes.
    high: float
    #: Seconds of its line at no bytes.
    latency_s: float
    #: Seconds of a further byte.
    s_per_byte: float
    #: The largest relative error of the points that it was fitted to, or their noise where that is more.
    error: float = 0.0

    def seconds(self, nbytes: float) -> float:
        """Seconds of a copy of so many bytes."""
        return self.latency_s + nbytes * self.s_per_byte

    def moved(self, low: float, high: float) -> "Piece":
        """The same line from `low` to `high` bytes."""
        return msgspec.structs.replace(self, low=low, high=high)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """The law of one kind of copy: a continuous chain of pieces.

    Source: R. Hockney's n_1/2 and r_inf (Parallel Computing 20, 1994); with one piece n_1/2 = latency * bandwidth.
    """

    #: `gpu:0`.
    device: str
    #: The kernel that copies.
    kernel: str
    #: h2d, d2h, d2d or both.
    direction: str
    #: pageable, pinned, ...
    host_memory: str
    #: One of CLOCKS.
    clock: str
    #: From the smallest to the largest copy.
    pieces: tuple[Piece, ...]
    #: Bytes/s of the last piece; of each direction where copies go both ways.
    bandwidth: Estimate
    #: Seconds of the first piece at no bytes.
    latency: Estimate
    #: The copy that reaches half of that bandwidth; None where the smallest measured one does already.
    half_bytes: Estimate | None
    #: The smallest copy measured, in bytes.
    low: int
    #: The largest.
    high: int

    def extrapolates(self, nbytes: float) -> bool:
        """Whether no copy as small or as large was measured."""
        return not self.low <= nbytes <= self.high

    def seconds(self, nbytes: float) -> Estimate:
        """Seconds of a copy; the interval is the piece's error. Beyond the sizes measured the end piece goes on."""
        piece = next((p for p in self.pieces if nbytes <= p.high), self.pieces[-1])
        value = piece.seconds(nbytes)
        return plus_minus(value, value * piece.error)


def fits(measurements: Measurements) -> tuple[Link, ...]:
    """A Link for every kernel, direction and host memory, on each clock, that has enough sizes.

    There is none of fewer than FEWEST sizes, nor where the largest ones take no longer than smaller ones: no bandwidth
    shows there.
    """
    links = []
    for kind, rows in group_by(_copies(measurements), _kind).items():
        for clock in CLOCKS:
            link = _fit(kind, clock, tuple(_points(rows, clock).items()))
            if link:
                links.append(link)
    return tuple(links)


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """What one law describes the copies of."""

    device: str
    kernel: str
    direction: str
    host_memory: str


def _copies(measurements: Measurements) -> list[Measurement]:
    return [m for m in measurements if m.problem.op == "transfer" and m.ok and not m.problem.compute]


def _kind(m: Measurement) -> _Kind:
    copy = m.problem
    return _Kind(device=m.device, kernel=m.kernel, direction=copy.direction, host_memory=copy.host_memory)


def _points(rows: Iterable[Measurement], clock: str) -> dict[int, Estimate]:
    """Bytes -> seconds of the rows that have the clock, by rising size; of a size measured again the median row."""
    on_clock = [m for m in rows if m.on(clock)]
    points = {}
    for nbytes, same_size in sorted(group_by(on_clock, lambda m: m.problem.nbytes).items()):
        ranked = sorted((median_of(m.on(clock)) for m in same_size), key=lambda seconds: seconds.value)
        points[nbytes] = ranked[(len(ranked) - 1) // 2]
    return points


@functools.lru_cache(maxsize=1024)
def _fit(kind: _Kind, clock: str, points: tuple[tuple[int, Estimate], ...]) -> Link | None:
    """The law of a kind of copy on a clock, or None. Cached, as tables, pictures and predictions ask for the same."""
    if len(points) < FEWEST:
        return None
    sizes = np.array([nbytes for nbytes, _ in points], float)
    seconds = np.array([estimate.value for _, estimate in points])
    noise = np.array([estimate.noise for _, estimate in points])
    parts = _partition(sizes, seconds, max(TOLERANCE, float(np.median(noise))))
    chain = _chain(sizes, parts, _lines(sizes, seconds, parts), _part_errors(sizes, seconds, noise, parts))
    no_errors = [0.0] * len(parts)
    drawn_lines = _lines(sizes, _redrawn([estimate for _, estimate in points]), parts)
    drawn_chains = [_chain(sizes, parts, drawn_lines[:, :, draw], no_errors) for draw in range(drawn_lines.shape[-1])]
    slopes = [drawn[-1].s_per_byte for drawn in drawn_chains]
    if chain[-1].s_per_byte <= 0 or np.quantile(slopes, 0.025) <= 0:
        return None
    return Link(
        device=kind.device,
        kernel=kind.kernel,
        direction=kind.direction,
        host_memory=kind.host_memory,
        clock=clock,
        pieces=tuple(chain),
        bandwidth=1 / from_draws(chain[-1].s_per_byte, slopes),
        latency=from_draws(chain[0].latency_s, [drawn[0].latency_s for drawn in drawn_chains]),
        half_bytes=_half_bytes(chain, drawn_chains),
        low=int(sizes[0]),
        high=int(sizes[-1]),
    )


def _lines(sizes: np.ndarray, seconds: np.ndarray, parts: list[tuple[int, int]]) -> np.ndarray:
    """(latency, seconds a byte) of each part; behind them an axis of the sets of seconds, where there are several."""
    return np.array([_line(sizes[i:j], seconds[..., i:j]) for i, j in parts])


def _part_errors(
    sizes: np.ndarray, seconds: np.ndarray, noise: np.ndarray, parts: list[tuple[int, int]]
) -> list[float]:
    """The largest relative error of each part's line, or the noise of its points where that is more."""
    return [max(_error(sizes[i:j], seconds[i:j]), float(np.median(noise[i:j]))) for i, j in parts]


def _chain(sizes: np.ndarray, parts: list[tuple[int, int]], lines: np.ndarray, errors: list[float]) -> list[Piece]:
    """The continuous chain of the parts' lines."""
    pieces = []
    for (i, j), (latency, slope), error in zip(parts, lines.tolist(), errors, strict=True):
        low, high = float(sizes[i]), float(sizes[j - 1])
        pieces.append(Piece(low=low, high=high, latency_s=latency, s_per_byte=slope, error=error))
    return _joined(pieces)


def _line(n: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(latency, seconds a byte) with the least squares of the relative errors, of each of any sets of seconds; more bytes never
    take less time."""
    weight = 1 / (t * t)
    weight = weight / weight.sum(-1, keepdims=True)
    mean_n = (weight * n).sum(-1, keepdims=True)
    mean_t = (weight * t).sum(-1, keepdims=True)
    variance = (weight * (n - mean_n) ** 2).sum(-1)
    covariance = (weight * (n - mean_n) * (t - mean_t)).sum(-1)
    slope = np.maximum(0.0, covariance / np.where(variance, variance, np.inf))
    return mean_t[..., 0] - slope * mean_n[..., 0], slope


def _error(n: np.ndarray, t: np.ndarray) -> float:
    latency, slope = _line(n, t)
    return float(np.max(np.abs(latency + slope * n - t) / t))


def _partition(n: np.ndarray, t: np.ndarray, tolerance: float) -> list[tuple[int, int]]:
    """The fewest runs [i, j) of at least two points whose lines are within the tolerance, the largest error as small as
    it can be for so many; where none is within it, those with the smallest error.

    Dynamic programming over the breakpoints: the best p runs up to j end with a run i..j after the best p - 1 up to i.
    """
    count = len(n)
    error = {}
    for i, j in itertools.combinations(range(count + 1), 2):
        if j - i >= 2:
            error[i, j] = _error(n[i:j], t[i:j])
    # j -> (largest error, runs): the best cut of the points before j, into one run, then into one more in each round.
    best: dict[int, tuple[float, tuple]] = {j: (error[0, j], ((0, j),)) for j in range(2, count + 1)}
    least_error, runs = best[count]
    for _ in range(count // 2 - 1):
        if least_error <= tolerance:
            break
        one_more = {}
        for j in range(4, count + 1):
            cuts = [(max(best[i][0], error[i, j]), i) for i in range(2, j - 1) if i in best]
            if cuts:
                worst, i = min(cuts)
                one_more[j] = (worst, (*best[i][1], (i, j)))
        best = one_more
        if count in best and best[count][0] < least_error:
            least_error, runs = best[count]
    return list(runs)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """A continuous chain of the pieces: neighbors meet where they cross, if that is between their points; otherwise a straight
    piece joins their ends."""
    chain: list[Piece] = []
    low = pieces[0].low
    for piece, following in itertools.pairwise(pieces):
        cross = _crossing(piece, following)
        if piece.high <= cross <= following.low:
            chain.append(piece.moved(low, cross))
            low = cross
        else:
            chain.append(piece.moved(low, piece.high))
            chain.append(_bridge(piece, following))
            low = following.low
    chain.append(pieces[-1].moved(low, pieces[-1].high))
    return chain


def _crossing(a: Piece, b: Piece) -> float:
    """The bytes at which two lines cross; infinity where they are parallel."""
    if a.s_per_byte == b.s_per_byte:
        return math.inf
    return (b.latency_s - a.latency_s) / (a.s_per_byte - b.s_per_byte)


def _bridge(piece: Piece, following: Piece) -> Piece:
    """The straight line from the end of a piece to the start of the following one."""
    low, high = piece.high, following.low
    rise = following.latency_s + following.s_per_byte * high - piece.latency_s - piece.s_per_byte * low
    slope = rise / (high - low)
    return Piece(
        low=low,
        high=high,
        latency_s=piece.latency_s + piece.s_per_byte * low - slope * low,
        s_per_byte=slope,
        error=max(piece.error, following.error),
    )


def _half_bytes(chain: list[Piece], drawn_chains: list[list[Piece]]) -> Estimate | None:
    """The size from which half of the bandwidth is reached, with the interval of the drawn chains."""
    half = _half(chain)
    if half is None:
        return None
    halves = [_half(drawn) for drawn in drawn_chains]
    return from_draws(half, [size for size in halves if size is not None])


def _half(chain: list[Piece]) -> float | None:
    """The size from which bytes over seconds is at least half of the last piece's bandwidth."""
    twice = 2 * chain[-1].s_per_byte
    if chain[0].seconds(chain[0].low) <= twice * chain[0].low:
        return None
    for piece in chain:
        if twice > piece.s_per_byte:
            at = piece.latency_s / (twice - piece.s_per_byte)
            if at <= piece.high or piece is chain[-1]:
                return max(at, piece.low)
    return None


def _redrawn(medians: list[Estimate]) -> np.ndarray:
    """_DRAWS sets of seconds, each size's drawn within the interval of its median."""
    spread = [math.log(m.high / m.low) / (2 * Z) if m.low > 0 else 0.0 for m in medians]
    normal = np.random.default_rng(1).standard_normal((_DRAWS, len(medians)))
    return np.array([m.value for m in medians]) * np.exp(normal * np.array(spread))


def errors(link: Link, measurements: Measurements) -> list[tuple[int, float, float, float]]:
    """(bytes, predicted seconds, measured seconds, relative error) of every row of the link's kind and clock."""
    kind = _Kind(device=link.device, kernel=link.kernel, direction=link.direction, host_memory=link.host_memory)
    points = _points((m for m in _copies(measurements) if _kind(m) == kind), link.clock)
    rows = []
    for nbytes, median in points.items():
        predicted, measured = link.seconds(nbytes).value, median.value
        rows.append((nbytes, predicted, measured, abs(predicted / measured - 1)))
    return rows


def find(
    links: Iterable[Link], direction: str, host_memory: str, kernel: str = "", clock: str = "host-latency"
) -> Link | None:
    """The link of that kind, of the kernel with the highest bandwidth where none is named; None without one."""
    fitting = [
        x
        for x in links
        if (x.direction, x.host_memory, x.clock) == (direction, host_memory, clock) and kernel in ("", x.kernel)
    ]
    return max(fitting, key=lambda x: x.bandwidth.value, default=None)


def law(measurements: Measurements, device: str, direction: str = "h2d", memory: str = "pageable") -> Link | None:
    """The law of copies of a batch. A batch is a tensor in host memory already, so plain copies come before TensorFlow's."""
    wanted = (device, direction, memory)
    rows = [m for m in _copies(measurements) if (m.device, m.problem.direction, m.problem.host_memory) == wanted]
    links = fits(rows)
    if (direction, memory) != ("h2d", "pageable"):
        return find(links, direction, memory)
    for kernel in _COPIERS:
        link = find(links, direction, memory, kernel=kernel)
        if link:
            return link
    return None


def pcie(measurements: Measurements) -> tuple[int, int] | None:
    """(generation, width) of the PCIe link while copies ran; None where nobody could tell."""
    links = [
        (int(m.values["pcie_generation"]), int(m.values["pcie_width"]))
        for m in measurements
        if m.problem.op == "transfer" and {"pcie_generation", "pcie_width"} <= m.values.keys()
    ]
    return max(links, default=None)


def laws_of(measurements: Measurements) -> list[Link]:
    """The laws on the host-latency clock, the highest bandwidth first."""
    laws = [x for x in fits(measurements) if x.clock == "host-latency"]
    return sorted(laws, key=lambda x: -x.bandwidth.value)


def law_table(measurements: Measurements) -> Table:
    """The laws, one a line."""
    link = pcie(measurements)
    rate = data_sheets.pcie_bytes_per_s(*link) if link else None
    rows = []
    for law in laws_of(measurements):
        crosses_link = law.direction != "d2d"
        largest_error = max(piece.error for piece in law.pieces)
        rows.append(
            (
                law.direction,
                law.host_memory or "-",
                short(law.kernel),
                seconds(max(0.0, law.latency.value)),
                bytes_rate(law.bandwidth.value),
                width(law.bandwidth),
                size(law.half_bytes.value) if law.half_bytes else "-",
                percent(law.bandwidth.value / rate) if rate and crosses_link else "-",
                f"{max(1, math.ceil(100 * largest_error))} %",  # rounded up, as a bound is
            )
        )
    heads = "way | host memory | by | latency | bandwidth | ± | half of it from | of the PCIe link | off by"
    return Table(heads, rows, 3, least="± | off by | half of it from")


def pcie_sentence(measurements: Measurements) -> str:
    """The PCIe link while copying, in a sentence; "" where no row has it."""
    link = pcie(measurements)
    if not link:
        return ""
    generation, lanes = link
    rate = data_sheets.pcie_bytes_per_s(generation, lanes)
    at_most = f", at most {bytes_rate(rate)} each way" if rate else ""
    return f"The link ran at PCIe generation {generation} with {count(lanes, 'lane')} while copying{at_most}."


def lines(measurements: Measurements) -> list["str | Table"]:
    """The laws as a table, and a sentence on the PCIe link; nothing without laws."""
    laws = law_table(measurements)
    if not laws.rows:
        return []
    sentence = pcie_sentence(measurements)
    return [laws, "", sentence] if sentence else [laws]
