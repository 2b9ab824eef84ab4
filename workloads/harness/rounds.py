"""The order of a sweep: it goes round its rows several times and visits each for a moment, in another random order each round.

It measures nothing and reads no clock itself, so tests run it on a virtual clock.
"""

import math
import random
from collections.abc import Callable, Iterable, Iterator

import msgspec
from msgspec.structs import replace

from analysis import stats
from workloads.harness.timing import Limits
from workloads.records import Measurement, Row, settings
from workloads.records.visits import together

# Extra visits to noisy rows take at most this share of the seconds of the planned visits.
EXTRA = 0.15
# Extra visits are made two at a time: the range of six medians is wider than the interval of five or of seven.
_EXTRA_AT_ONCE = 2
LEAST_VISITS = 12  # a round lasts at least as long as this many visits: five in a row would see the host in one state
MOST_VISITS = 20  # of a row: 200 samples
# Problems that several devices or a framework work at for seconds.
_WHOLE = ("training", "inference", "feeding", "layer", "peer", "collective")
# Operation -> seconds of a call on the device from which its rows are measured under sustained load too.
_SUSTAINED_FROM_S = {"peak": 0.0, "stream": 1e-4, "matmul": 1e-3, "conv": 1e-3}

#: Takes the measurements so far and returns rows to add to the sweep; [] for none.
Refine = Callable[[list[Measurement]], list[Row]]


class Visit(msgspec.Struct, frozen=True, kw_only=True):
    """A visit that a sweep is to make: the samples of a row in one round, or all that a row needs if it is timed in one go."""

    row: Row
    #: The round, from 1; 0 for a row that is timed in one go.
    round: int


def is_whole(row: Row) -> bool:
    """Whether a row is timed in one go, not in a visit each round: trainings and inferences, what several GPUs do, and what
    happens once in a process."""
    return row.problem.op in _WHOLE or row.process == "fresh" or row.problem.once


def size_series(row: Row) -> str:
    """The row's kernel, arithmetic and settings as one text. Rows with the same text differ in the size of their problem
    alone."""
    return row.kernel + row.problem.math + msgspec.json.encode(row.settings, order="sorted").decode()


def shuffled(rows: Iterable[Row], seed: int, round_number: int) -> list[Row]:
    """The rows in random order, another for each round (from 1) and seed.

    Rows that share a library, threads and a device stay together as a group; the groups are shuffled, and the rows in each. In
    the first round the sizes of a kernel rise all the same, as the time of one size predicts the next one's.
    """
    dice = random.Random(f"{seed} {round_number}")
    groups = list(stats.group_by(rows, lambda row: (row.backend, row.settings.threads, row.device)).values())
    dice.shuffle(groups)
    for group in groups:
        dice.shuffle(group)
    mixed: list[Row] = []
    for group in groups:
        mixed += group
    if round_number > 1:
        return mixed
    rising: dict[str, Iterator[Row]] = {}
    for series, same_series in stats.group_by(mixed, size_series).items():
        rising[series] = iter(sorted(same_series, key=lambda row: row.problem.flops or 0))
    return [next(rising[size_series(row)]) for row in mixed]


def sustained_rows(measurements: Iterable[Measurement]) -> list[Row]:
    """GPU rows to measure again under sustained load, where power and heat limit the clock: peaks, and rows whose call takes at
    least _SUSTAINED_FROM_S seconds on the device."""
    rows = []
    for m in measurements:
        if not m.ok or not m.on_gpu or settings.is_sustained(m) or m.problem.op not in _SUSTAINED_FROM_S:
            continue
        device_samples = m.on("device")
        if device_samples and stats.quick_median(device_samples) >= _SUSTAINED_FROM_S[m.problem.op]:
            switches = settings.SUSTAINED | m.settings.switches
            rows.append(replace(m.row, settings=replace(m.settings, switches=switches)))
    return rows


