"""Between-process noise: how much a row's median differs from process to process, kept beside a machine's runs.

Rows alike are pooled by empirical Bayes (Smyth 2004), so that few processes give an honest bound.
"""

# What an interval over the blocks of one process cannot see (what else the host did in those seconds, where arrays and code came
# to lie) is in every comparison of two runs, so nothing smaller is claimed of them.
#
# The logarithm of a process's median is taken as normal, with a variance of the row's own. A variance from five processes is
# itself a poor estimate, and the rows that looked steady by luck are those that would raise false alarms; so each is drawn
# towards
# what rows like it show. Their variances are taken as s0^2 times v0 over a chi-square of v0 degrees of freedom; with the row's
# own s^2 of v degrees, the difference of two further processes over sqrt(2 (v0 s0^2 + v s^2) / (v0 + v)) then follows Student's
# t of v0 + v degrees: a bound that holds as often as it says, however few processes there were, also of a row that has none.
#
# The processes of one run share its minute, and tell little of what another hour brings. A row whose processes were taken at
# several moments shows that too: what the medians of these differ by bounds two runs of several processes each. Here rows alike
# lend nothing: they were taken at the same moments, and a host that is slower for an hour is slower for all of them.
#
# Source: G. K. Smyth, Linear models and empirical Bayes methods for assessing differential expression (2004), sections 3 and
# 6.2.

import functools
import math
import pathlib
import statistics
from collections.abc import Iterable

import msgspec

from analysis.stats import clock_of
from workloads import ROOT, records
from workloads.records import Measurement, Samples

REPORTS = ROOT / "reports"
PROCESSES = " processes"  # how a row of --rigorous says why it stopped
IN_TURNS = " processes in turns"  # and one of processes whose blocks alternated, their rounds' common part taken out
MATCH = "match"  # the switch that tells the referee's rows from a sweep's
# what may differ: processes of two kinds, or whole runs
ALONE, TURNS, OCCASIONS = ("one by one", "in turns", "by occasion")
TAKEN = (
    "process_at_s"  # the series of when each process of a row was taken, in Unix seconds, in the order of the blocks
)
APART_S = 300.0  # with no process for that long, the next one is of another occasion
FEWEST = 3
ENOUGH = 5  # occasions: of fewer, Student's t says less than what the single processes of all of them do
PAIRS = 0.99  # of pairs of single processes that stay within a limit
DISTURBED = {"other-load", "other-tenant", "quota"}  # what such a row's processes differ by is not its own
# With nothing stored: the largest difference between two processes that the A/A pairs of bench-verdicts-short-calls show.
UNKNOWN, NOTHING = 0.08, "nothing stored"
_MODELS = ("training", "inference")  # of these problems a row is a whole model in a framework: none like a kernel's
_ROWS = 4  # fewer tell nothing of how variances differ from row to row, nor of what rows alike have in common
_FEW_DEGREES = 2.0  # v0 then: about what the rows of several kinds of one machine show (intel-avx512-amx-2c: 1.8)
_NOTHING_ALIKE = (0.0, 1.0)  # of no degrees of freedom: the row's own processes alone
_NONE_BEYOND = 1e-6  # v0 is then in the millions: Student's t is the normal distribution
_NARROWEST = 1e-4  # a standard deviation: the medians of processes are no surer than that, however alike a few came out


class Spread(msgspec.Struct, frozen=True):
    """`limit`: the relative difference that two single processes of a row stay within in PAIRS of all pairs; `source` says
    what it was taken from, `processes` how many of the row's own there were."""

    limit: float
    source: str
    processes: int = 0


class Seen(msgspec.Struct, frozen=True):
    """A row's processes, or its occasions: the variance of their log medians, its degrees of freedom, the seconds of a call."""

    variance: float
    degrees: int
    seconds: float


def over_processes(samples: "Samples") -> bool:
    """Whether the blocks of these samples are processes, so that their interval has the spread between processes in it."""
    return samples.stop_reason.endswith(PROCESSES) and len(set(samples.block)) >= FEWEST


def in_turns(samples: "Samples") -> bool:
    """Whether they are of processes that took turns: what these differ by is left when both have seen the same host."""
    return samples.stop_reason.endswith(IN_TURNS) and len(set(samples.block)) >= FEWEST


