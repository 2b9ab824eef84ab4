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
APART = 12  # a round lasts at least this many visits: five visits in a row would see the host in one state
MOST_VISITS = 20  # of a row: 200 samples
# Problems that several devices or a framework work at for seconds.
_WHOLE = ("training", "inference", "feeding", "layer", "peer", "collective")
_HELD_FROM_S = {"peak": 0.0, "stream": 1e-4, "matmul": 1e-3, "conv": 1e-3}  # seconds of a call on the device


def is_whole(row: Row) -> bool:
    """Whether a row is timed in one go: trainings and inferences, what several GPUs do, and what happens once in a process."""
    return row.problem.op in _WHOLE or row.process == "fresh" or row.problem.once


def way(row: Row) -> str:
    """The row's kernel, arithmetic and settings, whatever the size."""
    return row.kernel + row.problem.math + msgspec.json.encode(row.settings, order="sorted").decode()


def shuffled(rows: Iterable[Row], seed: int, number: int) -> list[Row]:
    """The rows in the order of a round: a shuffle of the groups that share a library, threads and a device, and of the rows in
    each. In the first round a kernel's sizes rise, as the time of one size predicts the next one's."""
    dice = random.Random(f"{seed} {number}")
    groups = list(stats.group_by(rows, lambda r: (r.backend, r.settings.threads, r.device)).values())
    dice.shuffle(groups)
    for group in groups:
        dice.shuffle(group)
    mixed = [row for group in groups for row in group]
    if number > 1:
        return mixed
    ways = stats.group_by(mixed, way)
    rising = {w: iter(sorted(own, key=lambda row: row.problem.flops or 0)) for w, own in ways.items()}
    return [next(rising[way(row)]) for row in mixed]


def held(done: Iterable[Measurement]) -> list[Row]:
    """GPU rows to measure again under sustained load, where power and heat limit the clock: peaks, and kernels whose calls
    take at least _HELD_FROM_S seconds."""
    return [
        replace(m.row, settings=replace(m.settings, switches=settings.SUSTAINED | m.settings.switches))
        for m in done
        if m.ok
        and m.on_gpu
        and not settings.is_sustained(m)
        and (own := m.on("device"))
        and m.problem.op in _HELD_FROM_S
        if stats.middle(own) >= _HELD_FROM_S[m.problem.op]
    ]


class Rounds:
    """The rows of a sweep with the visits made to each, in the order planned; those added on the way come after them."""

    def __init__(self, rows: Iterable[Row], limits: Limits, seed: int, kept: dict[str, list[Measurement]]):
        self.rows = {row.key: row for row in rows}
        self._limits, self._seed = limits, seed
        self._made = {key: list(kept[key]) for key in self.rows if key in kept}
        self._kept = kept
        self._joined: dict[str, Measurement] = {}
        self._further: dict[str, int] = {}  # row -> the last of the further visits that it is to have

    def add(self, m: Measurement) -> None:
        """Takes in a visit, or a whole row, that was made."""
        self._made.setdefault(m.key, []).append(m)
        self._joined.pop(m.key, None)

    def of(self, key: str) -> Measurement | None:
        """A row's visits so far as one Measurement; None before the first."""
        made = self._made.get(key)
        if made and key not in self._joined:
            self._joined[key] = together(made) if made[-1].visit else made[-1]
        return self._joined.get(key)

    @property
    def measurements(self) -> list[Measurement]:
        return [m for m in map(self.of, self.rows) if m]

    def complete(self, key: str) -> bool:
        """Whether the row has its visits, or never will."""
        return self._last(key) >= self._limits.rounds

    def settled(self, key: str) -> bool:
        """Whether no visit is to come: the planned ones are made, and the extra ones too if it was too noisy."""
        return self.complete(key) and self._last(key) >= self._further.get(key, 0) and not self.noise(key)

    def noise(self, key: str) -> float:
        """The relative half-width of the row's interval if it exceeds max_noise and more visits are allowed; else 0."""
        m = self.of(key)
        if not m or is_whole(m) or not m.ok or m.visits > MOST_VISITS - 2:
            return 0.0
        seconds, spent = stats.seconds_of(m), sum(sum(s.seconds) * s.calls for s in m.samples)
        wide = seconds and seconds.noise > self._limits.max_noise and spent < self._limits.max_time
        return seconds.noise if seconds and wide else 0.0

    def to_go(self) -> int:
        """Number of planned visits that are not made yet; a whole row counts as one."""
        return sum(
            0 if self.complete(key) else 1 if is_whole(row) else self._limits.rounds - int(self._last(key))
            for key, row in self.rows.items()
        )

    def again(self) -> int:
        """How many of the extra visits to noisy rows are still to be made."""
        return int(sum(max(0, number - self._last(key)) for key, number in self._further.items()))

    def _last(self, key: str) -> float:
        """The round of the row's last visit; infinite where there is nothing left to do."""
        made = self._made.get(key)
        if not made:
            return 0
        return made[-1].visit if made[-1].visit and made[-1].ok else math.inf

    def visits(
        self,
        refine: Callable[[list[Measurement]], list[Row]],
        clock: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> Iterator[tuple[Row, int]]:
        """The visits to make, one after the other, each a row and its round (0: the row whole); each is to be added before the
        next is asked for.

        After the first round `refine` gets the provisional rows until it adds none; an added row is visited at once and joins
        the later rounds. A round of few rows lasts APART visits, so that visits lie apart. After the planned rounds the
        noisiest rows get two more visits at a time, until EXTRA of the time of all visits is spent. Two, because the range of
        six medians is wider than the interval of five or of seven.
        """
        before, began = 0, -math.inf
        spent, costs = 0.0, dict[str, float]()
        for row, number in self._planned(refine):
            if number != before:
                if number > 1:
                    sleep(max(0.0, began + APART * self._limits.visit_s - clock()))
                before, began = number, clock()
            begin = clock()
            yield row, number
            if number:
                costs[row.key] = clock() - begin
                spent += costs[row.key]
        number, left = self._limits.rounds, EXTRA * spent
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
        found = []
        for key in sorted((key for key in costs if self.noise(key)), key=self.noise, reverse=True):
            if 2 * costs[key] <= seconds:
                seconds -= 2 * costs[key]
                found.append(key)
        return found

    def _planned(self, refine: Callable[[list[Measurement]], list[Row]]) -> Iterator[tuple[Row, int]]:
        yield from self._first_round(list(self.rows.values()))
        while added := {r.key: r for r in refine(self.measurements) if r.key not in self.rows}:
            self.rows |= added
            self._made |= {key: list(self._kept[key]) for key in added if key in self._kept}
            yield from self._first_round(list(added.values()))
        for number in range(2, self._limits.rounds + 1):
            yield from ((row, number) for row in self._order(number, self.rows) if self._last(row.key) < number)

    def _first_round(self, rows: list[Row]) -> Iterator[tuple[Row, int]]:
        """Whole rows in the order planned, then a visit to each of the others."""
        yield from ((row, 0) for row in rows if is_whole(row) and not self.complete(row.key))
        short = [row.key for row in rows if not is_whole(row) and not self._last(row.key)]
        yield from ((row, 1) for row in self._order(1, short))

    def _order(self, number: int, keys: Iterable[str]) -> list[Row]:
        return shuffled((self.rows[key] for key in keys if not is_whole(self.rows[key])), self._seed, number)
