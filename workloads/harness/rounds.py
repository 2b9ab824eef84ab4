"""The order of a sweep: it goes round its rows in short visits, in another random order each round.

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
LEAST_VISITS = 12  # a round lasts at least as long as this many visits: five in a row would see the host in one state
MOST_VISITS = 20  # of a row: 200 samples
# Problems that several devices or a framework work at for seconds.
_WHOLE = ("training", "inference", "feeding", "layer", "peer", "collective")
# Operation -> seconds of a call on the device from which its rows are measured under sustained load too.
_SUSTAINED_FROM_S = {"peak": 0.0, "stream": 1e-4, "matmul": 1e-3, "conv": 1e-3}


def is_whole(row: Row) -> bool:
    """Whether a row is timed in one go: trainings and inferences, what several GPUs do, and what happens once in a process."""
    return row.problem.op in _WHOLE or row.process == "fresh" or row.problem.once


def size_series(row: Row) -> str:
    """The row's kernel, arithmetic and settings as text: rows of one text differ in their size alone."""
    return row.kernel + row.problem.math + msgspec.json.encode(row.settings, order="sorted").decode()


def shuffled(rows: Iterable[Row], seed: int, number: int) -> list[Row]:
    """The rows in the order of a round: a shuffle of the groups that share a library, threads and a device, and of the rows in
    each. In the first round a kernel's sizes rise, as the time of one size predicts the next one's."""
    dice = random.Random(f"{seed} {number}")
    groups = list(stats.group_by(rows, lambda r: (r.backend, r.settings.threads, r.device)).values())
    dice.shuffle(groups)
    for group in groups:
        dice.shuffle(group)
    mixed: list[Row] = []
    for group in groups:
        mixed += group
    if number > 1:
        return mixed
    rising: dict[str, Iterator[Row]] = {}
    for series, sizes in stats.group_by(mixed, size_series).items():
        rising[series] = iter(sorted(sizes, key=lambda row: row.problem.flops or 0))
    return [next(rising[size_series(row)]) for row in mixed]