def seen(samples: "Samples", apart: list[list[int]] | None = None) -> Seen:
    """What samples whose blocks are processes show; with `apart`, the blocks of each occasion, what the middles of these do."""
    middles = {block: math.log(middle) for block, middle in samples.medians.items()}
    logs = [statistics.median(middles[b] for b in blocks) for blocks in apart] if apart else list(middles.values())
    return Seen(max(statistics.variance(logs), _NARROWEST**2), len(logs) - 1, math.exp(statistics.mean(logs)))


def moments(m: "Measurement", samples: "Samples") -> list[list[int]]:
    """The blocks of each occasion, in the order of time; one occasion where nothing says when its processes were taken."""
    blocks, taken = list(dict.fromkeys(samples.block)), m.series.get(TAKEN, ())
    if len(taken) != len(blocks):
        return [blocks]
    found: list[list[int]] = []
    last = -math.inf
    for at, block in sorted(zip(taken, blocks, strict=True)):
        if at - last > APART_S:
            found.append([])
        found[-1].append(block)
        last = at
    return found


def degrees(rows: Iterable[Seen]) -> float:
    """v0, from how much more the logarithms of the rows' variances vary than chance makes them; infinite where they do not. Of
    fewer than _ROWS rows: _FEW_DEGREES."""
    from scipy.special import polygamma

    rows = list(rows)
    if len(rows) < _ROWS:
        return _FEW_DEGREES
    beyond = statistics.variance(map(_unbiased, rows)) - statistics.mean(
        float(polygamma(1, r.degrees / 2)) for r in rows
    )
    if beyond <= _NONE_BEYOND:
        return math.inf
    half = 0.5 + 1 / beyond  # Newton's method on 1 / trigamma, nearly a straight line (Smyth's appendix)
    for _ in range(50):
        here = float(polygamma(1, half))
        half += (step := here * (1 - here / beyond) / float(polygamma(2, half)))
        if -step / half < 1e-8:
            break
    return 2 * half


def center(rows: Iterable[Seen], free: float) -> float:
    """s0^2 of rows alike whose v0 is `free`: what the mean of the logarithms of their variances says."""
    from scipy.special import digamma

    shift = 0.0 if math.isinf(free) else float(digamma(free / 2)) - math.log(free / 2)
    return math.exp(statistics.fmean(map(_unbiased, rows)) + shift)


def _unbiased(row: Seen) -> float:
    """The logarithm of the variance, without what chance takes from it in the mean."""
    from scipy.special import digamma

    return math.log(row.variance) - float(digamma(row.degrees / 2)) + math.log(row.degrees / 2)


def limit(own: Seen | None, alike: tuple[float, float]) -> float:
    """The difference that two single processes stay within in PAIRS of all pairs, by the row's own processes (None: it has
    none) and what rows like it show (v0, s0^2)."""
    from scipy.special import stdtrit

    free, variance = alike
    if own and math.isfinite(free):
        variance = (free * variance + own.degrees * own.variance) / (free + own.degrees)
    free = free + own.degrees if own else free
    quantile = (
        statistics.NormalDist().inv_cdf((1 + PAIRS) / 2) if math.isinf(free) else float(stdtrit(free, (1 + PAIRS) / 2))
    )
    return math.expm1(min(quantile * math.sqrt(2 * variance), 1.0))


