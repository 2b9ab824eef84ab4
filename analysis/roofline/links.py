"""Seconds of copies between host and device: latency + bytes / bandwidth, fitted in as few straight pieces as the data need."""

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
FEWEST = 4  # sizes that a fit takes
# Kernels that copy a batch to a GPU, the preferred one first.
_DRAWS = 200
_COPIERS = ("transfer/cupy/array", "transfer/tensorflow/dataset", "transfer/tensorflow/constant")


class Piece(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of copies of some sizes: latency_s + bytes * s_per_byte."""

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
        """The same line, for copies from `low` to `high` bytes."""
        return msgspec.structs.replace(self, low=low, high=high)


class Link(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds of one kind of copy between host and device by its bytes: a continuous chain of straight pieces.

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
        """Seconds of a copy; the interval is the error of the fit. Beyond the measured sizes the first or last piece goes on."""
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
            points = tuple(_points(rows, clock).items())
            link = _fit(kind, clock, points)
            if link:
                links.append(link)
    return tuple(links)


class _Kind(msgspec.Struct, frozen=True, kw_only=True):
    """Copies that are described by one Link."""

    device: str
    #: The kernel that copies.
    kernel: str
    #: h2d, d2h, d2d or both.
    direction: str
    #: pageable, pinned, ...
    host_memory: str


def _copies(measurements: Measurements) -> list[Measurement]:
    """The successful copies, without those that ran beside a kernel."""
    return [m for m in measurements if m.problem.op == "transfer" and m.ok and not m.problem.compute]


def _kind(m: Measurement) -> _Kind:
    copy = m.problem
    return _Kind(device=m.device, kernel=m.kernel, direction=copy.direction, host_memory=copy.host_memory)


def _points(rows: Iterable[Measurement], clock: str) -> dict[int, Estimate]:
    """Bytes of a copy -> its median seconds on a clock (one of CLOCKS), the smallest first; of a size that was measured in
    several rows, the median row's. Rows without that clock are left out."""
    on_clock = [m for m in rows if m.on(clock)]
    points = {}
    for nbytes, same_size in sorted(group_by(on_clock, lambda m: m.problem.nbytes).items()):
        ranked = sorted((median_of(m.on(clock)) for m in same_size), key=lambda seconds: seconds.value)
        points[nbytes] = ranked[(len(ranked) - 1) // 2]
    return points


@functools.lru_cache(maxsize=1024)
def _fit(kind: _Kind, clock: str, points: tuple[tuple[int, Estimate], ...]) -> Link | None:
    """Fits the seconds of copies by a chain of straight lines; cached. The intervals are from seconds that are drawn again and
    again within the points' own intervals and fitted with the same breakpoints.

    points: (bytes, seconds), the smallest copy first. None for fewer than FEWEST points, or if no bandwidth shows, as large
    copies take no longer than small ones.
    """
    if len(points) < FEWEST:
        return None
    sizes = np.array([nbytes for nbytes, _ in points], float)
    seconds = np.array([estimate.value for _, estimate in points])
    noise = np.array([estimate.noise for _, estimate in points])
    runs = _partition(sizes, seconds, max(TOLERANCE, float(np.median(noise))))
    chain = _chain(sizes, runs, _lines(sizes, seconds, runs), _run_errors(sizes, seconds, noise, runs))
    no_errors = [0.0] * len(runs)
    drawn_lines = _lines(sizes, _redrawn([estimate for _, estimate in points]), runs)
    drawn_chains = [_chain(sizes, runs, drawn_lines[:, :, draw], no_errors) for draw in range(drawn_lines.shape[-1])]
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


def _lines(sizes: np.ndarray, seconds: np.ndarray, runs: list[tuple[int, int]]) -> np.ndarray:
    """The straight line of each run of points: an array of runs x (latency in seconds, seconds a byte).

    runs: [first, end) indices of points. `seconds` may hold several sets (sets x points); the result then has them as a third
    axis.
    """
    return np.array([_line(sizes[first:end], seconds[..., first:end]) for first, end in runs])


def _run_errors(sizes: np.ndarray, seconds: np.ndarray, noise: np.ndarray, runs: list[tuple[int, int]]) -> list[float]:
    """For each run [first, end) of points, the largest relative error of its line, or the median noise of its points if that is
    more."""
    errors = []
    for first, end in runs:
        line_error = _error(sizes[first:end], seconds[first:end])
        errors.append(max(line_error, float(np.median(noise[first:end]))))
    return errors


def _chain(sizes: np.ndarray, runs: list[tuple[int, int]], lines: np.ndarray, errors: list[float]) -> list[Piece]:
    """The lines of all runs [first, end) of points, made continuous. lines: a row (latency, seconds a byte) a run."""
    pieces = []
    for (first, end), (latency_s, s_per_byte), error in zip(runs, lines.tolist(), errors, strict=True):
        low, high = float(sizes[first]), float(sizes[end - 1])
        pieces.append(Piece(low=low, high=high, latency_s=latency_s, s_per_byte=s_per_byte, error=error))
    return _joined(pieces)


def _line(sizes: np.ndarray, seconds: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(latency, seconds a byte) of the straight line with the least squared relative errors. `seconds` may hold several sets of
    times (sets x sizes), each of which gets its line. The slope is never negative, as more bytes never take less time."""
    weight = 1 / (seconds * seconds)
    weight = weight / weight.sum(-1, keepdims=True)
    mean_size = (weight * sizes).sum(-1, keepdims=True)
    mean_s = (weight * seconds).sum(-1, keepdims=True)
    variance = (weight * (sizes - mean_size) ** 2).sum(-1)
    covariance = (weight * (sizes - mean_size) * (seconds - mean_s)).sum(-1)
    slope = np.maximum(0.0, covariance / np.where(variance, variance, np.inf))
    return mean_s[..., 0] - slope * mean_size[..., 0], slope


def _error(sizes: np.ndarray, seconds: np.ndarray) -> float:
    """The largest relative error of the straight line that fits these points best."""
    latency, slope = _line(sizes, seconds)
    return float(np.max(np.abs(latency + slope * sizes - seconds) / seconds))


def _partition(sizes: np.ndarray, seconds: np.ndarray, tolerance: float) -> list[tuple[int, int]]:
    """The fewest runs [first, end) of at least two points each whose straight lines are all within the tolerance (a relative
    error). Of cuts into so many runs it is the one with the smallest largest error; if no cut is within the tolerance, the
    one with the smallest error of all.

    Dynamic programming over the breakpoints: the best p runs up to a point end with one run, after the best p - 1 runs up to
    its start.
    """
    count = len(sizes)
    error = {}
    for first, end in itertools.combinations(range(count + 1), 2):
        if end - first >= 2:
            error[first, end] = _error(sizes[first:end], seconds[first:end])
    # end -> (largest error, runs): the best cut of the points before `end`, into one run, then into one more in each round.
    best: dict[int, tuple[float, tuple]] = {end: (error[0, end], ((0, end),)) for end in range(2, count + 1)}
    least_error, runs = best[count]
    for _ in range(count // 2 - 1):
        if least_error <= tolerance:
            break
        one_more = {}
        for end in range(4, count + 1):
            cuts = [(max(best[first][0], error[first, end]), first) for first in range(2, end - 1) if first in best]
            if cuts:
                largest_error, first = min(cuts)
                one_more[end] = (largest_error, (*best[first][1], (first, end)))
        best = one_more
        if count in best and best[count][0] < least_error:
            least_error, runs = best[count]
    return list(runs)


def _joined(pieces: list[Piece]) -> list[Piece]:
    """The pieces made continuous. Two neighbors meet at the size where their lines cross, if that lies between their points;
    otherwise a further straight piece connects the end of the one with the start of the other."""
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
    """The bytes at which the lines of two pieces cross; infinity if they are parallel."""
    if a.s_per_byte == b.s_per_byte:
        return math.inf
    return (b.latency_s - a.latency_s) / (a.s_per_byte - b.s_per_byte)


def _bridge(piece: Piece, following: Piece) -> Piece:
    """The straight piece from the end of one piece to the start of the following one."""
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
    """The bytes of the copy that reaches half of the bandwidth of large ones (n 1/2), with the interval from the chains that were
    fitted to drawn seconds; None if the smallest copy reaches it already."""
    half = _half_bandwidth_bytes(chain)
    if half is None:
        return None
    drawn_halves = [_half_bandwidth_bytes(drawn) for drawn in drawn_chains]
    return from_draws(half, [size for size in drawn_halves if size is not None])


def _half_bandwidth_bytes(chain: list[Piece]) -> float | None:
    """The bytes from which a copy's bytes over its seconds are at least half of the last piece's bandwidth; None if the smallest
    copy reaches that already."""
    most_s_per_byte = 2 * chain[-1].s_per_byte
    if chain[0].seconds(chain[0].low) <= most_s_per_byte * chain[0].low:
        return None
    for piece in chain:
        if most_s_per_byte > piece.s_per_byte:
            nbytes = piece.latency_s / (most_s_per_byte - piece.s_per_byte)
            if nbytes <= piece.high or piece is chain[-1]:
                return max(nbytes, piece.low)
    return None


def _redrawn(medians: list[Estimate]) -> np.ndarray:
    """_DRAWS random sets of seconds (sets x sizes): each size's time drawn from a log-normal distribution with the interval of
    its median; always the same ones."""
    spread = [math.log(m.high / m.low) / (2 * Z) if m.low > 0 else 0.0 for m in medians]
    normal = np.random.default_rng(1).standard_normal((_DRAWS, len(medians)))
    return np.array([m.value for m in medians]) * np.exp(normal * np.array(spread))


def errors(link: Link, measurements: Measurements) -> list[tuple[int, float, float, float]]:
    """(bytes, predicted seconds, measured seconds, relative error) of each size of the copies that the link was fitted to."""
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
    """The link of copies in a direction (h2d, d2h, d2d, both) from or to a kind of host memory (pageable, pinned, ...), by a
    kernel, or if none is named by the kernel with the highest bandwidth; None without one."""
    wanted = (direction, host_memory, clock)
    fitting = [
        link
        for link in links
        if (link.direction, link.host_memory, link.clock) == wanted and kernel in ("", link.kernel)
    ]
    return max(fitting, key=lambda link: link.bandwidth.value, default=None)


def batch_copies(
    measurements: Measurements, device: str, direction: str = "h2d", memory: str = "pageable"
) -> Link | None:
    """The link that gives the seconds of copying a training batch between host and device; None without rows. A batch is a tensor
    in host memory already, so plain copies (ndarray.set) come before TensorFlow's, which make a tensor first."""
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
    """(generation, number of lanes) of the GPU's PCIe link while copies ran; None if no row has them. A link that saves power is
    slower at times, so the highest counts."""
    links = [
        (int(m.values["pcie_generation"]), int(m.values["pcie_width"]))
        for m in measurements
        if m.problem.op == "transfer" and {"pcie_generation", "pcie_width"} <= m.values.keys()
    ]
    return max(links, default=None)


def host_links(measurements: Measurements) -> list[Link]:
    """The links fitted to copies that the host waits for, the highest bandwidth first."""
    links = [link for link in fits(measurements) if link.clock == "host-latency"]
    return sorted(links, key=lambda link: -link.bandwidth.value)


def link_table(measurements: Measurements) -> Table:
    """A table of the links on the host's clock: latency, bandwidth, and the largest error of the fit."""
    pcie_link = pcie(measurements)
    pcie_bytes_per_s = data_sheets.pcie_bytes_per_s(*pcie_link) if pcie_link else None
    rows = []
    for link in host_links(measurements):
        crosses_pcie = link.direction != "d2d"
        largest_error = max(piece.error for piece in link.pieces)
        pcie_share = "-"
        if pcie_bytes_per_s and crosses_pcie:
            pcie_share = percent(link.bandwidth.value / pcie_bytes_per_s)
        rows.append(
            (
                link.direction,
                link.host_memory or "-",
                short(link.kernel),
                seconds(max(0.0, link.latency.value)),
                bytes_rate(link.bandwidth.value),
                width(link.bandwidth),
                size(link.half_bytes.value) if link.half_bytes else "-",
                pcie_share,
                f"{max(1, math.ceil(100 * largest_error))} %",  # rounded up, as a bound is
            )
        )
    heads = "way | host memory | by | latency | bandwidth | ± | half of it from | of the PCIe link | off by"
    return Table(heads, rows, left=3, least="± | off by | half of it from")


def pcie_sentence(measurements: Measurements) -> str:
    """A sentence on the PCIe link while copies ran; "" if no row has its generation and lanes."""
    link = pcie(measurements)
    if not link:
        return ""
    generation, lanes = link
    rate = data_sheets.pcie_bytes_per_s(generation, lanes)
    at_most = f", at most {bytes_rate(rate)} each way" if rate else ""
    return f"The link ran at PCIe generation {generation} with {count(lanes, 'lane')} while copying{at_most}."


def lines(measurements: Measurements) -> list["str | Table"]:
    """The table of links, an empty line and a sentence on the PCIe link; [] if no link could be fitted."""
    table = link_table(measurements)
    if not table.rows:
        return []
    sentence = pcie_sentence(measurements)
    return [table, "", sentence] if sentence else [table]