def sustained_rows(done: Iterable[Measurement]) -> list[Row]:
    """GPU rows to measure again under sustained load, where power and heat limit the clock: peaks, and kernels whose calls
    take at least _SUSTAINED_FROM_S seconds."""
    rows = []
    for m in done:
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
        """stored: row key -> its lines of a file that is resumed."""
        self.rows = {row.key: row for row in rows}
        self._limits = limits
        self._seed = seed
        self._stored = stored
        self._lines = {
            key: list(stored[key]) for key in self.rows if key in stored
        }  # row -> its visits, or the row whole
        self._joined: dict[str, Measurement] = {}
        self._further: dict[str, int] = {}  # row -> the last of the further visits that it is to have

    def add(self, m: Measurement) -> None:
        """Takes in a new visit, or a whole row."""
        self._lines.setdefault(m.key, []).append(m)
        self._joined.pop(m.key, None)

    def measurement(self, key: str) -> Measurement | None:
        """A row's visits so far as one Measurement; None before the first."""
        lines = self._lines.get(key)
        if lines and key not in self._joined:
            self._joined[key] = together(lines) if lines[-1].visit else lines[-1]
        return self._joined.get(key)

    @property
    def measurements(self) -> list[Measurement]:
        """The rows that have a visit, in the order planned."""
        return [m for m in map(self.measurement, self.rows) if m]

    def complete(self, key: str) -> bool:
        """Whether the row has its visits, or never will."""
        return self._last(key) >= self._limits.rounds

    def settled(self, key: str) -> bool:
        """Whether no visit is to come: it has the planned ones, and the extra ones too if it was too noisy."""
        return self.complete(key) and self._last(key) >= self._further.get(key, 0) and not self.noise(key)

    def noise(self, key: str) -> float:
        """The relative half-width of the row's interval if it exceeds max_noise and more visits are allowed; else 0."""
        m = self.measurement(key)
        if not m or is_whole(m) or not m.ok or m.visits > MOST_VISITS - 2:
            return 0.0
        seconds = stats.seconds_of(m)
        spent_s = sum(sum(samples.seconds) * samples.calls for samples in m.samples)
        if seconds and seconds.noise > self._limits.max_noise and spent_s < self._limits.max_time:
            return seconds.noise
        return 0.0

    def to_go(self) -> int:
        """Number of planned visits to come; a whole row counts as one."""
        count = 0
        for key, row in self.rows.items():
            if not self.complete(key):
                count += 1 if is_whole(row) else self._limits.rounds - int(self._last(key))
        return count

    def again(self) -> int:
        """Number of the extra visits to noisy rows to come."""
        return int(sum(max(0, number - self._last(key)) for key, number in self._further.items()))

    def _last(self, key: str) -> float:
        """The round of the row's last visit; infinite where nothing is left to do."""
        lines = self._lines.get(key)
        if not lines:
            return 0
        return lines[-1].visit if lines[-1].visit and lines[-1].ok else math.inf

    def visits(
        self,
        refine: Callable[[list[Measurement]], list[Row]],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> Iterator[tuple[Row, int]]:
        """The visits to make, one after the other: a row and its round (0: the row whole). A visit is to be added before the next
        one is taken.

        After the first round `refine` gets the provisional rows until it adds none; an added row is visited at once and joins
        the later rounds. A round of few rows lasts as long as LEAST_VISITS visits, so that the visits of a row see several
        states of the host. After the planned rounds the noisiest rows get two more visits at a time, until EXTRA of the time of
        all visits is spent. Two, because the range of six medians is wider than the interval of five or of seven.
        """
        last_round = 0
        round_began = -math.inf
        spent = 0.0
        costs: dict[str, float] = {}  # row -> seconds of its last visit
        for row, number in self._planned(refine):
            if number != last_round:
                if number > 1:
                    sleep(max(0.0, round_began + LEAST_VISITS * self._limits.visit_s - clock()))
                last_round = number
                round_began = clock()
            begin = clock()
            yield row, number
            if number:
                costs[row.key] = clock() - begin
                spent += costs[row.key]
        number = self._limits.rounds
        left = EXTRA * spent
        while again := self._affordable(costs, left):
            self._further |= dict.fromkeys(again, number + 2)
            for _ in range(2):
                number += 1
                for row in self._order(number, again):
                    begin = clock()
                    yield row, number
                    costs[row.key] = clock() - begin
                    left -= costs[row.key]

    def _affordable(self, costs: dict[str, float], seconds: float) -> list[str]:
        """The noisiest rows that can be visited twice more in so many seconds, going by what their last visits took."""
        chosen = []
        noisy = [key for key in costs if self.noise(key)]
        for key in sorted(noisy, key=self.noise, reverse=True):
            if 2 * costs[key] <= seconds:
                seconds -= 2 * costs[key]
                chosen.append(key)
        return chosen

    def _planned(self, refine: Callable[[list[Measurement]], list[Row]]) -> Iterator[tuple[Row, int]]:
        """The visits of the planned rounds, with those to rows that `refine` adds."""
        yield from self._first_round(list(self.rows.values()))
        while added := {r.key: r for r in refine(self.measurements) if r.key not in self.rows}:
            self.rows |= added
            self._lines |= {key: list(self._stored[key]) for key in added if key in self._stored}
            yield from self._first_round(list(added.values()))
        for number in range(2, self._limits.rounds + 1):
            yield from ((row, number) for row in self._order(number, self.rows) if self._last(row.key) < number)

    def _first_round(self, rows: list[Row]) -> Iterator[tuple[Row, int]]:
        """Whole rows in the order planned, then a visit to each of the others."""
        yield from ((row, 0) for row in rows if is_whole(row) and not self.complete(row.key))
        short = [row.key for row in rows if not is_whole(row) and not self._last(row.key)]
        yield from ((row, 1) for row in self._order(1, short))

    def _order(self, number: int, keys: Iterable[str]) -> list[Row]:
        """Those of the rows that are visited, in the order of a round."""
        rows = [self.rows[key] for key in keys]
        return shuffled([row for row in rows if not is_whole(row)], self._seed, number)