class Stored:
    """The spreads known of a machine's rows: of processes by themselves, of processes that took turns, and of occasions."""

    def __init__(self, measurements: "Iterable[Measurement]"):
        self._rows: dict[tuple[str, str, str], Seen] = {}
        self._kinds: dict[tuple[str, str, str], tuple] = {}
        most: dict[tuple[str, str, str], int] = {}
        for m in measurements:
            samples = clock_of(m)
            turns = samples is not None and in_turns(samples)
            if not m.ok or not samples or not (turns or over_processes(samples)):
                continue
            if MATCH in m.settings.switches and not turns:  # timed as an outsider times it
                continue
            if min(samples.seconds) > 0 and not DISTURBED & {*m.flags}:
                apart, found = moments(m, samples), {TURNS if turns else ALONE: seen(samples)}
                if len(apart) >= ENOUGH and not turns:
                    found[OCCASIONS] = seen(samples, apart)
                for what, shown in found.items():
                    place = what, _key(m), samples.clock
                    if len(apart) >= most.get(place, 0):  # the newest of those that show most occasions
                        self._rows[place], self._kinds[place], most[place] = shown, _kind(m), len(apart)
        self._prior = functools.cache(self._prior_of)

    def of(self, m: "Measurement", what: str = ALONE) -> Spread:
        """The spread of a row, from its own processes and those of rows alike, the nearest kind that has enough of them: of its
        device, mode and threads and about as long as its call; these of any length; all of its device, a framework's models and
        kernels apart. Of OCCASIONS its own."""
        clock = clock_of(m)
        own = self._rows.get((what, _key(m), clock.clock)) if clock else None
        seconds = own.seconds if own else statistics.median(clock.seconds) if clock and clock.seconds else 0.0
        alike, rows = self._prior(what, _kind(m), math.floor(math.log10(seconds)) if seconds > 0 else 0)
        lone = m.settings.process == "fresh" or what == OCCASIONS  # what happens once in a process is like no other row
        if own and (lone or rows < _ROWS):
            return Spread(limit(own, _NOTHING_ALIKE), "this row", own.degrees + 1)
        if lone or not rows:
            return Spread(UNKNOWN, NOTHING)
        source = f"this row and {rows} like it" if own else f"{rows} rows like it"
        return Spread(limit(own, alike), source, own.degrees + 1 if own else 0)

    def _prior_of(self, what: str, kind: tuple, decade: int) -> tuple[tuple[float, float], int]:
        """What the rows like one show, and how many there are. How variances differ from row to row takes many rows to see, so
        v0 is of the rows of any length, and none too large for those that are more alike."""
        all_ = [
            (k, s)
            for key, s in self._rows.items()
            if key[0] == what and (k := self._kinds[key])[:2] == kind[:2] and k[-1] == "warm"
        ]
        same = [s for k, s in all_ if k == kind]
        near = [s for s in same if abs(math.log10(s.seconds) - decade - 0.5) <= 1]
        every = [s for _, s in all_]
        group = next((some for some in (near, same, every) if len(some) >= _ROWS), every)
        if not group:
            return _NOTHING_ALIKE, 0
        free = degrees(same if len(same) >= _ROWS else every)
        return (free, center(group, free)), len(group)

    def __len__(self) -> int:
        """The rows of which it is known what processes differ by."""
        return sum(what != OCCASIONS for what, *_ in self._rows)


def _key(m: "Measurement") -> str:
    """The row's key as a sweep writes it, without the switch that names a match of the referee."""
    if MATCH not in m.settings.switches:
        return m.key
    switches = {name: value for name, value in m.settings.switches.items() if name != MATCH}
    return msgspec.structs.replace(m.row, settings=msgspec.structs.replace(m.settings, switches=switches)).key


def _kind(m: "Measurement") -> tuple:
    """Rows with the same kind have their spread from the same causes: device, whether a framework runs a model or a kernel is
    called, mode, one thread or several, warm or fresh."""
    s = m.settings
    return (m.side, m.problem.op in _MODELS, s.mode, s.threads == 1, s.process)


def stored(key: str, more: "Iterable[Measurement]" = (), root: pathlib.Path | None = None) -> Stored:
    """What the runs kept under reports/ and reports/local/ say of the machine with this key, and `more` measurements."""
    root = root or REPORTS
    found: list[Measurement] = []
    for folder in (root / key, root / "local" / key):
        if folder.is_dir():
            found += [m for file in sorted(folder.glob("*/*.jsonl")) for m in _rigorous(file)]
    return Stored([*found, *more])


def _rigorous(file: pathlib.Path) -> "list[Measurement]":
    """A file's rows over processes; lines that cannot be such are not even decoded."""
    ends = [f'{end}"'.encode() for end in (PROCESSES, IN_TURNS)]
    try:
        lines = [line for line in file.read_bytes().splitlines() if any(end in line for end in ends)]
    except OSError:
        return []
    return records.decode(lines)[1]
