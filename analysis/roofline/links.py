"""The link between host and device as a law: seconds = latency + bytes / bandwidth, in as few pieces as the data need."""

# Small copies cost a constant, large ones their bytes, and between the two engines and drivers change their ways, so one
# line over all sizes is wrong by tens of percent in the middle. The pieces are found from the data.

import functools
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


class Piece(msgspec.Struct, frozen=True):
    """seconds = latency_s + bytes * s_per_byte from `low` to `high` bytes; `error`: the largest relative error, or the
    noise, of the points it was fitted to."""

    low: float
    high: float
    latency_s: float
    s_per_byte: float
    error: float = 0.0

    def seconds(self, nbytes: float) -> float:
        return self.latency_s + nbytes * self.s_per_byte


class Link(msgspec.Struct, frozen=True):
    """One way of copying as a continuous chain of pieces over `low` to `high` bytes.

    bandwidth: bytes/s of the last piece, each way where copies go both ways. latency: seconds of the first piece at no
    bytes. half_bytes: the copy that reaches half of that bandwidth, None where the smallest measured one does already.

    Source: R. Hockney's n_1/2 and r_inf (Parallel Computing 20, 1994); with one piece n_1/2 = latency * bandwidth.
    """

    device: str
    kernel: str
    direction: str
    host_memory: str
    clock: str
    pieces: tuple[Piece, ...]
    bandwidth: Estimate
    latency: Estimate
    half_bytes: Estimate | None
    low: int
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
    ways = group_by(_copies(measurements), _way)
    made = (_fit(way, clock, tuple(_points(rows, clock).items())) for way, rows in ways.items() for clock in CLOCKS)
    return tuple(link for link in made if link)


def _copies(measurements: Measurements) -> "list[Measurement]":
    return [m for m in measurements if m.problem.op == "transfer" and m.ok and not m.problem.compute]


def _way(m: Measurement) -> tuple[str, str, str, str]:
    return (m.device, m.kernel, m.problem.direction, m.problem.host_memory)