class Rounds:
    """The rows of a sweep with their visits, in the order planned; rows that are added later come after them."""

    def __init__(self, rows: Iterable[Row], limits: Limits, seed: int, stored: dict[str, list[Measurement]]):
        """stored: key of a row -> its lines in a file that is resumed: its visits, or one line of a row timed in one go."""
        #: Key -> row.
        self.rows = {row.key: row for row in rows}
        self._limits = limits
        self._seed = seed
        self._stored = stored
        #: Key of a row -> its visits so far, or one measurement of a row timed in one go.
        self._lines: dict[str, list[Measurement]] = {}
        #: Key of a row -> its lines as one Measurement, until another visit is added.
        self._joined: dict[str, Measurement] = {}
        #: Key of a row -> the round of the last extra visit that it is to have.
        self._last_extra_round: dict[str, int] = {}
        self._take_stored(self.rows)

    def _take_stored(self, keys: Iterable[str]) -> None:
        """Takes the lines of these rows from the file that is resumed."""
        for key in keys:
            if key in self._stored:
                self._lines[key] = list(self._stored[key])

    def add(self, measurement: Measurement) -> None:
        """Takes in the result of a visit."""
        self._lines.setdefault(measurement.key, []).append(measurement)
        self._joined.pop(measurement.key, None)

    def measurement(self, key: str) -> Measurement | None:
        """The visits so far to the row with this key, joined to one Measurement; None before the first."""
        lines = self._lines.get(key)
        if lines and key not in self._joined:
            self._joined[key] = together(lines) if lines[-1].visit else lines[-1]
        return self._joined.get(key)

    @property
    def measurements(self) -> list[Measurement]:
        """A Measurement of each row that has had a visit, in the order planned."""
        every = [self.measurement(key) for key in self.rows]
        return [measurement for measurement in every if measurement]

    def complete(self, key: str) -> bool:
        """Whether the row with this key has all planned visits, or never will have, as one was not ok."""
        return self._last_round(key) >= self._limits.rounds

    def settled(self, key: str) -> bool:
        """Whether the row with this key will have no further visit: it is complete, and has had its extra visits or needs
        none."""
        has_extra_visits = self._last_round(key) >= self._last_extra_round.get(key, 0)
        return self.complete(key) and has_extra_visits and not self.reducible_noise(key)

    def reducible_noise(self, key: str) -> float:
        """How noisy a row is if extra visits may help: the half-width of its interval as a share of its time.

        0 where that is at most `max_noise`, and where no more visits are allowed.
        """
        m = self.measurement(key)
        if not m or is_whole(m) or not m.ok or m.visits + _EXTRA_AT_ONCE > MOST_VISITS:
            return 0.0
        seconds = stats.seconds_of(m)
        spent_s = sum(sum(samples.seconds) * samples.calls for samples in m.samples)
        if seconds and seconds.noise > self._limits.max_noise and spent_s < self._limits.max_time:
            return seconds.noise
        return 0.0

    def to_go(self) -> int:
        """Number of planned visits to come; a row that is timed in one go counts as one."""
        count = 0
        for key, row in self.rows.items():
            if not self.complete(key):
                count += 1 if is_whole(row) else self._limits.rounds - int(self._last_round(key))
        return count

    def extra_to_go(self) -> int:
        """Number of extra visits to noisy rows to come, of those that are decided on."""
        count = 0
        for key, last_extra_round in self._last_extra_round.items():
            last_round = self._last_round(key)
            if last_round < last_extra_round:
                count += last_extra_round - int(last_round)
        return count

    def _last_round(self, key: str) -> float:
        """The round of the row's last visit, 0 before the first; infinite if nothing is left to do: the row was timed in one
        go, or a visit was not ok."""
        lines = self._lines.get(key)
        if not lines:
            return 0
        last = lines[-1]
        return last.visit if last.visit and last.ok else math.inf

    def visits(self, refine: Refine, clock: Callable[[], float], sleep: Callable[[float], None]) -> Iterator[Visit]:
        """Yields the visits to make, which say what row is to be timed next and in which round. The caller makes each visit,
        and hands its result to `add` before it takes the next one.

        refine: called after the first round until it returns no new row; new rows are visited at once and join later rounds.
        clock, sleep: time.monotonic and time.sleep, or those of a test.

        After the planned rounds the noisiest rows get extra visits, until EXTRA of the time of the planned ones is spent.
        """
        spent_s = 0.0
        visit_s: dict[str, float] = {}  # key of a row -> seconds of its last visit
        for visit in self._paced(self._planned(refine), clock, sleep):
            begin = clock()
            yield visit
            if visit.round:
                visit_s[visit.row.key] = clock() - begin
                spent_s += visit_s[visit.row.key]
        left_s = EXTRA * spent_s
        last_round = self._limits.rounds
        while noisy := self._affordable(visit_s, left_s):
            first_round = last_round + 1
            last_round += _EXTRA_AT_ONCE
            for key in noisy:
                self._last_extra_round[key] = last_round
            for round_number in range(first_round, last_round + 1):
                for row in self._order(round_number, noisy):
                    begin = clock()
                    yield Visit(row=row, round=round_number)
                    visit_s[row.key] = clock() - begin
                    left_s -= visit_s[row.key]

    def _paced(
        self, visits: Iterable[Visit], clock: Callable[[], float], sleep: Callable[[float], None]
    ) -> Iterator[Visit]:
        """Yields the visits; waits before a round until the round before has lasted as long as LEAST_VISITS visits, so that the
        visits to a row see several states of the host."""
        least_round_s = LEAST_VISITS * self._limits.visit_s
        last_round = 0
        round_began = -math.inf
        for visit in visits:
            if visit.round != last_round:
                if visit.round > 1:
                    sleep(max(0.0, round_began + least_round_s - clock()))
                last_round = visit.round
                round_began = clock()
            yield visit

    def _affordable(self, visit_s: dict[str, float], left_s: float) -> list[str]:
        """The keys of the noisiest rows that can have their extra visits within `left_s` seconds; [] for none.

        visit_s: key of a row -> seconds of its last visit, by which the extra ones are estimated.
        """
        chosen = []
        noisy = [key for key in visit_s if self.reducible_noise(key)]
        for key in sorted(noisy, key=self.reducible_noise, reverse=True):
            extra_s = _EXTRA_AT_ONCE * visit_s[key]
            if extra_s <= left_s:
                left_s -= extra_s
                chosen.append(key)
        return chosen

    def _planned(self, refine: Refine) -> Iterator[Visit]:
        """Yields the visits of the planned rounds: in each round one to every row, but none that a resumed file has.

        refine: called after the first round until it returns no new row; each time the new rows get a first round of their own.
        """
        yield from self._first_round(list(self.rows.values()))
        while added := {row.key: row for row in refine(self.measurements) if row.key not in self.rows}:
            self.rows |= added
            self._take_stored(added)
            yield from self._first_round(list(added.values()))
        for round_number in range(2, self._limits.rounds + 1):
            for row in self._order(round_number, self.rows):
                if self._last_round(row.key) < round_number:
                    yield Visit(row=row, round=round_number)

    def _first_round(self, rows: list[Row]) -> Iterator[Visit]:
        """Yields the rows that are timed in one go, in the order planned, then a visit to each other row; none that a resumed
        file has."""
        for row in rows:
            if is_whole(row) and not self.complete(row.key):
                yield Visit(row=row, round=0)
        unvisited = [row.key for row in rows if not is_whole(row) and not self._last_round(row.key)]
        for row in self._order(1, unvisited):
            yield Visit(row=row, round=1)

    def _order(self, round_number: int, keys: Iterable[str]) -> list[Row]:
        """The rows with these keys in the random order of a round, without rows that are timed in one go."""
        rows = [self.rows[key] for key in keys]
        return shuffled([row for row in rows if not is_whole(row)], self._seed, round_number)