def _points(rows: Iterable[Measurement], clock: str) -> dict[int, Estimate]:
    """Bytes -> seconds of the rows that have the clock, by rising size; of a size measured again the median row."""
    groups = group_by((m for m in rows if m.on(clock)), lambda m: m.problem.nbytes)
    found = {n: sorted((median_of(m.on(clock)) for m in group), key=lambda e: e.value) for n, group in groups.items()}
    return {n: ranked[(len(ranked) - 1) // 2] for n, ranked in sorted(found.items())}


@functools.lru_cache(maxsize=1024)
def _fit(way: tuple[str, str, str, str], clock: str, found: tuple[tuple[int, Estimate], ...]) -> Link | None:
    """The law of a way on a clock, or None. Cached, as tables, pictures and predictions ask for the same."""
    points = dict(found)
    if len(points) < FEWEST:
        return None
    n, t = np.array(list(points), float), np.array([p.value for p in points.values()])
    noise = np.array([p.noise for p in points.values()])
    parts = _partition(n, t, max(TOLERANCE, float(np.median(noise))))
    ends = [(float(n[i]), float(n[j - 1])) for i, j in parts]
    errors = [max(_error(n[i:j], t[i:j]), float(np.median(noise[i:j]))) for i, j in parts]
    fitted = np.array([_line(n[i:j], t[i:j]) for i, j in parts]).tolist()
    pieces = _joined([(*end, *line, e) for end, line, e in zip(ends, fitted, errors, strict=True)])
    redrawn = _redrawn(points)
    drawn_lines = np.array([_line(n[i:j], redrawn[:, i:j]) for i, j in parts])
    lines = drawn_lines.transpose(2, 0, 1).tolist()  # draws x parts x 2
    drawn = [_joined([(*end, *line, 0.0) for end, line in zip(ends, own, strict=True)]) for own in lines]
    slopes = [chain[-1].s_per_byte for chain in drawn]
    if pieces[-1].s_per_byte <= 0 or np.quantile(slopes, 0.025) <= 0:
        return None
    bandwidth = 1 / from_draws(pieces[-1].s_per_byte, slopes)
    latency = from_draws(pieces[0].latency_s, [chain[0].latency_s for chain in drawn])
    half, halves = _half(pieces), [_half(chain) for chain in drawn]
    half_bytes = from_draws(half, [h for h in halves if h is not None]) if half is not None else None
    return Link(*way, clock, tuple(pieces), bandwidth, latency, half_bytes, int(n[0]), int(n[-1]))


def _line(n: np.ndarray, t: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(latency, seconds a byte) with the least squares of the relative errors, of each of any sets of seconds; more bytes never
    take less time."""
    weight = 1 / (t * t)
    weight = weight / weight.sum(-1, keepdims=True)
    middle_n, middle_t = ((weight * x).sum(-1, keepdims=True) for x in (n, t))
    across = (weight * (n - middle_n) ** 2).sum(-1)
    slope = np.maximum(0.0, (weight * (n - middle_n) * (t - middle_t)).sum(-1) / np.where(across, across, np.inf))
    return middle_t[..., 0] - slope * middle_n[..., 0], slope


def _error(n: np.ndarray, t: np.ndarray) -> float:
    latency, slope = _line(n, t)
    return float(np.max(np.abs(latency + slope * n - t) / t))


def _partition(n: np.ndarray, t: np.ndarray, tolerance: float) -> list[tuple[int, int]]:
    """The fewest runs [i, j) of at least two points whose lines are within the tolerance, the largest error as small as
    it can be for so many; where none is within it, those with the smallest error.

    Dynamic programming over the breakpoints: the best p runs up to j end with a run i..j after the best p - 1 up to i.
    """
    count = len(n)
    error = {(i, j): _error(n[i:j], t[i:j]) for i in range(count) for j in range(i + 2, count + 1)}
    best: dict[int, tuple[float, tuple]] = {j: (error[0, j], ((0, j),)) for j in range(2, count + 1)}
    chosen = best[count]
    for _ in range(count // 2 - 1):
        if chosen[0] <= tolerance:
            break
        longer = {}
        for j in range(4, count + 1):
            ends = [(max(best[i][0], error[i, j]), i) for i in range(2, j - 1) if i in best]
            if ends:
                worst, i = min(ends)
                longer[j] = (worst, (*best[i][1], (i, j)))
        best = longer
        if count in best and best[count][0] < chosen[0]:
            chosen = best[count]
    return list(chosen[1])


def _joined(lines: list[tuple[float, float, float, float, float]]) -> list[Piece]:
    """A continuous chain of the lines (low, high, latency, slope, error): neighbors meet where they cross, if that is
    between their points; otherwise a straight piece joins their ends."""
    chain: list[Piece] = []
    low = lines[0][0]
    for (_, end, a, b, error), following in zip(lines, [*lines[1:], None], strict=True):
        if following is None:
            chain.append(Piece(low, end, a, b, error))
            break
        start, _, a2, b2, error2 = following
        cross = (a2 - a) / (b - b2) if b != b2 else math.inf
        if end <= cross <= start:
            chain.append(Piece(low, cross, a, b, error))
            low = cross
            continue
        slope = (a2 + b2 * start - a - b * end) / (start - end)
        chain += [Piece(low, end, a, b, error), Piece(end, start, a + b * end - slope * end, slope, max(error, error2))]
        low = start
    return chain


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


def _redrawn(points: dict[int, Estimate]) -> np.ndarray:
    """_DRAWS sets of seconds, each size's drawn within its own median's interval."""
    spread = [math.log(p.high / p.low) / (2 * Z) if p.low > 0 else 0.0 for p in points.values()]
    normal = np.random.default_rng(1).standard_normal((_DRAWS, len(points)))
    return np.array([p.value for p in points.values()]) * np.exp(normal * np.array(spread))


def errors(link: Link, measurements: Measurements) -> list[tuple[int, float, float, float]]:
    """(bytes, predicted seconds, measured seconds, relative error) of every row of the link's way and clock."""
    way = (link.device, link.kernel, link.direction, link.host_memory)
    points = _points((m for m in _copies(measurements) if _way(m) == way), link.clock)
    told = [(nbytes, link.seconds(nbytes).value, measured.value) for nbytes, measured in points.items()]
    return [(nbytes, predicted, took, abs(predicted / took - 1)) for nbytes, predicted, took in told]


def find(
    links: Iterable[Link], direction: str, host_memory: str, kernel: str = "", clock: str = "host-latency"
) -> Link | None:
    """The link of that way, of the kernel with the highest bandwidth where none is named; None without one."""
    own = (x for x in links if (x.direction, x.host_memory, x.clock) == (direction, host_memory, clock))
    fitting = (x for x in own if kernel in ("", x.kernel))
    return max(fitting, key=lambda x: x.bandwidth.value, default=None)


def law(measurements: Measurements, device: str, direction: str = "h2d", memory: str = "pageable") -> Link | None:
    """The law of copies of a batch. A batch is a tensor in host memory already, so plain copies come before TensorFlow's."""
    wanted = (device, direction, memory)
    rows = [m for m in _copies(measurements) if (m.device, m.problem.direction, m.problem.host_memory) == wanted]
    fitted = fits(rows)
    if direction == "h2d" and memory == "pageable":
        return next((x for kernel in _COPIERS if (x := find(fitted, direction, memory, kernel))), None)
    return find(fitted, direction, memory)


def pcie(measurements: Measurements) -> tuple[int, int] | None:
    """(generation, width) of the PCIe link as seen while copies ran; None where nobody could tell."""
    seen = [
        (int(m.values["pcie_generation"]), int(m.values["pcie_width"]))
        for m in measurements
        if m.problem.op == "transfer" and {"pcie_generation", "pcie_width"} <= m.values.keys()
    ]
    return max(seen, default=None)


def laws_of(measurements: Measurements) -> list[Link]:
    """The laws on the host-latency clock, the highest bandwidth first."""
    found = [x for x in fits(measurements) if x.clock == "host-latency"]
    return sorted(found, key=lambda x: -x.bandwidth.value)


def law_table(measurements: Measurements) -> Table:
    """The laws, one a line."""
    seen = pcie(measurements)
    rate = data_sheets.pcie_bytes_per_s(*seen) if seen else None
    rows = [
        (
            law.direction,
            law.host_memory or "-",
            short(law.kernel),
            seconds(max(0.0, law.latency.value)),
            bytes_rate(law.bandwidth.value),
            width(law.bandwidth),
            size(law.half_bytes.value) if law.half_bytes else "-",
            percent(law.bandwidth.value / rate) if rate and law.direction != "d2d" else "-",
            f"{max(1, math.ceil(100 * max(p.error for p in law.pieces)))} %",  # rounded up, as a bound is
        )
        for law in laws_of(measurements)
    ]
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
